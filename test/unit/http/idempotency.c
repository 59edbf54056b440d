// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/http/idempotency.h"

static const uint8_t one[IDEM_HASH_LEN] = {1}, two[IDEM_HASH_LEN] = {2};

static int set_up(void **state)
{
	struct idem *t = calloc(1, sizeof(*t));

	if (!t)
		return -1;
	memset(t, 0, sizeof(*t));
	*state = t;
	return 0;
}

static int tear_down(void **state)
{
	idem_fini(*state);
	free(*state);
	return 0;
}

static enum idem_found begin(struct idem *t, const char *tenant, const char *key, uint64_t now_ms,
			     struct idem_entry **e)
{
	return idem_begin(t, tenant, key, strlen(key), one, now_ms, e);
}

/* Makes a request with this key, which is answered with `len` bytes. */
static void answer(struct idem *t, const char *tenant, const char *key, size_t len, uint64_t now_ms)
{
	char *body = calloc(1, len + 1);
	struct idem_entry *e;

	assert_int_equal(begin(t, tenant, key, now_ms, &e), IDEM_NEW);
	idem_answer(t, e, 201, body, len, now_ms);
	free(body);
}

static bool remembers(struct idem *t, const char *tenant, const char *key, uint64_t now_ms)
{
	struct idem_entry *e;

	if (begin(t, tenant, key, now_ms, &e) == IDEM_ANSWERED)
		return true;
	idem_forget(t, e);
	return false;
}

static void key_is_new_then_in_flight_then_answered(void **state)
{
	struct idem *t = *state;
	struct idem_entry *e, *again;

	assert_int_equal(begin(t, "a", "k", 5, &e), IDEM_NEW);
	assert_int_equal(begin(t, "a", "k", 5, &again), IDEM_UNDER_WAY);
	assert_int_equal(idem_begin(t, "a", "k", 1, two, 5, &again), IDEM_OTHER);
	idem_answer(t, e, 201, "{}\n", 3, 6);
	assert_int_equal(begin(t, "a", "k", 7, &again), IDEM_ANSWERED);
	assert_int_equal(again->status, 201);
	assert_int_equal(again->len, 3);
	assert_memory_equal(again->body, "{}\n", 3);
	assert_int_equal(idem_begin(t, "a", "k", 1, two, 7, &again), IDEM_OTHER);
}

static void forgotten_key_is_new(void **state)
{
	struct idem *t = *state;
	struct idem_entry *e;

	assert_int_equal(begin(t, "a", "k", 0, &e), IDEM_NEW);
	idem_forget(t, e);
	assert_int_equal(idem_begin(t, "a", "k", 1, two, 0, &e), IDEM_NEW);
}

/* "ab" + "c" must differ from "a" + "bc". */
static void each_tenant_has_its_own_keys(void **state)
{
	struct idem *t = *state;

	answer(t, "ab", "c", 1, 0);
	assert_false(remembers(t, "a", "bc", 0));
	assert_false(remembers(t, "a", "c", 0));
	assert_true(remembers(t, "ab", "c", 0));
}

static void answer_expires(void **state)
{
	struct idem *t = *state;
	char key[16];

	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "%d", i);
		answer(t, "a", key, 100, 1000 + (uint64_t)i);
	}
	assert_true(remembers(t, "a", "999", 1999 + IDEM_KEPT_MS - 1));
	assert_false(remembers(t, "a", "999", 1999 + IDEM_KEPT_MS));
	for (int i = 0; i < 100; i++)
		remembers(t, "b", "k", 1999 + IDEM_KEPT_MS);
	assert_int_equal(t->bytes, 0);
}

static void request_in_flight_does_not_expire(void **state)
{
	struct idem *t = *state;
	struct idem_entry *e, *again;

	assert_int_equal(begin(t, "a", "k", 0, &e), IDEM_NEW);
	assert_int_equal(begin(t, "a", "k", 9ull * IDEM_KEPT_MS, &again), IDEM_UNDER_WAY);
	idem_answer(t, e, 200, "", 0, 9ull * IDEM_KEPT_MS);
	assert_true(remembers(t, "a", "k", 9ull * IDEM_KEPT_MS));
}

/* Only the oldest answers of the same tenant are evicted. */
static void answers_of_a_tenant_are_limited(void **state)
{
	struct idem *t = *state;
	char key[16];

	answer(t, "b", "k", 10, 0);
	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "%d", i);
		answer(t, "a", key, IDEM_TENANT_BYTES / 100, 0);
	}
	assert_true(t->bytes <= 2 * IDEM_TENANT_BYTES);
	assert_true(remembers(t, "a", "999", 0));
	assert_true(remembers(t, "a", "950", 0));
	assert_false(remembers(t, "a", "800", 0));
	assert_true(remembers(t, "b", "k", 0));
	answer(t, "c", "k", IDEM_TENANT_BYTES, 0);
	assert_false(remembers(t, "c", "k", 0));
}

