// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/api/route.h"

#define ID	   "sbx_0123456789abcdef0123456789abcdef"
#define ID2	   "sbx_fedcba9876543210fedcba9876543210"
#define PTY	   "pty_0123456789abcdef0123456789abcdef"
#define PROCESS	   "prc_0123456789abcdef0123456789abcdef"
#define CONTEXT	   "ctx_0123456789abcdef0123456789abcdef"
#define SPACE	   "spc_0123456789abcdef0123456789abcdef"
#define CHECKPOINT "chk_00112233445566778899aabbccddeeff"

static struct route_match m;

static enum route_result find(const char *method, const char *path)
{
	scoped_free char *copy = malloc(strlen(path) + 1);

	/* Copied without its NUL, so that a sanitizer detects a read past the end. */
	memcpy(copy, path, strlen(path));
	return route_find(&m, method, strlen(method), copy, strlen(path), "eu-1");
}

static void goes_to(const char *method, const char *path, const char *pattern)
{
	assert_int_equal(find(method, path), ROUTE_FOUND);
	assert_string_equal(m.route->pattern, pattern);
}

static void is_invalid(const char *method, const char *path, const char *what)
{
	assert_int_equal(find(method, path), ROUTE_ID);
	assert_string_equal(m.invalid->what, what);
}

static const char *id_for(const char *placeholder)
{
	if (!strncmp(placeholder, "{pty}", 5))
		return PTY;
	if (!strncmp(placeholder, "{process}", 9))
		return PROCESS;
	if (!strncmp(placeholder, "{context}", 9))
		return CONTEXT;
	if (!strncmp(placeholder, "{space}", 7))
		return SPACE;
	if (!strncmp(placeholder, "{key}", 5))
		return "key_0123456789abcdef";
	if (!strncmp(placeholder, "{checkpoint}", 12))
		return CHECKPOINT;
	if (!strncmp(placeholder, "{port}", 6))
		return "8000";
	if (!strncmp(placeholder, "{path}", 6))
		return "any/path";
	return strncmp(placeholder, "{id}", 4) ? ID2 : ID;
}

static void each_route_is_found(void **state)
{
	for (size_t i = 0; i < n_routes; i++) {
		const char *at = routes[i].pattern, *ids[3];
		char path[160];
		size_t len = 0, n = 0;

		while (*at) {
			bool is_id = *at == '{';

			const char *chunk = is_id ? id_for(at) : at;

			ids[n] = chunk;
			n += is_id;
			len += (size_t)snprintf(path + len, sizeof(path) - len, "%.*s",
						is_id ? 36 : 1, chunk);
			at = is_id ? strchr(at, '}') + 1 : at + 1;
		}
		assert_int_equal(find(routes[i].method, path), ROUTE_FOUND);
		assert_ptr_equal(m.route, &routes[i]);
		assert_string_equal(m.id[0], n > 0 ? ids[0] : "");
		assert_string_equal(m.id[1], n > 1 ? ids[1] : "");
	}
}

static void all_forms_of_a_path_are_accepted(void **state)
{
	goes_to("GET", "/v1/healthz?x=/y", "/v1/healthz");
	goes_to("HEAD", "/v1/healthz", "/v1/healthz");
	goes_to("GET", "/%76%31/healthz", "/v1/healthz");
	goes_to("GET", "http://any:80/v1/healthz", "/v1/healthz");
	goes_to("GET", "https://any/v1/healthz?http://x/", "/v1/healthz");
	goes_to("GET", "/r/eu-1/v1/healthz", "/v1/healthz");
	goes_to("POST", "/r/eu%2D1/v1/sandboxes/" ID "/exec", "/v1/sandboxes/{id}/exec");
	assert_string_equal(m.id[0], ID);
	goes_to("POST", "/r/eu-1/v1/sandboxes/" ID "/merge_into/" ID2,
		"/v1/sandboxes/{id}/merge_into/{winner}");
	assert_string_equal(m.id[1], ID2);
}

static void unknown_path_is_not_found(void **state)
{
	static const char *const paths[] = {"/",
					    "/v1",
					    "/v1/health",
					    "/v1/healthzz",
					    "//v1/healthz",
					    "/v1//healthz",
					    "/v1/healthz/x",
					    "/v1%2Fhealthz",
					    "/v1/./healthz",
					    "/v1/x/../healthz",
					    "/V1/healthz",
					    "/a/b/c/d/e/f/g/h/i/j/k",
					    "/v1/sandboxes/" ID "/merge_into",
					    "/v1/sandboxes/" ID "/fork/" ID2,
					    "/v1/sandboxes//exec/x"};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		assert_int_equal(find("GET", paths[i]), ROUTE_NONE);
	assert_int_equal(find("GET", "/v1/healthz/"), ROUTE_SLASH);
	assert_int_equal(find("GET", "/v1/sandboxes/"), ROUTE_SLASH);
	assert_int_equal(find("GET", "/r/us-1/v1/healthz"), ROUTE_REGION);
	assert_int_equal(find("GET", "/r//v1/healthz"), ROUTE_REGION);
	assert_int_equal(route_find(&m, "GET", 3, "/r//v1/healthz", 14, ""), ROUTE_REGION);
	assert_int_equal(find("GET", "/r/eu-1/v1/nothing"), ROUTE_NONE);
}

