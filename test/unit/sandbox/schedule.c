// SPDX-License-Identifier: Apache-2.0
/* sandbox_schedule: the loop asks the parts once, in order, to start what waits in a sandbox. */
#include "orchestrator/sandbox/service.h"
#include "test/unit/service/world.h"

#define PARTS_MAX 16

/* Records the calls of start_waiting of two parts, one before and one after the real ones. */
static struct {
	char order[16];
	bool again; /* the first part schedules the sandbox once more */
} asked;

static void ask(struct sandbox *s, char part)
{
	asked.order[strlen(asked.order)] = part;
	if (asked.again)
		sandbox_schedule(s);
	asked.again = false;
}

static void ask_first(struct sandbox *s)
{
	ask(s, 'a');
}

static void ask_last(struct sandbox *s)
{
	ask(s, 'z');
}

static struct part first = {.start_waiting = ask_first}, last = {.start_waiting = ask_last};

static void add_parts(struct service *c)
{
	static struct part *parts[PARTS_MAX];
	size_t n = 0;

	parts[n++] = &first;
	for (struct part *const *at = c->parts; *at; at++)
		parts[n++] = *at;
	parts[n++] = &last;
	parts[n] = NULL;
	assert_true(n < PARTS_MAX);
	c->parts = parts;
	memset(&asked, 0, sizeof(asked));
}

static struct sandbox *make(struct world *w)
{
	struct made m;

	world_create(w, &m, NULL);
	assert_true(m.ok);
	return sandbox_living(w->service, TENANT, m.view.id);
}

static bool at_once(void *arg)
{
	return true;
}

static void turn_loop(struct world *w)
{
	world_until(w, at_once, NULL);
}

static void expect_asked(struct world *w, const char *order)
{
	turn_loop(w);
	turn_loop(w);
	assert_string_equal(asked.order, order);
	memset(&asked, 0, sizeof(asked));
}

static void test_parts_are_asked_once_and_in_order(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w);

	add_parts(w->service);
	for (int i = 0; i < 3; i++)
		sandbox_schedule(s);
	assert_string_equal(asked.order, ""); /* no part is asked inside sandbox_schedule */
	expect_asked(w, "az");
	asked.again = true;
	sandbox_schedule(s);
	expect_asked(w, "azaz");
}

static void test_frozen_or_ended_sandbox_starts_nothing(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w);
	struct done d;

	add_parts(w->service);
	assert_true(sandbox_step(s, SBX_FREEZE));
	sandbox_schedule(s);
	expect_asked(w, "");
	assert_true(sandbox_step(s, SBX_THAW));
	sandbox_schedule(s);
	expect_asked(w, "az");
	sandbox_schedule(s);
	world_delete(w, &d, s->id);
	expect_asked(w, "");
}

static void test_freed_sandbox_starts_nothing(void **state)
{
	struct world *w = *state;
	struct sandbox *s = sandbox_new(w->service, "sbx_00000000000000000000000000000000", TENANT);

	add_parts(w->service);
	s->state = SBX_READY;
	sandbox_schedule(s);
	sandbox_free(s);
	expect_asked(w, "");
}

/* --- states ---------------------------------------------------------------------------------- */

struct seen {
	struct world *w;
	char id[SANDBOX_ID_LEN + 1], state[16];
};

static void look(struct run *r, const struct event *ev)
{
	struct seen *seen = r->arg;
	struct sandbox_view view;
	struct failure f;

	if (ev->type != EVENT_EXIT)
		return;
	assert_true(service_view(seen->w->service, TENANT, seen->id, &view, &f));
	snprintf(seen->state, sizeof(seen->state), "%s", view.state);
}

static void test_sandbox_runs_until_its_queue_is_empty(void **state)
{
	struct seen seen = {.w = *state};
	struct run r[2] = {{.on_event = look, .arg = &seen}, {.on_event = look, .arg = &seen}};

	memcpy(seen.id, make(seen.w)->id, sizeof(seen.id));
	for (int i = 0; i < 2; i++)
		world_exec_start(seen.w, &r[i], seen.id, "out on", false);
	world_until_true(seen.w, &r[0].over);
	assert_string_equal(seen.state, "running");
	world_until_true(seen.w, &r[1].over);
	assert_string_equal(seen.state, "ready");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_parts_are_asked_once_and_in_order),
		TEST(test_frozen_or_ended_sandbox_starts_nothing),
		TEST(test_freed_sandbox_starts_nothing),
		TEST(test_sandbox_runs_until_its_queue_is_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
