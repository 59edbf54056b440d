// SPDX-License-Identifier: Apache-2.0
/* Forks: what children have and have not, and that all is undone whatever goes wrong. */
#include <stdlib.h>
#include <unistd.h>

#include "test/unit/core/world.h"

static struct core_stats stats_of(struct world *w)
{
	struct core_stats stats;

	core_stats(w->core, &stats);
	return stats;
}

/* Only the pool and `sandboxes` are there. */
struct calm {
	struct world *w;
	unsigned sandboxes;
};

static bool is_calm(void *arg)
{
	struct calm *calm = arg;
	struct core_stats stats = stats_of(calm->w);
	unsigned pool = calm->w->config.pool_blank_vms + calm->w->config.pool_warm;

	return stats.sandboxes == calm->sandboxes && core_ready(calm->w->core) &&
	       stats.blank_vms_ready + stats.warm_ready == pool &&
	       fakes_slots(calm->w->fakes) == calm->sandboxes + pool &&
	       fakes_agents(calm->w->fakes) == calm->sandboxes + calm->w->config.pool_warm;
}

static void until_calm(struct world *w, unsigned sandboxes)
{
	struct calm calm = {w, sandboxes};

	world_until(w, is_calm, &calm);
}

static bool one_waits(void *arg)
{
	return fakes_waiting(arg) == 1;
}

static void expect_history(struct world *w, const char *id, const char *text)
{
	struct history h;

	world_history(w, &h, id);
	assert_string_equal(h.text, text);
}

struct told {
	struct world *w;
	const char *id, *text;
};

static bool is_told(void *arg)
{
	const struct told *told = arg;
	struct history h;

	world_history(told->w, &h, told->id);
	return !strcmp(h.text, told->text);
}

/* --- what a child has ----------------------------------------------------------------------- */

static bool is_one_of(const char *id, const struct forked *k)
{
	for (unsigned i = 0; i < k->n; i++)
		if (strcmp(id, k->ids[i]) == 0)
			return true;
	return false;
}

static void test_children_are_sandboxes_of_their_own(void **state)
{
	const char *const env[] = {"K=v", NULL};
	struct sandbox_spec spec = {
		.env = env, .metadata = "{\"m\":1}", .timeout_s = 77, .idle_timeout_s = 66};
	struct world *w = *state;
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
		assert_true(core_view(w->core, TENANT, k.ids[i], &view, &f));
		assert_string_equal(view.state, "ready");
		assert_string_equal(view.parent, m.view.id);
		assert_string_equal(view.metadata, "{\"m\":1}");
		assert_int_equal(view.ram_mib, m.view.ram_mib);
		assert_int_equal(view.expires_at_ms, view.created_at_ms + 77000);
		assert_null(view.children[0]);
		expect_history(w, k.ids[i], "before|=0");
		world_exec(w, &r, k.ids[i], "env");
		assert_string_equal(r.out, "K=v ");
		assert_int_equal(r.first_seq, 3); /* after the parent's */
	}
	assert_true(core_view(w->core, TENANT, m.view.id, &view, &f));
	for (int i = 0; i < 3; i++) /* of one age, in any order */
		assert_true(is_one_of(view.children[i], &k));
	assert_null(view.children[3]);
	expect_history(w, m.view.id, "before|=0");
	struct core_stats stats = stats_of(w);
	assert_int_equal(stats.forks, 1);
	assert_int_equal(stats.sandboxes, 4);
	until_calm(w, 4);
}

static void test_seeds_of_user_generators_part_only_when_asked(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	until_calm(w, 1);
	unsigned all = fakes_reseeds(w->fakes), user = fakes_user_reseeds(w->fakes);
	assert_int_equal(all, user); /* what comes from the template always gets them */
	w->config.pool_blank_vms = 1;
	world_fork(w, &k, m.view.id, 2);
	assert_int_equal(fakes_reseeds(w->fakes), all + 2);
	assert_int_equal(fakes_user_reseeds(w->fakes), user);
	world_fork_start(w, &k, m.view.id, 2, true);
	world_until_true(w, &k.done);
	assert_int_equal(fakes_user_reseeds(w->fakes), user + 2);
}

static void test_a_running_call_goes_on_in_all(void **state)
{
	struct world *w = *state;
	struct run r = {0}, next = {0}, parents = {0};
	struct history h;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out one\nraw ha\nwait\nraw lf\nerr two\nexit 3", false);
	world_exec_start(w, &parents, m.view.id, "out alone", false);
	world_until(w, one_waits, w->fakes);
	world_fork(w, &k, m.view.id, 3);
	assert_true(k.ok);
	/* A call that comes now waits for the one that runs on. */
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
	assert_int_equal(stats_of(w).execs, 5);
	assert_int_equal(fakes_attaches(w->fakes), 3);
}

