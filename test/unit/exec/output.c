// SPDX-License-Identifier: Apache-2.0
/* The budget of held output, for any number of sandboxes and tenants. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "orchestrator/exec/internal.h"
#include "test/unit/service/world.h"

#define MANY	   500
#define FIRST_SLOT 1000
#define EVENT_LEN  (256u << 10)
#define EVENTS	   4 /* per sandbox */
#define BUDGET	   ((size_t)64 << 20)

/* Sandboxes without VMs, for their output only. */
struct crowd {
	struct sandbox *all[MANY];
	unsigned n;
	char dir[32]; /* of their journals; a tmpfs, as RUN_DIR should be */
};

static struct crowd *crowd_new(void)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));

	assert_non_null(crowd);
	snprintf(crowd->dir, sizeof(crowd->dir), "/dev/shm/ramet-XXXXXX");
	assert_non_null(mkdtemp(crowd->dir));
	return crowd;
}

static struct sandbox *add_sandbox(struct world *w, struct crowd *crowd, const char *tenant)
{
	struct service *c = w->service;
	char id[SANDBOX_ID_LEN + 1];

	snprintf(id, sizeof(id), "sbx_%032u", crowd->n);
	struct sandbox *s = sandbox_new(c, id, tenant);
	s->slot = FIRST_SLOT + crowd->n;
	exec_of(s)->journal = journal_new(crowd->dir, s->slot, 1);
	assert_non_null(exec_of(s)->journal);
	journal_count(exec_of(s)->journal, exec_of(s)->output);
	sandbox_enlist(s, SBX_READY);
	crowd->all[crowd->n++] = s;
	return s;
}

static void crowd_free(struct crowd *crowd)
{
	char path[64];

	for (unsigned i = 0; i < crowd->n; i++) {
		struct sandbox *s = crowd->all[i];

		journal_remove(exec_of(s)->journal);
		exec_of(s)->journal = NULL;
		sandbox_free(s);
	}
	snprintf(path, sizeof(path), "%s/journals", crowd->dir);
	rmdir(path);
	rmdir(crowd->dir);
	free(crowd);
}

/* Stores an output event of `len` bytes. */
static void print(struct sandbox *s, size_t len)
{
	static const uint8_t text[EVENT_LEN];
	static int64_t now;
	const struct event ev = {.seq = ++s->seq, .ts_ms = ++now, .data = text, .len = len};

	replay_add(&exec_of(s)->replay, &ev, NULL);
	journal_event(exec_of(s)->journal, &ev, NULL);
	exec_keep(s);
}

static size_t file_bytes(const struct crowd *crowd)
{
	size_t sum = 0;

	for (unsigned i = 0; i < crowd->n; i++) {
		char path[64];
		struct stat st;

		snprintf(path, sizeof(path), "%s/journals/%u", crowd->dir, crowd->all[i]->slot);
		assert_int_equal(stat(path, &st), 0);
		sum += (size_t)st.st_blocks * 512;
	}
	return sum;
}

static size_t replay_bytes(const struct crowd *crowd)
{
	size_t sum = 0;

	for (unsigned i = 0; i < crowd->n; i++)
		sum += exec_of(crowd->all[i])->replay.bytes;
	return sum;
}

/* Stores half a gigabyte of output, in memory and in the journals, under a budget of 64 MiB. */
static void test_output_of_many_sandboxes_stays_within_the_budget(void **state)
{
	struct crowd *crowd = crowd_new();
	struct world *w = *state;

	output_budget_init(&exec_of_service(w->service)->output, BUDGET);
	while (crowd->n < MANY) {
		struct sandbox *s = add_sandbox(w, crowd, TENANT);

		for (unsigned i = 0; i < EVENTS; i++) {
			print(s, EVENT_LEN);
			assert_true(exec_of_service(w->service)->output.held <= BUDGET);
		}
	}
	/* The counter covers the output that is held, and that output is the newest. */
	assert_true(file_bytes(crowd) + replay_bytes(crowd) <=
		    exec_of_service(w->service)->output.held);
	assert_int_equal(exec_of(crowd->all[0])->replay.count, 0);
	assert_int_equal(replay_last(&exec_of(crowd->all[MANY - 1])->replay), EVENTS);
	assert_true(replay_bytes(crowd) > BUDGET / 8);
	crowd_free(crowd);
}

static void test_tenant_within_its_share_loses_no_output(void **state)
{
	struct crowd *crowd = crowd_new();
	struct world *w = *state;

	output_budget_init(&exec_of_service(w->service)->output, BUDGET);
	struct sandbox *small = add_sandbox(w, crowd, "small");
	for (int i = 0; i < 8; i++)
		print(small, EVENT_LEN);
	while (crowd->n < 150) {
		struct sandbox *s = add_sandbox(w, crowd, "greedy");

		for (unsigned i = 0; i < EVENTS; i++)
			print(s, EVENT_LEN);
	}
	assert_true(exec_of_service(w->service)->output.held <= BUDGET);
	assert_int_equal(exec_of(small)->replay.count, 8);
	/* One more tenant makes the shares smaller, but this tenant is still within its share. */
	struct sandbox *other = add_sandbox(w, crowd, "other");
	for (int i = 0; i < 8; i++)
		print(other, EVENT_LEN);
	assert_int_equal(exec_of(other)->replay.count, 8);
	assert_int_equal(exec_of(small)->replay.count, 8);
	crowd_free(crowd);
}

