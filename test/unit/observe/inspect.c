// SPDX-License-Identifier: Apache-2.0
/* Reports on VMs: on request, and automatically in the log when a VM stalls. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/observe/inspect.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/vm/internal.h"
#include "test/unit/service/world.h"

struct report_request {
	bool done;
	char text[1 << 17];
	struct failure failure;
	struct op *call;
};

static void on_report(void *arg, const char *text, const struct failure *f)
{
	struct report_request *a = arg;

	assert_true(!text != !f);
	a->done = true;
	a->call = NULL;
	if (f)
		a->failure = *f;
	else
		snprintf(a->text, sizeof(a->text), "%s", text);
}

static void request_report(struct world *w, struct report_request *a, const char *name)
{
	a->done = false;
	a->text[0] = 0;
	a->call = service_inspect(w->service, name, on_report, a);
	assert_false(a->done);
}

static const char *report_on_vm(struct world *w, const char *name)
{
	static struct report_request a;

	request_report(w, &a, name);
	world_until_true(w, &a.done);
	return a.text;
}

static void expect_text(const char *report, const char *text)
{
	if (!strstr(report, text))
		fail_msg("no \"%s\" in:\n%s", text, report);
}

static struct sandbox *sandbox_of_id(struct world *w, const char *id)
{
	struct sandbox *s = sandbox_of_any(w->service, id);

	assert_non_null(s);
	return s;
}

/* --- the service's log ----------------------------------------------------------------------- */

static char logged[1 << 20];
static size_t logged_len;

/* Appends to `logged`. The fakes' threads also write to the log, hence the atomic addition. */
static void keep_log(const char *lines, size_t len)
{
	size_t at = __atomic_fetch_add(&logged_len, len, __ATOMIC_RELAXED);

	assert_true(at + len < sizeof(logged));
	memcpy(logged + at, lines, len);
}

static unsigned times_logged(const char *text)
{
	unsigned n = 0;

	for (const char *at = logged; (at = strstr(at, text)); at++)
		n++;
	return n;
}

static int setup(void **state)
{
	int ret = world_setup(state);

	memset(logged, 0, sizeof(logged));
	logged_len = 0;
	log_init("test", LOG_WARN);
	log_set_output(keep_log);
	return ret;
}

static int teardown(void **state)
{
	log_set_output(NULL);
	log_init("test", LOG_ERROR + 1);
	return world_teardown(state);
}

/* --- reports on request ---------------------------------------------------------------------- */

static void test_report_has_all_sections(void **state)
{
	struct world *w = *state;
	struct made m;
	const char *text;

	world_create(w, &m, NULL);
	text = report_on_vm(w, m.view.id);
	expect_text(text, "service: 1 sandboxes, ");
	expect_text(text, m.view.id);
	expect_text(text, ": ready, tenant local, template default, ");
	expect_text(text, "  0 calls\n");
	expect_text(text, "  connection to its agent: open");
	expect_text(text, "\nVM in slot ");
	expect_text(text, ": running, process ");

	expect_text(text, "\nthe VM process says:\nvCPU 0: ?[31min KVM_RUN\n?device vsock: fine\n");
	expect_text(text, "\nthreads of process ");
	expect_text(text, "  thread ");
	expect_text(text, ", waited for a CPU ");
	expect_text(text, "\nits agent answers: connected after ");
	assert_null(strstr(text, "hidden"));
	assert_int_equal(fakes_asked(w->fakes, AGENT_PROC_LIST), 1);
}

static bool is_waiting(void *arg)
{
	return fakes_waiting(arg);
}

static void test_report_lists_calls_and_operations(void **state)
{
	struct world *w = *state;
	struct run first = {0}, second = {0};
	struct made m;
	const char *text;

	world_create(w, &m, NULL);
	world_exec_start(w, &first, m.view.id, "out on\nwait", false);
	world_exec_start(w, &second, m.view.id, "out off", false);
	world_until_true(w, &first.started);
	world_until(w, is_waiting, w->fakes);
	text = report_on_vm(w, m.view.id);
	expect_text(text, ": running, tenant local, ");
	expect_text(text, "  2 calls\n");
	expect_text(text, ": at the guest, requested ");
	expect_text(text, ": queued, requested ");
	expect_text(text, "its agent answers: ");
	fakes_go(w->fakes);
	world_until_true(w, &second.over);
	assert_string_equal(first.out, "on");
	assert_string_equal(second.out, "off");
}

