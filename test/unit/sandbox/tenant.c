// SPDX-License-Identifier: Apache-2.0
/* Tenants with keys: the limits of their tier, the number of sandboxes, and isolation from other
 * tenants.
 */
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/store/keys.h"
#include "test/unit/service/world.h"

/* Creates a key of a new tenant, on whose behalf later calls are made. */
static const struct key *use_key(struct world *w, const char *tier)
{
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	struct err e;

	if (keys_create(service_keys(w->service), "a test", tier, NULL, text, &key, &e) < 0)
		fail_msg("%s", e.text);
	world_tenant = key->tenant;
	return key;
}

/* Sets tier_free, and restarts the service, which reads the settings only when it starts. */
static void set_tier(struct world *w, const char *value)
{
	world_wait_ready(w);
	world_kill_service(w);
	snprintf(w->config.tier_free, sizeof(w->config.tier_free), "%s", value);
	world_start_service(w);
	world_wait_ready(w);
}

static void create(struct world *w, struct made *m, const struct sandbox_spec *spec)
{
	world_create(w, m, spec);
	if (!m->ok)
		fail_msg("%s", m->failure.text);
}

static void expect_cap(const struct failure *f)
{
	assert_int_equal(f->code, FAIL_CAP_REACHED);
	assert_true(f->retry_after > 0);
}

/* --- sizes and times ------------------------------------------------------------------------ */

static const struct sandbox_spec greedy = {.config.size.ram_mib = 1024,
					   .config.size.rootfs_gb = 100,
					   .config.timeout_s = 1000000,
					   .config.idle_timeout_s = 1000000,
					   .config.persistent = true,
					   .config.egress = true};

static int64_t lifetime_s(const struct sandbox_view *v)
{
	return (v->expires_at_ms - v->created_at_ms) / 1000;
}

static void test_requests_are_cut_to_the_tier(void **state)
{
	struct world *w = *state;
	struct made m;

	set_tier(w, "ram_mib=300 rootfs_gb=5 idle_s=100 lifetime_s=200 concurrent=9");
	use_key(w, "free");
	create(w, &m, &greedy);
	assert_in_range(m.view.config.size.ram_mib, 128, 300);
	assert_int_equal(m.view.config.size.rootfs_gb, 5);
	assert_int_equal(lifetime_s(&m.view), 200);
	assert_in_range(m.view.idle_expires_at_ms - m.view.created_at_ms, 99000, 101000);
	assert_false(m.view.config.persistent);
}

static void test_default_timeouts_are_cut_to_the_tier(void **state)
{
	struct world *w = *state;
	struct made m;

	set_tier(w, "lifetime_s=500 idle_s=400");
	use_key(w, "free");
	create(w, &m, NULL);
	assert_int_equal(lifetime_s(&m.view), 500);
	assert_in_range(m.view.idle_expires_at_ms - m.view.created_at_ms, 399000, 401000);
}

static void test_idle_deadline_is_constant_while_idle(void **state)
{
	struct world *w = *state;
	struct sandbox_view again;
	struct failure f;
	struct made m;

	create(w, &m, NULL);
	assert_true(service_view(w->service, world_tenant, m.view.id, &m.view, &f));
	for (int i = 0; i < 20000; i++) { /* long enough for the clocks to advance */
		assert_true(service_view(w->service, world_tenant, m.view.id, &again, &f));
		assert_int_equal(again.idle_expires_at_ms, m.view.idle_expires_at_ms);
	}
}

static void test_default_size_is_cut_to_the_tier(void **state)
{
	struct world *w = *state;
	struct made m;

	set_tier(w, "ram_mib=128");
	use_key(w, "free");
	create(w, &m, NULL);
	assert_int_equal(m.view.config.size.ram_mib, 128);
}

static void test_higher_tiers_get_more(void **state)
{
	struct world *w = *state;
	struct made m;

	use_key(w, "pro");
	create(w, &m, &greedy);
	assert_int_equal(lifetime_s(&m.view), 28800);
	assert_true(m.view.config.persistent);
}

