// SPDX-License-Identifier: Apache-2.0
/* What etcd is asked, and its answers: good ones and those that etcd cannot have written. */
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
#include "orchestrator/etcd/wire.h"

#define HEADER(revision)                                                                           \
	"\"header\":{\"cluster_id\":\"14841639068965178418\",\"revision\":\"" revision "\"}"
#define KV(key, revision)                                                                          \
	"{\"key\":\"" key "\",\"create_revision\":\"2\",\"mod_revision\":\"" revision              \
	"\",\"version\":\"1\",\"value\":\"aGVsbG8=\",\"lease\":\"7587899226880089349\"}"
#define A "L2E=" /* "/a" */

struct seen {
	size_t n;
	char keys[256];
	struct etcd_pair last; /* its texts are gone */
};

static void on_pair(void *arg, const struct etcd_pair *pair)
{
	struct seen *s = arg;

	s->n++;
	s->last = *pair;
	snprintf(s->keys + strlen(s->keys), sizeof(s->keys) - strlen(s->keys), "%s%s ",
		 pair->deleted ? "-" : "", pair->key);
}

static void expect_text(struct text *t, const char *wanted)
{
	text_putc(t, '\0');
	assert_string_equal(t->p, wanted);
	text_free(t);
}

static void requests_have_numbers_as_strings(void **state)
{
	struct text t = {0};
	const struct text value = {.p = (char[]){"hello"}, .len = 5};

	etcd_range_request(&t, "/a", "/b", 7);
	expect_text(&t, "{\"key\":\"L2E=\",\"range_end\":\"L2I=\",\"limit\":\"100\","
			"\"revision\":\"7\"}");
	etcd_put_request(&t, "/a", &value, 9, 0);
	expect_text(&t, "{\"compare\":[{\"target\":\"MOD\",\"result\":\"EQUAL\",\"key\":\"L2E=\","
			"\"mod_revision\":\"0\"}],\"success\":[{\"request_put\":{\"key\":\"L2E=\","
			"\"value\":\"aGVsbG8=\",\"lease\":\"9\"}}],\"failure\":[{\"request_range\":"
			"{\"key\":\"L2E=\"}}]}");
	etcd_watch_request(&t, "/a", "/b", 8);
	expect_text(&t, "{\"create_request\":{\"key\":\"L2E=\",\"range_end\":\"L2I=\","
			"\"start_revision\":\"8\"}}");
	etcd_grant_request(&t, 30);
	expect_text(&t, "{\"TTL\":\"30\"}");
	etcd_keepalive_request(&t, INT64_MAX);
	expect_text(&t, "{\"ID\":\"9223372036854775807\"}");
}

static void range_is_read(void **state)
{
	const char text[] = "{" HEADER("9") ",\"kvs\":[" KV(A, "2") "," KV(
		"L2I=", "3") "],"
			     "\"more\":true,\"count\":\"5\"}";
	struct seen s = {0};
	struct etcd_range r;
	struct err e;

	assert_int_equal(etcd_range_read(&r, text, strlen(text), on_pair, &s, &e), 0);
	assert_int_equal(r.revision, 9);
	assert_true(r.more);
	assert_string_equal(s.keys, "/a /b ");
	assert_int_equal(s.last.revision, 3);
	assert_int_equal(s.last.lease, 7587899226880089349);
	assert_int_equal(s.last.value_len, 5);
}

/* Somebody else has written them, which must not keep a host from the other keys. */
static void odd_pairs_are_marked(void **state)
{
	static const struct {
		size_t key, value; /* bytes, as many groups of three as that */
		bool odd;
	} pairs[] = {{1, 1365, false}, {1, 1366, true}, {85, 1, false}, {86, 1, true}};
	const char nul[] = "{" HEADER("9") ",\"kvs\":[{\"key\":\"L2EA\",\"mod_revision\":\"2\"}]}";
	struct seen s = {0};
	struct etcd_range r;
	struct err e;

	assert_int_equal(etcd_range_read(&r, nul, strlen(nul), on_pair, &s, &e), 0);
	assert_true(s.n == 1 && s.last.odd);
	assert_string_equal(s.keys, "/a ");
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		struct text t = {0};

		text_puts(&t, "{" HEADER("9") ",\"kvs\":[{\"mod_revision\":\"2\",\"key\":\"");
		for (size_t n = 0; n < pairs[i].key; n++)
			text_puts(&t, "aaaa");
		text_puts(&t, "\",\"value\":\"");
		for (size_t n = 0; n < pairs[i].value; n++)
			text_puts(&t, "aaaa");
		text_puts(&t, "\"}]}");
		assert_int_equal(etcd_range_read(&r, t.p, t.len, on_pair, &s, &e), 0);
		assert_int_equal(s.last.odd, pairs[i].odd);
		assert_in_range(s.last.value_len, 1, ETCD_VALUE_MAX);
		text_free(&t);
	}
}

