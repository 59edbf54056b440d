// SPDX-License-Identifier: Apache-2.0
/* Requests to servers in sandboxes: which server, what it gets, and what the client gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "orchestrator/ports/port-answer.h"
#include "orchestrator/ports/port-target.h"

#define HEX    "0123456789abcdef0123456789abcdef"
#define ID     "sbx_" HEX
#define PREFIX "/v1/sandboxes/" ID "/ports/8000"

/* --- targets -------------------------------------------------------------------------------- */

static struct port_target t;

static bool find(const char *host, const char *path)
{
	return port_target_find(&t, host, strlen(host), path, strlen(path),
				"http://boxes.test:7070", "eu-1");
}

static void is_target(const char *host, const char *path, bool by_host, const char *prefix,
		      const char *rest)
{
	assert_true(find(host, path));
	assert_string_equal(t.id, ID);
	assert_int_equal(t.port, 8000);
	assert_int_equal(t.by_host, by_host);
	assert_int_equal(t.prefix_len, strlen(prefix));
	assert_memory_equal(t.prefix, prefix, t.prefix_len);
	assert_int_equal(t.path_len, strlen(rest));
	assert_memory_equal(t.path, rest, t.path_len);
}

static void servers_are_found_by_path(void **state)
{
	is_target("api", PREFIX "/", false, PREFIX, "/");
	is_target("api", PREFIX "/a/b?c=/d", false, PREFIX, "/a/b?c=/d");
	is_target("api", "/r/eu-1" PREFIX "/x", false, "/r/eu-1" PREFIX, "/x");
	is_target("api", "http://api" PREFIX "/x", false, PREFIX, "/x");
}

static void servers_are_found_by_host(void **state)
{
	is_target("8000-" HEX ".boxes.test", "/a?b", true, "", "/a?b");
	is_target("8000-" HEX ".BOXES.test:443", PREFIX "/", true, "", PREFIX "/");
	is_target("8000-" HEX ".boxes.test.", "/", true, "", "/");
	is_target("api", "http://8000-" HEX ".boxes.test", true, "", "/");
}

static void other_requests_are_not_for_servers(void **state)
{
	const char *paths[] = {PREFIX,
			       "/v1/sandboxes/" ID "/ports/0/",
			       "/v1/sandboxes/" ID "/ports/65536/",
			       "/v1/sandboxes/" ID "/ports/08000/",
			       "/v1/sandboxes/" ID "/ports/8000x/",
			       "/v1/sandboxes/sbx_/ports/8000/",
			       "/r/us-1" PREFIX "/",
			       "/v1/sandboxes/%73bx_" HEX "/ports/8000/",
			       "/"};
	const char *hosts[] = {"8000-" HEX ".boxes.tes",   "8000-" HEX ".boxes.test.evil",
			       "8000-" HEX "boxes.test",   "8000-" HEX "0.boxes.test",
			       "0-" HEX ".boxes.test",	   "-" HEX ".boxes.test",
			       "8000-" HEX ".boxes.testx", "boxes.test"};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		assert_false(find("api", paths[i]));
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
		assert_false(find(hosts[i], "/"));
	assert_false(port_target_find(&t, "8000-" HEX ".", 38, "/", 1, "", ""));
	assert_false(port_target_find(&t, NULL, 0, "/", 1, "", "boxes.test"));
}

static void strips_to(const char *path, const char *token, const char *rest)
{
	char out[200];
	size_t len = 0;
	const char *found = port_query_token(path, strlen(path), &len);

	assert_int_equal(len, token ? strlen(token) : 0);
	if (token)
		assert_memory_equal(found, token, len);
	else
		assert_null(found);
	len = port_query_strip(out, path, strlen(path));
	assert_int_equal(len, strlen(rest));
	assert_memory_equal(out, rest, len);
}

static void tokens_are_taken_out_of_queries(void **state)
{
	strips_to("/a", NULL, "/a");
	strips_to("/a?", NULL, "/a?");
	strips_to("/?ramet_token=x", "x", "/");
	strips_to("/?ramet_token=x&a=b", "x", "/?a=b");
	strips_to("/?a=b&ramet_token=x&c&ramet_token=", "x", "/?a=b&c");
	strips_to("/?a=ramet_token=x&&", NULL, "/?a=ramet_token=x&&");
	strips_to("/ramet_token=x?ramet_tokens=y", NULL, "/ramet_token=x?ramet_tokens=y");
}

/* --- requests ------------------------------------------------------------------------------- */

#define FIELD(n, v)                                                                                \
	{                                                                                          \
		n, v, sizeof(n) - 1, sizeof(v) - 1                                                 \
	}

