// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/wire.h"
#include "guest/frame.h"

static struct frame_in in;

/* Feeds the bytes in parts of `step`; returns frame_got's last result. */
static int feed(const void *bytes, size_t len, size_t step, struct frame *f, struct err *e)
{
	const uint8_t *p = bytes;
	int got = 0;

	frame_reset(&in);
	while (len && got == 0) {
		size_t n = len < step ? len : step;
		if (n > frame_room(&in))
			n = frame_room(&in);
		memcpy(frame_end(&in), p, n);
		got = frame_got(&in, n, f, e);
		p += n;
		len -= n;
	}
	return got;
}

static void test_frame_is_parsed_in_parts_of_any_size(void **state)
{
	uint8_t bytes[AGENT_HEADER_SIZE + 5];
	struct frame f;
	struct err e;

	frame_header(bytes, AGENT_CODE, 5);
	memcpy(bytes + AGENT_HEADER_SIZE, "hello", 5);
	for (size_t step = 1; step <= sizeof(bytes); step++) {
		assert_int_equal(feed(bytes, sizeof(bytes), step, &f, &e), 1);
		assert_int_equal(f.type, AGENT_CODE);
		assert_int_equal(f.len, 5);
		assert_memory_equal(f.payload, "hello", 5);
	}
}

static void test_frame_without_payload_ends_with_its_header(void **state)
{
	uint8_t bytes[AGENT_HEADER_SIZE];
	struct frame f;
	struct err e;

	frame_header(bytes, AGENT_PING, 0);
	assert_int_equal(feed(bytes, sizeof(bytes) - 1, 1, &f, &e), 0);
	assert_int_equal(feed(bytes, sizeof(bytes), 8, &f, &e), 1);
	assert_int_equal(f.len, 0);
}

static void test_frame_over_the_limit_is_refused(void **state)
{
	static uint8_t bytes[FRAME_MAX];
	struct frame f;
	struct err e;

	frame_header(bytes, AGENT_CODE, AGENT_PAYLOAD_MAX);
	assert_int_equal(feed(bytes, sizeof(bytes), sizeof(bytes), &f, &e), 1);
	assert_int_equal(f.len, AGENT_PAYLOAD_MAX);
	frame_header(bytes, AGENT_CODE, AGENT_PAYLOAD_MAX + 1);
	assert_int_equal(feed(bytes, sizeof(bytes), 8, &f, &e), -EPROTO);
	assert_string_equal(e.text, "frame of 65537 bytes; the limit is 65536");
}

static void test_last_bytes_of_a_header_must_be_zero(void **state)
{
	struct frame f;
	struct err e;

	for (size_t at = 5; at < AGENT_HEADER_SIZE; at++) {
		uint8_t bytes[AGENT_HEADER_SIZE];
		frame_header(bytes, AGENT_PING, 0);
		bytes[at] = 1;
		assert_int_equal(feed(bytes, sizeof(bytes), 3, &f, &e), -EPROTO);
	}
}

struct exec_fields {
	uint8_t language;
	uint32_t code_len;
	const char *cwd;
	size_t cwd_len;
	uint32_t env_count;
	const char *name, *value;
};

static uint8_t exec_flags;

static size_t put_exec(uint8_t *buf, size_t size, const struct exec_fields *x)
{
	struct wire w = wire_on(buf, size);

	wire_put_u8(&w, x->language);
	wire_put_u8(&w, exec_flags);
	wire_put_u32(&w, 1500);
	wire_put_u32(&w, x->code_len);
	wire_put_u64(&w, 99);
	wire_put_str(&w, x->cwd, x->cwd_len);
	wire_put_u32(&w, x->env_count);
	if (x->name) {
		wire_put_str(&w, x->name, strlen(x->name));
		wire_put_str(&w, x->value, strlen(x->value));
	}
	assert_false(w.bad);
	return w.pos;
}

static int parse(const struct exec_fields *x, ptrdiff_t cut, struct exec_request *out)
{
	static uint8_t buf[8192];
	struct frame f = {.type = AGENT_EXEC, .payload = buf};
	struct err e;

	memset(buf, 0, sizeof(buf));
	f.len = (uint32_t)((ptrdiff_t)put_exec(buf, sizeof(buf), x) - cut);
	return exec_parse(&f, out, &e);
}

