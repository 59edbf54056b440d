// SPDX-License-Identifier: Apache-2.0
/* API keys of a cell: versions of a key are merged, whatever their order. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/etcd/ring.h"

#define HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static const struct ring_key good = {
	.id = "key_0123456789abcdef",
	.tenant = "tnt_0123456789abcdef",
	.hash = HASH,
	.name = "CI, \"main\"",
	.tier = "pro",
	.created_ms = 1000,
	.tier_ms = 1000,
};

static void offer(struct ring *r, const struct ring_key *key)
{
	struct text text = {0};
	struct err e;

	text_puts(&text, "{\"format\":1,\"keys\":[");
	ring_key_write(&text, key);
	text_puts(&text, "]}");
	if (ring_take_file(r, text.p, text.len, &e) < 0)
		fail_msg("%s", e.text);
	text_free(&text);
}

static void take(struct ring *r, const struct ring_key *key, int64_t revision)
{
	struct text text = {0};
	char name[64];

	snprintf(name, sizeof(name), "/ramet/3/keys/%s", key->id);
	ring_key_write(&text, key);
	ring_take(r, &(struct etcd_pair){.key = name,
					 .value = text.p,
					 .value_len = text.len,
					 .revision = revision});
	text_free(&text);
}

/* Returns the only key that etcd lacks. */
static struct ring_key missing(struct ring *r, int64_t expected)
{
	int64_t revision = -1;
	const struct ring_key *key = ring_missing(r, &revision);

	assert_non_null(key);
	assert_int_equal(revision, expected);
	const struct ring_key copy = *key;
	ring_put(r, &copy);
	assert_null(ring_missing(r, &revision));
	return copy;
}

static void nothing_missing(struct ring *r)
{
	int64_t revision;

	assert_null(ring_missing(r, &revision));
}

static void key_is_written_as_it_is_read(void **state)
{
	struct ring_key again, key = good;
	struct text text = {0};
	struct err e;

	key.ends_ms = 5000;
	key.revoked = true;
	ring_key_write(&text, &key);
	assert_int_equal(ring_key_read(&again, text.p, text.len, &e), 0);
	assert_memory_equal(&again, &key, sizeof(key));
	text_free(&text);
}

static void new_key_is_put_once(void **state)
{
	struct ring *r = ring_new(3);

	offer(r, &good);
	assert_string_equal(missing(r, 0).name, good.name);
	take(r, &good, 7);
	offer(r, &good);
	nothing_missing(r);
	/* etcd lost it. */
	ring_list_begin(r);
	missing(r, 0);
	ring_free(r);
}

static void revocation_is_never_undone(void **state)
{
	struct ring *r = ring_new(3);
	struct ring_key revoked = good;

	revoked.revoked = true;
	take(r, &good, 7);
	offer(r, &revoked);
	assert_true(missing(r, 7).revoked);
	/* Another host puts what it knew before. */
	take(r, &good, 9);
	assert_true(missing(r, 9).revoked);
	take(r, &revoked, 10);
	offer(r, &good);
	nothing_missing(r);
	ring_free(r);
}

static void merge_has_no_order(void **state)
{
	struct ring_key versions[3] = {good, good, good};
	static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}};
	struct err e;

	versions[0].ends_ms = 9000;
	versions[1].ends_ms = 5000;
	versions[1].tier_ms = 2000;
	snprintf(versions[1].tier, sizeof(versions[1].tier), "scale");
	versions[2].tier_ms = 2000;
	snprintf(versions[2].tier, sizeof(versions[2].tier), "free");
	for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
		struct ring_key key = versions[orders[i][0]];

		for (int j = 1; j < 3; j++)
			assert_int_equal(ring_key_merge(&key, &versions[orders[i][j]], &e), 0);
		assert_int_equal(key.ends_ms, 5000);
		assert_string_equal(key.tier, "scale");
	}
}

