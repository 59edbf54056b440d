// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a scenario with all kinds of catalogue writes, and fails each write in turn: nothing is
 * lost, no id ever drives another sandbox's VM, and no slot leaks.
 */
#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "orchestrator/sandbox/service.h"
#include "test/unit/service/world.h"

/* --- a full disk ---------------------------------------------------------------------------- */

#define NEVER INT_MAX

static atomic_int writes_left = NEVER; /* the one that makes this 0 fails; 0: all fail */
static atomic_bool fails_once, has_failed;
static atomic_bool starting; /* writes during startup are not counted */

static bool must_fail(void)
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
	return must_fail() ? -1 : write(fd, data, len);
}

static ssize_t pwrite_or_fail(int fd, const void *data, size_t len, off_t at)
{
	return must_fail() ? -1 : pwrite(fd, data, len, at);
}

/* Routes the writes of every SQLite database of this process through the functions above. */
static void intercept_writes(void)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find("unix-excl");

	vfs->xSetSystemCall(vfs, "write", (sqlite3_syscall_ptr)write_or_fail);
	vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)pwrite_or_fail);
	vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)pwrite_or_fail);
}

/* Fails the `n`th write; unless `once`, also all writes after it. */
static void fail_write(int n, bool once)
{
	atomic_store(&has_failed, false);
	atomic_store(&fails_once, once);
	atomic_store(&writes_left, n);
}

static void stop_failing(void)
{
	atomic_store(&writes_left, NEVER);
}

/* --- expected sandboxes --------------------------------------------------------------------- */

struct one {
	char id[SANDBOX_ID_LEN + 1];
	char mark[2]; /* of its VM; empty: it has ended */
};

struct all {
	struct world *w;
	struct one ones[16];
	unsigned n;
};

static struct one *add_sandbox(struct all *a, const char *id, const char *mark)
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

	return !service_view(args[0], TENANT, args[1], &view, &f);
}

/* Asserts that each id drives its own VM or none, and that there are no other sandboxes. */
static void check(struct all *a)
{
	unsigned listed = 0, alive = 0;
	struct run r;

	for (unsigned i = 0; i < a->n; i++) {
		struct one *one = &a->ones[i];
		void *args[] = {a->w->service, one->id};

		if (one->mark[0]) {
			world_exec(a->w, &r, one->id, "marked");
			assert_string_equal(r.out, one->mark);
			alive++;
		} else {
			world_until(a->w, is_gone, args);
		}
	}
	world_list(a->w, TENANT, count, &listed);
	assert_int_equal(listed, alive);
}

static void restart(struct all *a)
{
	world_kill_service(a->w);
	atomic_store(&starting, true); /* 1000 writes, which preallocate and may fail */
	world_start_service(a->w);
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

/* --- steps: each succeeds, or is refused and leaves nothing behind ---------------------------- */

/* Returns true if the step failed, which must be the fault of the catalogue or of the freeze. */
static bool refused(bool ok, const struct failure *f)
{
	if (ok)
		return false;
	if (f->code != FAIL_CATALOGUE && f->code != FAIL_FREEZE_FAILED)
		fail_msg("%s: %s", failure_code_name(f->code), f->text);
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
	return add_sandbox(a, m.view.id, name);
}

static struct one *fork_one(struct all *a, const struct one *parent, const char *name)
{
	struct forked k;

	world_fork(a->w, &k, parent->id, 1);
	if (refused(k.ok, &k.failure))
		return NULL;
	mark(a, k.ids[0], name);
	return add_sandbox(a, k.ids[0], name);
}

static void merge_one(struct all *a, struct one *parent, struct one *winner)
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

static void delete_one(struct all *a, struct one *one)
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
	if (refused(z.ok, &z.failure) && z.failure.code != FAIL_CATALOGUE)
		return;
	/* The Space exists, even if the reply said that a power cut may undo the freeze. */
	world_spaces(a->w, TENANT, note_space, z.id);
	char name[2] = {one->mark[0], 0};
	one->mark[0] = 0;
	restart(a);
	world_resume(a->w, &m, z.id);
	if (refused(m.ok, &m.failure)) {
		stop_failing();
		world_resume(a->w, &m, z.id);
		assert_true(m.ok);
	}
	add_sandbox(a, m.view.id, name);
}

