// SPDX-License-Identifier: Apache-2.0
/* The events of sandboxes, as the service adds them to the catalogue. */
#include <errno.h>

#include "orchestrator/sandbox/service.h"
#include "test/unit/service/world.h"

struct account {
	char text[4096]; /* "EVENT SANDBOX OTHER TEXT|…"; ids as the letters of `names` */
	const char *names[8];
	unsigned wants; /* events */
};

static char name_of(const struct account *a, const char *id)
{
	for (size_t i = 0; id && i < 8; i++)
		if (a->names[i] && !strcmp(a->names[i], id))
			return (char)('a' + i);
	return id ? '?' : '-';
}

/* Copies the value of a field, which is an id or a plain text; "" if it is absent. */
static void field(const char *line, const char *name, char out[static 128])
{
	char key[32];

	snprintf(key, sizeof(key), "\"%s\":\"", name);
	const char *at = strstr(line, key);
	at = at ? at + strlen(key) : "";
	snprintf(out, 128, "%.*s", (int)strcspn(at, "\""), at);
}

static void on_event(void *arg, const struct logged_event *logged)
{
	const char *line = logged->line;
	struct account *a = arg;
	size_t used = strlen(a->text);
	char event[128], sandbox[128], parent[128], winner[128], text[128], other[128];

	field(line, "tenant", text);
	assert_string_equal(text, TENANT);
	field(line, "template", text);
	assert_true(text[0]);
	field(line, "event", event);
	field(line, "sandbox", sandbox);
	field(line, "parent", parent);
	field(line, "winner", winner);
	field(line, "text", text);
	snprintf(other, sizeof(other), "%s", parent[0] ? parent : winner);
	snprintf(a->text + used, sizeof(a->text) - used, "%s %c %c %s|", event + strlen("sandbox."),
		 name_of(a, sandbox), name_of(a, other[0] ? other : NULL), text);
}

static void follow(struct world *w, struct account *a)
{
	const struct event_query query = {.from_now = true, .follow = true};
	struct failure f;

	assert_non_null(service_events(w->service, TENANT, &query, on_event, NULL, a, &f));
}

/* Returns whether a->text has as many events as `wants`. */
static bool has_all(void *arg)
{
	const struct account *a = arg;
	unsigned n = 0;

	for (const char *p = a->text; *p; p++)
		n += *p == '|';
	return n >= a->wants;
}

static const char *events(struct world *w, struct account *a, unsigned n)
{
	a->wants = n;
	world_until(w, has_all, a);
	return a->text;
}

static void test_each_event_is_reported_once(void **state)
{
	struct account a = {.text = ""};
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct done d;

	follow(w, &a);
	world_create(w, &m, NULL);
	assert_string_equal(events(w, &a, 1), "created ? - |");
	a.names[0] = m.view.id;
	world_fork(w, &k, m.view.id, 2);
	assert_string_equal(events(w, &a, 3) + 12, "|forked ? a |forked ? a |");
	a.names[1] = k.ids[0];
	a.names[2] = k.ids[1];
	a.text[0] = 0;
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed);
	world_delete(w, &d, k.ids[1]);
	world_delete(w, &d, k.ids[0]); /* the winner's id: no event */
	world_delete(w, &d, m.view.id);
	assert_string_equal(events(w, &a, 3), "merged a b |deleted c - it was deleted|"
					      "deleted a - it was deleted|");
}

static void test_unrequested_ends_are_reported(void **state)
{
	const struct sandbox_spec spec = {.config.idle_timeout_s = 1, .config.egress = true};
	struct account a = {.text = ""};
	struct world *w = *state;
	struct made m;
	struct run r;

	follow(w, &a);
	world_create(w, &m, &spec);
	a.names[0] = m.view.id;
	assert_string_equal(events(w, &a, 2), "created ? - |expired a - it was idle for 1 s|");
	world_create(w, &m, NULL);
	events(w, &a, 3);
	a.text[0] = 0;
	world_exec(w, &r, m.view.id, "die");
	assert_int_equal(r.failure.code, FAIL_VM_DIED);
	assert_memory_equal(events(w, &a, 1), "died a - ", 9);
	assert_null(strstr(a.text, "|died"));
}

int __real_store_events(struct store *s, const struct store_events_range *range, unsigned most,
			store_event_fn *each, void *arg, struct err *e);
int __wrap_store_events(struct store *s, const struct store_events_range *range, unsigned most,
			store_event_fn *each, void *arg, struct err *e);

/* A reader whose first read fails. */
static struct {
	struct service *service;  /* NULL: no read fails */
	struct deferred deferred; /* runs before the failure is reported */
	struct op *op;
	bool resumed, ended;
} failing;

static void on_failed(void *arg)
{
	assert_false(failing.ended);
	op_pause(failing.op);
	op_resume(failing.op);
	failing.resumed = true;
}

int __wrap_store_events(struct store *s, const struct store_events_range *range, unsigned most,
			store_event_fn *each, void *arg, struct err *e)
{
	if (!failing.service)
		return __real_store_events(s, range, most, each, arg, e);
	deferred_run(&failing.service->deferred, &failing.deferred, on_failed, NULL);
	failing.service = NULL;
	return err_say(e, EIO, "the disk failed");
}

static void on_end(void *arg, const struct failure *f)
{
	assert_int_equal(f->code, FAIL_CATALOGUE);
	failing.ended = true;
}

static void test_reader_that_failed_can_be_resumed(void **state)
{
	const struct event_query query = {.follow = true};
	struct world *w = *state;
	struct failure f;

	failing.service = w->service;
	failing.op = service_events(w->service, TENANT, &query, on_event, on_end, NULL, &f);
	world_until_true(w, &failing.ended);
	assert_true(failing.resumed);
	world_run_for(w, 10);
}

static void test_readers_are_limited(void **state)
{
	const struct event_query query = {.follow = true};
	struct op *calls[EVENT_READERS_MAX];
	struct world *w = *state;
	struct failure f;

	for (size_t i = 0; i < EVENT_READERS_MAX; i++) {
		calls[i] = service_events(w->service, TENANT, &query, on_event, NULL, NULL, &f);
		assert_non_null(calls[i]);
	}
	assert_null(service_events(w->service, NULL, &query, on_event, NULL, NULL, &f));
	assert_int_equal(f.code, FAIL_SERVICE_BUSY);
	op_abandon(calls[0]);
	assert_non_null(service_events(w->service, NULL, &query, on_event, NULL, NULL, &f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_event_is_reported_once, world_setup,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_unrequested_ends_are_reported, world_setup,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_reader_that_failed_can_be_resumed, world_setup,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_readers_are_limited, world_setup,
						world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
