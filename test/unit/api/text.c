// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <limits.h>
#include <string.h>

#include "base/fd.h"
#include "base/wire.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/http/internal.h"
#include "proto/agent.h"

static void gives(const char *in, size_t len, const char *expected, bool good)
{
	struct text t = {0};

	assert_int_equal(json_string(&t, in, len), good);
	text_putc(&t, '\0');
	assert_string_equal(t.p, expected);
	text_free(&t);
}

#define GIVES(in, expected, good) gives(in, sizeof(in) - 1, expected, good)

static void strings_are_escaped(void **state)
{
	GIVES("", "\"\"", true);
	GIVES("plain", "\"plain\"", true);
	GIVES("a\"b\\c", "\"a\\\"b\\\\c\"", true);
	GIVES("\n\t\r\b\0\x1f\x7f", "\"\\n\\t\\r\\u0008\\u0000\\u001f\\u007f\"", true);
	GIVES("\xc3\xa9\xf0\x9f\x98\x80", "\"\xc3\xa9\xf0\x9f\x98\x80\"", true);
}

static void line_separators_are_escaped(void **state)
{
	GIVES("\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa",
	      "\"\\u0085\\u2028\\u2029\xe2\x80\xaa\"", true);
}

/* The result for a byte does not depend on its position or neighbours. */
static void each_byte_is_escaped_at_each_position(void **state)
{
	static const char around[] = {'a', '~', ' ', '!', '#', '[', ']', '~'};

	for (int byte = 0; byte < 0x80; byte++) {
		for (size_t at = 0; at < 24; at++) {
			struct text alone = {0}, expected = {0};
			char in[24];

			memset(in, around[at % sizeof(around)], sizeof(in));
			in[at] = (char)byte;
			json_string(&alone, &in[at], 1);
			text_putc(&expected, '"');
			text_add(&expected, in, at);
			text_add(&expected, alone.p + 1, alone.len - 2);
			text_add(&expected, in + at + 1, sizeof(in) - at - 1);
			text_puts(&expected, "\"");
			text_putc(&expected, '\0');
			gives(in, sizeof(in), expected.p, true);
			text_free(&alone);
			text_free(&expected);
		}
	}
}

#define FFFD "\xef\xbf\xbd"

static void invalid_utf8_is_replaced(void **state)
{
	GIVES("\xff", "\"" FFFD "\"", false);
	GIVES("a\xc3", "\"a" FFFD "\"", false);
	GIVES("\xc0\x80", "\"" FFFD FFFD "\"", false);
	GIVES("\xed\xa0\x80", "\"" FFFD FFFD FFFD "\"", false);
	/* The longest valid prefix of a character is replaced by a single U+FFFD. */
	GIVES("\xe2\x82", "\"" FFFD "\"", false);
	GIVES("\xf0\x9f\x98x", "\"" FFFD "x\"", false);
	GIVES("\xf4\x90\x80\x80", "\"" FFFD FFFD FFFD FFFD "\"", false);
	GIVES("\xf5", "\"" FFFD "\"", false);
}

static void base64_is_encoded(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {{"", "\"\""},
		     {"f", "\"Zg==\""},
		     {"fo", "\"Zm8=\""},
		     {"foo", "\"Zm9v\""},
		     {"\xff\xfe\xfd", "\"//79\""}};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct text t = {0};

		json_base64(&t, (const uint8_t *)cases[i].in, strlen(cases[i].in));
		text_putc(&t, '\0');
		assert_string_equal(t.p, cases[i].out);
		text_free(&t);
	}
}

static void numbers_and_times_are_printed(void **state)
{
	struct text t = {0};

	text_number(&t, 0);
	text_putc(&t, ' ');
	text_number(&t, INT64_MIN);
	text_putc(&t, ' ');
	text_number(&t, INT64_MAX);
	text_putc(&t, ' ');
	json_time(&t, 1700000000123);
	json_time(&t, 0);
	text_putc(&t, '\0');
	assert_string_equal(t.p, "0 -9223372036854775808 9223372036854775807 "
				 "\"2023-11-14T22:13:20.123Z\"null");
	text_free(&t);
}

static void line_is(struct event ev, const char *traceparent, const char *expected)
{
	struct text t = {0};

	event_line(&t, &ev, traceparent);
	text_putc(&t, '\0');
	assert_string_equal(t.p, expected);
	text_free(&t);
}

