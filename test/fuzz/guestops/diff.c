// SPDX-License-Identifier: Apache-2.0
/*
 * Merges the listings of two guests. The input defines the entries, in any order and interleaving.
 * Entries that break the protocol must be refused; for accepted ones, the result must match a
 * comparison of every path with every other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "orchestrator/guestops/diff-merge.h"

#define ENTRIES 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t hash[AGENT_HASH_LEN];

struct node {
	struct agent_entry entry;
	uint8_t path[16];
	unsigned side;
};

static void expect(bool right)
{
	if (!right)
		abort();
}

static bool same_path(const struct agent_entry *a, const struct agent_entry *b)
{
	return a->path_len == b->path_len && memcmp(a->path, b->path, a->path_len) == 0;
}

static bool same(const struct agent_entry *a, const struct agent_entry *b)
{
	bool unread = S_ISREG(a->mode) && !a->content_len;

	return !unread && a->mode == b->mode && a->uid == b->uid && a->size == b->size &&
	       a->content_len == b->content_len;
}

/* Returns the number of differences that must have been found. */
static size_t expected(const struct node *t, size_t n)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		const struct node *other = NULL;

		for (size_t j = 0; j < n; j++)
			if (t[i].side != t[j].side && same_path(&t[i].entry, &t[j].entry))
				other = &t[j];
		if (!other)
			found++;
		else if (t[i].side == 0)
			found += !same(&t[i].entry, &other->entry);
	}
	return found;
}

/* Decodes an entry from three bytes: the side and the attributes, then the name. */
static void make(struct node *t, const uint8_t *data)
{
	static const char alphabet[] = "ab./\x01\xff c";
	size_t len = 1 + (data[0] >> 5);

	t->side = data[0] & 1;
	t->path[0] = '/';
	for (size_t i = 1; i < len; i++)
		t->path[i] = (uint8_t)alphabet[(data[1 + (i > 4)] >> (i - 1) % 4 * 2) & 7];
	t->entry = (struct agent_entry){.path = t->path,
					.path_len = len,
					.mode = data[0] & 2 ? S_IFREG | 0644 : S_IFDIR | 0755,
					.uid = data[0] >> 2 & 1,
					.content = hash};
	if (S_ISREG(t->entry.mode))
		t->entry.content_len = data[0] & 8 ? 0 : AGENT_HASH_LEN;
}

static void check(struct diff_merge *m, const struct node *t, size_t n)
{
	struct err e;

	expect(diff_merge_end(m, n & 1, &e) == 0);
	expect(!diff_merge_complete(m));
	expect(diff_merge_end(m, !(n & 1), &e) == 0);
	expect(diff_merge_complete(m));
	struct service_diff *d = diff_merge_take(m);
	service_diff_sort(d);
	const struct diff_found *modified = &d->found[DIFF_MODIFIED];
	expect(d->found[DIFF_ADDED].n + d->found[DIFF_REMOVED].n + modified->n == expected(t, n));
	for (size_t i = 1; i < modified->n; i++)
		expect(strcmp(modified->paths[i - 1], modified->paths[i]) < 0);
	service_diff_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct node t[ENTRIES];
	struct diff_merge m;
	struct err e = {0};
	size_t n = 0;
	int ret = 0;

	diff_merge_init(&m);
	diff_merge_begin(&m, "/");
	for (; n < ENTRIES && size >= 3; data += 3, size -= 3) {
		make(&t[n], data);
		ret = diff_merge_entry(&m, t[n].side, &t[n].entry, &e);
		if (ret < 0)
			break;
		n++;
	}
	if (ret < 0)
		expect(ret == -EPROTO && e.text[0]);
	else
		check(&m, t, n);
	diff_merge_fini(&m);
	return 0;
}
