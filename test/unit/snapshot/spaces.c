// SPDX-License-Identifier: Apache-2.0
/* Spaces: a freeze and a resume keep the whole sandbox, and a failure at any step leaves either the
 * sandbox or the Space. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "orchestrator/images/bases.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-files.h"
#include "orchestrator/snapshot/space.h"
#include "orchestrator/snapshot/state.h"
#include "orchestrator/store/keys.h"
#include "orchestrator/store/store.h"
#include "test/unit/service/world.h"

/* --- calls ---------------------------------------------------------------------------------- */

static void drop(struct world *w, struct done *d, const char *id)
{
	*d = (struct done){0};
	service_space_delete(w->service, TENANT, id, world_on_done, d);
	world_until_true(w, &d->done);
}

/* --- listings ------------------------------------------------------------------------------ */

struct listing {
	unsigned n;
	char last[SANDBOX_ID_LEN + 1];
};

static void on_space(void *arg, const struct space_view *view)
{
	struct listing *l = arg;

	l->n++;
	memcpy(l->last, view->id, sizeof(l->last));
}

static unsigned spaces(struct world *w)
{
	struct listing l = {0};

	world_spaces(w, TENANT, on_space, &l);
	return l.n;
}

/* Counts the entries of a folder except lost Spaces, which a kill between a freeze's last file and
 * its commit may leave. */
static unsigned entries(struct world *w, const char *name)
{
	char path[CONFIG_PATH_MAX + 16];
	struct dirent *entry;
	unsigned n = 0;

	snprintf(path, sizeof(path), "%s/%s", w->config.state_dir, name);
	DIR *d = opendir(path);
	while (d && (entry = readdir(d)))
		n += entry->d_name[0] != '.' && !strstr(entry->d_name, ".lost");
	if (d)
		closedir(d);
	return n;
}

struct count {
	struct world *w;
	const char *name;
	unsigned n;
};

static bool has_entries(void *arg)
{
	struct count *c = arg;

	return entries(c->w, c->name) == c->n;
}

/* Waits until a folder has `n` entries, since files are removed in the background. */
static void until_entries(struct world *w, const char *name, unsigned n)
{
	struct count c = {w, name, n};

	world_until(w, has_entries, &c);
}

static bool at_once(void *arg)
{
	return true;
}

/* Runs one turn of the loop. */
static void turn_loop(struct world *w)
{
	world_until(w, at_once, NULL);
}

static bool is_gone(struct world *w, const char *id, enum failure_code code, const char *words)
{
	struct sandbox_view view;
	struct failure f;

	return !service_view(w->service, TENANT, id, &view, &f) && f.code == code &&
	       strstr(f.text, words);
}

/* Expects that the sandbox serves calls and that no trace of the freeze is left. */
static void expect_alive(struct world *w, const char *id)
{
	struct sandbox_view view;
	struct failure f;
	struct run r;

	assert_true(service_view(w->service, TENANT, id, &view, &f));
	world_exec(w, &r, id, "out alive");
	assert_string_equal(r.out, "alive");
	assert_int_equal(spaces(w), 0);
	until_entries(w, "spaces", 0);
}

/* --- all is kept ---------------------------------------------------------------------------- */

static void test_resumed_space_equals_the_sandbox(void **state)
{
	const char *const env[] = {"K=v", NULL};
	struct sandbox_spec spec = {.env = env,
				    .metadata = "{\"m\":1}",
				    .config.timeout_s = 77,
				    .config.idle_timeout_s = 66,
				    .config.egress = true};
	struct world *w = *state;
	struct space_view view;
	struct sandbox_view now;
	struct made m, again;
	struct frozen z;
	struct failure f;
	struct run r;

	world_create(w, &m, &spec);
	world_exec(w, &r, m.view.id, "out before");
	uint64_t last = r.last_seq;
	world_freeze(w, &z, m.view.id);
	assert_true(z.ok);
	assert_true(is_gone(w, m.view.id, FAIL_FROZEN, z.id));
	assert_int_equal(world_metric(w, "sandboxes"), 0);
	assert_true(service_space_view(w->service, TENANT, z.id, &view, &f));
	assert_string_equal(view.state, "frozen");
	assert_string_equal(view.sandbox, m.view.id);
	assert_string_equal(view.metadata, "{\"m\":1}");
	assert_int_equal(view.config.size.ram_mib, m.view.config.size.ram_mib);
	assert_false(service_space_view(w->service, "another", z.id, &view, &f));
	world_resume(w, &again, z.id);
	assert_true(again.ok);
	assert_string_not_equal(again.view.id, m.view.id);
	assert_int_equal(spaces(w), 0);
	assert_true(service_view(w->service, TENANT, again.view.id, &now, &f));
	assert_string_equal(now.metadata, "{\"m\":1}");
	assert_int_equal(now.expires_at_ms, now.created_at_ms + 77000);
	assert_false(now.config.persistent);
	assert_true(now.config.egress);
	world_exec(w, &r, again.view.id, "env");
	assert_string_equal(r.out, "K=v ");
	assert_true(r.first_seq > last);
	world_resume(w, &again, z.id);
	assert_false(again.ok);
	assert_int_equal(again.failure.code, FAIL_NOT_FOUND);
}

static bool has_event(void *arg)
{
	const struct run *r = arg;

	return r->events > 0;
}

static void test_running_call_continues_after_resume(void **state)
{
	struct world *w = *state;
	struct run r = {0}, waits = {0}, next = {0};
	struct made m, again;
	struct history h;
	struct frozen z;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out one\nraw ha\nwait\nraw lf\nerr two\nexit 3", false);
	world_exec_start(w, &waits, m.view.id, "out never", false);
	world_until_waiting(w, 1);
	world_until(w, has_event, &r);
	world_freeze(w, &z, m.view.id);
	assert_true(z.ok);
	world_until_true(w, &r.over);
	world_until_true(w, &waits.over);
	assert_int_equal(r.failure.code, FAIL_FROZEN);
	assert_int_equal(waits.failure.code, FAIL_FROZEN);
	assert_non_null(strstr(r.failure.text, z.id));
	world_kill_service(w);
	world_start_service(w);
	world_resume(w, &again, z.id);
	assert_true(again.ok);
	world_exec_start(w, &next, again.view.id, "out next", false);
	fakes_go(w->fakes);
	world_until_true(w, &next.over);
	assert_string_equal(next.out, "next");
	world_history(w, &h, again.view.id);
	assert_string_equal(h.text, "two|half|=3|next|=0");
}

