// SPDX-License-Identifier: Apache-2.0
/* Deep lists, writes in place, archives and watches, with fake guests, also with old agents. */
#include <errno.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "orchestrator/guestops/guest-op.h"
#include "test/unit/service/fake-files.h"
#include "test/unit/service/world.h"

struct outcome {
	bool done, failed, more;
	struct failure failure;
	unsigned files, events;
	char user[16], group[16]; /* of the last file */
	enum agent_event last;	  /* type of the last event */
	char path[32], to[32];	  /* of the last event */
	uint64_t bytes;
	struct op *call;
};

static char id[SANDBOX_ID_LEN + 1]; /* of the test's sandbox */

static void on_done(void *arg, const struct failure *f)
{
	struct outcome *t = arg;

	assert_false(t->done);
	t->done = true;
	t->failed = f != NULL;
	if (f)
		t->failure = *f;
}

static void on_file(void *arg, const struct file_view *f)
{
	struct outcome *t = arg;

	assert_false(t->done || t->more);
	t->files++;
	snprintf(t->user, sizeof(t->user), "%.*s", (int)f->user_len, f->user ? f->user : "");
	snprintf(t->group, sizeof(t->group), "%.*s", (int)f->group_len, f->group ? f->group : "");
}

static void on_more(void *arg)
{
	((struct outcome *)arg)->more = true;
}

static void on_bytes(void *arg, const void *data, size_t len)
{
	((struct outcome *)arg)->bytes += len;
}

static const struct file_sink sink = {
	.file = on_file, .more = on_more, .bytes = on_bytes, .ended = on_done};

static void on_event(void *arg, const struct watch_event *event)
{
	struct outcome *t = arg;

	assert_false(t->done);
	t->events++;
	t->last = event->type;
	snprintf(t->path, sizeof(t->path), "%.*s", (int)event->path_len, event->path);
	snprintf(t->to, sizeof(t->to), "%.*s", (int)event->to_len, event->to);
}

static const struct watch_sink watch_sink = {on_event, on_done};

static void list(struct world *w, struct outcome *t, const char *path, uint32_t depth,
		 uint32_t limit, const char *after)
{
	const struct file_list asked = {
		.path = path, .depth = depth, .limit = limit, .after = after};

	*t = (struct outcome){0};
	service_file_list(w->service, TENANT, id, &asked, &sink, t);
	world_until_true(w, &t->done);
}

static void stat_it(struct world *w, struct outcome *t, const char *path)
{
	*t = (struct outcome){0};
	service_file_stat(w->service, TENANT, id, path, false, &sink, t);
	world_until_true(w, &t->done);
}

static void pack(struct world *w, struct outcome *t, const char *path)
{
	*t = (struct outcome){0};
	service_file_pack(w->service, TENANT, id, path, &sink, t);
	world_until_true(w, &t->done);
}

static void unpack(struct world *w, struct outcome *t, const char *path, const void *data,
		   size_t len)
{
	const struct agent_file_request asked = {.type = AGENT_UNPACK, .path = path};
	const struct file_data archive = {.p = data, .len = len};

	*t = (struct outcome){0};
	service_file_do(w->service, TENANT, id, &asked, &archive, on_done, t);
	world_until_true(w, &t->done);
}

static void begin_watch(struct world *w, struct outcome *t, const char *path)
{
	*t = (struct outcome){0};
	t->call = service_file_watch(w->service, TENANT, id, path, true, &watch_sink, t);
}

static void fails_with(const struct outcome *t, enum failure_code code)
{
	assert_true(t->failed);
	assert_int_equal(t->failure.code, code);
	assert_true(t->failure.text[0]);
}

static void test_lists_have_names_of_owners(void **state)
{
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	list(w, &t, "/many/2", 64, 0, "");
	assert_true(!t.failed && t.files == 2);
	assert_string_equal(t.user, "root");
	assert_string_equal(t.group, "");
	stat_it(w, &t, "/size/5");
	assert_true(!t.failed && t.files == 1);
	assert_string_equal(t.user, "root");
}

static void test_list_stops_at_its_limit(void **state)
{
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	list(w, &t, "/many/100", 1, 100, "");
	assert_true(!t.failed && t.files == 100 && !t.more);
	list(w, &t, "/many/101", 1, 100, "");
	assert_true(!t.failed && t.files == 100 && t.more);
}

static void test_names_deeper_than_requested_are_refused(void **state)
{
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	list(w, &t, "/slash", 2, 0, "");
	assert_true(!t.failed && t.files == 1);
	list(w, &t, "/slash", 1, 0, "");
	fails_with(&t, FAIL_AGENT_ERROR);
	list(w, &t, "/dots", 2, 0, "");
	fails_with(&t, FAIL_AGENT_ERROR);
	list(w, &t, "/empty", 64, 0, "");
	fails_with(&t, FAIL_AGENT_ERROR);
}