static void test_only_host_limits_apply_without_a_key(void **state)
{
	struct world *w = *state;
	struct made m;

	set_tier(w, "ram_mib=128 concurrent=1");
	use_key(w, "free"); /* of a tenant with the lower limits */
	world_tenant = TENANT_LOCAL;
	for (int i = 0; i < 3; i++) {
		create(w, &m, &greedy);
		assert_int_equal(lifetime_s(&m.view), 1000000);
		assert_true(m.view.config.persistent);
	}
	assert_int_equal(tenant_spaces_bytes(w->service, TENANT_LOCAL), UINT64_MAX);
	use_key(w, "operator");
	create(w, &m, &greedy);
	assert_int_equal(lifetime_s(&m.view), 1000000);
}

static void test_spaces_have_a_quota(void **state)
{
	struct world *w = *state;

	assert_int_equal(tenant_spaces_bytes(w->service, use_key(w, "free")->tenant), 0);
	assert_int_equal(tenant_spaces_bytes(w->service, use_key(w, "pro")->tenant), 50ull << 30);
	assert_int_equal(tenant_spaces_bytes(w->service, use_key(w, "unheard-of")->tenant), 0);
}

/* --- how many -------------------------------------------------------------------------------- */

static void test_limit_counts_living_sandboxes(void **state)
{
	struct world *w = *state;
	struct made m[3];
	struct done d;

	set_tier(w, "concurrent=2");
	use_key(w, "free");
	create(w, &m[0], NULL);
	create(w, &m[1], NULL);
	world_create(w, &m[2], NULL);
	assert_false(m[2].ok);
	expect_cap(&m[2].failure);
	world_delete(w, &d, m[0].view.id);
	create(w, &m[2], NULL);

	use_key(w, "free"); /* another tenant has its own limit */
	create(w, &m[2], NULL);
}

/* The creates overlap: none is complete when the next one starts. */
static void test_limit_counts_sandboxes_in_creation(void **state)
{
	struct world *w = *state;
	struct made m[4];
	unsigned made = 0;

	set_tier(w, "concurrent=2");
	use_key(w, "free");
	for (int i = 0; i < 4; i++)
		world_create_start(w, &m[i], NULL);
	for (int i = 0; i < 4; i++) {
		world_until_true(w, &m[i].done);
		made += m[i].ok;
		if (!m[i].ok)
			expect_cap(&m[i].failure);
	}
	assert_int_equal(made, 2);
	assert_int_equal(tenant_sandboxes(w->service, world_tenant), 2);
}

static void test_fork_over_the_limit_is_refused_whole(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	set_tier(w, "concurrent=4");
	use_key(w, "free");
	create(w, &m, NULL);
	world_fork(w, &k, m.view.id, 4);
	assert_false(k.ok);
	expect_cap(&k.failure);
	assert_int_equal(fakes_forks(w->fakes), 0);
	assert_int_equal(tenant_sandboxes(w->service, world_tenant), 1);
	world_fork(w, &k, m.view.id, 3);
	assert_true(k.ok);
	world_create(w, &m, NULL);
	expect_cap(&m.failure);
}

static void test_limit_counts_children_in_creation(void **state)
{
	struct forked k[2], after;
	struct world *w = *state;
	struct made m, late;

	set_tier(w, "concurrent=4");
	use_key(w, "free");
	create(w, &m, NULL);
	world_fork_start(w, &k[0], m.view.id, 2, false);
	assert_int_equal(tenant_sandboxes(w->service, world_tenant), 3);
	world_fork_start(w, &k[1], m.view.id, 2, false);
	world_create_start(w, &late, NULL);
	assert_int_equal(tenant_sandboxes(w->service, world_tenant), 4);
	world_until_true(w, &k[0].done);
	world_until_true(w, &k[1].done);
	world_until_true(w, &late.done);
	assert_true(k[0].ok && late.ok);
	expect_cap(&k[1].failure);
	assert_int_equal(tenant_sandboxes(w->service, world_tenant), 4);
	world_fork(w, &after, m.view.id, 1);
	expect_cap(&after.failure);
}

/* A failed fork no longer counts toward the limit. */
static void test_failed_fork_releases_its_reservation(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	set_tier(w, "concurrent=3");
	use_key(w, "free");
	create(w, &m, NULL);
	world_fork_start(w, &k, m.view.id, 2, false);
	op_abandon(k.call);
	assert_int_equal(tenant_sandboxes(w->service, world_tenant), 1);
	world_fork(w, &k, m.view.id, 2);
	assert_true(k.ok);
}