#define CONTEXT "ctx_00000000000000000000000000000001"

static bool is_interrupted(void *arg)
{
	return fakes_asked(((struct world *)arg)->fakes, AGENT_INTERRUPT) > 0;
}

/* Releases the call again and again: the interrupt may come before it waits for the second time. */
static bool has_ended(void *arg)
{
	struct history h;
	void **args = arg;
	struct world *w = args[0];

	fakes_go(w->fakes);
	world_history(args[0], &h, args[1]);
	return strstr(h.text, "=130");
}

/* Starts a call in a context, or in the default interpreter if that is NULL. It waits for fakes_go,
 * and then to be interrupted. */
static void run_in(struct world *w, struct run *r, struct made *m, const char *context)
{
	static const char script[] = "out a\nwait\nwait\nexit 130";

	*r = (struct run){0};
	world_create(w, m, NULL);
	if (context)
		world_exec_in(w, r, m->view.id, context, script);
	else
		world_exec_start(w, r, m->view.id, script, false);
	world_until_waiting(w, 1);
}

/* Expects that the call is interrupted after a resume by the next instance of the service. */
static void expect_interrupt(struct world *w, const struct run *r, const char *space)
{
	struct made again;

	assert_int_equal(fakes_asked(w->fakes, AGENT_INTERRUPT), 0);
	world_kill_service(w);
	world_start_service(w);
	world_resume(w, &again, space);
	assert_true(again.ok);
	world_until(w, is_interrupted, w);
	void *args[] = {w, again.view.id};
	world_until(w, has_ended, args);
	assert_false(r->over);
}

static void expect_interrupt_after_freeze(struct world *w, const char *context)
{
	struct frozen z;
	struct made m;
	struct run r;

	run_in(w, &r, &m, context);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
	world_freeze_start(w, &z, m.view.id);
	world_until_waiting(w, 2);
	op_hang_up(r.call);
	fakes_go(w->fakes);
	world_until_true(w, &z.done);
	assert_true(z.ok);
	expect_interrupt(w, &r, z.id);
}

static void test_call_hung_up_during_a_freeze_is_interrupted_after_the_resume(void **state)
{
	expect_interrupt_after_freeze(*state, NULL);
}

static void test_call_of_a_context_hung_up_during_a_freeze_is_interrupted(void **state)
{
	expect_interrupt_after_freeze(*state, CONTEXT);
}

static bool has_whole_space(const struct world *w)
{
	char path[CONFIG_PATH_MAX + 16];
	const struct dirent *entry;
	bool found = false;

	snprintf(path, sizeof(path), "%s/spaces", w->config.state_dir);
	DIR *d = opendir(path);
	while (d && (entry = readdir(d)))
		found |= entry->d_name[0] != '.' && !strchr(entry->d_name, '.');
	if (d)
		closedir(d);
	return found;
}

/* Hangs up once a worker has written the Space. The loop does not know that yet: it does not run
 * while this waits for the folder to get its name. */
static bool hangs_up_at_the_end(void *arg)
{
	void **args = arg;
	struct world *w = args[0];
	const struct run *r = args[2];
	uint64_t written, total;

	freeze_progress(sandbox_living(w->service, TENANT, args[1]), &written, &total);
	if (!total)
		return false;
	while (!has_whole_space(w))
		;
	op_hang_up(r->call);
	return true;
}

static void test_hang_up_counts_until_the_freeze_is_over(void **state)
{
	struct world *w = *state;
	struct frozen z;
	struct made m;
	struct run r;

	run_in(w, &r, &m, NULL);
	world_freeze_start(w, &z, m.view.id);
	void *args[] = {w, m.view.id, &r};
	world_until(w, hangs_up_at_the_end, args);
	fakes_go(w->fakes);
	world_until_true(w, &z.done);
	assert_true(z.ok);
	expect_interrupt(w, &r, z.id);
}

static void test_resumed_sandbox_freezes_again_and_forks(void **state)
{
	struct world *w = *state;
	struct made m, again;
	struct forked k;
	struct frozen z;
	struct run r;

	world_create(w, &m, NULL);
	memcpy(again.view.id, m.view.id, sizeof(m.view.id));
	for (int i = 0; i < 4; i++) {
		world_freeze(w, &z, again.view.id);
		assert_true(z.ok);
		world_resume(w, &again, z.id);
		assert_true(again.ok);
		until_entries(w, "spaces", 1); /* the Space from which the sandbox runs */
	}
	world_fork(w, &k, again.view.id, 2);
	assert_true(k.ok);
	world_exec(w, &r, k.ids[1], "out forked");
	assert_string_equal(r.out, "forked");
	struct done d;
	world_delete(w, &d, again.view.id);
	until_entries(w, "spaces", 0);
}

static void test_closed_egress_stays_closed_after_resume(void **state)
{
	struct space_resume open = {.egress = CHANGE_TRUE};
	struct space_resume closed = {.egress = CHANGE_FALSE};
	struct world *w = *state;
	struct made m, again;
	struct frozen z;

	world_create(w, &m, &(struct sandbox_spec){.config.egress = false});
	world_freeze(w, &z, m.view.id);
	world_resume_start(w, &again, z.id, &open);
	world_until_true(w, &again.done);
	assert_int_equal(again.failure.code, FAIL_EGRESS_CLOSED);
	assert_int_equal(spaces(w), 1);
	world_resume(w, &again, z.id);
	assert_true(again.ok);
	assert_int_equal(fakes_closed_first(w->fakes), 1);
	world_create(w, &m, &(struct sandbox_spec){.config.egress = true});
	world_freeze(w, &z, m.view.id);
	world_resume_start(w, &again, z.id, &closed);
	world_until_true(w, &again.done);
	assert_true(again.ok && !again.view.config.egress);
}

/* --- by itself ------------------------------------------------------------------------------ */

static bool has_one(void *arg)
{
	return spaces(arg) == 1;
}

/* Waits for the only Space, and checks that it was made from the sandbox. */
static void expect_frozen(struct world *w, const char *id, struct listing *l)
{
	world_until(w, has_one, w);
	*l = (struct listing){0};
	world_spaces(w, TENANT, on_space, l);
	assert_true(is_gone(w, id, FAIL_FROZEN, l->last));
}

static void drop_well(struct world *w, const char *space)
{
	struct done d;

	drop(w, &d, space);
	assert_false(d.failed);
	until_entries(w, "spaces", 0);
}

