// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/address.h"
#include "base/fd.h"

static void ranges_are_parsed(void **state)
{
	static const struct {
		const char *text, *printed;
	} good[] = {
		{"10.0.0.0/8", "10.0.0.0/8"},	    {"192.0.2.7", "192.0.2.7/32"},
		{"0.0.0.0/0", "0.0.0.0/0"},	    {"2001:db8::/32", "2001:db8::/32"},
		{"fd00::1", "fd00::1/128"},	    {"::/0", "::/0"},
		{"10.251.0.0/17", "10.251.0.0/17"},
	};

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		char address[INET6_ADDRSTRLEN], printed[RANGE_TEXT_MAX];
		struct range r;

		assert_true(range_parse(&r, good[i].text));
		inet_ntop(r.family, r.first, address, sizeof(address));
		snprintf(printed, sizeof(printed), "%s/%u", address, r.prefix);
		assert_string_equal(printed, good[i].printed);
	}
}

static void invalid_ranges_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"/",
		"10.0.0.0/",
		"10.0.0.0/33",
		"10.0.0.1/8",
		"10.0.0.0/8/8",
		"10.0.0/8",
		"10.0.0.0/-1",
		"10.0.0.0/+8",
		"10.0.0.0/0008",
		"fd00::/129",
		"fd00::1/8",
		"fd00::/8 ",
		" 10.0.0.0/8",
		"example.org",
		"fd00::/9999999999999",
		"1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111/64"};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct range r;

		if (range_parse(&r, bad[i]))
			fail_msg("\"%s\" was accepted", bad[i]);
	}
}

static void list_is_split_at_commas(void **state)
{
	const char *list = " 10.0.0.0/8 ,, fd00::/8,192.0.2.1 ";
	char part[RANGE_TEXT_MAX];

	assert_true(range_next(&list, part));
	assert_string_equal(part, "10.0.0.0/8");
	assert_true(range_next(&list, part));
	assert_string_equal(part, "fd00::/8");
	assert_true(range_next(&list, part));
	assert_string_equal(part, "192.0.2.1");
	assert_false(range_next(&list, part));
}

static void overlong_part_is_refused(void **state)
{
	char text[200], part[RANGE_TEXT_MAX];
	const char *list = text;
	struct range r;

	memset(text, '1', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_true(range_next(&list, part));
	assert_false(range_parse(&r, part));
	assert_false(range_next(&list, part));
}

static void addresses_with_ports_are_parsed(void **state)
{
	static const char *const good[] = {"10.0.0.17:7443", "[fd00::17]:1", "[::1]:65535"};
	static const char *const bad[] = {
		"",
		":",
		"10.0.0.17",
		"10.0.0.17:",
		"10.0.0.17:0",
		"10.0.0.17:65536",
		"::1:7443",
		"[::1]",
		"[::1]7443",
		"[10.0.0.17]:7443",
		"[:1",
		"[]:7443",
		"host:7443",
		" 10.0.0.17:7443",
		"10.0.0.17:7443 ",
		"[1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc:dddd]:7443",
	};

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		char address[INET6_ADDRSTRLEN], printed[ADDRESS_PORT_MAX];
		struct sockaddr_storage at;
		socklen_t len = address_port_parse(&at, good[i]);
		const struct sockaddr_in6 *v6 = (void *)&at;
		const struct sockaddr_in *v4 = (void *)&at;
		bool brackets = good[i][0] == '[';

		assert_int_equal(len, brackets ? sizeof(*v6) : sizeof(*v4));
		inet_ntop(at.ss_family, brackets ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr,
			  address, sizeof(address));
		snprintf(printed, sizeof(printed), brackets ? "[%s]:%u" : "%s:%u", address,
			 ntohs(v4->sin_port));
		assert_string_equal(printed, good[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct sockaddr_storage at;

		assert_int_equal(address_port_parse(&at, bad[i]), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_are_parsed),
		cmocka_unit_test(invalid_ranges_are_refused),
		cmocka_unit_test(list_is_split_at_commas),
		cmocka_unit_test(overlong_part_is_refused),
		cmocka_unit_test(addresses_with_ports_are_parsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