static void test_sandbox_is_found_by_slot(void **state)
{
	struct world *w = *state;
	struct made m;
	char slot[16];

	world_create(w, &m, NULL);
	snprintf(slot, sizeof(slot), "%u", sandbox_of_id(w, m.view.id)->slot);
	expect_text(report_on_vm(w, slot), m.view.id);
	expect_text(report_on_vm(w, slot), "its agent answers: ");
}

/* A VM of the pool does not belong to a sandbox. */
static void test_report_on_a_pooled_vm(void **state)
{
	struct world *w = *state;
	struct made m;
	char slot[16];
	unsigned n;

	world_create(w, &m, NULL);
	world_wait_ready(w);
	for (n = 0; n < w->service->vms.max_vms; n++)
		if (w->service->vms.slots[n] && n != sandbox_of_id(w, m.view.id)->slot)
			break;
	assert_true(n < w->service->vms.max_vms);
	snprintf(slot, sizeof(slot), "%u", n);
	expect_text(report_on_vm(w, slot), "\nVM in slot ");
	expect_text(report_on_vm(w, slot), "its agent was not asked: the VM belongs to no sandbox");
}

static void test_unknown_names_are_refused(void **state)
{
	static const char *const names[] = {"sbx_0", "63", "64", "4294967296", "-1", "1x", ""};
	struct report_request *a = calloc(1, sizeof(*a));

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		request_report(*state, a, names[i]);
		world_until_true(*state, &a->done);
		assert_int_equal(a->failure.code, FAIL_NOT_FOUND);
		expect_text(a->failure.text, "`rametctl ls` lists");
	}
	free(a);
}

static void test_report_on_a_vm_whose_agent_does_not_answer(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_DEAF, 1);
	expect_text(report_on_vm(w, m.view.id), "its agent does not answer: connected after ");
	fakes_go(w->fakes);
	fakes_fault(w->fakes, FAKES_CONNECT, 1000000);
	expect_text(report_on_vm(w, m.view.id), "its agent does not answer: no connection in ");
	fakes_fault(w->fakes, FAKES_CONNECT, 0);
	world_exec(w, &r, m.view.id, "out alive");
	assert_string_equal(r.out, "alive");
}

/* The VM keeps running, and gets no second request. */
static void test_report_on_a_vm_process_that_does_not_answer(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;
	const char *text;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_MUTE, 1);
	text = report_on_vm(w, m.view.id);
	expect_text(text, "\nthe VM process does not answer: nothing came for 3 s\n");
	expect_text(text, "\nthreads of process ");
	expect_text(text, "its agent was not asked: the VM process does not answer\n");
	assert_int_equal(fakes_asked(w->fakes, AGENT_PROC_LIST), 0);
	expect_text(report_on_vm(w, m.view.id),
		    "\nthe VM process has still not answered an earlier request\n");
	world_exec(w, &r, m.view.id, "out alive");
	assert_string_equal(r.out, "alive");
}

static void test_report_says_that_the_vm_process_refused(void **state)
{
	struct world *w = *state;
	struct made m;
	const char *text;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_INSPECT, 1);
	text = report_on_vm(w, m.view.id);
	expect_text(text, "the VM process can't be asked: no report today\n");
	expect_text(text, "\nthreads of process ");
	expect_text(text, "its agent answers: ");
}

static void test_report_when_the_vm_dies(void **state)
{
	struct world *w = *state;
	struct report_request *a = calloc(1, sizeof(*a));
	struct made m;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_MUTE, 1);
	request_report(w, a, m.view.id);
	fakes_kill(w->fakes, sandbox_of_id(w, m.view.id)->slot);
	world_until_true(w, &a->done);
	expect_text(a->text, "the VM process can't be asked: ");
	expect_text(a->text, "its agent was not asked: ");
	free(a);
}

static void test_report_when_the_sandbox_is_deleted(void **state)
{
	struct world *w = *state;
	struct report_request *a = calloc(1, sizeof(*a));
	struct made m;
	struct done d;

	/* The sandbox is deleted while its VM process is being asked. */
	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_MUTE, 1);
	request_report(w, a, m.view.id);
	world_delete_start(w, &d, m.view.id);
	world_until_true(w, &a->done);
	expect_text(a->text, "the VM process can't be asked: the VM was ended meanwhile\n");
	/* The sandbox is deleted while its agent is being asked. */
	fakes_fault(w->fakes, FAKES_MUTE, 0);
	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_DEAF, 1);
	request_report(w, a, m.view.id);
	world_until(w, is_waiting, w->fakes);
	world_delete(w, &d, m.view.id);
	world_until_true(w, &a->done);
	expect_text(a->text, "its agent did not answer before the sandbox had ended\n");
	free(a);
}

