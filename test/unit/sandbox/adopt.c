// SPDX-License-Identifier: Apache-2.0
/* A service that restarts after a crash adopts its VMs, which kept running. */
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <unistd.h>

#include "orchestrator/exec/history.h"
#include "orchestrator/sandbox/sandbox.h"
#include "test/unit/service/world.h"

static void test_sandbox_survives_a_service_restart(void **state)
{
	const char *const env[] = {"K=v", NULL};
	struct sandbox_spec spec = {
		.env = env, .metadata = "{\"m\":1}", .config.size.ram_mib = 192};
	struct world *w = *state;
	struct sandbox_view view;
	struct failure f;
	struct made m;
	struct run before, after;

	world_create(w, &m, &spec);
	world_exec(w, &before, m.view.id, "out before");
	world_kill_service(w);
	world_start_service(w);
	assert_true(service_view(w->service, TENANT, m.view.id, &view, &f));
	assert_string_equal(view.metadata, "{\"m\":1}");
	assert_int_equal(view.config.size.ram_mib, 192);
	assert_int_equal(view.created_at_ms, m.view.created_at_ms);
	assert_int_equal(view.expires_at_ms, m.view.expires_at_ms);
	world_exec(w, &after, m.view.id, "env");
	assert_string_equal(after.out, "K=v ");
	assert_true(after.first_seq > before.last_seq);
	world_wait_ready(w);
	/* The blank VMs and warm sandboxes of the previous instance are gone. */
	assert_int_equal(fakes_live(w->fakes), 3);
}

static void test_call_after_restart_runs_when_the_running_one_ends(void **state)
{
	struct world *w = *state;
	struct run lost = {0}, next = {0};
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &lost, m.view.id, "wait", false);
	world_until_waiting(w, 1);
	world_kill_service(w);
	world_start_service(w);
	world_exec_start(w, &next, m.view.id, "out next", false);
	fakes_go(w->fakes);
	world_until_true(w, &next.over);
	assert_string_equal(next.out, "next");
}

static bool is_gone(void *arg)
{
	void **args = arg;
	struct sandbox_view view;
	struct failure f;

	return !service_view(args[0], TENANT, args[1], &view, &f) &&
	       !strcmp(failure_code_name(f.code), args[2]);
}

struct amount {
	struct world *w;
	const char *id;
	unsigned events;
	size_t bytes;
};

static bool has_arrived(void *arg)
{
	struct amount *a = arg;
	struct history h;

	world_history(a->w, &h, a->id);
	return h.events >= a->events && h.bytes >= a->bytes;
}

static void test_running_call_continues_and_loses_no_event(void **state)
{
	struct world *w = *state;
	struct run before = {0}, next = {0}, lost = {0};
	struct sandbox_view view;
	struct history h;
	struct failure f;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &before, m.view.id,
			 "out one\nerr two\nraw ha\nwait\nraw lf\nout \nwait\nexit 3", false);
	world_until_waiting(w, 1);
	struct amount two = {w, m.view.id, 2, 0};
	world_until(w, has_arrived, &two);
	world_kill_service(w);
	world_start_service(w);
	assert_true(service_view(w->service, TENANT, m.view.id, &view, &f));
	assert_string_equal(view.state, "running");
	world_history(w, &h, m.view.id);
	assert_string_equal(h.text, "one|two");
	world_exec_start(w, &lost, m.view.id, "out never", false); /* not accepted by the guest */
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	world_until_waiting(w, 1);
	world_kill_service(w);
	world_start_service(w);
	world_exec_start(w, &next, m.view.id, "out next", false);
	fakes_go(w->fakes);
	world_until_true(w, &next.over);
	assert_string_equal(next.out, "next");
	world_history(w, &h, m.view.id);
	assert_string_equal(h.text, "one|two|half|=3|next|=0");
	assert_int_equal(h.last_seq, 6); /* no number is missing or used twice */
}

