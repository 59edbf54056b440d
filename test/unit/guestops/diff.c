// SPDX-License-Identifier: Apache-2.0
/* Diffs between sandboxes, with fake guests: results, errors and events during a diff. */
#include <stdlib.h>

#include "orchestrator/guestops/diff-merge.h"
#include "orchestrator/store/keys.h"
#include "test/unit/service/world.h"

struct outcome {
	bool done, failed;
	struct failure failure;
	char added[1024], removed[1024], modified[1024]; /* joined by | */
	size_t n;
	struct op *call;
};

static void join(char out[1024], const struct diff_found *f)
{
	size_t used = 0;

	for (size_t i = 0; i < f->n && used < 1000; i++)
		used += (size_t)snprintf(out + used, 1024 - used, "%s%s", i ? "|" : "",
					 f->paths[i]);
}

static void on_outcome(void *arg, struct service_diff *diff, const struct failure *f)
{
	struct outcome *t = arg;

	assert_false(t->done);
	assert_true((diff == NULL) != (f == NULL));
	t->done = true;
	t->failed = f != NULL;
	if (f) {
		t->failure = *f;
		return;
	}
	service_diff_sort(diff);
	join(t->added, &diff->found[DIFF_ADDED]);
	join(t->removed, &diff->found[DIFF_REMOVED]);
	join(t->modified, &diff->found[DIFF_MODIFIED]);
	for (int kind = 0; kind < DIFF_NKINDS; kind++)
		t->n += diff->found[kind].n;
	service_diff_free(diff);
}

static void start(struct world *w, struct outcome *t, const char *id, const char *other,
		  const char *path)
{
	const char *const paths[] = {path, NULL};

	*t = (struct outcome){0};
	t->call = service_diff(w->service, TENANT, id, other, paths, on_outcome, t);
	assert_false(t->done);
}

static void diff(struct world *w, struct outcome *t, const struct made pair[2], const char *path)
{
	start(w, t, pair[0].view.id, pair[1].view.id, path);
	world_until_true(w, &t->done);
}

static void make(struct world *w, struct made *m, const char *tree)
{
	struct run r;

	world_create(w, m, NULL);
	assert_true(m->ok);
	world_exec(w, &r, m->view.id, tree);
	assert_false(r.failed);
}

static void make_pair(struct world *w, struct made pair[2], const char *a, const char *b)
{
	make(w, &pair[0], a);
	make(w, &pair[1], b);
}

static void fails_with(const struct outcome *t, enum failure_code code, const char *text)
{
	assert_true(t->failed);
	assert_int_equal(t->failure.code, code);
	if (!strstr(t->failure.text, text))
		fail_msg("\"%s\" is not in \"%s\"", text, t->failure.text);
}

static bool no_diff_agents(void *arg)
{
	struct world *w = arg;

	/* Releases waiting agents, which do not notice that the service has disconnected. */
	fakes_go(w->fakes);
	/* One connection is left for each of the two sandboxes and for the warm one. */
	return fakes_agents(w->fakes) <= 3;
}

/* ------------------------------------------------------------------------------------------ */

static void test_differing_paths_are_reported(void **state)
{
	struct world *w = *state;
	struct made m[2];
	struct outcome t;

	make_pair(w, m,
		  "tree /d 40755\ntree /d/a 40755\ntree /d/a/b 100644 same\n"
		  "tree /d/a/gone 100644 x\ntree /d/a.b 100644 one\ntree /d/ab 100644 1\n"
		  "tree /d/link 120777 here\ntree /d/mode 100644 x\ntree /d/size 100644 x\n"
		  "tree /d/type 100644 x",
		  "tree /d 40755\ntree /d/a 40755\ntree /d/a/b 100644 same\n"
		  "tree /d/a.b 100644 two\ntree /d/ab 40755\ntree /d/ab/new 100644\n"
		  "tree /d/link 120777 there\ntree /d/mode 100600 x\ntree /d/size 100644 xy\n"
		  "tree /d/type 120777 x");
	diff(w, &t, m, "/.//d/./");
	assert_false(t.failed);
	assert_string_equal(t.added, "/d/ab/new");
	assert_string_equal(t.removed, "/d/a/gone");
	assert_string_equal(t.modified, "/d/a.b|/d/ab|/d/link|/d/mode|/d/size|/d/type");
	diff(w, &t, m, "/");
	assert_string_equal(t.removed, "/d/a/gone");
	world_until(w, no_diff_agents, w);
	diff(w, &t, m, "/nothing");
	assert_int_equal(t.n, 0);
}

