// SPDX-License-Identifier: Apache-2.0
/* The table of uploads, with a fake clock and workers that never run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "../../../guest/files/staged.c"

static int64_t now_ms;
static unsigned sweeps;
static int sweep_result;
static unsigned removals;

int64_t loop_now_ms(void)
{
	return now_ms;
}

int worker_start(struct conn *c, const struct worker_job *job, struct err *e)
{
	assert_null(c);
	sweeps++;
	return sweep_result;
}

void staged_remove(struct staged_file *f)
{
	removals++;
	f->state = STAGED_OVER;
}

static int setup(void **state)
{
	now_ms = 1000000;
	sweep_result = 0;
	staged_drop_all();
	sweeps = removals = 0;
	assert_int_equal(upload_count, 0);
	return 0;
}

static const char *name(unsigned i)
{
	static char id[AGENT_ID_LEN + 1];

	snprintf(id, sizeof(id), "upl_%032u", i);
	return id;
}

static struct staged *open_upload(unsigned i)
{
	struct err e;
	struct staged *d = staged_new(name(i), &e);

	assert_non_null(d);
	d->file->state = STAGED_OPEN;
	return d;
}

static void test_ids_are_unique_and_uploads_limited(void **state)
{
	struct err e;

	for (unsigned i = 0; i < AGENT_UPLOAD_MAX; i++)
		open_upload(i);
	assert_null(staged_new(name(3), &e));
	assert_int_equal(e.code, -EEXIST);
	assert_null(staged_new(name(AGENT_UPLOAD_MAX), &e));
	assert_int_equal(e.code, -EAGAIN);
	assert_string_equal(e.text, "64 uploads are open, which is the limit");
	staged_drop(staged_find(name(3)));
	assert_null(staged_find(name(3)));
	open_upload(AGENT_UPLOAD_MAX);
}

static void test_dropped_upload_is_removed_from_disk(void **state)
{
	open_upload(1);
	staged_drop(staged_find(name(1)));
	assert_int_equal(sweeps, 1);
	sweep_result = -EAGAIN; /* no process can be started: the agent removes it itself */
	open_upload(2);
	staged_drop(staged_find(name(2)));
	assert_int_equal(sweeps, 2);
	assert_int_equal(removals, 1);
}

static void test_upload_lives_while_a_worker_uses_it(void **state)
{
	struct staged *d = open_upload(1);

	staged_use(d);
	staged_drop(d);
	assert_int_equal(sweeps, 0);
	staged_unuse(d);
	assert_int_equal(sweeps, 1);
}

static void test_failed_or_committed_upload_leaves_the_table(void **state)
{
	static const enum staged_state states[] = {STAGED_NEW, STAGED_OVER};

	for (unsigned i = 0; i < 2; i++) {
		struct staged *d = open_upload(i);
		d->file->state = states[i];
		staged_use(d);
		staged_unuse(d);
		assert_null(staged_find(name(i)));
	}
	struct staged *d = open_upload(3);
	d->commits = true;
	staged_use(d);
	staged_unuse(d);
	assert_ptr_equal(staged_find(name(3)), d);
	assert_false(d->commits);
	assert_int_equal(sweeps, 0);
}

static void test_untouched_upload_expires_after_an_hour(void **state)
{
	assert_int_equal(staged_expire(), -1);
	open_upload(1);
	now_ms += 1000;
	struct staged *busy = open_upload(2);
	staged_use(busy);
	assert_int_equal(staged_expire(), EXPIRES_MS - 1000);
	now_ms += EXPIRES_MS - 1001;
	assert_int_equal(staged_expire(), 1);
	staged_find(name(1));
	now_ms += 1;
	assert_int_equal(staged_expire(), EXPIRES_MS - 1);
	now_ms += EXPIRES_MS - 1;
	assert_int_equal(staged_expire(), -1);
	assert_null(staged_find(name(1)));
	assert_int_equal(sweeps, 1);
	staged_unuse(busy);
	assert_int_equal(staged_expire(), EXPIRES_MS);
}

static void test_drop_all_includes_uploads_in_use(void **state)
{
	struct staged *d = open_upload(1);

	open_upload(2);
	staged_use(d);
	staged_drop_all();
	assert_int_equal(upload_count, 0);
	assert_int_equal(sweeps, 2);
	d->file->state = STAGED_OVER; /* the sweep sets this state */
	staged_unuse(d);
	assert_int_equal(sweeps, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_ids_are_unique_and_uploads_limited, setup),
		cmocka_unit_test_setup(test_dropped_upload_is_removed_from_disk, setup),
		cmocka_unit_test_setup(test_upload_lives_while_a_worker_uses_it, setup),
		cmocka_unit_test_setup(test_failed_or_committed_upload_leaves_the_table, setup),
		cmocka_unit_test_setup(test_untouched_upload_expires_after_an_hour, setup),
		cmocka_unit_test_setup(test_drop_all_includes_uploads_in_use, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