static bool three_wait(void *arg)
{
	return fakes_waiting(arg) == 3;
}

static bool has_output(void *arg)
{
	return ((const struct run *)arg)->bytes > 0;
}

/* While output streams, between, and with a client that does not read. */
static void test_no_byte_is_lost_or_doubled(void **state)
{
	enum { SIZE = 3000000 };
	struct world *w = *state;
	struct run r = {0};
	struct forked k[3];
	struct history h;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "big 1500000\nwait\nbig 1500000\nexit 5", true);
	world_until(w, has_output, &r); /* before it, the call would be the parent's alone */
	for (int i = 0; i < 3; i++) {
		if (i == 2) {
			world_until(w, three_wait, w->fakes);
			core_pause(r.call);
			fakes_go(w->fakes);
		}
		world_fork(w, &k[i], m.view.id, 1);
		assert_true(k[i].ok);
	}
	core_resume(r.call);
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

static void test_a_call_on_its_way_stays_the_parents(void **state)
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
		world_until(w, one_waits, w->fakes);
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

static void test_output_that_is_not_kept_is_told(void **state)
{
	struct world *w = *state;
	struct run r = {0}, after;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out one\nwait", false);
	world_until(w, one_waits, w->fakes);
	world_until(w, is_told, &(struct told){w, m.view.id, "one"});
	fakes_fault(w->fakes, FAKES_ATTACH, 1);
	world_fork(w, &k, m.view.id, 1);
	world_until_true(w, &k.done);
	fakes_go(w->fakes);
	world_exec(w, &after, k.ids[0], "out after");
	expect_history(w, k.ids[0], "one|agent_error|after|=0");
}

/* --- many ----------------------------------------------------------------------------------- */

static void test_what_is_out_of_range_is_named(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_fork(w, &k, m.view.id, 0);
	assert_int_equal(k.failure.status, 400);
	assert_string_equal(k.failure.code, "out_of_range");
	world_fork(w, &k, m.view.id, w->config.fork_max + 1);
	assert_int_equal(k.failure.status, 400);
	assert_non_null(strstr(k.failure.text, "1 to 32"));
	world_fork(w, &k, m.view.id, w->config.max_vms);
	assert_int_equal(k.failure.status, 503);
	assert_string_equal(k.failure.code, "no_capacity");
	assert_int_equal(k.failure.retry_after, 0); /* there will never be so many */
	world_fork(w, &k, "sbx_00000000000000000000000000000000", 1);
	assert_int_equal(k.failure.status, 404);
	assert_int_equal(stats_of(w).fork_failures, 4);
	/* All that the host has, with what is in the pool. */
	world_fork(w, &k, m.view.id, w->config.max_vms - 1);
	assert_true(k.ok);
}

static void test_forks_of_one_sandbox_wait_for_each_other(void **state)
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

static void test_a_fork_of_a_fork_of_a_fork(void **state)
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
		/* Those between go, but for the last few. */
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
	assert_true(core_view(w->core, TENANT, id, &view, &f));
	assert_string_equal(view.parent, m.view.id); /* the last that lives */
	world_merge(w, &d, m.view.id, id);
	assert_false(d.failed);
}

/* --- what goes wrong ------------------------------------------------------------------------ */

static void expect_untouched(struct world *w, const char *id)
{
	struct sandbox_view view;
	struct failure f;
	struct run r;

	until_calm(w, 1);
	world_exec(w, &r, id, "out well");
	assert_string_equal(r.out, "well");
	assert_true(core_view(w->core, TENANT, id, &view, &f));
	assert_null(view.children[0]);
}

static void test_one_child_that_fails_takes_all_with_it(void **state)
{
	static const struct {
		enum fakes_fault fault;
		const char *says;
	} cases[] = {{FAKES_SPAWN, "/dev/kvm: not permitted"},
		     {FAKES_FORK, "no space for the image"},
		     {FAKES_FILL, "torn"},
		     {FAKES_RESEED, "no entropy today"}};
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		until_calm(w, 1);
		fakes_fault(w->fakes, cases[i].fault, 1);
		world_fork(w, &k, m.view.id, 4);
		fakes_fault(w->fakes, cases[i].fault, 0);
		assert_false(k.ok);
		assert_int_equal(k.failure.status, 503);
		if (!strstr(k.failure.text, cases[i].says))
			fail_msg("\"%s\" does not say \"%s\"", k.failure.text, cases[i].says);
		expect_untouched(w, m.view.id);
	}
}

