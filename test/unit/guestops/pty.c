// SPDX-License-Identifier: Apache-2.0
/* Terminals, with fake guests: results, errors and limits. */
#include <errno.h>
#include <stdlib.h>

#include "base/fd.h"
#include "orchestrator/guestops/guest-op.h"
#include "test/unit/core/fake-files.h"
#include "test/unit/core/world.h"

struct pty_client {
	bool done, failed, found, exited;
	struct failure failure;
	char out[64];
	uint64_t first, next, bytes;
	int code;
	unsigned n;
	struct pty_view last;
	char id[CORE_ID_LEN + 1];
	struct core_call *call;
};

static void on_done(void *arg, const struct failure *f)
{
	struct pty_client *t = arg;

	assert_false(t->done);
	t->done = true;
	t->failed = f != NULL;
	if (f)
		t->failure = *f;
}

static void on_id(void *arg, const char *id, const struct failure *f)
{
	struct pty_client *t = arg;

	on_done(arg, f);
	if (id)
		snprintf(t->id, sizeof(t->id), "%s", id);
}

static void on_found(void *arg)
{
	struct pty_client *t = arg;

	assert_false(t->found || t->bytes || t->done);
	t->found = true;
}

static void on_bytes(void *arg, uint64_t place, const void *data, size_t len)
{
	struct pty_client *t = arg;
	size_t used = strlen(t->out);

	assert_true(!t->done && place >= t->next);
	if (!t->bytes)
		t->first = place;
	snprintf(t->out + used, sizeof(t->out) - used, "%.*s", (int)len, (const char *)data);
	t->bytes += len;
	t->next = place + len;
}

static void on_exited(void *arg, int code)
{
	struct pty_client *t = arg;

	on_done(arg, NULL);
	t->exited = true;
	t->code = code;
}

static const struct pty_sink sink = {on_found, on_bytes, on_exited, on_done};

static void on_read(void *arg, const struct pty_output *out, const struct failure *f)
{
	struct pty_client *t = arg;

	on_done(arg, f);
	if (!out)
		return;
	snprintf(t->out, sizeof(t->out), "%.*s", (int)out->len, (const char *)out->data);
	t->bytes = out->len;
	t->next = out->next;
	t->exited = out->exited;
	t->code = out->exit_code;
}

static char id[SANDBOX_ID_LEN + 1];

static void make(struct world *w)
{
	struct made m;

	world_create(w, &m, NULL);
	assert_true(m.ok);
	memcpy(id, m.view.id, sizeof(id));
}

/* Returns the id of the fake terminal whose behaviour fake-files.h describes under `which`. */
static const char *pty(int which)
{
	static char name[CORE_ID_LEN + 1];

	snprintf(name, sizeof(name), "pty_%d%031d", which, 0);
	return name;
}

static void start(struct world *w, struct pty_client *t, const char *program)
{
	const char *const argv[] = {program, "arg", NULL};
	const char *const env[] = {"A=1", NULL};
	const struct pty_spec spec = {
		.argv = argv, .label = "label", .cols = 80, .rows = 24, .env = env};

	*t = (struct pty_client){0};
	t->call = core_pty_start(w->core, TENANT, id, &spec, on_id, t);
	assert_false(t->done);
}

static void attach(struct world *w, struct pty_client *t, int which, uint64_t place)
{
	*t = (struct pty_client){0};
	t->call = core_pty_attach(w->core, TENANT, id, pty(which), place, &sink, t);
	assert_false(t->done);
}

static void read_start(struct world *w, struct pty_client *t, int which, const struct pty_read *r)
{
	*t = (struct pty_client){0};
	t->call = core_pty_read(w->core, TENANT, id, pty(which), r, on_read, t);
	assert_false(t->done);
}

static void read_it(struct world *w, struct pty_client *t, int which, const struct pty_read *r)
{
	read_start(w, t, which, r);
	world_until_true(w, &t->done);
}

static void fails_with(const struct pty_client *t, enum failure_code code)
{
	assert_true(t->failed);
	assert_int_equal(t->failure.code, code);
}

static struct core_stats stats_of(struct world *w)
{
	struct core_stats stats;

	core_stats(w->core, &stats);
	return stats;
}

static bool has_few_agents(void *arg)
{
	struct world *w = arg;

	fakes_go(w->fakes);
	return fakes_agents(w->fakes) <= 2;
}

/* ------------------------------------------------------------------------------------------ */

static void test_start_returns_an_id(void **state)
{
	struct world *w = *state;
	struct pty_client t;

	make(w);
	start(w, &t, "/bin/vi");
	world_until_true(w, &t.done);
	assert_false(t.failed);
	assert_memory_equal(t.id, "pty_", 4);
	assert_int_equal(strspn(t.id + 4, "0123456789abcdef"), 32);
	assert_int_equal(stats_of(w).ptys, 1);
	start(w, &t, "/errno/2");
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_PTY_FAILED);
	start(w, &t, "/errno/11");
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_TOO_MANY);
	char *long_arg = calloc(1, AGENT_PAYLOAD_MAX + 1);
	memset(long_arg, 'a', AGENT_PAYLOAD_MAX);
	start(w, &t, long_arg);
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_OUT_OF_RANGE);
	free(long_arg);
}

