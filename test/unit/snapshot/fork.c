// SPDX-License-Identifier: Apache-2.0
/* Forks: what children inherit, and that every failure undoes the whole fork. */
#include <stdlib.h>
#include <unistd.h>

#include "orchestrator/exec/queue.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"
#include "test/unit/service/world.h"

/* The state to wait for: `sandboxes` sandboxes and the full pool, and nothing else. */
struct expected_count {
	struct world *w;
	unsigned sandboxes;
};

static bool only_these_are_left(void *arg)
{
	struct expected_count *want = arg;
	unsigned pool = want->w->config.pool_blank_vms + want->w->config.pool_warm;

	return world_metric(want->w, "sandboxes") == want->sandboxes &&
	       service_ready(want->w->service) &&
	       world_metric(want->w, "blank_vms_ready") + world_metric(want->w, "warm_ready") ==
		       pool &&
	       fakes_slots(want->w->fakes) == want->sandboxes + pool &&
	       fakes_agents(want->w->fakes) == want->sandboxes + want->w->config.pool_warm;
}

static void wait_until_quiesced(struct world *w, unsigned sandboxes)
{
	struct expected_count want = {w, sandboxes};

	world_until(w, only_these_are_left, &want);
}

static void expect_history(struct world *w, const char *id, const char *text)
{
	struct history h;

	world_history(w, &h, id);
	assert_string_equal(h.text, text);
}

struct expected_history {
	struct world *w;
	const char *id, *text;
};

static bool has_history(void *arg)
{
	const struct expected_history *want = arg;
	struct history h;

	world_history(want->w, &h, want->id);
	return !strcmp(h.text, want->text);
}

/* --- what a child inherits ------------------------------------------------------------------ */

static bool is_child_in(const char *id, const struct forked *k)
{
	for (unsigned i = 0; i < k->n; i++)
		if (strcmp(id, k->ids[i]) == 0)
			return true;
	return false;
}

static void test_children_are_independent_sandboxes(void **state)
{
	const char *const env[] = {"K=v", NULL};
	struct sandbox_spec spec = {.env = env,
				    .metadata = "{\"m\":1}",
				    .config.timeout_s = 77,
				    .config.idle_timeout_s = 66};
	struct world *w = *state;
	int64_t created_at_ms = 0;
	struct sandbox_view view;
	struct failure f;
	struct forked k;
	struct made m;
	struct run r;

	world_create(w, &m, &spec);
	world_exec(w, &r, m.view.id, "out before");
	world_fork(w, &k, m.view.id, 3);
	assert_true(k.ok);
	assert_int_equal(k.n, 3);
	for (int i = 0; i < 3; i++) {
		assert_true(service_view(w->service, TENANT, k.ids[i], &view, &f));
		assert_string_equal(view.state, "ready");
		assert_string_equal(view.parent, m.view.id);
		assert_string_equal(view.metadata, "{\"m\":1}");
		assert_int_equal(view.config.size.ram_mib, m.view.config.size.ram_mib);
		assert_int_equal(view.expires_at_ms, view.created_at_ms + 77000);
		created_at_ms = i ? created_at_ms : view.created_at_ms;
		assert_int_equal(view.created_at_ms, created_at_ms);
		assert_null(view.children[0]);
		expect_history(w, k.ids[i], "before|=0");
		world_exec(w, &r, k.ids[i], "env");
		assert_string_equal(r.out, "K=v ");
		assert_int_equal(r.first_seq, 3); /* after the parent's events */
	}
	assert_true(service_view(w->service, TENANT, m.view.id, &view, &f));
	for (int i = 0; i < 3; i++) /* all equally old, so in any order */
		assert_true(is_child_in(view.children[i], &k));
	assert_null(view.children[3]);
	expect_history(w, m.view.id, "before|=0");
	assert_int_equal(world_metric(w, "forks_total"), 1);
	assert_int_equal(world_metric(w, "sandboxes"), 4);
	wait_until_quiesced(w, 4);
}

static void test_user_generators_are_reseeded_only_on_request(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	wait_until_quiesced(w, 1);
	unsigned all = fakes_reseeds(w->fakes), user = fakes_user_reseeds(w->fakes);
	assert_int_equal(all, user); /* sandboxes made from the template are always reseeded */
	w->config.pool_blank_vms = 1;
	world_fork(w, &k, m.view.id, 2);
	assert_int_equal(fakes_reseeds(w->fakes), all + 2);
	assert_int_equal(fakes_user_reseeds(w->fakes), user);
	world_fork_start(w, &k, m.view.id, 2, true);
	world_until_true(w, &k.done);
	assert_int_equal(fakes_user_reseeds(w->fakes), user + 2);
}

