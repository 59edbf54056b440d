// SPDX-License-Identifier: Apache-2.0
/* Sandboxes of other sizes than the default: what they get, and where it comes from. */
#include "test/unit/core/world.h"

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/core/internal.h"
#include "orchestrator/tiers.h"

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

/* --- which of the prepared sizes -------------------------------------------------------------- */

static const struct size no_limit = {UINT32_MAX, UINT32_MAX, UINT32_MAX};

static void fill(struct sizes *out, const char *name, const struct size *own, const char *setting,
		 const struct size *host)
{
	struct source from = {
		.vcpus = own->vcpus, .ram_mib = own->ram_mib, .rootfs_gb = own->rootfs_gb};
	struct config config;

	config_defaults(&config);
	snprintf(config.sizes, sizeof(config.sizes), "%s", setting);
	snprintf(from.name, sizeof(from.name), "%s", name);
	sizes_of(out, &config, &from, host);
	assert_true(out->n < SIZES_MAX); /* nothing was left out */
}

static bool is_prepared(const struct sizes *s, const struct size *image)
{
	for (size_t i = 0; i < s->ahead; i++)
		if (size_equal(&s->all[i], image))
			return true;
	return false;
}

static bool is_between(uint32_t low, uint32_t n, uint32_t high)
{
	return low <= n && n <= high;
}

/* Without a boot and without growing, all of it, not much more, and within the limit. */
static void expect_served(const struct sizes *s, const struct size *limit, struct size asked)
{
	const struct size *own = &s->all[0];

	asked = (struct size){min_u32(asked.vcpus, limit->vcpus),
			      min_u32(asked.ram_mib, limit->ram_mib),
			      min_u32(asked.rootfs_gb, limit->rootfs_gb)};
	if (asked.rootfs_gb < own->rootfs_gb)
		asked.rootfs_gb = own->rootfs_gb;
	const struct sized_choice got = sizes_choose(s, &asked, limit);
	bool large = asked.rootfs_gb > 4 * own->rootfs_gb;
	uint32_t ram_most = large ? 4 * max_u32(asked.ram_mib, own->ram_mib)
				  : max_u32(2 * asked.ram_mib, own->ram_mib);
	uint32_t disk_most = large ? limit->rootfs_gb : 4 * asked.rootfs_gb;
	if (is_prepared(s, &got.image) && size_equal(&got.image, &got.size) &&
	    is_between(asked.vcpus, got.size.vcpus, min_u32(2 * asked.vcpus, limit->vcpus)) &&
	    is_between(asked.ram_mib, got.size.ram_mib, min_u32(ram_most, limit->ram_mib)) &&
	    is_between(asked.rootfs_gb, got.size.rootfs_gb, min_u32(disk_most, limit->rootfs_gb)))
		return;
	fail_msg("%ux%ux%u of a template with %ux%ux%u: got %ux%ux%u from %ux%ux%u", asked.ram_mib,
		 asked.vcpus, asked.rootfs_gb, own->ram_mib, own->vcpus, own->rootfs_gb,
		 got.size.ram_mib, got.size.vcpus, got.size.rootfs_gb, got.image.ram_mib,
		 got.image.vcpus, got.image.rootfs_gb);
}

static void expect_disks_served(const struct sizes *s, const struct size *limit, uint32_t vcpus,
				uint32_t ram_mib)
{
	static const uint32_t disks[] = {4,  5,	 15,  16,  17,	40,  64,
					 65, 99, 256, 257, 512, 513, 1024};

	for (size_t i = 0; i < ARRAY_LEN(disks); i++)
		expect_served(s, limit, (struct size){vcpus, ram_mib, disks[i]});
}

/* RAM in steps, and beside each double. */
static void expect_all_served(const struct sizes *s, const struct size *limit)
{
	for (uint32_t n = 1; n <= 32; n++) {
		for (uint32_t ram = 128; ram < 65536; ram += 448)
			expect_disks_served(s, limit, n, ram);
		for (uint32_t ram = 128; ram <= 65536; ram *= 2) {
			expect_disks_served(s, limit, n, ram);
			expect_disks_served(s, limit, n, ram + 1);
		}
	}
}

