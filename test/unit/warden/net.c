// SPDX-License-Identifier: Apache-2.0
/* What the rules are made from: the name server, the addresses of a slot, and the settings, each of
 * which must appear in the text. test/warden/net.c tests the effect of the rules with packets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "orchestrator/warden/net-rules.h"

static void name_server_is_found(void **state)
{
	static const struct {
		const char *text, *found;
		bool loopback;
	} cases[] = {
		{"nameserver 192.0.2.1\n", "192.0.2.1", false},
		{"search a b\nnameserver\t192.0.2.1", "192.0.2.1", false},
		{"nameserver 127.0.0.53\nnameserver 192.0.2.1\n", "192.0.2.1", true},
		{"nameserver fe80::1\nnameserver 192.0.2.1\n", "192.0.2.1", false},
		{"nameserver 127.0.0.53\noptions edns0\n", NULL, true},
		{"nameserver ::1\n", NULL, true},
		{"nameserver 2001:db8::1\n", NULL, false},
		{"nameserver 192.0.2.0/24\n", NULL, false},
		{"nameserver\n192.0.2.1\n", NULL, false},
		{"nameservers 192.0.2.1\n", NULL, false},
		{"#nameserver 192.0.2.1\n", NULL, false},
		{"nameserver 192.0.2.1; drop }\n", "", false},
		{"", NULL, false},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char out[INET_ADDRSTRLEN] = "";
		bool loopback, found = net_find_dns(cases[i].text, out, &loopback);

		if (found != (cases[i].found && cases[i].found[0]))
			fail_msg("case %zu: found %s", i, found ? out : "no name server");
		if (found)
			assert_string_equal(out, cases[i].found);
		assert_int_equal(loopback, cases[i].loopback);
	}
}

static void assert_range(const struct range *r, const char *text)
{
	char address[INET6_ADDRSTRLEN], printed[RANGE_TEXT_MAX];

	inet_ntop(r->family, r->first, address, sizeof(address));
	snprintf(printed, sizeof(printed), "%s/%u", address, r->prefix);
	assert_string_equal(printed, text);
}

static void slot_has_two_addresses(void **state)
{
	struct net_link link;
	struct range block;

	assert_true(range_parse(&block, "10.251.0.0/17"));
	net_link_of(&link, &block, 0);
	assert_range(&link.host, "10.251.0.0/31");
	assert_range(&link.jail, "10.251.0.1/31");
	assert_range(&link.host6, "fd52:616d:6574:ff00::/127");
	net_link_of(&link, &block, 16383); /* the last slot */
	assert_range(&link.host, "10.251.127.254/31");
	assert_range(&link.jail, "10.251.127.255/31");
	assert_range(&link.host6, "fd52:616d:6574:ff00::7ffe/127");
	assert_range(&link.jail6, "fd52:616d:6574:ff00::7fff/127");
}

static struct config config_with(const char *allow)
{
	struct config c;

	config_defaults(&c);
	snprintf(c.allow, sizeof(c.allow), "%s", allow);
	return c;
}

static void assert_has(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("no \"%s\" in:\n%s", words, text);
}

static void allowed_ranges_are_open_in_the_host_rules(void **state)
{
	const struct config c = config_with("10.1.0.0/16, fd00:7::/48");
	const struct net_plan plan = {.config = &c, .dns = "192.0.2.53"};
	scoped_free char *text = net_rules_host(&plan);

	assert_has(text, "ip daddr 10.1.0.0/16 accept");
	assert_has(text, "ip6 daddr fd00:7::/48 accept");
	assert_has(text, "ip daddr 192.0.2.53 meta l4proto { tcp, udp } th dport 53 accept");
	assert_has(text, "ip saddr 10.251.0.0/17 masquerade");
	assert_null(strstr(text, "nfproto ipv6 drop"));
	assert_true(strstr(text, "10.1.0.0/16") < strstr(text, "169.254.0.0/16"));
}

/* Azure's credential server has an address outside the closed ranges; those of other clouds are in
 * them. */
static void credential_servers_are_closed(void **state)
{
	static const char *const closed[] = {"168.63.129.16", "169.254.0.0/16", "100.64.0.0/10",
					     "192.0.0.0/24", "ip6 daddr != 2000::/3 jump refuse"};
	const struct config c = config_with("");
	/* If Azure's address is also the name server, it is open, but only for DNS. */
	const struct net_plan plan = {.config = &c, .dns = "168.63.129.16"};
	scoped_free char *text = net_rules_host(&plan);

	const char *chain = strstr(text, "chain from_vm");
	for (size_t i = 0; i < ARRAY_LEN(closed); i++)
		assert_has(chain, closed[i]);
	assert_has(chain, "ip daddr 168.63.129.16 meta l4proto { tcp, udp } th dport 53 accept");
}

