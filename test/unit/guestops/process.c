// SPDX-License-Identifier: Apache-2.0
/* Processes, with fake guests: results, errors and limits. */
#include <errno.h>
#include <stdlib.h>

#include "base/fd.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"
#include "test/unit/service/fake-process.h"
#include "test/unit/service/world.h"

struct process_client {
	bool done, failed, exited;
	struct failure failure;
	char out[64];
	uint64_t next, bytes;
	unsigned started, n;
	struct process_view last;
	struct process_exit exit;
	struct op *call;
};

static void on_done(void *arg, const struct failure *f)
{
	struct process_client *t = arg;

	assert_false(t->done);
	t->done = true;
	t->failed = f != NULL;
	if (f)
		t->failure = *f;
}

static void on_started(void *arg, const struct process_view *p)
{
	struct process_client *t = arg;

	assert_false(t->started || t->bytes || t->done);
	t->started++;
	t->last = *p;
}

/* Notes the output as "1:hello2: world". */
static void on_bytes(void *arg, unsigned stream, uint64_t place, const void *data, size_t len)
{
	struct process_client *t = arg;
	size_t used = strlen(t->out);

	assert_true(t->started && !t->done && place >= t->next);
	snprintf(t->out + used, sizeof(t->out) - used, "%u:%.*s", stream, (int)len,
		 (const char *)data);
	t->bytes += len;
	t->next = place + len;
}

static void on_exited(void *arg, const struct process_exit *exit)
{
	struct process_client *t = arg;

	on_done(arg, NULL);
	t->exited = true;
	t->exit = *exit;
}

static const struct process_sink sink = {on_started, on_bytes, on_exited, on_done};

static void on_process(void *arg, const struct process_view *p)
{
	struct process_client *t = arg;

	assert_memory_equal(p->label, "ls -l", p->label_len);
	assert_memory_equal(p->user, "joe", p->user_len);
	t->last = *p;
	t->n++;
}

static const struct process_list_sink list_sink = {on_process, on_done};

static char id[SANDBOX_ID_LEN + 1];

static const char *process(int which)
{
	return fake_process_id("prc_", which);
}

static struct process_spec spec_of(const char *const *argv)
{
	return (struct process_spec){.argv = argv, .label = "label", .stdin_pipe = true};
}

static void run(struct world *w, struct process_client *t, const char *program)
{
	const char *const argv[] = {program, "arg", NULL};
	const struct process_spec spec = spec_of(argv);

	*t = (struct process_client){0};
	t->call = service_process_run(w->service, TENANT, id, &spec, &sink, t);
	assert_false(t->done);
}

static void start(struct world *w, struct process_client *t, const char *program)
{
	const char *const argv[] = {program, "arg", NULL};
	const struct process_spec spec = spec_of(argv);

	*t = (struct process_client){0};
	t->call = service_process_start(w->service, TENANT, id, &spec, &list_sink, t);
	assert_false(t->done);
}

static void attach(struct world *w, struct process_client *t, int which, uint64_t place)
{
	*t = (struct process_client){0};
	t->call = service_process_attach(w->service, TENANT, id, process(which), place, &sink, t);
	assert_false(t->done);
}

static void fails_with(struct world *w, struct process_client *t, enum failure_code code)
{
	world_until_true(w, &t->done);
	assert_true(t->failed);
	assert_int_equal(t->failure.code, code);
}

static void succeeds(struct world *w, struct process_client *t)
{
	world_until_true(w, &t->done);
	if (t->failed)
		fail_msg("%s", t->failure.text);
}

static unsigned busy(struct world *w)
{
	struct failure f;

	return (unsigned)sandbox_find(w->service, TENANT, id, &f)->n_busy;
}

/* ------------------------------------------------------------------------------------------ */

static void test_run_streams_output_and_exit(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	run(w, &t, "/bin/ls");
	world_until_waiting(w, 1);
	assert_int_equal(busy(w), 1);
	fakes_go(w->fakes);
	succeeds(w, &t);
	assert_string_equal(t.out, "1:hello2: world");
	assert_true(t.exited && t.exit.code == 143 && t.exit.signal == 15 && t.exit.timed_out);
	assert_true(t.exit.ended_ms == 1700000001000 && t.exit.total == 11);
	assert_memory_equal(t.last.id, "prc_", 4);
	assert_int_equal(strspn(t.last.id + 4, "0123456789abcdef"), 32);
	assert_true(t.last.pid == 412 && t.last.stdin_open && !t.last.ended && !t.last.tty);
	assert_int_equal(world_metric(w, "processes_total"), 1);
	assert_int_equal(world_metric(w, "process_bytes_out_total"), 11);
	assert_int_equal(world_metric(w, "listeners"), 0);
	assert_int_equal(busy(w), 0);
}