static const struct size hosts[] = {
	{2, 4416, 1024}, {1, 384, 1024}, {6, 17984, 1024}, {31, 49152, 1024}, {32, 65536, 1024}};

static void test_with_auto_all_that_can_be_asked_for_is_prepared(void **state)
{
	static const struct size owns[] = {{2, 512, 4}, {3, 640, 10}, {1, 128, 1}};
	struct sizes s;

	for (size_t h = 0; h < ARRAY_LEN(hosts); h++)
		for (size_t i = 0; i < ARRAY_LEN(owns); i++) {
			struct size limit = size_limit(&hosts[h], &owns[i], &no_limit);

			fill(&s, TEMPLATE_DEFAULT, &owns[i], "auto", &hosts[h]);
			expect_all_served(&s, &limit);
		}
}

static void test_with_auto_all_that_a_tier_allows_is_prepared(void **state)
{
	static const struct size own = {2, 512, 4};
	struct config config;
	struct tier tier;
	struct sizes s;

	config_defaults(&config);
	for (size_t h = 0; h < ARRAY_LEN(hosts); h++)
		for (size_t i = 0; tier_at(&tier, &config, i); i++) {
			struct size most = size_of_tier(&tier);
			struct size limit = size_limit(&hosts[h], &own, &most);

			fill(&s, TEMPLATE_DEFAULT, &own, "auto", &hosts[h]);
			expect_all_served(&s, &limit);
		}
}

/* RAM x vCPUs x disk */
static void expect_size(const struct size *size, const char *expected)
{
	char text[48];

	snprintf(text, sizeof(text), "%ux%ux%u", size->ram_mib, size->vcpus, size->rootfs_gb);
	assert_string_equal(text, expected);
}

static void expect_choice(const struct sizes *s, struct size asked, const char *image,
			  const char *size)
{
	const struct sized_choice got = sizes_choose(s, &asked, &no_limit);

	expect_size(&got.image, image);
	expect_size(&got.size, size);
}

static void test_what_is_asked_for_most_comes_first(void **state)
{
	static const struct size own = {2, 512, 4}, host = {4, 3008, 1024};
	struct sizes s;

	fill(&s, TEMPLATE_DEFAULT, &own, "auto", &host);
	expect_size(&s.all[0], "512x2x4");
	expect_size(&s.all[1], "512x2x16");
	expect_size(&s.all[2], "1024x2x16");
	expect_size(&s.all[3], "2048x2x16");
	expect_size(&s.all[4], "3008x2x16"); /* the most there is, if no double */
	expect_size(&s.all[5], "512x2x64");
	expect_size(&s.all[6], "512x2x256");
	expect_size(&s.all[7], "512x2x1024");
	expect_size(&s.all[8], "512x1x16");
	expect_size(&s.all[15], "3008x4x16");
	expect_size(&s.all[16], "2048x2x1024"); /* large disks, in wide steps */
	expect_size(&s.all[17], "3008x2x1024");
	expect_size(&s.all[18], "2048x4x1024");
	expect_size(&s.all[20], "1024x2x4"); /* of the free tier */
	assert_int_equal(s.ahead, s.n);
}

/* As docs/sizes.md has it. */
static void test_there_are_not_too_many(void **state)
{
	static const struct size own = {2, 512, 4}, small = {2, 4416, 1024}, mid = {8, 24576, 1024},
				 large = {32, 49152, 1024};
	struct sizes s;

	fill(&s, TEMPLATE_DEFAULT, &own, "auto", &small);
	assert_int_equal(s.n, 1 + 23);
	fill(&s, TEMPLATE_DEFAULT, &own, "auto", &mid);
	assert_int_equal(s.n, 1 + 66);
	fill(&s, TEMPLATE_DEFAULT, &own, "auto", &large);
	assert_int_equal(s.n, 1 + 118);
}

