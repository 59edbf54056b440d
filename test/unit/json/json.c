// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/json/json.h"

struct body {
	struct json_text name, meta;
	uint32_t size, cut, wait_ms;
	bool on;
	char **env, **list, **pairs, **objects;
	uint64_t big;
	double real;
	struct json_text bytes, word, colour;
};

static const char *const colours[] = {"red", "green", "blue", NULL};

static const struct json_field fields[] = {
	{"name", JSON_TEXT, offsetof(struct body, name), 0, 16, false, NULL, NULL, 0},
	{"meta", JSON_OBJECT, offsetof(struct body, meta), 0, 40, false, NULL, NULL, 0},
	{"size", JSON_WHOLE, offsetof(struct body, size), 1, 32, false, NULL, NULL, 0},
	{"cut", JSON_CUT, offsetof(struct body, cut), 8, 32, false, NULL, NULL, 0},
	{"wait", JSON_MILLIS, offsetof(struct body, wait_ms), .001, 1000, false, NULL, NULL, 0},
	{"real", JSON_REAL, offsetof(struct body, real), -1e15, 1e15, false, NULL, NULL, 0},
	{"on", JSON_BOOL, offsetof(struct body, on), 0, 0, false, NULL, NULL, 0},
	{"env", JSON_ENV, offsetof(struct body, env), 0, 0, false, NULL, NULL, 0},
	{"pairs", JSON_PAIRS, offsetof(struct body, pairs), 0, 0, false, NULL, NULL, 0},
	{"big", JSON_BIG, offsetof(struct body, big), 0, 9007199254740992.0, false, NULL, NULL, 0},
	{"bytes", JSON_BYTES, offsetof(struct body, bytes), 0, 5, false, NULL, NULL, 0},
	{"list", JSON_LIST, offsetof(struct body, list), 0, 3, false, NULL, NULL, 0},
	{"objects", JSON_OBJECTS, offsetof(struct body, objects), 0, 2, false, NULL, NULL, 0},
	{"word", JSON_NAME, offsetof(struct body, word), 0, 12, false, NULL, NULL, 0},
	{"colour", JSON_TEXT, offsetof(struct body, colour), 0, 12, false, colours, "mix others",
	 0},
};

static const struct json_field needed[] = {
	{"name", JSON_TEXT, offsetof(struct body, name), 0, 16, true, NULL, NULL, 0},
};

/* Reads memory of exactly this size, so that a sanitizer detects a read past the end. */
static int read_bytes(const void *text, size_t len, struct body *b, struct err *e)
{
	scoped_free char *copy = malloc(len ? len : 1);

	memcpy(copy, text, len);
	memset(b, 0, sizeof(*b));
	return json_read(copy, len, fields, ARRAY_LEN(fields), b, e);
}

static int read_text(const char *text, struct body *b, struct err *e)
{
	return read_bytes(text, strlen(text), b, e);
}

static void refused(const char *text, const char *sentence)
{
	struct body b;
	struct err e = {0};

	if (read_text(text, &b, &e) == 0)
		fail_msg("%s was accepted", text);
	assert_string_equal(e.text, sentence);
	assert_null(b.name.p);
	assert_null(b.env);
	assert_null(b.list);
	assert_null(b.pairs);
	assert_null(b.bytes.p);
}

static void done(struct body *b)
{
	json_free(fields, ARRAY_LEN(fields), b);
}

static void all_kinds_are_read(void **state)
{
	struct body b;
	struct err e;

	assert_int_equal(
		read_text(" {\"name\" : \"x\", \"size\":32, \"wait\": 0.0015,\n\"on\":true,"
			  "\"meta\":{\"a\":[1,{}]}, \"env\":{\"A\":\"1\",\"B\":\"\"} } ",
			  &b, &e),
		0);
	assert_string_equal(b.name.p, "x");
	assert_int_equal(b.size, 32);
	assert_int_equal(b.wait_ms, 2);
	assert_true(b.on);
	assert_string_equal(b.meta.p, "{\"a\":[1,{}]}");
	assert_string_equal(b.env[0], "A=1");
	assert_string_equal(b.env[1], "B=");
	assert_null(b.env[2]);
	done(&b);
}

