// SPDX-License-Identifier: Apache-2.0
/* Scheduling of freezes: not even two tenants together can delay the others. */
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/snapshot/state.h"
#include "orchestrator/store/keys.h"
#include "test/unit/service/world.h"

#define EACH 3

static struct made make(struct world *w, const char *tenant)
{
	struct made m;

	world_tenant = tenant;
	world_create(w, &m, NULL);
	assert_true(m.ok);
	return m;
}

static void start(struct world *w, struct frozen *z, const struct made *m, const char *tenant)
{
	world_tenant = tenant;
	world_freeze_start(w, z, m->view.id);
}

struct watched_sandbox {
	struct world *w;
	const char *tenant, *id;
};

static bool has_begun(void *arg)
{
	const struct watched_sandbox *at = arg;
	const struct sandbox *s = sandbox_living(at->w->service, at->tenant, at->id);

	return !s || s->state == SBX_FREEZING;
}

/* Returns how many of the freezes have begun; they begin in the order in which workers have made
 * their disk layers. */
static int count_begun(struct world *w, const char *tenant, const struct made m[EACH])
{
	int n = 0;

	for (int i = 0; i < EACH; i++)
		n += has_begun(&(struct watched_sandbox){w, tenant, m[i].view.id});
	return n;
}

static bool two_have_ended(void *arg)
{
	const struct frozen *z = arg;

	return z[0].done + z[1].done + z[2].done == 2;
}

static void test_two_tenants_with_slow_vms_do_not_delay_a_third(void **state)
{
	struct frozen slow[2], third;
	struct world *w = *state;
	struct made m[3] = {make(w, "tnt_a"), make(w, "tnt_b"), make(w, "tnt_c")};

	fakes_fault(w->fakes, FAKES_FORK_WAIT, 2);
	start(w, &slow[0], &m[0], "tnt_a");
	start(w, &slow[1], &m[1], "tnt_b");
	world_until_waiting(w, 2);
	start(w, &third, &m[2], "tnt_c");
	world_until_true(w, &third.done);
	assert_true(third.ok);
	assert_false(slow[0].done || slow[1].done);
	fakes_go(w->fakes);
	for (int i = 0; i < 2; i++) {
		world_until_true(w, &slow[i].done);
		assert_true(slow[i].ok);
	}
}

/* One slot is occupied all the time; the tenants take turns in the other. */
static void test_tenants_take_turns_to_freeze(void **state)
{
	struct world *w = *state;
	struct frozen slow, many[EACH], one;
	struct made b = make(w, "tnt_b"), a[EACH], c;

	snapshots_of_service(w->service)->slot_limit_ms = UINT32_MAX;
	for (int i = 0; i < EACH; i++)
		a[i] = make(w, "tnt_a");
	c = make(w, "tnt_c");
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	start(w, &slow, &b, "tnt_b");
	world_until_waiting(w, 1);
	for (int i = 0; i < EACH; i++)
		start(w, &many[i], &a[i], "tnt_a");
	start(w, &one, &c, "tnt_c");
	struct watched_sandbox other = {w, "tnt_c", c.view.id};
	world_until(w, has_begun, &other);
	assert_true(count_begun(w, "tnt_a", a) < EACH);
	fakes_go(w->fakes);
	for (int i = 0; i < EACH; i++)
		world_until_true(w, &many[i].done);
	world_until_true(w, &one.done);
	world_until_true(w, &slow.done);
}

/* A single tenant gets both slots, and no more than these two, even when its VMs are slow. */
static void test_single_tenant_uses_both_slots(void **state)
{
	struct world *w = *state;
	struct frozen z[EACH];
	struct made m[EACH];

	/* No time limit for a slot, since the test must pass on a slow machine. */
	snapshots_of_service(w->service)->slot_limit_ms = UINT32_MAX;
	for (int i = 0; i < EACH; i++)
		m[i] = make(w, TENANT_LOCAL);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, EACH);
	for (int i = 0; i < EACH; i++)
		start(w, &z[i], &m[i], TENANT_LOCAL);
	world_until_waiting(w, 2);
	assert_int_equal(count_begun(w, TENANT_LOCAL, m), 2);
	assert_int_equal(snapshots_of_tenant(tenant_find(w->service, TENANT_LOCAL))->freezing, 2);
	fakes_go(w->fakes);
	world_until(w, two_have_ended, z);
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	for (int i = 0; i < EACH; i++)
		world_until_true(w, &z[i].done);
	assert_int_equal(snapshots_of_service(w->service)->n_freezing, 0);
}

static int teardown(void **state)
{
	world_tenant = TENANT_LOCAL;
	return world_teardown(state);
}

int main(void)
{
#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, teardown)
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_two_tenants_with_slow_vms_do_not_delay_a_third),
		WORLD_TEST(test_tenants_take_turns_to_freeze),
		WORLD_TEST(test_single_tenant_uses_both_slots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