static void events_are_printed_as_lines(void **state)
{
	struct event ev = {.type = EVENT_STDOUT,
			   .seq = 7,
			   .ts_ms = 1700000000000,
			   .data = (const uint8_t *)"a\n",
			   .len = 2};

	line_is(ev, NULL,
		"{\"type\":\"stdout\",\"data\":\"a\\n\",\"seq\":7,\"ts\":1700000000000}\n");
	ev.type = EVENT_STDERR;
	ev.partial = true;
	line_is(ev, "",
		"{\"type\":\"stderr\",\"data\":\"a\\n\",\"partial\":true,\"seq\":7,"
		"\"ts\":1700000000000}\n");
	ev = (struct event){.type = EVENT_STDOUT, .data = (const uint8_t *)"\xff", .len = 1};
	line_is(ev, "t",
		"{\"type\":\"stdout\",\"data\":\"\xef\xbf\xbd\",\"data_b64\":\"/w==\",\"seq\":0,"
		"\"ts\":0,\"traceparent\":\"t\"}\n");
	ev = (struct event){.type = EVENT_STDOUT};
	line_is(ev, NULL, "{\"type\":\"stdout\",\"data\":\"\",\"seq\":0,\"ts\":0}\n");
	ev = (struct event){.type = EVENT_EXIT, .exit_code = 130, .seq = 8, .ts_ms = 1};
	line_is(ev, NULL, "{\"type\":\"exit\",\"data\":130,\"seq\":8,\"ts\":1}\n");
}

static size_t add_entry(uint8_t *to, const char *name, enum agent_bundle kind, const char *data)
{
	struct wire w = wire_on(to, 256);

	wire_put_str(&w, name, strlen(name));
	wire_put_u8(&w, (uint8_t)kind);
	wire_put_str(&w, data, strlen(data));
	return w.pos;
}

static void results_are_printed_as_lines(void **state)
{
	uint8_t bundle[2048];
	struct event ev = {
		.type = EVENT_RESULT, .main = true, .seq = 1, .ts_ms = 2, .data = bundle};

	ev.len = add_entry(bundle, "text/plain", AGENT_BUNDLE_TEXT, "\"\xff\n\xe2\x80\xa8");
	ev.len += add_entry(bundle + ev.len, "image/png", AGENT_BUNDLE_BYTES, "abc");
	ev.len += add_entry(bundle + ev.len, "x/json", AGENT_BUNDLE_JSON,
			    " {\"a\": [1,\n\t-2.5e3], \"\xe2\x80\xa8\": null} ");
	ev.len += add_entry(bundle + ev.len, "y/json", AGENT_BUNDLE_JSON, "{\"a\": 1");
	line_is(ev, NULL,
		"{\"type\":\"result\",\"data\":\"\",\"mime\":{\"text/"
		"plain\":\"\\\"\xef\xbf\xbd\\n\\u2028\","
		"\"image/png\":\"YWJj\",\"x/json\": {\"a\": [1,-2.5e3], \"\\u2028\": null} ,"
		"\"y/json\":\"{\\\"a\\\": 1\"},\"main\":true,\"seq\":1,\"ts\":2}\n");
	ev.type = EVENT_FAULT;
	ev.len = add_entry(bundle, "traceback", AGENT_BUNDLE_TEXT, "tb\n");
	ev.len += add_entry(bundle + ev.len, "name", AGENT_BUNDLE_TEXT, "KeyError");
	line_is(ev, NULL,
		"{\"type\":\"error\",\"data\":\"\",\"name\":\"KeyError\",\"value\":\"\","
		"\"traceback\":\"tb\\n\",\"seq\":1,\"ts\":2}\n");
}

static void error_text_is_escaped(void **state)
{
	struct text t = {0};

	json_error(&t, "not \"\xff\n\"", "bad_request");
	text_putc(&t, '\0');
	assert_string_equal(t.p,
			    "{\"error\":\"not \\\"" FFFD "\\n\\\"\",\"code\":\"bad_request\"}\n");
	text_free(&t);
}

static void own_hosts_are_recognized(void **state)
{
	static const char *const ours[] = {"127.0.0.1",	 "127.0.0.1:7070", "localhost:7070",
					   "LocalHost",	 "[::1]:80",	   "[::1]",
					   "10.1.2.3:1", "ramet.example"};
	static const char *const others[] = {"evil.example",
					     "localhost.evil.example",
					     "127.0.0.1.evil.example",
					     "",
					     "ramet.example.evil",
					     "[evil.example]",
					     "[::1]evil",
					     "[::1",
					     "[::1]:80evil",
					     "localhost:80@evil"};

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		assert_true(guard_host_is_ours(ours[i], strlen(ours[i]),
					       "https://Ramet.example:443/path"));
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		assert_false(guard_host_is_ours(others[i], strlen(others[i]),
						"https://ramet.example:443/path"));
	assert_false(guard_host_is_ours("", 0, ""));
	assert_false(guard_host_is_ours("x", 1, ""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_are_escaped),
		cmocka_unit_test(each_byte_is_escaped_at_each_position),
		cmocka_unit_test(line_separators_are_escaped),
		cmocka_unit_test(invalid_utf8_is_replaced),
		cmocka_unit_test(base64_is_encoded),
		cmocka_unit_test(numbers_and_times_are_printed),
		cmocka_unit_test(events_are_printed_as_lines),
		cmocka_unit_test(results_are_printed_as_lines),
		cmocka_unit_test(error_text_is_escaped),
		cmocka_unit_test(own_hosts_are_recognized),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
