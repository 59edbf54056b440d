// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/guestops/merge-plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* The letters of merge_files.py. */
#define HAS  'y'
#define NONE 'n'
#define SAME '='

static int add(struct merge_plan *p, unsigned branch, enum diff_kind kind, const char *path,
	       struct err *e)
{
	p->bytes += strlen(path);
	if (p->n == MERGE_PATHS_MAX || p->bytes > MERGE_BYTES_MAX)
		return err_say(e, EFBIG,
			       "the branches have changed more than %u paths or %u MiB of them: "
			       "merge fewer paths",
			       MERGE_PATHS_MAX, MERGE_BYTES_MAX >> 20);
	if (array_grow(&p->entries, &p->room, p->n + 1, sizeof(*p->entries)) < 0)
		return err_set(e, ENOMEM, "store a changed path");
	struct merge_entry *n = &p->entries[p->n++];
	*n = (struct merge_entry){.path = path};
	memset(n->letters, SAME, p->branches + 1);
	n->letters[0] = kind == DIFF_ADDED ? NONE : HAS;
	n->letters[1 + branch] = kind == DIFF_REMOVED ? NONE : HAS;
	return 0;
}

int merge_plan_add(struct merge_plan *p, unsigned branch, const struct service_diff *d,
		   struct err *e)
{
	for (int kind = 0; kind < DIFF_NKINDS; kind++) {
		const struct diff_found *f = &d->found[kind];

		for (size_t i = 0; i < f->n; i++) {
			int ret = add(p, branch, (enum diff_kind)kind, f->paths[i], e);

			if (ret < 0)
				return ret;
		}
	}
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct merge_entry *)a)->path, ((const struct merge_entry *)b)->path);
}

int merge_plan_sort(struct merge_plan *p, struct err *e)
{
	size_t kept = 0;

	if (p->n)
		qsort(p->entries, p->n, sizeof(*p->entries), by_path);
	for (size_t i = 0; i < p->n; i++) {
		struct merge_entry *n = &p->entries[i], *last = kept ? &p->entries[kept - 1] : NULL;

		if (!last || strcmp(last->path, n->path) != 0) {
			p->entries[kept++] = *n;
			continue;
		}
		if (last->letters[0] != n->letters[0])
			return err_say(e, EAGAIN, "%.150s changed in the base during the merge",
				       n->path);
		for (unsigned k = 1; k <= p->branches; k++)
			if (n->letters[k] != SAME)
				last->letters[k] = n->letters[k];
	}
	p->n = kept;
	return 0;
}

void merge_plan_list(const struct merge_plan *p, unsigned source, struct text *out)
{
	for (size_t i = 0; i < p->n; i++) {
		if (p->entries[i].letters[source] != HAS)
			continue;
		text_number(out, (int64_t)i);
		text_putc(out, '\0');
		text_add(out, p->entries[i].path, strlen(p->entries[i].path) + 1);
	}
}

void merge_plan_text(const struct merge_plan *p, struct text *out)
{
	for (size_t i = 0; i < p->n; i++) {
		text_add(out, p->entries[i].letters, p->branches + 2);
		text_add(out, p->entries[i].path, strlen(p->entries[i].path) + 1);
	}
}

/* A path without a conflict has no resolution, and one with a conflict has some. */
static bool is_said(uint8_t outcome, uint8_t resolution)
{
	static const char conflicts[] = {MERGE_CONTENT,
					 MERGE_BINARY,
					 MERGE_TYPE,
					 MERGE_DELETED,
					 MERGE_BOTH_ADDED,
					 MERGE_ATTRIBUTES,
					 MERGE_NO_GIT,
					 MERGE_NO_FOLDER,
					 MERGE_NOT_EMPTY,
					 MERGE_UNREADABLE,
					 0};
	static const char resolutions[] = {MERGE_OPEN, MERGE_OURS, MERGE_THEIRS, MERGE_MARKERS, 0};

	if (outcome == MERGE_SAME || outcome == MERGE_TAKEN || outcome == MERGE_MERGED)
		return resolution == MERGE_CLEAN;
	return outcome && resolution && strchr(conflicts, outcome) &&
	       strchr(resolutions, resolution);
}

int merge_plan_read(struct merge_plan *p, const void *said, size_t len, struct err *e)
{
	const uint8_t *at = said;

	if (len != 2 * p->n)
		return err_say(e, EPROTO, "the guest merged %zu paths, not %zu", len / 2, p->n);
	for (size_t i = 0; i < p->n; i++, at += 2) {
		if (!is_said(at[0], at[1]))
			return err_say(e, EPROTO, "the guest did not say what became of %.100s",
				       p->entries[i].path);
		p->entries[i].outcome = (enum merge_outcome)at[0];
		p->entries[i].resolution = (enum merge_resolution)at[1];
	}
	return 0;
}

bool merge_entry_has(const struct merge_entry *n, unsigned branch)
{
	return n->letters[1 + branch] != SAME;
}

enum diff_kind merge_entry_kind(const struct merge_entry *n)
{
	if (n->letters[0] == NONE)
		return DIFF_ADDED;
	return strchr(n->letters + 1, NONE) ? DIFF_REMOVED : DIFF_MODIFIED;
}

void merge_plan_free(struct merge_plan *p)
{
	free(p->entries);
}
