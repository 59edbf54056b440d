// SPDX-License-Identifier: Apache-2.0
/* Shared ports: who has access, and how long. */
#include <string.h>

#include "orchestrator/ports/ports.h"
#include "orchestrator/store/keys.h"
#include "test/unit/service/world.h"

static struct port_share share(struct world *w, const char *id, uint16_t port, enum change access)
{
	struct port_share made;
	struct failure f;

	if (!service_port_share(w->service, TENANT, id, port, access, &made, &f))
		fail_msg("%s", f.text);
	assert_int_equal(made.port, port);
	assert_int_equal(strlen(made.token), PORT_TOKEN_LEN);
	return made;
}

static bool admits(struct world *w, const char *id, uint16_t port, const char *token)
{
	const char *tenant =
		service_port_admits(w->service, id, port, token, token ? strlen(token) : 0);

	if (tenant)
		assert_string_equal(tenant, TENANT);
	return tenant;
}

static void count(void *arg, const struct port_share *each)
{
	unsigned *n = arg;

	++*n;
}

static unsigned number(struct world *w, const char *id)
{
	unsigned n = 0;
	struct failure f;

	assert_true(service_port_shares(w->service, TENANT, id, count, &n, &f));
	return n;
}

static void tokens_give_access_to_their_port(void **state)
{
	struct world *w = *state;
	struct made a, b;

	world_create(w, &a, &(struct sandbox_spec){0});
	world_create(w, &b, &(struct sandbox_spec){0});
	struct port_share first = share(w, a.view.id, 80, CHANGE_NONE);
	struct port_share second = share(w, a.view.id, 79, CHANGE_FALSE);
	assert_string_not_equal(first.token, second.token);
	assert_true(admits(w, a.view.id, 80, first.token) &&
		    admits(w, a.view.id, 79, second.token));
	assert_false(admits(w, a.view.id, 79, first.token) ||
		     admits(w, a.view.id, 81, first.token) ||
		     admits(w, b.view.id, 80, first.token) || admits(w, a.view.id, 80, NULL) ||
		     admits(w, a.view.id, 80, "") || admits(w, "sbx_none", 80, first.token));
	first.token[PORT_TOKEN_LEN - 1] ^= 1;
	assert_false(admits(w, a.view.id, 80, first.token));
}

static void public_ports_need_no_token(void **state)
{
	struct world *w = *state;
	struct made a;

	world_create(w, &a, &(struct sandbox_spec){0});
	struct port_share first = share(w, a.view.id, 80, CHANGE_TRUE);
	assert_true(first.is_public && admits(w, a.view.id, 80, NULL) &&
		    admits(w, a.view.id, 80, "wrong"));
	struct port_share same = share(w, a.view.id, 80, CHANGE_NONE);
	assert_true(same.is_public && !strcmp(same.token, first.token));
	same = share(w, a.view.id, 80, CHANGE_FALSE);
	assert_true(!same.is_public && !strcmp(same.token, first.token));
	assert_false(admits(w, a.view.id, 80, NULL));
}

static void shares_survive_a_restart_until_they_are_ended(void **state)
{
	struct world *w = *state;
	struct port_share found;
	struct made a;
	struct failure f;

	world_create(w, &a, &(struct sandbox_spec){0});
	struct port_share first = share(w, a.view.id, 80, CHANGE_NONE);
	share(w, a.view.id, 65535, CHANGE_TRUE);
	share(w, a.view.id, 1, CHANGE_NONE);
	world_kill_service(w);
	world_start_service(w);
	assert_int_equal(number(w, a.view.id), 3);
	assert_true(admits(w, a.view.id, 80, first.token) && admits(w, a.view.id, 65535, NULL));
	assert_true(service_port_unshare(w->service, TENANT, a.view.id, 80, &f));
	assert_false(admits(w, a.view.id, 80, first.token));
	assert_false(service_port_shared(w->service, TENANT, a.view.id, 80, &found, &f));
	assert_int_equal(f.code, FAIL_NOT_SHARED);
	assert_false(service_port_unshare(w->service, TENANT, a.view.id, 80, &f));
	world_kill_service(w);
	world_start_service(w);
	assert_int_equal(number(w, a.view.id), 2);
	assert_false(admits(w, a.view.id, 80, first.token));
}

static void children_of_a_fork_have_no_shares(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made a;

	world_create(w, &a, &(struct sandbox_spec){0});
	struct port_share first = share(w, a.view.id, 80, CHANGE_TRUE);
	world_fork(w, &k, a.view.id, 1);
	assert_int_equal(number(w, k.ids[0]), 0);
	assert_false(admits(w, k.ids[0], 80, first.token));
	assert_int_equal(number(w, a.view.id), 1);
}

static void the_number_of_shares_is_limited(void **state)
{
	struct world *w = *state;
	struct port_share made;
	struct failure f;
	struct made a;

	world_create(w, &a, &(struct sandbox_spec){0});
	for (uint16_t port = 1; port <= PORT_SHARES_MAX; port++)
		share(w, a.view.id, port, CHANGE_NONE);
	assert_false(
		service_port_share(w->service, TENANT, a.view.id, 1000, CHANGE_NONE, &made, &f));
	assert_int_equal(f.code, FAIL_TOO_MANY);
	assert_false(
		service_port_share(w->service, "stranger", a.view.id, 1, CHANGE_TRUE, &made, &f));
	assert_int_equal(f.code, FAIL_NOT_FOUND);
}

