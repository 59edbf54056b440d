// SPDX-License-Identifier: Apache-2.0
/* Compares the merge of two listings with a naive comparison that holds both in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "orchestrator/guestops/diff-merge.h"

#define ENTRIES 64
#define NAME	48

struct tree {
	unsigned n;
	struct node {
		char path[NAME];
		uint32_t mode, uid;
		uint64_t size;
		uint8_t hash[AGENT_HASH_LEN];
		size_t content_len;
	} at[ENTRIES];
};

static unsigned seed;

static unsigned below(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

static int print_seed(void **state)
{
	const char *given = getenv("RAMET_TEST_SEED");

	seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
	print_message("RAMET_TEST_SEED=%u\n", seed);
	return 0;
}

static struct agent_entry entry_of(const struct node *n)
{
	return (struct agent_entry){.path = (const uint8_t *)n->path,
				    .path_len = strlen(n->path),
				    .mode = n->mode,
				    .uid = n->uid,
				    .size = n->size,
				    .content = n->hash,
				    .content_len = n->content_len};
}

static struct node file(const char *path)
{
	struct node n = {.mode = S_IFREG | 0644, .content_len = AGENT_HASH_LEN};

	snprintf(n.path, sizeof(n.path), "%s", path);
	return n;
}

/* --- the order of a walk -------------------------------------------------------------------- */

static void test_paths_are_ordered_as_in_a_sorted_walk(void **state)
{
	/* The order in which `find` would list them if it sorted the names in each folder. */
	static const char *const walk[] = {"/d",     "/d/a",	"/d/a/b",   "/d/a/b/c", "/d/a/c",
					   "/d/a\n", "/d/a b",	"/d/a.b",   "/d/a0",	"/d/aa",
					   "/d/b",   "/d/\xff", "/d/\xff/x"};
	size_t n = sizeof(walk) / sizeof(*walk);

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++) {
			int order = agent_path_order((const uint8_t *)walk[i], strlen(walk[i]),
						     (const uint8_t *)walk[j], strlen(walk[j]));

			assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
		}
}

/* --- against a naive comparison ------------------------------------------------------------- */

static int by_walk(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	return agent_path_order((const uint8_t *)x->path, strlen(x->path), (const uint8_t *)y->path,
				strlen(y->path));
}

static const struct node *node_at(const struct tree *t, const char *path)
{
	for (unsigned i = 0; i < t->n; i++)
		if (strcmp(t->at[i].path, path) == 0)
			return &t->at[i];
	return NULL;
}

static struct tree random_tree(void)
{
	static const char *const names[] = {"/a", "/b", "/a.b", "/a b", "/\xff\n", "/0"};
	struct tree t = {0};

	for (unsigned tries = below(ENTRIES); tries; tries--) {
		struct node n = file("/r");

		for (unsigned depth = below(4); depth; depth--)
			strcat(n.path, names[below(6)]);
		n.mode = below(8) ? n.mode : S_IFREG | 0600;
		n.uid = !below(16);
		n.size = below(3);
		n.hash[0] = (uint8_t)below(2);
		n.content_len = below(16) ? AGENT_HASH_LEN : 0;
		if (!node_at(&t, n.path))
			t.at[t.n++] = n;
	}
	qsort(t.at, t.n, sizeof(*t.at), by_walk);
	return t;
}

static bool same_node(const struct node *a, const struct node *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->size == b->size && a->content_len &&
	       b->content_len && a->hash[0] == b->hash[0];
}

/* Asserts that the list is sorted without duplicates, that `in` has each path, and that `other`
 * lacks it or, if `modified`, has a different node there. */
static void check_list(const struct diff_found *f, const struct tree *in, const struct tree *other,
		       bool modified)
{
	char *const *paths = f->paths;

	for (size_t i = 0; i < f->n; i++) {
		const struct node *here = node_at(in, paths[i]), *there = node_at(other, paths[i]);

		assert_non_null(here);
		assert_true(modified ? there && !same_node(here, there) : !there);
		if (i)
			assert_true(strcmp(paths[i - 1], paths[i]) < 0);
	}
}

static size_t count_expected(const struct tree *a, const struct tree *b)
{
	size_t n = 0;

	for (unsigned i = 0; i < a->n; i++) {
		const struct node *other = node_at(b, a->at[i].path);

		n += !other || !same_node(&a->at[i], other);
	}
	for (unsigned i = 0; i < b->n; i++)
		n += !node_at(a, b->at[i].path);
	return n;
}