static bool was_killed(void *arg)
{
	return fakes_asked(((struct world *)arg)->fakes, AGENT_PTY_KILL) == 1;
}

static void test_abandoned_start_kills_the_terminal(void **state)
{
	struct world *w = *state;
	struct pty_client t;

	make(w);
	start(w, &t, "/wait");
	world_until_waiting(w, 1);
	core_abandon(t.call);
	fakes_go(w->fakes);
	world_until(w, was_killed, w);
	assert_false(t.done);
	assert_int_equal(stats_of(w).ptys, 0);
}

static void test_attach_streams_output_and_exit_code(void **state)
{
	struct world *w = *state;
	struct pty_client t;

	make(w);
	attach(w, &t, 0, 2);
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	world_until_true(w, &t.done);
	assert_true(!t.failed && t.found && t.exited);
	assert_int_equal(t.code, 3);
	assert_string_equal(t.out, "llo world");
	assert_int_equal(t.first, 2);
	assert_int_equal(stats_of(w).pty_bytes_out, 9);
	assert_int_equal(stats_of(w).listeners, 0);
	attach(w, &t, 9, 0);
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_NO_SUCH_PTY);
	assert_false(t.found);
	attach(w, &t, 2, 0);
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_AGENT_ERROR);
	assert_string_equal(t.out, "hello");
}

static void test_attach_without_on_found_requests_no_list(void **state)
{
	const struct pty_sink blind = {NULL, on_bytes, on_exited, on_done};
	struct world *w = *state;
	struct pty_client t = {0};

	make(w);
	unsigned asked = fakes_asked(w->fakes, AGENT_PTY_LIST);
	core_pty_attach(w->core, TENANT, id, pty(3), 0, &blind, &t);
	world_until_true(w, &t.done);
	assert_true(t.exited && t.code == 5);
	assert_int_equal(fakes_asked(w->fakes, AGENT_PTY_LIST), asked);
	t = (struct pty_client){0};
	core_pty_attach(w->core, TENANT, id, pty(9), 0, &blind, &t);
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_NO_SUCH_PTY);
}

static bool has_much(void *arg)
{
	return ((struct pty_client *)arg)->bytes > 1000000;
}

static void test_listener_can_pause_and_leave(void **state)
{
	struct world *w = *state;
	struct pty_client t;
	struct world_flow flow = {.bytes = &t.bytes};

	make(w);
	attach(w, &t, 1, 0);
	world_until(w, has_much, &t);
	core_pause(t.call);
	world_until(w, world_flow_has_stopped, &flow);
	core_resume(t.call);
	t.bytes = 1;
	world_until(w, has_much, &t);
	core_abandon(t.call);
	assert_int_equal(stats_of(w).listeners, 0);
	world_until(w, has_few_agents, w);
	assert_false(t.done);
}

static void test_read_returns_output_from_an_offset(void **state)
{
	struct pty_read r = {.place = 1, .max_bytes = 1000, .timeout_ms = 20000};
	struct world *w = *state;
	struct pty_client t;

	make(w);
	read_it(w, &t, 0, &r);
	assert_true(!t.failed && !t.exited && t.next == 5);
	assert_string_equal(t.out, "ello");
	r = (struct pty_read){.place = 2, .max_bytes = 2, .timeout_ms = 20000};
	read_it(w, &t, 0, &r);
	assert_string_equal(t.out, "ll");
	assert_int_equal(t.next, 4);
	r = (struct pty_read){.place = 5, .max_bytes = 2, .timeout_ms = 0};
	read_it(w, &t, 0, &r);
	assert_true(!t.failed && t.bytes == 0 && t.next == 5);
	r = (struct pty_read){.place = 1, .max_bytes = 100, .timeout_ms = 0}; /* already arrived */
	read_it(w, &t, 0, &r);
	assert_string_equal(t.out, "ello");
	r = (struct pty_read){.place = 5, .max_bytes = 100, .timeout_ms = 20000};
	read_start(w, &t, 3, &r);
	world_until_true(w, &t.done);
	assert_true(t.exited && t.code == 5 && t.next == 5);
	fakes_go(w->fakes);
	r = (struct pty_read){.place = 7, .max_bytes = 100, .timeout_ms = 20000};
	read_it(w, &t, 4, &r);
	assert_string_equal(t.out, "hello");
	assert_true(t.next == 12 && !t.exited);
	read_it(w, &t, 9, &r);
	fails_with(&t, FAIL_NO_SUCH_PTY);
	for (size_t got = 0; got < 1000000; got += t.bytes) { /* reads what has arrived */
		r.max_bytes = 1000000 - got;
		read_it(w, &t, 1, &r);
		assert_true(!t.failed && t.bytes > 0 && t.bytes <= r.max_bytes);
		r.place = t.next;
	}
	world_until(w, has_few_agents, w);
}