/* --- visitors ------------------------------------------------------------------------------- */

struct visit {
	bool ended;
	enum failure_code code;
};

static void on_ended(void *arg, const struct failure *f)
{
	struct visit *v = arg;

	v->ended = true;
	v->code = f ? f->code : FAIL_NONE;
}

static void on_nothing(void *arg)
{
}

static void on_data(void *arg, const uint8_t *data, size_t len)
{
}

static const struct port_sink sink = {.connected = on_nothing,
				      .data = on_data,
				      .eof = on_nothing,
				      .sent = on_nothing,
				      .ended = on_ended};

#define VISITS 200

static struct visit visits[VISITS];
static struct op *calls[VISITS];
static unsigned n_visits;

/* Connects `n` times, as this visitor (0: the tenant). The guests have no time to answer. */
static void connect_as(struct world *w, const char *id, uint64_t visitor, unsigned n)
{
	for (; n && n_visits < VISITS; n--, n_visits++) {
		visits[n_visits] = (struct visit){0};
		calls[n_visits] =
			service_port_connect(w->service, world_tenant, id, 80,
					     visitor ? &visitor : NULL, &sink, &visits[n_visits]);
	}
}

/* Waits until the refusals so far were reported, closes the other connections, and returns the
 * number of refusals with `code`. */
static unsigned refused(struct world *w, enum failure_code code)
{
	unsigned n = 0;

	connect_as(w, "sbx_none", 0, 1);
	world_until_true(w, &visits[n_visits - 1].ended);
	for (unsigned i = 0; i < n_visits; i++) {
		n += visits[i].ended && visits[i].code == code;
		if (!visits[i].ended)
			op_abandon(calls[i]);
	}
	n_visits = 0;
	return n;
}

static const struct key *key_of(struct world *w, const char *tenant)
{
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
	struct err e;

	assert_int_equal(
		keys_create(service_keys(w->service), "a test", "pro", tenant, text, &key, &e), 0);
	return key;
}

static void shares_end_with_the_last_key_of_their_tenant(void **state)
{
	struct world *w = *state;
	const struct key *first = key_of(w, NULL), *second = key_of(w, first->tenant);
	struct made a;
	struct err e;

	key_of(w, NULL); /* of another tenant */
	world_tenant = first->tenant;
	world_create(w, &a, &(struct sandbox_spec){0});
	struct port_share made = share(w, a.view.id, 80, CHANGE_TRUE);
	connect_as(w, a.view.id, 1, 3);
	connect_as(w, a.view.id, 0, 1);
	keys_revoke(service_keys(w->service), first->id, &e);
	service_port_end_unserved(w->service);
	assert_true(admits(w, a.view.id, 80, NULL) && admits(w, a.view.id, 80, made.token));
	assert_int_equal(refused(w, FAIL_NOT_SHARED), 0);

	connect_as(w, a.view.id, 1, 3);
	connect_as(w, a.view.id, 0, 1);
	keys_revoke(service_keys(w->service), second->id, &e);
	service_port_end_unserved(w->service);
	assert_false(admits(w, a.view.id, 80, NULL) || admits(w, a.view.id, 80, made.token));
	assert_int_equal(refused(w, FAIL_NOT_SHARED), 3);
	key_of(w, first->tenant);
	assert_true(admits(w, a.view.id, 80, made.token));
}

static void visitors_leave_half_of_the_connections_to_the_tenant(void **state)
{
	struct world *w = *state;
	struct made a;

	world_create(w, &a, &(struct sandbox_spec){0});
	for (uint64_t visitor = 1; visitor <= 100; visitor++)
		connect_as(w, a.view.id, visitor, 1);
	connect_as(w, a.view.id, 0, 70);
	assert_int_equal(refused(w, FAIL_TOO_MANY), (100 - 64) + (70 - 64));
	/* All are closed. */
	connect_as(w, a.view.id, 0, 128);
	assert_int_equal(refused(w, FAIL_TOO_MANY), 0);
}

static void connections_of_a_visitor_are_limited(void **state)
{
	struct world *w = *state;
	struct made a, b;

	world_create(w, &a, &(struct sandbox_spec){0});
	world_create(w, &b, &(struct sandbox_spec){0});
	connect_as(w, a.view.id, 7, 20);
	connect_as(w, b.view.id, 7, 20);
	connect_as(w, a.view.id, 8, 20);
	assert_int_equal(refused(w, FAIL_TOO_MANY), 40 - 32);
	world_kill_service(w);
	w->config.visitor_connections = 64;
	world_start_service(w);
	world_create(w, &a, &(struct sandbox_spec){0});
	world_create(w, &b, &(struct sandbox_spec){0});
	connect_as(w, a.view.id, 7, 40);
	connect_as(w, b.view.id, 7, 40);
	assert_int_equal(refused(w, FAIL_TOO_MANY), 80 - 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
		WORLD_TEST(tokens_give_access_to_their_port),
		WORLD_TEST(public_ports_need_no_token),
		WORLD_TEST(shares_survive_a_restart_until_they_are_ended),
		WORLD_TEST(children_of_a_fork_have_no_shares),
		WORLD_TEST(the_number_of_shares_is_limited),
		WORLD_TEST(shares_end_with_the_last_key_of_their_tenant),
		WORLD_TEST(visitors_leave_half_of_the_connections_to_the_tenant),
		WORLD_TEST(connections_of_a_visitor_are_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