/* Does everything that writes to the catalogue, with restarts in between. */
static void run_all_steps(struct all *a)
{
	struct one *parent = create(a, "p"), *doomed = create(a, "d");
	struct one *child = parent ? fork_one(a, parent, "c") : NULL;
	struct one *winner = parent ? fork_one(a, parent, "w") : NULL;

	check(a);
	if (doomed)
		die(a, doomed);
	struct one *next = create(a, "n");
	check(a);
	restart(a);
	if (winner)
		merge_one(a, parent, winner);
	check(a);
	if (next)
		delete_one(a, next);
	create(a, "l");
	restart(a);
	if (child)
		freeze_and_resume(a, child);
	restart(a);
}

static bool only_the_pool_lives(void *arg)
{
	struct all *a = arg;

	return service_ready(a->w->service) && fakes_live(a->w->fakes) == 2 &&
	       fakes_slots(a->w->fakes) == 2 && a->w->service->vms.in_use == 2;
}

static bool all_ends_are_recorded(void *arg)
{
	const struct all *a = arg;

	return !a->w->service->ended.n_unrecorded;
}

/* Returns false when the scenario has fewer than `n` writes. */
static bool run_with_failure(struct world *w, int n, bool once)
{
	struct all a = {.w = w};

	fail_write(n, once);
	run_all_steps(&a);
	stop_failing();
	bool failed = atomic_load(&has_failed);
	check(&a);
	world_until(w, all_ends_are_recorded, &a);
	restart(&a);
	for (unsigned i = 0; i < a.n; i++)
		if (a.ones[i].mark[0])
			delete_one(&a, &a.ones[i]);
	check(&a);
	world_until(w, only_the_pool_lives, &a);
	return failed;
}

/* A change touches at least three pages (the rows and two indices), and each page takes two writes,
 * so failing every fifth write hits every change. */
static void fail_each_write(struct world *w, bool once)
{
	int n = 1;

	world_wait_ready(w);
	while (run_with_failure(w, n, once))
		n += 5;
	print_message("the scenario has up to %d writes\n", n - 1);
	assert_true(n > 50);
}

static void test_service_survives_each_single_failed_write(void **state)
{
	fail_each_write(*state, true);
}

static void test_service_survives_a_disk_that_is_full_from_each_write_on(void **state)
{
	fail_each_write(*state, false);
}

/* --- the end of a sandbox ------------------------------------------------------------------- */

/* The API reports the end. The slot is not reused, and a shutdown does not wait for it. */
static void test_unrecorded_end_keeps_its_slot_occupied(void **state)
{
	struct world *w = *state;
	struct all a = {.w = w};
	struct failure f;
	struct sandbox_view view;

	world_wait_ready(w);
	struct one *doomed = create(&a, "d");
	world_wait_ready(w);
	fail_write(0, false);
	die(&a, doomed);
	assert_false(service_view(w->service, TENANT, doomed->id, &view, &f));
	assert_int_equal(f.code, FAIL_VM_DIED);
	world_wait_ready(w);
	assert_int_equal(fakes_live(w->fakes), 2);
	assert_int_equal(w->service->vms.in_use, 3);
	assert_int_equal(world_metric(w, "ends_unrecorded"), 1);
	world_shut_down(w);
	assert_int_equal(w->service->vms.in_use, 0);
	assert_int_equal(world_metric(w, "sandboxes"), 0);
	stop_failing();
	world_kill_service(w);
	world_start_service(w); /* the sandbox's row remains, but its VM is gone */
	check(&a);
	world_until(w, only_the_pool_lives, &a);
}

static void add_ended_of_tenant(struct world *w, const char *tenant, unsigned n, const char *prefix,
				int64_t at_ms)
{
	char id[SANDBOX_ID_LEN + 1];
	struct err e;

	for (unsigned i = 0; i < n; i++) {
		snprintf(id, sizeof(id), "%s%u", prefix, i);
		const struct store_sandbox row = {.id = id,
						  .tenant = tenant,
						  .config.template = "default",
						  .created_at_ms = 1,
						  .ended_at_ms = at_ms + i,
						  .ended_code = "expired",
						  .ended_text = "it was old"};
		assert_int_equal(store_sandbox_add(w->service->store, &row, &e), 0);
	}
}

