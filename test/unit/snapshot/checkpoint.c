// SPDX-License-Identifier: Apache-2.0
/* Checkpoints: what they hold and where, what is started from them, and that each failure leaves
 * nothing. */
#include <fcntl.h>
#include <unistd.h>

#include "orchestrator/exec/queue.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/snapshot/state.h"
#include "orchestrator/store/store-internal.h"
#include "test/unit/service/world.h"

static bool memory_is_low;

bool __wrap_host_memory_low(void);
bool __wrap_host_memory_low(void)
{
	return memory_is_low;
}

struct taken {
	bool done, ok;
	char id[SANDBOX_ID_LEN + 1];
	struct failure failure;
	struct op *call;
};

static void on_taken(void *arg, const struct checkpoint_view *view, const struct failure *f)
{
	struct taken *t = arg;

	t->done = true;
	t->ok = view != NULL;
	if (view)
		memcpy(t->id, view->id, sizeof(t->id));
	else
		t->failure = *f;
}

static void take_start(struct world *w, struct taken *t, const char *id)
{
	const struct checkpoint_spec spec = {.name = "n", .labels = "{\"a\":\"b\"}"};

	*t = (struct taken){0};
	t->call = service_checkpoint(w->service, TENANT, id, &spec, on_taken, t);
}

static void take(struct world *w, struct taken *t, const char *id)
{
	take_start(w, t, id);
	world_until_true(w, &t->done);
}

static void on_started(void *arg, const struct service_forked *forked, const struct failure *f)
{
	struct forked *k = arg;

	k->done = true;
	k->ok = !f;
	if (f) {
		k->failure = *f;
		return;
	}
	k->n = 0;
	for (unsigned i = 0; i < forked->n; i++) {
		assert_true(!forked->ids[i] == !!forked->errors[i]);
		if (forked->ids[i])
			memcpy(k->ids[k->n++], forked->ids[i], sizeof(k->ids[0]));
	}
}

static void fork_from_start(struct world *w, struct forked *k, const char *id, unsigned n)
{
	*k = (struct forked){0};
	k->call = service_fork_from(w->service, TENANT, id, &(struct fork_spec){.n = n}, on_started,
				    k);
}

static void drop(struct world *w, struct done *d, const char *id)
{
	*d = (struct done){0};
	service_checkpoint_delete(w->service, TENANT, id, world_on_done, d);
	world_until_true(w, &d->done);
}

static void fork_from(struct world *w, struct forked *k, const char *id, unsigned n)
{
	fork_from_start(w, k, id, n);
	world_until_true(w, &k->done);
}

