// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/wire.h"
#include "guest/exec/context-request.h"

#define ID "ctx_0123456789abcdef0123456789abcdef"

static uint8_t buf[AGENT_PAYLOAD_MAX];
static struct wire w;
static struct context_request out;
static struct err e;

static void str(const char *text)
{
	wire_put_str(&w, text, strlen(text));
}

static void begin(const char *id)
{
	w = wire_on(buf, sizeof(buf));
	str(id);
}

static int parse(uint8_t type)
{
	struct frame f = {.type = type, .len = (uint32_t)w.pos, .payload = buf};

	return context_request_parse(&f, &out, &e);
}

static int parse_start(uint8_t language, const char *cwd, uint32_t variables)
{
	begin(ID);
	wire_put_u8(&w, language);
	str(cwd);
	wire_put_u32(&w, variables);
	for (uint32_t i = 0; i < variables; i++) {
		str("A");
		str("b");
	}
	return parse(AGENT_CONTEXT_START);
}

static void starts_are_parsed(void **state)
{
	assert_int_equal(parse_start(AGENT_BASH, "/tmp", 2), 0);
	assert_string_equal(out.id, ID);
	assert_string_equal(out.cwd, "/tmp");
	assert_true(out.language == AGENT_BASH && out.env_count == 2);
	assert_int_equal(out.env, 4 + AGENT_ID_LEN + 1 + 8 + 4);
	assert_int_equal(parse_start(AGENT_JAVASCRIPT, "", 0), 0);
	assert_int_equal(parse_start(AGENT_JAVASCRIPT + 1, "", 0), -EPROTO);
	assert_int_equal(parse_start(AGENT_BASH, "", EXEC_ENV_MAX), 0);
	assert_int_equal(parse_start(AGENT_BASH, "", EXEC_ENV_MAX + 1), -EPROTO);
}

static void ids_are_checked(void **state)
{
	static const char *const bad[] = {"", "ctx_", ID "0",
					  "../_0123456789abcdef0123456789abcdef",
					  ".tx_0123456789abcdef0123456789abcdef"};

	begin(ID);
	assert_int_equal(parse(AGENT_CONTEXT_END), 0);
	assert_int_equal(parse(AGENT_CONTEXT_RESTART), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		begin(bad[i]);
		assert_int_equal(parse(AGENT_CONTEXT_END), -EPROTO);
	}
	begin(ID);
	wire_put_u8(&w, 0);
	assert_int_equal(parse(AGENT_CONTEXT_END), -EPROTO);
}

static void list_has_no_payload(void **state)
{
	w = wire_on(buf, sizeof(buf));
	assert_int_equal(parse(AGENT_CONTEXT_LIST), 0);
	wire_put_u8(&w, 0);
	assert_int_equal(parse(AGENT_CONTEXT_LIST), -EPROTO);
}

static int parse_inner(uint8_t type, size_t len)
{
	begin(ID);
	wire_put_u8(&w, type);
	w.pos += len;
	return parse(AGENT_IN_CONTEXT);
}

static void inner_requests_are_found(void **state)
{
	assert_int_equal(parse_inner(AGENT_EXEC, 30), 0);
	assert_ptr_equal(out.inner.payload, buf + 4 + AGENT_ID_LEN + 1);
	assert_int_equal(out.inner.len, 30);
	assert_int_equal(parse_inner(AGENT_ATTACH, 0), 0);
	assert_int_equal(parse_inner(AGENT_INTERRUPT, 8), 0);
	assert_int_equal(parse_inner(AGENT_PING, 0), -EPROTO);
	assert_int_equal(parse_inner(AGENT_IN_CONTEXT, 0), -EPROTO);
	begin(ID);
	assert_int_equal(parse(AGENT_IN_CONTEXT), -EPROTO);
}

static void only_requests_on_contexts_are_accepted(void **state)
{
	for (unsigned type = 0; type < 256; type++)
		assert_int_equal(context_request_is((uint8_t)type), type >= 37 && type <= 41);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(starts_are_parsed),
		cmocka_unit_test(ids_are_checked),
		cmocka_unit_test(list_has_no_payload),
		cmocka_unit_test(inner_requests_are_found),
		cmocka_unit_test(only_requests_on_contexts_are_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
