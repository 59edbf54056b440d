// SPDX-License-Identifier: Apache-2.0
/* Sandboxes of other sizes than the default: what they get, and where it comes from. */
#include "test/unit/core/world.h"

static struct core_figures figures(struct world *w)
{
	struct core_figures f;

	core_figures(w->core, &f);
	return f;
}

static void set_sizes(struct world *w, const char *sizes)
{
	world_wait_ready(w);
	world_kill_core(w);
	snprintf(w->config.sizes, sizeof(w->config.sizes), "%s", sizes);
	world_start_core(w);
	world_wait_ready(w);
}

static void create(struct world *w, struct made *m, uint32_t ram_mib, uint32_t rootfs_gb)
{
	const struct sandbox_spec spec = {.ram_mib = ram_mib, .rootfs_gb = rootfs_gb};

	world_create(w, m, &spec);
	if (!m->ok)
		fail_msg("%s", m->failure.text);
}

/* --- sizes ---------------------------------------------------------------------------------- */

static void test_ram_is_rounded_to_what_is_near(void **state)
{
	static const struct {
		uint32_t asked, got;
	} cases[] = {
		{128, 128}, {192, 256}, {256, 256}, {257, 512}, {512, 512}, {513, 576}, {600, 640},
	};
	struct world *w = *state;
	struct made m;

	set_sizes(w, "256x1,512x1");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct done d;

		create(w, &m, cases[i].asked, 0);
		assert_int_equal(m.view.ram_mib, cases[i].got);
		world_delete(w, &d, m.view.id);
	}
}

static void test_disks_are_rounded_to_what_is_near(void **state)
{
	struct world *w = *state;
	struct made m;

	set_sizes(w, "256x1x4,512x1x4");
	create(w, &m, 200, 0);
	assert_int_equal(m.view.ram_mib, 256);
	assert_int_equal(m.view.rootfs_gb, 4);
	create(w, &m, 0, 3);
	assert_int_equal(m.view.ram_mib, 256);
	assert_int_equal(m.view.rootfs_gb, 4);
	/* Too large to be near: it grows from the nearest. */
	unsigned boots = fakes_boots(w->fakes), grown = fakes_grown(w->fakes);
	create(w, &m, 200, 5);
	assert_int_equal(m.view.ram_mib, 256);
	assert_int_equal(m.view.rootfs_gb, 5);
	assert_int_equal(fakes_boots(w->fakes), boots);
	assert_int_equal(fakes_grown(w->fakes), grown + 1);
	create(w, &m, 0, 0);
	assert_int_equal(m.view.ram_mib, 128);
	assert_int_equal(m.view.rootfs_gb, 1);
}

static void test_ram_that_no_host_has_is_clamped(void **state)
{
	struct world *w = *state;
	struct made m;

	set_sizes(w, "65536x1");
	create(w, &m, 65536, 0);
	assert_in_range(m.view.ram_mib, 128, 65536);
	assert_int_equal(m.view.ram_mib % 64, 0);
}

static void test_a_size_is_served_by_a_shell_of_the_pool(void **state)
{
	struct world *w = *state;
	struct made first, second;

	set_sizes(w, "1024x1"); /* a shell has room for it */
	create(w, &first, 192, 0);
	world_wait_ready(w); /* the pool has a shell again */
	assert_int_equal(fakes_boots(w->fakes), 2);
	unsigned limits = fakes_limits(w->fakes), boots = fakes_boots(w->fakes);
	create(w, &second, 192, 0);
	assert_int_equal(fakes_boots(w->fakes), boots);
	assert_int_equal(fakes_limits(w->fakes), limits + 1); /* it is no default shell any more */
	assert_int_equal(second.view.ram_mib, 192);
	assert_int_equal(figures(w).template_boots, 1);
}

static void test_the_file_system_grows_to_the_disk(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	unsigned boots = fakes_boots(w->fakes), grown = fakes_grown(w->fakes);
	create(w, &m, 0, 16);
	assert_int_equal(m.view.rootfs_gb, 16);
	assert_int_equal(m.view.ram_mib, w->config.ram_mib);
	assert_int_equal(fakes_boots(w->fakes), boots); /* any disk is of one image */
	assert_int_equal(fakes_grown(w->fakes), grown + 1);
}

static void test_a_file_system_that_does_not_grow_is_told(void **state)
{
	const struct sandbox_spec spec = {.rootfs_gb = 2};
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_GROW, 3);
	world_create(w, &m, &spec);
	assert_false(m.ok);
	assert_int_equal(m.failure.status, 503);
	assert_non_null(strstr(m.failure.text, "as large as its disk"));
	world_create(w, &m, &spec);
	assert_true(m.ok);
}

static void test_a_sized_sandbox_forks_and_merges(void **state)
{
	struct world *w = *state;
	struct sandbox_view view;
	struct failure f;
	struct made m;
	struct forked k;
	struct done d;

	world_wait_ready(w);
	create(w, &m, 192, 3);
	unsigned grown = fakes_grown(w->fakes);
	world_fork(w, &k, m.view.id, 2);
	assert_true(k.ok);
	assert_int_equal(fakes_grown(w->fakes), grown); /* the copy is as large already */
	assert_true(core_view(w->core, TENANT, k.ids[1], &view, &f));
	assert_int_equal(view.ram_mib, 192);
	assert_int_equal(view.rootfs_gb, 3);
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed);
	assert_true(core_view(w->core, TENANT, m.view.id, &view, &f));
	assert_int_equal(view.ram_mib, 192);
}