static const char *asks(struct port_ask ask, const struct port_field *fields, size_t n)
{
	static char text[4096];
	struct text out = {0};

	ask.method = ask.method ? ask.method : "GET";
	ask.method_len = strlen(ask.method);
	ask.path = ask.path ? ask.path : "/";
	ask.path_len = strlen(ask.path);
	ask.fields = fields;
	ask.n_fields = n;
	ask.authority = "Api.test";
	ask.authority_len = 8;
	ask.client = "192.0.2.1";
	ask.scheme = "https";
	ask.port = 8000;
	if (!port_ask_write(&out, &ask))
		return NULL;
	snprintf(text, sizeof(text), "%.*s", (int)out.len, out.p);
	text_free(&out);
	return text;
}

#define FORWARDED                                                                                  \
	"x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: https\r\nx-forwarded-host: Api.test\r\n"

static void heads_are_written(void **state)
{
	const struct port_field fields[] = {
		FIELD("host", "Api.test"),
		FIELD("accept", "*/*"),
		FIELD("connection", "x-one, X-Two"),
		FIELD("x-one", "1"),
		FIELD("x-two", "2"),
		FIELD("te", "trailers"),
		FIELD("x-forwarded-for", "9.9.9.9"),
		FIELD("forwarded", "for=9.9.9.9"),
		FIELD("content-length", "3"),
		FIELD("ramet-port-token", "secret"),
		FIELD("cookie", "a=1; ramet_port_token=secret;b=2"),
		FIELD("cookie", "ramet_port_token=secret"),
		FIELD("cookie", "c=3"),
		FIELD("origin", "https://api.test"),
		FIELD("authorization", "Bearer rmt_secret"),
		FIELD("authorization", "Basic x"),
		FIELD("x-bad", "a\rb"),
		FIELD("x bad", "a"),
	};

	assert_string_equal(asks((struct port_ask){.path = "/a?b"}, fields, ARRAY_LEN(fields)),
			    "GET /a?b HTTP/1.1\r\nhost: localhost:8000\r\naccept: */*\r\n"
			    "origin: http://localhost:8000\r\nauthorization: Basic x\r\n"
			    "cookie: a=1; b=2; c=3\r\n" FORWARDED "connection: close\r\n\r\n");
	assert_string_equal(
		asks((struct port_ask){.method = "PUT",
				       .prefix = "/p",
				       .prefix_len = 2,
				       .body = PORT_BODY_LENGTH,
				       .body_len = 7,
				       .key_used = true},
		     &fields[15], 1),
		"PUT / HTTP/1.1\r\nhost: localhost:8000\r\n" FORWARDED
		"x-forwarded-prefix: /p\r\ncontent-length: 7\r\nconnection: close\r\n\r\n");
	assert_string_equal(asks((struct port_ask){.upgrade = "websocket",
						   .upgrade_len = 9,
						   .body = PORT_BODY_CHUNKED},
				 NULL, 0),
			    "GET / HTTP/1.1\r\nhost: localhost:8000\r\n" FORWARDED
			    "transfer-encoding: chunked\r\nupgrade: websocket\r\n"
			    "connection: upgrade\r\n\r\n");
}

static void clients_cannot_imitate_the_services_fields(void **state)
{
	const struct port_field fields[] = {
		FIELD("x_forwarded_for", "9.9.9.9"),
		FIELD("x-forwarded_host", "evil"),
		FIELD("content_length", "9"),
		FIELD("transfer_encoding", "chunked"),
		FIELD("ramet_port_token", "secret"),
		FIELD("x_own", "1"),
		FIELD("x-real-ip", "9.9.9.9"),
		FIELD("x_real_ip", "9.9.9.9"),
		FIELD("true-client-ip", "9.9.9.9"),
		FIELD("cf-connecting-ip", "9.9.9.9"),
		FIELD("x-forwarded-ssl", "on"),
		FIELD("x-forwarded", "for=9.9.9.9"),
		FIELD("x-real", "1"),
	};

	assert_string_equal(asks((struct port_ask){0}, fields, ARRAY_LEN(fields)),
			    "GET / HTTP/1.1\r\nhost: localhost:8000\r\nx_own: 1\r\n"
			    "x-real: 1\r\n" FORWARDED "connection: close\r\n\r\n");
}

static void keys_and_tokens_reach_no_server(void **state)
{
	const struct port_field fields[] = {
		FIELD("authorization", "bearer  \trmt_secret"),
		FIELD("authorization", "Bearer rmt_"),
		FIELD("authorization", "Bearer other"),
		FIELD("referer", "https://api.test/p/?a=b&ramet_token=secret&c"),
	};

	assert_string_equal(asks((struct port_ask){0}, fields, ARRAY_LEN(fields)),
			    "GET / HTTP/1.1\r\nhost: localhost:8000\r\n"
			    "authorization: Bearer other\r\n"
			    "referer: https://api.test/p/?a=b&c\r\n" FORWARDED
			    "connection: close\r\n\r\n");
}

