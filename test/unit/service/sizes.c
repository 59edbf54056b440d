// SPDX-License-Identifier: Apache-2.0
/* Sandboxes of other sizes than the default: the size they get, and the image and pool they come
 * from. */
#include "test/unit/service/world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "orchestrator/images/host.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/sandbox/service.h"

static void set_sizes(struct world *w, const char *sizes)
{
	world_wait_ready(w);
	world_kill_service(w);
	snprintf(w->config.sizes, sizeof(w->config.sizes), "%s", sizes);
	world_start_service(w);
	world_wait_ready(w);
}

static void create(struct world *w, struct made *m, uint32_t ram_mib, uint32_t rootfs_gb)
{
	const struct sandbox_spec spec = {.config.size.ram_mib = ram_mib,
					  .config.size.rootfs_gb = rootfs_gb};

	world_create(w, m, &spec);
	if (!m->ok)
		fail_msg("%s", m->failure.text);
}

/* --- sizes ---------------------------------------------------------------------------------- */

static void test_ram_is_exact_in_steps_of_64(void **state)
{
	static const struct {
		uint32_t asked, got;
	} cases[] = {{128, 128}, {129, 192}, {192, 192}, {256, 256}, {257, 320}, {513, 576}};
	struct world *w = *state;
	struct made m;

	set_sizes(w, "256x1,512x1"); /* prepared sizes do not change the granted one */
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct done d;

		create(w, &m, cases[i].asked, 0);
		assert_int_equal(m.view.config.size.ram_mib, cases[i].got);
		assert_int_equal(m.view.config.size.vcpus, w->config.vcpus);
		assert_int_equal(m.view.config.size.rootfs_gb, w->config.rootfs_gb);
		world_delete(w, &d, m.view.id);
	}
}

static void test_disks_are_exact_and_grow_from_one_image(void **state)
{
	struct world *w = *state;
	struct made m;

	set_sizes(w, "256x1x4");
	create(w, &m, 256, 0);
	assert_int_equal(m.view.config.size.rootfs_gb, 1);
	unsigned boots = fakes_boots(w->fakes);
	for (uint32_t gb = 2; gb < 6; gb++) {
		struct done d;

		create(w, &m, 256, gb);
		assert_int_equal(m.view.config.size.rootfs_gb, gb);
		world_delete(w, &d, m.view.id);
	}
	assert_int_equal(fakes_boots(w->fakes), boots);
}

static void test_disk_can_be_smaller_than_that_of_the_template(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	world_kill_service(w);
	w->config.rootfs_gb = 8;
	world_start_service(w);
	world_wait_ready(w);
	create(w, &m, 0, 0);
	assert_int_equal(m.view.config.size.rootfs_gb, 8);
	create(w, &m, 0, 3);
	assert_int_equal(m.view.config.size.rootfs_gb, 3);
}

static void test_sizes_over_the_host_are_clamped(void **state)
{
	const struct sandbox_spec spec = {.config.size.ram_mib = UINT32_MAX,
					  .config.size.vcpus = UINT32_MAX,
					  .config.size.rootfs_gb = UINT32_MAX};
	struct world *w = *state;
	struct size host = size_host();
	struct made m;

	set_sizes(w, "65536x1");
	world_create(w, &m, &spec);
	assert_true(m.ok);
	assert_int_equal(m.view.config.size.ram_mib, host.ram_mib);
	assert_int_equal(m.view.config.size.vcpus, host.vcpus);
	assert_int_equal(m.view.config.size.rootfs_gb, 1024);
}

static void test_too_little_ram_is_refused(void **state)
{
	const struct sandbox_spec spec = {.config.size.ram_mib = 127};
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	world_create(w, &m, &spec);
	assert_int_equal(m.failure.code, FAIL_OUT_OF_RANGE);
}

static void test_other_size_takes_a_blank_vm_of_the_pool(void **state)
{
	struct world *w = *state;
	struct made first, second;

	set_sizes(w, "1024x1"); /* makes blank VMs large enough */
	create(w, &first, 192, 0);
	world_wait_ready(w); /* the pool has a blank VM again */
	assert_int_equal(fakes_boots(w->fakes), 2);
	unsigned limits = fakes_limits(w->fakes), boots = fakes_boots(w->fakes);
	create(w, &second, 192, 0);
	assert_int_equal(fakes_boots(w->fakes), boots);
	assert_int_equal(fakes_limits(w->fakes), limits + 1); /* a blank VM's limit was changed */
	assert_int_equal(second.view.config.size.ram_mib, 192);
	assert_int_equal(world_metric(w, "template_boots_total"), 1);
}

