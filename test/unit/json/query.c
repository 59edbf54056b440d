// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/json/query.h"

static char out[16];
static struct err e;

/* Reads memory of exactly this size, so that a sanitizer detects a read past the end. */
static int text(const char *url, const char *name)
{
	scoped_free char *copy = malloc(strlen(url) + 1);

	memcpy(copy, url, strlen(url));
	memset(&e, 0, sizeof(e));
	return query_text(copy, strlen(url), name, out, sizeof(out), &e);
}

static void texts_are_decoded(void **state)
{
	assert_int_equal(text("/files?path=/a%20b+c%2B", "path"), 7);
	assert_string_equal(out, "/a b c+");
	assert_int_equal(text("/f?x=1&path=%ff%C3&y", "path"), 2);
	assert_string_equal(out, "\xff\xc3");
	assert_int_equal(text("/f?path=", "path"), 0);
	assert_int_equal(text("/f?path", "path"), 0);
	assert_string_equal(out, "");
	assert_int_equal(text("/f?path=a=b?c", "path"), 5);
	assert_string_equal(out, "a=b?c");
	assert_int_equal(text("/f?path=123456789012345", "path"), 15);
}

static void absent_parameter_is_reported(void **state)
{
	static const char *const urls[] = {"", "/", "/path=x", "?", "?&", "?pat=1&paths=2&=path"};

	for (size_t i = 0; i < ARRAY_LEN(urls); i++)
		assert_int_equal(text(urls[i], "path"), -ENOENT);
}

static void invalid_parameter_is_refused(void **state)
{
	static const struct {
		const char *url, *word;
	} wrong[] = {{"?path=%", "hexadecimal"},
		     {"?path=%4", "hexadecimal"},
		     {"?path=%4g", "hexadecimal"},
		     {"?path=a%00", "NUL"},
		     {"?path=a&path=b", "twice"},
		     {"?path&path", "twice"},
		     {"?path=1234567890123456", "15 bytes"}};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		assert_int_equal(text(wrong[i].url, "path"), -EINVAL);
		assert_non_null(strstr(e.text, wrong[i].word));
	}
	assert_int_equal(query_text("?path=a\0b", 9, "path", out, sizeof(out), &e), -EINVAL);
}

static int path(const char *url)
{
	return query_path(url, strlen(url), "path", out, sizeof(out), &e);
}

static void paths_are_checked(void **state)
{
	assert_int_equal(path("?path=%2F"), 1);
	assert_string_equal(out, "/");
	assert_int_equal(path("?path=a"), -EINVAL);
	assert_int_equal(path("?path="), -EINVAL);
	assert_int_equal(path("?"), -EINVAL);
}

static int mode(const char *url, uint32_t *m)
{
	return query_mode(url, strlen(url), m, &e);
}

static void modes_are_read(void **state)
{
	static const char *const wrong[] = {"?mode=",	   "?mode=0",	 "?mode=8",
					    "?mode=10000", "?mode=-1",	 "?mode=0x1",
					    "?mode=%",	   "?mode=+644", "?mode=77777777777"};
	uint32_t m = 7;

	assert_int_equal(mode("?path=/", &m), 0);
	assert_int_equal(m, 7);
	assert_int_equal(mode("?mode=0644", &m), 0);
	assert_int_equal(m, 0644);
	assert_int_equal(mode("?mode=7777", &m), 0);
	assert_int_equal(m, 07777);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(mode(wrong[i], &m), -EINVAL);
	assert_int_equal(m, 07777);
}

static int flag(const char *url, bool *f)
{
	return query_flag(url, strlen(url), "f", f, &e);
}

static void flags_are_read(void **state)
{
	static const char *const wrong[] = {"?f", "?f=", "?f=2", "?f=TRUE", "?f=truetrue", "?f=%"};
	bool f = true;

	assert_int_equal(flag("?g=0", &f), 0);
	assert_true(f);
	assert_int_equal(flag("?f=0", &f), 0);
	assert_false(f);
	assert_int_equal(flag("?f=true", &f), 0);
	assert_true(f);
	assert_int_equal(flag("?f=false", &f), 0);
	assert_false(f);
	assert_int_equal(flag("?f=1", &f), 0);
	assert_true(f);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(flag(wrong[i], &f), -EINVAL);
}

static int number(const char *url, uint64_t *n)
{
	return query_number(url, strlen(url), "n", 0, n, &e);
}

