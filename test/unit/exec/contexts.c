// SPDX-License-Identifier: Apache-2.0
/* Calls in contexts: side by side, and carried over by forks, freezes, merges and restarts. */
#include <stdlib.h>

#include "base/fd.h"
#include "orchestrator/exec/internal.h"
#include "test/unit/service/world.h"

/* In a fake guest, the contexts whose ids end with a digit exist. */
#define ONE  "ctx_00000000000000000000000000000001"
#define TWO  "ctx_00000000000000000000000000000002"
#define NONE "ctx_0000000000000000000000000000000e"

static bool has_event(void *arg)
{
	return ((const struct run *)arg)->events > 0;
}

/* Starts a call in the default interpreter and in two contexts, which wait after their first line.
 */
static void start_three(struct world *w, struct run runs[3], const char *id)
{
	runs[0].gaps = true;
	world_exec_start(w, &runs[0], id, "out a\nraw x\nwait\nraw y\nout a2\nexit 3", false);
	world_exec_in(w, &runs[1], id, ONE, "out b\nraw x\nwait\nraw y\nout b2\nexit 4");
	world_exec_in(w, &runs[2], id, TWO, "out c\nraw x\nwait\nraw y\nout c2\nexit 5");
	world_until_waiting(w, 3);
	for (int i = 0; i < 3; i++)
		world_until(w, has_event, &runs[i]);
}

static void expect_three(struct world *w, struct run runs[3])
{
	static const char *const outs[] = {"a|xya2", "b|xyb2", "c|xyc2"};

	for (int i = 0; i < 3; i++) {
		world_until_true(w, &runs[i].over);
		assert_false(runs[i].failed);
		assert_string_equal(runs[i].out, outs[i]);
		assert_int_equal(runs[i].exit_code, 3 + i);
	}
}

struct past {
	char text[3][256]; /* of the default interpreter and of both contexts */
};

static void add_past(void *arg, const struct event *ev, const char *traceparent)
{
	struct past *p = arg;
	int i = !ev->context ? 0 : !strcmp(ev->context, ONE) ? 1 : 2;
	size_t len = strlen(p->text[i]);

	if (ev->type == EVENT_EXIT)
		snprintf(p->text[i] + len, sizeof(p->text[i]) - len, "=%d|", ev->exit_code);
	else
		snprintf(p->text[i] + len, sizeof(p->text[i]) - len, "%.*s|", (int)ev->len,
			 (const char *)ev->data);
}

static void expect_past(struct world *w, const char *id)
{
	static const char *const outs[] = {"a|xya2|=3|", "b|xyb2|=4|", "c|xyc2|=5|"};
	struct past p = {0};
	struct failure f;

	assert_true(service_replay(w->service, TENANT, id, 0, add_past, &p, &f));
	for (int i = 0; i < 3; i++)
		assert_string_equal(p.text[i], outs[i]);
}

static struct sandbox *sandbox_of(struct world *w, const char *id)
{
	struct failure f;
	struct sandbox *s = sandbox_find(w->service, TENANT, id, &f);

	assert_non_null(s);
	return s;
}

/* Returns true once no call runs or is queued. */
struct idle {
	struct world *w;
	const char *id;
};

static bool is_idle(void *arg)
{
	struct idle *i = arg;
	struct sandbox_view view;
	struct failure f;

	return service_view(i->w->service, TENANT, i->id, &view, &f) &&
	       !strcmp(view.state, "ready");
}

static void until_idle(struct world *w, const char *id)
{
	struct idle i = {w, id};

	world_until(w, is_idle, &i);
}

static void test_contexts_run_side_by_side(void **state)
{
	struct world *w = *state;
	struct run runs[3] = {0}, next = {0};
	struct made m;

	world_create(w, &m, NULL);
	start_three(w, runs, m.view.id);
	world_exec_in(w, &next, m.view.id, ONE, "out next");
	assert_false(next.over);
	fakes_go(w->fakes);
	expect_three(w, runs);
	world_until_true(w, &next.over);
	assert_string_equal(next.out, "next");
	(void)expect_past;
}