/* Passes the entries of both listings to the merge, randomly interleaved. */
static void feed(struct diff_merge *m, const struct tree t[2])
{
	unsigned at[2] = {0};
	struct err e = {0};

	while (at[0] <= t[0].n || at[1] <= t[1].n) {
		unsigned side = at[0] > t[0].n ? 1 : at[1] > t[1].n ? 0 : below(2);
		unsigned i = at[side]++;
		int ret;

		assert_false(diff_merge_complete(m));
		if (i == t[side].n) {
			ret = diff_merge_end(m, side, &e);
		} else {
			const struct agent_entry entry = entry_of(&t[side].at[i]);

			ret = diff_merge_entry(m, side, &entry, &e);
		}
		if (ret < 0)
			fail_msg("%s", e.text);
	}
	assert_true(diff_merge_complete(m));
}

static void test_random_trees_match_the_naive_comparison(void **state)
{
	for (int round = 0; round < 5000; round++) {
		struct tree t[2] = {random_tree(), random_tree()};
		struct service_diff *d;
		struct diff_merge m;

		if (!below(3)) /* every third time, almost equal trees */
			t[1] = t[0];
		if (t[1].n && below(2))
			t[1].at[below(t[1].n)].size++;
		diff_merge_init(&m);
		diff_merge_begin(&m, "/r");
		feed(&m, t);
		d = diff_merge_take(&m);
		diff_merge_fini(&m);
		service_diff_sort(d);
		check_list(&d->found[DIFF_ADDED], &t[1], &t[0], false);
		check_list(&d->found[DIFF_REMOVED], &t[0], &t[1], false);
		check_list(&d->found[DIFF_MODIFIED], &t[0], &t[1], true);
		assert_int_equal(d->n, count_expected(&t[0], &t[1]));
		service_diff_free(d);
	}
}

/* --- each field, and limits ----------------------------------------------------------------- */

static bool differ(struct node a, struct node b)
{
	struct agent_entry x = entry_of(&a), y = entry_of(&b);
	struct diff_merge m;
	struct err e;

	diff_merge_init(&m);
	diff_merge_begin(&m, "/");
	assert_int_equal(diff_merge_entry(&m, 0, &x, &e), 0);
	assert_int_equal(diff_merge_entry(&m, 1, &y, &e), 0);
	bool result = m.found->n == 1;
	assert_int_equal(m.found->found[DIFF_MODIFIED].n, m.found->n);
	diff_merge_fini(&m);
	return result;
}

static void test_every_field_is_compared(void **state)
{
	struct node plain = file("/x"), other = plain, link = plain, device = plain;

	assert_false(differ(plain, plain));
	other.mode = S_IFREG | 0755;
	assert_true(differ(plain, other));
	other = plain;
	other.uid = 1;
	assert_true(differ(plain, other));
	other = plain;
	other.size = 1;
	assert_true(differ(plain, other));
	other = plain;
	other.hash[AGENT_HASH_LEN - 1] = 1;
	assert_true(differ(plain, other));
	link.mode = S_IFLNK | 0777;
	link.content_len = 4;
	other = link;
	assert_false(differ(link, other));
	other.content_len = 3;
	assert_true(differ(link, other));
	device.mode = S_IFCHR | 0600;
	device.content_len = 0;
	other = device;
	assert_false(differ(device, other));
	other.size = 7;
	assert_true(differ(device, other));
}

static void test_unreadable_file_counts_as_modified(void **state)
{
	struct node unread = file("/x");

	unread.content_len = 0;
	assert_true(differ(unread, unread));
	assert_true(differ(unread, file("/x")));
	assert_true(differ(file("/x"), unread));
}

static int refused(const char *const *paths, const char *root)
{
	struct diff_merge m;
	struct err e = {0};
	int ret = 0;

	diff_merge_init(&m);
	diff_merge_begin(&m, root);
	for (; *paths && ret == 0; paths++) {
		struct node n = file(*paths);
		struct agent_entry entry = entry_of(&n);

		ret = diff_merge_entry(&m, 1, &entry, &e);
	}
	diff_merge_fini(&m);
	assert_true(ret == 0 || e.text[0]);
	return ret;
}

static void test_invalid_listings_are_refused(void **state)
{
	static const char *const
		outside[] = {"/root", "/rootkit", NULL},
		*const elsewhere[] = {"/etc", NULL}, *const twice[] = {"/root", "/root", NULL},
		*const back[] = {"/root/b", "/root/a/z", NULL},
		*const dot[] = {"/root/a.b", "/root/a/b", NULL},
		*const good[] = {"/root", "/root/a", "/root/a/b", "/root/a.b", NULL};

	assert_int_equal(refused(outside, "/root"), -EPROTO);
	assert_int_equal(refused(elsewhere, "/root"), -EPROTO);
	assert_int_equal(refused(twice, "/root"), -EPROTO);
	assert_int_equal(refused(back, "/root"), -EPROTO);
	assert_int_equal(refused(dot, "/root"), -EPROTO);
	assert_int_equal(refused(good, "/root"), 0);
	assert_int_equal(refused(good, "/"), 0);
}

