// SPDX-License-Identifier: Apache-2.0
/* Results of calls become events, and are kept like output. */
#include "orchestrator/exec/bundle.h"
#include "orchestrator/exec/internal.h"
#include "test/unit/service/world.h"

#define HEAD 12 /* bytes of a bundle with an entry x/y, without its data */

/* What arrived: for each event but the exit "R" (result), "M" (main) or "F" (fault) and its size,
 * or the text that stands in its place. */
struct seen {
	char text[1024];
};

static void see(void *arg, const struct event *ev, const char *traceparent)
{
	struct seen *seen = arg;
	size_t used = strlen(seen->text);
	struct wire w = wire_from(ev->data, ev->len);
	struct bundle_entry entry;

	if (ev->type != EVENT_RESULT && ev->type != EVENT_FAULT)
		return;
	assert_true(bundle_is_sound(ev->data, ev->len));
	assert_true(bundle_next(&w, &entry));
	snprintf(seen->text + used, sizeof(seen->text) - used, "%c%zu ",
		 ev->type == EVENT_FAULT ? 'F' : (ev->main ? 'M' : 'R'), ev->len);
	if (entry.kind == AGENT_BUNDLE_TEXT) {
		used = strlen(seen->text);
		snprintf(seen->text + used, sizeof(seen->text) - used, "%.*s ", (int)entry.len,
			 (const char *)entry.data);
	}
}

static void on_event(struct run *r, const struct event *ev)
{
	see(r->arg, ev, NULL);
}

static void replay_is(struct world *w, const char *id, const char *expected)
{
	struct seen seen = {""};
	struct failure f;

	assert_true(service_replay(w->service, TENANT, id, 0, see, &seen, &f));
	assert_string_equal(seen.text, expected);
}

static void run(struct world *w, const char *id, const char *script, struct seen *seen)
{
	struct run r = {.on_event = on_event, .arg = seen};

	*seen = (struct seen){""};
	world_exec_rich_start(w, &r, id, script);
	world_until_true(w, &r.over);
	assert_false(r.failed);
}

static void test_results_become_events(void **state)
{
	struct world *w = *state;
	struct seen seen;
	struct made m;

	world_create(w, &m, NULL);
	run(w, m.view.id,
	    "open 5\nmore 5\nresult 0\nout a\nopen 300000\nmore 300000\nresult 1\n"
	    "more 9\nresult 2\nopen 7\nmore 7\nfault\nopen 1\nexit 1",
	    &seen);
	assert_string_equal(seen.text, "R17 M300012 F19 ");
	replay_is(w, m.view.id, seen.text);
}

static void test_unwanted_results_are_dropped(void **state)
{
	struct world *w = *state;
	struct seen seen = {""};
	struct run r = {.on_event = on_event, .arg = &seen};
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "open 5\nmore 5\nresult 0\nout a\nmore 1\nfault", false);
	world_until_true(w, &r.over);
	assert_string_equal(seen.text, "");
	assert_string_equal(r.out, "a");
}

static void test_bad_results_are_replaced(void **state)
{
	struct world *w = *state;
	struct seen seen;
	struct made m;

	world_create(w, &m, NULL);
	run(w, m.view.id, "more 100\nresult 1\nopen 8\nmore 7\nfault\nopen 1\nmore 1\nresult 0",
	    &seen);
	assert_non_null(strstr(seen.text, "M66 ramet: this result was dropped: it is malformed R"));
	assert_non_null(strstr(seen.text, "R13 "));
	run(w, m.view.id, "open 9000000\nmore 9000000\nresult 1\nopen 1\nmore 1\nresult 0", &seen);
	assert_non_null(strstr(seen.text, "the limit is 8 MiB R13 "));
	run(w, m.view.id, "open 8388596\nmore 8388596\nresult 1", &seen);
	assert_string_equal(seen.text, "M8388608 ");
}

static bool has_part(void *arg)
{
	return exec_of_service(arg)->output.held > 100000;
}

