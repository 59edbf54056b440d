// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/wire.h"
#include "guest/process/process-request.h"

#define ID "pty_0123456789abcdef0123456789abcdef"

static uint8_t buf[AGENT_PAYLOAD_MAX];
static struct wire w;
static struct process_request out;
static struct err e;

static void begin(void)
{
	w = wire_on(buf, sizeof(buf));
	wire_put_str(&w, ID, AGENT_ID_LEN);
}

static void str(const char *text)
{
	wire_put_str(&w, text, strlen(text));
}

static int parse(uint8_t type)
{
	struct frame f = {.type = type, .len = (uint32_t)w.pos, .payload = buf};

	return process_request_parse(&f, &out, &e);
}

static void begin_start(uint16_t cols, uint16_t rows)
{
	begin();
	wire_put_u16(&w, cols);
	wire_put_u16(&w, rows);
	str("/tmp");
	str("a label");
}

static void test_only_process_types_are_accepted(void **state)
{
	for (unsigned type = 0; type < 256; type++)
		assert_int_equal(process_request_is((uint8_t)type),
				 (type >= AGENT_PTY_START && type < AGENT_PTY_LIST) ||
					 (type >= AGENT_PROC_START && type < AGENT_PROC_LIST) ||
					 type == AGENT_PROC_STAT);
}

static void test_start_is_parsed(void **state)
{
	begin_start(80, 24);
	size_t at = w.pos + 4;
	wire_put_u32(&w, 2);
	str("bash");
	str("-i");
	size_t env = w.pos + 4;
	wire_put_u32(&w, 1);
	str("A");
	str("");
	size_t len = w.pos;
	for (w.pos = 0; w.pos < len; w.pos++)
		assert_int_equal(parse(AGENT_PTY_START), -EPROTO);
	w.pos = len + 1;
	assert_int_equal(parse(AGENT_PTY_START), -EPROTO);
	w.pos = len;
	assert_int_equal(parse(AGENT_PTY_START), 0);
	assert_string_equal(out.id, ID);
	assert_int_equal(out.cols, 80);
	assert_int_equal(out.rows, 24);
	assert_string_equal(out.cwd, "/tmp");
	assert_string_equal(out.label, "a label");
	assert_int_equal(out.argc, 2);
	assert_int_equal(out.args, at);
	assert_int_equal(out.env, 1);
	assert_int_equal(out.variables, env);
}

static int parse_start(uint16_t cols, uint16_t rows, uint32_t argc, uint32_t env)
{
	begin_start(cols, rows);
	wire_put_u32(&w, argc);
	for (uint32_t i = 0; i < argc && i < 10000; i++)
		str("");
	wire_put_u32(&w, env);
	for (uint32_t i = 0; i < env && i < 2000; i++) {
		str("A");
		str("");
	}
	return parse(AGENT_PTY_START);
}

static void test_start_with_a_field_out_of_range_is_refused(void **state)
{
	assert_int_equal(parse_start(65535, 1, PROCESS_ARGS_MAX, EXEC_ENV_MAX), 0);
	assert_int_equal(parse_start(0, 1, 1, 0), -EPROTO);
	assert_int_equal(parse_start(1, 0, 1, 0), -EPROTO);
	assert_string_equal(e.text, "pty: columns and rows must not be 0");
	assert_int_equal(parse_start(1, 1, 0, 0), -EPROTO);
	assert_int_equal(parse_start(1, 1, PROCESS_ARGS_MAX + 1, 0), -EPROTO);
	assert_string_equal(e.text, "pty: 4097 arguments; allowed are 1 to 4096");
	assert_int_equal(parse_start(1, 1, UINT32_MAX, 0), -EPROTO);
	assert_int_equal(parse_start(1, 1, 1, EXEC_ENV_MAX + 1), -EPROTO);
	assert_string_equal(e.text, "pty: 1025 variables; the limit is 1024");
}

static void test_label_over_the_limit_is_refused(void **state)
{
	char label[AGENT_LABEL_MAX + 1];

	memset(label, 'x', sizeof(label));
	for (size_t over = 0; over < 2; over++) {
		begin();
		wire_put_u16(&w, 1);
		wire_put_u16(&w, 1);
		str("");
		wire_put_str(&w, label, AGENT_LABEL_MAX + over);
		wire_put_u32(&w, 1);
		str("a");
		wire_put_u32(&w, 0);
		assert_int_equal(parse(AGENT_PTY_START), over ? -EPROTO : 0);
	}
}