static void test_limit_holds_after_a_restart(void **state)
{
	struct world *w = *state;
	struct made m;

	set_tier(w, "concurrent=1");
	use_key(w, "free");
	create(w, &m, NULL);
	char tenant[TENANT_ID_LEN + 1];
	snprintf(tenant, sizeof(tenant), "%s", world_tenant);
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
	world_tenant = tenant;
	world_create(w, &m, NULL);
	expect_cap(&m.failure);
	world_tenant = TENANT_LOCAL;
}

/* The budget limits how much a tenant's guests can write to the host's disk. */
static void test_disks_of_a_tenant_have_a_budget(void **state)
{
	struct sandbox_spec two_gb = {.config.size.rootfs_gb = 2};
	struct world *w = *state;
	struct made m, late;
	struct forked k;
	struct done d;

	set_tier(w, "rootfs_gb=4 disks_gb=8");
	use_key(w, "free");
	world_create(w, &m, &two_gb);
	assert_true(m.ok);
	uint32_t each = m.view.config.size.rootfs_gb;
	uint32_t room = 8 / each - 1;
	world_fork(w, &k, m.view.id, room + 1);
	assert_false(k.ok);
	expect_cap(&k.failure);
	assert_non_null(strstr(k.failure.text, "would exceed its limit of 8 GB"));
	world_fork_start(w, &k, m.view.id, room, false);
	world_create_start(w, &late, &two_gb); /* children in creation count */
	world_until_true(w, &k.done);
	world_until_true(w, &late.done);
	assert_true(k.ok);
	assert_false(late.ok);
	expect_cap(&late.failure);
	world_delete(w, &d, m.view.id);
	world_create(w, &late, &two_gb);
	assert_true(late.ok);

	use_key(w, "free"); /* another tenant has its own budget */
	world_create(w, &m, &two_gb);
	assert_true(m.ok);
}

static void test_one_tenant_leaves_room_for_others(void **state)
{
	struct world *w = *state;
	const struct service *c = w->service;

	assert_true(tenant_share(c, 511, 511, 512)); /* with only one tenant */
	assert_false(tenant_share(c, 512, 0, 512));
	use_key(w, "enterprise");
	assert_true(tenant_share(c, 255, 255, 512));
	assert_false(tenant_share(c, 256, 64, 512));
	assert_true(tenant_share(c, 256, 63, 512));
	assert_true(tenant_share(c, 511, 0, 512));
	assert_false(tenant_share(c, 512, 0, 512));
}

enum { LARGE = 60 << 20 };

static char *large_script(void)
{
	char *script = malloc(LARGE + 1);

	assert_non_null(script);
	memset(script, 'x', LARGE);
	script[LARGE] = 0;
	return script;
}

/* Queues code behind a call that never ends. */
static void fill_queue(struct world *w, struct run *r, unsigned n, const char *script,
		       struct made *m)
{
	create(w, m, NULL);
	world_exec_start(w, &r[0], m->view.id, "wait", false);
	for (unsigned i = 1; i < n; i++)
		world_exec_start(w, &r[i], m->view.id, script, false);
}

static void test_code_of_one_tenant_leaves_room_for_others(void **state)
{
	static struct run mine[5], other[2]; /* some run until the teardown */
	struct run last;
	struct world *w = *state;
	char *script = large_script();
	struct made m;

	use_key(w, "enterprise");
	fill_queue(w, mine, 5, script, &m);
	world_until_true(w, &mine[4].over);
	assert_int_equal(mine[4].failure.code, FAIL_QUEUE_FULL);
	assert_false(mine[2].over);

	use_key(w, "free");
	fill_queue(w, other, 2, script, &m);
	create(w, &m, NULL);
	world_exec(w, &last, m.view.id, "out yes");
	assert_string_equal(last.out, "yes");
	assert_false(other[1].over);
	free(script);
}