static const struct sandbox_spec short_lived[] = {
	{.config.persistent = true, .config.idle_timeout_s = 1},
	{.config.persistent = true, .config.timeout_s = 1}};

static void test_persistent_sandbox_freezes_when_idle_or_expired(void **state)
{
	struct space_resume how = {.persistent = true, .idle_timeout_s = 1, .timeout_s = 900};
	struct world *w = *state;
	struct listing l;
	struct made m;

	for (size_t i = 0; i < 2; i++) {
		world_create(w, &m, &short_lived[i]);
		expect_frozen(w, m.view.id, &l);
		world_resume_start(w, &m, l.last, &how);
		world_until_true(w, &m.done);
		assert_true(m.ok && m.view.config.persistent);
		expect_frozen(w, m.view.id, &l); /* frozen again, since it is idle */
		drop_well(w, l.last);
	}
}

static void test_sandbox_that_expires_during_a_restart_freezes(void **state)
{
	struct world *w = *state;
	struct listing l;
	struct made m;

	for (size_t i = 0; i < 2; i++) {
		world_create(w, &m, &short_lived[i]);
		world_kill_service(w);
		usleep(1100000); /* its lifetime ends before its agent is reached */
		world_start_service(w);
		expect_frozen(w, m.view.id, &l);
		drop_well(w, l.last);
	}
}

/* --- failures ------------------------------------------------------------------------------- */

static void test_failed_freeze_leaves_the_sandbox(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct frozen z;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out one\nwait\nout two", false);
	world_until_waiting(w, 1);
	fakes_fault(w->fakes, FAKES_FORK, 1);
	world_freeze(w, &z, m.view.id);
	assert_int_equal(z.failure.code, FAIL_FREEZE_FAILED);
	assert_int_equal(fakes_runs(w->fakes), 0); /* it was never paused */
	world_lock_catalogue(w, true);
	world_freeze(w, &z, m.view.id);
	world_lock_catalogue(w, false);
	assert_false(z.ok);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
	assert_string_equal(r.out, "one|two");
	assert_int_equal(fakes_runs(w->fakes), 1);
	assert_int_equal(world_metric(w, "freeze_failures_total"), 2);
	expect_alive(w, m.view.id);
}

/* The call is not sent to the guest a second time. */
static void test_running_call_survives_a_freeze_without_a_disk_layer(void **state)
{
	char moved[CONFIG_PATH_MAX + 16];
	struct world *w = *state;
	struct run r = {0};
	struct frozen z;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out one\nwait\nout two", false);
	world_until_waiting(w, 1);
	snprintf(moved, sizeof(moved), "%s.moved", w->config.state_dir);
	assert_int_equal(rename(w->config.state_dir, moved), 0);
	world_freeze(w, &z, m.view.id);
	assert_int_equal(rename(moved, w->config.state_dir), 0);
	assert_int_equal(z.failure.code, FAIL_FREEZE_FAILED);
	assert_non_null(strstr(z.failure.text, "disk layer"));
	assert_int_equal(world_metric(w, "execs_total"), 1);
	fakes_go(w->fakes);
	world_until_true(w, &r.over);
	assert_string_equal(r.out, "one|two");
	expect_alive(w, m.view.id);
}

/* A file system operation that the freeze needs fails, at an early and at a later step. */
static void test_disk_error_in_a_freeze_leaves_the_sandbox(void **state)
{
	const char *const names[] = {"spaces", "bases"};
	char path[CONFIG_PATH_MAX + 16], moved[sizeof(path) + 8];
	struct world *w = *state;
	struct frozen z;
	struct made m;

	world_create(w, &m, NULL);
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", w->config.state_dir, names[i]);
		snprintf(moved, sizeof(moved), "%s.moved", path);
		assert_int_equal(rename(path, moved), 0);
		close(open(path, O_CREAT | O_CLOEXEC, 0600));
		world_freeze(w, &z, m.view.id);
		assert_int_equal(z.failure.code, FAIL_FREEZE_FAILED);
		assert_non_null(strstr(z.failure.text, path));
		assert_int_equal(unlink(path), 0);
		assert_int_equal(rename(moved, path), 0);
		expect_alive(w, m.view.id);
	}
	world_freeze(w, &z, m.view.id);
	assert_true(z.ok);
}

static void test_delete_during_a_freeze_leaves_no_space(void **state)
{
	struct world *w = *state;
	struct frozen z;
	struct made m;
	struct done d;

	for (int turns = 0; turns < 24; turns += 2) {
		world_create(w, &m, NULL);
		world_freeze_start(w, &z, m.view.id);
		for (int i = 0; i < turns * turns && !z.done; i++)
			turn_loop(w);
		world_delete(w, &d, m.view.id);
		world_until_true(w, &z.done);
		assert_true(z.ok || z.failure.code == FAIL_DELETED ||
			    z.failure.code == FAIL_FROZEN);
		if (z.ok)
			drop(w, &d, z.id);
		assert_int_equal(spaces(w), 0);
		until_entries(w, "spaces", 0);
	}
}

static void test_vm_death_fails_the_freeze(void **state)
{
	struct world *w = *state;
	struct frozen z;
	struct made m;

	for (int steps = 1; steps < 4; steps++) {
		world_create(w, &m, NULL);
		world_wait_ready(w);
		fakes_fault(w->fakes, FAKES_FORK_WAIT, 1);
		world_freeze_start(w, &z, m.view.id);
		world_until_waiting(w, 1);
		for (uint32_t slot = 0; slot < 8; slot++)
			fakes_kill(w->fakes, slot);
		fakes_go(w->fakes);
		world_until_true(w, &z.done);
		assert_false(z.ok);
		assert_int_equal(spaces(w), 0);
		until_entries(w, "spaces", 0);
	}
}

static void test_failed_resume_leaves_the_space(void **state)
{
	const enum fakes_fault faults[] = {FAKES_FILL, FAKES_RESEED, FAKES_EGRESS};
	struct world *w = *state;
	struct made m, again;
	struct frozen z;
	struct run r;

	world_create(w, &m, &(struct sandbox_spec){.config.egress = false});
	world_freeze(w, &z, m.view.id);
	world_wait_ready(w);
	for (size_t i = 0; i < 3; i++) {
		fakes_fault(w->fakes, faults[i], 1);
		world_resume(w, &again, z.id);
		assert_int_equal(again.failure.code, FAIL_VM_FAILED);
		assert_int_equal(spaces(w), 1);
		world_wait_ready(w);
	}
	world_lock_catalogue(w, true);
	world_resume(w, &again, z.id);
	world_lock_catalogue(w, false);
	assert_int_equal(again.failure.code, FAIL_CATALOGUE);
	world_resume(w, &again, z.id);
	assert_true(again.ok);
	world_exec(w, &r, again.view.id, "out alive");
	assert_string_equal(r.out, "alive");
}