static void test_start_describes_the_process(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	start(w, &t, "/bin/ls");
	succeeds(w, &t);
	assert_true(t.n == 1 && t.last.pid == 412);
	assert_int_equal(world_metric(w, "processes_total"), 1);
	start(w, &t, "/silent");
	fails_with(w, &t, FAIL_AGENT_ERROR);
}

static void test_terminals_are_counted_apart(void **state)
{
	static const char *const argv[] = {"/bin/vi", NULL};
	const struct process_spec spec = {
		.argv = argv, .label = "", .tty = true, .cols = 80, .rows = 24};
	struct world *w = *state;
	struct process_client t = {0};

	world_create_id(w, id);
	service_process_start(w->service, TENANT, id, &spec, &list_sink, &t);
	succeeds(w, &t);
	assert_memory_equal(t.last.id, "pty_", 4);
	assert_true(t.last.tty);
	assert_true(world_metric(w, "ptys_total") == 1 && world_metric(w, "processes_total") == 0);
	const struct process_view terminal = t.last;
	t = (struct process_client){0};
	service_process_input(w->service, TENANT, id, terminal.id, "x", 1, on_done, &t);
	succeeds(w, &t);
	assert_true(world_metric(w, "pty_bytes_in_total") == 1 &&
		    world_metric(w, "process_bytes_in_total") == 0);
}

static void test_start_that_fails(void **state)
{
	static void (*const ways[])(struct world *, struct process_client *,
				    const char *) = {run, start};
	struct world *w = *state;
	struct process_client t;
	char *long_arg = calloc(1, AGENT_PAYLOAD_MAX + 1);

	world_create_id(w, id);
	memset(long_arg, 'a', AGENT_PAYLOAD_MAX);
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		ways[i](w, &t, "/errno/2");
		fails_with(w, &t, FAIL_PROCESS_FAILED);
		ways[i](w, &t, "/errno/11");
		fails_with(w, &t, FAIL_TOO_MANY);
		ways[i](w, &t, long_arg);
		fails_with(w, &t, FAIL_OUT_OF_RANGE);
	}
	free(long_arg);
}

static bool was_killed(void *arg)
{
	return fakes_asked(((struct world *)arg)->fakes, AGENT_PROC_KILL) == 1;
}

static void test_abandoned_start_kills_the_process(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	start(w, &t, "/wait");
	world_until_waiting(w, 1);
	op_abandon(t.call);
	fakes_go(w->fakes);
	world_until(w, was_killed, w);
	assert_false(t.done || t.n);
	assert_int_equal(world_metric(w, "processes_total"), 0);
}

/* A moment after the start of a call: a number of the loop's rounds, or its end. */
struct moment {
	const struct process_client *t;
	unsigned rounds;
};

static bool has_come(void *arg)
{
	struct moment *m = arg;

	return m->t->done || m->rounds-- == 0;
}

static bool is_undone(void *arg)
{
	struct world *w = arg;

	return fakes_asked(w->fakes, AGENT_PROC_KILL) == fakes_asked(w->fakes, AGENT_PROC_START) &&
	       !world_metric(w, "operations");
}

/* The last of these moments is between the end of the operation and its report. */
static void test_start_that_is_abandoned_at_any_moment_is_undone(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	for (unsigned rounds = 0;; rounds++) {
		start(w, &t, "/bin/ls");
		world_until(w, has_come, &(struct moment){&t, rounds});
		if (t.done)
			break;
		op_abandon(t.call);
		world_until(w, is_undone, w);
		assert_false(t.done);
	}
	assert_false(t.failed);
	assert_int_equal(world_metric(w, "processes_total"), 1);
}

static void test_abandoned_run_kills_a_process_that_does_not_run_yet(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	run(w, &t, "/wait");
	world_until_waiting(w, 1);
	op_abandon(t.call);
	fakes_go(w->fakes);
	world_until(w, was_killed, w);
	world_until(w, world_few_agents, w);
	assert_false(t.done || t.started);
	assert_int_equal(world_metric(w, "listeners"), 0);
	assert_int_equal(world_metric(w, "processes_total"), 0);
}