/* A call that starts at once needs no room in the queue. */
static void test_idle_sandbox_accepts_calls_when_the_queue_is_full(void **state)
{
	static struct run r[5], rest[26]; /* some run until the teardown */
	struct run last;
	struct world *w = *state;
	char *script = large_script();
	struct made m;

	fill_queue(w, r, 5, script, &m);
	for (int i = 0; i < 26; i++) { /* fills the queue to the last byte */
		script[LARGE >> i] = 0;
		world_exec_start(w, &rest[i], m.view.id, script, false);
	}
	world_exec(w, &last, m.view.id, "out no");
	assert_int_equal(last.failure.code, FAIL_QUEUE_FULL);
	create(w, &m, NULL);
	world_exec(w, &last, m.view.id, "out yes");
	assert_string_equal(last.out, "yes");
	free(script);
}

/* --- other tenants --------------------------------------------------------------------------- */

static void count(void *arg, const struct sandbox_view *view)
{
	++*(unsigned *)arg;
}

/* The error, including its text, is the same as for an id that never existed. */
static void test_sandbox_of_another_tenant_does_not_exist(void **state)
{
	struct world *w = *state;
	struct sandbox_view view;
	struct made m, own;
	struct failure f;
	struct forked k;
	struct done d;
	struct run r;
	char never[128];
	unsigned n = 0;

	use_key(w, "pro");
	create(w, &m, NULL);
	use_key(w, "pro");
	create(w, &own, NULL);
	snprintf(never, sizeof(never), "there is no sandbox %s", m.view.id);
	assert_false(service_view(w->service, world_tenant, m.view.id, &view, &f));
	assert_string_equal(f.text, never);
	world_exec(w, &r, m.view.id, "out x");
	assert_string_equal(r.failure.text, never);
	world_fork(w, &k, m.view.id, 1);
	assert_string_equal(k.failure.text, never);
	world_delete(w, &d, m.view.id);
	assert_string_equal(d.failure.text, never);
	world_merge(w, &d, own.view.id, m.view.id);
	assert_string_equal(d.failure.text, never);
	world_merge(w, &d, m.view.id, own.view.id);
	assert_string_equal(d.failure.text, never);
	world_list(w, world_tenant, count, &n);
	assert_int_equal(n, 1);
}

static int setup(void **state)
{
	world_tenant = TENANT_LOCAL;
	return world_setup(state);
}

static int teardown(void **state)
{
	world_tenant = TENANT_LOCAL;
	return world_teardown(state);
}

/* --- memory --------------------------------------------------------------------------------- */

struct marks {
	struct fakes *fakes;
	unsigned n;
};

static bool are_marked(void *arg)
{
	const struct marks *marks = arg;

	return fakes_marked(marks->fakes) == marks->n;
}

static void until_marked(struct world *w, unsigned n)
{
	struct marks marks = {w->fakes, n};

	world_until(w, are_marked, &marks);
}

static void restart_with_memory(struct world *w, uint32_t mib, uint32_t overcommit)
{
	world_wait_ready(w);
	world_kill_service(w);
	w->config.memory_mib = mib;
	w->config.memory_overcommit = overcommit;
	world_start_service(w);
	world_wait_ready(w);
}

/* The four sandboxes of one tenant use more than half, the one of the other tenant uses less. */
static void test_tenants_over_their_memory_share_are_killed_first(void **state)
{
	struct world *w = *state;
	struct made many[4], one;
	struct done d;

	restart_with_memory(w, 3 * w->config.ram_mib, 0);
	use_key(w, "pro");
	for (size_t i = 0; i < 4; i++)
		create(w, &many[i], &(struct sandbox_spec){0});
	char first[64];
	snprintf(first, sizeof(first), "%s", world_tenant);
	until_marked(w, 0); /* a single tenant harms only itself */
	use_key(w, "pro");
	create(w, &one, &(struct sandbox_spec){0});
	until_marked(w, 4);
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
	until_marked(w, 4);
	world_tenant = first;
	for (size_t i = 1; i < 4; i++)
		world_delete(w, &d, many[i].view.id);
	until_marked(w, 0);
}

/* Each tenant's VMs have less than half of the memory, but images of forks use memory as well. */
static void test_memory_of_images_counts_for_the_share(void **state)
{
	const uint64_t ram = (uint64_t)128 << 20;
	struct world *w = *state;
	struct made forker, other;
	struct forked k;

	restart_with_memory(w, 6 * 128, 0);
	use_key(w, "pro");
	create(w, &other, &(struct sandbox_spec){0});
	use_key(w, "pro");
	create(w, &forker, &(struct sandbox_spec){0});
	fakes_memory(w->fakes, 3 * ram, ram / 8);
	until_marked(w, 0);
	world_fork(w, &k, forker.view.id, 1);
	assert_true(k.ok);
	until_marked(w, 2);
}

