// SPDX-License-Identifier: Apache-2.0
/*
 * Each write to the catalogue fails once, in a life in which all kinds of them happen: nothing is
 * lost, no id ever drives another sandbox's VM, and no slot leaks.
 */
#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "orchestrator/core/internal.h"
#include "test/unit/core/world.h"

/* --- a disk without room -------------------------------------------------------------------- */

#define NEVER INT_MAX

static atomic_int writes_left = NEVER; /* until one fails */
static atomic_bool fails_once, has_failed;
static atomic_bool starting; /* its writes are not counted */

static bool goes_wrong(void)
{
	int left = atomic_load(&writes_left);

	if (left == NEVER || (left > 0 && atomic_load(&starting)))
		return false;
	if (left > 0 && atomic_fetch_sub(&writes_left, 1) > 1)
		return false;
	if (atomic_load(&fails_once))
		atomic_store(&writes_left, NEVER);
	atomic_store(&has_failed, true);
	errno = ENOSPC;
	return true;
}

static ssize_t write_or_fail(int fd, const void *data, size_t len)
{
	return goes_wrong() ? -1 : write(fd, data, len);
}

static ssize_t pwrite_or_fail(int fd, const void *data, size_t len, off_t at)
{
	return goes_wrong() ? -1 : pwrite(fd, data, len, at);
}

/* For every database of this process: what SQLite writes goes through these. */
static void take_over_writes(void)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find("unix-excl");

	vfs->xSetSystemCall(vfs, "write", (sqlite3_syscall_ptr)write_or_fail);
	vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)pwrite_or_fail);
	vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)pwrite_or_fail);
}

/* From the `n`th write on: that one alone, or all. */
static void fail_write(int n, bool once)
{
	atomic_store(&has_failed, false);
	atomic_store(&fails_once, once);
	atomic_store(&writes_left, n);
}

static void make_room(void)
{
	atomic_store(&writes_left, NEVER);
}

/* --- what there is to be -------------------------------------------------------------------- */

struct one {
	char id[SANDBOX_ID_LEN + 1];
	char mark[2]; /* of its VM; empty: it is gone */
};

struct all {
	struct world *w;
	struct one ones[16];
	unsigned n;
};

static struct one *add(struct all *a, const char *id, const char *mark)
{
	struct one *one = &a->ones[a->n++];

	snprintf(one->id, sizeof(one->id), "%s", id);
	snprintf(one->mark, sizeof(one->mark), "%s", mark);
	return one;
}

static void count(void *arg, const struct sandbox_view *view)
{
	++*(unsigned *)arg;
}

static bool is_gone(void *arg)
{
	void **args = arg;
	struct sandbox_view view;
	struct failure f;

	return !core_view(args[0], TENANT, args[1], &view, &f);
}

/* Each id drives its own VM or none, and there are no others. */
static void check(struct all *a)
{
	unsigned listed = 0, living = 0;
	struct run r;

	for (unsigned i = 0; i < a->n; i++) {
		struct one *one = &a->ones[i];
		void *args[] = {a->w->core, one->id};

		if (one->mark[0]) {
			world_exec(a->w, &r, one->id, "marked");
			assert_string_equal(r.out, one->mark);
			living++;
		} else {
			world_until(a->w, is_gone, args);
		}
	}
	world_list(a->w, TENANT, count, &listed);
	assert_int_equal(listed, living);
}

static void restart(struct all *a)
{
	world_kill_core(a->w);
	atomic_store(&starting, true); /* takes room ahead: a thousand writes that may fail */
	world_start_core(a->w);
	atomic_store(&starting, false);
	check(a);
}

static void mark(struct all *a, const char *id, const char *mark)
{
	char script[32];
	struct run r;

	snprintf(script, sizeof(script), "mark %s", mark);
	world_exec(a->w, &r, id, script);
	assert_false(r.failed);
}

/* --- steps: each is done, or refused and without a trace -------------------------------------- */

/* What fails is the catalogue, and it is said. */
static bool refused(bool ok, const struct failure *f)
{
	if (ok)
		return false;
	if (strcmp(f->code, "catalogue") != 0 && strcmp(f->code, "freeze_failed") != 0)
		fail_msg("%s: %s", f->code, f->text);
	assert_true(atomic_load(&has_failed));
	return true;
}

static struct one *create(struct all *a, const char *name)
{
	struct made m;

	world_create(a->w, &m, NULL);
	if (refused(m.ok, &m.failure))
		return NULL;
	mark(a, m.view.id, name);
	return add(a, m.view.id, name);
}

static struct one *divide(struct all *a, const struct one *parent, const char *name)
{
	struct forked k;

	world_fork(a->w, &k, parent->id, 1);
	if (refused(k.ok, &k.failure))
		return NULL;
	mark(a, k.ids[0], name);
	return add(a, k.ids[0], name);
}