/* Eight times its 128 MiB and 256: at that it would be ended, with all that is in it. */
static void test_one_that_has_no_room_for_another_image_is_not_forked(void **state)
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

	until_calm(w, 3);
	fakes_memory(w->fakes, 6 * ram + (256ull << 20) + 1, ram);
	world_fork(w, &k, m.view.id, 2);
	assert_false(k.ok);
	assert_int_equal(k.failure.status, 503);
	assert_non_null(strstr(k.failure.text, "take 1024 of 1280 MiB, too much for another"));
	assert_int_equal(k.failure.retry_after, 0); /* its children must end, waiting is no help */
	assert_int_equal(fakes_charges(w->fakes), 2);
	until_calm(w, 3);
	world_exec(w, &r, m.view.id, "out well");
	assert_string_equal(r.out, "well");

	fakes_memory(w->fakes, ram, ram / 8);
	world_fork(w, &k, m.view.id, 2);
	assert_true(k.ok);
	assert_int_equal(fakes_charges(w->fakes), 3);
	until_calm(w, 5);
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
	assert_int_equal(fakes_charges(w->fakes), 3);
}

static void test_the_next_fork_comes_also_when_the_client_left_before_the_answer(void **state)
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
	world_until(w, one_waits, w->fakes);
	core_abandon(k.call);
	world_fork_start(w, &next, m.view.id, 1, false);
	fakes_go(w->fakes);
	world_until_true(w, &next.done);
	assert_true(next.ok);
	assert_int_equal(fakes_forks(w->fakes), 2);
}

static void test_where_nothing_counts_memory_forks_go_on(void **state)
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

/* The VM process is in the hands of its guest: it counts as dead. */
static void test_an_image_that_is_none_ends_the_parent(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_FORK_LIE, 1);
	world_fork(w, &k, m.view.id, 2);
	assert_false(k.ok);
	assert_non_null(strstr(k.failure.text, "snapshot"));
	until_calm(w, 0);
}

/* Each step any VM takes during a fork is once the last of one. */
static void test_a_vm_may_die_at_each_step(void **state)
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
		until_calm(w, 1);
		fakes_fault(w->fakes, FAKES_DIE_STEP, step);
		world_fork(w, &k, m.view.id, 3);
		fakes_fault(w->fakes, FAKES_DIE_STEP, 0);
		bool lives = core_view(w->core, TENANT, m.view.id, &view, &f);
		failures += !k.ok;
		deaths += !lives;
		if (!k.ok)
			until_calm(w, lives);
		world_teardown((void **)&w);
	}
	assert_true(failures >= 10 && deaths >= 1);
}

static bool turn_over(void *arg)
{
	int *turns = arg;

	return (*turns)-- <= 0;
}

/* After any number of the loop's turns. */
static void test_a_client_may_leave_at_any_time(void **state)
{
	struct world *w = *state;
	unsigned made = 0;
	struct made m;

	world_create(w, &m, NULL);
	for (int turns = 0; made < 3; turns += 1 + turns / 8) {
		struct forked k;
		int left = turns;

		until_calm(w, 1);
		world_fork_start(w, &k, m.view.id, 3, false);
		if (turns)
			world_until(w, turn_over, &left);
		if (k.done) {
			made++;
			for (int i = 0; i < 3; i++) {
				struct done d;

				world_delete(w, &d, k.ids[i]);
			}
		} else {
			core_abandon(k.call);
		}
		expect_untouched(w, m.view.id);
	}
}

/* The VM process is still at the image that nobody wants. */
static void test_an_image_at_a_time_also_after_a_client_left(void **state)
{
	struct world *w = *state;
	struct forked k, next;
	int turns = 50;
	struct made m;

	world_create(w, &m, NULL);
	until_calm(w, 1);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_fork_start(w, &k, m.view.id, 1, false);
	world_until(w, one_waits, w->fakes);
	core_abandon(k.call);
	until_calm(w, 1);
	world_fork_start(w, &next, m.view.id, 1, false);
	world_until(w, turn_over, &turns);
	assert_false(next.done);
	fakes_go(w->fakes);
	world_until_true(w, &next.done);
	assert_true(next.ok);
	assert_int_equal(fakes_overlaps(w->fakes), 0);
}

