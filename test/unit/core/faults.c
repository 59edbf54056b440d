// SPDX-License-Identifier: Apache-2.0
/* What goes wrong around the service: VMs that die at every step, refusals, lies. Whatever happens,
 * each call is answered once, the service recovers, and nothing is left behind. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "test/unit/core/world.h"

static void test_a_vm_may_die_at_each_step(void **state)
{
	for (int n = 1; n <= 24; n++) {
		struct world *w;
		struct run r = {0};
		struct made m;
		struct done d;

		world_setup((void **)&w);
		fakes_fault(w->fakes, FAKES_DIE_STEP, n);
		world_create(w, &m, NULL);
		if (m.ok) {
			world_exec_start(w, &r, m.view.id, "out on", false);
			world_until_true(w, &r.over);
			if (!r.failed)
				assert_string_equal(r.out, "on");
			world_delete(w, &d, m.view.id);
		} else {
			assert_int_equal(m.failure.status, 503);
			assert_non_null(strstr(m.failure.text, "last words"));
		}
		world_wait_ready(w);
		world_create(w, &m, NULL);
		assert_true(m.ok);
		world_teardown((void **)&w);
	}
}

static bool is_gone(void *arg)
{
	void **args = arg;
	struct sandbox_view view;
	struct failure f;

	return !core_view(args[0], TENANT, args[1], &view, &f) && !strcmp(f.code, "vm_died");
}

static void test_death_during_a_call_is_told_in_its_stream(void **state)
{
	struct world *w = *state;
	struct run r = {0}, queued = {0}, late;
	struct core_stats stats;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out on\ndie", false);
	world_exec_start(w, &queued, m.view.id, "out never", false);
	world_until_true(w, &r.over);
	world_until_true(w, &queued.over);
	assert_true(r.failed && queued.failed);
	assert_string_equal(r.failure.code, "vm_died");
	assert_int_equal(r.failure.status, 404);
	assert_string_equal(queued.failure.code, "vm_died");
	world_exec(w, &late, m.view.id, "out never");
	assert_int_equal(late.failure.status, 404);
	assert_string_equal(late.failure.code, "vm_died");
	world_delete(w, &d, m.view.id);
	assert_true(d.failed);
	core_stats(w->core, &stats);
	assert_int_equal(stats.vm_deaths, 1);
}

static void test_death_at_rest_is_noticed(void **state)
{
	struct world *w = *state;
	struct made m, other;
	struct run r;

	world_create(w, &m, NULL);
	world_create(w, &other, NULL);
	struct sandbox_view view;
	struct failure f;
	assert_true(core_view(w->core, TENANT, m.view.id, &view, &f));
	for (uint32_t slot = 0; slot < 8; slot++) {
		void *args[] = {w->core, m.view.id};

		fakes_kill(w->fakes, slot);
		world_wait_ready(w);
		if (is_gone(args))
			break;
	}
	void *args[] = {w->core, m.view.id};
	world_until(w, is_gone, args);
	world_exec(w, &r, other.view.id, "out fine");
	if (!r.failed)
		assert_string_equal(r.out, "fine");
}

static void count_lost(void *arg, const struct event *ev, const char *traceparent)
{
	int *lost = arg;

	*lost += ev->type == EVENT_ERROR && !strcmp(ev->code, "agent_lost");
}

static void test_a_broken_agent_connection_costs_one_call(void **state)
{
	const char *const scripts[] = {"out on\nhang-up", "garbage"};
	struct world *w = *state;
	struct failure f;
	struct made m;
	struct run r;
	int lost = 0;

	world_create(w, &m, NULL);
	for (int i = 0; i < 2; i++) {
		world_exec(w, &r, m.view.id, scripts[i]);
		assert_true(r.failed);
		assert_string_equal(r.failure.code, "agent_lost");
		world_exec(w, &r, m.view.id, "out again");
		assert_string_equal(r.out, "again");
	}
	assert_true(core_replay(w->core, TENANT, m.view.id, 0, count_lost, &lost, &f));
	assert_int_equal(lost, 2);
}

static void test_a_guest_that_can_not_be_made_unique_serves_nothing(void **state)
{
	struct world *w = *state;
	struct made m;

	fakes_fault(w->fakes, FAKES_RESEED, 2);
	world_create(w, &m, NULL);
	assert_true(m.ok); /* another VM took its place */
	world_wait_ready(w);
	assert_true(fakes_restores(w->fakes) >= fakes_reseeds(w->fakes) + 2);
}