static void test_input_reaches_the_terminal(void **state)
{
	struct world *w = *state;
	uint8_t *typed = malloc(PTY_INPUT_MAX);
	struct pty_client t = {0};
	uint64_t sum;

	make(w);
	for (size_t i = 0; i < PTY_INPUT_MAX; i++)
		typed[i] = (uint8_t)(i % 101);
	fakes_put_reset(w->fakes);
	core_pty_input(w->core, TENANT, id, pty(0), typed, PTY_INPUT_MAX, on_done, &t);
	world_until_true(w, &t.done);
	assert_false(t.failed);
	assert_int_equal(fakes_put(w->fakes, &sum), PTY_INPUT_MAX);
	assert_true(sum == fake_sum(0, typed, PTY_INPUT_MAX));
	assert_int_equal(stats_of(w).pty_bytes_in, PTY_INPUT_MAX);
	free(typed);
	t = (struct pty_client){0};
	core_pty_input(w->core, TENANT, id, pty(0), "", 0, on_done, &t);
	world_until_true(w, &t.done);
	assert_false(t.failed);
	t = (struct pty_client){0};
	core_pty_input(w->core, TENANT, id, pty(3), "x", 1, on_done, &t);
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_PTY_ENDED);
	t = (struct pty_client){0};
	core_pty_input(w->core, TENANT, id, pty(9), "x", 1, on_done, &t);
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_NO_SUCH_PTY);
}

static void test_resize_and_kill_need_an_existing_terminal(void **state)
{
	struct world *w = *state;
	struct pty_client t = {0};

	make(w);
	core_pty_resize(w->core, TENANT, id, pty(0), 120, 40, on_done, &t);
	world_until_true(w, &t.done);
	assert_false(t.failed);
	t = (struct pty_client){0};
	core_pty_kill(w->core, TENANT, id, pty(0), on_done, &t);
	world_until_true(w, &t.done);
	assert_false(t.failed);
	t = (struct pty_client){0};
	core_pty_resize(w->core, TENANT, id, pty(9), 120, 40, on_done, &t);
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_NO_SUCH_PTY);
}

static void on_pty(void *arg, const struct pty_view *p)
{
	struct pty_client *t = arg;

	t->last = *p;
	assert_memory_equal(p->label, "vi", p->label_len);
	assert_string_equal(p->id, pty((int)t->n++));
	assert_int_equal(p->ended, t->n == 4);
}

static void test_all_terminals_are_listed(void **state)
{
	static const struct pty_list_sink list = {on_pty, on_done};
	struct world *w = *state;
	struct pty_client t = {0};

	make(w);
	core_pty_list(w->core, TENANT, id, &list, &t);
	world_until_true(w, &t.done);
	assert_true(!t.failed && t.n == 5);
	assert_true(t.last.started_at_ms == 1700000000000);
}

static void test_listeners_are_limited(void **state)
{
	static struct pty_client many[LISTENERS_MAX];
	const struct pty_read r = {.place = 5, .max_bytes = 2, .timeout_ms = 20000};
	struct world *w = *state;
	struct pty_client t;

	make(w);
	world_wait_ready(w);
	for (int i = 0; i < LISTENERS_MAX; i++)
		read_start(w, &many[i], 0, &r);
	attach(w, &t, 0, 0);
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_TOO_MANY);
	for (int i = 0; i < LISTENERS_MAX; i++)
		core_abandon(many[i].call);
	assert_int_equal(stats_of(w).listeners, 0);
	world_until(w, has_few_agents, w);
}

static void test_delete_ends_attach_and_read(void **state)
{
	const struct pty_read r = {.place = 5, .max_bytes = 2, .timeout_ms = 20000};
	struct world *w = *state;
	struct pty_client a, b;
	struct done d;

	make(w);
	attach(w, &a, 0, 5);
	world_until_waiting(w, 1);
	read_start(w, &b, 0, &r);
	world_delete(w, &d, id);
	world_until_true(w, &a.done);
	world_until_true(w, &b.done);
	fails_with(&a, FAIL_DELETED);
	fails_with(&b, FAIL_DELETED);
	assert_true(a.found);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_start_returns_an_id),
		TEST(test_abandoned_start_kills_the_terminal),
		TEST(test_attach_streams_output_and_exit_code),
		TEST(test_attach_without_on_found_requests_no_list),
		TEST(test_listener_can_pause_and_leave),
		TEST(test_read_returns_output_from_an_offset),
		TEST(test_input_reaches_the_terminal),
		TEST(test_resize_and_kill_need_an_existing_terminal),
		TEST(test_all_terminals_are_listed),
		TEST(test_listeners_are_limited),
		TEST(test_delete_ends_attach_and_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