static void test_running_call_continues_in_parent_and_children(void **state)
{
	struct world *w = *state;
	struct run r = {0}, next = {0}, parents = {0};
	struct history h;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out one\nraw ha\nwait\nraw lf\nerr two\nexit 3", false);
	world_exec_start(w, &parents, m.view.id, "out alone", false);
	world_until_waiting(w, 1);
	world_fork(w, &k, m.view.id, 3);
	assert_true(k.ok);
	/* A new call in the child waits for the one that is still running there. */
	world_exec_start(w, &next, k.ids[0], "out next", false);
	assert_false(r.over || next.started);
	fakes_go(w->fakes);
	world_until_true(w, &parents.over);
	world_until_true(w, &next.over);
	assert_string_equal(r.out, "one|half");
	assert_int_equal(r.exit_code, 3);
	assert_string_equal(parents.out, "alone");
	assert_string_equal(next.out, "next");
	for (int i = 1; i < 3; i++) {
		struct run last;

		world_exec(w, &last, k.ids[i], "out last");
		expect_history(w, k.ids[i], "one|two|half|=3|last|=0");
	}
	world_history(w, &h, k.ids[0]);
	assert_string_equal(h.text, "one|two|half|=3|next|=0");
	assert_int_equal(world_metric(w, "execs_total"), 5);
	assert_int_equal(fakes_attaches(w->fakes), 3);
}

static bool has_output(void *arg)
{
	return ((const struct run *)arg)->bytes > 0;
}

/* Forks while output streams, while the call waits, and while a client does not read. */
static void test_output_is_complete_in_parent_and_children(void **state)
{
	enum { SIZE = 3000000 };
	struct world *w = *state;
	struct run r = {0};
	struct forked k[3];
	struct history h;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "big 1500000\nwait\nbig 1500000\nexit 5", true);
	world_until(w, has_output, &r); /* before that, a fork would not copy the call */
	for (int i = 0; i < 3; i++) {
		if (i == 2) {
			world_until_waiting(w, 3);
			op_pause(r.call);
			fakes_go(w->fakes);
		}
		world_fork(w, &k[i], m.view.id, 1);
		assert_true(k[i].ok);
	}
	op_resume(r.call);
	world_until_true(w, &r.over);
	assert_int_equal(r.bytes, SIZE);
	assert_int_equal(r.exit_code, 5);
	for (int i = 0; i < 3; i++) {
		struct run end;

		world_exec(w, &end, k[i].ids[0], "out end");
		world_history(w, &h, k[i].ids[0]);
		assert_int_equal(h.bytes, SIZE + strlen("end"));
		assert_non_null(strstr(h.text, "=5|end|=0"));
	}
}

struct held_line {
	struct world *w;
	const char *id;
};

static bool has_long_line(void *arg)
{
	const struct held_line *line = arg;
	struct failure f;

	return exec_lines(sandbox_find(line->w->service, TENANT, line->id, &f)) == 15000000;
}

/* Else each of the children would get a copy of it, 75 MB in all. */
static void test_long_unfinished_line_is_delivered_in_parts_before_a_fork(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct history h;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "big 15000000\nwait\nout end\nexit 5", false);
	world_until(w, has_long_line, &(struct held_line){w, m.view.id});
	world_fork(w, &k, m.view.id, 1); /* small enough to be copied */
	assert_true(k.ok);
	world_history(w, &h, k.ids[0]);
	assert_true(r.events == 0 && h.bytes == 0);
	world_fork(w, &k, m.view.id, 5);
	assert_true(k.ok);
	assert_int_equal(r.bytes, 15000000);
	world_history(w, &h, k.ids[4]);
	assert_int_equal(h.bytes, 15000000);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
	assert_int_equal(r.bytes, 15000000 + strlen("end"));
	assert_int_equal(r.exit_code, 5);
	do {
		world_run_for(w, 1);
		world_history(w, &h, k.ids[4]);
	} while (!strstr(h.text, "=5"));
	assert_int_equal(h.bytes, 15000000 + strlen("end"));
}

static void end_sandbox(struct run *r, const struct event *ev)
{
	struct failure f;
	struct made *m = r->arg;

	if (!ev->partial)
		return;
	sandbox_end(sandbox_find(r->call->service, TENANT, m->view.id, &f), "deleted", "by a test",
		    false);
}