static void bytes_are(const char *text, const void *expected, size_t len)
{
	char body[64];
	struct body b;
	struct err e;

	snprintf(body, sizeof(body), "{\"bytes\":\"%s\"}", text);
	assert_int_equal(read_text(body, &b, &e), 0);
	assert_int_equal(b.bytes.len, len);
	assert_memory_equal(b.bytes.p, expected, len);
	done(&b);
}

static void base64_is_decoded(void **state)
{
	/* RFC 4648 10 */
	bytes_are("", "", 0);
	bytes_are("Zg==", "f", 1);
	bytes_are("Zm8=", "fo", 2);
	bytes_are("Zm9v", "foo", 3);
	bytes_are("Zm9vYg==", "foob", 4);
	bytes_are("Zm9vYmE=", "fooba", 5);
	bytes_are("+\\/8A", "\xfb\xff\0", 3);
	refused("{\"bytes\":\"Zm9vYmFy\"}", "bytes must be base64 of at most 5 bytes, not 6");
	refused("{\"bytes\":\"Zm9vYmFyZm9v\"}", "bytes must be at most 8 bytes long, not 12");
	static const char *const bad[] = {"Z",	  "Zg",	  "Zg=",  "Zg=a", "=",
					  "====", "Z===", "Zm9_", "Zm 8="};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char body[64];

		snprintf(body, sizeof(body), "{\"bytes\":\"%s\"}", bad[i]);
		refused(body, "bytes must be base64 with its padding");
	}
	refused("{\"bytes\":5}", "bytes must be a string, not a number");
}

static void big_numbers_are_read(void **state)
{
	struct body b;
	struct err e;

	assert_int_equal(read_text("{\"big\":9007199254740992}", &b, &e), 0);
	assert_true(b.big == 1ull << 53);
	refused("{\"big\":9007199254740994}",
		"big must be a whole number from 0 to 9007199254740992, not 9007199254740994");
	refused("{\"big\":-1}", "big must be a whole number from 0 to 9007199254740992, not -1");
	refused("{\"big\":0.5}", "big must be a whole number from 0 to 9007199254740992, not 0.5");
	refused("{\"big\":\"1\"}",
		"big must be a whole number from 0 to 9007199254740992, not \"1\"");
}

static void pairs_are_read(void **state)
{
	static const char *const good[] = {
		"{\"pairs\": [ [ \"A\" , \"1\" ] ,[\"B\",\"x=\\u0079\"]]}",
		"{\"pairs\":{\"A\":\"1\",\"B\":\"x=y\"}}"};
	struct body b;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(read_text(good[i], &b, &e), 0);
		assert_string_equal(b.pairs[0], "A=1");
		assert_string_equal(b.pairs[1], "B=x=y");
		assert_null(b.pairs[2]);
		done(&b);
	}
	assert_int_equal(read_text("{\"pairs\":[]}", &b, &e), 0);
	assert_null(b.pairs[0]);
	done(&b);
	static const char *const bad[] = {"[]",	       "[\"A\"]",    "[\"A\",\"1\",\"2\"]",
					  "[1,\"1\"]", "[\"A\",[]]", "\"A\"",
					  "{}",	       "null"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char body[64];

		snprintf(body, sizeof(body), "{\"pairs\":[[\"A\",\"1\"],%s]}", bad[i]);
		refused(body, "pairs must be an array of [name, value], each two strings");
	}
	refused("{\"pairs\":[[\"\",\"\"]]}", "pairs contains a variable without a name");
	refused("{\"pairs\":1}", "pairs must be an object of strings, not a number");
}

static void absent_null_and_unknown_fields_are_skipped(void **state)
{
	static const char *const bodies[] = {"", "  ", "{}", "{\"size\":null,\"name\":null}",
					     "{\"other\":[[{\"size\":9}]],\"names\":\"x\"}"};

	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		struct body b;
		struct err e;

		assert_int_equal(read_text(bodies[i], &b, &e), 0);
		assert_null(b.name.p);
		assert_int_equal(b.size, 0);
		done(&b);
	}
}