static void ids_are_checked(void **state)
{
	static const char *const ids[] = {
		"sbx_",
		"x",
		"..",
		"sbx_0123456789abcdef0123456789abcde",
		"sbx_0123456789abcdef0123456789abcdeff",
		"sbx_0123456789ABCDEF0123456789abcdef",
		"spc_0123456789abcdef0123456789abcdef",
		"sbx_0123456789abcdef0123456789abcde%2F",
		"sbx_0123456789abcdef0123456789abcde'",
	};

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		char path[128];

		snprintf(path, sizeof(path), "/v1/sandboxes/%s", ids[i]);
		is_invalid("GET", path, "sandbox id");
		assert_string_equal(m.id[0], "");
		snprintf(path, sizeof(path), "/v1/sandboxes/" ID "/diff/%s", ids[i]);
		is_invalid("POST", path, "sandbox or checkpoint id");
		snprintf(path, sizeof(path), "/v1/sandboxes/" ID "/pty/%s/kill", ids[i]);
		is_invalid("POST", path, "terminal id");
		snprintf(path, sizeof(path), "/v1/sandboxes/" ID "/processes/%s/stdin", ids[i]);
		is_invalid("POST", path, "process id");
		snprintf(path, sizeof(path), "/v1/sandboxes/" ID "/contexts/%s", ids[i]);
		is_invalid("GET", path, "context id");
	}
	is_invalid("POST", "/v1/sandboxes/" ID "/diff/" PTY, "sandbox or checkpoint id");
	assert_int_equal(
		find("POST", "/v1/sandboxes/" ID "/diff/chk_0123456789abcdef0123456789abcdef"),
		ROUTE_FOUND);
	is_invalid("DELETE", "/v1/sandboxes/" ID "/contexts/" PTY, "context id");
	is_invalid("POST", "/v1/sandboxes/" ID "/pty/" ID "/kill", "terminal id");
	is_invalid("POST", "/v1/sandboxes/" ID "/pty/" PROCESS "/kill", "terminal id");
	assert_int_equal(find("GET", "/v1/sandboxes/" ID "/processes/" PTY), ROUTE_FOUND);
	is_invalid("POST", "/v1/sandboxes/" PTY "/exec", "sandbox id");
	is_invalid("GET", "/v1/spaces/" ID, "Space id");
	is_invalid("GET", "/v1/checkpoints/" SPACE, "checkpoint id");
	is_invalid("PATCH", "/v1/keys/" ID, "key id");
	is_invalid("POST", "/v1/sandboxes/" ID "/ports/0", "port");
	is_invalid("POST", "/v1/sandboxes/x/pty/" PTY "/kill", "sandbox id");
}

static void wrong_method_gets_the_allowed_ones(void **state)
{
	assert_int_equal(find("PUT", "/v1/sandboxes"), ROUTE_METHOD);
	assert_string_equal(m.allow, "POST, GET, HEAD");
	assert_int_equal(find("GET", "/v1/sandboxes/" ID "/exec"), ROUTE_METHOD);
	assert_string_equal(m.allow, "POST");
	assert_int_equal(find("HEAD", "/v1/sandboxes/" ID "/exec"), ROUTE_METHOD);
	assert_int_equal(find("POST", "/v1/sandboxes/" ID "/files"), ROUTE_METHOD);
	assert_string_equal(m.allow, "PUT, GET, HEAD, DELETE, PATCH");
	assert_int_equal(find("get", "/v1/healthz"), ROUTE_METHOD);
	assert_int_equal(find("GETX", "/v1/healthz"), ROUTE_METHOD);
	assert_int_equal(find("", "/v1/healthz"), ROUTE_METHOD);
}

static void malformed_path_is_refused(void **state)
{
	static const char *const paths[] = {"",
					    "*",
					    "v1/healthz",
					    "?",
					    "/v1/%",
					    "/v1/%4",
					    "/v1/%zz",
					    "/v1/%00",
					    "/v1/healthz%",
					    "http://x?/v1",
					    "http://host",
					    "https://h"};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		assert_int_equal(find("GET", paths[i]), ROUTE_MALFORMED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_route_is_found),
		cmocka_unit_test(all_forms_of_a_path_are_accepted),
		cmocka_unit_test(unknown_path_is_not_found),
		cmocka_unit_test(ids_are_checked),
		cmocka_unit_test(wrong_method_gets_the_allowed_ones),
		cmocka_unit_test(malformed_path_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