static void unite(struct all *a, struct one *parent, struct one *winner)
{
	struct done d;

	world_merge(a->w, &d, parent->id, winner->id);
	if (refused(!d.failed, &d.failure))
		return;
	memcpy(parent->mark, winner->mark, sizeof(parent->mark));
	winner->mark[0] = 0;
}

static void die(struct all *a, struct one *one)
{
	struct run r;

	world_exec(a->w, &r, one->id, "die");
	assert_true(r.failed);
	one->mark[0] = 0;
}

static void erase(struct all *a, struct one *one)
{
	struct done d;

	world_delete(a->w, &d, one->id);
	if (!refused(!d.failed, &d.failure))
		one->mark[0] = 0;
}

static void note_space(void *arg, const struct space_view *view)
{
	memcpy(arg, view->id, sizeof(view->id));
}

static void freeze_and_resume(struct all *a, struct one *one)
{
	struct frozen z;
	struct made m;

	world_freeze(a->w, &z, one->id);
	if (refused(z.ok, &z.failure) && strcmp(z.failure.code, "catalogue") != 0)
		return;
	/* It is a Space, be it one that was told to be none after a power cut. */
	world_spaces(a->w, TENANT, note_space, z.id);
	char name[2] = {one->mark[0], 0};
	one->mark[0] = 0;
	restart(a);
	world_resume(a->w, &m, z.id);
	if (refused(m.ok, &m.failure)) {
		make_room();
		world_resume(a->w, &m, z.id);
		assert_true(m.ok);
	}
	add(a, m.view.id, name);
}

/* All that is ever written, and a restart in between. */
static void live(struct all *a)
{
	struct one *parent = create(a, "p"), *doomed = create(a, "d");
	struct one *child = parent ? divide(a, parent, "c") : NULL;
	struct one *winner = parent ? divide(a, parent, "w") : NULL;

	check(a);
	if (doomed)
		die(a, doomed);
	struct one *next = create(a, "n");
	check(a);
	restart(a);
	if (winner)
		unite(a, parent, winner);
	check(a);
	if (next)
		erase(a, next);
	create(a, "l");
	restart(a);
	if (child)
		freeze_and_resume(a, child);
	restart(a);
}

static bool only_the_pool_lives(void *arg)
{
	struct all *a = arg;
	struct core_stats stats;

	core_stats(a->w->core, &stats);
	return core_ready(a->w->core) && fakes_live(a->w->fakes) == 2 &&
	       fakes_slots(a->w->fakes) == 2 && a->w->core->vms.in_use == 2;
}

static bool all_is_recorded(void *arg)
{
	const struct all *a = arg;

	return !a->w->core->n_unrecorded;
}

/* False when the life had fewer writes. */
static bool live_with_failure(struct world *w, int n, bool once)
{
	struct all a = {.w = w};

	fail_write(n, once);
	live(&a);
	make_room();
	bool failed = atomic_load(&has_failed);
	check(&a);
	world_until(w, all_is_recorded, &a);
	restart(&a);
	for (unsigned i = 0; i < a.n; i++)
		if (a.ones[i].mark[0])
			erase(&a, &a.ones[i]);
	check(&a);
	world_until(w, only_the_pool_lives, &a);
	return failed;
}

/* A change here is of three pages at least (the rows and two indices), and each page is two writes:
 * every fifth write hits all changes. */
static void fail_each_write(struct world *w, bool once)
{
	int n = 1;

	world_wait_ready(w);
	while (live_with_failure(w, n, once))
		n += 5;
	print_message("%d writes\n", n - 1);
	assert_true(n > 50);
}

static void test_each_write_fails_once(void **state)
{
	fail_each_write(*state, true);
}

static void test_from_each_write_on_all_fail(void **state)
{
	fail_each_write(*state, false);
}

/* --- the end of a sandbox ------------------------------------------------------------------- */

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

/* The API says that it has ended; its slot is nobody's, and a shutdown does not wait for it. */
static void test_an_end_that_is_not_written_keeps_its_slot(void **state)
{
	struct world *w = *state;
	struct all a = {.w = w};
	struct core_stats stats;
	struct failure f;
	struct sandbox_view view;

	world_wait_ready(w);
	struct one *doomed = create(&a, "d");
	world_wait_ready(w);
	fail_write(0, false);
	die(&a, doomed);
	assert_false(core_view(w->core, TENANT, doomed->id, &view, &f));
	assert_string_equal(f.code, "vm_died");
	world_wait_ready(w);
	assert_int_equal(fakes_live(w->fakes), 2);
	assert_int_equal(w->core->vms.in_use, 3);
	core_stats(w->core, &stats);
	assert_int_equal(stats.ends_unrecorded, 1);
	core_shutdown(w->core, on_closed, &w->closed);
	world_until_true(w, &w->closed);
	assert_int_equal(w->core->vms.in_use, 0);
	core_stats(w->core, &stats);
	assert_int_equal(stats.sandboxes, 0);
	make_room();
	world_kill_core(w);
	world_start_core(w); /* its row is left: the VM that it names is gone */
	check(&a);
	world_until(w, only_the_pool_lives, &a);
}

