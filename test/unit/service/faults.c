// SPDX-License-Identifier: Apache-2.0
/* Faults around the service: VMs that die at every step, refused requests, wrong replies. In all
 * cases each call is answered exactly once, the service recovers, and nothing leaks. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "orchestrator/sandbox/service.h"
#include "proto/warden.h"
#include "test/unit/service/world.h"

static void test_service_recovers_from_vm_death_at_each_step(void **state)
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
			assert_int_equal(m.failure.code, FAIL_TEMPLATE_FAILED);
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

	return !service_view(args[0], TENANT, args[1], &view, &f) && f.code == FAIL_VM_DIED;
}

static void test_vm_death_fails_running_and_queued_calls(void **state)
{
	struct world *w = *state;
	struct run r = {0}, queued = {0}, late;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out on\ndie", false);
	world_exec_start(w, &queued, m.view.id, "out never", false);
	world_until_true(w, &r.over);
	world_until_true(w, &queued.over);
	assert_true(r.failed && queued.failed);
	assert_int_equal(r.failure.code, FAIL_VM_DIED);
	assert_int_equal(queued.failure.code, FAIL_VM_DIED);
	world_exec(w, &late, m.view.id, "out never");
	assert_int_equal(late.failure.code, FAIL_VM_DIED);
	world_delete(w, &d, m.view.id);
	assert_true(d.failed);
	assert_int_equal(world_metric(w, "vm_deaths_total"), 1);
}

static void test_death_of_an_idle_vm_is_noticed(void **state)
{
	struct world *w = *state;
	struct made m, other;
	struct run r;

	world_create(w, &m, NULL);
	world_create(w, &other, NULL);
	struct sandbox_view view;
	struct failure f;
	assert_true(service_view(w->service, TENANT, m.view.id, &view, &f));
	for (uint32_t slot = 0; slot < 8; slot++) {
		void *args[] = {w->service, m.view.id};

		fakes_kill(w->fakes, slot);
		world_wait_ready(w);
		if (is_gone(args))
			break;
	}
	void *args[] = {w->service, m.view.id};
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

static void test_broken_agent_connection_fails_only_one_call(void **state)
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
		assert_int_equal(r.failure.code, FAIL_AGENT_LOST);
		world_exec(w, &r, m.view.id, "out again");
		assert_string_equal(r.out, "again");
	}
	assert_true(service_replay(w->service, TENANT, m.view.id, 0, count_lost, &lost, &f));
	assert_int_equal(lost, 2);
}

static void test_guest_is_replaced_when_reseeding_fails(void **state)
{
	struct world *w = *state;
	struct made m;

	fakes_fault(w->fakes, FAKES_RECORD, 1); /* no reseed during the build */
	fakes_fault(w->fakes, FAKES_RESEED, 2);
	world_create(w, &m, NULL);
	assert_true(m.ok); /* another VM replaced the failed one */
	world_wait_ready(w);
	assert_true(fakes_restores(w->fakes) >= fakes_reseeds(w->fakes) + 2);
}

static void test_create_fails_when_every_restore_fails(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_FILL, 1000);
	world_create(w, &m, NULL); /* a warm sandbox is available */
	assert_true(m.ok);
	world_create(w, &m, NULL);
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_VM_FAILED);
	assert_non_null(strstr(m.failure.text, "torn"));
	fakes_fault(w->fakes, FAKES_FILL, 0);
	world_create(w, &m, NULL);
	assert_true(m.ok);
}

static void test_refused_agent_connection_is_retried(void **state)
{
	struct world *w = *state;
	struct made m;

	fakes_fault(w->fakes, FAKES_CONNECT, 5);
	world_create(w, &m, NULL);
	assert_true(m.ok);
	assert_int_equal(fakes_boots(w->fakes), 1);
}