static void test_reader_of_such_a_part_may_end_the_sandbox(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r = {.on_event = end_sandbox, .arg = &m};
	struct forked k;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "big 15000000\nwait", false);
	world_until(w, has_long_line, &(struct held_line){w, m.view.id});
	world_fork(w, &k, m.view.id, 6);
	assert_int_equal(k.failure.code, FAIL_DELETED);
	world_until_true(w, &r.over);
}

static void test_call_not_yet_started_stays_with_the_parent(void **state)
{
	enum { LARGE = 8 << 20 };
	struct world *w = *state;
	struct run before, r = {0}, after;
	char *script = malloc(LARGE + 1);
	struct forked k;
	struct made m;

	memset(script, '\n', LARGE);
	memcpy(script, "out here", 8);
	script[LARGE] = 0;
	world_create(w, &m, NULL);
	world_exec(w, &before, m.view.id, "out before");
	for (int small = 0; small < 2; small++) {
		r = (struct run){0};
		fakes_fault(w->fakes, FAKES_CODE, 1);
		world_exec_start(w, &r, m.view.id, small ? "out here" : script, false);
		world_until_waiting(w, 1);
		world_fork(w, &k, m.view.id, 1);
		assert_true(k.ok);
		world_exec(w, &after, k.ids[0], "out after");
		assert_string_equal(after.out, "after");
		fakes_go(w->fakes);
		world_until_true(w, &r.over);
		assert_string_equal(r.out, "here");
		expect_history(w, k.ids[0],
			       small ? "before|=0|here|=0|not_forked|after|=0"
				     : "before|=0|not_forked|after|=0");
	}
	free(script);
}

static void test_child_reports_output_that_was_not_retained(void **state)
{
	struct world *w = *state;
	struct run r = {0}, after;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out one\nwait", false);
	world_until_waiting(w, 1);
	world_until(w, has_history, &(struct expected_history){w, m.view.id, "one"});
	fakes_fault(w->fakes, FAKES_ATTACH, 1);
	world_fork(w, &k, m.view.id, 1);
	world_until_true(w, &k.done);
	fakes_go(w->fakes);
	world_exec(w, &after, k.ids[0], "out after");
	expect_history(w, k.ids[0], "one|agent_error|after|=0");
	world_until_true(w, &r.over);
}

/* --- many ----------------------------------------------------------------------------------- */

static void test_counts_out_of_range_are_refused(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_fork(w, &k, m.view.id, 0);
	assert_int_equal(k.failure.code, FAIL_OUT_OF_RANGE);
	world_fork(w, &k, m.view.id, w->config.fork_max + 1);
	assert_int_equal(k.failure.code, FAIL_OUT_OF_RANGE);
	assert_non_null(strstr(k.failure.text, "1 to 32"));
	world_fork(w, &k, m.view.id, w->config.max_vms);
	assert_int_equal(k.failure.code, FAIL_NO_CAPACITY);
	assert_int_equal(k.failure.retry_after, 0); /* a retry can never succeed */
	world_fork(w, &k, "sbx_00000000000000000000000000000000", 1);
	assert_int_equal(k.failure.code, FAIL_NOT_FOUND);
	assert_int_equal(world_metric(w, "fork_failures_total"), 4);
	/* This fork takes all slots of the host, including those of the pool. */
	world_fork(w, &k, m.view.id, w->config.max_vms - 1);
	assert_true(k.ok);
}

static void test_forks_of_one_sandbox_are_serialized(void **state)
{
	struct world *w = *state;
	struct forked k[3];
	struct made m;

	world_create(w, &m, NULL);
	for (int i = 0; i < 3; i++)
		world_fork_start(w, &k[i], m.view.id, 2, false);
	for (int i = 0; i < 3; i++) {
		world_until_true(w, &k[i].done);
		assert_true(k[i].ok);
	}
	assert_int_equal(fakes_forks(w->fakes), 3);
	assert_int_equal(fakes_overlaps(w->fakes), 0);
}