static void test_inspection_can_be_abandoned(void **state)
{
	struct world *w = *state;
	struct report_request *a = calloc(1, sizeof(*a));
	struct made m;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_MUTE, 1);
	request_report(w, a, m.view.id);
	op_abandon(a->call);
	request_report(w, a, m.view.id);
	op_abandon(a->call);
	/* The service ends with an inspection in flight. */
	request_report(w, a, m.view.id);
	world_kill_service(w);
	assert_false(a->done);
	world_start_service(w);
	free(a);
}

/* --- automatic reports ------------------------------------------------------------------------ */

/* Makes the service believe that the VM made no progress for the time of a stall. */
static struct sandbox *make_stalled(struct world *w, const char *id)
{
	struct sandbox *s = sandbox_of_id(w, id);

	struct stall_watch *stall = &exec_of(s)->main.stall;

	s->pid = 0;
	stall->heard = false;
	stall->period_ms = 0;
	loop_timer_set(w->loop, &stall->timer, vmproc_progress_begin(&stall->progress, 0));
	return s;
}

static void run_waiting(struct world *w, struct run *r, const char *id)
{
	world_exec_start(w, r, id, "wait\nout on", false);
	world_until_true(w, &r->started);
	world_until(w, is_waiting, w->fakes);
}

static void end_waiting(struct world *w, struct run *r)
{
	fakes_go(w->fakes);
	world_until_true(w, &r->over);
	assert_false(r->failed);
	assert_string_equal(r->out, "on");
}

/* Returns true when the inspection has ended and the sandbox's timer is armed again. */
static bool inspection_has_ended(void *arg)
{
	const struct sandbox *s = arg;

	return !exec_of(s)->main.stall.inspection && exec_of(s)->main.stall.timer.heap_index;
}

static bool stall_was_reported(void *arg)
{
	return times_logged("is stalled") > 0;
}

static void test_stalled_call_is_reported_once(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;
	char what[128];

	world_create(w, &m, NULL);
	run_waiting(w, &r, m.view.id);
	fakes_fault(w->fakes, FAKES_DEAF, 1);
	struct sandbox *s = make_stalled(w, m.view.id);
	world_until(w, stall_was_reported, w);
	snprintf(what, sizeof(what), "a call in sandbox %s is stalled; a report on it follows",
		 m.view.id);
	assert_int_equal(times_logged(what), 1);
	assert_int_equal(times_logged("| the VM process says:"), 1);
	assert_int_equal(times_logged("| its agent does not answer: connected after"), 1);
	assert_int_equal(times_logged("| end of the report"), 1);
	assert_int_equal(exec_of(s)->main.stall.timer.heap_index, 0);
	end_waiting(w, &r);
}

static void test_stalled_vm_process_is_reported(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	run_waiting(w, &r, m.view.id);
	fakes_fault(w->fakes, FAKES_MUTE, 1);
	make_stalled(w, m.view.id);
	world_until(w, stall_was_reported, w);
	assert_int_equal(times_logged("| the VM process does not answer: nothing came for 3 s"), 1);
	assert_int_equal(times_logged("| threads of process"), 1);
	end_waiting(w, &r);
}

/* The call sleeps or waits for the network, and its agent answers. The intervals between
 * inspections grow. */
static void test_waiting_call_is_not_reported(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	run_waiting(w, &r, m.view.id);
	for (uint64_t i = 1; i < 10; i++) {
		struct sandbox *s = make_stalled(w, m.view.id);

		while (fakes_asked(w->fakes, AGENT_PROC_LIST) < i ||
		       exec_of(s)->main.stall.inspection)
			world_until(w, inspection_has_ended, s);
		assert_true(exec_of(s)->main.stall.timer.heap_index);
		assert_true(exec_of(s)->main.stall.wait_ms > 30000 &&
			    exec_of(s)->main.stall.wait_ms < 2000000);
	}
	assert_int_equal(times_logged("is stalled"), 0);
	end_waiting(w, &r);
}

