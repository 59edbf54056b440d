// SPDX-License-Identifier: Apache-2.0
/* Creates, execs, interrupts, deletes and abandoned calls, in many orders, against fakes. */
#include <sched.h>
#include <stdlib.h>

#include "test/unit/service/world.h"

static void test_pool_hits_get_separate_vms(void **state)
{
	struct world *w = *state;
	struct made m;

	world_wait_ready(w);
	world_create(w, &m, NULL);
	assert_true(m.ok);
	assert_int_equal(strlen(m.view.id), SANDBOX_ID_LEN);
	assert_memory_equal(m.view.id, "sbx_", 4);
	assert_string_equal(m.view.state, "ready");
	assert_int_equal(world_metric(w, "pool_hits_total"), 1);
	assert_int_equal(world_metric(w, "sandboxes"), 1);
	world_wait_ready(w); /* the pool is filled again */
	assert_int_equal(fakes_live(w->fakes), 3);
	assert_int_equal(fakes_boots(w->fakes), 1);
	assert_int_equal(fakes_reseeds(w->fakes), 2);
}

static void test_create_waits_for_the_template(void **state)
{
	struct world *w = *state;
	struct made a, b;

	assert_false(service_ready(w->service));
	world_create_start(w, &a, NULL);
	world_create_start(w, &b, NULL);
	world_until_true(w, &a.done);
	world_until_true(w, &b.done);
	assert_true(a.ok && b.ok);
	assert_string_not_equal(a.view.id, b.view.id);
	assert_int_equal(fakes_boots(w->fakes), 1);
}

static void test_each_size_boots_its_own_template(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {.config.size.ram_mib = 200};
	struct made a, b;

	world_wait_ready(w);
	world_create_start(w, &a, &spec);
	world_create_start(w, &b, &spec);
	world_until_true(w, &a.done);
	world_until_true(w, &b.done);
	assert_true(a.ok && b.ok);
	assert_int_equal(a.view.config.size.ram_mib, 256); /* rounded up */
	assert_int_equal(fakes_boots(w->fakes), 2);
}

static void test_error_names_the_field_out_of_range(void **state)
{
	struct world *w = *state;
	struct sandbox_spec ram = {.config.size.ram_mib = 64},
			    unknown = {.config.template = "nonesuch"};
	struct made m;

	world_create(w, &m, &ram);
	assert_false(m.ok);
	assert_int_equal(m.failure.code, FAIL_OUT_OF_RANGE);
	assert_non_null(strstr(m.failure.text, "ram_mib"));
	assert_non_null(strstr(m.failure.text, "128"));
	world_create(w, &m, &unknown);
	assert_int_equal(m.failure.code, FAIL_UNKNOWN_TEMPLATE);
	assert_non_null(strstr(m.failure.text, "nonesuch"));
}

static void test_large_requests_are_clamped(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {.config.size.vcpus = 1000};
	struct made m;

	world_create(w, &m, &spec);
	assert_true(m.ok);
	assert_in_range(m.view.config.size.vcpus, 1, 32);
}

/* This test proves nothing on a host with fewer than two CPUs. */
static void test_only_cpus_of_the_affinity_mask_count(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {.config.size.vcpus = 1000};
	cpu_set_t all, one;
	struct made m;
	int cpu = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	world_create(w, &m, &spec);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(m.view.config.size.vcpus, 1);
}

static void test_exec_emits_lines_and_an_exit(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	world_exec(w, &r, m.view.id, "out one\nraw t\nraw wo\nout !\nerr bad\nraw last\nexit 3");
	assert_false(r.failed);
	assert_int_equal(r.exit_code, 3);
	assert_string_equal(r.out, "one|two!|last");
	assert_string_equal(r.err, "bad");
	assert_int_equal(r.first_seq, 1);
	struct run again;
	world_exec(w, &again, m.view.id, "out more");
	assert_int_equal(again.first_seq, r.last_seq + 1);
}

static void test_calls_run_in_order_of_arrival(void **state)
{
	struct world *w = *state;
	struct run r[20] = {0};
	struct made m;

	world_create(w, &m, NULL);
	for (int i = 0; i < 20; i++) {
		char script[32];

		snprintf(script, sizeof(script), "out %d", i);
		world_exec_start(w, &r[i], m.view.id, script, false);
	}
	world_until_true(w, &r[19].over);
	for (int i = 0; i < 20; i++) {
		assert_true(r[i].over);
		assert_int_equal(atoi(r[i].out), i);
		if (i)
			assert_int_equal(r[i].first_seq, r[i - 1].last_seq + 1);
	}
	assert_int_equal(fakes_agents(w->fakes) >= 1, 1);
}