static void test_a_large_disk_comes_in_wide_steps(void **state)
{
	static const struct size own = {2, 512, 4}, host = {8, 24576, 1024};
	struct sizes s;

	fill(&s, TEMPLATE_DEFAULT, &own, "auto", &host);
	expect_choice(&s, (struct size){2, 4096, 64}, "8192x2x64", "8192x2x64");
	expect_choice(&s, (struct size){2, 4096, 65}, "8192x2x512", "8192x2x512");
	expect_choice(&s, (struct size){1, 512, 300}, "512x2x512", "512x2x512");
	expect_choice(&s, (struct size){2, 128, 17}, "512x2x64", "512x2x64");
	expect_choice(&s, (struct size){5, 20000, 513}, "24576x8x1024", "24576x8x1024");
}

static void test_a_number_of_vcpus_that_is_prepared_is_kept(void **state)
{
	static const struct size own = {2, 512, 4}, host = {8, 4096, 1024};
	struct sizes s;

	fill(&s, TEMPLATE_DEFAULT, &own, "auto", &host);
	expect_choice(&s, (struct size){1, 512, 4}, "512x1x4", "512x1x4");
	expect_choice(&s, (struct size){3, 512, 4}, "512x4x4", "512x4x4");
	expect_choice(&s, (struct size){8, 4096, 16}, "4096x8x16", "4096x8x16");
}

static void test_what_is_listed_and_too_large_is_cut_and_counts_once(void **state)
{
	static const struct size own = {2, 512, 4}, host = {2, 4416, 1024};
	struct sizes s;

	fill(&s, TEMPLATE_DEFAULT, &own, "65536x32,65536x4,4416x2x4,512x1x16,512x2", &host);
	assert_int_equal(s.n, 3);
	expect_size(&s.all[1], "4416x2x4");
	expect_size(&s.all[2], "512x1x16");
	fill(&s, TEMPLATE_DEFAULT, &own, "", &host);
	assert_int_equal(s.n, 1);
	expect_choice(&s, (struct size){1, 128, 4}, "512x2x4", "512x2x4");
}

/* Only its own size is prepared: that is taken where it is near, and few others are made. */
static void test_sizes_of_another_template(void **state)
{
	static const struct size own = {2, 1024, 8}, host = {8, 16384, 1024};
	struct sizes s;

	fill(&s, "other", &own, "auto", &host);
	assert_int_equal(s.ahead, 1);
	expect_choice(&s, (struct size){1, 700, 50}, "1024x2x8", "1024x2x50");
	expect_choice(&s, (struct size){3, 1100, 8}, "2048x4x16", "2048x4x16");
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
	return n == 4;
}

static void test_sizes_are_prepared_ahead(void **state)
{
	struct world *w = *state;
	struct made m;

	set_sizes(w, "256x1,512x1,65536x32");
	world_until(w, are_ahead, w->core);
	unsigned boots = fakes_boots(w->fakes);
	assert_int_equal(boots, 4);
	create(w, &m, 500, 0);
	assert_int_equal(m.view.ram_mib, 512);
	assert_int_equal(fakes_boots(w->fakes), boots);
	/* Found on disk in the next life. */
	world_kill_core(w);
	world_start_core(w);
	world_until(w, are_ahead, w->core);
	assert_int_equal(fakes_boots(w->fakes), boots);
}

static bool are_all_ahead(void *arg)
{
	struct core *c = arg;
	struct size own = template_size(c->def)[0], host = size_host();
	size_t n = 0;
	struct sizes s;

	fill(&s, TEMPLATE_DEFAULT, &own, "auto", &host);
	core_templates(c, find_default, &n);
	return n == s.n;
}