static void test_abandoned_run_kills_the_process_above_the_limit(void **state)
{
	struct world *w = *state;
	struct process_client t, other;
	struct failure f;

	world_create_id(w, id);
	run(w, &t, "/wait");
	world_until_waiting(w, 1);
	unsigned *n_ops = &guestops_of(sandbox_find(w->service, TENANT, id, &f))->n_ops;
	*n_ops += OPS_MAX;
	start(w, &other, "/bin/ls");
	fails_with(w, &other, FAIL_TOO_MANY);
	op_abandon(t.call);
	fakes_go(w->fakes);
	world_until(w, was_killed, w);
	*n_ops -= OPS_MAX;
	world_until(w, world_few_agents, w);
}

static bool has_started(void *arg)
{
	return ((struct process_client *)arg)->bytes != 0;
}

static void test_abandoned_run_leaves_a_running_process_alone(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	run(w, &t, "/bin/ls");
	world_until(w, has_started, &t);
	op_abandon(t.call);
	assert_int_equal(world_metric(w, "listeners"), 0);
	world_until(w, world_few_agents, w);
	assert_int_equal(fakes_asked(w->fakes, AGENT_PROC_KILL), 0);
	assert_false(t.done);
}

static void test_run_that_hangs_up_kills_the_process(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	run(w, &t, "/bin/ls");
	world_until(w, has_started, &t);
	op_hang_up(t.call);
	world_until(w, was_killed, w);
	world_until(w, world_few_agents, w);
	assert_false(t.done);
	assert_int_equal(world_metric(w, "listeners"), 0);
}

static void test_attach_that_hangs_up_kills_the_process(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	attach(w, &t, 0, 0);
	op_hang_up(t.call); /* its guest has not described the process yet */
	world_until(w, was_killed, w);
	world_until(w, world_few_agents, w);
	assert_false(t.done || t.started);
}

static void test_run_that_hangs_up_before_it_runs_is_killed_once(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	run(w, &t, "/wait");
	world_until_waiting(w, 1);
	op_hang_up(t.call);
	fakes_go(w->fakes);
	world_until(w, was_killed, w);
	world_until(w, world_few_agents, w);
	assert_int_equal(fakes_asked(w->fakes, AGENT_PROC_KILL), 1);
	assert_false(t.done || t.started);
}

/* Starts a freeze of the sandbox, whose snapshot waits for fakes_go, as its process does. */
static void freeze_start(struct world *w, struct frozen *z)
{
	world_until_waiting(w, 1);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_freeze_start(w, z, id);
	world_until_waiting(w, 2);
}

/* Lets process and snapshot go on; the freeze then fails, as the catalogue cannot be written. */
static void freeze_fails(struct world *w, struct frozen *z)
{
	world_lock_catalogue(w, true);
	fakes_go(w->fakes);
	world_until_true(w, &z->done);
	world_lock_catalogue(w, false);
	assert_false(z->ok);
}

static void test_hang_up_during_a_freeze_that_fails_kills_the_process(void **state)
{
	struct world *w = *state;
	struct process_client t;
	struct frozen z;

	world_create_id(w, id);
	run(w, &t, "/bin/ls");
	world_until(w, has_started, &t);
	freeze_start(w, &z);
	op_hang_up(t.call);
	world_run_for(w, 20);
	assert_int_equal(fakes_asked(w->fakes, AGENT_PROC_KILL), 0);
	freeze_fails(w, &z);
	world_until(w, was_killed, w);
}

static void test_start_abandoned_during_a_freeze_that_fails_kills_the_process(void **state)
{
	struct world *w = *state;
	struct process_client t;
	struct frozen z;

	world_create_id(w, id);
	run(w, &t, "/wait");
	freeze_start(w, &z);
	op_abandon(t.call);
	freeze_fails(w, &z);
	world_until(w, was_killed, w);
}

static void test_hang_up_during_a_freeze_that_succeeds_ends_with_the_sandbox(void **state)
{
	struct world *w = *state;
	struct process_client t;
	struct frozen z;

	world_create_id(w, id);
	run(w, &t, "/bin/ls");
	world_until(w, has_started, &t);
	freeze_start(w, &z);
	op_hang_up(t.call);
	fakes_go(w->fakes);
	world_until_true(w, &z.done);
	assert_true(z.ok);
	assert_int_equal(fakes_asked(w->fakes, AGENT_PROC_KILL), 0);
	assert_int_equal(guestops_of_service(w->service)->operations, 0);
	assert_int_equal(guestops_of_service(w->service)->listeners, 0);
}