static void add_ended(struct world *w, unsigned n, const char *prefix, int64_t at_ms)
{
	add_ended_of_tenant(w, TENANT, n, prefix, at_ms);
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

static bool rows_are_left(void *arg)
{
	struct ended *ended = arg;
	struct err e;

	ended->n = 0;
	assert_int_equal(
		store_sandboxes_ended(ended->w->service->store, 0, UINT_MAX, note_ended, ended, &e),
		0);
	return ended->n == ended->want;
}

#define OLD_MS	  (2 * 3600 * 1000)
#define ENDED_MAX 1000 /* ended sandboxes that the service keeps in memory */

/* The number of sandboxes that ended later does not matter. */
static void test_old_rows_are_removed_beyond_the_memory_limit(void **state)
{
	struct ended ended = {.w = *state, .want = 10};

	world_wait_ready(ended.w);
	add_ended(ended.w, 600, "old", realtime_ms() - OLD_MS);
	add_ended(ended.w, 10, "new", realtime_ms() - 1000);
	world_until(ended.w, rows_are_left, &ended);
	assert_string_equal(ended.first, "new0");
}

static void test_startup_loads_at_most_the_memory_limit_of_ended_rows(void **state)
{
	struct world *w = *state;
	struct ended ended = {.w = w, .want = 600 + ENDED_MAX + 200};
	struct sandbox_view view;
	struct failure f;

	add_ended(w, 600, "old", realtime_ms() - OLD_MS);
	add_ended(w, ENDED_MAX + 200, "new", realtime_ms() - 600000);
	world_kill_service(w);
	world_start_service(w);
	assert_true(rows_are_left(&ended)); /* rows are removed only when the loop runs */
	assert_int_equal(w->service->ended.n_kept, ENDED_MAX);
	assert_false(service_view(w->service, TENANT, "new199", &view, &f));
	assert_int_equal(f.code, FAIL_NOT_FOUND);
	assert_false(service_view(w->service, TENANT, "new200", &view, &f));
	assert_int_equal(f.code, FAIL_EXPIRED);
	ended.want = ENDED_MAX + 200;
	world_until(w, rows_are_left, &ended);
}

static bool no_sandbox_is_left(void *arg)
{
	const struct service *c = arg;

	return !c->n_sandboxes && list_empty(&c->sandboxes);
}

static enum failure_code end_of(struct world *w, const char *tenant, const char *id)
{
	struct sandbox_view view;
	struct failure f;

	assert_false(service_view(w->service, tenant, id, &view, &f));
	return f.code;
}

static void test_ended_sandboxes_of_one_tenant_do_not_evict_those_of_others(void **state)
{
	struct world *w = *state;
	struct made m;

	add_ended_of_tenant(w, "tnt_other", 1, "other", realtime_ms() - 800000);
	add_ended(w, ENDED_MAX - 1, "new", realtime_ms() - 600000);
	world_kill_service(w);
	world_start_service(w);
	assert_int_equal(w->service->ended.n_kept, ENDED_MAX);
	world_create(w, &m, NULL);
	sandbox_end(sandbox_living(w->service, TENANT, m.view.id), "expired", "it was old", false);
	world_until(w, no_sandbox_is_left, w->service);
	assert_int_equal(w->service->ended.n_kept, ENDED_MAX);
	assert_int_equal(end_of(w, "tnt_other", "other0"), FAIL_EXPIRED);
	assert_int_equal(end_of(w, TENANT, "new0"), FAIL_NOT_FOUND);
	assert_int_equal(end_of(w, TENANT, m.view.id), FAIL_EXPIRED);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_service_survives_each_single_failed_write),
		TEST(test_service_survives_a_disk_that_is_full_from_each_write_on),
		TEST(test_unrecorded_end_keeps_its_slot_occupied),
		TEST(test_old_rows_are_removed_beyond_the_memory_limit),
		TEST(test_startup_loads_at_most_the_memory_limit_of_ended_rows),
		TEST(test_ended_sandboxes_of_one_tenant_do_not_evict_those_of_others),
	};

	intercept_writes();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