static void test_running_calls_continue_in_parent_and_children(void **state)
{
	struct world *w = *state;
	struct run runs[3] = {0};
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	start_three(w, runs, m.view.id);
	world_fork(w, &k, m.view.id, 2);
	assert_true(k.ok);
	fakes_go(w->fakes);
	expect_three(w, runs);
	for (int i = 0; i < 2; i++) {
		until_idle(w, k.ids[i]);
		expect_past(w, k.ids[i]);
	}
	assert_int_equal(fakes_attaches(w->fakes), 6);
}

static void test_running_calls_continue_after_a_kill_of_the_service(void **state)
{
	struct world *w = *state;
	struct run runs[3] = {0};
	struct made m;

	world_create(w, &m, NULL);
	start_three(w, runs, m.view.id);
	for (int i = 0; i < 2; i++) {
		world_kill_service(w);
		world_start_service(w);
	}
	fakes_go(w->fakes);
	until_idle(w, m.view.id);
	expect_past(w, m.view.id);
}

static bool is_connected(void *sandbox)
{
	const struct sandbox *s = sandbox;

	return s->state != SBX_ADOPTING && exec_of(s)->main.guest.agent;
}

/* While the service attaches to a call of its predecessor, the call itself is at the guest. */
static void test_call_of_a_killed_service_is_at_the_guest(void **state)
{
	struct world *w = *state;
	struct run runs[3] = {0};
	struct exec_point point;
	struct made m;

	world_create(w, &m, NULL);
	start_three(w, runs, m.view.id);
	world_kill_service(w);
	world_start_service(w);
	struct sandbox *s = sandbox_of(w, m.view.id);
	world_until(w, is_connected, s);
	struct agent *agent = exec_of(s)->main.guest.agent;
	agent_send(agent, agent_attach_bytes(NULL, 1, 0));
	assert_true(agent_is_sending(agent));
	assert_int_equal(exec_note(s, &point), 0);
	for (struct exec_point *p = &point; p; p = p->next)
		assert_true(p->running && p->at_guest);
	exec_point_fini(&point);
}

static void test_running_calls_continue_after_resume(void **state)
{
	struct world *w = *state;
	struct run runs[3] = {0};
	struct made m, again;
	struct frozen z;

	world_create(w, &m, NULL);
	start_three(w, runs, m.view.id);
	world_freeze(w, &z, m.view.id);
	assert_true(z.ok);
	for (int i = 0; i < 3; i++) {
		world_until_true(w, &runs[i].over);
		assert_int_equal(runs[i].failure.code, FAIL_FROZEN);
	}
	world_resume(w, &again, z.id);
	assert_true(again.ok);
	fakes_go(w->fakes);
	until_idle(w, again.view.id);
	struct past p = {0};
	struct failure f;
	assert_true(service_replay(w->service, TENANT, again.view.id, 0, add_past, &p, &f));
	assert_string_equal(p.text[0], "xya2|=3|");
	assert_string_equal(p.text[1], "xyb2|=4|");
	assert_string_equal(p.text[2], "xyc2|=5|");
}

static void test_running_calls_survive_a_failed_freeze(void **state)
{
	struct world *w = *state;
	struct run runs[3] = {0};
	struct frozen z;
	struct made m;

	world_create(w, &m, NULL);
	start_three(w, runs, m.view.id);
	fakes_fault(w->fakes, FAKES_FORK, 1);
	world_freeze(w, &z, m.view.id);
	assert_false(z.ok);
	fakes_go(w->fakes);
	expect_three(w, runs);
	expect_past(w, m.view.id);
}

/* Each interrupt that arrives releases what waits, in both calls. */
#define UNTIL_INTERRUPTED "\nwait\nwait\nwait\nexit 130"

static bool is_idle_after_all_waits(void *arg)
{
	fakes_go(((struct idle *)arg)->w->fakes);
	return is_idle(arg);
}