static void test_call_queue_is_bounded(void **state)
{
	struct world *w = *state;
	static struct run r[1001];
	struct made m;

	memset(r, 0, sizeof(r));
	world_create(w, &m, NULL);
	world_exec_start(w, &r[0], m.view.id, "wait", false);
	for (int i = 1; i < 1001; i++)
		world_exec_start(w, &r[i], m.view.id, "out x", false);
	world_until_true(w, &r[1000].over);
	assert_int_equal(r[1000].failure.code, FAIL_QUEUE_FULL);
	assert_int_not_equal(r[1000].failure.retry_after, 0);
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	world_until_true(w, &r[999].over);
}

/* A call's code stays queued after its client has left: without a limit it would accumulate. */
static void test_code_of_queued_calls_is_bounded(void **state)
{
	enum { LARGE = 60 << 20 };
	struct world *w = *state;
	char *script = malloc(LARGE + 1);
	struct run first = {0}, r[5] = {0};
	struct made m;
	struct done d;

	assert_non_null(script);
	memset(script, 'x', LARGE);
	script[LARGE] = 0;
	for (int round = 0; round < 2; round++) {
		memset(&first, 0, sizeof(first));
		memset(r, 0, sizeof(r));
		world_create(w, &m, NULL);
		world_exec_start(w, &first, m.view.id, "wait", false);
		for (int i = 0; i < 5; i++)
			world_exec_start(w, &r[i], m.view.id, script, false);
		world_until_true(w, &r[4].over);
		assert_int_equal(r[4].failure.code, FAIL_QUEUE_FULL);
		assert_false(r[0].over || r[3].over);
		op_abandon(r[0].call);
		world_delete(w, &d, m.view.id);
	}
	free(script);
}

/* The service holds code that the guest has not read, even after the guest has ended the call. */
static void test_code_that_a_guest_does_not_read_is_bounded(void **state)
{
	enum { LARGE = 60 << 20 };
	struct world *w = *state;
	char *script = malloc(LARGE + 1);
	struct run r[5] = {0};
	struct made m[4];
	struct done d;

	assert_non_null(script);
	memset(script, 'x', LARGE);
	script[LARGE] = 0;
	for (int i = 0; i < 4; i++)
		world_create(w, &m[i], NULL);
	world_wait_ready(w); /* otherwise the calls of a refill would hit the fault */
	fakes_fault(w->fakes, FAKES_CODE, 3);
	for (int i = 0; i < 5; i++)
		world_exec_start(w, &r[i], m[i % 3].view.id, script, false);
	world_until_true(w, &r[4].over);
	assert_int_equal(r[4].failure.code, FAIL_QUEUE_FULL);
	world_until_waiting(w, 3);
	world_exec(w, &r[4], m[3].view.id, "out short");
	assert_string_equal(r[4].out, "short");
	for (int i = 0; i < 3; i++)
		world_delete(w, &d, m[i].view.id);
	fakes_fault(w->fakes, FAKES_CODE, 1);
	fakes_fault(w->fakes, FAKES_EARLY, 1);
	world_exec(w, &r[0], m[3].view.id, script);
	assert_false(r[0].failed);
	memset(r, 0, sizeof(r));
	for (int i = 1; i < 5; i++)
		world_exec_start(w, &r[i], m[3].view.id, script, false);
	world_until_true(w, &r[4].over);
	assert_int_equal(r[4].failure.code, FAIL_QUEUE_FULL);
	world_delete(w, &d, m[3].view.id);
	free(script);
}

static void test_interrupt_reaches_the_running_call(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "wait\nexit 130", false);
	world_until_waiting(w, 1);
	world_interrupt(w, &d, m.view.id);
	assert_false(d.failed);
	world_until_true(w, &r.over);
	assert_int_equal(r.exit_code, 130);
}

static void test_delete_fails_the_running_call(void **state)
{
	struct world *w = *state;
	struct run running = {0}, queued = {0}, late;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_exec_start(w, &running, m.view.id, "out on\nwait", false);
	world_exec_start(w, &queued, m.view.id, "out never", false);
	world_until_waiting(w, 1);
	world_delete(w, &d, m.view.id);
	assert_false(d.failed);
	assert_true(running.failed && queued.failed);
	assert_int_equal(running.failure.code, FAIL_DELETED);
	world_exec(w, &late, m.view.id, "out never");
	assert_int_equal(late.failure.code, FAIL_NOT_FOUND);
	world_delete(w, &d, m.view.id);
	assert_int_equal(d.failure.code, FAIL_NOT_FOUND);
}