static bool were_killed(void *arg)
{
	return fakes_asked(((struct world *)arg)->fakes, AGENT_PROC_KILL) == 2;
}

static bool has_no_listeners(void *arg)
{
	return guestops_of_service(((struct world *)arg)->service)->listeners == 0;
}

/* Otherwise a guest that never answers would let its client keep any number of kills, and take the
 * places of other tenants' operations. */
static void test_unanswered_kill_keeps_the_place_of_its_process(void **state)
{
	struct world *w = *state;
	struct process_client t, other;
	struct failure f;

	world_create_id(w, id);
	struct guestops_sandbox *s = guestops_of(sandbox_find(w->service, TENANT, id, &f));
	fakes_fault(w->fakes, FAKES_KILL_WAIT, 2);
	s->n_listeners += LISTENERS_MAX - 2;
	for (unsigned killed = 1; killed <= 2; killed++) {
		run(w, &t, "/bin/ls");
		world_until(w, has_started, &t);
		op_hang_up(t.call);
		world_until(w, killed == 1 ? was_killed : were_killed, w);
		assert_int_equal(s->n_listeners, LISTENERS_MAX - 2 + killed);
		assert_int_equal(s->n_ops, 0);
		assert_int_equal(guestops_of_service(w->service)->operations, 0);
	}
	run(w, &other, "/bin/ls");
	fails_with(w, &other, FAIL_TOO_MANY);
	fakes_go(w->fakes);
	world_until(w, has_no_listeners, w);
	s->n_listeners -= LISTENERS_MAX - 2;
}

static bool has_much(void *arg)
{
	return ((struct process_client *)arg)->bytes > 1000000;
}

static void test_reader_can_pause(void **state)
{
	struct world *w = *state;
	struct process_client t;
	struct world_flow flow = {.bytes = &t.bytes};

	world_create_id(w, id);
	run(w, &t, "/flood");
	world_until(w, has_much, &t);
	op_pause(t.call);
	world_until(w, world_flow_has_stopped, &flow);
	op_resume(t.call);
	t.bytes = 1;
	world_until(w, has_much, &t);
	op_abandon(t.call);
	world_until(w, world_few_agents, w);
}

static void test_attach_streams_from_an_offset(void **state)
{
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	attach(w, &t, 0, 2);
	world_until_waiting(w, 1);
	assert_int_equal(busy(w), 0);
	fakes_go(w->fakes);
	succeeds(w, &t);
	assert_string_equal(t.out, "1:llo2: world");
	attach(w, &t, 0, 12);
	fails_with(w, &t, FAIL_OUT_OF_RANGE);
	attach(w, &t, 9, 0);
	fails_with(w, &t, FAIL_NO_SUCH_PROCESS);
}

static void test_invalid_streams_are_refused(void **state)
{
	static const struct {
		int which;
		const char *out;
	} cases[] = {{2, "1:a"}, {3, ""}, {4, ""}, {5, ""}, {6, ""}};
	struct world *w = *state;
	struct process_client t;

	world_create_id(w, id);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		attach(w, &t, cases[i].which, 0);
		fails_with(w, &t, FAIL_AGENT_ERROR);
		assert_string_equal(t.out, cases[i].out);
	}
}

static void test_list_and_stat(void **state)
{
	struct world *w = *state;
	struct process_client t = {0};

	world_create_id(w, id);
	service_process_list(w->service, TENANT, id, NULL, &list_sink, &t);
	succeeds(w, &t);
	assert_int_equal(t.n, 3);
	assert_true(t.last.ended && t.last.exit.code == 143 && t.last.exit.timed_out);
	t = (struct process_client){0};
	service_process_list(w->service, TENANT, id, process(0), &list_sink, &t);
	succeeds(w, &t);
	assert_string_equal(t.last.id, process(0));
	t = (struct process_client){0};
	service_process_list(w->service, TENANT, id, process(9), &list_sink, &t);
	fails_with(w, &t, FAIL_NO_SUCH_PROCESS);
	t = (struct process_client){0};
	service_process_list(w->service, TENANT, id, process(3), &list_sink, &t);
	fails_with(w, &t, FAIL_AGENT_ERROR);
	t = (struct process_client){0};
	service_process_list(w->service, TENANT, id, process(6), &list_sink, &t);
	fails_with(w, &t, FAIL_AGENT_ERROR);
}