static void add_ended_of(struct world *w, const char *tenant, unsigned n, const char *prefix,
			 int64_t at_ms)
{
	char id[SANDBOX_ID_LEN + 1];
	struct err e;

	for (unsigned i = 0; i < n; i++) {
		snprintf(id, sizeof(id), "%s%u", prefix, i);
		const struct store_sandbox row = {.id = id,
						  .tenant = tenant,
						  .template = "default",
						  .created_at_ms = 1,
						  .ended_at_ms = at_ms + i,
						  .ended_code = "expired",
						  .ended_text = "it was old"};
		assert_int_equal(store_sandbox_add(w->core->store, &row, &e), 0);
	}
}

static void add_ended(struct world *w, unsigned n, const char *prefix, int64_t at_ms)
{
	add_ended_of(w, TENANT, n, prefix, at_ms);
}

struct ended {
	struct world *w;
	unsigned n, want;
	char first[SANDBOX_ID_LEN + 1];
};

static void note_ended(void *arg, const struct store_sandbox *row)
{
	struct ended *ended = arg;

	if (!ended->n++)
		snprintf(ended->first, sizeof(ended->first), "%s", row->id);
}

static bool are_left(void *arg)
{
	struct ended *ended = arg;
	struct err e;

	ended->n = 0;
	assert_int_equal(
		store_sandboxes_ended(ended->w->core->store, 0, UINT_MAX, note_ended, ended, &e),
		0);
	return ended->n == ended->want;
}

#define OLD_MS	 (2 * 3600 * 1000)
#define KEPT_MAX 1000 /* that memory holds */

/* However many have ended since. */
static void test_old_rows_are_removed_whatever_memory_holds(void **state)
{
	struct ended ended = {.w = *state, .want = 10};

	world_wait_ready(ended.w);
	add_ended(ended.w, 600, "old", realtime_ms() - OLD_MS);
	add_ended(ended.w, 10, "new", realtime_ms() - 1000);
	world_until(ended.w, are_left, &ended);
	assert_string_equal(ended.first, "new0");
}

static void test_a_start_takes_no_more_rows_than_memory_holds(void **state)
{
	struct world *w = *state;
	struct ended ended = {.w = w, .want = 600 + KEPT_MAX + 200};
	struct sandbox_view view;
	struct failure f;

	add_ended(w, 600, "old", realtime_ms() - OLD_MS);
	add_ended(w, KEPT_MAX + 200, "new", realtime_ms() - 600000);
	world_kill_core(w);
	world_start_core(w);
	assert_true(are_left(&ended)); /* none is removed before the loop turns */
	assert_int_equal(w->core->n_ended, KEPT_MAX);
	assert_false(core_view(w->core, TENANT, "new199", &view, &f));
	assert_string_equal(f.code, "not_found");
	assert_false(core_view(w->core, TENANT, "new200", &view, &f));
	assert_string_equal(f.code, "expired");
	ended.want = KEPT_MAX + 200;
	world_until(w, are_left, &ended);
}

static bool has_ended(void *arg)
{
	const struct core *c = arg;

	return !c->n_sandboxes && list_empty(&c->sandboxes);
}

static const char *end_of(struct world *w, const char *tenant, const char *id)
{
	struct sandbox_view view;
	static struct failure f;

	assert_false(core_view(w->core, tenant, id, &view, &f));
	return f.code;
}

static void test_one_tenant_s_ends_do_not_make_those_of_others_forgotten(void **state)
{
	struct world *w = *state;
	struct made m;

	add_ended_of(w, "tnt_other", 1, "other", realtime_ms() - 800000);
	add_ended(w, KEPT_MAX - 1, "new", realtime_ms() - 600000);
	world_kill_core(w);
	world_start_core(w);
	assert_int_equal(w->core->n_ended, KEPT_MAX);
	world_create(w, &m, NULL);
	sandbox_end(sandbox_living(w->core, TENANT, m.view.id), "expired", "it was old", false);
	world_until(w, has_ended, w->core);
	assert_int_equal(w->core->n_ended, KEPT_MAX);
	assert_string_equal(end_of(w, "tnt_other", "other0"), "expired");
	assert_string_equal(end_of(w, TENANT, "new0"), "not_found");
	assert_string_equal(end_of(w, TENANT, m.view.id), "expired");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_each_write_fails_once),
		TEST(test_from_each_write_on_all_fail),
		TEST(test_an_end_that_is_not_written_keeps_its_slot),
		TEST(test_old_rows_are_removed_whatever_memory_holds),
		TEST(test_a_start_takes_no_more_rows_than_memory_holds),
		TEST(test_one_tenant_s_ends_do_not_make_those_of_others_forgotten),
	};

	take_over_writes();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