static void service_cannot_open_connections(void **state)
{
	const struct config c = config_with("");
	const struct net_plan plan = {.config = &c, .dns = "", .service_uid = 64999};
	scoped_free char *text = net_rules_host(&plan);

	assert_has(text, "meta skuid 64999 tcp flags & (syn | ack) == syn reject");
	assert_has(text, "meta skuid 64999 meta l4proto != tcp reject");
	assert_null(strstr(text, "meta skuid 64999 tcp dport"));
}

static void service_of_a_fleet_connects_to_its_port_only(void **state)
{
	struct config c = config_with("");
	const struct net_plan plan = {.config = &c, .dns = "", .service_uid = 64999};

	strcpy(c.fleet_listen, "[fd00::17]:7443");
	scoped_free char *text = net_rules_host(&plan);
	const char *chain = strstr(text, "chain from_service");
	assert_has(chain,
		   "meta skuid 64999 tcp dport 7443 accept\n\t\tmeta skuid 64999 tcp flags & "
		   "(syn | ack) == syn reject");
}

static void host_without_ipv6_forwarding_drops_ipv6(void **state)
{
	const struct config c = config_with("");
	const struct net_plan plan = {.config = &c, .dns = "", .ipv6 = true, .closed6 = true};
	scoped_free char *text = net_rules_host(&plan);

	assert_has(text, "meta nfproto ipv6 drop");
	assert_null(strstr(text, "dport 53"));
}

static void limits_follow_the_settings(void **state)
{
	struct config c = config_with("");
	const struct net_plan plan = {.config = &c, .dns = "192.0.2.53"};

	c.net_bytes_s = 4000;
	c.net_packets_s = 400;
	c.net_connections_s = 40;
	c.net_connections = 4;
	scoped_free char *text = net_rules_jail(&plan);
	assert_has(text, "limit rate over 4000 bytes/second burst 1001 bytes drop");
	assert_has(text, "limit rate over 400/second burst 101 packets drop");
	assert_has(text, "chain limits {\n\t\ttype filter hook prerouting priority raw;");
	assert_has(text, "iifname \"tap0\" limit rate over 400/second");
	assert_has(text, "iifname \"up0\" limit rate over 400/second");
	assert_has(text, "limit rate over 40/second burst 40 packets drop");
	assert_has(text, "ct count over 4 reject");
	assert_has(text, "dnat ip to 192.0.2.53");
	assert_null(strstr(text, "ip6 saddr"));
}

static void zero_means_no_limit(void **state)
{
	struct config c = config_with("");
	const struct net_plan plan = {.config = &c, .dns = "", .ipv6 = true};

	c.net_bytes_s = c.net_packets_s = c.net_connections_s = c.net_connections = 0;
	scoped_free char *text = net_rules_jail(&plan);
	assert_null(strstr(text, "limit rate over"));
	assert_null(strstr(text, "ct count"));
	assert_null(strstr(text, "dnat"));
}

/* Packets from any other address would add entries to the kernel's shared neighbour table. */
static void guest_has_one_address_of_each_kind(void **state)
{
	const struct config c = config_with("");
	const struct net_plan plan = {.config = &c, .dns = "", .ipv6 = true};
	scoped_free char *text = net_rules_jail(&plan);

	assert_has(text, "ip6 saddr fd52:616d:6574::52:41ff:fe4d:4554 accept");
	assert_has(text, "ip6 saddr { ::, fe80::52:41ff:fe4d:4554 } icmpv6 type { nd-neighbor-");
	assert_null(strstr(text, "/64"));
}

static void tracked_connections_are_counted(void **state)
{
	struct config c = config_with("");
	const struct net_plan plan = {.config = &c, .dns = ""};

	c.net_connections = 4;
	scoped_free char *text = net_rules_host(&plan);
	assert_has(text, "add @connections { iifname ct count over 4 } jump refuse");
	assert_has(text, "meta l4proto tcp ct timeout set \"vm_tcp\"");
	assert_has(text, "time_wait : 15");
	c.net_connections = 0;
	scoped_free char *unlimited = net_rules_host(&plan);
	assert_null(strstr(unlimited, "ct count"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(name_server_is_found),
		cmocka_unit_test(slot_has_two_addresses),
		cmocka_unit_test(allowed_ranges_are_open_in_the_host_rules),
		cmocka_unit_test(credential_servers_are_closed),
		cmocka_unit_test(service_cannot_open_connections),
		cmocka_unit_test(service_of_a_fleet_connects_to_its_port_only),
		cmocka_unit_test(host_without_ipv6_forwarding_drops_ipv6),
		cmocka_unit_test(limits_follow_the_settings),
		cmocka_unit_test(zero_means_no_limit),
		cmocka_unit_test(guest_has_one_address_of_each_kind),
		cmocka_unit_test(tracked_connections_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