static void test_write_in_place_delivers_all_bytes(void **state)
{
	static uint8_t data[300000];
	struct world *w = *state;
	const struct agent_file_request write = {
		.type = AGENT_WRITE, .path = "/x", .how = AGENT_WRITE_APPEND};
	const struct file_data all = {.p = data, .len = sizeof(data)};
	struct outcome t = {0};
	uint64_t sum;

	world_create_id(w, id);
	memset(data, 7, sizeof(data));
	service_file_do(w->service, TENANT, id, &write, &all, on_done, &t);
	world_until_true(w, &t.done);
	assert_false(t.failed);
	assert_true(fakes_put(w->fakes, &sum) == sizeof(data));
	assert_true(sum == fake_sum(0, data, sizeof(data)));
}

static void test_archives_are_passed_on(void **state)
{
	static uint8_t data[300000];
	struct world *w = *state;
	struct outcome t;
	uint64_t sum;

	world_create_id(w, id);
	pack(w, &t, "/size/300000");
	assert_true(!t.failed && t.bytes == 300000);
	pack(w, &t, "/wrong");
	fails_with(&t, FAIL_AGENT_ERROR);
	pack(w, &t, "/errno/28"); /* ENOSPC */
	fails_with(&t, FAIL_DISK_FULL);
	unpack(w, &t, "/x", data, sizeof(data));
	assert_false(t.failed);
	assert_true(fakes_put(w->fakes, &sum) == sizeof(data));
	unpack(w, &t, "/errno/74", data, 1); /* EBADMSG */
	fails_with(&t, FAIL_BAD_ARCHIVE);
	unpack(w, &t, "/errno/28", data, 1); /* ENOSPC */
	fails_with(&t, FAIL_DISK_FULL);
}

static bool has_two_events(void *arg)
{
	return ((struct outcome *)arg)->events >= 2;
}

static void test_watch_reports_events_until_its_path_is_gone(void **state)
{
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	begin_watch(w, &t, "/w");
	world_until(w, has_two_events, &t);
	assert_int_equal(t.last, AGENT_RENAMED);
	assert_string_equal(t.path, "/w/a");
	assert_string_equal(t.to, "/w/b");
	world_until_waiting(w, 1);
	fakes_go(w->fakes);
	world_until_true(w, &t.done);
	assert_true(!t.failed && t.last == AGENT_REMOVED && t.events == 3);
}

static void test_watch_begins_with_watching(void **state)
{
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	begin_watch(w, &t, "/unready");
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_AGENT_ERROR);
	begin_watch(w, &t, "/ready-twice");
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_AGENT_ERROR);
}

static void test_paused_watch_applies_back_pressure_to_the_guest(void **state)
{
	struct world *w = *state;
	struct outcome t;

	world_create_id(w, id);
	begin_watch(w, &t, "/flood");
	world_until(w, has_two_events, &t);
	op_pause(t.call);
	unsigned before;
	do {
		before = t.events;
		stat_it(w, &(struct outcome){0}, "/size/5");
		stat_it(w, &(struct outcome){0}, "/size/5");
	} while (t.events != before);
	op_abandon(t.call);
}

static void test_watch_fails_when_the_sandbox_is_deleted(void **state)
{
	struct world *w = *state;
	struct outcome t;
	struct done d;

	world_create_id(w, id);
	begin_watch(w, &t, "/w");
	world_until(w, has_two_events, &t);
	world_delete(w, &d, id);
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_DELETED);
}

static void test_events_do_not_keep_the_sandbox_from_being_idle(void **state)
{
	const struct sandbox_spec spec = {.config.idle_timeout_s = 2};
	struct world *w = *state;
	struct outcome t;
	struct made m;

	world_create(w, &m, &spec);
	assert_true(m.ok);
	memcpy(id, m.view.id, sizeof(id));
	begin_watch(w, &t, "/flood");
	world_until_true(w, &t.done);
	fails_with(&t, FAIL_EXPIRED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_lists_have_names_of_owners),
		TEST(test_list_stops_at_its_limit),
		TEST(test_names_deeper_than_requested_are_refused),
		TEST(test_write_in_place_delivers_all_bytes),
		TEST(test_archives_are_passed_on),
		TEST(test_watch_reports_events_until_its_path_is_gone),
		TEST(test_watch_begins_with_watching),
		TEST(test_paused_watch_applies_back_pressure_to_the_guest),
		TEST(test_watch_fails_when_the_sandbox_is_deleted),
		TEST(test_events_do_not_keep_the_sandbox_from_being_idle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