static void numbers_are_read(void **state)
{
	static const char *const wrong[] = {"?n",
					    "?n=",
					    "?n=-1",
					    "?n=1.0",
					    "?n=1e3",
					    "?n=9007199254740993",
					    "?n=99999999999999999999999999",
					    "?n=18446744073709551617"};
	uint64_t n = 5;

	assert_int_equal(number("?m=1", &n), 0);
	assert_int_equal(n, 5);
	assert_int_equal(number("?n=0", &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(number("?n=9007199254740992", &n), 0);
	assert_true(n == 1ull << 53);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(number(wrong[i], &n), -EINVAL);
	assert_int_equal(query_number("?n=1", 4, "n", 2, &n, &e), -EINVAL);
	assert_true(n == 1ull << 53);
	assert_string_equal(e.text, "n must be a whole number from 2 to 2^53, not \"1\"");
}

static void error_quotes_the_invalid_value(void **state)
{
	uint64_t n;
	uint32_t m;
	bool f;

	assert_int_equal(number("?n=t%65n", &n), -EINVAL);
	assert_non_null(strstr(e.text, "n must be a whole number from 0 to 2^53, not \"ten\""));
	assert_int_equal(mode("?mode=rwxr-xr-x", &m), -EINVAL);
	assert_non_null(strstr(e.text, "not \"rwxr-xr-x\""));
	assert_int_equal(flag("?f=yes", &f), -EINVAL);
	assert_non_null(strstr(e.text, "f must be 1, true, 0 or false, not \"yes\""));
	assert_int_equal(number("?n=1&n=2", &n), -EINVAL);
	assert_non_null(strstr(e.text, "n is in the query twice"));
}

static bool range(const char *value, struct byte_range *r)
{
	scoped_free char *copy = malloc(strlen(value) + 1);

	memcpy(copy, value, strlen(value));
	return range_read(copy, strlen(value), r);
}

static void byte_ranges_are_read(void **state)
{
	static const char *const none[] = {"",		 "bytes",
					   "bytes=",	 "bytes=-",
					   "bytes=-0",	 "bytes=1",
					   "bytes=2-1",	 "bytes=a-b",
					   "bytes=1-b",	 "bytes=0-1,",
					   "items=0-1",	 "Bytes=0-1",
					   "bytes= 0-1", "bytes=99999999999999999999-",
					   "=0-1"};
	struct byte_range r;

	assert_true(range("bytes=0-0", &r));
	assert_true(r.offset == 0 && r.length == 1 && !r.from_end);
	assert_true(range("bytes=5-", &r));
	assert_true(r.offset == 5 && r.length == UINT64_MAX && !r.from_end);
	assert_true(range("bytes=-7", &r));
	assert_true(r.offset == 7 && r.from_end);
	assert_true(range("bytes=0-9007199254740992", &r));
	assert_true(r.length == (1ull << 53) + 1);
	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		assert_false(range(none[i], &r));
}

static void times_are_read(void **state)
{
	static const char *const wrong[] = {
		"?t=",
		"?t=1700000000",
		"?t=2023-11-14",
		"?t=2023-11-14T22:13:20",
		"?t=2023-11-14T22:13:20z",
		"?t=2023-11-14T22:13:20.1Z",
		"?t=2023-11-14T22:13:20.123ZZ",
		"?t=2023-11-14T22:13:20.123",
		"?t=2023-02-29T00:00:00Z",
		"?t=2023-13-01T00:00:00Z",
		"?t=2023-01-01T24:00:00Z",
		"?t=2023-01-01T00:60:00Z",
		"?t=1970-01-01T00:00:00Z",
		"?t=1969-12-31T23:59:59Z",
		"?t=-023-11-14T22:13:20Z",
		"?t=2023-11-14T22:13:20Z&t=2023-11-14T22:13:20Z",
	};
	static const struct {
		const char *url;
		int64_t ms;
	} good[] = {{"?t=2023-11-14T22:13:20.123Z", 1700000000123},
		    {"?t=2023-11-14T22%3A13%3A20Z", 1700000000000},
		    {"?t=2024-02-29T00:00:00.000Z", 1709164800000},
		    {"?x=1", 5}};

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		int64_t ms = 5;

		assert_int_equal(query_time(good[i].url, strlen(good[i].url), "t", &ms, &e), 0);
		assert_int_equal(ms, good[i].ms);
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		int64_t ms = 5;

		assert_true(query_time(wrong[i], strlen(wrong[i]), "t", &ms, &e) < 0);
		assert_int_equal(ms, 5);
	}
}

static void parameters_are_left_out(void **state)
{
	static const char *const names[] = {"limit", "cursor"};
	static const struct {
		const char *url, *rest;
	} urls[] = {
		{"/v1/sandboxes", ""},
		{"/v1/sandboxes?", ""},
		{"/x?limit=5&cursor=s00", ""},
		{"/x?limit&cursor", ""},
		{"/x?limit=5&limit=6&state=ready", "&state=ready"},
		{"/x?a=limit&cursor=7&limits=5&b=%26limit=3", "&a=limit&limits=5&b=%26limit=3"},
		{"/x?a=?&&b", "&a=?&&b"},
	};

	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		struct text rest = {0};

		query_without(&rest, urls[i].url, strlen(urls[i].url), names, 2);
		text_putc(&rest, '\0');
		assert_string_equal(rest.p, urls[i].rest);
		text_free(&rest);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_are_decoded),
		cmocka_unit_test(absent_parameter_is_reported),
		cmocka_unit_test(invalid_parameter_is_refused),
		cmocka_unit_test(paths_are_checked),
		cmocka_unit_test(modes_are_read),
		cmocka_unit_test(flags_are_read),
		cmocka_unit_test(numbers_are_read),
		cmocka_unit_test(error_quotes_the_invalid_value),
		cmocka_unit_test(byte_ranges_are_read),
		cmocka_unit_test(times_are_read),
		cmocka_unit_test(parameters_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