static bool timer_is_armed(void *arg)
{
	const struct sandbox *s = arg;

	return exec_of(s)->main.stall.timer.heap_index &&
	       exec_of(s)->main.stall.timer.due_ms > loop_now_ms(s->service->loop);
}

static bool was_checked(void *arg)
{
	return exec_of(arg)->main.stall.progress.measured;
}

/* A call that had output, or whose VM used its CPU, is not inspected. */
static void test_call_that_makes_progress_is_not_inspected(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	run_waiting(w, &r, m.view.id);
	fakes_fault(w->fakes, FAKES_MUTE, 1);
	struct sandbox *s = make_stalled(w, m.view.id);
	exec_of(s)->main.stall.heard = true;
	world_until(w, timer_is_armed, s);
	assert_null(exec_of(s)->main.stall.inspection);
	make_stalled(w, m.view.id);
	s->pid = (uint32_t)getpid();
	exec_of(s)->main.stall.period_ms = 1000;
	world_until(w, was_checked, s);
	while (clock() < CLOCKS_PER_SEC / 2) /* CPU time of this process */
		;
	world_until(w, timer_is_armed, s);
	assert_null(exec_of(s)->main.stall.inspection);
	assert_int_equal(fakes_faults_left(w->fakes, FAKES_MUTE), 1);
	fakes_fault(w->fakes, FAKES_MUTE, 0);
	end_waiting(w, &r);
	assert_int_equal(exec_of(s)->main.stall.timer.heap_index, 0);
}

/* The call or its sandbox ends during the inspection. */
static void test_inspection_ends_with_its_call(void **state)
{
	struct world *w = *state;
	struct run r = {0}, second = {0};
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	run_waiting(w, &r, m.view.id);
	fakes_fault(w->fakes, FAKES_MUTE, 2);
	struct sandbox *s = make_stalled(w, m.view.id);
	while (!exec_of(s)->main.stall.inspection)
		world_until(w, is_waiting, w->fakes);
	end_waiting(w, &r);
	assert_null(exec_of(s)->main.stall.inspection);
	world_create(w, &m, NULL);
	run_waiting(w, &second, m.view.id);
	s = make_stalled(w, m.view.id);
	while (!exec_of(s)->main.stall.inspection)
		world_until(w, is_waiting, w->fakes);
	world_delete(w, &d, m.view.id);
	world_until_true(w, &second.over);
	assert_int_equal(times_logged("is stalled"), 0);
}

#define CALLS 12
struct crowd {
	struct world *w;
	struct made made[CALLS];
	struct run runs[CALLS];
	unsigned inspected, most; /* current number, and its maximum */
};

static bool limit_is_reached(void *arg)
{
	struct crowd *c = arg;

	c->inspected = 0;
	list_each (pos, &c->w->service->sandboxes)
		c->inspected +=
			exec_of(container_of(pos, struct sandbox, link))->main.stall.inspection !=
			NULL;
	c->most = c->inspected > c->most ? c->inspected : c->most;
	return c->inspected >= 8;
}

static bool all_remaining_were_reported(void *arg)
{
	limit_is_reached(arg);
	return times_logged("is stalled") == CALLS - 1;
}

/* More inspections would take memory and workers from running calls. */
static void test_concurrent_inspections_are_limited(void **state)
{
	struct crowd *c = calloc(1, sizeof(*c));
	struct done d;

	c->w = *state;
	world_kill_service(c->w);
	c->w->config.max_vms = 2 * CALLS;
	world_start_service(c->w);
	for (int i = 0; i < CALLS; i++) {
		world_create(c->w, &c->made[i], NULL);
		world_exec_start(c->w, &c->runs[i], c->made[i].view.id, "wait", false);
		world_until_true(c->w, &c->runs[i].started);
	}
	fakes_fault(c->w->fakes, FAKES_MUTE, CALLS);
	for (int i = 0; i < CALLS; i++)
		make_stalled(c->w, c->made[i].view.id);
	world_until(c->w, limit_is_reached, c);
	world_delete(c->w, &d, c->made[CALLS - 1].view.id); /* its inspection has not begun */
	world_until(c->w, all_remaining_were_reported, c);
	assert_int_equal(c->most, 8);
	assert_int_equal(times_logged("| end of the report"), 5);
	fakes_go(c->w->fakes);
	for (int i = 0; i < CALLS; i++)
		world_until_true(c->w, &c->runs[i].over);
	free(c);
}