static void test_failed_template_build_is_reported_and_retried(void **state)
{
	const struct {
		enum fakes_fault fault;
		const char *expected;
	} cases[] = {{FAKES_SPAWN, "/dev/kvm: not permitted"},
		     {FAKES_BOOT, "torn"},
		     {FAKES_GROW, "can't grow to 1 GiB: no room for a journal"},
		     {FAKES_RESEED, "could not be made unique: no entropy today"},
		     {FAKES_PONG, "(last line of its console: last words)"},
		     {FAKES_FORK, "no space for the image"},
		     {FAKES_BOOT_LAYER, "another number of layers"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world *w;
		struct made m;

		world_setup((void **)&w);
		fakes_fault(w->fakes, cases[i].fault, cases[i].fault == FAKES_SPAWN ? 2 : 1);
		world_create(w, &m, NULL);
		assert_false(m.ok);
		assert_int_equal(m.failure.code, FAIL_TEMPLATE_FAILED);
		if (!strstr(m.failure.text, cases[i].expected))
			fail_msg("\"%s\" does not contain \"%s\"", m.failure.text,
				 cases[i].expected);
		assert_false(service_ready(w->service));
		assert_non_null(strstr(service_error(w->service), cases[i].expected));
		world_wait_ready(w);
		world_teardown((void **)&w);
	}
}

static void test_template_is_built_without_a_working_set(void **state)
{
	struct world *w = *state;
	struct made m;

	fakes_fault(w->fakes, FAKES_RECORD, 1);
	world_create(w, &m, NULL);
	assert_true(m.ok);
	assert_int_equal(fakes_faults_left(w->fakes, FAKES_RECORD), 0);
	assert_int_equal(fakes_boots(w->fakes), 1);
}

static void test_vm_process_with_an_unexpected_reply_is_replaced(void **state)
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

/* --- the template's snapshot on disk -------------------------------------------------------- */

static void restart(struct world *w)
{
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
}

static void test_template_snapshot_is_reused_after_a_restart(void **state)
{
	struct world *w = *state;

	world_wait_ready(w);
	restart(w);
	restart(w);
	assert_int_equal(fakes_boots(w->fakes), 1);
	assert_int_equal(world_images(w, ""), 1);
}

static void test_template_is_rebuilt_when_an_input_changes(void **state)
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
		assert_int_equal(world_images(w, ""), 1); /* the old snapshot was removed */
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

static void test_damaged_template_snapshot_is_rebuilt(void **state)
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

static void test_template_snapshot_that_cannot_be_restored_is_rebuilt(void **state)
{
	struct world *w = *state;

	world_wait_ready(w);
	world_kill_service(w);
	fakes_fault(w->fakes, FAKES_FILL, 3);
	world_start_service(w);
	world_until(w, is_rebuilt, w->fakes);
	world_wait_ready(w);
}

#define ALL_CONNECTIONS 1000000

static bool four_connections_broke(void *arg)
{
	return fakes_faults_left(arg, FAKES_GARBAGE) <= ALL_CONNECTIONS - 4;
}

/* Each broken connection costs a log line and some work, so the guest must not set the rate. */
static void test_reconnects_to_a_misbehaving_guest_back_off(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;
	struct done d;

	world_wait_ready(w);
	world_create(w, &m, NULL);
	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_GARBAGE, ALL_CONNECTIONS);
	uint64_t began = loop_now_ms(w->loop);
	world_exec_start(w, &r, m.view.id, "garbage", false);
	world_until(w, four_connections_broke, w->fakes);
	/* The first reconnect is immediate, the next ones come after 50, 100 and 200 ms. */
	assert_true(loop_now_ms(w->loop) - began >= 350);
	fakes_fault(w->fakes, FAKES_GARBAGE, 0);
	world_until_true(w, &r.over);
	do /* the last connection may not have broken yet */
		world_exec(w, &r, m.view.id, "out well again");
	while (r.failed);
	assert_string_equal(r.out, "well again");
	world_delete(w, &d, m.view.id);
}

/* Creates wait for a size that is being prepared, but only a limited number of them. */
static void test_waiting_creates_are_limited_to_the_capacity(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {.config.size.ram_mib = 192};
	struct made m[12];

	world_wait_ready(w);
	for (unsigned i = 0; i < ARRAY_LEN(m); i++)
		world_create_start(w, &m[i], &spec);
	world_until_true(w, &m[w->config.max_vms].done);
	assert_int_equal(m[w->config.max_vms].failure.code, FAIL_NO_CAPACITY);
	assert_non_null(strstr(m[w->config.max_vms].failure.text, "which is the limit"));
	for (unsigned i = 0; i < w->config.max_vms; i++)
		world_until_true(w, &m[i].done);
	assert_true(m[0].ok);
}