/* --- private memory ------------------------------------------------------------------------ */

/* Restarts the service with private memory for the tier "free". */
static void restart_private(struct world *w)
{
	set_tier(w, "private_memory=yes persistent=yes spaces_gb=1 concurrent=10");
}

/* Makes calls as a new tenant, whose name stays valid when the service restarts. */
static void use_tenant(struct world *w, const char *tier)
{
	static char tenant[64];

	use_key(w, tier);
	snprintf(tenant, sizeof(tenant), "%s", world_tenant);
	world_tenant = tenant;
}

static uint64_t create_from(struct world *w, struct made *m)
{
	world_wait_ready(w); /* otherwise a refill of the pool could be the last restore */
	create(w, m, &(struct sandbox_spec){0});
	return fakes_memory_file(w->fakes);
}

static unsigned copies(struct world *w)
{
	char path[CONFIG_PATH_MAX + 16];
	struct dirent *entry;
	unsigned n = 0;

	snprintf(path, sizeof(path), "%s/private", w->config.state_dir);
	DIR *dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static void test_private_memory_is_not_shared(void **state)
{
	struct world *w = *state;
	struct made m;

	restart_private(w);
	use_key(w, "pro");
	uint64_t all = create_from(w, &m);
	assert_int_equal(create_from(w, &m), all);
	assert_int_equal(copies(w), 0);
	use_key(w, "free");
	uint64_t one = create_from(w, &m);
	assert_int_equal(create_from(w, &m), one);
	use_key(w, "free");
	uint64_t other = create_from(w, &m);
	assert_true(all && one && other);
	assert_true(one != all && other != all && one != other);
	assert_int_equal(copies(w), 2);
}

static void test_concurrent_creates_share_one_copy(void **state)
{
	struct world *w = *state;
	struct made m[4];

	restart_private(w);
	use_key(w, "free");
	for (int i = 0; i < 4; i++)
		world_create_start(w, &m[i], &(struct sandbox_spec){0});
	for (int i = 0; i < 4; i++)
		world_until_true(w, &m[i].done);
	for (int i = 0; i < 4; i++)
		assert_true(m[i].ok);
	assert_int_equal(copies(w), 1);
}

/* A fork's children map the copy, and may be created after a restart. */
static void test_copy_lives_as_long_as_the_tenants_sandboxes(void **state)
{
	struct world *w = *state;
	struct made m;
	struct done d;

	restart_private(w);
	use_tenant(w, "free");
	create_from(w, &m);
	world_kill_service(w);
	assert_int_equal(copies(w), 1);
	world_start_service(w);
	world_wait_ready(w);
	assert_int_equal(copies(w), 1);
	world_delete(w, &d, m.view.id);
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
	assert_int_equal(copies(w), 0);
}

/* The sandbox was frozen before its tier became private, so the Space has the template's memory
 * file. */
static void test_resumed_space_has_private_memory(void **state)
{
	struct world *w = *state;
	struct frozen z;
	struct made m;

	world_wait_ready(w);
	world_kill_service(w);
	snprintf(w->config.tier_free, sizeof(w->config.tier_free), "persistent=yes spaces_gb=1");
	world_start_service(w);
	world_wait_ready(w);
	use_tenant(w, "free");
	create_from(w, &m);
	world_freeze(w, &z, m.view.id);
	assert_true(z.ok);
	restart_private(w);
	world_resume(w, &m, z.id);
	assert_true(m.ok);
	assert_int_equal(copies(w), 1);
}

/* A living sandbox keeps its tenant's copies, up to a small number. */
static void test_many_sizes_leave_few_copies(void **state)
{
	struct world *w = *state;
	struct made m;
	struct done d;

	restart_private(w);
	use_key(w, "free");
	create(w, &m, &(struct sandbox_spec){0});
	for (uint32_t i = 0; i < 10; i++) {
		create(w, &m, &(struct sandbox_spec){.config.size.ram_mib = 192 + 64 * i});
		world_delete(w, &d, m.view.id);
		create(w, &m, &(struct sandbox_spec){.config.size.ram_mib = 192});
		world_delete(w, &d, m.view.id);
	}
	world_wait_ready(w);
	assert_in_range(copies(w), 2, 8);
	uint64_t one = create_from(w, &m);
	assert_int_equal(create_from(w, &m), one);
}

static void test_create_fails_when_the_copy_can_not_be_made(void **state)
{
	struct world *w = *state;
	char path[CONFIG_PATH_MAX + 16];
	struct made m;

	restart_private(w);
	snprintf(path, sizeof(path), "%s/private", w->config.state_dir);
	FILE *file = fopen(path, "w"); /* blocks the creation of the directory */
	assert_non_null(file);
	fclose(file);
	use_key(w, "free");
	world_create(w, &m, &(struct sandbox_spec){0});
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_PRIVATE_COPY);
	assert_int_equal(unlink(path), 0);
	world_create(w, &m, &(struct sandbox_spec){0});
	assert_true(m.ok);
}

