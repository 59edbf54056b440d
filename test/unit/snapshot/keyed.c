// SPDX-License-Identifier: Apache-2.0
/* Idempotency keys: the catalogue has a request's key exactly if it has what the request made,
 * whenever the service is killed. */
#include "base/clock.h"
#include "orchestrator/sandbox/sandboxes.h"
#include "orchestrator/snapshot/snapshots.h"
#include "orchestrator/store/store.h"
#include "test/unit/service/world.h"

#define HOUR_MS 3600000

static struct request_key key_of(uint8_t n)
{
	struct request_key key = {0};

	memset(key.key, n, sizeof(key.key));
	memset(key.asks, n + 100, sizeof(key.asks));
	return key;
}

static void set_key(struct op *call, uint8_t n)
{
	const struct request_key key = key_of(n);

	op_key(call, &key);
}

/* What the catalogue has recorded. */
struct record {
	unsigned n;
	struct request_key key;
	struct store_answer last;
	char tenant[32], ids[SANDBOX_ID_LEN * 64];
};

static void on_made(void *arg, const struct store_answer *made)
{
	struct record *r = arg;

	r->n++;
	r->last = *made;
	memcpy(r->key.key, made->key, sizeof(r->key.key));
	memcpy(r->key.asks, made->asks, sizeof(r->key.asks));
	snprintf(r->tenant, sizeof(r->tenant), "%s", made->tenant);
	snprintf(r->ids, sizeof(r->ids), "%s", made->ids);
}

static struct record read_record(struct world *w)
{
	struct record r = {0};
	struct err e;

	assert_int_equal(service_requests_made(w->service, HOUR_MS, on_made, &r, &e), 0);
	return r;
}

static int64_t record_age_ms(struct record r)
{
	return realtime_ms() - r.last.answered_at_ms;
}

static void restart(struct world *w)
{
	world_kill_service(w);
	world_start_service(w);
	world_wait_ready(w);
}

/* Checks that one request is recorded: with key `n`, and made just now. */
static struct record check_one(struct world *w, uint8_t n, enum made_kind kind, const char *ids)
{
	const struct request_key key = key_of(n);
	struct record r = read_record(w);

	assert_int_equal(r.n, 1);
	assert_memory_equal(&r.key, &key, sizeof(key));
	assert_string_equal(r.tenant, TENANT);
	assert_int_equal(r.last.kind, kind);
	assert_string_equal(r.ids, ids);
	assert_true(record_age_ms(r) < HOUR_MS);
	return r;
}

static unsigned sandboxes(struct world *w)
{
	return (unsigned)world_metric(w, "sandboxes");
}

static void key_of_a_create_survives_a_kill(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {0};
	struct made m;

	world_create_start(w, &m, &spec);
	set_key(m.call, 1);
	world_until_true(w, &m.done);
	assert_true(m.ok);
	check_one(w, 1, MADE_SANDBOX, m.view.id);
	restart(w);
	check_one(w, 1, MADE_SANDBOX, m.view.id);
	assert_int_equal(sandboxes(w), 1);
}

static void key_of_an_unfinished_create_is_not_recorded(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {0};
	struct made m;

	world_create_start(w, &m, &spec);
	set_key(m.call, 1);
	restart(w);
	assert_int_equal(read_record(w).n, 0);
	assert_int_equal(sandboxes(w), 0);
}

static void request_without_a_key_is_not_recorded(void **state)
{
	struct sandbox_spec spec = {0};
	struct made m;

	world_create(*state, &m, &spec);
	assert_int_equal(read_record(*state).n, 0);
}

static void key_of_a_failed_request_is_not_recorded(void **state)
{
	struct world *w = *state;
	struct forked k;

	world_fork_start(w, &k, "sbx_00000000000000000000000000000000", 2, false);
	set_key(k.call, 1);
	world_until_true(w, &k.done);
	assert_false(k.ok);
	assert_int_equal(read_record(w).n, 0);
}