static void test_one_of_two_resumes_wins(void **state)
{
	struct world *w = *state;
	struct made m, first, second;
	struct frozen z;
	struct done d;

	world_create(w, &m, NULL);
	world_freeze(w, &z, m.view.id);
	world_resume_start(w, &first, z.id, NULL);
	world_resume_start(w, &second, z.id, NULL);
	drop(w, &d, z.id);
	assert_int_equal(d.failure.code, FAIL_IN_USE);
	world_until_true(w, &first.done);
	world_until_true(w, &second.done);
	assert_true(first.ok);
	assert_int_equal(second.failure.code, FAIL_IN_USE);
}

static void test_abandoned_resume_leaves_the_space(void **state)
{
	struct world *w = *state;
	struct made m, again;
	struct frozen z;

	world_create(w, &m, NULL);
	world_freeze(w, &z, m.view.id);
	world_resume_start(w, &again, z.id, NULL);
	op_abandon(again.call);
	assert_int_equal(spaces(w), 1);
	world_resume(w, &again, z.id);
	assert_true(again.ok);
}

static void on_sandbox(void *arg, const struct sandbox_view *view)
{
	++*(unsigned *)arg;
}

static unsigned sandboxes(struct world *w)
{
	unsigned n = 0;

	world_list(w, TENANT, on_sandbox, &n);
	return n;
}

/* A moment during a resume: a number of the loop's rounds, or the end of the call. */
struct moment {
	struct world *w;
	const struct made *m;
	unsigned rounds;
	uint64_t resumes; /* before it */
};

static bool has_come(void *arg)
{
	struct moment *at = arg;

	return at->m->done || at->rounds-- == 0;
}

/* Returns whether the catalogue has the sandbox instead of the Space, but the call has not ended.
 */
static bool is_made(void *arg)
{
	const struct moment *at = arg;

	assert_false(at->m->done);
	return world_metric(at->w, "resumes_total") > at->resumes;
}

static void resume_until(struct world *w, const char *space, bool (*holds)(void *arg),
			 struct moment *at, struct made *m)
{
	*at = (struct moment){w, m, at->rounds, world_metric(w, "resumes_total")};
	world_resume_start(w, m, space, NULL);
	world_until(w, holds, at);
}

/* Freezes a sandbox, and resumes it until the catalogue has the new one. */
static void resume_until_made(struct world *w, struct frozen *z, struct moment *at, struct made *m)
{
	*at = (struct moment){0};
	world_create(w, m, NULL);
	world_freeze(w, z, m->view.id);
	resume_until(w, z->id, is_made, at, m);
}

/* Checks that the Space is all that exists, and that it can be resumed. */
static void expect_space(struct world *w, const char *id)
{
	struct listing l = {0};
	struct made m;

	world_spaces(w, TENANT, on_space, &l);
	assert_int_equal(l.n, 1);
	assert_string_equal(l.last, id);
	assert_int_equal(sandboxes(w), 0);
	assert_int_equal(entries(w, "spaces"), 1);
	world_resume(w, &m, id);
	assert_true(m.ok);
}

static void test_resume_abandoned_at_any_moment_leaves_the_space(void **state)
{
	struct moment at = {0};
	struct world *w = *state;
	struct made m;
	struct frozen z;

	world_create(w, &m, NULL);
	world_freeze(w, &z, m.view.id);
	for (unsigned rounds = 0;; rounds++) {
		at.rounds = rounds;
		resume_until(w, z.id, has_come, &at, &m);
		if (m.done)
			break;
		op_abandon(m.call);
		assert_int_equal(spaces(w), 1);
		assert_int_equal(sandboxes(w), 0);
	}
	assert_true(m.ok);
	assert_int_equal(spaces(w), 0);
}

static void test_resume_abandoned_after_its_commit_leaves_the_space(void **state)
{
	struct world *w = *state;
	struct moment at;
	struct made m;
	struct frozen z;

	resume_until_made(w, &z, &at, &m);
	assert_int_equal(sandboxes(w), 1);
	op_abandon(m.call);
	assert_int_equal(spaces(w), 1);
	assert_int_equal(sandboxes(w), 0);
	world_kill_service(w);
	world_start_service(w);
	expect_space(w, z.id);
}

static void test_resume_that_a_stop_ends_after_its_commit_leaves_the_space(void **state)
{
	struct world *w = *state;
	struct moment at;
	struct made m;
	struct frozen z;

	resume_until_made(w, &z, &at, &m);
	world_shut_down(w);
	assert_true(m.done && !m.ok);
	world_kill_service(w);
	world_start_service(w);
	expect_space(w, z.id);
}

/* --- limits of a tenant ------------------------------------------------------------------- */

static int file_in(struct world *w, const char *name, mode_t mode, size_t bytes)
{
	char path[CONFIG_PATH_MAX + 16];
	static char data[1 << 20];

	snprintf(path, sizeof(path), "%s/%s", w->config.state_dir, name);
	memset(data, 'x', sizeof(data));
	unlink(path);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, bytes), bytes);
	return fd;
}

/* Returns the bytes that a Space with these files counts for. *base_mode: mode of its base. */
static uint64_t counted_with(struct world *w, mode_t memory, mode_t layer, int base,
			     mode_t *base_mode)
{
	char path[CONFIG_PATH_MAX + 32];
	struct stat st;
	const struct vmproc_image image = {.layers = 1,
					   .disk_bytes = 4096,
					   .nfds = 4,
					   .fds = {file_in(w, "state", 0600, 1),
						   file_in(w, "memory", memory, 1 << 20), base,
						   file_in(w, "layer", layer, 1 << 20)}};
	struct space_write *write =
		space_write_new(w->config.state_dir, "sbx_x", vmproc_image_of(&image));
	int ret;

	memcpy(write->manifest.image.name, "spc_x", sizeof("spc_x"));
	write->manifest.size.ram_mib = 1;
	do
		ret = space_write_step(write);
	while (ret == 0);
	assert_int_equal(ret, 1);
	const uint64_t bytes = write->size_bytes;
	space_write_free(write);
	snprintf(path, sizeof(path), "%s/spaces/spc_x/base", w->config.state_dir);
	assert_int_equal(stat(path, &st), 0);
	*base_mode = st.st_mode & 07777;
	space_remove(w->config.state_dir, "spc_x");
	return bytes;
}