static void test_file_system_grows_to_the_disk(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	unsigned boots = fakes_boots(w->fakes), grown = fakes_grown(w->fakes);
	create(w, &m, 0, 16);
	assert_int_equal(m.view.config.size.rootfs_gb, 16);
	assert_int_equal(m.view.config.size.ram_mib, w->config.ram_mib);
	assert_int_equal(fakes_boots(w->fakes), boots); /* one image serves every disk size */
	assert_int_equal(fakes_grown(w->fakes), grown + 1);
}

static void test_create_fails_when_the_file_system_does_not_grow(void **state)
{
	const struct sandbox_spec spec = {.config.size.rootfs_gb = 2};
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_GROW, 3);
	world_create(w, &m, &spec);
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_VM_FAILED);
	assert_non_null(strstr(m.failure.text, "as large as its disk"));
	world_create(w, &m, &spec);
	assert_true(m.ok);
}

static void test_sandbox_of_another_size_forks_and_merges(void **state)
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
	assert_int_equal(fakes_grown(w->fakes), grown); /* copied when it had that size */
	assert_true(service_view(w->service, TENANT, k.ids[1], &view, &f));
	assert_int_equal(view.config.size.ram_mib, 192);
	assert_int_equal(view.config.size.rootfs_gb, 3);
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed);
	assert_true(service_view(w->service, TENANT, m.view.id, &view, &f));
	assert_int_equal(view.config.size.ram_mib, 192);
}

static void test_sandbox_of_another_size_is_adopted(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	world_wait_ready(w);
	create(w, &m, 192, 3);
	char id[SANDBOX_ID_LEN + 1];
	memcpy(id, m.view.id, sizeof(id));
	world_kill_service(w);
	world_start_service(w);
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

static size_t count_sizes(struct service *c)
{
	size_t n = 0;

	service_templates(c, find_default, &n);
	return n;
}

static bool are_4_ahead(void *arg)
{
	return count_sizes(arg) == 4;
}

static void test_listed_sizes_are_prepared_ahead(void **state)
{
	struct world *w = *state;
	struct made m;

	set_sizes(w, "256x1,512x1,65536x32");
	world_until(w, are_4_ahead, w->service);
	unsigned boots = fakes_boots(w->fakes);
	assert_int_equal(boots, 4);
	create(w, &m, 500, 0);
	assert_int_equal(m.view.config.size.ram_mib, 512);
	assert_int_equal(fakes_boots(w->fakes), boots);
	/* The next instance finds the images on disk. */
	world_kill_service(w);
	world_start_service(w);
	world_until(w, are_4_ahead, w->service);
	assert_int_equal(fakes_boots(w->fakes), boots);
}

/* --- ahead, as listed ------------------------------------------------------------------------- */

static void start_with(struct world *w, const char *sizes)
{
	world_wait_ready(w);
	world_kill_service(w);
	snprintf(w->config.sizes, sizeof(w->config.sizes), "%s", sizes);
	w->config.pool_others = 0;
	world_start_service(w);
	world_wait_ready(w);
}

static bool has_image(struct world *w, const char *size)
{
	char command[CONFIG_PATH_MAX + 128];

	snprintf(command, sizeof(command), "test -d %s/templates/default-*-%s", w->config.state_dir,
		 size);
	return system(command) == 0;
}

static bool is_warm_twice(void *arg)
{
	return world_metric(arg, "warm_ready") >= 2;
}

static void test_only_listed_sizes_are_prepared(void **state)
{
	static const char *const settings[] = {"", "auto"};
	struct world *w = *state;

	for (int i = 0; i < 2; i++) {
		start_with(w, settings[i]);
		world_run_for(w, 4000);
		assert_int_equal(world_images(w, ""), 1);
	}
}

static void test_images_of_unlisted_sizes_are_counted(void **state)
{
	struct world *w = *state;
	struct made m;

	start_with(w, "256x1");
	create(w, &m, 256, 0); /* before it was made ahead, or after that */
	create(w, &m, 256, 3);
	assert_int_equal(world_metric(w, "sizes_unlisted_total"), 0);
	for (int i = 0; i < 2; i++)
		create(w, &m, 192, 0);
	assert_int_equal(world_metric(w, "sizes_unlisted_total"), 1);
}

/* Puts foreign files, such as notes or a copy of an image, into the image directory. */
static void put_other_files(struct world *w)
{
	char command[4 * CONFIG_PATH_MAX];

	snprintf(command, sizeof(command),
		 "cd %s/templates && mkdir mine lost+found && touch notes mine/notes && "
		 "touch -d 2020-01-01 mine lost+found notes",
		 w->config.state_dir);
	assert_int_equal(system(command), 0);
}

static void test_least_recently_requested_image_is_removed(void **state)
{
	struct world *w = *state;
	struct made m;
	struct done d;

	start_with(w, "");
	put_other_files(w);
	for (uint32_t i = 0; i < 20; i++) {
		create(w, &m, 192 + 64 * i, 0);
		world_delete(w, &d, m.view.id);
		create(w, &m, 192, 0);
		world_delete(w, &d, m.view.id);
	}
	assert_int_equal(world_images(w, "default-"), 16 + 1);
	assert_true(has_image(w, "1c-128m-1g"));
	assert_true(has_image(w, "1c-192m-1g")); /* requested all the time */
	assert_false(has_image(w, "1c-256m-1g"));
	assert_true(has_image(w, "1c-1408m-1g"));
}

/* --- background ------------------------------------------------------------------------------- */

static bool builds_256(void *arg)
{
	const struct service *c = arg;

	const struct template *t = templates_building(c->templates);

	return t && template_size(t)->ram_mib == 256;
}

static bool builds_192(void *arg)
{
	const struct service *c = arg;

	const struct template *t = templates_building(c->templates);

	return t && template_size(t)->ram_mib == 192;
}

static bool has_booted_twice(void *arg)
{
	return fakes_boots(arg) == 2;
}

/* Creates a sandbox, then starts the background build of the 256 MiB image, whose guest never
 * answers. */
static void begin_in_background(struct world *w, struct made *m)
{
	start_with(w, "256x1");
	create(w, m, 0, 0);
	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_CONNECT, 1 << 30);
	world_until(w, builds_256, w->service);
	world_until(w, has_booted_twice, w->fakes);
}