static bool has_interrupts(void *arg)
{
	return fakes_asked(((struct world *)arg)->fakes, AGENT_INTERRUPT) == 2;
}

static void test_calls_hung_up_during_a_freeze_that_fails_are_interrupted(void **state)
{
	struct world *w = *state;
	struct run one = {0}, other = {0}, next = {0};
	struct frozen z;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &one, m.view.id, "out a" UNTIL_INTERRUPTED, false);
	world_exec_in(w, &other, m.view.id, ONE, "out b" UNTIL_INTERRUPTED);
	world_until_waiting(w, 2);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_freeze_start(w, &z, m.view.id);
	world_until_waiting(w, 3);
	op_hang_up(one.call);
	op_hang_up(other.call);
	world_run_for(w, 20);
	assert_true(exec_of(sandbox_of(w, m.view.id))->n_calls);
	assert_int_equal(fakes_asked(w->fakes, AGENT_INTERRUPT), 0);
	world_lock_catalogue(w, true);
	fakes_go(w->fakes);
	world_until_true(w, &z.done);
	world_lock_catalogue(w, false);
	assert_false(z.ok);
	world_until(w, has_interrupts, w);
	assert_true(fakes_interrupted(w->fakes) != 0);
	world_until(w, is_idle_after_all_waits, &(struct idle){w, m.view.id});
	assert_false(one.over || other.over);
	world_exec(w, &next, m.view.id, "out d");
	assert_string_equal(next.out, "d");
}

static void note_seq_of_still(struct run *r, const struct event *ev)
{
	if (ev->len == 5 && memcmp(ev->data, "still", 5) == 0)
		*(uint64_t *)r->arg = ev->seq;
}

static void test_merge_moves_the_calls_of_the_winner(void **state)
{
	uint64_t seq_of_still = 0;
	struct run old = {0}, kept = {0}, waits = {0};
	struct run won = {.gaps = true, .on_event = note_seq_of_still, .arg = &seq_of_still};
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
	world_exec_in(w, &old, m.view.id, ONE, "out old\nwait\nout never");
	world_exec_in(w, &kept, m.view.id, ONE, "out kept");
	world_exec_in(w, &won, k.ids[0], ONE, "out new\nwait\nout still\nexit 4");
	world_exec_in(w, &waits, k.ids[0], ONE, "out then");
	world_until_waiting(w, 2);
	world_until(w, has_event, &old);
	world_until(w, has_event, &won);
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed);
	world_until_true(w, &old.over);
	assert_int_equal(old.failure.code, FAIL_MERGED_DURING_CALL);
	assert_false(won.over || waits.over || kept.over);
	fakes_go(w->fakes);
	world_until_true(w, &kept.over);
	assert_string_equal(won.out, "new|still");
	assert_int_equal(won.exit_code, 4);
	assert_string_equal(waits.out, "then");
	assert_string_equal(kept.out, "kept");
	assert_true(won.last_seq < waits.first_seq && waits.last_seq < kept.first_seq);
	/* The error of the call that ended has a number of its own. */
	assert_true(old.last_seq < seq_of_still);
}

static void test_unknown_context_fails_all_of_its_calls(void **state)
{
	struct run a = {0}, b = {0}, other = {0};
	struct world *w = *state;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_in(w, &a, m.view.id, NONE, "out a");
	world_exec_in(w, &b, m.view.id, NONE, "out b");
	world_until_true(w, &b.over);
	assert_true(a.over && !a.started && !b.started);
	assert_int_equal(a.failure.code, FAIL_NO_SUCH_CONTEXT);
	assert_int_equal(b.failure.code, FAIL_NO_SUCH_CONTEXT);
	assert_non_null(strstr(a.failure.text, NONE));
	world_exec(w, &other, m.view.id, "out fine");
	assert_string_equal(other.out, "fine");
}

