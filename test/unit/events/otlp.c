// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/events/otlp.h"

#define SANDBOX "sbx_6e1c3f0e9f8b4f3b8c2d1a0f9e8d7c6b"
#define CHILD	"sbx_0b9d4c7a1e2f4d5c8a6b3c2d1e0f9a8b"

static struct span fork_of(uint32_t n)
{
	struct span s = {.kind = SPAN_FORK, .status = 200, .n_children = n};

	memcpy(s.sandbox, SANDBOX, SPAN_ID_MAX);
	for (uint32_t i = 0; i < n && i < SPAN_CHILDREN_MAX; i++)
		memcpy(s.children[i], CHILD, SPAN_ID_MAX);
	return s;
}

static void test_packet_of_another_length_is_no_span(void **state)
{
	struct span s = fork_of(SPAN_CHILDREN_MAX);
	const size_t most = span_size(SPAN_CHILDREN_MAX);

	assert_true(otlp_is_span(&s, most));
	assert_false(otlp_is_span(&s, most - 1));
	assert_false(otlp_is_span(&s, most + 1));
	assert_false(otlp_is_span(&s, span_size(0)));
	assert_false(otlp_is_span(&s, 1));
	s.n_children = SPAN_CHILDREN_MAX + 1;
	assert_false(otlp_is_span(&s, span_size(SPAN_CHILDREN_MAX + 1)));
}

static void test_kind_must_be_known(void **state)
{
	struct span s = fork_of(0);

	s.kind = SPAN_KINDS;
	assert_false(otlp_is_span(&s, span_size(0)));
	s.kind = SPAN_NONE;
	assert_false(otlp_is_span(&s, span_size(0)));
}

static void test_texts_must_be_ids(void **state)
{
	struct span s = fork_of(1);

	memset(s.sandbox, 0, SPAN_ID_MAX);
	assert_true(otlp_is_span(&s, span_size(1)));
	memcpy(s.space, "spc\"", 4);
	assert_false(otlp_is_span(&s, span_size(1)));
	memcpy(s.space, "spc_6e1c3f0e9f8b4f3b8c2d1a0f9e8d7c6", SPAN_ID_MAX);
	assert_false(otlp_is_span(&s, span_size(1)));
	memset(s.space, 0, SPAN_ID_MAX);
	memset(s.children[0], 0, SPAN_ID_MAX);
	assert_false(otlp_is_span(&s, span_size(1)));
}

static void test_span_has_only_what_is_known(void **state)
{
	struct span s = {.trace = {1}, .id = {2}, .kind = SPAN_EXEC, .status = 503};
	char *text = NULL;
	size_t len;

	FILE *out = open_memstream(&text, &len);
	otlp_write(out, &s, 1, "0.1.0");
	fclose(out);
	assert_string_equal(
		strstr(text, "\"spans\":"),
		"\"spans\":[{\"traceId\":\"01000000000000000000000000000000\",\"spanId\":"
		"\"0200000000000000\",\"name\":\"exec\",\"kind\":2,\"startTimeUnixNano\":\"0\","
		"\"endTimeUnixNano\":\"0\",\"attributes\":[{\"key\":\"http.response.status_code\","
		"\"value\":{\"intValue\":\"503\"}}],\"status\":{\"code\":2}}]}]}]}\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packet_of_another_length_is_no_span),
		cmocka_unit_test(test_kind_must_be_known),
		cmocka_unit_test(test_texts_must_be_ids),
		cmocka_unit_test(test_span_has_only_what_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