static void test_the_parent_may_end_at_any_time(void **state)
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
		until_calm(w, 1);
		world_fork_start(w, &k, m.view.id, 2, false);
		world_fork_start(w, &second, m.view.id, 2, false);
		if (turns)
			world_until(w, turn_over, &left);
		world_delete_start(w, &d, m.view.id);
		world_until_true(w, &k.done);
		world_until_true(w, &second.done);
		world_until_true(w, &d.done);
		if (!k.ok)
			assert_string_equal(k.failure.code, "deleted");
		made += k.ok && second.ok;
		until_calm(w, 2 * (k.ok + second.ok));
		world_teardown((void **)&w);
	}
}

static void test_the_service_may_stop_during_a_fork(void **state)
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
			world_until(w, turn_over, &left);
		world_teardown((void **)&w);
		assert_true(k.done);
		if (!k.ok)
			assert_string_equal(k.failure.code, "stopping");
	}
}

static void test_the_service_may_be_killed_during_a_fork(void **state)
{
	struct world *w = *state;
	unsigned whole = 0;
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	for (int turns = 0; !whole; turns += 1 + turns / 8) {
		struct forked k;
		int left = turns;

		until_calm(w, 1);
		world_fork_start(w, &k, m.view.id, 3, false);
		world_until(w, turn_over, &left);
		whole = stats_of(w).sandboxes - 1;
		world_kill_core(w);
		world_start_core(w);
		until_calm(w, 1 + whole);
		world_exec(w, &r, m.view.id, "out on");
		assert_string_equal(r.out, "on");
	}
	assert_int_equal(whole, 3); /* all or none */
}

static void test_a_catalogue_that_can_not_be_written_undoes_it(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	until_calm(w, 1);
	world_lock_catalogue(w, true);
	world_fork(w, &k, m.view.id, 2);
	world_lock_catalogue(w, false);
	assert_false(k.ok);
	assert_string_equal(k.failure.code, "catalogue");
	expect_untouched(w, m.view.id);
}

static void test_a_found_sandbox_is_forked_once_it_is_reached(void **state)
{
	struct world *w = *state;
	struct forked k, again;
	struct sandbox_view view;
	struct failure f;
	struct made m;

	world_create(w, &m, NULL);
	world_fork(w, &k, m.view.id, 2);
	world_kill_core(w);
	world_start_core(w);
	world_fork_start(w, &again, m.view.id, 2, false);
	world_until_true(w, &again.done);
	assert_true(again.ok);
	assert_int_equal(fakes_charges(w->fakes), 1); /* what it was charged with is forgotten */
	/* The children of the life before are still its children. */
	assert_true(core_view(w->core, TENANT, m.view.id, &view, &f));
	unsigned n = 0;
	while (view.children[n])
		n++;
	assert_int_equal(n, 4);
	assert_true(core_view(w->core, TENANT, k.ids[1], &view, &f));
	assert_string_equal(view.parent, m.view.id);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_children_are_sandboxes_of_their_own),
		TEST(test_seeds_of_user_generators_part_only_when_asked),
		TEST(test_a_running_call_goes_on_in_all),
		TEST(test_no_byte_is_lost_or_doubled),
		TEST(test_a_call_on_its_way_stays_the_parents),
		TEST(test_output_that_is_not_kept_is_told),
		TEST(test_what_is_out_of_range_is_named),
		TEST(test_forks_of_one_sandbox_wait_for_each_other),
		TEST(test_a_fork_of_a_fork_of_a_fork),
		TEST(test_one_child_that_fails_takes_all_with_it),
		TEST(test_one_that_has_no_room_for_another_image_is_not_forked),
		TEST(test_where_nothing_counts_memory_forks_go_on),
		TEST(test_the_next_fork_comes_also_when_the_client_left_before_the_answer),
		TEST(test_an_image_that_is_none_ends_the_parent),
		cmocka_unit_test(test_a_vm_may_die_at_each_step),
		TEST(test_a_client_may_leave_at_any_time),
		TEST(test_an_image_at_a_time_also_after_a_client_left),
		cmocka_unit_test(test_the_parent_may_end_at_any_time),
		cmocka_unit_test(test_the_service_may_stop_during_a_fork),
		TEST(test_the_service_may_be_killed_during_a_fork),
		TEST(test_a_catalogue_that_can_not_be_written_undoes_it),
		TEST(test_a_found_sandbox_is_forked_once_it_is_reached),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