/* The base has one byte. */
static uint64_t counted(struct world *w, mode_t memory, mode_t layer)
{
	mode_t ignored;

	return counted_with(w, memory, layer, file_in(w, "base", 0600, 1), &ignored);
}

static uint64_t counted_for_base(struct world *w, int base, mode_t *mode)
{
	return counted_with(w, TEMPLATE_FILE_MODE, TEMPLATE_FILE_MODE, base, mode);
}

/* Only the mode of a disk layer tells that it is a template's: a sandbox's own layer also has a
 * link once it was in a Space, and comes first in the list once it was merged with the
 * template's. */
static void test_only_template_files_are_not_counted(void **state)
{
	struct world *w = *state;

	uint64_t least = counted(w, TEMPLATE_FILE_MODE, TEMPLATE_FILE_MODE);
	assert_in_range(least, 1, 64 << 10);
	assert_true(counted(w, TEMPLATE_FILE_MODE, 0600) >= least + (1 << 20));
	assert_true(counted(w, 0600, TEMPLATE_FILE_MODE) >= least + (1 << 20));
}

/* A file that cannot be linked into the directory of a Space. */
static int unlinkable(void)
{
	static char data[1 << 20];
	int fd = memfd_create("base", MFD_CLOEXEC);

	memset(data, 'x', sizeof(data));
	assert_int_equal(write(fd, data, sizeof(data)), sizeof(data));
	return fd;
}

/* A VM process that was taken over may name any file as the base of its disk. */
static void test_only_root_file_systems_of_templates_are_not_counted_as_a_base(void **state)
{
	struct world *w = *state;
	const char *dir = w->config.state_dir;
	struct err e;
	mode_t mode;

	uint64_t least = counted(w, TEMPLATE_FILE_MODE, TEMPLATE_FILE_MODE);
	assert_true(counted_for_base(w, file_in(w, "base", 0600, 1 << 20), &mode) >=
		    least + (1 << 20) - 4096);
	assert_true(counted_for_base(w, unlinkable(), &mode) >= least + (1 << 20) - 4096);
	assert_int_equal(mode, 0600);

	int known = file_in(w, "base", 0600, 1 << 20);
	assert_int_equal(base_remember(dir, known, &e), 0);
	assert_true(counted_for_base(w, known, &mode) <= least);
	known = unlinkable();
	assert_int_equal(base_remember(dir, known, &e), 0);
	assert_true(counted_for_base(w, known, &mode) <= least);
	/* By its mode, the copy is known when it is the base of a resumed Space. */
	assert_int_equal(mode, TEMPLATE_FILE_MODE);
	assert_true(counted_for_base(w, file_in(w, "base", TEMPLATE_FILE_MODE, 1 << 20), &mode) <=
		    least);
}

/* Writes a Space with one memory layer; returns the inode of its file. */
static ino_t stored(struct world *w, const char *id, const char *sandbox, int layer)
{
	char path[CONFIG_PATH_MAX + 32];
	struct stat st;
	const struct vmproc_image image = {.memory_layers = 1,
					   .disk_bytes = 4096,
					   .nfds = 4,
					   .fds = {file_in(w, "state", 0600, 1),
						   file_in(w, "memory", TEMPLATE_FILE_MODE, 1),
						   dup(layer), file_in(w, "base", 0600, 1)}};
	struct space_write *write =
		space_write_new(w->config.state_dir, sandbox, vmproc_image_of(&image));
	int ret;

	snprintf(write->manifest.image.name, sizeof(write->manifest.image.name), "%s", id);
	do
		ret = space_write_step(write);
	while (ret == 0);
	assert_int_equal(ret, 1);
	assert_true(write->size_bytes > 1 << 20); /* also when it is a link */
	space_write_free(write);
	snprintf(path, sizeof(path), "%s/spaces/%s/memory-1", w->config.state_dir, id);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 1 << 20);
	return st.st_ino;
}