static void long_connection_headers_take_little_time(void **state)
{
	static char commas[60000];
	struct port_field fields[100];
	const clock_t start = clock();

	memset(commas, ',', sizeof(commas));
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		fields[i] = (struct port_field){i ? "a" : "connection", i ? "b" : commas,
						i ? 1 : 10, i ? 1 : sizeof(commas)};
	for (int i = 0; i < 100; i++)
		for (size_t j = 0; j < ARRAY_LEN(fields); j++)
			port_is_hop(fields[j].name, fields[j].name_len, fields, ARRAY_LEN(fields));
	assert_true((clock() - start) * 10 < CLOCKS_PER_SEC * 2);
}

static void requests_that_would_be_two_are_refused(void **state)
{
	const char *paths[] = {"/a b", "/\r\nx: y", "/\x7f", "*", "x"};
	const char *methods[] = {"GE T", "GET\r\n", "G:T"};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		assert_null(asks((struct port_ask){.path = paths[i]}, NULL, 0));
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		assert_null(asks((struct port_ask){.method = methods[i]}, NULL, 0));
}

/* --- answers -------------------------------------------------------------------------------- */

static struct port_answer a;
static char buffer[2 * PORT_HEAD_MAX];

static ssize_t answers(const char *head, bool is_head)
{
	const char *why;

	memcpy(buffer, head, strlen(head));
	return port_answer_head(&a, buffer, strlen(head), 0, is_head, &why);
}

static void has_body(const char *head, bool is_head, int body, size_t length, bool over)
{
	assert_int_equal(answers(head, is_head), strlen(head));
	assert_int_equal(a.body, body);
	assert_int_equal(a.length, length);
	assert_int_equal(a.over, over);
}

static void the_form_of_a_body_is_found(void **state)
{
	has_body("HTTP/1.1 200 OK\r\n\r\n", false, PORT_UNTIL_END, SIZE_MAX, false);
	has_body("HTTP/1.0 200 \r\nContent-Length: 5\r\n\r\n", false, PORT_LENGTH, 5, false);
	has_body("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, PORT_LENGTH, 0, true);
	has_body("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, PORT_EMPTY, 5, true);
	has_body("HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n", false, PORT_EMPTY, 5, true);
	has_body("HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n", false, PORT_EMPTY, SIZE_MAX, true);
	has_body("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 5\r\n\r\n",
		 false, PORT_CHUNKED, SIZE_MAX, false);
}

static void incomplete_and_malformed_heads(void **state)
{
	const char *bad[] = {
		"HTTP/1.1 600 x\r\n\r\n",
		"HTTP/2 200 x\r\n\r\n",
		"HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 200 x\r\nContent-Length: +1\r\n\r\n",
		"HTTP/1.1 200 x\r\nContent-Length: \r\n\r\n",
		"HTTP/1.1 200 x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		("HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
		 "chunked\r\n\r\n"),
		"HTTP/1.1 200 x\r\na: b\r\n c\r\n\r\n",
	};
	const char *why;

	assert_int_equal(answers("HTTP/1.1 200 OK\r\nA: b\r\n", false), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(answers(bad[i], false), -EPROTO);
	memset(buffer, 'x', sizeof(buffer));
	memcpy(buffer, "HTTP/1.1 200 OK\r\na: ", 20);
	assert_int_equal(port_answer_head(&a, buffer, PORT_HEAD_MAX, 0, false, &why), -EPROTO);
	assert_string_equal(why, "has a head of more than 64 KiB");
}

static void bodies_are_decoded(void **state)
{
	char chunks[] = "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nmore", whole[] = "abcdefgh";

	answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false);
	assert_int_equal(port_answer_body(&a, chunks, 6), 3);
	assert_memory_equal(chunks, "abc", 3);
	assert_false(port_answer_ended(&a));
	assert_int_equal(port_answer_body(&a, chunks + 6, sizeof(chunks) - 7), 2);
	assert_memory_equal(chunks + 6, "de", 2);
	assert_true(a.over);
	assert_int_equal(a.extra, strlen("more"));
	answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false);
	assert_int_equal(port_answer_body(&a, (char[]){"zz"}, 2), -EPROTO);
	answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false);
	assert_int_equal(port_answer_body(&a, whole, 2), 2);
	assert_false(port_answer_ended(&a));
	assert_int_equal(port_answer_body(&a, whole, 8), 3);
	assert_true(port_answer_ended(&a));
	assert_int_equal(a.extra, 5);
	assert_int_equal(port_answer_body(&a, whole, 8), 0);
	assert_int_equal(a.extra, 13);
	answers("HTTP/1.1 200 OK\r\n\r\n", false);
	assert_int_equal(port_answer_body(&a, whole, 8), 8);
	assert_true(!a.over && port_answer_ended(&a));
}