static bool build_is_paused(void *arg)
{
	return fakes_paused(arg) == 1;
}

static bool build_is_running(void *arg)
{
	return fakes_paused(arg) == 0;
}

static bool has_256(void *arg)
{
	return has_image(arg, "1c-256m-1g");
}

static void test_calls_pause_a_background_build_and_its_deadline(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	w->config.boot_timeout_s = 5;
	begin_in_background(w, &m);
	world_exec_start(w, &r, m.view.id, "wait", false);
	world_until(w, build_is_paused, w->fakes);
	world_run_for(w, 6000); /* longer than boot_timeout_s */
	assert_int_equal(fakes_paused(w->fakes), 1);
	fakes_fault(w->fakes, FAKES_CONNECT, 0);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
	world_until(w, build_is_running, w->fakes);
	world_until(w, has_256, w);
	assert_int_equal(fakes_boots(w->fakes), 2);
}

static void test_no_background_build_starts_during_a_call(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	start_with(w, "256x1");
	create(w, &m, 0, 0);
	world_exec_start(w, &r, m.view.id, "wait", false);
	world_until_waiting(w, 1);
	world_run_for(w, 6000);
	assert_int_equal(fakes_boots(w->fakes), 1);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
	world_until(w, has_256, w);
}

static void test_unrequested_warm_sandboxes_wait_for_idle_time(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	start_with(w, "256x1");
	world_until(w, has_256, w);
	world_kill_service(w);
	w->config.pool_others = 1;
	world_start_service(w);
	world_wait_ready(w);
	create(w, &m, 0, 0);
	world_exec_start(w, &r, m.view.id, "wait", false);
	world_until_waiting(w, 1);
	world_wait_ready(w); /* the default size counts as requested */
	world_run_for(w, 6000);
	assert_int_equal(world_metric(w, "warm_ready"), 1);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
	world_until(w, is_warm_twice, w);
}

static void test_background_build_yields_to_a_requested_build(void **state)
{
	const struct sandbox_spec spec = {.config.size.ram_mib = 192};
	struct world *w = *state;
	struct made m, other;

	begin_in_background(w, &m);
	world_create_start(w, &other, &spec);
	world_until(w, builds_192, w->service);
	fakes_fault(w->fakes, FAKES_CONNECT, 0);
	world_until_true(w, &other.done);
	assert_true(other.ok);
	assert_false(has_image(w, "1c-256m-1g"));
	world_until(w, has_256, w); /* built once no calls run any more */
}