static void strings_are_unescaped(void **state)
{
	struct body b;
	struct err e;

	assert_int_equal(
		read_text("{\"n\\u0061me\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"}", &b, &e), 0);
	assert_string_equal(b.name.p, "\"\\/\b\f\n\r\t\xc3\xa9");
	done(&b);
	assert_int_equal(read_text("{\"name\":\"\\ud83d\\ude00\xe2\x82\xac\"}", &b, &e), 0);
	assert_string_equal(b.name.p, "\xf0\x9f\x98\x80\xe2\x82\xac");
	assert_int_equal(b.name.len, 7);
	done(&b);
}

static void invalid_json_is_refused(void **state)
{
	refused("{", "the body is not JSON: it ends too early (a member without a name in quotes)");
	refused("{}x", "the body is not JSON: data after the object's end at byte 2");
	refused("{\"a\" 1}", "the body is not JSON: a name without a colon at byte 5");
	refused("{\"a\":1,}", "the body is not JSON: a member without a name in quotes at byte 7");
	refused("{\"a\":1 \"b\":2}",
		"the body is not JSON: neither a comma nor the closing bracket at byte 7");
	refused("{\"a\":tru}", "the body is not JSON: an unexpected character at byte 8");
	refused("{\"a\":01}",
		"the body is not JSON: neither a comma nor the closing bracket at byte 6");
	refused("{\"a\":-}", "the body is not JSON: a number without digits at byte 6");
	refused("{\"a\":1.}",
		"the body is not JSON: a number without digits after its decimal point at byte 7");
	refused("{\"a\":1e}",
		"the body is not JSON: a number without digits in its exponent at byte 7");
	refused("{\"a\":'b'}", "the body is not JSON: a number without digits at byte 5");
	refused("{\"a\":\"", "the body is not JSON: it ends too early (in a string)");
	refused("{\"a\":\"\\x\"}", "the body is not JSON: an unknown escape in a string at byte 7");
	refused("{\"a\":\"\\u12g4\"}",
		"the body is not JSON: \\u without four hex digits at byte 8");
	refused("{\"a\":\"\\u0000\"}",
		"the body is not JSON: \\u0000 (NUL is not allowed in strings) at byte 8");
	refused("{\"a\":\"\\ud800\"}",
		"the body is not JSON: the first half of a surrogate pair alone at byte 12");
	refused("{\"a\":\"\\udc00\"}",
		"the body is not JSON: the second half of a surrogate pair alone at byte 8");
	refused("{\"a\":\"\n\"}",
		"the body is not JSON: a control character in a string at byte 6");
	refused("{\"a\":\"\xff\"}", "the body is not JSON: bytes that are not UTF-8 at byte 6");
	refused("{\"a\":\"\xed\xa0\x80\"}",
		"the body is not JSON: bytes that are not UTF-8 at byte 6");
	refused("{\"a\":\"\xc0\x80\"}", "the body is not JSON: bytes that are not UTF-8 at byte 6");
	refused("{\"a\":\"\xe2\x82", "the body is not JSON: bytes that are not UTF-8 at byte 6");
	refused("\xff{}", "the body is not JSON: a number without digits at byte 0");
	refused("[]", "the body must be a JSON object, not an array");
	refused("\"x\"", "the body must be a JSON object, not a string");
	refused("17", "the body must be a JSON object, not a number");
}

static void nul_byte_is_refused(void **state)
{
	struct body b;
	struct err e;

	assert_true(read_bytes("{\"name\":\"a\0b\"}", 14, &b, &e) < 0);
	assert_string_equal(e.text,
			    "the body is not JSON: a control character in a string at byte 10");
	assert_true(read_bytes("{}\0", 3, &b, &e) < 0);
}

static void depth_is_limited(void **state)
{
	char deep[2 * JSON_DEPTH_MAX + 32] = "{\"a\":";
	struct body b;
	struct err e;

	/* The body's object is the first level. */
	memset(deep + 5, '[', JSON_DEPTH_MAX - 1);
	memset(deep + 5 + JSON_DEPTH_MAX - 1, ']', JSON_DEPTH_MAX - 1);
	strcat(deep, "}");
	assert_int_equal(read_text(deep, &b, &e), 0);
	memset(deep + 5, '[', JSON_DEPTH_MAX);
	deep[5 + JSON_DEPTH_MAX] = '\0';
	assert_true(read_text(deep, &b, &e) < 0);
	assert_non_null(strstr(e.text, "nested deeper than 64"));
}

static void wrong_types_and_ranges_are_refused(void **state)
{
	refused("{\"name\":5}", "name must be a string, not a number");
	refused("{\"name\":{}}", "name must be a string, not an object");
	refused("{\"colour\":\"pink\"}",
		"colour must be \"red\", \"green\" or \"blue\", not \"pink\": mix others");
	refused("{\"colour\":\"\"}",
		"colour must be \"red\", \"green\" or \"blue\", not \"\": mix others");
	refused("{\"name\":\"12345678901234567\"}", "name must be at most 16 bytes long, not 17");
	refused("{\"size\":\"much\"}", "size must be a whole number from 1 to 32, not \"much\"");
	refused("{\"size\":0}", "size must be a whole number from 1 to 32, not 0");
	refused("{\"size\":33}", "size must be a whole number from 1 to 32, not 33");
	refused("{\"size\":-1}", "size must be a whole number from 1 to 32, not -1");
	refused("{\"size\":1.5}", "size must be a whole number from 1 to 32, not 1.5");
	refused("{\"size\":1e999}", "size must be a whole number from 1 to 32, not 1e999");
	refused("{\"size\":true}", "size must be a whole number from 1 to 32, not true");
	refused("{\"size\":[1]}", "size must be a whole number from 1 to 32, not an array");
	refused("{\"size\":"
		"11111111111111111111111111111111111111111111111111111111111111111111111111}",
		"size must be a whole number from 1 to 32, not a number");
	refused("{\"wait\":-1}", "wait must be a number from 0.001 to 1000, not -1");
	refused("{\"real\":1.1e15}", "real must be a number from -1e+15 to 1e+15, not 1.1e15");
	refused("{\"real\":-1e999}", "real must be a number from -1e+15 to 1e+15, not -1e999");
	refused("{\"real\":true}", "real must be a number from -1e+15 to 1e+15, not true");
	refused("{\"wait\":\"1\"}", "wait must be a number from 0.001 to 1000, not \"1\"");
	refused("{\"on\":1}", "on must be true or false, not 1");
	refused("{\"meta\":\"text\"}", "meta must be an object, not a string");
	refused("{\"meta\":{\"a\":\"0123456789012345678901234567890123\"}}",
		"meta must be at most 40 bytes of JSON, not 42");
	refused("{\"size\":1,\"size\":2}", "size is given twice");
	refused("{\"size\":1,\"name\":\"x\",\"on\":0}", "on must be true or false, not 0");
}

static void whole_number_may_have_a_fraction_of_zero(void **state)
{
	struct body b;
	struct err e;

	assert_int_equal(read_text("{\"size\":30.0,\"wait\":3e2,\"real\":-1.25e-3}", &b, &e), 0);
	assert_true(b.real == -0.00125);
	assert_int_equal(b.size, 30);
	assert_int_equal(b.wait_ms, 300000);
}

static void number_above_the_limit_is_reduced(void **state)
{
	static const struct {
		const char *text;
		uint32_t cut;
	} cases[] = {{"{\"cut\":8}", 8},     {"{\"cut\":32}", 32},	   {"{\"cut\":33}", 32},
		     {"{\"cut\":1e18}", 32}, {"{\"cut\":4294967304}", 32}, {"{\"cut\":1e999}", 32}};
	struct body b;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(read_text(cases[i].text, &b, &e), 0);
		assert_int_equal(b.cut, cases[i].cut);
	}
	refused("{\"cut\":7}", "cut must be a whole number from 8 to 32, not 7");
	refused("{\"cut\":-1e999}", "cut must be a whole number from 8 to 32, not -1e999");
	refused("{\"cut\":33.5}", "cut must be a whole number from 8 to 32, not 33.5");
	refused("{\"cut\":\"9\"}", "cut must be a whole number from 8 to 32, not \"9\"");
}

