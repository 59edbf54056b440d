// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "orchestrator/http/client.h"

static struct client client(const char *text)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
		return client_of((struct sockaddr *)&in);
	assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
	return client_of((struct sockaddr *)&in6);
}

static void assert_is(const struct client *c, const char *text)
{
	char printed[INET6_ADDRSTRLEN];

	client_print(printed, c);
	assert_string_equal(printed, text);
}

static void mapped_ipv4_address_equals_ipv4(void **state)
{
	struct client plain = client("192.0.2.7"), mapped = client("::ffff:192.0.2.7");

	assert_memory_equal(&plain, &mapped, sizeof(plain));
	assert_is(&mapped, "192.0.2.7");
	assert_is(&(struct client){client("2001:db8::1").ip}, "2001:db8::1");
}

static void unix_socket_has_no_address(void **state)
{
	struct client c = client_of(&(struct sockaddr){.sa_family = AF_UNIX});

	assert_is(&c, "::");
}

static uint64_t source(const char *text)
{
	struct client c = client(text);

	return client_source(&c);
}

static void source_is_ipv4_address_or_64(void **state)
{
	assert_int_equal(source("192.0.2.7"), source("::ffff:192.0.2.7"));
	assert_int_not_equal(source("192.0.2.7"), source("192.0.2.8"));
	assert_int_not_equal(source("192.0.2.7"), source("193.0.2.7"));
	assert_int_equal(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff::9"));
	assert_int_not_equal(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
}

static bool is_in(const char *text, const char *ranges_are_matched)
{
	struct client c = client(text);

	return client_is_in(&c, ranges_are_matched);
}

static void ranges_are_matched(void **state)
{
	assert_true(is_in("10.1.2.3", "192.0.2.0/24, 10.1.0.0/16"));
	assert_true(is_in("10.1.2.3", "0.0.0.0/0"));
	assert_true(is_in("10.1.2.3", "10.1.2.3"));
	assert_false(is_in("10.1.2.3", "10.1.2.2"));
	assert_false(is_in("10.1.2.3", "10.1.2.0/31"));
	assert_false(is_in("10.1.2.3", "::/0"));
	assert_false(is_in("10.1.2.3", ""));
	assert_true(is_in("fd00::1", "fd00::/8"));
	assert_false(is_in("fe00::1", "fd00::/8"));
	assert_false(is_in("fd00::1", "0.0.0.0/0"));
}

static void loopback_is_recognized(void **state)
{
	static const char *const yes[] = {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"};
	static const char *const no[] = {"128.0.0.1", "::", "::2", "0.0.0.0"};

	for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
		struct client c = client(yes[i]);

		assert_true(client_is_loopback(&c));
	}
	for (size_t i = 0; i < ARRAY_LEN(no); i++) {
		struct client c = client(no[i]);

		assert_false(client_is_loopback(&c));
	}
}

/* Reads memory of exactly this size, so that a sanitizer detects a read past the end. */
static struct client forwarded(const char *peer, const char *value, bool *read)
{
	struct client c = client(peer);
	size_t len = strlen(value);
	scoped_free char *copy = malloc(len ? len : 1);

	memcpy(copy, value, len);
	*read = client_forwarded(&c, copy, len, "10.0.0.0/8,fd00::/8");
	return c;
}

static void last_address_that_is_no_proxy_is_the_client(void **state)
{
	static const struct {
		const char *value, *client;
		bool is_read;
	} cases[] = {
		{"192.0.2.7", "192.0.2.7", true},
		{"2001:db8::1", "2001:db8::1", true},
		{"198.51.100.1, 192.0.2.7", "192.0.2.7", true},
		{"127.0.0.1,192.0.2.7 ,\t10.2.2.2", "192.0.2.7", true},
		{"192.0.2.7,fd00::1, 10.2.2.2", "192.0.2.7", true},
		{"10.3.3.3, 10.2.2.2", "10.3.3.3", true},
		{"", "10.1.1.1", false},
		{",", "10.1.1.1", false},
		{"unknown", "10.1.1.1", false},
		{"192.0.2.7:4711", "10.1.1.1", false},
		{"[2001:db8::1]", "10.1.1.1", false},
		{"192.0.2.7, nobody, 10.2.2.2", "10.2.2.2", false},
		{"192.0.2.7,", "10.1.1.1", false},
		{"1111111111111111111111111111111111111111111111111111111111", "10.1.1.1", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		bool read;
		struct client c = forwarded("10.1.1.1", cases[i].value, &read);

		assert_is(&c, cases[i].client);
		assert_int_equal(read, cases[i].is_read);
	}
}

static void header_of_untrusted_peer_is_ignored(void **state)
{
	bool read;
	struct client c = forwarded("203.0.113.1", "192.0.2.7", &read);

	assert_is(&c, "203.0.113.1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mapped_ipv4_address_equals_ipv4),
		cmocka_unit_test(unix_socket_has_no_address),
		cmocka_unit_test(source_is_ipv4_address_or_64),
		cmocka_unit_test(ranges_are_matched),
		cmocka_unit_test(loopback_is_recognized),
		cmocka_unit_test(last_address_that_is_no_proxy_is_the_client),
		cmocka_unit_test(header_of_untrusted_peer_is_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