static void test_chain_of_seventy_forks(void **state)
{
	struct world *w = *state;
	char ids[70][SANDBOX_ID_LEN + 1], id[SANDBOX_ID_LEN + 1];
	struct sandbox_view view;
	struct failure f;
	struct forked k;
	struct made m;
	struct done d;
	struct run r;

	world_create(w, &m, NULL);
	snprintf(id, sizeof(id), "%s", m.view.id);
	for (int i = 0; i < 70; i++) {
		world_fork(w, &k, id, 1);
		assert_true(k.ok);
		snprintf(ids[i], sizeof(ids[i]), "%s", k.ids[0]);
		/* Deletes all but the last few ancestors. */
		if (i >= 4) {
			world_delete(w, &d, ids[i - 4]);
			assert_false(d.failed);
		}
		snprintf(id, sizeof(id), "%s", k.ids[0]);
	}
	world_exec(w, &r, id, "out deep");
	assert_string_equal(r.out, "deep");
	for (int i = 66; i < 69; i++)
		world_delete(w, &d, ids[i]);
	assert_true(service_view(w->service, TENANT, id, &view, &f));
	assert_string_equal(view.parent, m.view.id); /* the closest living ancestor */
	world_merge(w, &d, m.view.id, id);
	assert_false(d.failed);
}

/* --- failures ------------------------------------------------------------------------------- */

static void expect_untouched(struct world *w, const char *id)
{
	struct sandbox_view view;
	struct failure f;
	struct run r;

	wait_until_quiesced(w, 1);
	world_exec(w, &r, id, "out well");
	assert_string_equal(r.out, "well");
	assert_true(service_view(w->service, TENANT, id, &view, &f));
	assert_null(view.children[0]);
}

static void test_fork_fails_when_one_child_fails(void **state)
{
	static const struct {
		enum fakes_fault fault;
		enum failure_code code;
		const char *expected;
	} cases[] = {{FAKES_SPAWN, FAIL_VM_FAILED, "/dev/kvm: not permitted"},
		     {FAKES_FORK, FAIL_FORK_FAILED, "no space for the image"},
		     {FAKES_FILL, FAIL_VM_FAILED, "torn"},
		     {FAKES_RESEED, FAIL_VM_FAILED, "no entropy today"}};
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		wait_until_quiesced(w, 1);
		fakes_fault(w->fakes, cases[i].fault, 1);
		world_fork(w, &k, m.view.id, 4);
		fakes_fault(w->fakes, cases[i].fault, 0);
		assert_false(k.ok);
		assert_int_equal(k.failure.code, cases[i].code);
		if (!strstr(k.failure.text, cases[i].expected))
			fail_msg("\"%s\" does not contain \"%s\"", k.failure.text,
				 cases[i].expected);
		expect_untouched(w, m.view.id);
	}
}

/* The VM's limit is 8 * 128 MiB + 256 MiB. At the limit the kernel would end the VM. */
static void test_fork_fails_at_the_memory_limit(void **state)
{
	const uint64_t ram = 128ull << 20;
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	fakes_memory(w->fakes, 6 * ram + (256ull << 20), ram);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
	assert_int_equal(fakes_charges(w->fakes), 0);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
	assert_int_equal(fakes_charges(w->fakes), 1);

	wait_until_quiesced(w, 3);
	fakes_memory(w->fakes, 6 * ram + (256ull << 20) + 1, ram);
	world_fork(w, &k, m.view.id, 2);
	assert_false(k.ok);
	assert_int_equal(k.failure.code, FAIL_FORK_FAILED);
	assert_non_null(strstr(k.failure.text, "take 1024 of 1280 MiB, too much for another"));
	assert_int_equal(k.failure.retry_after, 0); /* only the end of children frees memory */
	assert_int_equal(fakes_charges(w->fakes), 2);
	wait_until_quiesced(w, 3);
	world_exec(w, &r, m.view.id, "out well");
	assert_string_equal(r.out, "well");

	fakes_memory(w->fakes, ram, ram / 8);
	world_fork(w, &k, m.view.id, 2);
	assert_true(k.ok);
	assert_int_equal(fakes_charges(w->fakes), 3);
	wait_until_quiesced(w, 5);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
	assert_int_equal(fakes_charges(w->fakes), 3);
}

static void test_next_fork_starts_when_a_client_disconnects_during_the_memory_check(void **state)
{
	const uint64_t ram = 128ull << 20;
	struct world *w = *state;
	struct forked k, next;
	struct made m;

	world_create(w, &m, NULL);
	fakes_memory(w->fakes, ram, ram);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
	fakes_fault(w->fakes, FAKES_CHARGED_WAIT, 1);
	world_fork_start(w, &k, m.view.id, 1, false);
	world_until_waiting(w, 1);
	op_abandon(k.call);
	world_fork_start(w, &next, m.view.id, 1, false);
	fakes_go(w->fakes);
	world_until_true(w, &next.done);
	assert_true(next.ok);
	assert_int_equal(fakes_forks(w->fakes), 2);
}