static void invalid_env_is_refused(void **state)
{
	refused("{\"env\":[]}", "env must be an object of strings, not an array");
	refused("{\"env\":{\"A\":1}}", "env must be an object of strings; \"A\" is a number");
	refused("{\"env\":{\"A\":\"1\",\"B=C\":\"2\"}}", "env: the name \"B=C\" contains a =");
	refused("{\"env\":{\"\":\"1\"}}", "env contains a variable without a name");
}

static void env_is_limited(void **state)
{
	scoped_free char *text = malloc(JSON_ENV_TEXT_MAX + 100);
	struct body b;
	struct err e;
	char *p = text;

	p += sprintf(p, "{\"env\":{");
	for (int i = 0; i <= JSON_ENV_MAX; i++)
		p += sprintf(p, "%s\"V%d\":\"x\"", i ? "," : "", i);
	strcpy(p, "}}");
	assert_true(read_text(text, &b, &e) < 0);
	assert_string_equal(e.text, "env contains more than 1024 variables");

	p = text + sprintf(text, "{\"env\":{\"A\":\"");
	memset(p, 'x', JSON_ENV_TEXT_MAX);
	strcpy(p + JSON_ENV_TEXT_MAX, "\"}}");
	assert_true(read_text(text, &b, &e) < 0);
	assert_string_equal(e.text, "env must be at most 262144 bytes of JSON, not 262152");
}