static void test_other_requests_are_parsed(void **state)
{
	begin();
	assert_int_equal(parse(AGENT_PTY_KILL), 0);
	assert_int_equal(parse(AGENT_PTY_ATTACH), -EPROTO);
	assert_int_equal(parse(AGENT_PTY_INPUT), 0);
	assert_int_equal(out.rest, w.pos);
	wire_put_u64(&w, 1ull << 63);
	assert_int_equal(parse(AGENT_PTY_ATTACH), 0);
	assert_true(out.offset == 1ull << 63);
	assert_int_equal(parse(AGENT_PTY_KILL), -EPROTO);
	assert_int_equal(parse(AGENT_PTY_INPUT), 0);
	assert_int_equal(out.rest, w.pos - 8);
	begin();
	wire_put_u16(&w, 100);
	wire_put_u16(&w, 50);
	assert_int_equal(parse(AGENT_PTY_RESIZE), 0);
	assert_int_equal(out.cols, 100);
	assert_int_equal(out.rows, 50);
}

struct start {
	uint8_t flags;
	uint16_t cols, rows;
	const char *user;
};

static size_t put_process(const struct start *s)
{
	begin();
	wire_put_u8(&w, s->flags);
	wire_put_u16(&w, s->cols);
	wire_put_u16(&w, s->rows);
	wire_put_u32(&w, 1500);
	str("/tmp");
	str(s->user);
	str("a label");
	wire_put_u32(&w, 1);
	str("true");
	wire_put_u32(&w, 1);
	str("A");
	str("b");
	return w.pos;
}

static void test_start_of_a_process_is_parsed(void **state)
{
	const struct start s = {AGENT_PROC_STDIN | AGENT_PROC_FOLLOW, 0, 0, "user"};
	size_t len = put_process(&s);

	for (w.pos = 0; w.pos < len; w.pos++)
		assert_int_equal(parse(AGENT_PROC_START), -EPROTO);
	w.pos = len + 1;
	assert_int_equal(parse(AGENT_PROC_START), -EPROTO);
	w.pos = len;
	assert_int_equal(parse(AGENT_PROC_START), 0);
	assert_string_equal(out.id, ID);
	assert_int_equal(out.flags, s.flags);
	assert_int_equal(out.timeout_ms, 1500);
	assert_string_equal(out.cwd, "/tmp");
	assert_string_equal(out.user, "user");
	assert_string_equal(out.label, "a label");
	assert_int_equal(out.argc, 1);
	assert_int_equal(out.env, 1);
}

static int parse_process(uint8_t flags, uint16_t cols, uint16_t rows, const char *user)
{
	const struct start s = {flags, cols, rows, user};

	put_process(&s);
	return parse(AGENT_PROC_START);
}

static void test_start_of_a_process_with_a_bad_field_is_refused(void **state)
{
	char user[AGENT_USER_MAX + 2] = "";

	memset(user, 'x', AGENT_USER_MAX);
	assert_int_equal(parse_process(AGENT_PROC_TTY, 80, 24, user), 0);
	user[AGENT_USER_MAX] = 'x';
	assert_int_equal(parse_process(AGENT_PROC_TTY, 80, 24, user), -EPROTO);
	assert_int_equal(parse_process(AGENT_PROC_TTY, 80, 0, ""), -EPROTO);
	assert_int_equal(parse_process(0, 80, 24, ""), -EPROTO);
	assert_string_equal(e.text, "process: without a tty, columns and rows must be 0");
	assert_int_equal(parse_process(AGENT_PROC_TIMED_OUT, 0, 0, ""), -EPROTO);
	assert_int_equal(parse_process(16, 0, 0, ""), -EPROTO);
	assert_string_equal(e.text, "process: unknown flags 0x10");
}

static int parse_signal(uint8_t number)
{
	begin();
	wire_put_u8(&w, number);
	return parse(AGENT_PROC_SIGNAL);
}

static void test_other_requests_on_processes_are_parsed(void **state)
{
	assert_int_equal(parse_signal(0), -EPROTO);
	assert_int_equal(parse_signal(65), -EPROTO);
	assert_int_equal(parse_signal(64), 0);
	assert_int_equal(out.signal, 64);
	begin();
	assert_int_equal(parse(AGENT_PROC_KILL), 0);
	assert_int_equal(parse(AGENT_PROC_STAT), 0);
	assert_int_equal(parse(AGENT_PROC_CLOSE), 0);
	wire_put_u64(&w, 7);
	assert_int_equal(parse(AGENT_PROC_ATTACH), -EPROTO);
	wire_put_u8(&w, 1);
	assert_int_equal(parse(AGENT_PROC_ATTACH), 0);
	assert_true(out.offset == 7 && out.holds);
	assert_int_equal(parse(AGENT_PROC_STAT), -EPROTO);
	assert_int_equal(parse(AGENT_PROC_INPUT), 0);
	assert_int_equal(out.rest, w.pos - 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_process_types_are_accepted),
		cmocka_unit_test(test_start_is_parsed),
		cmocka_unit_test(test_start_with_a_field_out_of_range_is_refused),
		cmocka_unit_test(test_label_over_the_limit_is_refused),
		cmocka_unit_test(test_other_requests_are_parsed),
		cmocka_unit_test(test_start_of_a_process_is_parsed),
		cmocka_unit_test(test_start_of_a_process_with_a_bad_field_is_refused),
		cmocka_unit_test(test_other_requests_on_processes_are_parsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