/* Makes the folder of Spaces unusable, so that checkpoints stay in memory. */
static void block_disk(const struct world *w, bool blocked)
{
	char path[CONFIG_PATH_MAX + 16], moved[CONFIG_PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/spaces", w->config.state_dir);
	snprintf(moved, sizeof(moved), "%s.moved", path);
	if (blocked) {
		assert_int_equal(rename(path, moved), 0);
		close(creat(path, 0600));
	} else {
		assert_int_equal(unlink(path), 0);
		assert_int_equal(rename(moved, path), 0);
	}
}

static bool nothing_is_unwritten(void *arg)
{
	return world_metric(arg, "checkpoints_unstored") == 0;
}

static bool write_has_failed(void *arg)
{
	const struct world *w = arg;

	return snapshots_of_service(w->service)->write_at_ms != 0;
}

static bool one_is_unwritten(void *arg)
{
	return world_metric(arg, "checkpoints_unstored") == 1;
}

static bool pool_is_full(void *arg)
{
	struct world *w = arg;

	return world_metric(w, "blank_vms_ready") + world_metric(w, "warm_ready") ==
	       w->config.pool_blank_vms + w->config.pool_warm;
}

static const char *state_of(struct world *w, const char *id)
{
	struct checkpoint_view view;
	struct failure f;

	return service_checkpoint_view(w->service, TENANT, id, &view, &f) ? view.state : "none";
}

static void expect_marks(struct world *w, const struct forked *k, unsigned n, const char *mark)
{
	struct run r;

	assert_true(k->ok);
	assert_int_equal(k->n, n);
	for (unsigned i = 0; i < n; i++) {
		world_exec(w, &r, k->ids[i], "marked");
		assert_string_equal(r.out, mark);
	}
}

struct files {
	struct world *w;
	const char *id;
};

static bool files_are_gone(void *arg)
{
	const struct files *of = arg;
	char path[CONFIG_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/spaces/%s", of->w->config.state_dir, of->id);
	return access(path, F_OK) < 0;
}

static void test_one_in_memory_starts_sandboxes_and_is_lost_with_the_service(void **state)
{
	struct world *w = *state;
	struct files files = {.w = w};
	struct taken t;
	struct forked k;
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	world_exec(w, &r, m.view.id, "mark before");
	block_disk(w, true);
	take(w, &t, m.view.id);
	assert_true(t.ok);
	world_exec(w, &r, m.view.id, "mark after");
	fork_from(w, &k, t.id, 3);
	assert_string_equal(state_of(w, t.id), "memory");
	expect_marks(w, &k, 3, "before");
	world_kill_service(w);
	block_disk(w, false);
	world_start_service(w);
	assert_string_equal(state_of(w, t.id), "none");
	assert_int_equal(world_metric(w, "sandboxes"), 4);
	files.id = t.id;
	world_until(w, files_are_gone, &files);
}

static void test_a_stored_one_gives_its_memory_back_and_survives(void **state)
{
	struct world *w = *state;
	struct run r = {0}, call = {0};
	struct history h;
	struct taken t;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	world_exec(w, &r, m.view.id, "mark kept");
	world_exec_start(w, &call, m.view.id, "out one\nraw ha\nwait\nraw lf", false);
	world_until_waiting(w, 1);
	take(w, &t, m.view.id);
	assert_true(t.ok);
	world_until(w, nothing_is_unwritten, w);
	assert_string_equal(state_of(w, t.id), "stored");
	assert_null(space_of(w->service, t.id)->checkpoint->image);
	world_kill_service(w);
	world_start_service(w);
	assert_string_equal(state_of(w, t.id), "stored");
	fork_from(w, &k, t.id, 2);
	assert_true(k.ok && k.n == 2);
	world_until_waiting(w, 3);
	fakes_go(w->fakes);
	expect_marks(w, &k, 2, "kept");
	for (int i = 0; i < 2; i++) {
		world_history(w, &h, k.ids[i]);
		assert_non_null(strstr(h.text, "half|=0"));
	}
}

/* Changed while it is in memory, and again when it is on disk. */
static void test_its_labels_and_score_survive(void **state)
{
	struct world *w = *state;
	struct checkpoint_change in_memory = {.labels = "{\"a\":\"1\"}", .name = "first"};
	struct checkpoint_change on_disk = {.score = {true, 2.5}};
	struct checkpoint_view view;
	struct failure f;
	struct taken t;
	struct made m;

	world_create(w, &m, NULL);
	block_disk(w, true);
	take(w, &t, m.view.id);
	assert_true(service_checkpoint_change(w->service, TENANT, t.id, &in_memory, &f));
	block_disk(w, false);
	snapshots_of_service(w->service)->write_at_ms = 0;
	checkpoints_check(w->service);
	world_until(w, nothing_is_unwritten, w);
	assert_true(service_checkpoint_change(w->service, TENANT, t.id, &on_disk, &f));
	world_kill_service(w);
	world_start_service(w);
	assert_true(service_checkpoint_view(w->service, TENANT, t.id, &view, &f));
	assert_string_equal(view.labels, "{\"a\":\"1\"}");
	assert_string_equal(view.name, "first");
	assert_true(view.score.given && view.score.value == 2.5);
}

static void test_one_that_cannot_be_written_is_tried_again(void **state)
{
	struct world *w = *state;
	struct taken t;
	struct made m;

	world_create(w, &m, NULL);
	block_disk(w, true);
	take(w, &t, m.view.id);
	world_run_for(w, 200);
	assert_string_equal(state_of(w, t.id), "memory");
	block_disk(w, false);
	snapshots_of_service(w->service)->write_at_ms = 0;
	checkpoints_check(w->service);
	world_until(w, nothing_is_unwritten, w);
	assert_string_equal(state_of(w, t.id), "stored");
}

static void test_bytes_in_memory_count_for_the_limit(void **state)
{
	struct world *w = *state;
	struct checkpoint_view view;
	struct done deleted;
	struct failure f;
	struct taken t;
	struct made m;

	world_create(w, &m, NULL);
	uint64_t *used = &tenant_find(w->service, TENANT)->spaces_bytes;
	block_disk(w, true);
	take(w, &t, m.view.id);
	assert_true(service_checkpoint_view(w->service, TENANT, t.id, &view, &f));
	const uint64_t bytes = view.bytes;
	assert_string_equal(view.state, "memory");
	assert_true(bytes >= 3 * 4096); /* state, memory, disk */
	assert_int_equal(*used, bytes);
	*used = UINT64_MAX - bytes + 1; /* there is no key, and no other limit */
	take(w, &t, m.view.id);
	assert_int_equal(t.failure.code, FAIL_QUOTA_REACHED);
	assert_int_equal(world_metric(w, "checkpoints"), 1);
	*used = UINT64_MAX - bytes;
	take(w, &t, m.view.id);
	assert_true(t.ok);
	*used = 2 * bytes;
	drop(w, &deleted, t.id);
	assert_int_equal(*used, bytes);
	block_disk(w, false);
	snapshots_of_service(w->service)->write_at_ms = 0;
	checkpoints_check(w->service);
	world_until(w, nothing_is_unwritten, w);
	assert_true(service_checkpoint_view(w->service, TENANT, view.id, &view, &f));
	assert_string_equal(view.state, "stored");
	assert_int_equal(*used, view.bytes); /* pages of zeros are not written */
}

static void test_none_is_taken_when_memory_is_short(void **state)
{
	struct world *w = *state;
	struct taken t;
	struct made m;

	world_create(w, &m, NULL);
	memory_is_low = true;
	take(w, &t, m.view.id);
	memory_is_low = false;
	assert_int_equal(t.failure.code, FAIL_NO_CAPACITY);
	take(w, &t, m.view.id);
	assert_true(t.ok);
}

static void test_its_time_ends_unless_it_is_pinned(void **state)
{
	struct world *w = *state;
	struct taken pinned, other;
	struct checkpoint_change pin = {.pin = CHANGE_TRUE, .score = {true, 1}};
	struct files files = {.w = w};
	struct failure f;
	struct made m;

	world_create(w, &m, NULL);
	take(w, &pinned, m.view.id);
	take(w, &other, m.view.id);
	assert_true(service_checkpoint_change(w->service, TENANT, pinned.id, &pin, &f));
	space_of(w->service, pinned.id)->checkpoint->expires_at_ms = 1;
	space_of(w->service, other.id)->checkpoint->expires_at_ms = 1;
	world_until(w, nothing_is_unwritten, w);
	checkpoints_check(w->service);
	assert_string_equal(state_of(w, pinned.id), "stored");
	assert_string_equal(state_of(w, other.id), "none");
	files.id = other.id;
	world_until(w, files_are_gone, &files);
	assert_int_equal(world_metric(w, "checkpoints"), 1);
}

static void test_one_that_is_started_from_cannot_be_deleted(void **state)
{
	struct world *w = *state;
	struct taken t;
	struct forked k;
	struct done deleted;
	struct made m;

	world_create(w, &m, NULL);
	take(w, &t, m.view.id);
	world_until(w, nothing_is_unwritten, w);
	fork_from_start(w, &k, t.id, 1);
	drop(w, &deleted, t.id);
	assert_int_equal(deleted.failure.code, FAIL_IN_USE);
	space_of(w->service, t.id)->checkpoint->expires_at_ms = 1;
	checkpoints_check(w->service);
	assert_string_equal(state_of(w, t.id), "stored");
	world_until_true(w, &k.done);
	assert_true(k.ok && k.n == 1);
	drop(w, &deleted, t.id);
	assert_false(deleted.failed);
}

static void test_one_that_is_started_from_is_written_after_that(void **state)
{
	struct world *w = *state;
	struct taken t;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	take(w, &t, m.view.id);
	fork_from_start(w, &k, t.id, 1);
	const void *begun = snapshots_of_service(w->service)->writing; /* on a slow machine */
	checkpoint_write_next(w->service);
	assert_ptr_equal(snapshots_of_service(w->service)->writing, begun);
	world_until_true(w, &k.done);
	assert_true(k.ok);
	world_until(w, nothing_is_unwritten, w);
}

/* Else one tenant could keep the checkpoints of all others in memory. */
static void test_one_that_is_started_from_does_not_hold_up_others(void **state)
{
	struct world *w = *state;
	struct taken used, other;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	block_disk(w, true);
	take(w, &used, m.view.id);
	world_until(w, write_has_failed, w);
	take(w, &other, m.view.id);
	world_until(w, pool_is_full, w);
	fakes_fault(w->fakes, FAKES_SEED_WAIT, 1);
	fork_from_start(w, &k, used.id, 1);
	world_until_waiting(w, 1);
	block_disk(w, false);
	snapshots_of_service(w->service)->write_at_ms = 0;
	checkpoints_check(w->service);
	world_until(w, one_is_unwritten, w);
	assert_string_equal(state_of(w, used.id), "memory");
	assert_string_equal(state_of(w, other.id), "stored");
	fakes_go(w->fakes);
	world_until_true(w, &k.done);
	assert_true(k.ok);
	world_until(w, nothing_is_unwritten, w);
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

static void test_copies_of_a_long_line_stay_within_the_budget(void **state)
{
	enum { MIB = 1 << 20, BUDGET = 64 * MIB, ROOM = 16 * MIB };
	struct world *w = *state;
	struct output_budget *budget = &exec_of_service(w->service)->output;
	struct run r = {0};
	struct taken t;
	struct made m;

	budget->most = BUDGET;
	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "big 15000000\nwait", false);
	world_until(w, has_long_line, &(struct held_line){w, m.view.id});
	block_disk(w, true);
	for (int i = 0; i < 8; i++) {
		take(w, &t, m.view.id);
		assert_true(t.ok);
		assert_true(i || !r.bytes);
		assert_in_range(budget->held, 0, BUDGET + ROOM);
	}
	assert_int_equal(r.bytes, 15000000);
	block_disk(w, false);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
}

static void on_pruned(void *arg, const char *id, uint64_t bytes)
{
	int *n = arg;

	(void)id;
	(void)bytes;
	(*n)++;
}

/* Takes ten checkpoints, and starts sandboxes from the last. Returns how many rows of the catalogue
 * change when all are pruned. */
static int prune_ten(struct world *w, const char *id, unsigned sandboxes)
{
	const struct checkpoint_prune all = {.keeps = true};
	struct failure f;
	struct forked k;
	struct taken t;
	int n = 0;

	for (int i = 0; i < 10; i++)
		take(w, &t, id);
	if (sandboxes)
		fork_from(w, &k, t.id, sandboxes);
	const int before = sqlite3_total_changes(w->service->store->db);
	assert_true(service_checkpoints_prune(w->service, TENANT, &all, on_pruned, &n, &f));
	assert_int_equal(n, 10);
	return sqlite3_total_changes(w->service->store->db) - before;
}

/* Else a prune of 1,000 from which 1,000 others come would change a million rows. */
static void test_a_prune_moves_what_comes_from_them_once(void **state)
{
	struct world *w = *state;
	struct made m;

	world_create(w, &m, NULL);
	block_disk(w, true);
	const int with_none = prune_ten(w, m.view.id, 0);
	assert_int_equal(prune_ten(w, m.view.id, 3), with_none + 3);
	block_disk(w, false);
}

static void test_failed_and_abandoned_ones_leave_nothing(void **state)
{
	struct world *w = *state;
	struct taken t;
	struct run r;
	struct made m;

	world_create(w, &m, NULL);
	fakes_fault(w->fakes, FAKES_FORK, 1);
	take(w, &t, m.view.id);
	assert_false(t.ok);
	assert_int_equal(t.failure.code, FAIL_FORK_FAILED);
	world_lock_catalogue(w, true);
	take(w, &t, m.view.id);
	world_lock_catalogue(w, false);
	assert_int_equal(t.failure.code, FAIL_CATALOGUE);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	take_start(w, &t, m.view.id);
	world_until_waiting(w, 1);
	op_abandon(t.call);
	fakes_go(w->fakes);
	world_exec(w, &r, m.view.id, "out lives");
	assert_string_equal(r.out, "lives");
	assert_int_equal(world_metric(w, "checkpoints"), 0);
	assert_int_equal(tenant_find(w->service, TENANT)->checkpoints, 0);
}

static void test_a_child_that_fails_does_not_undo_the_others(void **state)
{
	struct world *w = *state;
	struct done deleted;
	struct taken t;
	struct forked k;
	struct made m;

	world_create(w, &m, NULL);
	take(w, &t, m.view.id);
	world_until(w, pool_is_full, w); /* its sandboxes are reseeded, too */
	fakes_fault(w->fakes, FAKES_RESEED, 1);
	fork_from(w, &k, t.id, 3);
	assert_true(k.ok);
	assert_int_equal(k.n, 2);
	world_until(w, pool_is_full, w);
	fakes_fault(w->fakes, FAKES_SEED_WAIT, 1);
	fork_from_start(w, &k, t.id, 1);
	world_until_waiting(w, 1);
	drop(w, &deleted, t.id);
	assert_int_equal(deleted.failure.code, FAIL_IN_USE);
	op_abandon(k.call);
	fakes_go(w->fakes);
	drop(w, &deleted, t.id);
	assert_false(deleted.failed);
	assert_int_equal(world_metric(w, "sandboxes"), 3);
}

/* One of the VMs dies at each step in turn. */
static void test_every_death_leaves_a_whole_checkpoint_or_none(void **state)
{
	unsigned failures = 0, deaths = 0;

	for (int step = 1; failures + deaths < 3 || step < 12; step++) {
		struct sandbox_view view;
		struct world *w;
		struct failure f;
		struct forked k;
		struct taken t;
		struct made m;

		world_setup((void **)&w);
		world_create(w, &m, NULL);
		fakes_fault(w->fakes, FAKES_DIE_STEP, step);
		take(w, &t, m.view.id);
		if (t.ok)
			fork_from(w, &k, t.id, 2);
		fakes_fault(w->fakes, FAKES_DIE_STEP, 0);
		failures += !t.ok || !k.ok || k.n < 2;
		deaths += !service_view(w->service, TENANT, m.view.id, &view, &f);
		assert_int_equal(world_metric(w, "checkpoints"), t.ok);
		world_teardown((void **)&w);
	}
}

static void on_rolled_back(void *arg, const char *to, const char *kept, const struct failure *f)
{
	struct done *d = arg;

	d->done = true;
	d->failed = f != NULL;
	if (f)
		d->failure = *f;
}

static void on_changed(void *arg, const struct failure *f)
{
	*(bool *)arg = !f;
}

static void test_a_rollback_that_fails_leaves_the_sandbox(void **state)
{
	unsigned failures = 0;

	for (int step = 1; failures < 3 || step < 12; step++) {
		struct done d = {0};
		struct sandbox_view view;
		struct world *w;
		struct failure f;
		struct taken t;
		struct made m;
		struct run r;

		world_setup((void **)&w);
		world_create(w, &m, NULL);
		world_exec(w, &r, m.view.id, "mark good");
		take(w, &t, m.view.id);
		world_exec(w, &r, m.view.id, "mark bad");
		world_until(w, pool_is_full, w);
		fakes_fault(w->fakes, FAKES_DIE_STEP, step);
		service_rollback(w->service, TENANT, m.view.id, t.id, "kept", on_rolled_back, &d);
		world_until_true(w, &d.done);
		fakes_fault(w->fakes, FAKES_DIE_STEP, 0);
		failures += d.failed;
		if (service_view(w->service, TENANT, m.view.id, &view, &f)) {
			world_exec(w, &r, m.view.id, "marked");
			assert_string_equal(r.out, d.failed ? "bad" : "good");
		}
		assert_true(world_metric(w, "sandboxes") <= 1);
		world_teardown((void **)&w);
	}
}

static void test_a_rollback_needs_no_room_in_the_tree(void **state)
{
	const struct tree_budget budget = {.live = 1};
	const struct sandbox_spec spec = {.tree = &budget};
	struct world *w = *state;
	struct done d = {0};
	struct tree_view tree;
	struct failure f;
	struct taken t;
	struct made m;

	world_create(w, &m, &spec);
	take(w, &t, m.view.id);
	service_rollback(w->service, TENANT, m.view.id, t.id, NULL, on_rolled_back, &d);
	world_until_true(w, &d.done);
	assert_false(d.failed);
	assert_true(service_tree(w->service, TENANT, m.view.id, &tree, &f));
	assert_int_equal(tree.live, 1);
}

/* The sandbox loses its network while the VM for the rollback is started, which `fails` if the
 * warden can't close that VM's network. */
static void close_during_rollback(struct world *w, bool fails)
{
	const struct sandbox_change close = {.egress = CHANGE_FALSE};
	const struct sandbox_spec open = {.config.egress = true};
	struct sandbox_view view;
	struct done d = {0};
	bool closed = false;
	struct failure f;
	struct taken t;
	struct made m;

	world_create(w, &m, &open);
	take(w, &t, m.view.id);
	world_until(w, pool_is_full, w); /* or a VM for the pool would wait instead */
	fakes_fault(w->fakes, FAKES_SEED_WAIT, 1);
	service_rollback(w->service, TENANT, m.view.id, t.id, NULL, on_rolled_back, &d);
	world_until_waiting(w, 1);
	service_change(w->service, TENANT, m.view.id, &close, on_changed, &closed);
	world_until_true(w, &closed);
	fakes_fault(w->fakes, FAKES_EGRESS, fails);
	fakes_go(w->fakes);
	world_until_true(w, &d.done);
	assert_int_equal(d.failed, fails);
	assert_true(service_view(w->service, TENANT, m.view.id, &view, &f));
	assert_false(view.config.egress);
}

static void test_a_rollback_closes_the_network_before_it_changes_the_vm(void **state)
{
	close_during_rollback(*state, false);
}

static void test_a_rollback_fails_if_the_network_cannot_be_closed(void **state)
{
	close_during_rollback(*state, true);
}

/* While their snapshots are being taken. */
static void test_a_rollback_ends_a_fork_but_not_a_freeze(void **state)
{
	struct world *w = *state;
	struct frozen frozen = {0};
	struct forked k = {0};
	struct done d = {0};
	struct taken t;
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	take(w, &t, m.view.id);
	world_exec(w, &r, m.view.id, "mark bad");
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_fork_start(w, &k, m.view.id, 2, false);
	world_until_waiting(w, 1);
	service_rollback(w->service, TENANT, m.view.id, t.id, NULL, on_rolled_back, &d);
	world_until_true(w, &d.done);
	assert_false(d.failed);
	assert_true(k.done && !k.ok);
	assert_int_equal(k.failure.code, FAIL_ROLLED_BACK);
	fakes_go(w->fakes);
	world_exec(w, &r, m.view.id, "marked");
	assert_string_equal(r.out, "");
	assert_int_equal(world_metric(w, "sandboxes"), 1);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_freeze_start(w, &frozen, m.view.id);
	world_until_waiting(w, 1);
	d = (struct done){0};
	service_rollback(w->service, TENANT, m.view.id, t.id, NULL, on_rolled_back, &d);
	world_until_true(w, &d.done);
	assert_int_equal(d.failure.code, FAIL_FREEZING);
	fakes_go(w->fakes);
	world_until_true(w, &frozen.done);
	assert_true(frozen.ok);
}

/* --- after each call ------------------------------------------------------------------------ */

static void on_undone(void *arg, const char *to, const char *kept, const struct failure *f)
{
	struct taken *t = arg;

	assert_null(kept);
	t->done = true;
	t->ok = !f;
	if (f)
		t->failure = *f;
	else
		snprintf(t->id, sizeof(t->id), "%s", to);
}

static void undo(struct world *w, struct taken *t, const char *id, uint32_t n)
{
	*t = (struct taken){0};
	t->call = service_undo(w->service, TENANT, id, n, NULL, on_undone, t);
	world_until_true(w, &t->done);
}

struct calls {
	struct world *w;
	const char *id;
};

static bool state_is_kept(void *arg)
{
	const struct calls *of = arg;
	const struct sandbox *s = sandbox_living(of->w->service, TENANT, of->id);

	return snapshots_of(s)->kept_seq == s->seq + 1 && !snapshots_of(s)->each_call &&
	       nothing_is_unwritten(of->w);
}

static void each_call(struct world *w, const char *id, uint32_t keep)
{
	const struct sandbox_change change = {.checkpoint_calls = &keep};
	bool done = false;

	service_change(w->service, TENANT, id, &change, on_changed, &done);
	world_until_true(w, &done);
}

/* Creates a sandbox with checkpoints after its calls, and waits for the first one. */
static struct calls begin_each_call(struct world *w, struct made *m, uint32_t keep)
{
	world_create(w, m, NULL);
	struct calls calls = {w, m->view.id};
	each_call(w, m->view.id, keep);
	world_until(w, state_is_kept, &calls);
	return calls;
}

/* Makes a call and waits for the checkpoint after it. */
static void call_and_keep(struct calls *calls, const char *code)
{
	struct run r;

	world_exec(calls->w, &r, calls->id, code);
	world_until(calls->w, state_is_kept, calls);
}

static bool snapshot_is_due(void *arg)
{
	const struct calls *of = arg;

	return snapshots_of(sandbox_living(of->w->service, TENANT, of->id))->each_call != NULL;
}

/* Makes a sandbox whose checkpoint after a call has been requested. Returns false if its snapshot
 * has begun already. */
static bool make_due(struct world *w, struct made *m, uint64_t *checkpoints)
{
	struct calls calls = {w, m->view.id};
	struct run first = {0};

	world_create(w, m, NULL);
	each_call(w, m->view.id, 10);
	world_until(w, state_is_kept, &calls);
	*checkpoints = world_metric(w, "checkpoints");
	world_exec(w, &first, m->view.id, "mark a");
	world_until(w, snapshot_is_due, &calls);
	if (!snapshots_of(sandbox_living(w->service, TENANT, m->view.id))->copying)
		return true;
	world_until(w, state_is_kept, &calls);
	return false;
}

static void test_a_call_overtakes_the_checkpoint(void **state)
{
	struct world *w = *state;
	struct run second = {0}, last = {0};
	uint64_t checkpoints;
	struct taken t;
	struct made m;

	while (!make_due(w, &m, &checkpoints))
		;
	struct calls calls = {w, m.view.id};
	world_exec_start(w, &second, m.view.id, "mark b", false);
	assert_false(snapshot_is_due(&calls));
	world_until_true(w, &second.over);
	world_until(w, state_is_kept, &calls);
	assert_int_equal(world_metric(w, "checkpoints"), checkpoints + 1);
	undo(w, &t, m.view.id, 1);
	assert_true(t.ok);
	world_exec(w, &last, m.view.id, "marked");
	assert_string_equal(last.out, "");
}

static void test_calls_in_a_row_are_undone_together(void **state)
{
	struct world *w = *state;
	uint32_t *quiet_ms = &snapshots_of_service(w->service)->quiet_ms;
	struct run r = {0};
	struct taken t;
	struct made m;

	struct calls calls = begin_each_call(w, &m, 10);
	*quiet_ms = 3600 * 1000;
	world_exec(w, &r, m.view.id, "mark a");
	world_exec(w, &r, m.view.id, "mark b");
	assert_false(snapshot_is_due(&calls));
	assert_int_equal(world_metric(w, "checkpoints"), 1);
	*quiet_ms = 1;
	call_and_keep(&calls, "mark c");
	assert_int_equal(world_metric(w, "checkpoints"), 2);
	undo(w, &t, m.view.id, 1);
	assert_true(t.ok);
	world_exec(w, &r, m.view.id, "marked");
	assert_string_equal(r.out, "");
}

static void test_undone_calls_do_not_push_out_the_states_before(void **state)
{
	struct world *w = *state;
	char first[SANDBOX_ID_LEN + 1] = "";
	struct run r = {0};
	struct taken t;
	struct made m;

	struct calls calls = begin_each_call(w, &m, 2);
	for (int i = 0; i < 5; i++) {
		world_exec(w, &r, m.view.id, "mark a");
		world_until(w, state_is_kept, &calls);
		undo(w, &t, m.view.id, 1);
		assert_true(t.ok);
		if (i == 0)
			memcpy(first, t.id, sizeof(first));
		assert_string_equal(t.id, first);
	}
	/* The last undone one, and two others. */
	assert_int_equal(world_metric(w, "checkpoints"), 1 + 1 + 2);
}

static void test_calls_go_on_without_room_for_checkpoints(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	struct sandbox *s = sandbox_living(w->service, TENANT, m.view.id);
	struct calls calls = {w, m.view.id};
	s->owner->spaces_bytes = UINT64_MAX;
	each_call(w, m.view.id, 10);
	world_until(w, state_is_kept, &calls);
	assert_true(snapshots_of(s)->each_call_fails);
	assert_int_equal(world_metric(w, "checkpoints"), 0);
	s->owner->spaces_bytes = 0;
	world_exec(w, &r, m.view.id, "mark a");
	assert_int_equal(r.exit_code, 0);
	world_until(w, state_is_kept, &calls);
	assert_false(snapshots_of(s)->each_call_fails);
	assert_int_equal(world_metric(w, "checkpoints"), 1);
}

static void test_those_of_an_ended_sandbox_stay_for_an_hour(void **state)
{
	struct world *w = *state;
	struct done deleted;
	struct made m;

	begin_each_call(w, &m, 10);
	const struct sandbox *s = sandbox_living(w->service, TENANT, m.view.id);
	struct space *p = snapshots_of(s)->checkpoint.to->space;
	p->created_at_ms -= 3700 * 1000;
	checkpoints_check(w->service);
	world_delete(w, &deleted, m.view.id);
	p->created_at_ms += 200 * 1000;
	checkpoints_check(w->service);
	assert_int_equal(world_metric(w, "checkpoints"), 1);
	p->created_at_ms -= 200 * 1000;
	checkpoints_check(w->service);
	assert_int_equal(world_metric(w, "checkpoints"), 0);
}

static bool is_ready(void *arg)
{
	const struct calls *of = arg;

	return sandbox_living(of->w->service, TENANT, of->id)->state == SBX_READY;
}

static void test_a_clock_that_is_set_back_keeps_the_order(void **state)
{
	struct world *w = *state;
	struct made m;

	struct calls calls = begin_each_call(w, &m, 10);
	struct sandbox *s = sandbox_living(w->service, TENANT, m.view.id);
	struct roster *all = &snapshots_of_tenant(s->owner)->checkpoints;
	all->all[0]->place.at_ms += 3600 * 1000;
	call_and_keep(&calls, "mark a");
	assert_int_equal(all->n, 2);
	assert_int_equal(all->all[1]->place.at_ms, all->all[0]->place.at_ms + 1);
}

static void test_undo_goes_on_after_a_restart(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct taken t;
	struct made m;

	struct calls calls = begin_each_call(w, &m, 10);
	call_and_keep(&calls, "mark a");
	call_and_keep(&calls, "mark b");
	undo(w, &t, m.view.id, 1);
	assert_true(t.ok);
	world_kill_service(w);
	world_start_service(w);
	world_until(w, is_ready, &calls);
	undo(w, &t, m.view.id, 1); /* not the state that it has already */
	assert_true(t.ok);
	world_exec(w, &r, m.view.id, "marked");
	assert_string_equal(r.out, "");
	world_until(w, state_is_kept, &calls);
	undo(w, &t, m.view.id, 2);
	assert_int_equal(t.failure.code, FAIL_NO_UNDO);
}

/* Runs a call, undoes it, and expects the state before it. */
static void expect_undone_to(struct world *w, const char *id, const char *mark)
{
	struct calls calls = {w, id};
	struct run r = {0};
	struct taken t;

	world_until(w, state_is_kept, &calls);
	world_exec(w, &r, id, "mark undone");
	world_until(w, state_is_kept, &calls);
	undo(w, &t, id, 1);
	assert_true(t.ok);
	world_exec(w, &r, id, "marked");
	assert_string_equal(r.out, mark);
}

/* The winner has made fewer events than the parent since the fork. */
static void test_a_call_after_a_merge_is_undone_to_the_winner(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct run r = {0};
	struct made m;
	struct done d;

	struct calls calls = begin_each_call(w, &m, 10);
	world_fork(w, &k, m.view.id, 1);
	call_and_keep(&calls, "mark a");
	call_and_keep(&calls, "mark b");
	world_exec(w, &r, k.ids[0], "mark winner");
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed);
	expect_undone_to(w, m.view.id, "winner");
}

static void test_a_call_after_a_rollback_is_undone_to_its_checkpoint(void **state)
{
	struct world *w = *state;
	struct made m, other;
	struct run r = {0};
	struct done d = {0};
	struct taken t;

	world_create(w, &m, NULL);
	world_create(w, &other, NULL);
	struct calls calls = {w, m.view.id};
	each_call(w, m.view.id, 10);
	call_and_keep(&calls, "mark a");
	world_exec(w, &r, other.view.id, "mark other");
	take(w, &t, other.view.id);
	service_rollback(w->service, TENANT, m.view.id, t.id, NULL, on_rolled_back, &d);
	world_until_true(w, &d.done);
	assert_false(d.failed);
	expect_undone_to(w, m.view.id, "other");
}

int main(void)
{
#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_one_in_memory_starts_sandboxes_and_is_lost_with_the_service),
		WORLD_TEST(test_a_stored_one_gives_its_memory_back_and_survives),
		WORLD_TEST(test_its_labels_and_score_survive),
		WORLD_TEST(test_one_that_cannot_be_written_is_tried_again),
		WORLD_TEST(test_bytes_in_memory_count_for_the_limit),
		WORLD_TEST(test_none_is_taken_when_memory_is_short),
		WORLD_TEST(test_its_time_ends_unless_it_is_pinned),
		WORLD_TEST(test_one_that_is_started_from_cannot_be_deleted),
		WORLD_TEST(test_one_that_is_started_from_is_written_after_that),
		WORLD_TEST(test_one_that_is_started_from_does_not_hold_up_others),
		WORLD_TEST(test_copies_of_a_long_line_stay_within_the_budget),
		WORLD_TEST(test_a_prune_moves_what_comes_from_them_once),
		WORLD_TEST(test_failed_and_abandoned_ones_leave_nothing),
		WORLD_TEST(test_a_child_that_fails_does_not_undo_the_others),
		WORLD_TEST(test_a_rollback_needs_no_room_in_the_tree),
		WORLD_TEST(test_a_rollback_closes_the_network_before_it_changes_the_vm),
		WORLD_TEST(test_a_rollback_fails_if_the_network_cannot_be_closed),
		WORLD_TEST(test_a_rollback_ends_a_fork_but_not_a_freeze),
		WORLD_TEST(test_a_call_overtakes_the_checkpoint),
		WORLD_TEST(test_calls_go_on_without_room_for_checkpoints),
		WORLD_TEST(test_those_of_an_ended_sandbox_stay_for_an_hour),
		WORLD_TEST(test_a_clock_that_is_set_back_keeps_the_order),
		WORLD_TEST(test_calls_in_a_row_are_undone_together),
		WORLD_TEST(test_undone_calls_do_not_push_out_the_states_before),
		WORLD_TEST(test_undo_goes_on_after_a_restart),
		WORLD_TEST(test_a_call_after_a_merge_is_undone_to_the_winner),
		WORLD_TEST(test_a_call_after_a_rollback_is_undone_to_its_checkpoint),
		cmocka_unit_test(test_every_death_leaves_a_whole_checkpoint_or_none),
		cmocka_unit_test(test_a_rollback_that_fails_leaves_the_sandbox),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