static void test_a_sandbox_equals_itself(void **state)
{
	struct world *w = *state;
	struct made m;
	struct outcome t;

	make(w, &m, "tree /d 40755\ntree /d/a 100644 x");
	start(w, &t, m.view.id, m.view.id, "/");
	world_until_true(w, &t.done);
	assert_false(t.failed);
	assert_int_equal(t.n, 0);
}

static void test_nested_paths_are_reported_once(void **state)
{
	const char *const paths[] = {"/d/sub", "/d", "/d/sub/", "/e", NULL};
	struct world *w = *state;
	struct outcome t = {0};
	struct made m[2];

	make_pair(w, m, "tree /d 40755\ntree /d/sub 40755\ntree /e 100644 x",
		  "tree /d 40755\ntree /d/sub 40700\ntree /d/sub/new 100644");
	service_diff(w->service, TENANT, m[0].view.id, m[1].view.id, paths, on_outcome, &t);
	world_until_true(w, &t.done);
	assert_string_equal(t.added, "/d/sub/new");
	assert_string_equal(t.removed, "/e");
	assert_string_equal(t.modified, "/d/sub");
}

static void test_faster_guest_waits_for_the_slower(void **state)
{
	struct world *w = *state;
	struct made m[2];
	struct outcome t;

	make_pair(w, m, "tree many 100000", "tree wait\ntree many 100000");
	start(w, &t, m[0].view.id, m[1].view.id, "/d");
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	world_until_true(w, &t.done);
	assert_false(t.failed);
	assert_int_equal(t.n, 0);
}

static void test_diff_fails_above_the_path_limit(void **state)
{
	struct world *w = *state;
	struct made m[2];
	struct outcome t;

	make_pair(w, m, "tree /d 40755", "tree /d 40755\ntree many 200001");
	diff(w, &t, m, "/d");
	fails_with(&t, FAIL_TOO_LARGE, "more than 200000 paths differ");
	world_until(w, no_diff_agents, w);
}

static void test_diff_fails_when_a_guest_breaks_the_protocol(void **state)
{
	static const struct {
		const char *tree;
		enum failure_code code;
		const char *text;
	} wrong[] = {
		{"tree /d/b 100644\ntree /d/a 100644", FAIL_AGENT_ERROR, "out of order"},
		{"tree /d/a 100644\ntree /d/a 100644", FAIL_AGENT_ERROR, "out of order"},
		{"tree error", FAIL_AGENT_ERROR, "the disk is worn out"},
		{"tree pong", FAIL_AGENT_ERROR, "can't list /d"},
		{"tree hang-up", FAIL_AGENT_LOST, "closed"},
	};
	struct world *w = *state;
	struct made good;
	struct outcome t;

	make(w, &good, "tree /d 40755");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct made bad;
		struct done d;

		make(w, &bad, wrong[i].tree);
		start(w, &t, good.view.id, bad.view.id, "/d");
		world_until_true(w, &t.done);
		fails_with(&t, wrong[i].code, wrong[i].text);
		assert_non_null(strstr(t.failure.text, bad.view.id));
		world_delete(w, &d, bad.view.id);
	}
}

static void test_diff_fails_for_an_unknown_sandbox(void **state)
{
	struct world *w = *state;
	char nobody[SANDBOX_ID_LEN + 1];
	struct made m;
	struct outcome t;

	make(w, &m, "out x");
	snprintf(nobody, sizeof(nobody), "sbx_%032d", 0);
	start(w, &t, m.view.id, nobody, "/d");
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_NOT_FOUND, nobody);
	start(w, &t, nobody, m.view.id, "/d");
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_NOT_FOUND, nobody);
}

/* --- events during a diff ------------------------------------------------------------------- */

static void start_waiting(struct world *w, struct outcome *t, struct made m[2])
{
	make_pair(w, m, "tree /d 40755\ntree many 20000", "tree /d 40755\ntree wait");
	start(w, t, m[0].view.id, m[1].view.id, "/d");
	world_until_waiting(w, 1);
}

static void test_diff_fails_when_a_sandbox_is_deleted(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 2; i++) {
		struct made m[2];
		struct done d;
		struct outcome t;

		start_waiting(w, &t, m);
		world_delete_start(w, &d, m[i].view.id);
		world_until_true(w, &t.done);
		fails_with(&t, FAIL_DELETED, m[i].view.id);
		world_until_true(w, &d.done);
		assert_false(d.failed);
		world_delete(w, &d, m[!i].view.id);
	}
}

static void test_diff_fails_when_a_guest_dies(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 2; i++) {
		struct made m[2];
		struct done d;
		struct run r;
		struct outcome t;

		start_waiting(w, &t, m);
		world_exec(w, &r, m[i].view.id, "die");
		world_until_true(w, &t.done);
		assert_true(t.failed);
		assert_true(t.failure.code == FAIL_VM_DIED || t.failure.code == FAIL_AGENT_LOST);
		world_delete(w, &d, m[!i].view.id);
		assert_false(d.failed);
	}
}

