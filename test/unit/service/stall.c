// SPDX-License-Identifier: Apache-2.0
/* A stalled disk: only requests that need it wait. */
#include <semaphore.h>

#include "orchestrator/service/upkeep.h"
#include "test/unit/service/world.h"

#define POOL_THREADS 2

struct stall {
	sem_t go;
	unsigned left;
};

static void block_thread(void *arg)
{
	sem_wait(&((struct stall *)arg)->go);
}

static void on_unblocked(void *arg)
{
	((struct stall *)arg)->left--;
}

/* Blocks every thread of the pool until end_stall(). */
static void stall_pool(struct world *w, struct stall *s, enum loop_pool pool)
{
	s->left = POOL_THREADS;
	sem_init(&s->go, 0, 0);
	for (int i = 0; i < POOL_THREADS; i++)
		assert_int_equal(loop_work(w->loop, pool, block_thread, on_unblocked, s), 0);
}

static bool is_over(void *arg)
{
	return ((struct stall *)arg)->left == 0;
}

static void end_stall(struct world *w, struct stall *s)
{
	for (int i = 0; i < POOL_THREADS; i++)
		sem_post(&s->go);
	world_until(w, is_over, s);
	sem_destroy(&s->go);
}

static void note_disk(void *arg, const char *name, const char *reason)
{
	char *text = arg;

	if (!strcmp(name, "disk"))
		snprintf(text, 128, "%s", reason ? reason : "ok");
}

static const char *disk_check(struct world *w)
{
	static char text[128];

	service_checks(w->service, note_disk, text);
	return text;
}

static bool is_checked(void *arg)
{
	const struct service *c = arg;

	return !upkeep_of(c)->disk.check && upkeep_of(c)->disk.found.free_bytes;
}

static bool check_is_running(void *arg)
{
	const struct service *c = arg;

	return upkeep_of(c)->disk.check;
}

static bool is_well(void *arg)
{
	return !strcmp(disk_check(arg), "ok");
}

/* Instead of waiting, the test sets the time of the last check back. */
static void test_hanging_disk_check_fails(void **state)
{
	struct world *w = *state;
	struct stall s;

	world_until(w, is_checked, w->service);
	stall_pool(w, &s, LOOP_DISK);
	loop_timer_set(w->loop, &upkeep_of(w->service)->disk.timer, 0);
	world_until(w, check_is_running, w->service);
	assert_string_equal(disk_check(w), "ok");
	upkeep_of(w->service)->disk.found_ms -= 60000;
	assert_non_null(strstr(disk_check(w), "state_dir was last checked 60 s ago"));
	end_stall(w, &s);
	world_until(w, is_well, w);
}

static bool is_written(void *arg)
{
	const struct service *c = arg;

	return !c->catalogue.behind_since_ms;
}

static void note_synced(void *arg, const struct failure *f)
{
	assert_null(f);
	*(bool *)arg = true;
}

/* A create, a fork, a freeze and a change of a key wait until the test ends the stall. Calls in
 * sandboxes and a delete do not wait. */
static void test_stalled_disk_delays_only_disk_requests(void **state)
{
	struct world *w = *state;
	struct made kept, gone, frozen, made;
	struct stall disk, bulk;
	struct forked k;
	struct frozen z;
	struct run r;
	struct done d;
	bool durable = false;

	world_create(w, &kept, NULL);
	world_create(w, &gone, NULL);
	world_create(w, &frozen, NULL);
	world_wait_ready(w);
	stall_pool(w, &disk, LOOP_DISK);
	stall_pool(w, &bulk, LOOP_BULK);
	world_create_start(w, &made, NULL);
	world_fork_start(w, &k, kept.view.id, 2, false);
	world_freeze_start(w, &z, frozen.view.id);
	service_sync(w->service, note_synced, &durable);
	for (int i = 0; i < 10; i++) {
		world_exec(w, &r, kept.view.id, "out on");
		assert_string_equal(r.out, "on");
	}
	world_delete(w, &d, gone.view.id);
	assert_false(d.failed);
	assert_false(made.done || k.done || z.done || durable);
	end_stall(w, &disk);
	end_stall(w, &bulk);
	world_until_true(w, &made.done);
	world_until_true(w, &k.done);
	world_until_true(w, &z.done);
	world_until_true(w, &durable);
	assert_true(made.ok && k.ok && z.ok);
}

/* The disk check fails while the catalogue's file lacks an old change. Instead of waiting, the test
 * sets the time of the change back. */
static void test_stale_catalogue_fails_the_disk_check(void **state)
{
	struct world *w = *state;
	struct made m;
	struct stall s;
	struct done d;

	world_create(w, &m, NULL);
	world_wait_ready(w);
	world_until(w, is_checked, w->service);
	world_until(w, is_written, w->service);
	stall_pool(w, &s, LOOP_DISK);
	world_delete(w, &d, m.view.id);
	assert_string_equal(disk_check(w), "ok");
	w->service->catalogue.behind_since_ms -= 60000;
	assert_non_null(strstr(disk_check(w), "the catalogue in state_dir is 60 s old"));
	end_stall(w, &s);
	world_until(w, is_well, w);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_hanging_disk_check_fails),
		TEST(test_stalled_disk_delays_only_disk_requests),
		TEST(test_stale_catalogue_fails_the_disk_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