/* Code that takes the paths of a diff as they are, like a merge of files, would leave the root. */
static void test_paths_that_lead_out_of_the_root_are_refused(void **state)
{
	static const char *const wrong[] = {
		"/root/../etc/passwd", "/root/..", "/root/a/../../etc", "/root/.",
		"/root/./a",	       "/root/",   "/root//a",		"/root/a/",
		"/root/a//b"};
	static const char *const right[] = {"/root/...", "/root/..a", "/root/.a/b.", "/root"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		assert_int_equal(refused((const char *const[]){wrong[i], NULL}, "/root"), -EPROTO);
		assert_int_equal(refused((const char *const[]){wrong[i], NULL}, "/"), -EPROTO);
	}
	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
		assert_int_equal(refused((const char *const[]){right[i], NULL}, "/root"), 0);
	assert_int_equal(refused((const char *const[]){"/", NULL}, "/"), 0);
	assert_int_equal(refused((const char *const[]){"//", NULL}, "/"), -EPROTO);
}

static void test_entry_after_the_end_is_refused(void **state)
{
	struct node n = file("/r/x");
	struct agent_entry entry = entry_of(&n);
	struct diff_merge m;
	struct err e;

	diff_merge_init(&m);
	diff_merge_begin(&m, "/r");
	assert_int_equal(diff_merge_end(&m, 0, &e), 0);
	assert_int_equal(diff_merge_entry(&m, 0, &entry, &e), -EPROTO);
	assert_int_equal(diff_merge_end(&m, 0, &e), -EPROTO);
	assert_false(diff_merge_complete(&m));
	diff_merge_begin(&m, "/r");
	assert_int_equal(diff_merge_entry(&m, 0, &entry, &e), 0);
	diff_merge_fini(&m);
}

static void test_buffer_of_the_faster_side_is_bounded(void **state)
{
	struct diff_merge m;
	struct err e;
	unsigned n = 0, bytes = 0;

	diff_merge_init(&m);
	diff_merge_begin(&m, "/");
	for (; !diff_merge_is_ahead(&m, 0); n++) {
		char path[NAME];

		snprintf(path, sizeof(path), "/%08u", n);
		struct node node = file(path);
		struct agent_entry entry = entry_of(&node);
		assert_int_equal(diff_merge_entry(&m, 0, &entry, &e), 0);
		bytes += 9 + AGENT_HASH_LEN;
		assert_true(bytes < DIFF_AHEAD_MAX);
	}
	assert_int_equal(m.found->n, 0);
	assert_int_equal(diff_merge_end(&m, 1, &e), 0); /* all entries become differences at once */
	assert_int_equal(m.found->n, n);
	assert_false(diff_merge_is_ahead(&m, 0));
	diff_merge_fini(&m);
}

static int find_many(unsigned n, size_t name_len)
{
	char *path = malloc(name_len + 1);
	struct diff_merge m;
	struct err e;
	int ret = 0;

	diff_merge_init(&m);
	diff_merge_begin(&m, "/");
	assert_int_equal(diff_merge_end(&m, 0, &e), 0);
	memset(path, 'x', name_len);
	for (unsigned i = 0; i < n && ret == 0; i++) {
		snprintf(path, name_len, "/%08u", i);
		path[9] = 'x';
		struct agent_entry entry = {.path = (uint8_t *)path,
					    .path_len = name_len,
					    .mode = S_IFDIR | 0755,
					    .content = (uint8_t *)path};
		ret = diff_merge_entry(&m, 1, &entry, &e);
	}
	diff_merge_fini(&m);
	free(path);
	return ret;
}

static void test_number_and_size_of_found_paths_are_limited(void **state)
{
	assert_int_equal(find_many(DIFF_FOUND_MAX, 12), 0);
	assert_int_equal(find_many(DIFF_FOUND_MAX + 1, 12), -EFBIG);
	assert_int_equal(find_many(DIFF_FOUND_BYTES_MAX / 4096, 4096), 0);
	assert_int_equal(find_many(DIFF_FOUND_BYTES_MAX / 4096 + 1, 4096), -EFBIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths_are_ordered_as_in_a_sorted_walk),
		cmocka_unit_test(test_random_trees_match_the_naive_comparison),
		cmocka_unit_test(test_every_field_is_compared),
		cmocka_unit_test(test_unreadable_file_counts_as_modified),
		cmocka_unit_test(test_invalid_listings_are_refused),
		cmocka_unit_test(test_paths_that_lead_out_of_the_root_are_refused),
		cmocka_unit_test(test_entry_after_the_end_is_refused),
		cmocka_unit_test(test_buffer_of_the_faster_side_is_bounded),
		cmocka_unit_test(test_number_and_size_of_found_paths_are_limited),
	};

	return cmocka_run_group_tests(tests, print_seed, NULL);
}