/* Compares with the parent, which gets another VM, and then with the winner, whose id is
 * removed. */
static void test_diff_fails_when_a_sandbox_is_merged(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 2; i++) {
		struct made m[2];
		struct forked k;
		struct done d;
		struct outcome t;

		start_waiting(w, &t, m);
		op_abandon(t.call);
		world_until(w, no_diff_agents, w);
		world_fork(w, &k, m[1].view.id, 1);
		assert_true(k.ok);
		start(w, &t, m[0].view.id, i ? k.ids[0] : m[1].view.id, "/d");
		world_merge(w, &d, m[1].view.id, k.ids[0]);
		assert_false(d.failed);
		world_until_true(w, &t.done);
		fails_with(&t, FAIL_MERGED_DURING_CALL, "merged");
		world_delete(w, &d, m[0].view.id);
		world_delete(w, &d, m[1].view.id);
	}
}

static void test_abandoned_diff_closes_its_connections(void **state)
{
	struct world *w = *state;
	struct made m[2];
	struct outcome t;

	start_waiting(w, &t, m);
	op_abandon(t.call);
	world_until(w, no_diff_agents, w);
	/* Abandons a diff immediately, and one whose answer is ready but not delivered yet. */
	start(w, &t, m[0].view.id, m[1].view.id, "/d");
	op_abandon(t.call);
	start(w, &t, m[0].view.id, "sbx_ffffffffffffffffffffffffffffffff", "/d");
	op_abandon(t.call);
	world_until(w, no_diff_agents, w);
	assert_false(t.done);
}

static void test_number_of_diffs_is_limited(void **state)
{
	struct world *w = *state;
	struct outcome t[9];
	struct made m[2];

	start_waiting(w, &t[0], m);
	for (int i = 1; i < 9; i++)
		start(w, &t[i], m[0].view.id, m[1].view.id, "/d");
	world_until_true(w, &t[8].done);
	fails_with(&t[8], FAIL_SERVICE_BUSY, "8");
	assert_int_not_equal(t[8].failure.retry_after, 0);
	for (int i = 0; i < 8; i++)
		op_abandon(t[i].call);
}

static void test_diffs_of_one_tenant_are_limited(void **state)
{
	struct world *w = *state;
	const struct key *keys[2];
	struct outcome t[5], other;
	char text[KEY_TEXT_LEN + 1];
	struct made m[2];
	struct err e;

	for (int i = 0; i < 2; i++)
		assert_int_equal(keys_create(service_keys(w->service), "a test", "pro", NULL, text,
					     &keys[i], &e),
				 0);
	world_tenant = keys[0]->tenant;
	start_waiting(w, &t[0], m);
	for (int i = 1; i < 5; i++)
		start(w, &t[i], m[0].view.id, m[1].view.id, "/d");
	world_until_true(w, &t[4].done);
	fails_with(&t[4], FAIL_TOO_MANY, "of this tenant");
	world_tenant = keys[1]->tenant;
	make_pair(w, m, "tree /d 40755", "tree /d 40755");
	diff(w, &other, m, "/d");
	assert_false(other.failed || t[3].done);
	world_tenant = TENANT_LOCAL;
	for (int i = 0; i < 4; i++)
		op_abandon(t[i].call);
}

static void test_interrupted_diff_can_be_repeated_after_a_service_crash(void **state)
{
	struct world *w = *state;
	struct made m[2];
	struct outcome t;

	start_waiting(w, &t, m);
	world_kill_service(w);
	assert_false(t.done);
	world_start_service(w);
	start(w, &t, m[0].view.id, m[1].view.id, "/d");
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_NOT_READY, m[0].view.id);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_differing_paths_are_reported),
		TEST(test_a_sandbox_equals_itself),
		TEST(test_nested_paths_are_reported_once),
		TEST(test_faster_guest_waits_for_the_slower),
		TEST(test_diff_fails_above_the_path_limit),
		TEST(test_diff_fails_when_a_guest_breaks_the_protocol),
		TEST(test_diff_fails_for_an_unknown_sandbox),
		TEST(test_diff_fails_when_a_sandbox_is_deleted),
		TEST(test_diff_fails_when_a_guest_dies),
		TEST(test_diff_fails_when_a_sandbox_is_merged),
		TEST(test_abandoned_diff_closes_its_connections),
		TEST(test_number_of_diffs_is_limited),
		TEST(test_diffs_of_one_tenant_are_limited),
		TEST(test_interrupted_diff_can_be_repeated_after_a_service_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