static void another_key_with_the_same_id_is_left_out(void **state)
{
	struct ring *r = ring_new(3);
	struct ring_key other = good;
	struct text text = {0};

	memset(other.hash, 'f', RING_HASH_TEXT);
	take(r, &good, 7);
	offer(r, &other);
	nothing_missing(r);
	take(r, &other, 8);
	nothing_missing(r);
	ring_write(r, &text);
	text_putc(&text, '\0');
	assert_non_null(strstr(text.p, HASH));
	assert_null(strstr(text.p, "ffff"));
	text_free(&text);
	ring_free(r);
}

static void damaged_keys_are_left_out(void **state)
{
	static const char *const bad[] = {
		"{}",
		"{\"format\":2,\"id\":\"key_1\",\"tenant\":\"tnt_1\",\"hash\":\"" HASH
		"\",\"name\":\"n\",\"tier\":\"pro\",\"created\":1,\"tier_at\":1}",
		"{\"format\":1,\"id\":\"key/1\",\"tenant\":\"tnt_1\",\"hash\":\"" HASH
		"\",\"name\":\"n\",\"tier\":\"pro\",\"created\":1,\"tier_at\":1}",
		"{\"format\":1,\"id\":\"key_1\",\"tenant\":\"tnt_1\",\"hash\":\"00"
		"\",\"name\":\"n\",\"tier\":\"pro\",\"created\":1,\"tier_at\":1}",
		"{\"format\":1,\"id\":\"key_1\",\"tenant\":\"tnt_1\",\"hash\":\"" HASH
		"\",\"name\":\"n\",\"tier\":\"pro\",\"created\":-1,\"tier_at\":1}",
	};
	struct ring_key key;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		e.text[0] = '\0';
		assert_true(ring_key_read(&key, bad[i], strlen(bad[i]), &e) < 0);
		assert_true(e.text[0]);
	}
	struct ring *r = ring_new(3);
	assert_true(ring_take_file(r, "[]", 2, &e) < 0);
	/* The value of another key's name. */
	struct text text = {0};
	ring_key_write(&text, &good);
	ring_take(r, &(struct etcd_pair){.key = "/ramet/3/keys/key_0923456789abcdef",
					 .value = text.p,
					 .value_len = text.len,
					 .revision = 3});
	text.len = 0;
	ring_write(r, &text);
	assert_int_equal(text.len, strlen("{\"format\":1,\"keys\":[\n]}\n"));
	text_free(&text);
	ring_free(r);
}

/* Or every turn would put it again, in vain: the revision is another one than this host knows. */
static void key_that_is_damaged_in_etcd_is_not_put_over_it(void **state)
{
	static const char *const bad[] = {
		"garbage",
		"{\"format\":2}",
		"{\"format\":1,\"id\":\"key_1\",\"tenant\":\"tnt_1\",\"hash\":\"" HASH
		"\",\"name\":\"n\",\"tier\":\"pro\",\"created\":1,\"tier_at\":1}",
	};
	struct ring_key revoked = good;

	revoked.revoked = true;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct ring *r = ring_new(3);

		offer(r, &good);
		ring_take(r, &(struct etcd_pair){.key = "/ramet/3/keys/key_0123456789abcdef",
						 .value = bad[i],
						 .value_len = strlen(bad[i]),
						 .revision = 8});
		nothing_missing(r);
		/* A change is put over it. */
		offer(r, &revoked);
		assert_true(missing(r, 8).revoked);
		ring_free(r);
	}
}

static void deleted_key_is_put_again(void **state)
{
	struct ring *r = ring_new(3);

	take(r, &good, 7);
	ring_take(r, &(struct etcd_pair){.key = "/ramet/3/keys/key_0123456789abcdef",
					 .deleted = true,
					 .revision = 8});
	missing(r, 0);
	ring_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(key_is_written_as_it_is_read),
		cmocka_unit_test(new_key_is_put_once),
		cmocka_unit_test(revocation_is_never_undone),
		cmocka_unit_test(merge_has_no_order),
		cmocka_unit_test(another_key_with_the_same_id_is_left_out),
		cmocka_unit_test(damaged_keys_are_left_out),
		cmocka_unit_test(key_that_is_damaged_in_etcd_is_not_put_over_it),
		cmocka_unit_test(deleted_key_is_put_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