static void change(struct world *w, const char *id)
{
	char path[CONFIG_PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/spaces/%s/memory-1", w->config.state_dir, id);
	scoped_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(write(fd, "y", 1), 1);
}

static void test_a_memory_layer_is_stored_once_for_each_sandbox(void **state)
{
	struct world *w = *state;
	const char *dir = w->config.state_dir;
	scoped_fd int layer = unlinkable();

	ino_t file = stored(w, "chk_a", "sbx_x", layer);
	assert_int_equal(stored(w, "chk_b", "sbx_x", layer), file);
	assert_true(stored(w, "chk_c", "sbx_y", layer) != file);
	space_remove(dir, "chk_a");
	space_remove(dir, "chk_c");
	assert_int_equal(stored(w, "chk_d", "sbx_x", layer), file);
	change(w, "chk_d");
	assert_true(stored(w, "chk_e", "sbx_x", layer) != file);
	space_remove(dir, "chk_b");
	space_remove(dir, "chk_d");
	space_remove(dir, "chk_e");
	stored(w, "chk_f", "sbx_x", layer);
	space_remove(dir, "chk_f");
}

/* The fake VM hands over the base that it was restored with. */
static void test_base_of_a_template_is_known(void **state)
{
	struct world *w = *state;
	struct made m;
	struct err e;

	world_create(w, &m, NULL);
	scoped_fd int rootfs = open(w->config.rootfs, O_RDONLY | O_CLOEXEC);
	assert_int_equal(base_is_known(w->config.state_dir, rootfs, &e), 1);
	scoped_fd int kernel = open(w->config.kernel, O_RDONLY | O_CLOEXEC);
	assert_int_equal(base_is_known(w->config.state_dir, kernel, &e), 0);
	world_kill_service(w);
	world_start_service(w); /* removes what no Space needs */
	assert_int_equal(base_is_known(w->config.state_dir, rootfs, &e), 1);
}

static void use_key(struct world *w)
{
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	struct err e;

	assert_int_equal(
		keys_create(service_keys(w->service), "a test", "pro", NULL, text, &key, &e), 0);
	world_tenant = key->tenant;
}

enum { MANY = 6 };

/* Many freezes of one tenant and one of another. */
struct freezes {
	struct world *w;
	struct frozen many[MANY], other;
};

static int done_of_many(const struct freezes *f)
{
	int n = 0;

	for (int i = 0; i < MANY; i++)
		n += f->many[i].done;
	return n;
}

static bool all_are_done(const struct freezes *f)
{
	return done_of_many(f) == MANY && f->other.done;
}

static bool one_waits_or_all_are_done(void *arg)
{
	const struct freezes *f = arg;

	return fakes_waiting(f->w->fakes) > 0 || all_are_done(f);
}

struct meeting {
	pthread_barrier_t both;
	int over;
};

static void meet(void *arg)
{
	struct meeting *m = arg;

	pthread_barrier_wait(&m->both);
}

static void on_met(void *arg)
{
	struct meeting *m = arg;

	m->over++;
}

static bool is_met(void *arg)
{
	return ((struct meeting *)arg)->over == 2;
}

/* Returns once both workers of the pool have done all earlier jobs, such as a disk layer. */
static void until_layers_are_made(struct world *w)
{
	struct meeting m = {0};

	pthread_barrier_init(&m.both, NULL, 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(loop_work(w->loop, LOOP_DISK, meet, on_met, &m), 0);
	world_until(w, is_met, &m);
	pthread_barrier_destroy(&m.both);
}

/* Freezes may begin in any order, since workers make their disk layers concurrently. */
static void test_freeze_does_not_wait_for_all_of_another_tenant(void **state)
{
	struct freezes f = {.w = *state};
	struct world *w = f.w;
	struct made m[MANY + 1];
	int done_before = 0;

	/* No time limit for a slot, since the test must pass on a slow machine. */
	snapshots_of_service(w->service)->slot_limit_ms = UINT32_MAX;
	use_key(w);
	for (int i = 0; i < MANY; i++)
		world_create(w, &m[i], NULL);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, MANY + 1);
	for (int i = 0; i < MANY; i++)
		world_freeze_start(w, &f.many[i], m[i].view.id);
	world_until_waiting(w, 2);
	use_key(w);
	world_create(w, &m[MANY], NULL);
	assert_true(m[MANY].ok);
	world_freeze_start(w, &f.other, m[MANY].view.id);
	until_layers_are_made(w);
	while (!all_are_done(&f)) {
		world_until(w, one_waits_or_all_are_done, &f);
		const struct sandbox *other =
			sandbox_living(w->service, world_tenant, m[MANY].view.id);
		if (other && other->state != SBX_FREEZING)
			done_before = done_of_many(&f);
		fakes_go(w->fakes);
	}
	assert_true(f.other.ok && done_before < 2);
	world_tenant = TENANT_LOCAL;
}

static bool is_over(void *arg)
{
	const struct made *m = arg;

	return realtime_ms() > m->view.expires_at_ms;
}

/* The merge discards the VM for which the expired lifetime has requested a freeze. */
static void test_merge_keeps_the_lifetime(void **state)
{
	struct world *w = *state;
	struct made m, others[2];
	struct frozen z[2];
	struct forked k;
	struct done d;

	snapshots_of_service(w->service)->slot_limit_ms = UINT32_MAX;
	for (int i = 0; i < 2; i++)
		world_create(w, &others[i], NULL);
	fakes_fault(w->fakes, FAKES_FORK_WAIT, 2);
	for (int i = 0; i < 2; i++)
		world_freeze_start(w, &z[i], others[i].view.id);
	world_until_waiting(w, 2);
	world_create(w, &m,
		     &(struct sandbox_spec){.config.persistent = true, .config.timeout_s = 1});
	world_fork(w, &k, m.view.id, 1);
	assert_true(k.ok);
	world_until(w, is_over, &m);
	turn_loop(w);
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed);
	fakes_go(w->fakes);
	for (int i = 0; i < 2; i++) {
		world_until_true(w, &z[i].done);
		drop(w, &d, z[i].id);
	}
	world_until(w, has_one, w);
}

/* --- the service dies ----------------------------------------------------------------------- */

static void test_kill_in_a_freeze_leaves_sandbox_or_space(void **state)
{
	struct world *w = *state;
	unsigned frozen = 0;

	for (int rounds = 0; rounds < 24; rounds++) {
		struct sandbox_view view;
		struct listing l = {0};
		struct failure f;
		struct frozen z;
		struct made m;
		struct run r;

		world_create(w, &m, NULL);
		world_freeze_start(w, &z, m.view.id);
		for (int i = 0; (i < rounds * rounds || rounds == 23) && !z.done; i++)
			turn_loop(w);
		bool reported = z.done && z.ok;
		world_kill_service(w);
		world_start_service(w);
		world_spaces(w, TENANT, on_space, &l);
		bool lives = service_view(w->service, TENANT, m.view.id, &view, &f);
		assert_int_equal(lives + l.n, 1);
		assert_true(!reported || l.n == 1);
		frozen += l.n;
		if (l.n) {
			world_resume(w, &m, l.last);
			assert_true(m.ok);
		}
		world_exec(w, &r, m.view.id, "out alive");
		assert_string_equal(r.out, "alive");
		struct done d;
		world_delete(w, &d, m.view.id);
		until_entries(w, "spaces", 0);
	}
	assert_true(frozen > 0);
}

static void note_id(void *arg, const struct sandbox_view *view)
{
	memcpy(arg, view->id, sizeof(view->id));
}

static void test_kill_in_a_resume_leaves_sandbox_or_space(void **state)
{
	struct world *w = *state;

	for (int rounds = 0; rounds < 24; rounds++) {
		struct frozen z;
		struct made m, again;

		world_create(w, &m, NULL);
		world_freeze(w, &z, m.view.id);
		world_resume_start(w, &again, z.id, NULL);
		for (int i = 0; i < rounds * rounds && !again.done; i++)
			turn_loop(w);
		world_kill_service(w);
		world_start_service(w);
		assert_int_equal(world_metric(w, "sandboxes") + spaces(w), 1);
		if (spaces(w)) {
			world_resume(w, &again, z.id);
			assert_true(again.ok);
		}
		char id[SANDBOX_ID_LEN + 1];
		struct done d;
		world_list(w, TENANT, note_id, id);
		world_delete(w, &d, id);
		assert_false(d.failed);
		until_entries(w, "spaces", 0);
	}
}

/* --- restored catalogues ------------------------------------------------------------------ */

static void keep_catalogue(struct world *w, const char *from, const char *to)
{
	char command[4 * CONFIG_PATH_MAX];

	snprintf(command, sizeof(command),
		 "mkdir -p %1$s/%3$s && rm -f %1$s/%3$s/* && cp %1$s/%2$s/catalogue.db* %1$s/%3$s",
		 w->dir, from, to);
	assert_int_equal(system(command), 0);
}

static void restart(struct world *w)
{
	world_kill_service(w);
	world_start_service(w);
}