static void test_exec_is_parsed(void **state)
{
	const struct exec_fields x = {AGENT_BASH, 77, "/tmp", 4, 1, "A", ""};
	struct exec_request out;

	assert_int_equal(parse(&x, 0, &out), 0);
	assert_int_equal(out.language, AGENT_BASH);
	assert_int_equal(out.timeout_ms, 1500);
	assert_int_equal(out.code_len, 77);
	assert_int_equal(out.call, 99);
}

static void test_exec_of_any_other_length_is_refused(void **state)
{
	const struct exec_fields x = {AGENT_PYTHON, 1, "/tmp", 4, 1, "A", "b"};
	struct exec_request out;

	for (ptrdiff_t cut = -1; cut <= 40; cut++)
		assert_int_equal(parse(&x, cut, &out), cut == 0 ? 0 : -EPROTO);
}

static void test_exec_with_a_bad_field_is_refused(void **state)
{
	static char long_cwd[EXEC_CWD_MAX + 2];
	memset(long_cwd, 'x', sizeof(long_cwd) - 1);
	const struct {
		struct exec_fields x;
		int result;
	} cases[] = {
		{{2, 1, "", 0, 0, NULL, NULL}, -EPROTO},
		{{AGENT_PYTHON, AGENT_CODE_MAX, "", 0, 0, NULL, NULL}, 0},
		{{AGENT_PYTHON, AGENT_CODE_MAX + 1, "", 0, 0, NULL, NULL}, -EPROTO},
		{{AGENT_PYTHON, 1, long_cwd, EXEC_CWD_MAX, 0, NULL, NULL}, 0},
		{{AGENT_PYTHON, 1, long_cwd, EXEC_CWD_MAX + 1, 0, NULL, NULL}, -EPROTO},
		{{AGENT_PYTHON, 1, "a\0b", 3, 0, NULL, NULL}, -EPROTO},
		{{AGENT_PYTHON, 1, "", 0, EXEC_ENV_MAX + 1, "A", "b"}, -EPROTO},
		{{AGENT_PYTHON, 1, "", 0, 2, "A", "b"}, -EPROTO},
		{{AGENT_PYTHON, 1, "", 0, 0, "A", "b"}, -EPROTO},
	};
	struct exec_request out;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(parse(&cases[i].x, 0, &out), cases[i].result);
}

static void test_exec_with_unknown_flags_is_refused(void **state)
{
	const struct exec_fields x = {AGENT_PYTHON, 1, "", 0, 0, NULL, NULL};
	struct exec_request out;

	for (exec_flags = 5; exec_flags--;)
		assert_int_equal(parse(&x, 0, &out), exec_flags < 4 ? 0 : -EPROTO);
	exec_flags = 0;
}

static void test_attach_is_parsed(void **state)
{
	uint8_t buf[17];
	struct wire w = wire_on(buf, sizeof(buf));
	struct frame f = {.type = AGENT_ATTACH, .payload = buf};
	struct attach_request out;
	struct err e;

	wire_put_u64(&w, 1ull << 63);
	wire_put_u64(&w, 12345);
	for (f.len = 0; f.len <= sizeof(buf); f.len++)
		assert_int_equal(attach_parse(&f, &out, &e), f.len == 16 ? 0 : -EPROTO);
	f.len = 16;
	attach_parse(&f, &out, &e);
	assert_int_equal(out.call, 1ull << 63);
	assert_int_equal(out.have, 12345);
}

static int parse_tree(uint32_t count, const char *path, size_t len, struct tree_request *out)
{
	static uint8_t buf[AGENT_PAYLOAD_MAX];
	struct wire w = wire_on(buf, sizeof(buf));
	struct err e;

	wire_put_u32(&w, count);
	wire_put_str(&w, "/first", 6);
	wire_put_str(&w, path, len);
	struct frame f = {.type = AGENT_TREE, .len = (uint32_t)w.pos, .payload = buf};
	return tree_parse(&f, out, &e);
}