/* Kills the service ten times while 3 MB of output are streamed. */
static void test_output_is_complete_after_many_restarts(void **state)
{
	struct world *w = *state;
	struct run r = {0}, last;
	struct history h;
	struct made m;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "big 3000000\nexit 7", true);
	world_until_true(w, &r.started); /* the guest has it */
	for (int i = 0; i < 10; i++) {
		struct amount some = {w, m.view.id, 0, (size_t)i * 250000};
		world_until(w, has_arrived, &some);
		world_kill_service(w);
		world_start_service(w);
	}
	world_exec(w, &last, m.view.id, "out end");
	world_history(w, &h, m.view.id);
	assert_int_equal(h.bytes, 3000000 + strlen("end"));
	assert_non_null(strstr(h.text, "=7|end|=0"));
}

static void test_history_follows_a_merge(void **state)
{
	struct world *w = *state;
	struct history h;
	struct forked k;
	struct made m;
	struct run r;
	struct done d;

	world_create(w, &m, NULL);
	world_exec(w, &r, m.view.id, "out parent");
	world_fork(w, &k, m.view.id, 1);
	world_exec(w, &r, k.ids[0], "out child");
	world_exec(w, &r, m.view.id, "out gone\nout gone");
	world_merge(w, &d, m.view.id, k.ids[0]);
	world_kill_service(w);
	world_start_service(w);
	world_history(w, &h, m.view.id);
	assert_string_equal(h.text, "parent|=0|child|=0");
	world_exec(w, &r, m.view.id, "out on");
	assert_int_equal(r.first_seq, 6); /* after the events of its old VM */
}

static bool add_entry(void *arg, const struct history_view *view)
{
	const struct history_entry *e = view->entry;
	char *text = arg;

	sprintf(text + strlen(text), "%u:%s%s%s%s ", e->n, view->undone ? "-" : "",
		e->kind == HISTORY_CALL ? e->text : "", e->result ? "!" : "",
		e->kind == HISTORY_CALL && !e->began_ms ? "?" : "");
	return true;
}

static void expect_history(struct world *w, const char *id, const char *entries)
{
	char text[1024] = "";
	struct failure f;

	assert_true(service_history(w->service, TENANT, id, 0, add_entry, text, &f));
	assert_string_equal(text, entries);
}

static void test_history_survives_restarts(void **state)
{
	struct world *w = *state;
	struct run running = {0}, r;
	struct forked k;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_exec(w, &r, m.view.id, "out one");
	world_fork(w, &k, m.view.id, 1);
	world_exec(w, &r, m.view.id, "exit 1");
	world_exec(w, &r, k.ids[0], "out child");
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_true(d.done && !d.failed);
	world_exec_start(w, &running, m.view.id, "wait", false);
	world_until_waiting(w, 1);
	world_kill_service(w);
	world_start_service(w);
	running = (struct run){0};
	expect_history(w, m.view.id, "1: 2:out one 3: 4:-exit 1! 5:out child 6: ");
	world_exec_start(w, &running, m.view.id, "out next", false);
	fakes_go(w->fakes);
	world_until_true(w, &running.over);
	world_kill_service(w);
	world_start_service(w);
	expect_history(w, m.view.id,
		       "1: 2:out one 3: 4:-exit 1! 5:out child 6: 7:wait 8:out next ");
}

static void test_idle_timeout_survives_a_restart(void **state)
{
	struct sandbox_spec spec = {.config.idle_timeout_s = 2};
	struct world *w = *state;
	struct sandbox_view before, after;
	struct failure f;
	struct made m;

	world_create(w, &m, &spec);
	assert_true(service_view(w->service, TENANT, m.view.id, &before, &f));
	usleep(20000); /* advances the clock, so that a restarted timeout would differ */
	world_kill_service(w);
	world_start_service(w);
	assert_true(service_view(w->service, TENANT, m.view.id, &after, &f));
	assert_true(after.idle_expires_at_ms - before.idle_expires_at_ms < 15);
	void *args[] = {w->service, m.view.id, "expired"};
	world_until(w, is_gone, args);
}

struct followed {
	char text[256];
	bool started, over, failed;
};