static void lists_are_read(void **state)
{
	struct body b;
	struct err e;

	assert_int_equal(read_text("{\"list\": [ ]}", &b, &e), 0);
	assert_non_null(b.list);
	assert_null(b.list[0]);
	done(&b);
	assert_int_equal(read_text("{\"list\":[ \"/a\" ,\"\\u00e9\",\"\"]}", &b, &e), 0);
	assert_string_equal(b.list[0], "/a");
	assert_string_equal(b.list[1], "\xc3\xa9");
	assert_string_equal(b.list[2], "");
	assert_null(b.list[3]);
	done(&b);
	refused("{\"list\":[\"a\",\"b\",\"c\",\"d\"]}", "list must have at most 3 strings");
	refused("{\"list\":\"/a\"}", "list must be an array of strings, not a string");
	refused("{\"list\":[\"a\",[\"b\"]]}",
		"list must be an array of strings; one item is an array");
	refused("{\"list\":[\"a\",null]}", "list must be an array of strings; one item is null");
	refused("{\"list\":[\"a\"],\"size\":0}", "size must be a whole number from 1 to 32, not 0");
}

static void objects_are_read_as_written(void **state)
{
	struct body b;
	struct err e;

	assert_int_equal(read_text("{\"objects\":[{\"a\": \"\\u00e9]\"} , { }]}", &b, &e), 0);
	assert_string_equal(b.objects[0], "{\"a\": \"\\u00e9]\"}");
	assert_string_equal(b.objects[1], "{ }");
	assert_null(b.objects[2]);
	done(&b);
	refused("{\"objects\":[{},{},{}]}", "objects must have at most 2 objects");
	refused("{\"objects\":{}}", "objects must be an array of objects, not an object");
	refused("{\"objects\":[{},\"a\"]}",
		"objects must be an array of objects; one item is a string");
}

static void missing_required_field_is_refused(void **state)
{
	struct body b = {0};
	struct err e;

	assert_true(json_read("{}", 2, needed, 1, &b, &e) < 0);
	assert_string_equal(e.text, "name is missing");
	assert_true(json_read("{\"name\":null}", 13, needed, 1, &b, &e) < 0);
	assert_string_equal(e.text, "name is missing");
}

#define NINE "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1}"

static void flat_objects_are_read(void **state)
{
	static const char *const good[] = {"{}", " { } ", "{\"a\":1}",
					   "{\"a\":null,\"b\":\"x\", \"c\":-1e3}\n"};
	static const char *const wrong[] = {
		"",	    "{",	  "[]",		"1",	       "{\"a\"}",
		"{\"a\":}", "{\"a\":1,}", "{\"a\":{}}", "{\"a\":[1]}", "{\"a\":1}}",
		"{a:1}",    "{} x",	  NINE};
	struct json_flat flat;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(json_flat_read(&flat, "it", good[i], strlen(good[i]), &e), 0);
		json_flat_free(&flat);
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		assert_true(json_flat_read(&flat, "it", wrong[i], strlen(wrong[i]), &e) < 0);
		assert_string_equal(e.text, "it must be a JSON object of up to 8 strings, numbers, "
					    "bools and nulls");
	}
}