/* A result is on its way when the service is killed, and when the sandbox forks. */
static void test_a_restart_and_a_fork_keep_half_a_result(void **state)
{
	struct world *w = *state;
	struct run lost = {0}, next;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_rich_start(w, &lost, m.view.id,
			      "open 3\nmore 3\nresult 0\nopen 200000\nmore 100000\nwait\n"
			      "more 100000\nresult 1");
	world_until_waiting(w, 1);
	world_until(w, has_part, w->service);
	world_kill_service(w);
	world_start_service(w);
	world_fork(w, &k, m.view.id, 1);
	world_until_waiting(w, 2);
	fakes_go(w->fakes);
	world_exec(w, &next, m.view.id, "out next");
	world_exec(w, &next, k.ids[0], "out next");
	replay_is(w, m.view.id, "R15 M200012 ");
	replay_is(w, k.ids[0], "R15 M200012 ");
}

static bool has_large_part(void *arg)
{
	return exec_of_service(arg)->output.held > 7000000;
}

/* Each of many children would get a copy of it. */
static void test_a_fork_into_many_drops_half_a_result_in_the_children(void **state)
{
	struct world *w = *state;
	struct run r = {0}, next;
	struct forked k;
	struct made m;

	world_kill_service(w);
	w->config.max_vms = 16;
	world_start_service(w);
	world_create(w, &m, NULL);
	world_exec_rich_start(w, &r, m.view.id,
			      "open 8000000\nmore 7000000\nwait\nmore 1000000\nresult 1\n"
			      "open 7\nmore 7\nfault");
	world_until_waiting(w, 1);
	world_until(w, has_large_part, w->service);
	world_fork(w, &k, m.view.id, 10);
	assert_true(k.ok);
	world_until_waiting(w, 11);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
	world_exec(w, &next, k.ids[9], "out next");
	replay_is(w, m.view.id, "M8000012 F19 ");
	replay_is(w, k.ids[9],
		  "M93 ramet: this result was dropped: the service's memory for output is used up "
		  "F19 ");
}

/* A result is on its way when the sandbox is frozen, and another one follows. */
static void test_a_resume_keeps_half_a_result(void **state)
{
	struct world *w = *state;
	struct run r = {0}, next;
	struct made m, again;
	struct frozen z;

	world_create(w, &m, NULL);
	world_exec_rich_start(w, &r, m.view.id,
			      "open 200000\nmore 100000\nwait\nmore 100000\nresult 1\n"
			      "open 7\nmore 7\nfault");
	world_until_waiting(w, 1);
	world_until(w, has_part, w->service);
	world_freeze(w, &z, m.view.id);
	assert_true(z.ok);
	world_until_true(w, &r.over);
	assert_int_equal(r.failure.code, FAIL_FROZEN);
	world_resume(w, &again, z.id);
	assert_true(again.ok);
	fakes_go(w->fakes);
	world_exec(w, &next, again.view.id, "out next");
	replay_is(w, again.view.id, "M200012 F19 ");
}

#define MANY 8

static bool holds_little(void *arg)
{
	return !output_is_over(&exec_of_service(arg)->output);
}

static void test_results_over_the_budget_are_dropped(void **state)
{
	struct world *w = *state;
	struct seen seen[MANY] = {0};
	struct made m[MANY];
	struct run r[MANY];
	unsigned dropped = 0;

	output_budget_init(&exec_of_service(w->service)->output, 3 << 20);
	for (int i = 0; i < MANY; i++) {
		world_create(w, &m[i], NULL);
		r[i] = (struct run){.on_event = on_event, .arg = &seen[i]};
		world_exec_rich_start(w, &r[i], m[i].view.id,
				      "open 1000000\nmore 900000\nwait\nmore 100000\nresult 0");
	}
	world_until_waiting(w, MANY);
	world_until(w, holds_little, w->service);
	fakes_go(w->fakes);
	for (int i = 0; i < MANY; i++) {
		world_until_true(w, &r[i].over);
		dropped += strstr(seen[i].text, "memory for output is used up") != NULL;
		assert_true(seen[i].text[0] == 'R' && !r[i].failed);
	}
	assert_true(dropped > 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_results_become_events),
		TEST(test_unwanted_results_are_dropped),
		TEST(test_bad_results_are_replaced),
		TEST(test_a_restart_and_a_fork_keep_half_a_result),
		TEST(test_a_fork_into_many_drops_half_a_result_in_the_children),
		TEST(test_a_resume_keeps_half_a_result),
		TEST(test_results_over_the_budget_are_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