/* Clears the process ids of the VMs, so that this process's CPU time does not count as their
 * progress. Returns true when a stall was reported. */
static bool stall_of_idle_vms_was_reported(void *arg)
{
	struct world *w = arg;

	for (unsigned n = 0; n < w->service->vms.max_vms; n++)
		if (w->service->vms.slots[n])
			w->service->vms.slots[n]->id.pid = 0;
	return stall_was_reported(w);
}

/* The VM is ended once its report is logged. */
static void test_vm_that_stalls_during_bring_up_is_reported_and_dropped(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_wait_ready(w);
	fakes_fault(w->fakes, FAKES_SEED_WAIT, 1);
	world_fork_start(w, &k, m.view.id, 1, false);
	world_until(w, stall_of_idle_vms_was_reported, w);
	world_until_true(w, &k.done);
	assert_false(k.ok);
	expect_text(k.failure.text, "the guest made no progress before it confirmed the new seed");
	assert_int_equal(
		times_logged("(the guest made no progress before it confirmed the new seed) is "
			     "stalled; a report on it follows"),
		1);
	assert_int_equal(times_logged("| the VM process says:"), 1);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
}

static bool vm_was_dropped(void *arg)
{
	stall_of_idle_vms_was_reported(((struct crowd *)arg)->w);
	return times_logged("is dropped") > 0;
}

/* The request that waits for the VM must not also wait for the reports of other VMs. */
static void test_stalled_vm_is_dropped_without_a_report_at_the_limit(void **state)
{
	struct crowd c = {.w = *state};
	struct forked k;
	struct made m;

	world_create(c.w, &m, NULL);
	world_wait_ready(c.w);
	inspect_of_service(c.w->service)->n_inspections += 8;
	fakes_fault(c.w->fakes, FAKES_SEED_WAIT, 1);
	world_fork_start(c.w, &k, m.view.id, 1, false);
	world_until(c.w, vm_was_dropped, &c);
	inspect_of_service(c.w->service)->n_inspections -= 8;
	world_until_true(c.w, &k.done);
	assert_false(k.ok);
	assert_int_equal(times_logged("is stalled"), 0);
}

static void test_reports_in_the_log_are_rate_limited(void **state)
{
	struct world *w = *state;
	char text[64 * 1024], *at = text;

	for (int i = 0; i < 10; i++)
		inspector.log(w->service, "a guest", "one\ntwo");
	assert_int_equal(times_logged("a report on it follows (0 others"), 5);
	assert_int_equal(times_logged("its report is left out"), 5);
	assert_int_equal(times_logged("| two\n"), 5);
	/* A minute later one more report is allowed. */
	inspect_of_service(w->service)->stall_reports.since_ms -= 61000;
	for (int i = 0; i < 5000; i++)
		at += sprintf(at, "line %d\n", i);
	inspector.log(w->service, "a guest", text);
	assert_int_equal(times_logged("a report on it follows (5 others were left out)"), 1);
	assert_int_equal(times_logged("| line 199\n"), 1);
	assert_int_equal(times_logged("| line 200\n"), 0);
	assert_int_equal(times_logged("| (more lines are left out)"), 1);
	inspector.log(w->service, "a guest", "one");
	assert_int_equal(times_logged("its report is left out"), 6);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_report_has_all_sections),
		TEST(test_report_lists_calls_and_operations),
		TEST(test_sandbox_is_found_by_slot),
		TEST(test_report_on_a_pooled_vm),
		TEST(test_unknown_names_are_refused),
		TEST(test_report_on_a_vm_whose_agent_does_not_answer),
		TEST(test_report_on_a_vm_process_that_does_not_answer),
		TEST(test_report_says_that_the_vm_process_refused),
		TEST(test_report_when_the_vm_dies),
		TEST(test_report_when_the_sandbox_is_deleted),
		TEST(test_inspection_can_be_abandoned),
		TEST(test_stalled_call_is_reported_once),
		TEST(test_stalled_vm_process_is_reported),
		TEST(test_waiting_call_is_not_reported),
		TEST(test_call_that_makes_progress_is_not_inspected),
		TEST(test_inspection_ends_with_its_call),
		TEST(test_concurrent_inspections_are_limited),
		TEST(test_vm_that_stalls_during_bring_up_is_reported_and_dropped),
		TEST(test_stalled_vm_is_dropped_without_a_report_at_the_limit),
		TEST(test_reports_in_the_log_are_rate_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