static void key_of_a_fork_survives_with_its_children(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {0};
	char ids[3 * (SANDBOX_ID_LEN + 1)];
	struct forked k;
	struct made m;

	world_create(w, &m, &spec);
	world_fork_start(w, &k, m.view.id, 3, false);
	set_key(k.call, 2);
	world_until_true(w, &k.done);
	assert_true(k.ok);
	snprintf(ids, sizeof(ids), "%s %s %s", k.ids[0], k.ids[1], k.ids[2]);
	restart(w);
	struct record r = check_one(w, 2, MADE_CHILDREN, ids);
	assert_true(r.last.ready_us > 0);
	assert_int_equal(sandboxes(w), 4);
}

static void key_of_an_unfinished_fork_is_not_recorded(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {0};
	struct forked k;
	struct made m;

	world_create(w, &m, &spec);
	world_fork_start(w, &k, m.view.id, 3, false);
	set_key(k.call, 2);
	restart(w);
	assert_int_equal(read_record(w).n, 0);
	assert_int_equal(sandboxes(w), 1);
}

/* Two requests may wait for the same freeze. */
static void keys_of_a_freeze_and_a_resume_survive(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {0};
	struct frozen a, b;
	struct made m, again;

	world_create(w, &m, &spec);
	world_freeze_start(w, &a, m.view.id);
	set_key(a.call, 3);
	world_freeze_start(w, &b, m.view.id);
	set_key(b.call, 4);
	world_until_true(w, &a.done);
	world_until_true(w, &b.done);
	assert_true(a.ok && b.ok);
	restart(w);
	struct record r = read_record(w);
	assert_int_equal(r.n, 2);
	assert_int_equal(r.last.kind, MADE_SPACE);
	assert_string_equal(r.ids, a.id);
	service_key_forget(w->service, key_of(3).key);
	service_key_forget(w->service, key_of(4).key);
	assert_int_equal(read_record(w).n, 0);
	world_resume_start(w, &again, a.id, NULL);
	set_key(again.call, 5);
	world_until_true(w, &again.done);
	assert_true(again.ok);
	restart(w);
	check_one(w, 5, MADE_SANDBOX, again.view.id);
	assert_int_equal(sandboxes(w), 1);
}

struct keyed_freeze {
	struct world *w;
	struct frozen *z;
};

static bool is_recorded_or_answered(void *arg)
{
	struct keyed_freeze *k = arg;

	return k->z->done || read_record(k->w).n > 0;
}

/* The answer to a freeze waits for the disk; its key must not. */
static void freeze_killed_before_its_answer_is_recorded(void **state)
{
	struct world *w = *state;
	struct keyed_freeze k = {.w = w};
	struct sandbox_spec spec = {0};
	struct frozen z;
	struct made m;

	world_create(w, &m, &spec);
	world_freeze_start(w, &z, m.view.id);
	set_key(z.call, 6);
	k.z = &z;
	world_until(w, is_recorded_or_answered, &k);
	world_kill_service(w);
	world_start_service(w);
	struct record r = read_record(w);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.last.kind, MADE_SPACE);
	assert_int_equal(sandboxes(w), 0);
}

static void old_keys_are_removed_at_the_start(void **state)
{
	struct world *w = *state;
	struct sandbox_spec spec = {0};
	struct record r = {0};
	struct made m;
	struct err e;

	world_create_start(w, &m, &spec);
	set_key(m.call, 1);
	world_until_true(w, &m.done);
	while (record_age_ms(read_record(w)) < 2)
		;
	assert_int_equal(service_requests_made(w->service, 1, on_made, &r, &e), 0);
	assert_int_equal(r.n, 0);
	assert_int_equal(read_record(w).n, 0);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(key_of_a_create_survives_a_kill),
		WORLD_TEST(key_of_an_unfinished_create_is_not_recorded),
		WORLD_TEST(request_without_a_key_is_not_recorded),
		WORLD_TEST(key_of_a_failed_request_is_not_recorded),
		WORLD_TEST(key_of_a_fork_survives_with_its_children),
		WORLD_TEST(key_of_an_unfinished_fork_is_not_recorded),
		WORLD_TEST(keys_of_a_freeze_and_a_resume_survive),
		WORLD_TEST(freeze_killed_before_its_answer_is_recorded),
		WORLD_TEST(old_keys_are_removed_at_the_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