static void test_fork_works_without_memory_accounting(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	fakes_memory(w->fakes, 0, 1ull << 40);
	fakes_fault(w->fakes, FAKES_CHARGED, 1);
	for (int i = 0; i < 2; i++) {
		world_fork(w, &k, m.view.id, 1);
		assert_true(k.ok);
	}
	assert_int_equal(fakes_charges(w->fakes), 1);
}

/* A VM process that sends an invalid snapshot may be controlled by its guest; it counts as dead. */
static void test_invalid_snapshot_ends_the_parent(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_FORK_LIE, 1);
	world_fork(w, &k, m.view.id, 2);
	assert_false(k.ok);
	assert_non_null(strstr(k.failure.text, "snapshot"));
	wait_until_quiesced(w, 0);
}

/* Kills a VM at each step that any VM takes during a fork. */
static void test_fork_recovers_from_vm_death_at_each_step(void **state)
{
	unsigned failures = 0, deaths = 0;

	for (int step = 1; step < 40; step++) {
		struct sandbox_view view;
		struct failure f;
		struct forked k;
		struct world *w;
		struct made m;

		world_setup((void **)&w);
		world_create(w, &m, NULL);
		wait_until_quiesced(w, 1);
		fakes_fault(w->fakes, FAKES_DIE_STEP, step);
		world_fork(w, &k, m.view.id, 3);
		fakes_fault(w->fakes, FAKES_DIE_STEP, 0);
		bool is_alive = service_view(w->service, TENANT, m.view.id, &view, &f);
		failures += !k.ok;
		deaths += !is_alive;
		if (!k.ok)
			wait_until_quiesced(w, is_alive);
		world_teardown((void **)&w);
	}
	assert_true(failures && deaths);
}

static bool turns_are_over(void *arg)
{
	int *turns = arg;

	return (*turns)-- <= 0;
}

/* The client disconnects after more and more turns of the event loop, until three forks were
 * made. */
static void test_fork_is_undone_when_the_client_disconnects(void **state)
{
	struct world *w = *state;
	unsigned made = 0;
	struct made m;

	world_create(w, &m, NULL);
	for (int turns = 0; made < 3; turns += 1 + turns / 8) {
		struct forked k;
		int left = turns;

		wait_until_quiesced(w, 1);
		world_fork_start(w, &k, m.view.id, 3, false);
		if (turns)
			world_until(w, turns_are_over, &left);
		if (k.done) {
			made++;
			for (int i = 0; i < 3; i++) {
				struct done d;

				world_delete(w, &d, k.ids[i]);
			}
		} else {
			op_abandon(k.call);
		}
		expect_untouched(w, m.view.id);
	}
}

/* The VM process is still writing the snapshot of the abandoned fork. */
static void test_next_fork_waits_for_the_snapshot_of_an_abandoned_one(void **state)
{
	struct world *w = *state;
	struct forked k, next;
	int turns = 50;
	struct made m;

	world_create(w, &m, NULL);
	wait_until_quiesced(w, 1);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_fork_start(w, &k, m.view.id, 1, false);
	world_until_waiting(w, 1);
	op_abandon(k.call);
	wait_until_quiesced(w, 1);
	world_fork_start(w, &next, m.view.id, 1, false);
	world_until(w, turns_are_over, &turns);
	assert_false(next.done);
	fakes_go(w->fakes);
	world_until_true(w, &next.done);
	assert_true(next.ok);
	assert_int_equal(fakes_overlaps(w->fakes), 0);
}

static void test_fork_fails_when_the_parent_is_deleted(void **state)
{
	unsigned made = 0;

	for (int turns = 0; made < 2; turns += 1 + turns / 4) {
		struct forked k, second;
		struct done d;
		int left = turns;
		struct world *w;
		struct made m;

		world_setup((void **)&w);
		world_create(w, &m, NULL);
		wait_until_quiesced(w, 1);
		world_fork_start(w, &k, m.view.id, 2, false);
		world_fork_start(w, &second, m.view.id, 2, false);
		if (turns)
			world_until(w, turns_are_over, &left);
		world_delete_start(w, &d, m.view.id);
		world_until_true(w, &k.done);
		world_until_true(w, &second.done);
		world_until_true(w, &d.done);
		if (!k.ok)
			assert_int_equal(k.failure.code, FAIL_DELETED);
		made += k.ok && second.ok;
		wait_until_quiesced(w, 2 * (k.ok + second.ok));
		world_teardown((void **)&w);
	}
}

