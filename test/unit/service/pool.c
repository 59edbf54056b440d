// SPDX-License-Identifier: Apache-2.0
/* The pool makes two blank VMs at a time, further ones for large forks one at a time, and loses
 * none. */
#include "orchestrator/pool/pool.h"
#include "orchestrator/sandbox/service.h"
#include "test/unit/service/world.h"

#define BLANKS 5
#define FIRST  8 /* of a larger pool */
#define LARGE  12

/* Restarts the service, without VMs, with a pool of so many blank VMs and no warm sandbox. */
static void start_pool(struct world *w, uint32_t blanks)
{
	world_wait_ready(w);
	world_shut_down(w);
	world_kill_service(w);
	w->config.max_vms = 2 * LARGE;
	w->config.pool_blank_vms = blanks;
	w->config.pool_warm = 0;
	world_start_service(w);
}

static uint32_t blanks_ready(struct world *w)
{
	return (uint32_t)world_metric(w, "blank_vms_ready");
}

struct watched_pool {
	struct world *w;
	uint32_t wanted;
	uint32_t most; /* blank VMs in progress at a time */
};

static bool is_filled(void *arg)
{
	struct watched_pool *p = arg;
	uint32_t ready = blanks_ready(p->w), making = p->w->service->vms.in_use - ready;

	p->most = making > p->most ? making : p->most;
	return ready == p->wanted && !making;
}

static void test_two_blank_vms_are_made_at_a_time(void **state)
{
	struct world *w = *state;
	struct watched_pool p = {.w = w, .wanted = BLANKS};

	start_pool(w, BLANKS);
	world_until(w, is_filled, &p);
	assert_int_equal(p.most, 2);
	assert_int_equal(fakes_live(w->fakes), BLANKS);
}

static void test_failed_blank_vm_is_made_again(void **state)
{
	struct world *w = *state;
	struct watched_pool p = {.w = w, .wanted = BLANKS};

	start_pool(w, BLANKS);
	fakes_fault(w->fakes, FAKES_SPAWN, 3);
	world_until(w, is_filled, &p);
	assert_int_equal(fakes_faults_left(w->fakes, FAKES_SPAWN), 0);
	assert_int_equal(fakes_live(w->fakes), BLANKS);
}

static bool two_are_coming(void *arg)
{
	const struct world *w = arg;

	return w->service->vms.in_use >= 2;
}

static void fill(struct watched_pool *p, uint32_t wanted)
{
	p->wanted = wanted;
	p->most = 0;
	world_until(p->w, is_filled, p);
}

/* A sandbox with a head start has not had its first call yet. */
static void test_large_pool_rests_until_first_calls_are_over(void **state)
{
	struct world *w = *state;
	struct watched_pool p = {.w = w};

	start_pool(w, LARGE);
	pool_rest(w->service->pool, 3600000);
	w->service->vms.ahead++;
	fill(&p, FIRST);
	assert_int_equal(p.most, 2);
	world_run_for(w, 300);
	assert_int_equal(w->service->vms.in_use, FIRST);
	w->service->vms.ahead--;
	fill(&p, LARGE);
	assert_int_equal(p.most, 1);
}

static void test_large_pool_rests_no_longer_than_told(void **state)
{
	struct world *w = *state;
	struct watched_pool p = {.w = w};

	start_pool(w, LARGE);
	pool_rest(w->service->pool, 1);
	w->service->vms.ahead++;
	fill(&p, LARGE);
	w->service->vms.ahead--;
}

static void test_deleted_sandbox_has_no_head_start(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct done d;

	world_create(w, &m, &(struct sandbox_spec){0});
	world_fork(w, &k, m.view.id, 2);
	world_delete(w, &d, m.view.id);
	for (unsigned i = 0; i < 2; i++)
		world_delete(w, &d, k.ids[i]);
	assert_int_equal(w->service->vms.ahead, 0);
}

/* The teardown ends the service. */
static void test_service_ends_while_blank_vms_are_made(void **state)
{
	struct world *w = *state;

	start_pool(w, BLANKS);
	world_until(w, two_are_coming, w);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_two_blank_vms_are_made_at_a_time),
		TEST(test_failed_blank_vm_is_made_again),
		TEST(test_service_ends_while_blank_vms_are_made),
		TEST(test_large_pool_rests_until_first_calls_are_over),
		TEST(test_large_pool_rests_no_longer_than_told),
		TEST(test_deleted_sandbox_has_no_head_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