static void on_followed_start(void *arg)
{
	((struct followed *)arg)->started = true;
}

static void on_followed(void *arg, const struct event *ev, const char *traceparent)
{
	struct followed *k = arg;
	size_t len = strlen(k->text);

	assert_true(k->started && !k->over);
	if (ev->type == EVENT_EXIT)
		snprintf(k->text + len, sizeof(k->text) - len, "=%d|", ev->exit_code);
	else
		snprintf(k->text + len, sizeof(k->text) - len, "%.*s|", (int)ev->len,
			 (const char *)ev->data);
}

static void on_followed_end(void *arg, const struct failure *f)
{
	struct followed *k = arg;

	assert_false(k->over);
	k->over = true;
	k->failed = f != NULL;
}

static const struct follow_sink follow_sink = {on_followed_start, on_followed, on_followed_end};

static void test_client_reattaches_to_a_stream(void **state)
{
	struct followed all = {0}, rest = {0}, none = {0}, gone = {0}, left = {0};
	struct world *w = *state;
	struct run r = {0};
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_exec_start(w, &r, m.view.id, "out one\nwait\nout two\nexit 4", false);
	world_until_waiting(w, 1);
	struct amount one = {w, m.view.id, 1, 0};
	world_until(w, has_arrived, &one);
	world_kill_service(w);
	world_start_service(w);
	service_follow(w->service, TENANT, m.view.id, 0, &follow_sink, &all);
	struct op *slow = service_follow(w->service, TENANT, m.view.id, 1, &follow_sink, &rest);
	op_pause(slow);
	op_abandon(service_follow(w->service, TENANT, m.view.id, 0, &follow_sink, &left));
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	world_until_true(w, &all.over);
	assert_string_equal(all.text, "one|two|=4|");
	assert_false(rest.over || all.failed);
	op_resume(slow);
	world_until_true(w, &rest.over);
	assert_string_equal(rest.text, "two|=4|");
	service_follow(w->service, TENANT, m.view.id, 3, &follow_sink, &none);
	world_until_true(w, &none.over);
	assert_string_equal(none.text, "");
	memset(&r, 0, sizeof(r));
	world_exec_start(w, &r, m.view.id, "out three\nwait", false);
	service_follow(w->service, TENANT, m.view.id, 3, &follow_sink, &gone);
	world_until_waiting(w, 1);
	world_delete(w, &d, m.view.id);
	world_until_true(w, &gone.over);
	assert_true(gone.failed);
	assert_false(left.started);
	world_until_true(w, &r.over);
}

struct ender {
	struct followed followed; /* first: on_followed_start and on_followed_end get it */
	struct sandbox *sandbox;
};

static void end_followed(void *arg, const struct event *ev, const char *traceparent)
{
	struct ender *e = arg;

	on_followed(&e->followed, ev, traceparent);
	sandbox_end(e->sandbox, "deleted", "its reader deleted it", true);
}

static void test_reader_ends_the_sandbox_that_it_follows(void **state)
{
	static const struct follow_sink sink = {on_followed_start, end_followed, on_followed_end};
	struct world *w = *state;
	struct ender e = {0};
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	world_exec(w, &r, m.view.id, "out one\nout two");
	e.sandbox = sandbox_living(w->service, TENANT, m.view.id);
	service_follow(w->service, TENANT, m.view.id, 0, &sink, &e);
	world_until_true(w, &e.followed.over);
	assert_string_equal(e.followed.text, "one|");
	assert_true(e.followed.failed);
}

static void test_vm_death_during_downtime_is_reported(void **state)
{
	struct world *w = *state;
	struct run r = {0};
	struct made m;

	world_create(w, &m, NULL);
	world_kill_service(w);
	for (uint32_t slot = 0; slot < 8; slot++)
		fakes_kill(w->fakes, slot);
	world_start_service(w);
	world_exec_start(w, &r, m.view.id, "out never", false);
	world_until_true(w, &r.over);
	assert_true(r.failed);
	assert_int_equal(r.failure.code, FAIL_VM_DIED);
	/* The next instance still reports it. */
	world_kill_service(w);
	world_start_service(w);
	void *args[] = {w->service, m.view.id, "vm_died"};
	assert_true(is_gone(args));
}