static void test_broken_connection_fails_the_running_call_only(void **state)
{
	struct run main_run = {0}, breaks = {0}, next = {0};
	struct world *w = *state;
	struct made m;

	world_create(w, &m, NULL);
	main_run.gaps = true;
	world_exec_start(w, &main_run, m.view.id, "wait\nout main", false);
	world_until_waiting(w, 1);
	world_exec_in(w, &breaks, m.view.id, ONE, "out a\nhang-up");
	world_exec_in(w, &next, m.view.id, ONE, "out next");
	world_until_true(w, &next.over);
	assert_int_equal(breaks.failure.code, FAIL_AGENT_LOST);
	assert_string_equal(next.out, "next");
	fakes_go(w->fakes);
	world_until_true(w, &main_run.over);
	assert_string_equal(main_run.out, "main");
}

static void test_number_of_contexts_with_calls_is_limited(void **state)
{
	enum { MOST = 32 };
	struct run *runs = calloc(MOST + 2, sizeof(*runs));
	char ids[MOST + 1][CORE_ID_LEN + 1];
	struct world *w = *state;
	struct made m;

	world_create(w, &m, NULL);
	for (int i = 0; i <= MOST; i++) {
		/* All are unknown to the guest. */
		snprintf(ids[i], sizeof(ids[i]), "ctx_%031de", i);
		world_exec_in(w, &runs[i], m.view.id, ids[i], "out never");
	}
	for (int i = 0; i <= MOST; i++)
		world_until_true(w, &runs[i].over);
	assert_int_equal(runs[MOST - 1].failure.code, FAIL_NO_SUCH_CONTEXT);
	assert_int_equal(runs[MOST].failure.code, FAIL_TOO_MANY);
	world_exec_in(w, &runs[MOST + 1], m.view.id, ONE, "out room");
	world_until_true(w, &runs[MOST + 1].over);
	assert_string_equal(runs[MOST + 1].out, "room");
	free(runs);
}

static void test_sandbox_ends_during_calls_in_contexts(void **state)
{
	struct world *w = *state;
	struct run runs[3] = {0};
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	start_three(w, runs, m.view.id);
	world_delete(w, &d, m.view.id);
	for (int i = 0; i < 3; i++) {
		world_until_true(w, &runs[i].over);
		assert_int_equal(runs[i].failure.code, FAIL_DELETED);
	}
}

/* A lane is freed some time after its last call. The test does not wait for that time. */
static void test_call_that_waits_for_a_freeze_is_not_freed_with_its_lane(void **state)
{
	struct run first = {0}, next = {0};
	struct world *w = *state;
	struct failure f;
	struct frozen z;
	struct made m;

	world_create(w, &m, NULL);
	struct sandbox *s = sandbox_of(w, m.view.id);
	world_exec_in(w, &first, m.view.id, ONE, "out a");
	world_until_true(w, &first.over);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_freeze_start(w, &z, m.view.id);
	world_until_waiting(w, 1);
	world_exec_in(w, &next, m.view.id, ONE, "out b");
	loop_timer_set(w->loop, &lane_of(s, ONE, &f)->idle, 0);
	world_run_for(w, 50);
	assert_true(exec_of(s)->n_calls);
	fakes_go(w->fakes);
	world_until_true(w, &next.over);
	assert_int_equal(next.failure.code, FAIL_FROZEN);
	world_until_true(w, &z.done);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_contexts_run_side_by_side),
		TEST(test_running_calls_continue_in_parent_and_children),
		TEST(test_running_calls_continue_after_a_kill_of_the_service),
		TEST(test_call_of_a_killed_service_is_at_the_guest),
		TEST(test_running_calls_continue_after_resume),
		TEST(test_running_calls_survive_a_failed_freeze),
		TEST(test_calls_hung_up_during_a_freeze_that_fails_are_interrupted),
		TEST(test_merge_moves_the_calls_of_the_winner),
		TEST(test_unknown_context_fails_all_of_its_calls),
		TEST(test_broken_connection_fails_the_running_call_only),
		TEST(test_number_of_contexts_with_calls_is_limited),
		TEST(test_sandbox_ends_during_calls_in_contexts),
		TEST(test_call_that_waits_for_a_freeze_is_not_freed_with_its_lane),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
