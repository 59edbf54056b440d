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

static void test_only_process_types_are_accepted(void **state)
{
	for (unsigned type = 0; type < 256; type++)
		assert_int_equal(process_request_is((uint8_t)type),
				 (type >= AGENT_PROC_START && type < AGENT_PROC_LIST) ||
					 type == AGENT_PROC_STAT || type == AGENT_PROC_RESIZE);
}

struct start {
	uint8_t flags;
	uint16_t cols, rows;
	const char *user;
	size_t label_len;
	uint32_t argc, env;
};

static size_t put_start(const struct start *s)
{
	char label[AGENT_LABEL_MAX + 1];

	memset(label, 'l', sizeof(label));
	begin();
	wire_put_u8(&w, s->flags);
	wire_put_u16(&w, s->cols);
	wire_put_u16(&w, s->rows);
	wire_put_u32(&w, 1500);
	str("/tmp");
	str(s->user);
	wire_put_str(&w, label, s->label_len);
	wire_put_u32(&w, s->argc);
	for (uint32_t i = 0; i < s->argc && i < 10000; i++)
		str("x");
	wire_put_u32(&w, s->env);
	for (uint32_t i = 0; i < s->env && i < 2000; i++) {
		str("A");
		str("");
	}
	return w.pos;
}

static void test_start_is_parsed(void **state)
{
	const struct start s = {AGENT_PROC_STDIN | AGENT_PROC_FOLLOW, 0, 0, "user", 7, 2, 1};
	const size_t env_size = 4 + 1 + 4, args_size = 2 * (4 + 1);
	size_t len = put_start(&s);

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
	assert_string_equal(out.label, "lllllll");
	assert_int_equal(out.argc, 2);
	assert_int_equal(out.env, 1);
	assert_int_equal(out.variables, len - env_size);
	assert_int_equal(out.args, out.variables - 4 - args_size);
}

static int parse_start(const struct start *s)
{
	put_start(s);
	return parse(AGENT_PROC_START);
}

static int parse_flags(uint8_t flags, uint16_t cols, uint16_t rows)
{
	return parse_start(&(struct start){flags, cols, rows, "", 7, 1, 0});
}

static int parse_counts(size_t label_len, uint32_t argc, uint32_t env)
{
	return parse_start(&(struct start){0, 0, 0, "", label_len, argc, env});
}

static void test_start_over_a_limit_is_refused(void **state)
{
	assert_int_equal(parse_counts(AGENT_LABEL_MAX, PROCESS_ARGS_MAX, EXEC_ENV_MAX), 0);
	assert_int_equal(parse_counts(AGENT_LABEL_MAX + 1, 1, 0), -EPROTO);
	assert_int_equal(parse_counts(0, 0, 0), -EPROTO);
	assert_int_equal(parse_counts(0, PROCESS_ARGS_MAX + 1, 0), -EPROTO);
	assert_string_equal(e.text, "process: 4097 arguments; allowed are 1 to 4096");
	assert_int_equal(parse_counts(0, UINT32_MAX, 0), -EPROTO);
	assert_int_equal(parse_counts(0, 1, EXEC_ENV_MAX + 1), -EPROTO);
	assert_string_equal(e.text, "process: 1025 variables; the limit is 1024");
}

static void test_start_with_a_bad_field_is_refused(void **state)
{
	char user[AGENT_USER_MAX + 2] = "";
	const struct start s = {0, 0, 0, user, 7, 1, 0};

	memset(user, 'x', AGENT_USER_MAX);
	assert_int_equal(parse_start(&s), 0);
	user[AGENT_USER_MAX] = 'x';
	assert_int_equal(parse_start(&s), -EPROTO);
	assert_int_equal(parse_flags(AGENT_PROC_TTY | AGENT_PROC_MUST_RUN, 65535, 1), 0);
	assert_true(out.cols == 65535 && out.rows == 1);
	assert_int_equal(parse_flags(AGENT_PROC_TTY, 0, 1), -EPROTO);
	assert_int_equal(parse_flags(AGENT_PROC_TTY, 80, 0), -EPROTO);
	assert_string_equal(e.text, "process: columns and rows must not be 0");
	assert_int_equal(parse_flags(0, 80, 24), -EPROTO);
	assert_string_equal(e.text, "process: without a tty, columns and rows must be 0");
	assert_int_equal(parse_flags(AGENT_PROC_TIMED_OUT, 0, 0), -EPROTO);
	assert_int_equal(parse_flags(32, 0, 0), -EPROTO);
	assert_string_equal(e.text, "process: unknown flags 0x20");
}

static int parse_signal(uint8_t number)
{
	begin();
	wire_put_u8(&w, number);
	return parse(AGENT_PROC_SIGNAL);
}

static void test_other_requests_are_parsed(void **state)
{
	assert_int_equal(parse_signal(0), -EPROTO);
	assert_int_equal(parse_signal(65), -EPROTO);
	assert_int_equal(parse_signal(64), 0);
	assert_int_equal(out.signal, 64);
	begin();
	assert_int_equal(parse(AGENT_PROC_KILL), 0);
	assert_int_equal(parse(AGENT_PROC_STAT), 0);
	assert_int_equal(parse(AGENT_PROC_CLOSE), 0);
	assert_int_equal(parse(AGENT_PROC_RESIZE), -EPROTO);
	wire_put_u16(&w, 100);
	wire_put_u16(&w, 50);
	assert_int_equal(parse(AGENT_PROC_RESIZE), 0);
	assert_true(out.cols == 100 && out.rows == 50);
	begin();
	wire_put_u16(&w, 100);
	wire_put_u16(&w, 0);
	assert_int_equal(parse(AGENT_PROC_RESIZE), -EPROTO);
	begin();
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
		cmocka_unit_test(test_start_with_a_bad_field_is_refused),
		cmocka_unit_test(test_start_over_a_limit_is_refused),
		cmocka_unit_test(test_other_requests_are_parsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