static void ask(struct world *w, struct process_client *t, enum agent_request type, int which)
{
	const struct agent_process_request request = {
		.type = type, .id = process(which), .cols = 120, .rows = 40, .signal = 15};

	*t = (struct process_client){0};
	service_process_do(w->service, TENANT, id, &request, on_done, t);
}

static void test_input_reaches_the_process(void **state)
{
	const size_t len = 3000000;
	struct world *w = *state;
	uint8_t *bytes = malloc(len);
	struct process_client t = {0};
	uint64_t sum;

	world_create_id(w, id);
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(i % 101);
	fakes_put_reset(w->fakes);
	service_process_input(w->service, TENANT, id, process(0), bytes, len, on_done, &t);
	succeeds(w, &t);
	assert_int_equal(fakes_put(w->fakes, &sum), len);
	assert_true(sum == fake_sum(0, bytes, len));
	assert_int_equal(world_metric(w, "process_bytes_in_total"), len);
	free(bytes);
	t = (struct process_client){0};
	service_process_input(w->service, TENANT, id, process(0), NULL, 0, on_done, &t);
	succeeds(w, &t);
	t = (struct process_client){0};
	service_process_input(w->service, TENANT, id, process(3), "x", 1, on_done, &t);
	fails_with(w, &t, FAIL_STDIN_CLOSED);
	ask(w, &t, AGENT_PROC_CLOSE, 0);
	succeeds(w, &t);
	ask(w, &t, AGENT_PROC_CLOSE, 9);
	fails_with(w, &t, FAIL_NO_SUCH_PROCESS);
}

static void test_resize_signal_and_kill(void **state)
{
	struct world *w = *state;
	struct process_client t = {0};

	world_create_id(w, id);
	ask(w, &t, AGENT_PROC_RESIZE, 0);
	succeeds(w, &t);
	ask(w, &t, AGENT_PROC_RESIZE, 9);
	fails_with(w, &t, FAIL_NO_SUCH_PROCESS);
	ask(w, &t, AGENT_PROC_SIGNAL, 0);
	succeeds(w, &t);
	ask(w, &t, AGENT_PROC_SIGNAL, 3);
	fails_with(w, &t, FAIL_PROCESS_ENDED);
	ask(w, &t, AGENT_PROC_KILL, 0);
	succeeds(w, &t);
	assert_int_equal(fakes_asked(w->fakes, AGENT_PROC_KILL), 1);
}

static void test_delete_ends_streams(void **state)
{
	struct world *w = *state;
	struct process_client a, b;
	struct done d;

	world_create_id(w, id);
	attach(w, &a, 0, 5);
	world_until_waiting(w, 1);
	run(w, &b, "/flood");
	world_until(w, has_started, &b);
	world_delete(w, &d, id);
	fails_with(w, &a, FAIL_DELETED);
	fails_with(w, &b, FAIL_DELETED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_run_streams_output_and_exit),
		TEST(test_start_describes_the_process),
		TEST(test_terminals_are_counted_apart),
		TEST(test_start_that_fails),
		TEST(test_abandoned_start_kills_the_process),
		TEST(test_start_that_is_abandoned_at_any_moment_is_undone),
		TEST(test_abandoned_run_kills_a_process_that_does_not_run_yet),
		TEST(test_abandoned_run_kills_the_process_above_the_limit),
		TEST(test_abandoned_run_leaves_a_running_process_alone),
		TEST(test_run_that_hangs_up_kills_the_process),
		TEST(test_attach_that_hangs_up_kills_the_process),
		TEST(test_run_that_hangs_up_before_it_runs_is_killed_once),
		TEST(test_hang_up_during_a_freeze_that_fails_kills_the_process),
		TEST(test_start_abandoned_during_a_freeze_that_fails_kills_the_process),
		TEST(test_hang_up_during_a_freeze_that_succeeds_ends_with_the_sandbox),
		TEST(test_unanswered_kill_keeps_the_place_of_its_process),
		TEST(test_reader_can_pause),
		TEST(test_attach_streams_from_an_offset),
		TEST(test_invalid_streams_are_refused),
		TEST(test_list_and_stat),
		TEST(test_input_reaches_the_process),
		TEST(test_resize_signal_and_kill),
		TEST(test_delete_ends_streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