static void connections_are_kept_if_both_may(void **state)
{
	assert_true(answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false) > 0 && a.keeps);
	assert_true(answers("HTTP/1.1 200 OK\r\nConnection: te, Close\r\n\r\n", false) > 0);
	assert_false(a.keeps);
	assert_true(answers("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false) > 0);
	assert_false(a.keeps);
}

static const struct port_place below = {
	.prefix = "/p", .prefix_len = 2, .authority = "api", .authority_len = 3, .port = 8000};
static const struct port_place own = {
	.prefix = "", .authority = "x.test", .authority_len = 6, .port = 8000};

static void becomes(const char *name, const char *value, const struct port_place *place,
		    const char *wanted)
{
	const struct port_field f = {name, value, strlen(name), strlen(value)};
	struct text out = {0};

	port_answer_value(&out, &f, place);
	assert_int_equal(out.len, strlen(wanted));
	assert_memory_equal(out.p, wanted, out.len);
	text_free(&out);
}

static void locations_and_cookies_stay_at_the_server(void **state)
{
	becomes("location", "/a?b", &below, "/p/a?b");
	becomes("location", "/p/a", &below, "/p/a");
	becomes("location", "http://localhost:8000/a", &below, "/p/a");
	becomes("location", "https://API", &below, "/p/");
	becomes("location", "http://localhost:8001/a", &below, "http://localhost:8001/a");
	becomes("location", "//elsewhere/", &below, "//elsewhere/");
	becomes("location", "a", &below, "a");
	becomes("location", "http://127.0.0.1:8000/a", &own, "/a");
	becomes("location", "https://x.test/a", &own, "/a");
	becomes("set-cookie", "a=b; Domain=x; path=/q; Secure", &below, "a=b; Secure; Path=/p/");
	becomes("set-cookie", "path=b; domain=x; Path=/q", &own, "path=b; Path=/q");
	becomes("set-cookie", "a=b;\tDomain\t=x.test", &own, "a=b");
	becomes("set-cookie", "a=b; \tdomain=x.test\t;\tpath\t=/", &below, "a=b; Path=/p/");
	becomes("x-other", "/a", &below, "/a");
}

static bool passes(const char *name, const char *value, const struct port_place *place)
{
	const struct port_field f = {name, value, strlen(name), strlen(value)};

	return port_answer_passes(&a, &f, place);
}

static void fields_that_pass(void **state)
{
	answers("HTTP/1.1 200 OK\r\nConnection: x-hop\r\n\r\n", false);
	assert_true(passes("content-type", "a", &below) && passes("etag", "a\tb", &below));
	assert_false(passes("connection", "close", &below) || passes("x-hop", "1", &below) ||
		     passes("date", "x", &below) || passes("content-length", "1", &own) ||
		     passes("transfer-encoding", "chunked", &own) || passes("a", "b\nc", &own));
	assert_false(passes("clear-site-data", "*", &own) ||
		     passes("clear-site-data", "*", &below) ||
		     passes("strict-transport-security", "x", &below));
}

/* Below the API's origin. A server with an origin of its own may do what it likes with that. */
static void fields_for_the_whole_origin_are_dropped(void **state)
{
	static const char *const names[] = {"accept-ch",
					    "critical-ch",
					    "use-as-dictionary",
					    "www-authenticate",
					    "service-worker-allowed",
					    "set-login",
					    "report-to"};

	answers("HTTP/1.1 401 Unauthorized\r\n\r\n", false);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_false(passes(names[i], "x", &below));
		assert_true(passes(names[i], "x", &own));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(servers_are_found_by_path),
		cmocka_unit_test(servers_are_found_by_host),
		cmocka_unit_test(other_requests_are_not_for_servers),
		cmocka_unit_test(tokens_are_taken_out_of_queries),
		cmocka_unit_test(heads_are_written),
		cmocka_unit_test(clients_cannot_imitate_the_services_fields),
		cmocka_unit_test(keys_and_tokens_reach_no_server),
		cmocka_unit_test(long_connection_headers_take_little_time),
		cmocka_unit_test(requests_that_would_be_two_are_refused),
		cmocka_unit_test(the_form_of_a_body_is_found),
		cmocka_unit_test(incomplete_and_malformed_heads),
		cmocka_unit_test(bodies_are_decoded),
		cmocka_unit_test(connections_are_kept_if_both_may),
		cmocka_unit_test(locations_and_cookies_stay_at_the_server),
		cmocka_unit_test(fields_that_pass),
		cmocka_unit_test(fields_for_the_whole_origin_are_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