static void answers_of_all_tenants_are_limited(void **state)
{
	struct idem *t = *state;
	char tenant[16];

	for (int i = 0; i < 40; i++) {
		snprintf(tenant, sizeof(tenant), "%d", i);
		answer(t, tenant, "k", IDEM_TENANT_BYTES - 4096, 0);
		assert_true(t->bytes <= IDEM_TOTAL_BYTES);
	}
	assert_true(remembers(t, "39", "k", 0));
	assert_true(remembers(t, "30", "k", 0));
	assert_false(remembers(t, "0", "k", 0));
}

/* Keys that the hook was called for. */
struct hook {
	unsigned n;
	uint8_t last[IDEM_HASH_LEN];
};

static void on_forgotten(void *arg, const uint8_t key[static IDEM_HASH_LEN])
{
	struct hook *hook = arg;

	hook->n++;
	memcpy(hook->last, key, sizeof(hook->last));
}

static void restored_answer_is_like_the_first(void **state)
{
	struct idem *before = malloc(sizeof(*before)), *t = *state;
	struct idem_entry *e, *again;

	memset(before, 0, sizeof(*before));
	assert_int_equal(begin(before, "a", "k", 5, &e), IDEM_NEW);
	idem_answer(before, e, 201, "{}\n", 3, 5);
	/* The clock of this instance is younger than the answer. */
	idem_restore(t, "a", e->key, e->asks, 201, e->body, e->len, 7 - (uint64_t)1000);
	assert_int_equal(begin(t, "a", "k", 7, &again), IDEM_ANSWERED);
	assert_int_equal(again->status, 201);
	assert_memory_equal(again->body, "{}\n", 3);
	assert_int_equal(idem_begin(t, "a", "k", 1, two, 7, &again), IDEM_OTHER);
	assert_int_equal(t->bytes, before->bytes);
	assert_true(remembers(t, "a", "k", 7 + IDEM_KEPT_MS - 1001));
	assert_false(remembers(t, "a", "k", 7 + IDEM_KEPT_MS - 1000));
	assert_int_equal(begin(before, "a", "k", 5, &e), IDEM_ANSWERED);
	idem_fini(before);
	free(before);
}

static void hook_is_called_for_each_forgotten_key(void **state)
{
	struct hook hook = {0};
	struct idem *t = *state;
	struct idem_entry *e;

	t->forgotten = on_forgotten;
	t->arg = &hook;
	answer(t, "a", "old", 1, 0);
	assert_int_equal(begin(t, "a", "failed", 0, &e), IDEM_NEW);
	uint8_t key[IDEM_HASH_LEN];
	memcpy(key, e->key, sizeof(key));
	idem_forget(t, e);
	assert_int_equal(hook.n, 1);
	assert_memory_equal(hook.last, key, sizeof(key));
	assert_int_equal(begin(t, "a", "new", IDEM_KEPT_MS, &e), IDEM_NEW);
	assert_int_equal(hook.n, 2);
	idem_answer(t, e, 200, "", 0, IDEM_KEPT_MS);
	answer(t, "a", "large", IDEM_TENANT_BYTES - 200, IDEM_KEPT_MS);
	assert_int_equal(hook.n, 3);
	idem_fini(t);
	assert_int_equal(hook.n, 3); /* the end of the service is no reason to forget */
	memset(t, 0, sizeof(*t));
}

static void keys_are_validated(void **state)
{
	static const char *const good[] = {"k", "!", "~", "6a1f-\"x\"", "a,b;c=d"};
	static const char *const bad[] = {"", " ", "a b", "a\tb", "a\nb", "a\x7f", "caf\xc3\xa9"};
	char longest[IDEM_KEY_MAX + 1];

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_true(idem_key_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(idem_key_valid(bad[i], strlen(bad[i])));
	assert_false(idem_key_valid("a\0b", 3));
	memset(longest, 'x', sizeof(longest));
	assert_true(idem_key_valid(longest, IDEM_KEY_MAX));
	assert_false(idem_key_valid(longest, IDEM_KEY_MAX + 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(key_is_new_then_in_flight_then_answered),
		TEST(forgotten_key_is_new),
		TEST(each_tenant_has_its_own_keys),
		TEST(answer_expires),
		TEST(request_in_flight_does_not_expire),
		TEST(answers_of_a_tenant_are_limited),
		TEST(answers_of_all_tenants_are_limited),
		TEST(restored_answer_is_like_the_first),
		TEST(hook_is_called_for_each_forgotten_key),
		cmocka_unit_test(keys_are_validated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