static void catalogue_run(const struct world *w, const char *sql)
{
	char path[512];
	struct sqlite3 *db;

	snprintf(path, sizeof(path), "%s/catalogue.db", w->config.state_dir);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_true(sqlite3_changes(db) > 0);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Allows no write to any file: on a full disk, at least existing blocks can be overwritten. */
static void test_sandboxes_are_served_when_the_catalogue_is_read_only(void **state)
{
	const struct rlimit nothing = {0, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
	struct world *w = *state;
	struct made m, ended;
	struct run r;
	char sql[128];

	world_create(w, &m, NULL);
	world_create(w, &ended, NULL);
	world_kill_service(w);
	snprintf(sql, sizeof(sql), "UPDATE sandboxes SET ended_at_ms = 1 WHERE id = '%s'",
		 ended.view.id); /* long ago, so that the row is due for removal */
	catalogue_run(w, sql);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &nothing), 0);
	world_start_service(w);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
	world_exec(w, &r, m.view.id, "out on");
	assert_string_equal(r.out, "on");
}

static void test_vm_of_another_size_is_not_adopted(void **state)
{
	struct world *w = *state;
	const struct sandbox_spec spec = {.config.size.ram_mib = 192};
	const char *const changes[] = {"UPDATE sandboxes SET vcpus = 3",
				       "UPDATE sandboxes SET ram_mib = 256"};

	for (size_t i = 0; i < 2; i++) {
		struct run r = {0};
		struct made m;

		world_create(w, &m, &spec);
		world_kill_service(w);
		catalogue_run(w, changes[i]);
		world_start_service(w);
		world_exec_start(w, &r, m.view.id, "out never", false);
		world_until_true(w, &r.over);
		assert_true(r.failed);
		assert_int_equal(r.failure.code, FAIL_VM_DIED);
		assert_non_null(strstr(r.failure.text, "1 vCPUs, 192 MiB; expected"));
	}
}

/* Returns whether the sandbox ends with its VM, and says why. */
static bool ends(struct world *w, const char *id, const char *says)
{
	struct run r = {0};

	world_exec_start(w, &r, id, "out never", false);
	world_until_true(w, &r.over);
	return r.failed && r.failure.code == FAIL_VM_DIED && strstr(r.failure.text, says);
}

static bool refuses(struct world *w, const char *id)
{
	return ends(w, id, "another VM than the catalogue names");
}

static bool only_the_pool_lives(void *arg)
{
	struct world *w = arg;

	return service_ready(w->service) && fakes_live(w->fakes) == 2 && fakes_slots(w->fakes) == 2;
}

static void test_vm_with_another_instance_is_not_adopted(void **state)
{
	struct world *w = *state;
	struct made m;

	world_create(w, &m, NULL);
	world_kill_service(w);
	catalogue_run(w, "UPDATE sandboxes SET instance = randomblob(16)");
	world_start_service(w);
	assert_true(refuses(w, m.view.id));
	world_until(w, only_the_pool_lives, w);
}

/* Swaps the slots of two rows, so that each row finds the other's VM. The VM found first is kept,
 * because the other row claims it. The second is killed, because the row that claims it has ended
 * by then. */
static void test_vm_claimed_by_another_row_is_not_killed(void **state)
{
	struct world *w = *state;
	struct made a, b;

	world_create(w, &a, NULL);
	world_create(w, &b, NULL);
	world_kill_service(w);
	catalogue_run(w, "CREATE TABLE old AS SELECT id, slot FROM sandboxes;"
			 "UPDATE sandboxes SET slot = slot + 100;"
			 "UPDATE sandboxes SET slot = (SELECT slot FROM old "
			 "WHERE old.id != sandboxes.id)");
	world_start_service(w);
	assert_true(refuses(w, a.view.id));
	assert_true(refuses(w, b.view.id));
	world_wait_ready(w);
	assert_int_equal(fakes_live(w->fakes), 3);
	world_kill_service(w);
	world_start_service(w); /* no row claims it any more */
	world_until(w, only_the_pool_lives, w);
}