static void test_requested_build_continues_during_a_call(void **state)
{
	const struct sandbox_spec spec = {.config.size.ram_mib = 256};
	struct world *w = *state;
	struct made m, other;
	struct run r = {0};

	begin_in_background(w, &m);
	world_exec_start(w, &r, m.view.id, "wait", false);
	world_until(w, build_is_paused, w->fakes);
	world_create_start(w, &other, &spec);
	world_until(w, build_is_running, w->fakes);
	fakes_fault(w->fakes, FAKES_CONNECT, 0);
	world_until_true(w, &other.done);
	assert_true(other.ok);
	assert_int_equal(fakes_boots(w->fakes), 2);
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
}

static void test_background_build_yields_to_sandboxes(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m[8];

	begin_in_background(w, &m[0]);
	world_exec_start(w, &r, m[0].view.id, "wait", false);
	world_until(w, build_is_paused, w->fakes);
	fakes_fault(w->fakes, FAKES_CONNECT, 0);
	for (unsigned i = 1; i < w->config.max_vms; i++)
		create(w, &m[i], 0, 0);
	assert_int_equal(world_metric(w, "sandboxes"), w->config.max_vms);
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
}

static void test_failed_background_build_is_not_retried(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	world_kill_service(w);
	snprintf(w->config.sizes, sizeof(w->config.sizes), "256x1");
	fakes_fault(w->fakes, FAKES_BOOT, 1000);
	world_start_service(w); /* the default image is on disk */
	world_wait_ready(w);
	const struct sandbox_spec spec = {.config.size.ram_mib = 256};
	world_create(w, &m, &spec); /* the create builds the image itself */
	assert_false(m.ok);
	assert_int_equal(1000 - fakes_faults_left(w->fakes, FAKES_BOOT), 1);
	fakes_fault(w->fakes, FAKES_BOOT, 0);
}

/* --- learning by the pool -------------------------------------------------------------------- */

static bool size_is_learnt(void *arg)
{
	return world_metric(arg, "warm_ready") == 2 && world_metric(arg, "blank_vms_ready") == 1;
}

static void learn(struct world *w)
{
	world_wait_ready(w);
	world_kill_service(w);
	w->config.pool_others = 1;
	world_start_service(w);
	world_wait_ready(w);
}

static void test_pool_learns_requested_sizes(void **state)
{
	struct world *w = *state;
	struct made m;

	learn(w);
	create(w, &m, 192, 2);
	assert_int_equal(world_metric(w, "pool_hits_total"), 0);
	world_until(w, size_is_learnt, w);
	create(w, &m, 192, 2);
	assert_int_equal(world_metric(w, "pool_hits_total"), 1);
	assert_int_equal(m.view.config.size.ram_mib, 192);
	assert_int_equal(m.view.config.size.rootfs_gb, 2);
	create(w, &m, 0, 0); /* a warm sandbox of the default size is kept too */
	assert_int_equal(world_metric(w, "pool_hits_total"), 2);
}

static bool is_stocked(void *arg)
{
	return world_metric(arg, "warm_ready") == 3;
}

static void test_first_create_of_a_prepared_size_is_a_hit(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	world_kill_service(w);
	w->config.pool_others = 1;
	snprintf(w->config.sizes, sizeof(w->config.sizes), "256x1x4,512x1x4");
	world_start_service(w);
	world_until(w, is_stocked, w);
	create(w, &m, 512, 4);
	assert_int_equal(world_metric(w, "pool_hits_total"), 1);
	create(w, &m, 256, 4);
	assert_int_equal(world_metric(w, "pool_hits_total"), 2);
	assert_int_equal(m.view.config.size.ram_mib, 256);
	world_until(w, is_stocked, w);
}

static bool is_stocked_twice(void *arg)
{
	return world_metric(arg, "warm_ready") == 5;
}

static void test_two_creates_in_a_row_are_hits(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	world_kill_service(w);
	w->config.pool_others = 2;
	w->config.max_vms = 12;
	snprintf(w->config.sizes, sizeof(w->config.sizes), "256x1x4,512x1x4");
	world_start_service(w);
	world_until(w, is_stocked_twice, w);
	create(w, &m, 512, 4);
	create(w, &m, 512, 4);
	assert_int_equal(world_metric(w, "pool_hits_total"), 2);
	world_kill_service(w);
	w->config.max_vms = 11; /* two of each of three sizes are more than half */
	world_start_service(w);
	world_until(w, is_stocked, w);
}