static void test_child_counts_only_output_it_does_not_share(void **state)
{
	struct crowd *crowd = crowd_new();
	struct world *w = *state;

	output_budget_init(&exec_of_service(w->service)->output, BUDGET);
	struct sandbox *parent = add_sandbox(w, crowd, TENANT);
	for (int i = 0; i < 8; i++)
		print(parent, EVENT_LEN);
	size_t before = exec_of_service(w->service)->output.held;
	for (int i = 0; i < 10; i++) {
		struct sandbox *child = add_sandbox(w, crowd, TENANT);

		assert_int_equal(replay_copy(&exec_of(child)->replay, &exec_of(parent)->replay), 0);
	}
	assert_true(exec_of_service(w->service)->output.held - before < 10 * EVENT_LEN);
	crowd_free(crowd);
	assert_int_equal(exec_of_service(w->service)->output.held, 0);
}

#define LINES 4

static bool holds_little(void *arg)
{
	const struct service *c = arg;

	return !output_is_over(&exec_of_service(c)->output);
}

static bool holds_a_long_line(void *arg)
{
	const struct service *c = arg;

	return exec_of_service(c)->output.held > 12000000;
}

/* Each sandbox prints part of a line and then nothing. All of the text arrives, in parts, and is
 * not held. */
static void test_unfinished_lines_are_cut_over_the_budget(void **state)
{
	struct world *w = *state;
	struct made m[LINES];
	struct run r[LINES];

	output_budget_init(&exec_of_service(w->service)->output, 3 << 20);
	for (int i = 0; i < LINES; i++) {
		world_create(w, &m[i], NULL);
		r[i] = (struct run){0};
		world_exec_start(w, &r[i], m[i].view.id, "big 1000000\nwait", false);
	}
	world_until_waiting(w, LINES);
	world_until(w, holds_little, w->service);
	fakes_go(w->fakes);
	for (int i = 0; i < LINES; i++) {
		world_until_true(w, &r[i].over);
		assert_int_equal(r[i].bytes, 1000000);
		assert_true(r[i].started && !r[i].failed);
	}
}

/* Prints a line of this length and returns the number of its events. */
static unsigned events_of_a_line(struct world *w, const char *id, unsigned len)
{
	char script[32];
	struct run r = {0};

	snprintf(script, sizeof(script), "big %u", len);
	world_exec(w, &r, id, script);
	assert_false(r.failed);
	assert_int_equal(r.bytes, len);
	return r.events - 1; /* without the exit */
}

static void test_line_of_up_to_16_mib_is_one_event(void **state)
{
	struct world *w = *state;
	struct history h;
	struct made m;

	world_create(w, &m, NULL);
	assert_int_equal(events_of_a_line(w, m.view.id, 10), 1);
	assert_int_equal(events_of_a_line(w, m.view.id, 4000000), 1);
	assert_int_equal(events_of_a_line(w, m.view.id, 16 << 20), 1);
	world_history(w, &h, m.view.id);
	assert_true(h.bytes >= 16 << 20);
	assert_int_equal(events_of_a_line(w, m.view.id, (16 << 20) + 1), 2);
}

/* Also if another instance of the service reads the rest of it. */
static void test_long_line_survives_the_service(void **state)
{
	struct world *w = *state;
	struct history h;
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "big 12000000\nwait\nbig 1000", false);
	world_until_waiting(w, 1);
	world_until(w, holds_a_long_line, w->service);
	world_kill_service(w);
	world_start_service(w);
	fakes_go(w->fakes);
	do {
		world_run_for(w, 1);
		world_history(w, &h, m.view.id);
	} while (!strstr(h.text, "="));
	assert_int_equal(h.bytes, 12001000);
}

static void test_budget_is_empty_when_all_sandboxes_are_gone(void **state)
{
	struct world *w = *state;
	struct made m;
	struct done d;
	struct run r;

	assert_int_equal(exec_of_service(w->service)->output.held, 0);
	assert_true(exec_of_service(w->service)->output.most >= 64u << 20); /* the default */
	world_create(w, &m, NULL);
	world_exec(w, &r, m.view.id, "out one\nbig 200000\nout two");
	assert_true(exec_of_service(w->service)->output.held > 200000);
	world_delete(w, &d, m.view.id);
	assert_false(d.failed);
	assert_int_equal(exec_of_service(w->service)->output.held, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_output_of_many_sandboxes_stays_within_the_budget),
		TEST(test_tenant_within_its_share_loses_no_output),
		TEST(test_child_counts_only_output_it_does_not_share),
		TEST(test_unfinished_lines_are_cut_over_the_budget),
		TEST(test_line_of_up_to_16_mib_is_one_event),
		TEST(test_long_line_survives_the_service),
		TEST(test_budget_is_empty_when_all_sandboxes_are_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