static void test_fork_fails_when_the_service_stops(void **state)
{
	for (int turns = 0; turns < 40; turns += 4) {
		struct forked k;
		int left = turns;
		struct world *w;
		struct made m;

		world_setup((void **)&w);
		world_create(w, &m, NULL);
		world_fork_start(w, &k, m.view.id, 3, false);
		if (turns)
			world_until(w, turns_are_over, &left);
		world_teardown((void **)&w);
		assert_true(k.done);
		if (!k.ok)
			assert_int_equal(k.failure.code, FAIL_STOPPING);
	}
}

static void test_service_crash_during_a_fork_leaves_all_children_or_none(void **state)
{
	struct world *w = *state;
	unsigned whole = 0;
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	for (int turns = 0; !whole; turns += 1 + turns / 8) {
		struct forked k;
		int left = turns;

		wait_until_quiesced(w, 1);
		world_fork_start(w, &k, m.view.id, 3, false);
		world_until(w, turns_are_over, &left);
		whole = world_metric(w, "sandboxes") - 1;
		world_kill_service(w);
		world_start_service(w);
		wait_until_quiesced(w, 1 + whole);
		world_exec(w, &r, m.view.id, "out on");
		assert_string_equal(r.out, "on");
	}
	assert_int_equal(whole, 3); /* all children or none */
}

static void test_fork_is_undone_when_the_catalogue_cannot_be_written(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	wait_until_quiesced(w, 1);
	world_lock_catalogue(w, true);
	world_fork(w, &k, m.view.id, 2);
	world_lock_catalogue(w, false);
	assert_false(k.ok);
	assert_int_equal(k.failure.code, FAIL_CATALOGUE);
	expect_untouched(w, m.view.id);
}

static void test_adopted_sandbox_is_forked_once_it_is_reachable(void **state)
{
	struct world *w = *state;
	struct forked k, again;
	struct sandbox_view view;
	struct failure f;
	struct made m;

	world_create(w, &m, NULL);
	world_fork(w, &k, m.view.id, 2);
	world_kill_service(w);
	world_start_service(w);
	world_fork_start(w, &again, m.view.id, 2, false);
	world_until_true(w, &again.done);
	assert_true(again.ok);
	assert_int_equal(fakes_charges(w->fakes), 1); /* unknown after the restart, so measured */
	/* The children of the previous instance are still its children. */
	assert_true(service_view(w->service, TENANT, m.view.id, &view, &f));
	unsigned n = 0;
	while (view.children[n])
		n++;
	assert_int_equal(n, 4);
	assert_true(service_view(w->service, TENANT, k.ids[1], &view, &f));
	assert_string_equal(view.parent, m.view.id);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_children_are_independent_sandboxes),
		TEST(test_user_generators_are_reseeded_only_on_request),
		TEST(test_running_call_continues_in_parent_and_children),
		TEST(test_output_is_complete_in_parent_and_children),
		TEST(test_long_unfinished_line_is_delivered_in_parts_before_a_fork),
		TEST(test_reader_of_such_a_part_may_end_the_sandbox),
		TEST(test_call_not_yet_started_stays_with_the_parent),
		TEST(test_child_reports_output_that_was_not_retained),
		TEST(test_counts_out_of_range_are_refused),
		TEST(test_forks_of_one_sandbox_are_serialized),
		TEST(test_chain_of_seventy_forks),
		TEST(test_fork_fails_when_one_child_fails),
		TEST(test_fork_fails_at_the_memory_limit),
		TEST(test_fork_works_without_memory_accounting),
		TEST(test_next_fork_starts_when_a_client_disconnects_during_the_memory_check),
		TEST(test_invalid_snapshot_ends_the_parent),
		cmocka_unit_test(test_fork_recovers_from_vm_death_at_each_step),
		TEST(test_fork_is_undone_when_the_client_disconnects),
		TEST(test_next_fork_waits_for_the_snapshot_of_an_abandoned_one),
		cmocka_unit_test(test_fork_fails_when_the_parent_is_deleted),
		cmocka_unit_test(test_fork_fails_when_the_service_stops),
		TEST(test_service_crash_during_a_fork_leaves_all_children_or_none),
		TEST(test_fork_is_undone_when_the_catalogue_cannot_be_written),
		TEST(test_adopted_sandbox_is_forked_once_it_is_reachable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