static void delete_me(struct run *r, const struct event *ev)
{
	static struct done d;

	if (r->events == 1)
		world_delete_start(((void **)r->arg)[0], &d, ((void **)r->arg)[1]);
}

static void test_sandbox_can_be_deleted_in_an_event(void **state)
{
	struct world *w = *state;
	struct run r = {.on_event = delete_me};
	struct made m;

	world_create(w, &m, NULL);
	void *args[] = {w, m.view.id};
	r.arg = args;
	world_exec_start(w, &r, m.view.id, "out one\nout two\nout three", false);
	world_until_true(w, &r.over);
	assert_true(r.failed);
	assert_int_equal(r.events, 1);
}

static void count_event(void *arg, const struct event *ev, const char *traceparent)
{
	(*(unsigned *)arg)++;
}

static bool has_four(void *arg)
{
	void **args = arg;
	struct failure f;
	unsigned n = 0;

	assert_true(service_replay(args[0], TENANT, args[1], 0, count_event, &n, &f));
	return n == 4;
}

static void test_abandoned_call_continues_into_the_replay(void **state)
{
	struct world *w = *state;
	struct run r = {0}, next;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out a\nwait\nout b\nout c\nexit 0", false);
	world_until_waiting(w, 1);
	op_abandon(r.call);
	unsigned events = r.events;
	fakes_go(w->fakes);
	void *args[] = {w->service, m.view.id};
	world_until(w, has_four, args);
	assert_int_equal(r.events, events);
	world_exec(w, &next, m.view.id, "out d");
	assert_int_equal(next.first_seq, 5);
}

static bool has_two(void *arg)
{
	void **args = arg;
	struct failure f;
	unsigned n = 0;

	assert_true(service_replay(args[0], TENANT, args[1], 0, count_event, &n, &f));
	return n == 2;
}

static void test_call_whose_client_hangs_up_is_interrupted(void **state)
{
	struct world *w = *state;
	struct run r = {0}, waiting = {0}, next;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out a\nwait\nexit 130", false);
	world_exec_start(w, &waiting, m.view.id, "out never\nexit 0", false);
	world_until_waiting(w, 1);
	op_hang_up(waiting.call);
	op_hang_up(r.call);
	void *args[] = {w->service, m.view.id};
	world_until(w, has_two, args);
	assert_false(r.over || waiting.over);
	assert_true(fakes_interrupted(w->fakes) != 0);
	world_exec(w, &next, m.view.id, "out d");
	assert_int_equal(next.first_seq, 3);
	assert_int_equal(waiting.events, 0);
}

static void test_paused_reader_gets_little_more(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "big 3000000\nout \nexit 0", true);
	op_pause(r.call);
	/* Other calls are answered meanwhile, so output had time to arrive. */
	world_interrupt(w, &d, m.view.id);
	world_interrupt(w, &d, m.view.id);
	assert_true(r.bytes <= 65536);
	op_resume(r.call);
	world_until_true(w, &r.over);
	assert_int_equal(r.bytes, 3000001);
}

static void pause_each(struct run *r, const struct event *ev)
{
	if (ev->type == EVENT_EXIT)
		return;
	op_pause(r->call);
	op_resume(r->call);
}

static void test_pause_and_resume_in_events_lose_nothing(void **state)
{
	struct world *w = *state;
	struct run r = {.on_event = pause_each};
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "big 500000\nexit 7", true);
	world_until_true(w, &r.over);
	assert_int_equal(r.bytes, 500000);
	assert_int_equal(r.exit_code, 7);
}

static bool gone(void *arg)
{
	return world_metric(arg, "sandboxes") == 0;
}

static void test_abandoned_create_leaves_no_sandbox(void **state)
{
	struct world *w = *state;
	struct made early, hit;

	world_create_start(w, &early, NULL); /* waits for the template */
	op_abandon(early.call);
	world_wait_ready(w);
	world_create_start(w, &hit, NULL); /* has its VM; its client has not been notified */
	op_abandon(hit.call);
	world_until(w, gone, w);
	world_wait_ready(w);
	assert_false(early.done || hit.done);
	assert_int_equal(fakes_live(w->fakes), 2);
}

static void test_environment_of_sandbox_and_call_is_sent(void **state)
{
	const char *const env[] = {"A=1", "B=x=y", NULL};
	struct sandbox_spec spec = {.env = env, .metadata = "{\"k\":1}"};
	struct world *w = *state;
	struct made m;
	struct run r;

	world_create(w, &m, &spec);
	world_exec(w, &r, m.view.id, "env");
	assert_string_equal(r.out, "A=1 B=x=y ");
	struct sandbox_view view;
	struct failure f;
	assert_true(service_view(w->service, TENANT, m.view.id, &view, &f));
	assert_string_equal(view.metadata, "{\"k\":1}");
	assert_int_not_equal(view.memory.private_bytes, 0);
}