static void test_with_auto_nothing_boots_when_it_is_asked_for(void **state)
{
	static const struct sandbox_spec specs[] = {{.ram_mib = 128},
						    {.ram_mib = 4097, .rootfs_gb = 100},
						    {.ram_mib = 5000, .vcpus = 1},
						    {.vcpus = 32},
						    {.ram_mib = 65536, .vcpus = 3},
						    {.rootfs_gb = 1024}};
	struct world *w = *state;
	struct done d;

	world_wait_ready(w);
	world_kill_core(w);
	w->config.max_vms = 200;
	w->config.ram_mib = 4096; /* a short ladder */
	w->config.pool_others = 1;
	snprintf(w->config.sizes, sizeof(w->config.sizes), "auto");
	world_start_core(w);
	world_until(w, are_all_ahead, w->core);
	unsigned boots = fakes_boots(w->fakes);
	/* Found on disk in the next life, all of them. */
	world_kill_core(w);
	world_start_core(w);
	world_until(w, are_all_ahead, w->core);
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct made m;

		world_create(w, &m, &specs[i]);
		assert_true(m.ok);
		assert_true(m.view.ram_mib >= specs[i].ram_mib || specs[i].ram_mib == 65536);
		world_delete(w, &d, m.view.id);
	}
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

static bool is_stocked_twice(void *arg)
{
	struct core_figures f;

	core_figures(arg, &f);
	return f.warm_ready == 5;
}

static void test_two_creates_in_a_row_are_hits_where_there_is_room(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	world_kill_core(w);
	w->config.pool_others = 2;
	w->config.max_vms = 12;
	snprintf(w->config.sizes, sizeof(w->config.sizes), "256x1x4,512x1x4");
	world_start_core(w);
	world_until(w, is_stocked_twice, w->core);
	create(w, &m, 500, 0);
	create(w, &m, 500, 0);
	assert_int_equal(figures(w).pool_hits, 2);
	world_kill_core(w);
	w->config.max_vms = 11; /* two of each of three were more than half */
	world_start_core(w);
	world_until(w, is_stocked, w->core);
}

static bool are_seven_ahead(void *arg)
{
	size_t n = 0;

	core_templates(arg, find_default, &n);
	return n == 7;
}

/* There is room to prepare the last ones, and for sandboxes. */
static void test_more_sizes_than_vms_are_prepared_all_the_same(void **state)
{
	struct world *w = *state;

	world_wait_ready(w);
	world_kill_core(w);
	w->config.pool_others = 1;
	w->config.max_vms = 6;
	snprintf(w->config.sizes, sizeof(w->config.sizes), "192x1,256x1,320x1,384x1,448x1,512x1");
	world_start_core(w);
	world_until(w, are_seven_ahead, w->core);
	assert_in_range(figures(w).warm_ready, 3, 4); /* half of all, and the default one */
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
		cmocka_unit_test(test_with_auto_all_that_can_be_asked_for_is_prepared),
		cmocka_unit_test(test_with_auto_all_that_a_tier_allows_is_prepared),
		cmocka_unit_test(test_what_is_asked_for_most_comes_first),
		cmocka_unit_test(test_there_are_not_too_many),
		cmocka_unit_test(test_a_large_disk_comes_in_wide_steps),
		cmocka_unit_test(test_a_number_of_vcpus_that_is_prepared_is_kept),
		cmocka_unit_test(test_what_is_listed_and_too_large_is_cut_and_counts_once),
		cmocka_unit_test(test_sizes_of_another_template),
		TEST(test_ram_is_rounded_to_what_is_near),
		TEST(test_disks_are_rounded_to_what_is_near),
		TEST(test_ram_that_no_host_has_is_clamped),
		TEST(test_a_size_is_served_by_a_shell_of_the_pool),
		TEST(test_the_file_system_grows_to_the_disk),
		TEST(test_a_file_system_that_does_not_grow_is_told),
		TEST(test_a_sized_sandbox_forks_and_merges),
		TEST(test_a_sized_sandbox_is_adopted),
		TEST(test_sizes_are_prepared_ahead),
		TEST(test_with_auto_nothing_boots_when_it_is_asked_for),
		TEST(test_what_fails_ahead_is_not_tried_again_and_again),
		TEST(test_the_pool_learns_what_is_asked_for),
		TEST(test_the_first_create_of_a_prepared_size_is_a_hit),
		TEST(test_two_creates_in_a_row_are_hits_where_there_is_room),
		TEST(test_more_sizes_than_vms_are_prepared_all_the_same),
		TEST(test_what_was_learnt_makes_room),
		TEST(test_the_pool_remembers_few_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