static void test_a_sized_sandbox_is_adopted(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	world_wait_ready(w);
	create(w, &m, 192, 3);
	char id[SANDBOX_ID_LEN + 1];
	memcpy(id, m.view.id, sizeof(id));
	world_kill_core(w);
	world_start_core(w);
	world_wait_ready(w);
	world_exec(w, &r, id, "out still here");
	assert_string_equal(r.out, "still here");
}

/* --- ahead ---------------------------------------------------------------------------------- */

static void find_default(void *arg, const struct template_view *view)
{
	size_t *n = arg;

	if (!strcmp(view->name, "default"))
		*n = view->n_sizes;
}

static bool are_ahead(void *arg)
{
	size_t n = 0;

	core_templates(arg, find_default, &n);
	return n == 3;
}

static void test_sizes_are_prepared_ahead(void **state)
{
	struct world *w = *state;
	struct made m;

	set_sizes(w, "256x1,512x1,65536x32");
	world_until(w, are_ahead, w->core);
	unsigned boots = fakes_boots(w->fakes);
	assert_int_equal(boots, 3);
	create(w, &m, 500, 0);
	assert_int_equal(m.view.ram_mib, 512);
	assert_int_equal(fakes_boots(w->fakes), boots);
	/* Found on disk in the next life. */
	world_kill_core(w);
	world_start_core(w);
	world_until(w, are_ahead, w->core);
	assert_int_equal(fakes_boots(w->fakes), boots);
}

static void test_what_fails_ahead_is_not_tried_again_and_again(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	world_kill_core(w);
	snprintf(w->config.sizes, sizeof(w->config.sizes), "256x1");
	fakes_fault(w->fakes, FAKES_BOOT, 1000);
	world_start_core(w); /* the default one is on disk */
	world_wait_ready(w);
	const struct sandbox_spec spec = {.ram_mib = 256};
	world_create(w, &m, &spec); /* its own try */
	assert_false(m.ok);
	assert_int_equal(1000 - fakes_faults_left(w->fakes, FAKES_BOOT), 1);
	fakes_fault(w->fakes, FAKES_BOOT, 0);
}

/* --- what the pool learns -------------------------------------------------------------------- */

static bool is_learnt(void *arg)
{
	struct core_figures f;

	core_figures(arg, &f);
	return f.warm_ready == 2 && f.shells_ready == 1;
}

static void learn(struct world *w)
{
	world_wait_ready(w);
	world_kill_core(w);
	w->config.pool_others = 1;
	world_start_core(w);
	world_wait_ready(w);
}

static void test_the_pool_learns_what_is_asked_for(void **state)
{
	struct world *w = *state;
	struct made m;

	learn(w);
	create(w, &m, 192, 2);
	assert_int_equal(figures(w).pool_hits, 0);
	world_until(w, is_learnt, w->core);
	create(w, &m, 192, 2);
	assert_int_equal(figures(w).pool_hits, 1);
	assert_int_equal(m.view.ram_mib, 192);
	assert_int_equal(m.view.rootfs_gb, 2);
	create(w, &m, 0, 0); /* the default one is kept as ever */
	assert_int_equal(figures(w).pool_hits, 2);
}

static bool is_stocked(void *arg)
{
	struct core_figures f;

	core_figures(arg, &f);
	return f.warm_ready == 3;
}

static void test_the_first_create_of_a_prepared_size_is_a_hit(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	world_kill_core(w);
	w->config.pool_others = 1;
	snprintf(w->config.sizes, sizeof(w->config.sizes), "256x1x4,512x1x4");
	world_start_core(w);
	world_until(w, is_stocked, w->core);
	create(w, &m, 500, 0);
	assert_int_equal(figures(w).pool_hits, 1);
	create(w, &m, 200, 2);
	assert_int_equal(figures(w).pool_hits, 2);
	assert_int_equal(m.view.ram_mib, 256);
	world_until(w, is_stocked, w->core);
}

static void test_what_was_learnt_makes_room(void **state)
{
	struct world *w = *state;
	struct made m[8];

	learn(w);
	create(w, &m[0], 192, 0);
	world_until(w, is_learnt, w->core);
	for (unsigned i = 1; i < w->config.max_vms; i++)
		create(w, &m[i], 0, 0);
	assert_int_equal(figures(w).sandboxes, w->config.max_vms);
}

static void test_the_pool_remembers_few_sizes(void **state)
{
	struct world *w = *state;
	struct done d;
	struct made m;

	learn(w);
	for (uint32_t gb = 2; gb < 12; gb++) {
		create(w, &m, 0, gb);
		world_delete(w, &d, m.view.id);
	}
	assert_true(figures(w).warm_ready <= 5);
	assert_true(fakes_slots(w->fakes) <= w->config.max_vms);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_ram_is_rounded_to_what_is_near),
		TEST(test_disks_are_rounded_to_what_is_near),
		TEST(test_ram_that_no_host_has_is_clamped),
		TEST(test_a_size_is_served_by_a_shell_of_the_pool),
		TEST(test_the_file_system_grows_to_the_disk),
		TEST(test_a_file_system_that_does_not_grow_is_told),
		TEST(test_a_sized_sandbox_forks_and_merges),
		TEST(test_a_sized_sandbox_is_adopted),
		TEST(test_sizes_are_prepared_ahead),
		TEST(test_what_fails_ahead_is_not_tried_again_and_again),
		TEST(test_the_pool_learns_what_is_asked_for),
		TEST(test_the_first_create_of_a_prepared_size_is_a_hit),
		TEST(test_what_was_learnt_makes_room),
		TEST(test_the_pool_remembers_few_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