#define SIZES 100

/* Preparing a size costs a snapshot on disk and a boot; sizes are booted one at a time. */
static void test_abandoned_sizes_are_not_prepared(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {0};
	struct made asked, m;

	world_wait_ready(w);
	unsigned boots = fakes_boots(w->fakes);
	for (unsigned i = 0; i < SIZES; i++) {
		spec.config.size.ram_mib = 192 + 64 * i;
		world_create_start(w, &asked, &spec);
		if (i < SIZES - 1)
			op_abandon(asked.call);
	}
	world_until_true(w, &asked.done);
	if (!asked.ok)
		assert_int_equal(asked.failure.code, FAIL_SERVICE_BUSY);
	do /* some sizes are still being looked up on disk */
		world_create(w, &m, &spec);
	while (!m.ok && m.failure.code == FAIL_SERVICE_BUSY);
	assert_true(m.ok);
	/* Only this size was booted, and those whose boot began before their clients
	 * disconnected. */
	assert_in_range(fakes_boots(w->fakes) - boots, 1, 4);
}

/* Restarts the service with a warden that starts no VM in the first `slots` slots. */
static void refuse_slots(struct world *w, uint32_t slots)
{
	world_wait_ready(w);
	world_shut_down(w);
	world_kill_service(w);
	fakes_refuse(w->fakes, WARDEN_SPAWN, slots);
	world_start_service(w);
}

static void test_slot_that_crashes_the_warden_is_not_used_again(void **state)
{
	struct world *w = *state;
	struct made m;

	refuse_slots(w, 2);
	for (unsigned i = 0; i < w->config.max_vms - 2; i++) {
		world_create(w, &m, NULL);
		assert_true(m.ok);
	}
	assert_int_equal(world_metric(w, "vm_slots_retired"), 2);
	assert_int_equal(fakes_refused(w->fakes), 2);
	assert_null(w->service->vms.slots[0]);
	assert_null(w->service->vms.slots[1]);
	world_create(w, &m, NULL);
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_NO_CAPACITY);
	assert_string_equal(m.failure.text, "all 6 VMs of this host are in use");
}

static void test_few_slots_are_tried_when_every_spawn_crashes_the_warden(void **state)
{
	struct world *w = *state;
	struct made m;

	refuse_slots(w, w->config.max_vms);
	world_create(w, &m, NULL);
	assert_false(m.ok);
	assert_non_null(strstr(m.failure.text, "crashed the warden twice"));
	assert_int_equal(world_metric(w, "vm_slots_retired"), 4);
	fakes_refuse(w->fakes, WARDEN_SPAWN, 0);
	world_create(w, &m, NULL);
	assert_true(m.ok);
	assert_int_equal(world_metric(w, "vm_slots_retired"), 4);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_service_recovers_from_vm_death_at_each_step),
		TEST(test_reconnects_to_a_misbehaving_guest_back_off),
		TEST(test_waiting_creates_are_limited_to_the_capacity),
		TEST(test_abandoned_sizes_are_not_prepared),
		TEST(test_slot_that_crashes_the_warden_is_not_used_again),
		TEST(test_few_slots_are_tried_when_every_spawn_crashes_the_warden),
		TEST(test_vm_death_fails_running_and_queued_calls),
		TEST(test_death_of_an_idle_vm_is_noticed),
		TEST(test_broken_agent_connection_fails_only_one_call),
		TEST(test_guest_is_replaced_when_reseeding_fails),
		TEST(test_create_fails_when_every_restore_fails),
		TEST(test_refused_agent_connection_is_retried),
		cmocka_unit_test(test_failed_template_build_is_reported_and_retried),
		TEST(test_template_is_built_without_a_working_set),
		TEST(test_vm_process_with_an_unexpected_reply_is_replaced),
		TEST(test_template_snapshot_is_reused_after_a_restart),
		TEST(test_template_is_rebuilt_when_an_input_changes),
		TEST(test_damaged_template_snapshot_is_rebuilt),
		TEST(test_template_snapshot_that_cannot_be_restored_is_rebuilt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
