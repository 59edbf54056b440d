// SPDX-License-Identifier: Apache-2.0
/* Reads of a process's output, and the limit of its listeners, with fake guests. */
#include "base/fd.h"
#include "orchestrator/guestops/guest-op.h"
#include "test/unit/service/fake-process.h"
#include "test/unit/service/world.h"

struct reader {
	bool done, exited;
	struct failure failure;
	char out[64];
	uint64_t next, bytes;
	int code;
	struct op *call;
};

static void on_read(void *arg, const struct process_output *out, const struct failure *f)
{
	struct reader *t = arg;

	assert_true(!t->done && (out == NULL) == (f != NULL));
	t->done = true;
	if (f) {
		t->failure = *f;
		return;
	}
	snprintf(t->out, sizeof(t->out), "%.*s", (int)out->len, (const char *)out->data);
	t->bytes = out->len;
	t->next = out->next;
	t->exited = out->exited;
	t->code = out->exit_code;
}

static char id[SANDBOX_ID_LEN + 1];

/* Starts a read of the fake terminal whose behaviour fake-process.h describes under `which`. */
static void read_start(struct world *w, struct reader *t, int which, const struct process_read *r)
{
	const char *process = fake_process_id("pty_", which);

	*t = (struct reader){0};
	t->call = service_process_read(w->service, TENANT, id, process, r, on_read, t);
	assert_false(t->done);
}

static void fails_with(struct world *w, struct reader *t, enum failure_code code)
{
	world_until_true(w, &t->done);
	assert_int_equal(t->failure.code, code);
}

/* Reads up to `max_bytes` from `place` on. */
static struct reader reads(struct world *w, int which, uint64_t place, size_t max_bytes,
			   uint32_t timeout_ms)
{
	const struct process_read r = {place, max_bytes, timeout_ms};
	struct reader t;

	read_start(w, &t, which, &r);
	fails_with(w, &t, FAIL_NONE);
	return t;
}

/* ------------------------------------------------------------------------------------------ */

static void test_output_from_an_offset(void **state)
{
	struct world *w = *state;

	world_create_id(w, id);
	struct reader t = reads(w, 0, 1, 1000, 20000);
	assert_string_equal(t.out, "ello");
	assert_true(!t.exited && t.next == 5);
	assert_int_equal(world_metric(w, "pty_bytes_out_total"), 4);
	t = reads(w, 0, 2, 2, 20000);
	assert_string_equal(t.out, "ll");
	assert_int_equal(t.next, 4);
	t = reads(w, 0, 1, 100, 0); /* output that exists does not need the time limit */
	assert_string_equal(t.out, "ello");
	t = reads(w, 0, 5, 2, 0);
	assert_true(t.bytes == 0 && t.next == 5 && !t.exited);
	world_until(w, world_few_agents, w);
}

static void test_end_of_the_program(void **state)
{
	struct world *w = *state;

	world_create_id(w, id);
	struct reader t = reads(w, 8, 11, 100, 0);
	assert_true(t.exited && t.code == 143 && t.next == 11 && !t.bytes);
}

static void test_gap_ends_a_read(void **state)
{
	struct world *w = *state;

	world_create_id(w, id);
	struct reader t = reads(w, 7, 7, 100, 20000);
	assert_string_equal(t.out, "hello");
	assert_true(t.next == 12 && !t.exited);
}

static void test_endless_output(void **state)
{
	struct world *w = *state;
	struct reader t;

	world_create_id(w, id);
	for (size_t got = 0; got < 1000000; got += t.bytes) { /* reads what has arrived */
		t = reads(w, 1, got, 1000000 - got, 20000);
		assert_true(t.bytes > 0 && t.bytes <= 1000000 - got);
	}
	world_until(w, world_few_agents, w);
}

static void test_refused_and_malformed_answers(void **state)
{
	static const struct {
		int which;
		enum failure_code code;
	} cases[] = {{2, FAIL_AGENT_ERROR},
		     {4, FAIL_AGENT_ERROR},
		     {5, FAIL_AGENT_ERROR},
		     {6, FAIL_AGENT_ERROR},
		     {9, FAIL_NO_SUCH_PROCESS}};
	const struct process_read r = {0, 100, 20000}, late = {12, 100, 20000};
	struct world *w = *state;
	struct reader t;

	world_create_id(w, id);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		read_start(w, &t, cases[i].which, &r);
		fails_with(w, &t, cases[i].code);
	}
	read_start(w, &t, 0, &late);
	fails_with(w, &t, FAIL_OUT_OF_RANGE);
}

static void test_listeners_are_limited(void **state)
{
	static struct reader many[LISTENERS_MAX];
	const struct process_read r = {5, 2, 20000};
	struct world *w = *state;
	struct reader t;

	world_create_id(w, id);
	world_wait_ready(w);
	for (int i = 0; i < LISTENERS_MAX; i++)
		read_start(w, &many[i], 0, &r);
	read_start(w, &t, 0, &r);
	fails_with(w, &t, FAIL_TOO_MANY);
	for (int i = 0; i < LISTENERS_MAX; i++)
		op_abandon(many[i].call);
	assert_int_equal(world_metric(w, "listeners"), 0);
	world_until(w, world_few_agents, w);
}

static void test_delete_ends_a_read(void **state)
{
	const struct process_read r = {5, 2, 20000};
	struct world *w = *state;
	struct reader t;
	struct done d;

	world_create_id(w, id);
	read_start(w, &t, 0, &r);
	world_until_waiting(w, 1);
	world_delete(w, &d, id);
	fails_with(w, &t, FAIL_DELETED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_output_from_an_offset),
		TEST(test_end_of_the_program),
		TEST(test_gap_ends_a_read),
		TEST(test_endless_output),
		TEST(test_refused_and_malformed_answers),
		TEST(test_listeners_are_limited),
		TEST(test_delete_ends_a_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
