// SPDX-License-Identifier: Apache-2.0
/* The plan of a merge of files: its entries, what is copied, and what a guest may say about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/guestops/merge-plan.h"

struct fixture {
	struct merge_plan plan;
	struct service_diff *diffs[MERGE_BRANCHES_MAX];
	struct err e;
};

static int add(struct fixture *x, unsigned branch, enum diff_kind kind, const char *path)
{
	struct service_diff *d = calloc(1, sizeof(*d));

	assert_int_equal(service_diff_add(d, kind, path, strlen(path)), 0);
	for (size_t i = 0; i < MERGE_BRANCHES_MAX; i++) {
		if (x->diffs[i])
			continue;
		x->diffs[i] = d;
		break;
	}
	return merge_plan_add(&x->plan, branch, d, &x->e);
}

static void fini(struct fixture *x)
{
	for (size_t i = 0; i < MERGE_BRANCHES_MAX; i++)
		service_diff_free(x->diffs[i]);
	merge_plan_free(&x->plan);
}

static void make(struct fixture *x)
{
	*x = (struct fixture){.plan = {.branches = 2}};
	assert_int_equal(add(x, 0, DIFF_MODIFIED, "/b"), 0);
	assert_int_equal(add(x, 0, DIFF_ADDED, "/a"), 0);
	assert_int_equal(add(x, 1, DIFF_REMOVED, "/b"), 0);
	assert_int_equal(add(x, 1, DIFF_REMOVED, "/c"), 0);
	assert_int_equal(merge_plan_sort(&x->plan, &x->e), 0);
	assert_int_equal(x->plan.n, 3);
}

static void check_text(struct text *t, const void *expected, size_t len)
{
	assert_int_equal(t->len, len);
	assert_memory_equal(t->p, expected, len);
	text_free(t);
}
#define CHECK_TEXT(t, expected) check_text(t, expected, sizeof(expected) - 1)

static void test_each_path_has_one_entry(void **state)
{
	struct fixture x;
	struct text t = {0};

	make(&x);
	merge_plan_text(&x.plan, &t);
	CHECK_TEXT(&t, "ny=\0/a\0"
		       "yyn\0/b\0"
		       "y=n\0/c\0");
	assert_true(merge_entry_has(&x.plan.entries[0], 0));
	assert_false(merge_entry_has(&x.plan.entries[0], 1));
	assert_int_equal(merge_entry_kind(&x.plan.entries[0]), DIFF_ADDED);
	assert_int_equal(merge_entry_kind(&x.plan.entries[2]), DIFF_REMOVED);
	fini(&x);
}

static void test_only_versions_that_exist_are_copied(void **state)
{
	struct fixture x;
	struct text t = {0};

	make(&x);
	merge_plan_list(&x.plan, 0, &t);
	CHECK_TEXT(&t, "1\0/b\0"
		       "2\0/c\0");
	merge_plan_list(&x.plan, 1, &t);
	CHECK_TEXT(&t, "0\0/a\0"
		       "1\0/b\0");
	merge_plan_list(&x.plan, 2, &t);
	assert_int_equal(t.len, 0);
	text_free(&t);
	fini(&x);
}

static void test_base_that_changes_meanwhile_is_refused(void **state)
{
	struct fixture x = {.plan = {.branches = 2}};

	assert_int_equal(add(&x, 0, DIFF_ADDED, "/a"), 0);
	assert_int_equal(add(&x, 1, DIFF_MODIFIED, "/a"), 0);
	assert_int_equal(merge_plan_sort(&x.plan, &x.e), -EAGAIN);
	assert_non_null(strstr(x.e.text, "/a changed in the base"));
	fini(&x);
}

static void test_number_and_size_of_paths_are_limited(void **state)
{
	struct merge_plan p = {.branches = 1, .n = MERGE_PATHS_MAX};
	struct service_diff *d = calloc(1, sizeof(*d));
	struct err e;

	service_diff_add(d, DIFF_ADDED, "/a", 2);
	assert_int_equal(merge_plan_add(&p, 0, d, &e), -EFBIG);
	p.n = 0;
	p.bytes = MERGE_BYTES_MAX - 1;
	assert_int_equal(merge_plan_add(&p, 0, d, &e), -EFBIG);
	p.bytes = MERGE_BYTES_MAX - 2;
	assert_int_equal(merge_plan_add(&p, 0, d, &e), 0);
	service_diff_free(d);
	merge_plan_free(&p);
}

static void test_guest_says_two_letters_about_each_path(void **state)
{
	static const char *const wrong[] = {"",	      "=.=.=",	"=.=.=.=.", "=.=.=-", "=.=.C.",
					    "=.=.Cx", "=.=.x-", "m.a-=.",   "..=.=."};
	struct fixture x;

	make(&x);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(merge_plan_read(&x.plan, wrong[i], strlen(wrong[i]), &x.e),
				 -EPROTO);
	assert_int_equal(merge_plan_read(&x.plan, "=.\0-=.", 6, &x.e), -EPROTO);
	assert_int_equal(merge_plan_read(&x.plan, "=.C\0=.", 6, &x.e), -EPROTO);
	assert_int_equal(merge_plan_read(&x.plan, "a.CmD-", 6, &x.e), 0);
	assert_int_equal(x.plan.entries[0].outcome, MERGE_TAKEN);
	assert_int_equal(x.plan.entries[1].resolution, MERGE_MARKERS);
	assert_int_equal(x.plan.entries[2].outcome, MERGE_DELETED);
	fini(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_path_has_one_entry),
		cmocka_unit_test(test_only_versions_that_exist_are_copied),
		cmocka_unit_test(test_base_that_changes_meanwhile_is_refused),
		cmocka_unit_test(test_number_and_size_of_paths_are_limited),
		cmocka_unit_test(test_guest_says_two_letters_about_each_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