static void test_when_no_restore_works_it_is_told(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_FILL, 1000);
	world_create(w, &m, NULL); /* a warm one is there */
	assert_true(m.ok);
	world_create(w, &m, NULL);
	assert_false(m.ok);
	assert_int_equal(m.failure.status, 503);
	assert_non_null(strstr(m.failure.text, "torn"));
	fakes_fault(w->fakes, FAKES_FILL, 0);
	world_create(w, &m, NULL);
	assert_true(m.ok);
}

static void test_a_guest_that_refuses_at_first_is_asked_again(void **state)
{
	struct world *w = *state;
	struct made m;

	fakes_fault(w->fakes, FAKES_CONNECT, 5);
	world_create(w, &m, NULL);
	assert_true(m.ok);
	assert_int_equal(fakes_boots(w->fakes), 1);
}

static void test_what_goes_wrong_with_the_template_is_told_and_tried_again(void **state)
{
	const struct {
		enum fakes_fault fault;
		const char *says;
	} cases[] = {{FAKES_SPAWN, "/dev/kvm: not permitted"},
		     {FAKES_BOOT, "torn"},
		     {FAKES_GROW, "can't grow to 1 GiB: no room for a journal"},
		     {FAKES_PONG, "(last line of its console: last words)"},
		     {FAKES_SAVE, "can't be written"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world *w;
		struct made m;

		world_setup((void **)&w);
		fakes_fault(w->fakes, cases[i].fault, cases[i].fault == FAKES_SPAWN ? 2 : 1);
		world_create(w, &m, NULL);
		assert_false(m.ok);
		assert_int_equal(m.failure.status, 503);
		assert_string_equal(m.failure.code, "template_failed");
		if (!strstr(m.failure.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", m.failure.text, cases[i].says);
		assert_false(core_ready(w->core));
		assert_non_null(strstr(core_error(w->core), cases[i].says));
		world_wait_ready(w);
		world_teardown((void **)&w);
	}
}

static void test_a_vm_process_that_lies_is_put_away(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_LIE, 1);
	world_create(w, &m, NULL);
	assert_true(m.ok);
	world_wait_ready(w);
	world_create(w, &m, NULL);
	assert_true(m.ok);
}

/* --- the image on disk ---------------------------------------------------------------------- */

static void restart(struct world *w)
{
	world_kill_core(w);
	world_start_core(w);
	world_wait_ready(w);
}

static void test_the_image_is_used_again(void **state)
{
	struct world *w = *state;

	world_wait_ready(w);
	restart(w);
	restart(w);
	assert_int_equal(fakes_boots(w->fakes), 1);
	assert_int_equal(world_images(w, ""), 1);
}

static void test_a_change_of_what_it_is_made_of_makes_it_anew(void **state)
{
	struct world *w = *state;
	char *const inputs[] = {w->config.kernel, w->config.initramfs, w->config.rootfs,
				w->config.vmm};

	world_wait_ready(w);
	for (unsigned i = 0; i < 4; i++) {
		int fd = open(inputs[i], O_WRONLY | O_APPEND);

		assert_int_equal(write(fd, "!", 1), 1);
		close(fd);
		restart(w);
		assert_int_equal(fakes_boots(w->fakes), i + 2);
		assert_int_equal(world_images(w, ""), 1); /* the old one is gone */
	}
}

static void damage(struct world *w, const char *name, off_t size)
{
	char path[512], file[1024];
	struct dirent *entry;

	snprintf(path, sizeof(path), "%s/templates", w->config.state_dir);
	DIR *d = opendir(path);
	while ((entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s/%s", path, entry->d_name, name);
		assert_int_equal(truncate(file, size), 0);
	}
	closedir(d);
}

static void test_a_damaged_image_is_made_anew(void **state)
{
	const char *const names[] = {"manifest", "state", "memory", "layer-0"};
	struct world *w = *state;

	world_wait_ready(w);
	for (unsigned i = 0; i < 4; i++) {
		damage(w, names[i], 1);
		restart(w);
		assert_int_equal(fakes_boots(w->fakes), i + 2);
	}
}

static bool is_rebuilt(void *arg)
{
	return fakes_boots(arg) == 2;
}

static void test_an_image_from_disk_that_never_works_is_made_anew(void **state)
{
	struct world *w = *state;

	world_wait_ready(w);
	world_kill_core(w);
	fakes_fault(w->fakes, FAKES_FILL, 3);
	world_start_core(w);
	world_until(w, is_rebuilt, w->fakes);
	world_wait_ready(w);
}

#define RECKLESS 1000000

static bool broke_four(void *arg)
{
	return fakes_faults_left(arg, FAKES_GARBAGE) <= RECKLESS - 4;
}

/* Each such connection is a line in the log and some work: not as fast as the guest can. */
static void test_a_guest_that_breaks_each_connection_is_called_less_and_less(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;
	struct done d;

	world_wait_ready(w);
	world_create(w, &m, NULL);
	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_GARBAGE, RECKLESS);
	uint64_t began = loop_now_ms(w->loop);
	world_exec_start(w, &r, m.view.id, "garbage", false);
	world_until(w, broke_four, w->fakes);
	/* The first comes at once, then after 50, 100 and 200 ms. */
	assert_true(loop_now_ms(w->loop) - began >= 350);
	fakes_fault(w->fakes, FAKES_GARBAGE, 0);
	do /* the last of them may not have broken yet */
		world_exec(w, &r, m.view.id, "out well again");
	while (r.failed);
	assert_string_equal(r.out, "well again");
	world_delete(w, &d, m.view.id);
}

/* A size that is being prepared is waited for, but not by any number. */
static void test_no_more_creates_wait_than_can_have_room(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {.ram_mib = 192};
	struct made m[12];

	world_wait_ready(w);
	for (unsigned i = 0; i < ARRAY_LEN(m); i++)
		world_create_start(w, &m[i], &spec);
	world_until_true(w, &m[w->config.max_vms].done);
	assert_int_equal(m[w->config.max_vms].failure.status, 503);
	assert_string_equal(m[w->config.max_vms].failure.code, "no_capacity");
	assert_non_null(strstr(m[w->config.max_vms].failure.text, "which is the limit"));
	for (unsigned i = 0; i < w->config.max_vms; i++)
		world_until_true(w, &m[i].done);
	assert_true(m[0].ok);
}

#define SIZES 100

/* A size costs a boot, one at a time, and an image on disk. */
static void test_sizes_that_nobody_waits_for_are_not_prepared(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {0};
	struct made asked, m;

	world_wait_ready(w);
	unsigned boots = fakes_boots(w->fakes);
	for (unsigned i = 0; i < SIZES; i++) {
		spec.ram_mib = 192 + 64 * i;
		world_create_start(w, &asked, &spec);
		if (i < SIZES - 1)
			core_abandon(asked.call);
	}
	world_until_true(w, &asked.done);
	if (!asked.ok)
		assert_string_equal(asked.failure.code, "busy");
	do /* the last of them are still looked for on disk */
		world_create(w, &m, &spec);
	while (!m.ok && !strcmp(m.failure.code, "busy"));
	assert_true(m.ok);
	/* This one, and those that had come to a boot before their clients left. */
	assert_in_range(fakes_boots(w->fakes) - boots, 1, 4);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_vm_may_die_at_each_step),
		TEST(test_a_guest_that_breaks_each_connection_is_called_less_and_less),
		TEST(test_no_more_creates_wait_than_can_have_room),
		TEST(test_sizes_that_nobody_waits_for_are_not_prepared),
		TEST(test_death_during_a_call_is_told_in_its_stream),
		TEST(test_death_at_rest_is_noticed),
		TEST(test_a_broken_agent_connection_costs_one_call),
		TEST(test_a_guest_that_can_not_be_made_unique_serves_nothing),
		TEST(test_when_no_restore_works_it_is_told),
		TEST(test_a_guest_that_refuses_at_first_is_asked_again),
		cmocka_unit_test(test_what_goes_wrong_with_the_template_is_told_and_tried_again),
		TEST(test_a_vm_process_that_lies_is_put_away),
		TEST(test_the_image_is_used_again),
		TEST(test_a_change_of_what_it_is_made_of_makes_it_anew),
		TEST(test_a_damaged_image_is_made_anew),
		TEST(test_an_image_from_disk_that_never_works_is_made_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