static void put_says_what_is_there(void **state)
{
	const char good[] = "{" HEADER("2") ",\"succeeded\":true,\"responses\":[{\"response_put\":"
					    "{" HEADER("2") "}}]}";
	const char taken[] = "{" HEADER("2") ",\"responses\":[{\"response_range\":{" HEADER(
		"2") ",\"kvs\":[" KV(A, "2") "],\"count\":\"1\"}}]}";
	const char gone[] =
		"{" HEADER("2") ",\"responses\":[{\"response_range\":{" HEADER("2") "}}"
										    "]}";
	struct seen s = {0};
	struct err e;
	bool done;

	assert_int_equal(etcd_put_read(&done, good, strlen(good), on_pair, &s, &e), 0);
	assert_true(done && !s.n);
	assert_int_equal(etcd_put_read(&done, gone, strlen(gone), on_pair, &s, &e), 0);
	assert_true(!done && !s.n);
	assert_int_equal(etcd_put_read(&done, taken, strlen(taken), on_pair, &s, &e), 0);
	assert_true(!done && s.n == 1);
	assert_string_equal(s.keys, "/a ");
}

static void leases_are_read(void **state)
{
	const char grant[] = "{" HEADER("1") ",\"ID\":\"7587899226880089349\",\"TTL\":\"30\"}";
	const char alive[] = "{\"result\":{" HEADER("1") ",\"ID\":\"12\",\"TTL\":\"30\"}}\n";
	const char gone[] = "{\"result\":{" HEADER("1") ",\"ID\":\"12\"}}\n";
	struct etcd_lease l;
	struct err e;

	assert_int_equal(etcd_grant_read(&l, grant, strlen(grant), &e), 0);
	assert_int_equal(l.id, 7587899226880089349);
	assert_int_equal(l.ttl_s, 30);
	assert_int_equal(etcd_keepalive_read(&l, alive, strlen(alive), &e), 0);
	assert_true(l.id == 12 && l.ttl_s == 30);
	assert_int_equal(etcd_keepalive_read(&l, gone, strlen(gone), &e), 0);
	assert_true(l.id == 12 && l.ttl_s == 0);
}

static void watch_is_read(void **state)
{
	const char created[] = "{\"result\":{" HEADER("2") ",\"created\":true}}\n";
	const char events[] = "{\"result\":{" HEADER("4") ",\"events\":[{\"kv\":" KV(
		A, "3") "},{\"type\":\"DELETE\",\"kv\":{\"key\":\"L2I=\",\"mod_revision\":\"4\"}}]}"
			"}\n";
	const char compacted[] = "{\"result\":{\"header\":{\"raft_term\":\"2\"},\"canceled\":true,"
				 "\"compact_revision\":\"5\"}}\n";
	struct seen s = {0};
	struct etcd_change c;
	struct err e;

	assert_int_equal(etcd_watch_read(&c, created, strlen(created), on_pair, &s, &e), 0);
	assert_true(c.began == 2 && !c.over && !s.n);
	assert_int_equal(etcd_watch_read(&c, events, strlen(events), on_pair, &s, &e), 0);
	assert_true(!c.began && !c.over);
	assert_string_equal(s.keys, "/a -/b ");
	assert_int_equal(s.last.revision, 4);
	assert_int_equal(etcd_watch_read(&c, compacted, strlen(compacted), on_pair, &s, &e), 0);
	assert_true(c.over && c.compacted);
}

static void refuse_range(const char *text, const char *reason)
{
	struct seen s = {0};
	struct etcd_range r;
	struct err e = {0};

	assert_int_equal(etcd_range_read(&r, text, strlen(text), on_pair, &s, &e), -EPROTO);
	if (!strstr(e.text, reason))
		fail_msg("\"%s\" does not say \"%s\"", e.text, reason);
	assert_int_equal(s.n, 0);
}