static void put_back(struct world *w, const char *from)
{
	char command[2 * CONFIG_PATH_MAX];

	world_kill_service(w);
	snprintf(command, sizeof(command), "rm %s/catalogue.db*", w->config.state_dir);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "cp %s/%s/* %s", w->dir, from, w->config.state_dir);
	assert_int_equal(system(command), 0);
	world_start_service(w);
}

static void freeze_new(struct world *w, struct frozen *z)
{
	struct made m;

	world_create(w, &m, NULL);
	world_freeze(w, z, m.view.id);
	assert_true(z->ok);
}

static void test_restored_catalogue_loses_no_space(void **state)
{
	struct world *w = *state;
	struct frozen old, new[2];
	struct made m;
	struct run r;

	freeze_new(w, &old);
	world_kill_service(w);
	keep_catalogue(w, "state", "yesterday");
	world_start_service(w);
	for (int i = 0; i < 2; i++)
		freeze_new(w, &new[i]);
	world_kill_service(w);
	keep_catalogue(w, "state", "today");
	world_start_service(w);
	put_back(w, "yesterday");
	assert_int_equal(spaces(w), 1);
	assert_int_equal(world_metric(w, "spaces_lost"), 2);
	restart(w);
	assert_int_equal(world_metric(w, "spaces_lost"), 2);
	world_resume(w, &m, new[0].id);
	assert_int_equal(m.failure.code, FAIL_NOT_FOUND);
	put_back(w, "today");
	assert_int_equal(spaces(w), 3);
	assert_int_equal(world_metric(w, "spaces_lost"), 0);
	for (int i = 0; i < 2; i++) {
		world_resume(w, &m, new[i].id);
		assert_true(m.ok);
		world_exec(w, &r, m.view.id, "out alive");
		assert_string_equal(r.out, "alive");
	}
	world_resume(w, &m, old.id);
	assert_true(m.ok);
}