static void test_memory_promises_are_limited(void **state)
{
	struct world *w = *state;
	struct made m;
	struct forked k;

	restart_with_memory(w, w->config.ram_mib, 250);
	create(w, &m, &(struct sandbox_spec){0});
	world_fork(w, &k, m.view.id, 2);
	assert_int_equal(k.failure.code, FAIL_NO_CAPACITY);
	assert_non_null(strstr(k.failure.text, "promised to other sandboxes"));
	create(w, &m, &(struct sandbox_spec){0});
	world_create(w, &m, &(struct sandbox_spec){0});
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_NO_CAPACITY);
}

/* The creates overlap: none is complete when the next one starts. */
static void test_sandboxes_in_creation_count_as_promised(void **state)
{
	struct world *w = *state;
	struct made m[4];
	struct forked k[2];
	unsigned made = 0, forked = 0, at[4];

	restart_with_memory(w, w->config.ram_mib, 350);
	for (int i = 0; i < 4; i++)
		world_create_start(w, &m[i], NULL);
	for (int i = 0; i < 4; i++) {
		world_until_true(w, &m[i].done);
		if (m[i].ok) /* which of them succeed depends on their workers */
			at[made++] = (unsigned)i;
	}
	assert_int_equal(made, 3);
	struct done d;
	world_delete(w, &d, m[at[1]].view.id);
	for (int i = 0; i < 2; i++)
		world_fork_start(w, &k[i], m[at[0]].view.id, 1, false);
	for (int i = 0; i < 2; i++) {
		world_until_true(w, &k[i].done);
		forked += k[i].ok;
	}
	assert_int_equal(forked, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_requests_are_cut_to_the_tier),
		T(test_default_timeouts_are_cut_to_the_tier),
		T(test_idle_deadline_is_constant_while_idle),
		T(test_default_size_is_cut_to_the_tier),
		T(test_higher_tiers_get_more),
		T(test_only_host_limits_apply_without_a_key),
		T(test_spaces_have_a_quota),
		T(test_limit_counts_living_sandboxes),
		T(test_limit_counts_sandboxes_in_creation),
		T(test_fork_over_the_limit_is_refused_whole),
		T(test_limit_counts_children_in_creation),
		T(test_failed_fork_releases_its_reservation),
		T(test_limit_holds_after_a_restart),
		T(test_disks_of_a_tenant_have_a_budget),
		T(test_one_tenant_leaves_room_for_others),
		T(test_code_of_one_tenant_leaves_room_for_others),
		T(test_idle_sandbox_accepts_calls_when_the_queue_is_full),
		T(test_sandbox_of_another_tenant_does_not_exist),
		T(test_tenants_over_their_memory_share_are_killed_first),
		T(test_memory_of_images_counts_for_the_share),
		T(test_private_memory_is_not_shared),
		T(test_concurrent_creates_share_one_copy),
		T(test_copy_lives_as_long_as_the_tenants_sandboxes),
		T(test_resumed_space_has_private_memory),
		T(test_many_sizes_leave_few_copies),
		T(test_create_fails_when_the_copy_can_not_be_made),
		T(test_memory_promises_are_limited),
		T(test_sandboxes_in_creation_count_as_promised),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
