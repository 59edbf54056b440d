// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/wire.h"
#include "guest/files/file-request.h"
#include "proto/agent-file.h"

static uint8_t buf[AGENT_PAYLOAD_MAX];
static struct wire w;
static struct file_request out;
static struct err e;

static struct wire *begin(void)
{
	w = wire_on(buf, sizeof(buf));
	return &w;
}

static void str(const char *text)
{
	wire_put_str(&w, text, strlen(text));
}

static int parse(uint8_t type)
{
	struct frame f = {.type = type, .len = (uint32_t)w.pos, .payload = buf};

	return file_request_parse(&f, &out, &e);
}

/* Checks that the bytes in `w` are a valid request, and that every other length is refused. */
static void parses_exactly(uint8_t type)
{
	size_t len = w.pos;

	for (w.pos = 0; w.pos < len; w.pos++)
		assert_int_equal(parse(type), -EPROTO);
	w.pos = len + 1;
	assert_int_equal(parse(type), -EPROTO);
	w.pos = len;
	assert_int_equal(parse(type), 0);
	assert_int_equal(out.type, type);
}

static void test_only_file_types_are_accepted(void **state)
{
	static const uint8_t others[] = {0,	     AGENT_EXEC,       AGENT_TREE,
					 AGENT_DATA, AGENT_PROC_START, UINT8_MAX};

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		assert_false(agent_file_is(others[i]));
	assert_true(agent_file_is(AGENT_PUT) && agent_file_is(AGENT_WATCH));
}

static void test_put_is_parsed(void **state)
{
	begin();
	wire_put_u64(&w, 1ull << 40);
	wire_put_u32(&w, 0640);
	str("/a\xff");
	parses_exactly(AGENT_PUT);
	assert_true(out.size == 1ull << 40);
	assert_int_equal(out.mode, 0640);
	assert_string_equal(out.path, "/a\xff");
}

static void test_get_is_parsed(void **state)
{
	begin();
	wire_put_u64(&w, 5);
	wire_put_u64(&w, UINT64_MAX);
	str("/");
	parses_exactly(AGENT_GET);
	assert_true(out.offset == 5 && out.size == UINT64_MAX);
	assert_string_equal(out.path, "/");
}

static void test_flags_are_0_or_1(void **state)
{
	for (uint8_t flag = 0; flag < 3; flag++) {
		begin();
		wire_put_u8(&w, flag);
		str("/x");
		assert_int_equal(parse(AGENT_REMOVE), flag < 2 ? 0 : -EPROTO);
		assert_true(flag == 2 || out.flag == flag);
	}
	begin();
	wire_put_u32(&w, 07777);
	wire_put_u8(&w, 1);
	str("/x");
	parses_exactly(AGENT_MKDIR);
	assert_true(out.flag && out.mode == 07777);
}

static void test_walk_is_parsed(void **state)
{
	static char name[AGENT_NAME_MAX + 1];

	begin();
	wire_put_u8(&w, 1);
	wire_put_u32(&w, AGENT_DEPTH_MAX);
	wire_put_u32(&w, 7);
	str("/x");
	str("a/b");
	parses_exactly(AGENT_WALK);
	assert_true(out.flag && out.depth == AGENT_DEPTH_MAX && out.limit == 7);
	assert_string_equal(out.after, "a/b");
	memset(name, 'n', sizeof(name));
	for (size_t i = 0; i < 2; i++) {
		begin();
		wire_put_u8(&w, 0);
		wire_put_u32(&w, i ? AGENT_DEPTH_MAX + 1 : 0);
		wire_put_u32(&w, 0);
		str("/x");
		wire_put_str(&w, name, AGENT_NAME_MAX);
		assert_int_equal(parse(AGENT_WALK), i ? -EPROTO : 0);
	}
	begin();
	wire_put_u8(&w, 0);
	wire_put_u32(&w, 1);
	wire_put_u32(&w, 0);
	str("/x");
	wire_put_str(&w, name, AGENT_NAME_MAX + 1);
	assert_int_equal(parse(AGENT_WALK), -EPROTO);
}

