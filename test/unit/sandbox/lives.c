// SPDX-License-Identifier: Apache-2.0
/* The life events of sandboxes, as the core reports them to listeners such as the audit log. */
#include "test/unit/service/world.h"

struct account {
	char text[4096]; /* "EVENT SANDBOX OTHER TEXT|…"; ids as the letters of `names` */
	const char *names[8];
};

static char name_of(const struct account *a, const char *id)
{
	for (size_t i = 0; id && i < 8; i++)
		if (a->names[i] && !strcmp(a->names[i], id))
			return (char)('a' + i);
	return id ? '?' : '-';
}

static void on_life(void *arg, const struct life *life)
{
	static const char *const events[] = {
		[LIFE_CREATED] = "created",
		[LIFE_FORKED] = "forked",
		[LIFE_MERGED] = "merged",
		[LIFE_FROZEN] = "frozen",
		[LIFE_RESUMED] = "resumed",
		[LIFE_PORT_SHARED] = "port shared",
		[LIFE_PORT_UNSHARED] = "port unshared",
		[LIFE_EXPIRED] = "expired",
		[LIFE_DELETED] = "deleted",
		[LIFE_STOPPED] = "stopped",
		[LIFE_DIED] = "died",
	};
	struct account *a = arg;
	size_t used = strlen(a->text);

	assert_string_equal(life->tenant, TENANT);
	assert_true(life->template[0] && life->at_ms > 0);
	snprintf(a->text + used, sizeof(a->text) - used, "%s %c %c %s|", events[life->event],
		 name_of(a, life->sandbox), name_of(a, life->other), life->text ? life->text : "");
}

static void test_each_event_is_reported_once(void **state)
{
	struct account a = {.text = ""};
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct done d;

	core_watch_lives(w->core, on_life, &a);
	world_create(w, &m, NULL);
	assert_string_equal(a.text, "created ? - |");
	a.names[0] = m.view.id;
	world_fork(w, &k, m.view.id, 2);
	assert_string_equal(a.text + 12, "|forked ? a |forked ? a |");
	a.names[1] = k.ids[0];
	a.names[2] = k.ids[1];
	a.text[0] = 0;
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed);
	world_delete(w, &d, k.ids[1]);
	world_delete(w, &d, k.ids[0]); /* the winner's id: no event */
	world_delete(w, &d, m.view.id);
	assert_string_equal(a.text, "merged a b |deleted c - it was deleted|"
				    "deleted a - it was deleted|");
}

static bool has_two_events(void *arg)
{
	const char *first = strchr(((struct account *)arg)->text, '|');

	return first && strchr(first + 1, '|');
}

static void test_unrequested_ends_are_reported(void **state)
{
	const struct sandbox_spec spec = {.config.idle_timeout_s = 1, .config.egress = true};
	struct account a = {.text = ""};
	struct world *w = *state;
	struct made m;
	struct run r;

	core_watch_lives(w->core, on_life, &a);
	world_create(w, &m, &spec);
	a.names[0] = m.view.id;
	world_until(w, has_two_events, &a);
	assert_string_equal(a.text, "created ? - |expired a - it was idle for 1 s|");
	world_create(w, &m, NULL);
	a.text[0] = 0;
	world_exec(w, &r, m.view.id, "die");
	assert_int_equal(r.failure.code, FAIL_VM_DIED);
	assert_memory_equal(a.text, "died a - ", 9);
	assert_null(strstr(a.text, "|died"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_event_is_reported_once, world_setup,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_unrequested_ends_are_reported, world_setup,
						world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