static void count_view(void *arg, const struct sandbox_view *view)
{
	(*(unsigned *)arg)++;
}

static void test_tenant_sees_only_its_own_sandboxes(void **state)
{
	struct world *w = *state;
	struct sandbox_view view;
	struct failure f;
	struct made m;
	unsigned n = 0;

	world_create(w, &m, NULL);
	assert_false(service_view(w->service, "somebody-else", m.view.id, &view, &f));
	assert_int_equal(f.code, FAIL_NOT_FOUND);
	world_list(w, "somebody-else", count_view, &n);
	assert_int_equal(n, 0);
	world_list(w, TENANT, count_view, &n);
	assert_int_equal(n, 1);
}

static bool has_expired(void *arg)
{
	void **args = arg;
	struct sandbox_view view;
	struct failure f;

	return !service_view(args[0], TENANT, args[1], &view, &f) && f.code == FAIL_EXPIRED;
}

static void test_lifetime_and_idle_timeout_end_a_sandbox(void **state)
{
	struct sandbox_spec old = {.config.timeout_s = 1}, idle = {.config.idle_timeout_s = 1};
	struct world *w = *state;
	struct run r = {0};
	struct made a, b;

	world_create(w, &a, &old);
	world_create(w, &b, &idle);
	/* A running call stops the idle timer, but does not extend the lifetime. */
	world_exec_start(w, &r, a.view.id, "wait", false);
	void *args_a[] = {w->service, a.view.id}, *args_b[] = {w->service, b.view.id};
	world_until(w, has_expired, args_a);
	world_until(w, has_expired, args_b);
	world_until_true(w, &r.over);
	assert_int_equal(r.failure.code, FAIL_EXPIRED);
}

static void test_create_fails_when_all_vms_are_in_use(void **state)
{
	struct world *w = *state;
	struct made m[9];
	struct done d;

	world_wait_ready(w);
	for (int i = 0; i < 8; i++) {
		world_create(w, &m[i], NULL);
		assert_true(m[i].ok);
	}
	world_create(w, &m[8], NULL);
	assert_false(m[8].ok);
	assert_int_equal(m[8].failure.code, FAIL_NO_CAPACITY);
	assert_int_not_equal(m[8].failure.retry_after, 0);
	world_delete(w, &d, m[0].view.id);
	world_create(w, &m[8], NULL);
	assert_true(m[8].ok);
}

static void test_calls_after_shutdown_are_refused(void **state)
{
	struct world *w = *state;
	struct made waiting, late;
	bool closed = false;

	world_create_start(w, &waiting, NULL);
	service_shutdown(w->service, NULL, &closed);
	world_create(w, &late, NULL);
	world_until_true(w, &waiting.done);
	assert_int_equal(late.failure.code, FAIL_STOPPING);
	assert_int_equal(waiting.failure.code, FAIL_STOPPING);
	assert_false(service_ready(w->service));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_pool_hits_get_separate_vms),
		TEST(test_create_waits_for_the_template),
		TEST(test_each_size_boots_its_own_template),
		TEST(test_error_names_the_field_out_of_range),
		TEST(test_large_requests_are_clamped),
		TEST(test_only_cpus_of_the_affinity_mask_count),
		TEST(test_exec_emits_lines_and_an_exit),
		TEST(test_calls_run_in_order_of_arrival),
		TEST(test_call_queue_is_bounded),
		TEST(test_code_of_queued_calls_is_bounded),
		TEST(test_code_that_a_guest_does_not_read_is_bounded),
		TEST(test_interrupt_reaches_the_running_call),
		TEST(test_delete_fails_the_running_call),
		TEST(test_sandbox_can_be_deleted_in_an_event),
		TEST(test_abandoned_call_continues_into_the_replay),
		TEST(test_call_whose_client_hangs_up_is_interrupted),
		TEST(test_paused_reader_gets_little_more),
		TEST(test_pause_and_resume_in_events_lose_nothing),
		TEST(test_abandoned_create_leaves_no_sandbox),
		TEST(test_environment_of_sandbox_and_call_is_sent),
		TEST(test_tenant_sees_only_its_own_sandboxes),
		TEST(test_lifetime_and_idle_timeout_end_a_sandbox),
		TEST(test_create_fails_when_all_vms_are_in_use),
		TEST(test_calls_after_shutdown_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