static void hostile_answers_are_refused(void **state)
{
	refuse_range("garbage", "range");
	refuse_range("{}", "header");
	refuse_range("{\"header\":{}}", "it has no revision");
	refuse_range("{" HEADER("-1") "}", "is not a number");
	refuse_range("{" HEADER("9223372036854775808") "}", "is not a number");
	refuse_range("{" HEADER("99999999999999999999999") "}", "revision");
	refuse_range("{" HEADER("2") ",\"more\":true}", "more keys follow");
	refuse_range("{" HEADER("2") ",\"kvs\":[{\"key\":\"L2E=\"}]}", "no mod_revision");
	refuse_range("{" HEADER("2") ",\"kvs\":[{\"key\":\"AC9h\",\"mod_revision\":\"2\"}]}",
		     "begins with a NUL");
	refuse_range("{" HEADER("2") ",\"kvs\":[{\"key\":\"!\",\"mod_revision\":\"2\"}]}", "key");
	/* The good pair before the bad one is not used either. */
	refuse_range("{" HEADER("2") ",\"kvs\":[" KV(A, "2") "," KV(A, "x") "]}", "not a number");
}

static void hostile_leases_and_watches_are_refused(void **state)
{
	static const char *const texts[] = {
		"{\"ID\":\"0\",\"TTL\":\"30\"}",
		"{\"ID\":\"1\",\"TTL\":\"-30\"}",
		"{\"ID\":\"1\"}",
		"{\"result\":{\"ID\":\"1e3\",\"TTL\":\"30\"}}",
		"{\"error\":{\"message\":\"no\"}}",
		"{\"result\":{" HEADER("1") ",\"created\":true},\"error\":{}}",
		"{\"result\":{\"header\":{},\"created\":true}}",
		"{\"result\":{" HEADER("1") ",\"events\":[{\"type\":\"MOVE\",\"kv\":" KV(A,
											 "2") "}"
											      "]}}",
	};
	struct etcd_change c;
	struct etcd_lease l;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		size_t len = strlen(texts[i]);

		memset(&e, 0xff, sizeof(e)); /* what a caller has not set is not read */
		assert_int_equal(etcd_grant_read(&l, texts[i], len, &e), -EPROTO);
		assert_int_equal(etcd_keepalive_read(&l, texts[i], len, &e), -EPROTO);
		assert_int_equal(etcd_watch_read(&c, texts[i], len, NULL, NULL, &e), -EPROTO);
	}
}

static void failures_say_what_to_do(void **state)
{
	const char lost[] = "{\"error\":\"x\",\"message\":\"requested lease not found\","
			    "\"code\":5}";
	const char leader[] = "{\"code\":14,\"message\":\"etcdserver: no leader\",\"details\":[]}";
	const char wrong[] = "{\"code\":3,\"message\":\"key is not provided\"}";
	const char silent[] = "{\"code\":14,\"message\":\"\"}";
	struct err e;

	assert_int_equal(etcd_failure_read(404, lost, strlen(lost), &e), -ENOENT);
	assert_string_equal(e.text, "requested lease not found");
	assert_int_equal(etcd_failure_read(503, leader, strlen(leader), &e), -EAGAIN);
	assert_int_equal(etcd_failure_read(400, wrong, strlen(wrong), &e), -EIO);
	assert_int_equal(etcd_failure_read(500, silent, strlen(silent), &e), -EAGAIN);
	assert_string_equal(e.text, "it failed with code 14, without a message");
	assert_int_equal(etcd_failure_read(502, "<html>", 6, &e), -EAGAIN);
	assert_string_equal(e.text, "it answered HTTP status 502");
}

static void versions_have_advice(void **state)
{
	const char text[] = "{\"etcdserver\":\"3.4.23\",\"etcdcluster\":\"3.4.0\"}";
	char version[ETCD_VERSION_MAX + 1];
	struct err e;

	assert_int_equal(etcd_version_read(version, text, strlen(text), &e), 0);
	assert_string_equal(version, "3.4.23");
	assert_non_null(strstr(etcd_version_advice("3.4.23"), "it works"));
	assert_non_null(strstr(etcd_version_advice("3.5.16"), "it works"));
	assert_non_null(strstr(etcd_version_advice("3.6.15"), "it works"));
	assert_null(etcd_version_advice("3.5.26"));
	assert_null(etcd_version_advice("3.6.16"));
	assert_null(etcd_version_advice("3.7.3"));
	assert_non_null(strstr(etcd_version_advice("3.3.27"), "not supported"));
	assert_non_null(strstr(etcd_version_advice("new"), "unknown"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_have_numbers_as_strings),
		cmocka_unit_test(range_is_read),
		cmocka_unit_test(odd_pairs_are_marked),
		cmocka_unit_test(put_says_what_is_there),
		cmocka_unit_test(leases_are_read),
		cmocka_unit_test(watch_is_read),
		cmocka_unit_test(hostile_answers_are_refused),
		cmocka_unit_test(hostile_leases_and_watches_are_refused),
		cmocka_unit_test(failures_say_what_to_do),
		cmocka_unit_test(versions_have_advice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