static bool has(const char *text, const char *wanted)
{
	struct json_flat flat;
	struct err e;

	assert_int_equal(json_flat_read(&flat, "it", wanted, strlen(wanted), &e), 0);
	bool result = json_has(text, strlen(text), &flat);
	json_flat_free(&flat);
	return result;
}

static void members_are_compared(void **state)
{
	static const char text[] = "{\"a\":1.50,\"b\\u0062\":\"\\u00e9/\", \"c\" : true, "
				   "\"d\":{\"a\":2},\"e\":\"1\",\"f\":null,\"g\":\"\","
				   "\"i\":1234567890123456789,\"j\":1,\"j\":1,\"k\":1e999}";
	static const char *const in[] = {"{}",
					 "{\"a\":1.5}",
					 "{\"a\":15e-1}",
					 "{\"bb\":\"\xc3\xa9\\/\"}",
					 "{\"c\":true}",
					 "{\"f\":null,\"c\":true,\"a\":1.5}",
					 "{\"g\":\"\"}",
					 "{\"e\":\"\\u0031\"}",
					 "{\"i\":1234567890123456789}",
					 "{\"j\":1.0}",
					 "{\"j\":1,\"j\":1}",
					 "{\"k\":1e999}"};
	static const char *const out[] = {"{\"a\":2}",
					  "{\"a\":\"1.50\"}",
					  "{\"b\":\"x\"}",
					  "{\"c\":false}",
					  "{\"c\":\"true\"}",
					  "{\"d\":2}",
					  "{\"e\":1}",
					  "{\"f\":0}",
					  "{\"g\":null}",
					  "{\"a\":1.5,\"h\":1}",
					  "{\"i\":1234567890123456788}",
					  "{\"j\":1,\"h\":1}",
					  "{\"j\":1,\"j\":2}",
					  "{\"k\":1e400}"};

	for (size_t i = 0; i < ARRAY_LEN(in); i++)
		assert_true(has(text, in[i]));
	for (size_t i = 0; i < ARRAY_LEN(out); i++)
		assert_false(has(text, out[i]));
	assert_false(has("{}", "{\"a\":1}"));
}

static void word_is(const char *text, const char *want)
{
	struct body b;
	struct err e;

	assert_int_equal(read_text(text, &b, &e), 0);
	assert_string_equal(b.word.p, want);
	assert_int_equal(b.word.len, strlen(want));
	done(&b);
}

static void names_are_strings_or_whole_numbers(void **state)
{
	word_is("{\"word\":\"TERM\"}", "TERM");
	word_is("{\"word\":\"15\"}", "15");
	word_is("{\"word\":15.0}", "15");
	word_is("{\"word\":4294967295}", "4294967295");
	word_is("{\"word\":0}", "0");
	refused("{\"word\":4294967296}", "word must be a string or a whole number, not 4294967296");
	refused("{\"word\":1.5}", "word must be a string or a whole number, not 1.5");
	refused("{\"word\":-1}", "word must be a string or a whole number, not -1");
	refused("{\"word\":[]}", "word must be a string or a whole number, not an array");
	refused("{\"word\":true}", "word must be a string or a whole number, not true");
	refused("{\"word\":\"0123456789abc\"}", "word must be at most 12 bytes long, not 13");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_kinds_are_read),
		cmocka_unit_test(base64_is_decoded),
		cmocka_unit_test(big_numbers_are_read),
		cmocka_unit_test(pairs_are_read),
		cmocka_unit_test(absent_null_and_unknown_fields_are_skipped),
		cmocka_unit_test(strings_are_unescaped),
		cmocka_unit_test(invalid_json_is_refused),
		cmocka_unit_test(nul_byte_is_refused),
		cmocka_unit_test(depth_is_limited),
		cmocka_unit_test(wrong_types_and_ranges_are_refused),
		cmocka_unit_test(whole_number_may_have_a_fraction_of_zero),
		cmocka_unit_test(number_above_the_limit_is_reduced),
		cmocka_unit_test(invalid_env_is_refused),
		cmocka_unit_test(env_is_limited),
		cmocka_unit_test(lists_are_read),
		cmocka_unit_test(objects_are_read_as_written),
		cmocka_unit_test(missing_required_field_is_refused),
		cmocka_unit_test(flat_objects_are_read),
		cmocka_unit_test(members_are_compared),
		cmocka_unit_test(names_are_strings_or_whole_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