/* Another Ramet started the VMs before an upgrade. */
static void test_vm_of_another_version_is_not_adopted(void **state)
{
	const uint32_t versions[] = {CTL_VERSION_OLDEST - 1, CTL_VERSION + 1};
	const char *const says[] = {"an older Ramet", "a newer Ramet"};
	struct world *w = *state;

	for (int i = 0; i < 2; i++) {
		struct made m;

		world_create(w, &m, NULL);
		world_kill_service(w);
		for (uint32_t slot = 0; slot < 8; slot++)
			fakes_set_version(w->fakes, slot, versions[i]);
		world_start_service(w);
		assert_true(ends(w, m.view.id, "the control protocol of the VM process"));
		assert_true(ends(w, m.view.id, says[i]));
		world_until(w, only_the_pool_lives, w);
	}
}

static void test_sandbox_with_an_agent_of_another_version_ends(void **state)
{
	struct world *w = *state;
	struct made m;

	world_create(w, &m, NULL);
	world_kill_service(w);
	fakes_fault(w->fakes, FAKES_VERSION, 1);
	world_start_service(w);
	assert_true(ends(w, m.view.id, "the agent in its guest has version 255, of a newer Ramet"));
	world_until(w, only_the_pool_lives, w);
}

static void test_sandbox_expires_after_a_restart(void **state)
{
	struct sandbox_spec spec = {.config.timeout_s = 1};
	struct world *w = *state;
	struct made m;

	world_create(w, &m, &spec);
	world_kill_service(w);
	world_start_service(w);
	void *args[] = {w->service, m.view.id, "expired"};
	world_until(w, is_gone, args);
}

static void test_deleted_sandbox_does_not_come_back(void **state)
{
	struct world *w = *state;
	struct made m;
	struct done d;

	world_create(w, &m, NULL);
	world_delete_start(w, &d, m.view.id);
	world_kill_service(w); /* before its VM has ended */
	world_start_service(w);
	void *args[] = {w->service, m.view.id, "not_found"};
	assert_true(is_gone(args));
	world_wait_ready(w);
	assert_int_equal(fakes_live(w->fakes), 2);
}

static void test_many_restarts_leak_no_vm(void **state)
{
	struct world *w = *state;
	struct made m;
	struct run r;

	world_create(w, &m, NULL);
	for (int i = 0; i < 10; i++) {
		world_kill_service(w); /* at any point of its startup */
		world_start_service(w);
		world_exec(w, &r, m.view.id, "out on");
		assert_string_equal(r.out, "on");
	}
	world_wait_ready(w);
	assert_int_equal(fakes_live(w->fakes), 3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_sandbox_survives_a_service_restart),
		TEST(test_call_after_restart_runs_when_the_running_one_ends),
		TEST(test_running_call_continues_and_loses_no_event),
		TEST(test_output_is_complete_after_many_restarts),
		TEST(test_history_follows_a_merge),
		TEST(test_history_survives_restarts),
		TEST(test_idle_timeout_survives_a_restart),
		TEST(test_client_reattaches_to_a_stream),
		TEST(test_reader_ends_the_sandbox_that_it_follows),
		TEST(test_vm_death_during_downtime_is_reported),
		TEST(test_sandboxes_are_served_when_the_catalogue_is_read_only),
		TEST(test_vm_of_another_size_is_not_adopted),
		TEST(test_vm_with_another_instance_is_not_adopted),
		TEST(test_vm_claimed_by_another_row_is_not_killed),
		TEST(test_vm_of_another_version_is_not_adopted),
		TEST(test_sandbox_with_an_agent_of_another_version_ends),
		TEST(test_sandbox_expires_after_a_restart),
		TEST(test_deleted_sandbox_does_not_come_back),
		TEST(test_many_restarts_leak_no_vm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