static void make_dir(struct world *w, const char *name)
{
	char path[CONFIG_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/spaces/%s", w->config.state_dir, name);
	assert_int_equal(mkdir(path, 0700), 0);
	strcat(path, "/memory");
	close(open(path, O_CREAT | O_CLOEXEC, 0600));
}

static bool has_dir(struct world *w, const char *name)
{
	char path[CONFIG_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/spaces/%s", w->config.state_dir, name);
	return access(path, F_OK) == 0;
}

static void set_lost_since(struct world *w, const char *name, int64_t days_ago)
{
	const time_t t = (time_t)(realtime_ms() / 1000 - days_ago * 86400);
	const struct timespec times[2] = {{.tv_sec = t}, {.tv_sec = t}};
	char path[CONFIG_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/spaces/%s", w->config.state_dir, name);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool b_is_removed(void *arg)
{
	return !has_dir(arg, "spc_b.lost");
}

static void test_lost_space_is_kept_for_days(void **state)
{
	struct world *w = *state;

	world_kill_service(w);
	make_dir(w, "spc_a");
	make_dir(w, "spc_b");
	make_dir(w, "spc_half.tmp");
	make_dir(w, "lost+found"); /* present when spaces/ is a mounted file system */
	world_start_service(w);
	until_entries(w, "spaces", 1);
	assert_true(has_dir(w, "spc_a.lost") && has_dir(w, "spc_b.lost"));
	assert_true(has_dir(w, "lost+found"));
	assert_int_equal(world_metric(w, "spaces_lost"), 2);
	world_kill_service(w);
	set_lost_since(w, "spc_a.lost", 6);
	set_lost_since(w, "spc_b.lost", 8);
	world_start_service(w);
	world_until(w, b_is_removed, w);
	assert_true(has_dir(w, "spc_a.lost"));
	assert_int_equal(world_metric(w, "spaces_lost"), 1);
}

static void test_copy_of_a_space_is_left_alone(void **state)
{
	static const char *const suffixes[] = {".bak", ".b.lost"};
	struct world *w = *state;
	struct frozen z;
	struct made m;
	char copy[SANDBOX_ID_LEN + 8];

	freeze_new(w, &z);
	for (size_t i = 0; i < 2; i++) {
		world_kill_service(w);
		snprintf(copy, sizeof(copy), "%s%s", z.id, suffixes[i]);
		make_dir(w, copy);
		set_lost_since(w, copy, 8);
		world_start_service(w);
		assert_true(has_dir(w, copy));
		assert_int_equal(world_metric(w, "spaces_lost"), 0);
	}
	world_resume(w, &m, z.id);
	assert_true(m.ok);
}

/* The clock was wrong when the time of the loss was recorded. */
static void test_lost_space_survives_a_wrong_clock(void **state)
{
	const int64_t days_ago[] = {-3, 20 * 365};
	struct world *w = *state;

	world_kill_service(w);
	make_dir(w, "spc_a");
	for (size_t i = 0; i < 2; i++) {
		world_start_service(w);
		world_kill_service(w);
		set_lost_since(w, "spc_a.lost", days_ago[i]);
	}
	world_start_service(w);
	turn_loop(w);
	assert_true(has_dir(w, "spc_a.lost"));
	assert_int_equal(world_metric(w, "spaces_lost"), 1);
}

/* --- many ------------------------------------------------------------------------------------- */

#define MANY_SPACES 1000
#define MANY_ROWS   10000

static void fill_catalogue(struct world *w)
{
	char path[CONFIG_PATH_MAX + 16], id[SANDBOX_ID_LEN + 1];
	struct store *s;
	struct err e;

	snprintf(path, sizeof(path), "%s/catalogue.db", w->config.state_dir);
	assert_int_equal(store_open(&s, path, &e), 0);
	struct store_sandbox *rows = calloc(MANY_ROWS, sizeof(*rows));
	static char ids[MANY_ROWS][SANDBOX_ID_LEN + 1];
	for (int i = 0; i < MANY_ROWS; i++) {
		snprintf(ids[i], sizeof(ids[i]), "sbx_%032d", i);
		rows[i] = (struct store_sandbox){.id = ids[i],
						 .tenant = "local",
						 .config.template = "default",
						 .created_at_ms = i,
						 .metadata = "{}",
						 .ended_at_ms = realtime_ms(),
						 .ended_code = "expired",
						 .ended_text = "its lifetime is over"};
	}
	assert_int_equal(store_sandboxes_add(s, rows, MANY_ROWS, &e), 0);
	for (int i = 0; i < MANY_SPACES; i++) {
		char tenant[32];

		snprintf(id, sizeof(id), "spc_%032d", i);
		snprintf(tenant, sizeof(tenant), "tnt_%d", i % 10);
		const struct store_space space = {.id = id,
						  .tenant = tenant,
						  .sandbox = ids[i],
						  .config.template = "default",
						  .metadata = "{}"};
		assert_int_equal(store_space_freeze(s, &space, 1, "frozen", "it is", &e), 0);
		make_dir(w, id);
	}
	free(rows);
	store_close(s);
}

/* Measures the figure in docs/recovery.md. */
static void test_many_spaces_are_found_at_a_start(void **state)
{
	struct world *w = *state;
	struct listing l = {0};

	world_kill_service(w);
	fill_catalogue(w);
	uint64_t before = now_ns();
	world_start_service(w);
	print_message("started with %d Spaces and %d rows in %llu ms\n", MANY_SPACES, MANY_ROWS,
		      (unsigned long long)(now_ns() - before) / 1000000);
	assert_int_equal(world_metric(w, "spaces"), MANY_SPACES);
	assert_int_equal(world_metric(w, "spaces_lost"), 0);
	world_spaces(w, "tnt_3", on_space, &l);
	assert_int_equal(l.n, MANY_SPACES / 10);
	assert_int_equal(spaces(w), 0); /* the Spaces are another tenant's */
}

/* --- damage --------------------------------------------------------------------------------- */

static void flip(struct world *w, const char *id, const char *file, off_t at)
{
	char path[CONFIG_PATH_MAX + 96];
	uint8_t byte;

	snprintf(path, sizeof(path), "%s/spaces/%s/%s", w->config.state_dir, id, file);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void test_flipped_bit_is_found_and_not_run(void **state)
{
	const struct {
		const char *file;
		off_t at;
	} places[] = {{"state", 3}, {"memory", 1 << 20}, {"manifest", 40}, {"manifest", 9}};
	struct world *w = *state;

	for (size_t i = 0; i < 4; i++) {
		struct space_view view;
		struct failure f;
		struct frozen z;
		struct made m;
		struct done d;

		world_create(w, &m, NULL);
		world_freeze(w, &z, m.view.id);
		assert_true(z.ok);
		flip(w, z.id, places[i].file, places[i].at);
		unsigned restores = fakes_restores(w->fakes);
		world_resume(w, &m, z.id);
		assert_int_equal(m.failure.code, FAIL_SPACE_DAMAGED);
		assert_non_null(strstr(m.failure.text, places[i].file));
		assert_int_equal(fakes_restores(w->fakes) > restores + 2, 0);
		assert_true(service_space_view(w->service, TENANT, z.id, &view, &f));
		assert_string_equal(view.state, "damaged");
		drop(w, &d, z.id);
		assert_false(d.failed);
	}
}

static bool one_is_damaged(void *arg)
{
	return world_metric(arg, "spaces_damaged") == 1;
}

static void test_damage_is_found_after_a_start(void **state)
{
	struct world *w = *state;
	char path[CONFIG_PATH_MAX + 96];
	struct frozen z[2];
	struct made m;

	for (int i = 0; i < 2; i++) {
		world_create(w, &m, NULL);
		world_freeze(w, &z[i], m.view.id);
	}
	snprintf(path, sizeof(path), "%s/spaces/%s/memory", w->config.state_dir, z[0].id);
	world_kill_service(w);
	assert_int_equal(unlink(path), 0);
	world_start_service(w);
	world_until(w, one_is_damaged, w);
	world_resume(w, &m, z[0].id);
	assert_int_equal(m.failure.code, FAIL_SPACE_DAMAGED);
	world_resume(w, &m, z[1].id);
	assert_true(m.ok);
}

int main(void)
{
#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		WORLD_TEST(test_resumed_space_equals_the_sandbox),
		WORLD_TEST(test_running_call_continues_after_resume),
		WORLD_TEST(test_call_hung_up_during_a_freeze_is_interrupted_after_the_resume),
		WORLD_TEST(test_call_of_a_context_hung_up_during_a_freeze_is_interrupted),
		WORLD_TEST(test_hang_up_counts_until_the_freeze_is_over),
		WORLD_TEST(test_resumed_sandbox_freezes_again_and_forks),
		WORLD_TEST(test_closed_egress_stays_closed_after_resume),
		WORLD_TEST(test_persistent_sandbox_freezes_when_idle_or_expired),
		WORLD_TEST(test_sandbox_that_expires_during_a_restart_freezes),
		WORLD_TEST(test_failed_freeze_leaves_the_sandbox),
		WORLD_TEST(test_running_call_survives_a_freeze_without_a_disk_layer),
		WORLD_TEST(test_disk_error_in_a_freeze_leaves_the_sandbox),
		WORLD_TEST(test_delete_during_a_freeze_leaves_no_space),
		WORLD_TEST(test_vm_death_fails_the_freeze),
		WORLD_TEST(test_failed_resume_leaves_the_space),
		WORLD_TEST(test_one_of_two_resumes_wins),
		WORLD_TEST(test_abandoned_resume_leaves_the_space),
		WORLD_TEST(test_resume_abandoned_at_any_moment_leaves_the_space),
		WORLD_TEST(test_resume_abandoned_after_its_commit_leaves_the_space),
		WORLD_TEST(test_resume_that_a_stop_ends_after_its_commit_leaves_the_space),
		WORLD_TEST(test_only_template_files_are_not_counted),
		WORLD_TEST(test_only_root_file_systems_of_templates_are_not_counted_as_a_base),
		WORLD_TEST(test_a_memory_layer_is_stored_once_for_each_sandbox),
		WORLD_TEST(test_base_of_a_template_is_known),
		WORLD_TEST(test_freeze_does_not_wait_for_all_of_another_tenant),
		WORLD_TEST(test_merge_keeps_the_lifetime),
		WORLD_TEST(test_kill_in_a_freeze_leaves_sandbox_or_space),
		WORLD_TEST(test_kill_in_a_resume_leaves_sandbox_or_space),
		WORLD_TEST(test_restored_catalogue_loses_no_space),
		WORLD_TEST(test_lost_space_is_kept_for_days),
		WORLD_TEST(test_copy_of_a_space_is_left_alone),
		WORLD_TEST(test_lost_space_survives_a_wrong_clock),
		WORLD_TEST(test_many_spaces_are_found_at_a_start),
		WORLD_TEST(test_flipped_bit_is_found_and_not_run),
		WORLD_TEST(test_damage_is_found_after_a_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