static bool are_seven_ahead(void *arg)
{
	size_t n = 0;

	service_templates(arg, find_default, &n);
	return n == 7;
}

/* Warm sandboxes leave slots for preparing the last images and for other sandboxes. */
static void test_images_are_prepared_for_more_sizes_than_vms(void **state)
{
	struct world *w = *state;

	world_wait_ready(w);
	world_kill_service(w);
	w->config.pool_others = 1;
	w->config.max_vms = 6;
	snprintf(w->config.sizes, sizeof(w->config.sizes), "192x1,256x1,320x1,384x1,448x1,512x1");
	world_start_service(w);
	world_until(w, are_seven_ahead, w->service);
	assert_in_range(world_metric(w, "warm_ready"), 3,
			4); /* half of max_vms, plus one default sandbox */
}

static void test_learnt_warm_sandboxes_yield_to_creates(void **state)
{
	struct world *w = *state;
	struct made m[8];

	learn(w);
	create(w, &m[0], 192, 0);
	world_until(w, size_is_learnt, w);
	for (unsigned i = 1; i < w->config.max_vms; i++)
		create(w, &m[i], 0, 0);
	assert_int_equal(world_metric(w, "sandboxes"), w->config.max_vms);
}

static void test_pool_remembers_few_sizes(void **state)
{
	struct world *w = *state;
	struct done d;
	struct made m;

	learn(w);
	for (uint32_t gb = 2; gb < 12; gb++) {
		create(w, &m, 0, gb);
		world_delete(w, &d, m.view.id);
	}
	assert_true(world_metric(w, "warm_ready") <= 5);
	assert_true(fakes_slots(w->fakes) <= w->config.max_vms);
}

static void test_template_is_kept_for_a_warm_sandbox_in_progress(void **state)
{
	struct world *w = *state;
	struct done d;
	struct made m;

	learn(w);
	create(w, &m, 192, 0);
	world_delete(w, &d, m.view.id);
	world_until(w, size_is_learnt, w);
	fakes_fault(w->fakes, FAKES_SEED_WAIT, 1);
	create(w, &m, 192, 0); /* a hit: the pool begins another one */
	world_until_waiting(w, 1);
	/* More sizes than the pool and the list of templates remember. */
	for (uint32_t i = 1; i <= 33; i++) {
		create(w, &m, 192 + 64 * i, 0);
		world_delete(w, &d, m.view.id);
	}
	fakes_go(w->fakes);
	create(w, &m, 192, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_ram_is_exact_in_steps_of_64),
		TEST(test_disks_are_exact_and_grow_from_one_image),
		TEST(test_disk_can_be_smaller_than_that_of_the_template),
		TEST(test_sizes_over_the_host_are_clamped),
		TEST(test_too_little_ram_is_refused),
		TEST(test_other_size_takes_a_blank_vm_of_the_pool),
		TEST(test_file_system_grows_to_the_disk),
		TEST(test_create_fails_when_the_file_system_does_not_grow),
		TEST(test_sandbox_of_another_size_forks_and_merges),
		TEST(test_sandbox_of_another_size_is_adopted),
		TEST(test_listed_sizes_are_prepared_ahead),
		TEST(test_only_listed_sizes_are_prepared),
		TEST(test_images_of_unlisted_sizes_are_counted),
		TEST(test_least_recently_requested_image_is_removed),
		TEST(test_calls_pause_a_background_build_and_its_deadline),
		TEST(test_no_background_build_starts_during_a_call),
		TEST(test_unrequested_warm_sandboxes_wait_for_idle_time),
		TEST(test_background_build_yields_to_a_requested_build),
		TEST(test_requested_build_continues_during_a_call),
		TEST(test_background_build_yields_to_sandboxes),
		TEST(test_failed_background_build_is_not_retried),
		TEST(test_pool_learns_requested_sizes),
		TEST(test_first_create_of_a_prepared_size_is_a_hit),
		TEST(test_two_creates_in_a_row_are_hits),
		TEST(test_images_are_prepared_for_more_sizes_than_vms),
		TEST(test_learnt_warm_sandboxes_yield_to_creates),
		TEST(test_pool_remembers_few_sizes),
		TEST(test_template_is_kept_for_a_warm_sandbox_in_progress),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