static void test_paths_of_a_tree_are_parsed(void **state)
{
	static char path[AGENT_PATH_MAX + 2];
	struct tree_request out;

	memset(path, '/', sizeof(path));
	assert_int_equal(parse_tree(2, "/a\xff", 3, &out), 0);
	assert_int_equal(out.count, 2);
	assert_memory_equal(out.paths[0].text, "/first", out.paths[0].len);
	assert_int_equal(out.paths[1].len, 3);
	assert_int_equal(parse_tree(2, path, AGENT_PATH_MAX, &out), 0);
	assert_int_equal(parse_tree(2, path, AGENT_PATH_MAX + 1, &out), -EPROTO);
	assert_int_equal(parse_tree(2, "", 0, &out), -EPROTO);
	assert_int_equal(parse_tree(2, "a", 1, &out), -EPROTO);
	assert_int_equal(parse_tree(2, "/\0", 2, &out), -EPROTO);
	assert_int_equal(parse_tree(1, "/", 1, &out), -EPROTO);
	assert_int_equal(parse_tree(3, "/", 1, &out), -EPROTO);
	assert_int_equal(parse_tree(AGENT_PATHS_MAX + 1, "/", 1, &out), -EPROTO);
}

static int parse_reseed(int64_t ns, const char *name, size_t len, struct reseed_request *out)
{
	uint8_t buf[512], entropy[AGENT_ENTROPY_LEN] = {7};
	struct wire w = wire_on(buf, sizeof(buf));
	struct err e;

	wire_put_bytes(&w, entropy, sizeof(entropy));
	wire_put_u64(&w, (uint64_t)ns);
	wire_put_u8(&w, 1);
	wire_put_str(&w, name, len);
	struct frame f = {.type = AGENT_RESEED, .len = (uint32_t)w.pos, .payload = buf};
	return reseed_parse(&f, out, &e);
}

static void test_reseed_is_parsed(void **state)
{
	struct reseed_request out;

	assert_int_equal(parse_reseed(123, "sandbox-1.local", 15, &out), 0);
	assert_int_equal(out.entropy[0], 7);
	assert_int_equal(out.realtime_ns, 123);
	assert_int_equal(out.user_generators, 1);
	assert_string_equal(out.hostname, "sandbox-1.local");
	assert_int_equal(parse_reseed(0, "", 0, &out), 0);
	assert_string_equal(out.hostname, "");
}

static void test_reseed_with_a_bad_field_is_refused(void **state)
{
	char name[HOST_NAME_LEN + 1];
	struct reseed_request out;

	memset(name, 'n', sizeof(name));
	assert_int_equal(parse_reseed(0, name, HOST_NAME_LEN, &out), 0);
	assert_int_equal(parse_reseed(0, name, HOST_NAME_LEN + 1, &out), -EPROTO);
	assert_int_equal(parse_reseed(-1, "a", 1, &out), -EPROTO);
	assert_int_equal(parse_reseed(0, "a\0b", 3, &out), -EPROTO);
	assert_int_equal(parse_reseed(0, "a\n", 2, &out), -EPROTO);
}

static int parse_dial(const char *payload, uint32_t len, uint16_t *port)
{
	struct frame f = {.type = AGENT_DIAL, .len = len, .payload = (const uint8_t *)payload};
	struct err e;

	return dial_parse(&f, port, &e);
}

static void test_dial_has_a_port_and_nothing_else(void **state)
{
	uint16_t port;

	assert_int_equal(parse_dial("\x40\x1f", 2, &port), 0);
	assert_int_equal(port, 8000);
	assert_int_equal(parse_dial("\xff\xff", 2, &port), 0);
	assert_int_equal(port, 65535);
	assert_int_equal(parse_dial("", 0, &port), -EPROTO);
	assert_int_equal(parse_dial("\x40", 1, &port), -EPROTO);
	assert_int_equal(parse_dial("\x40\x1f\x00", 3, &port), -EPROTO);
	assert_int_equal(parse_dial("\x00\x00", 2, &port), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dial_has_a_port_and_nothing_else),
		cmocka_unit_test(test_frame_is_parsed_in_parts_of_any_size),
		cmocka_unit_test(test_frame_without_payload_ends_with_its_header),
		cmocka_unit_test(test_frame_over_the_limit_is_refused),
		cmocka_unit_test(test_last_bytes_of_a_header_must_be_zero),
		cmocka_unit_test(test_exec_is_parsed),
		cmocka_unit_test(test_exec_of_any_other_length_is_refused),
		cmocka_unit_test(test_exec_with_a_bad_field_is_refused),
		cmocka_unit_test(test_exec_with_unknown_flags_is_refused),
		cmocka_unit_test(test_attach_is_parsed),
		cmocka_unit_test(test_paths_of_a_tree_are_parsed),
		cmocka_unit_test(test_reseed_is_parsed),
		cmocka_unit_test(test_reseed_with_a_bad_field_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
