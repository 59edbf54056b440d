// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "orchestrator/store/keys.h"

/* --- clocks --------------------------------------------------------------------------------- */

static int64_t passed_s;  /* added to all clocks since the test began */
static int64_t stepped_s; /* by how much the wall clock was set forward; < 0: back */

/* Replaces libc's function. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	long ret = syscall(SYS_clock_gettime, id, t);

	t->tv_sec += passed_s + (id == CLOCK_REALTIME ? stepped_s : 0);
	return (int)ret;
}

/* -------------------------------------------------------------------------------------------- */

struct world {
	char dir[32], path[64];
	struct store *store;
	struct keys *keys;
	unsigned notified; /* number of calls of the listener */
};

static void on_revoked(void *arg)
{
	((struct world *)arg)->notified++;
}

static void open_all(struct world *w)
{
	struct err e;

	if (store_open(&w->store, w->path, &e) < 0 || keys_new(&w->keys, w->store, &e) < 0)
		fail_msg("%s", e.text);
	keys_watch(w->keys, on_revoked, w);
}

static void close_all(struct world *w)
{
	keys_free(w->keys);
	store_close(w->store);
}

static void reopen(struct world *w)
{
	close_all(w);
	open_all(w);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	passed_s = stepped_s = 0;
	strcpy(w->dir, "/tmp/ramet-keys-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->path, sizeof(w->path), "%s/catalogue.db", w->dir);
	open_all(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	char command[64];

	close_all(w);
	snprintf(command, sizeof(command), "rm -r %s", w->dir);
	int ret = system(command);
	free(w);
	return ret;
}

struct made {
	char text[KEY_TEXT_LEN + 1];
	const struct key *key;
};

static struct made make(struct world *w, const char *tenant)
{
	struct made m;
	struct err e;

	if (keys_create(w->keys, "a name", "pro", tenant, m.text, &m.key, &e) < 0)
		fail_msg("%s", e.text);
	return m;
}

static enum key_verdict check(struct world *w, const char *text)
{
	const struct key *key = NULL;
	enum key_verdict v = keys_check(w->keys, text, strlen(text), &key);

	assert_int_equal(key != NULL, v == KEY_GOOD || v == KEY_REVOKED);
	return v;
}

static void key_survives_a_restart(void **state)
{
	struct world *w = *state;
	const struct key *key;

	assert_false(keys_any(w->keys));
	struct made m = make(w, NULL), other = make(w, NULL);
	char id[KEY_ID_LEN + 1], tenant[TENANT_ID_LEN + 1];
	strcpy(id, m.key->id);
	strcpy(tenant, m.key->tenant);
	assert_string_not_equal(tenant, other.key->tenant);
	reopen(w);
	assert_true(keys_any(w->keys));
	assert_int_equal(keys_check(w->keys, m.text, KEY_TEXT_LEN, &key), KEY_GOOD);
	assert_string_equal(key->id, id);
	assert_string_equal(key->tenant, tenant);
	assert_string_equal(key->name, "a name");
	assert_string_equal(keys_tier(w->keys, tenant), "pro");
	assert_null(keys_tier(w->keys, TENANT_LOCAL));
}

static void malformed_and_unknown_keys_are_distinguished(void **state)
{
	struct world *w = *state;
	struct made m = make(w, NULL);
	char other[KEY_TEXT_LEN + 1];

	key_text_make(other);
	assert_int_equal(check(w, other), KEY_UNKNOWN);
	assert_int_equal(check(w, m.key->id), KEY_MALFORMED);
	assert_int_equal(check(w, ""), KEY_MALFORMED);
	m.text[10] ^= 1;
	assert_int_equal(check(w, m.text), KEY_MALFORMED);
}

/* Searches the files, since a freed page of the database may still contain a key. */
static void key_text_is_not_on_the_disk(void **state)
{
	struct world *w = *state;
	struct made m = make(w, NULL);
	char command[256];

	snprintf(command, sizeof(command), "! grep -q -a -r %.20s %s", m.text, w->dir);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "grep -q -a -r %s %s", m.key->id, w->dir);
	assert_int_equal(system(command), 0);
}

static void revoked_key_stays_revoked(void **state)
{
	struct world *w = *state;
	struct made m = make(w, NULL);
	struct err e;

	assert_int_equal(keys_revoke(w->keys, m.key->id, &e), 0);
	assert_int_equal(w->notified, 1);
	assert_int_equal(check(w, m.text), KEY_REVOKED);
	assert_int_equal(keys_revoke(w->keys, m.key->id, &e), 0);
	assert_int_equal(w->notified, 1);
	reopen(w);
	assert_int_equal(check(w, m.text), KEY_REVOKED);
	assert_true(keys_any(w->keys)); /* requests still need a key */
	assert_int_equal(keys_revoke(w->keys, "key_0000000000000000", &e), -ENOENT);
}

static void rotated_key_has_the_same_tenant(void **state)
{
	struct world *w = *state;
	struct made old = make(w, NULL), new;
	struct err e;

	assert_int_equal(keys_rotate(w->keys, old.key->id, -1, new.text, &new.key, &e), 0);
	assert_string_equal(new.key->tenant, old.key->tenant);
	assert_string_equal(new.key->tier, "pro");
	assert_string_not_equal(new.key->id, old.key->id);
	passed_s = 1000000;
	assert_int_equal(check(w, old.text), KEY_GOOD);
	assert_int_equal(check(w, new.text), KEY_GOOD);
	assert_int_equal(w->notified, 0);
}

static void old_key_ends_with_the_grace_period(void **state)
{
	struct world *w = *state;
	struct made old = make(w, NULL), new;
	struct err e;

	assert_int_equal(keys_rotate(w->keys, old.key->id, 3600, new.text, &new.key, &e), 0);
	reopen(w);
	passed_s = 3500;
	assert_int_equal(check(w, old.text), KEY_GOOD);
	passed_s = 3700;
	assert_int_equal(check(w, old.text), KEY_REVOKED);
	assert_int_equal(check(w, new.text), KEY_GOOD);
	assert_int_equal(keys_end_graces(w->keys, &e), 1);
	assert_int_equal(keys_end_graces(w->keys, &e), 0);
}

#define DAY_S 86400

/* The clock is set back, as it is after a restart of a host without a battery for the clock. */
static void clock_set_back_does_not_revive_a_key(void **state)
{
	struct world *w = *state;
	struct made gone = make(w, NULL), graced = make(w, NULL), new;
	struct err e;

	assert_int_equal(keys_revoke(w->keys, gone.key->id, &e), 0);
	assert_int_equal(keys_rotate(w->keys, graced.key->id, 60, new.text, &new.key, &e), 0);
	stepped_s = -DAY_S;
	assert_int_equal(check(w, gone.text), KEY_REVOKED);
	assert_int_equal(check(w, graced.text), KEY_GOOD);
	passed_s = 61; /* the grace period ends on time */
	assert_int_equal(check(w, graced.text), KEY_REVOKED);
	assert_int_equal(keys_end_graces(w->keys, &e), 1);
	stepped_s = -2 * DAY_S;
	reopen(w);
	assert_int_equal(check(w, gone.text), KEY_REVOKED);
	assert_int_equal(check(w, graced.text), KEY_REVOKED);
	assert_int_equal(check(w, new.text), KEY_GOOD);
}

/* A clock that was wrong when the service started counts again once it is corrected. */
static void corrected_clock_ends_a_grace_period(void **state)
{
	struct world *w = *state;
	struct made old = make(w, NULL), new;
	struct err e;

	assert_int_equal(keys_rotate(w->keys, old.key->id, 60, new.text, &new.key, &e), 0);
	stepped_s = -DAY_S;
	reopen(w);
	passed_s = 61;
	assert_int_equal(keys_end_graces(w->keys, &e), 0);
	stepped_s = 0;
	assert_int_equal(keys_end_graces(w->keys, &e), 1);
	assert_int_equal(check(w, old.text), KEY_REVOKED);
}

static void key_can_be_revoked_after_its_grace_period(void **state)
{
	struct world *w = *state;
	struct made old = make(w, NULL), new;
	struct err e;

	assert_int_equal(keys_rotate(w->keys, old.key->id, 60, new.text, &new.key, &e), 0);
	int64_t at_ms = old.key->revoked_at_ms;
	passed_s = 100;
	assert_int_equal(keys_revoke(w->keys, old.key->id, &e), 0);
	assert_int_equal(w->notified,
			 0); /* its requests were cut off when the grace period ended */
	assert_int_equal(old.key->revoked_at_ms, at_ms);
	assert_int_equal(keys_end_graces(w->keys, &e), 0);
}

/* A second rotation does not extend the grace period of the first. */
static void rotation_never_extends_a_grace_period(void **state)
{
	struct world *w = *state;
	struct made old = make(w, NULL), new;
	const char *id = old.key->id;
	struct err e;

	assert_int_equal(keys_rotate(w->keys, id, 100, new.text, &new.key, &e), 0);
	assert_int_equal(keys_rotate(w->keys, id, 10000, new.text, &new.key, &e), 0);
	assert_int_equal(keys_rotate(w->keys, id, -1, new.text, &new.key, &e), 0);
	passed_s = 99;
	assert_int_equal(check(w, old.text), KEY_GOOD);
	passed_s = 200;
	assert_int_equal(check(w, old.text), KEY_REVOKED);
	passed_s = 0;
	assert_int_equal(keys_rotate(w->keys, id, 0, new.text, &new.key, &e), 0);
	assert_int_equal(check(w, old.text), KEY_REVOKED);
	assert_int_equal(keys_rotate(w->keys, id, 0, new.text, &new.key, &e), -EKEYREVOKED);
	assert_int_equal(keys_rotate(w->keys, "key_x", 0, new.text, &new.key, &e), -ENOENT);
}

static void newest_key_sets_the_tier(void **state)
{
	struct world *w = *state;
	struct made first = make(w, NULL), second;
	struct err e;

	assert_int_equal(keys_create(w->keys, "more", "scale", first.key->tenant, second.text,
				     &second.key, &e),
			 0);
	assert_string_equal(keys_tier(w->keys, first.key->tenant), "scale");
}

/* A revoked key does not set the tier as long as the tenant has a valid one. */
static void revoked_key_does_not_set_the_tier(void **state)
{
	struct world *w = *state;
	struct made first = make(w, NULL), second;
	const char *tenant = first.key->tenant;
	struct err e;

	assert_int_equal(
		keys_create(w->keys, "more", "operator", tenant, second.text, &second.key, &e), 0);
	assert_int_equal(keys_revoke(w->keys, second.key->id, &e), 0);
	assert_string_equal(keys_tier(w->keys, tenant), "pro");
	assert_int_equal(keys_revoke(w->keys, first.key->id, &e), 0);
	assert_string_equal(keys_tier(w->keys, tenant), "pro");
}

static void names_are_checked(void **state)
{
	struct world *w = *state;
	char text[KEY_TEXT_LEN + 1], name[KEY_NAME_MAX + 2];
	const struct key *key;
	struct err e;

	memset(name, 'n', sizeof(name));
	name[KEY_NAME_MAX + 1] = '\0';
	assert_int_equal(keys_create(w->keys, name, "pro", NULL, text, &key, &e), -EINVAL);
	assert_int_equal(keys_create(w->keys, "", "pro", NULL, text, &key, &e), -EINVAL);
	assert_int_equal(keys_create(w->keys, "a\nb", "pro", NULL, text, &key, &e), -EINVAL);
	assert_false(keys_any(w->keys));
	name[KEY_NAME_MAX] = '\0';
	assert_int_equal(keys_create(w->keys, name, "pro", NULL, text, &key, &e), 0);
}

static void thousand_keys_are_distinguished(void **state)
{
	struct world *w = *state;
	struct made first = make(w, NULL), last = first;
	unsigned n = 0;

	for (int i = 1; i < 1000; i++)
		last = make(w, NULL);
	const struct key *key = NULL;
	while ((key = keys_next(w->keys, key)))
		n++;
	assert_int_equal(n, 1000);
	assert_ptr_equal(keys_next(w->keys, NULL), first.key);
	assert_null(keys_next(w->keys, last.key));
	assert_int_equal(check(w, first.text), KEY_GOOD);
	assert_int_equal(check(w, last.text), KEY_GOOD);
	assert_ptr_equal(keys_find(w->keys, last.key->id), last.key);
}

/* Returns the key as another host would tell it. */
static struct key elsewhere(const char *id, int64_t created_ms)
{
	struct key key = {.created_at_ms = created_ms, .tier_at_ms = created_ms};

	strcpy(key.id, id);
	strcpy(key.tenant, "tnt_0123456789abcdef");
	strcpy(key.name, "n");
	strcpy(key.tier, "pro");
	return key;
}

static void on_changed(void *arg)
{
	(*(unsigned *)arg)++;
}

static void key_of_another_host_is_taken(void **state)
{
	struct world *w = *state;
	const uint8_t hash[KEY_HASH_LEN] = {1}, other_hash[KEY_HASH_LEN] = {2};
	struct key newer = elsewhere("key_0000000000000002", 2000);
	struct key older = elsewhere("key_0000000000000001", 1000);
	unsigned changes = 0;
	struct err e;

	keys_follow(w->keys, on_changed, &changes);
	strcpy(older.tier, "free");
	assert_int_equal(keys_take(w->keys, &newer, hash, &e), 1);
	assert_int_equal(keys_take(w->keys, &newer, hash, &e), 0);
	assert_int_equal(keys_take(w->keys, &older, hash, &e), -EEXIST);
	assert_int_equal(keys_take(w->keys, &older, other_hash, &e), 1);
	assert_int_equal(changes, 2);
	/* The newest one is that which was made last, not which was taken last. */
	assert_string_equal(keys_tier(w->keys, newer.tenant), "pro");
	newer.revoked_at_ms = 3000;
	newer.revoked = true;
	assert_int_equal(keys_take(w->keys, &newer, hash, &e), 1);
	assert_int_equal(w->notified, 1);
	assert_int_equal(changes, 3);
	for (int i = 0; i < 2; i++) {
		const struct key *key = keys_find(w->keys, newer.id);

		assert_string_equal(key_state(key), "revoked");
		assert_memory_equal(keys_hash(key), hash, sizeof(hash));
		assert_string_equal(keys_tier(w->keys, newer.tenant), "free");
		assert_ptr_equal(keys_next(w->keys, keys_find(w->keys, older.id)), key);
		reopen(w);
	}
	newer = elsewhere("key_0000000000000002", 2000);
	strcpy(newer.tier, "scale");
	newer.tier_at_ms = 4000;
	newer.revoked_at_ms = 3000;
	assert_int_equal(keys_take(w->keys, &newer, hash, &e), 1);
	assert_string_equal(key_state(keys_find(w->keys, newer.id)), "revoked");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void tier_of_a_key_changes(void **state)
{
	struct world *w = *state;
	struct made old = make(w, NULL), new = make(w, old.key->tenant);
	char id[KEY_ID_LEN + 1], tenant[TENANT_ID_LEN + 1];
	struct err e;

	strcpy(id, new.key->id);
	strcpy(tenant, new.key->tenant);
	uint64_t events = store_events_count(w->store).last;
	assert_int_equal(keys_set_tier(w->keys, old.key->id, "free", &e), 0);
	assert_string_equal(keys_tier(w->keys, tenant), "pro"); /* of the newest key */
	assert_int_equal(keys_set_tier(w->keys, id, "scale", &e), 0);
	assert_string_equal(keys_tier(w->keys, tenant), "scale");
	assert_int_equal(store_events_count(w->store).last, events + 2);
	assert_int_equal(keys_set_tier(w->keys, id, "scale", &e), 0);
	assert_int_equal(store_events_count(w->store).last, events + 2);
	reopen(w);
	assert_string_equal(keys_find(w->keys, id)->tier, "scale");
	assert_int_equal(keys_revoke(w->keys, id, &e), 0);
	assert_int_equal(keys_set_tier(w->keys, id, "free", &e), -EKEYREVOKED);
	assert_int_equal(keys_set_tier(w->keys, "key_0123456789abcdef", "free", &e), -ENOENT);
	assert_string_equal(keys_find(w->keys, id)->tier, "scale");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(key_survives_a_restart),
		T(tier_of_a_key_changes),
		T(malformed_and_unknown_keys_are_distinguished),
		T(key_text_is_not_on_the_disk),
		T(revoked_key_stays_revoked),
		T(rotated_key_has_the_same_tenant),
		T(old_key_ends_with_the_grace_period),
		T(clock_set_back_does_not_revive_a_key),
		T(corrected_clock_ends_a_grace_period),
		T(key_can_be_revoked_after_its_grace_period),
		T(rotation_never_extends_a_grace_period),
		T(newest_key_sets_the_tier),
		T(revoked_key_does_not_set_the_tier),
		T(names_are_checked),
		T(thousand_keys_are_distinguished),
		T(key_of_another_host_is_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