static void test_write_pack_unpack_and_watch_are_parsed(void **state)
{
	for (uint8_t how = 0; how < 4; how++) {
		begin();
		wire_put_u8(&w, how);
		wire_put_u64(&w, 5);
		wire_put_u64(&w, AGENT_UNSIZED);
		wire_put_u32(&w, 0640);
		str("/x");
		assert_int_equal(parse(AGENT_WRITE), how < 3 ? 0 : -EPROTO);
		if (how == 3)
			break;
		parses_exactly(AGENT_WRITE);
		assert_true(out.how == how && out.offset == 5 && out.size == AGENT_UNSIZED);
		assert_int_equal(out.mode, 0640);
	}
	begin();
	str("/x");
	parses_exactly(AGENT_PACK);
	begin();
	wire_put_u64(&w, 9);
	str("/x");
	parses_exactly(AGENT_UNPACK);
	assert_true(out.size == 9);
	begin();
	wire_put_u8(&w, 1);
	str("/x");
	parses_exactly(AGENT_WATCH);
	assert_true(out.flag);
}

static int parse_path(const char *path, size_t len)
{
	begin();
	wire_put_str(&w, path, len);
	return parse(AGENT_PACK);
}

static void test_invalid_paths_are_refused(void **state)
{
	static char path[AGENT_PATH_MAX + 1];

	memset(path, '/', sizeof(path));
	assert_int_equal(parse_path(path, AGENT_PATH_MAX), 0);
	assert_int_equal(strlen(out.path), AGENT_PATH_MAX);
	assert_int_equal(parse_path(path, AGENT_PATH_MAX + 1), -EPROTO);
	assert_int_equal(parse_path("", 0), -EPROTO);
	assert_int_equal(parse_path("a/b", 3), -EPROTO);
	assert_string_equal(e.text, "pack: a path must start with /");
	assert_int_equal(parse_path("/a\0b", 4), -EPROTO);
}

static void test_invalid_modes_are_refused(void **state)
{
	begin();
	wire_put_u64(&w, 0);
	wire_put_u32(&w, 010000);
	str("/x");
	assert_int_equal(parse(AGENT_PUT), -EPROTO);
	assert_string_equal(e.text, "put: mode 010000; the limit is 07777");
}

static void test_moves_and_changes_are_parsed(void **state)
{
	begin();
	wire_put_u8(&w, 1);
	str("/a");
	str("/b");
	parses_exactly(AGENT_MOVE);
	assert_true(out.flag);
	assert_string_equal(out.path, "/a");
	assert_string_equal(out.to, "/b");
	begin();
	wire_put_u8(&w, 0);
	str("/a");
	str("b");
	assert_int_equal(parse(AGENT_MOVE), -EPROTO);
	for (int i = 0; i < 2; i++) {
		begin();
		wire_put_u32(&w, i ? AGENT_UNCHANGED : 04755);
		wire_put_u32(&w, 7);
		wire_put_u32(&w, AGENT_UNCHANGED);
		wire_put_u8(&w, 0);
		str("/a");
		parses_exactly(AGENT_CHANGE);
		assert_true(out.mode == (i ? AGENT_UNCHANGED : 04755) && out.uid == 7);
		assert_true(out.gid == AGENT_UNCHANGED && !out.flag);
	}
	begin();
	wire_put_u32(&w, 010000);
	assert_int_equal(parse(AGENT_CHANGE), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_file_types_are_accepted),
		cmocka_unit_test(test_put_is_parsed),
		cmocka_unit_test(test_get_is_parsed),
		cmocka_unit_test(test_flags_are_0_or_1),
		cmocka_unit_test(test_walk_is_parsed),
		cmocka_unit_test(test_write_pack_unpack_and_watch_are_parsed),
		cmocka_unit_test(test_invalid_paths_are_refused),
		cmocka_unit_test(test_invalid_modes_are_refused),
		cmocka_unit_test(test_moves_and_changes_are_parsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
