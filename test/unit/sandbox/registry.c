// SPDX-License-Identifier: Apache-2.0
/* Compares the counters and links of sandboxes with a walk through all of them, after random
 * actions. */
#include <stdlib.h>

#include "orchestrator/guestops/state.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/store/keys.h"
#include "test/unit/service/world.h"

#define TENANTS 3
#define STEPS	120
#define CROWD	15

/* The actions of a step; only those before CREATE are drawn while there are many sandboxes. */
enum { DELETE, KILL, MERGE, EXEC, CREATE, FORK, ACTIONS = FORK + 3 };

static const char *const tenants[TENANTS] = {TENANT_LOCAL, "tnt_1", "tnt_2"};
static unsigned seed = 20;

static unsigned draw(unsigned below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

static bool lives(const struct sandbox *s)
{
	return s->state < SBX_ENDING;
}

/* Returns the nearest living ancestor of `s`; NULL if there is none. */
static const struct sandbox *parent_by_walk(const struct service *c, const struct sandbox *s)
{
	const struct sandbox *found = NULL;
	const char *best = NULL;

	list_each (pos, &c->sandboxes) {
		const struct sandbox *each = container_of(pos, struct sandbox, link);
		const char *at = strstr(s->ancestors, each->id);

		if (lives(each) && at && at >= best && each->owner == s->owner) {
			best = at;
			found = each;
		}
	}
	return found;
}

static bool is_child(const struct sandbox *parent, const struct sandbox *s)
{
	for (size_t i = 0; i < parent->children.n; i++)
		if (parent->children.all[i] == &s->listed)
			return true;
	return false;
}

static size_t descendants_of(const struct sandbox *s)
{
	size_t n = 0;

	list_each (pos, &s->living_descendants)
		n++;
	return n;
}

static void check_lineage(const struct service *c, const struct sandbox *s)
{
	size_t children = 0, descendants = 0;

	assert_ptr_equal(s->parent, parent_by_walk(c, s));
	list_each (pos, &c->sandboxes) {
		const struct sandbox *each = container_of(pos, struct sandbox, link);

		if (!lives(each))
			continue;
		descendants += strstr(each->ancestors, s->id) != NULL;
		if (parent_by_walk(c, each) == s) {
			children++;
			assert_true(is_child(s, each));
		}
	}
	assert_int_equal(s->children.n, children);
	assert_int_equal(descendants_of(s), descendants);
}

static void check_tenant(const struct service *c, const char *name)
{
	const struct tenant *t = tenant_find(c, name);
	uint64_t promised = 0;
	size_t n = 0, ops = 0;

	list_each (pos, &c->sandboxes) {
		const struct sandbox *s = container_of(pos, struct sandbox, link);

		if (!lives(s) || strcmp(s->tenant, name) != 0)
			continue;
		n++;
		ops += guestops_of(s)->n_ops;
		promised += s->config.size.ram_mib;
	}
	assert_int_equal(tenant_sandboxes(c, name), n + (t ? t->coming : 0));
	assert_int_equal(t ? t->promised_mib : 0, promised);
	assert_int_equal(t ? guestops_of_tenant(t)->operations : 0, ops);
}

static void check(struct world *w)
{
	const struct service *c = w->service;
	size_t in[SBX_NSTATES] = {0}, n = 0;
	uint64_t promised = 0;

	list_each (pos, &c->sandboxes) {
		const struct sandbox *s = container_of(pos, struct sandbox, link);

		if (!lives(s))
			continue;
		n++;
		in[s->state]++;
		promised += s->config.size.ram_mib;
		check_lineage(c, s);
	}
	assert_int_equal(c->n_sandboxes, n);
	assert_int_equal(c->all.n, n);
	assert_int_equal(c->promised_mib, promised);
	assert_memory_equal(c->n_in, in, sizeof(in));
	for (int i = 0; i < TENANTS; i++)
		check_tenant(c, tenants[i]);
}

/* Returns a random sandbox of the tenant; NULL when it has none. */
static const struct sandbox *any_sandbox(struct world *w)
{
	const struct tenant *t = tenant_find(w->service, world_tenant);

	if (!t || !t->sandboxes.n)
		return NULL;
	return container_of(t->sandboxes.all[draw((unsigned)t->sandboxes.n)], struct sandbox,
			    listed);
}

static void merge_any(struct world *w, const struct sandbox *winner)
{
	struct done d;

	if (!list_empty(&winner->living_ancestors))
		world_merge(
			w, &d,
			container_of(winner->living_ancestors.next, struct ancestry, of_descendant)
				->ancestor->id,
			winner->id);
}

static void step(struct world *w)
{
	const struct sandbox *s = any_sandbox(w);
	struct forked k;
	struct made m;
	struct done d;
	struct run r;

	switch (!s ? CREATE : draw(w->service->n_sandboxes > CROWD ? CREATE : ACTIONS)) {
	case DELETE:
		world_delete(w, &d, s->id);
		break;
	case KILL:
		fakes_kill(w->fakes, s->slot);
		break;
	case MERGE:
		merge_any(w, s);
		break;
	case EXEC:
		world_exec(w, &r, s->id, "out x");
		break;
	case CREATE:
		world_create(w, &m, NULL);
		break;
	default:
		world_fork(w, &k, s->id, 1 + draw(3));
	}
}

static bool all_are_reachable(void *arg)
{
	const struct service *c = arg;

	return !c->n_in[SBX_ADOPTING];
}

static void test_counters_match_a_walk(void **state)
{
	struct world *w = *state;

	world_kill_service(w);
	w->config.max_vms = 24;
	world_start_service(w);
	world_wait_ready(w);
	for (int i = 0; i < STEPS; i++) {
		world_tenant = tenants[draw(TENANTS)];
		step(w);
		check(w);
		if (draw(30) == 0) {
			world_kill_service(w);
			world_start_service(w);
			check(w);
			world_until(w, all_are_reachable, w->service);
			check(w);
		}
	}
	world_tenant = TENANT_LOCAL;
}

/* A sandbox in creation counts as pending until it exists or has failed. */
static void test_sandbox_in_creation_is_counted_once(void **state)
{
	struct world *w = *state;
	const struct tenant *t;
	struct forked k;
	struct made m[2];

	world_wait_ready(w);
	world_create_start(w, &m[0], NULL);
	world_create_start(w, &m[1], NULL);
	t = tenant_find(w->service, TENANT_LOCAL);
	assert_int_equal(w->service->n_coming + w->service->n_sandboxes, 2);
	assert_int_equal(t->coming + t->sandboxes.n, 2);
	world_until_true(w, &m[0].done);
	world_until_true(w, &m[1].done);
	assert_int_equal(w->service->n_coming, 0);
	world_fork_start(w, &k, m[0].view.id, 3, false);
	assert_int_equal(t->coming, 3);
	op_abandon(k.call);
	assert_int_equal(t->coming, 0);
	fakes_fault(w->fakes, FAKES_FORK, 1);
	world_fork(w, &k, m[0].view.id, 2);
	assert_false(k.ok);
	assert_int_equal(w->service->n_coming, 0);
	assert_int_equal(t->sandboxes.n, 2);
}

/* --- pages ---------------------------------------------------------------------------------- */

static void note(void *arg, const struct sandbox_view *view)
{
	strcat(arg, view->id);
}

static void test_lists_by_pages_are_complete(void **state)
{
	const struct list_name mine = {.kind = LIST_SANDBOXES, .tenant = TENANT_LOCAL};
	const struct list_name all = {.kind = LIST_SANDBOXES};
	const struct list_name none = {.kind = LIST_SANDBOXES, .tenant = "tnt_none"};
	char by_pages[8 * SANDBOX_ID_LEN] = "", whole[8 * SANDBOX_ID_LEN] = "";
	struct list_page page = {0};
	struct world *w = *state;
	struct failure f;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_fork(w, &k, m.view.id, 4);
	world_list(w, NULL, note, whole);
	do {
		assert_true(service_page(w->service, &mine, 2, &page, &f));
		while (service_list(w->service, &mine, &page, 1, note, by_pages))
			;
	} while (page.more);
	assert_string_equal(by_pages, whole);
	assert_int_equal(strlen(whole), 5 * SANDBOX_ID_LEN);

	const struct list_name children = {LIST_CHILDREN, TENANT_LOCAL, m.view.id};
	const struct list_name not_mine = {LIST_CHILDREN, "tnt_none", m.view.id};
	by_pages[0] = 0;
	page = (struct list_page){0};
	assert_true(service_page(w->service, &children, 1000, &page, &f));
	assert_false(page.more);
	assert_false(service_list(w->service, &children, &page, 1000, note, by_pages));
	assert_int_equal(strlen(by_pages), 4 * SANDBOX_ID_LEN);
	assert_null(strstr(by_pages, m.view.id));
	/* A tenant never sees another tenant's list, at any position. */
	page = (struct list_page){0};
	assert_false(service_page(w->service, &not_mine, 1000, &page, &f));
	assert_int_equal(f.code, FAIL_NOT_FOUND);
	assert_true(service_page(w->service, &none, 1000, &page, &f));
	assert_false(page.more);
	assert_false(service_list(w->service, &none, &page, 1000, note, by_pages));
	assert_int_equal(strlen(by_pages), 4 * SANDBOX_ID_LEN);
	assert_true(service_page(w->service, &all, 4, &page, &f));
	assert_true(page.more);
}

int main(void)
{
#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_counters_match_a_walk),
		WORLD_TEST(test_sandbox_in_creation_is_counted_once),
		WORLD_TEST(test_lists_by_pages_are_complete),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
