// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/net-rules.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/text-file.h"
#include "proto/net.h"
#include "proto/warden.h"

/*
 * Destinations closed to VMs unless `allow` opens them: the ranges of the special-purpose
 * registries (RFC 6890), except for the documentation ranges, which lead nowhere. Of IPv6 only
 * global unicast addresses are open (RFC 4291), except those that embed or represent other
 * addresses. The closed ranges include the addresses at which clouds give a machine its credentials
 * (169.254.169.254, 100.100.100.200, 192.0.0.192, fd00:ec2::254, fd20:ce::254); Azure's is a public
 * address and listed separately (168.63.129.16).
 */
#define PRIVATE4                                                                                   \
	"0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, "       \
	"192.0.0.0/24, 192.88.99.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3, "               \
	"168.63.129.16"
#define PUBLIC6	 "2000::/3"
#define PRIVATE6 "2001::/23, 2001:db8::/32, 2002::/16, 3fff::/20"

/* Drops frames at the tap whose source is not the guest's own address. The guest has one address of
 * each kind, because all namespaces share one small neighbour table. */
static const char from_guest[] =
	"table netdev ramet {\n"
	"	chain tap {\n"
	"		type filter hook ingress device \"" NET_TAP "\" priority 0; policy drop;\n"
	"		ether saddr != %s counter drop\n"
	"		ether type arp arp saddr ether %s arp saddr ip " NET_GUEST_IPV4 " accept\n"
	"		ether type ip ip saddr " NET_GUEST_IPV4 " accept\n";
static const char from_guest_ipv6[] =
	"		ether type ip6 ip6 saddr " NET_GUEST_IPV6 " accept\n"
	"		ether type ip6 ip6 saddr { ::, " NET_GUEST_LINK_LOCAL " } icmpv6 type "
	"{ nd-neighbor-solicit, nd-neighbor-advert } accept\n";

/* Each echo creates a conntrack entry, in memory that is charged to no VM. */
#define ECHOES "limit rate 100/second burst 100 packets"

static const char jail_filter[] =
	"	chain hide {\n"
	"		type nat hook postrouting priority srcnat;\n"
	"		oifname \"" NET_UPLINK "\" masquerade\n"
	"	}\n"
	"	chain input {\n"
	"		type filter hook input priority filter; policy drop;\n"
	"		icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n"
	"		iifname \"" NET_TAP "\" icmp type echo-request " ECHOES " accept\n"
	"		iifname \"" NET_TAP "\" icmpv6 type echo-request " ECHOES " accept\n"
	"		iifname \"" NET_TAP "\" meta l4proto tcp reject with tcp reset\n"
	"		iifname \"" NET_TAP "\" meta l4proto udp reject\n"
	"	}\n"
	"	chain output {\n" /* a compromised VM process has its tap, but no sockets */
	"		type filter hook output priority filter; policy accept;\n"
	"		meta skuid != 0 drop\n"
	/* Drops what the jail's kernel would send itself, so that it neither uses the link nor
	 * wakes the guest. */
	"		icmpv6 type { mld-listener-report, mld2-listener-report } drop\n"
	"	}\n"
	"	chain forward {\n"
	"		type filter hook forward priority filter; policy drop;\n"
	"		iifname \"" NET_TAP "\" oifname \"" NET_UPLINK "\" jump out\n"
	"		iifname \"" NET_UPLINK "\" oifname \"" NET_TAP "\" jump in\n"
	"	}\n";

/* Counts fragments before connection tracking reassembles them (priority -400). A namespace that
 * has seen one is not used again (net-jail.c). */
static const char fragments[] =
	"	counter " NET_FRAGMENTS " { }\n"
	"	chain fragments {\n"
	"		type filter hook prerouting priority -450;\n"
	"		ip frag-off & 0x3fff != 0 counter name " NET_FRAGMENTS "\n"
	"		exthdr frag exists counter name " NET_FRAGMENTS "\n"
	"	}\n";

/* Rejects other protocols. Conntrack keeps their connections for days, and the host would not
 * notice when they end in a jail. */
static const char protocols[] = "		meta l4proto != { tcp, udp, icmp, icmpv6 } reject "
				"with icmpx admin-prohibited\n";

/* Ends connections that began outside of this jail, such as those of a fork's parent. */
static const char known_only[] =
	"		ct state invalid meta l4proto tcp reject with tcp reset\n"
	"		ct state invalid drop\n"
	"		ct state established,related accept\n"
	"		tcp flags & (fin | syn | rst | ack) != syn reject with tcp reset\n";

/* --- addresses ------------------------------------------------------------------------------- */

static void set_ipv6(struct range *out, uint32_t low)
{
	uint32_t net = htonl(low);

	*out = (struct range){.family = AF_INET6, .prefix = 127};
	inet_pton(AF_INET6, NET_LINK_IPV6, out->first);
	memcpy(out->first + 12, &net, sizeof(net));
}

static void set_ipv4(struct range *out, const struct range *block, uint32_t low)
{
	uint32_t net;

	*out = (struct range){.family = AF_INET, .prefix = 31};
	memcpy(&net, block->first, sizeof(net));
	net = htonl(ntohl(net) + low);
	memcpy(out->first, &net, sizeof(net));
}

void net_link_of(struct net_link *out, const struct range *block, uint32_t slot)
{
	set_ipv4(&out->host, block, 2 * slot);
	set_ipv4(&out->jail, block, 2 * slot + 1);
	set_ipv6(&out->host6, 2 * slot);
	set_ipv6(&out->jail6, 2 * slot + 1);
}

/* --- rules of a jail ------------------------------------------------------------------------- */

static void print_mac(char out[static 18], const unsigned char *m)
{
	snprintf(out, 18, "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
}

/* Bursts of up to a quarter of a second are allowed. */
static void print_limits_of(FILE *f, const struct config *c, const char *link)
{
	if (c->net_packets_s)
		fprintf(f, "\t\tiifname \"%s\" limit rate over %u/second burst %u packets drop\n",
			link, c->net_packets_s, c->net_packets_s / 4 + 1);
	if (c->net_bytes_s)
		fprintf(f,
			"\t\tiifname \"%s\" limit rate over %u bytes/second burst %u bytes drop\n",
			link, c->net_bytes_s, c->net_bytes_s / 4 + 1);
}

/* Limits apply before connection tracking, which would otherwise record the end of a connection
 * from a packet that is then dropped. */
static void print_limits(FILE *f, const struct config *c)
{
	fputs("\tchain limits {\n"
	      "\t\ttype filter hook prerouting priority raw; policy accept;\n",
	      f);
	print_limits_of(f, c, NET_TAP);
	print_limits_of(f, c, NET_UPLINK);
	fputs("\t}\n", f);
}

static void print_new(FILE *f, const struct config *c)
{
	if (c->net_connections_s)
		fprintf(f, "\t\tlimit rate over %u/second burst %u packets drop\n",
			c->net_connections_s, c->net_connections_s);
	if (c->net_connections)
		fprintf(f, "\t\tct count over %u reject with icmpx admin-prohibited\n",
			c->net_connections);
}

static void print_jail(FILE *f, const void *arg)
{
	const struct net_plan *plan = arg;
	static const unsigned char guest[] = NET_GUEST_MAC;
	char mac[18];

	print_mac(mac, guest);
	fprintf(f, from_guest, mac, mac);
	if (plan->ipv6)
		fputs(from_guest_ipv6, f);
	fputs("\t\tcounter drop\n\t}\n}\ntable inet " NET_TABLE " {\n", f);
	fputs(fragments, f);
	if (plan->dns[0])
		fprintf(f,
			"	chain dns {\n"
			"		type nat hook prerouting priority dstnat;\n"
			"		iifname \"" NET_TAP "\" ip daddr " NET_GATEWAY_IPV4
			" meta l4proto { tcp, udp } th dport 53 dnat ip to %s\n"
			"	}\n",
			plan->dns);
	print_limits(f, plan->config);
	fputs("	chain out {\n", f);
	fputs(protocols, f);
	fputs(known_only, f);
	print_new(f, plan->config);
	fputs("\t\taccept\n\t}\n\tchain in {\n\t\tct state established,related accept\n\t}\n", f);
	fputs(jail_filter, f);
	fputs("}\n", f);
}

/* --- rules of the host ----------------------------------------------------------------------- */

/* Prints all destinations that `allow` opens, with `keyword` (ip or ip6). */
static void print_allowed(FILE *f, const struct config *c, const char *keyword, int family)
{
	const char *list = c->allow;
	char part[RANGE_TEXT_MAX];
	struct range r;

	while (range_next(&list, part))
		if (range_parse(&r, part) && r.family == family)
			fprintf(f, "\t\t%s daddr %s accept\n", keyword, part);
}

/*
 * Counts each VM's connections on the host, too: a guest can end a connection for its jail alone,
 * with a last packet that does not get beyond the jail. No count includes closed connections; they
 * get a short timeout, so that they don't fill the host's table.
 */
static void print_counted(FILE *f, const struct config *c)
{
	fputs("\t\tct state new meta l4proto tcp ct timeout set \"vm_tcp\"\n", f);
	if (c->net_connections)
		fprintf(f,
			"\t\tct state new add @connections { iifname ct count over %u } "
			"jump refuse\n",
			c->net_connections);
}

/* Prints the rules that come before any refusal: for packets to the host itself, and for those that
 * it forwards. */
static void print_open(FILE *f, const struct net_plan *plan)
{
	print_counted(f, plan->config);
	if (plan->dns[0])
		fprintf(f, "\t\tip daddr %s meta l4proto { tcp, udp } th dport 53 accept\n",
			plan->dns);
	print_allowed(f, plan->config, "ip", AF_INET);
	print_allowed(f, plan->config, "ip6", AF_INET6);
}

/*
 * Keeps the existing table and replaces only its rules, so that the set of closed slots survives a
 * restart. The whole text takes effect atomically.
 */
static const char host_begin[] =
	"table inet ramet {\n"
	"	set " NET_NO_EGRESS " {\n"
	"		type ifname\n"
	"	}\n"
	"	set connections {\n"
	"		type ifname; size %u; flags dynamic;\n"
	"	}\n"
	"	set refusals {\n"
	"		type ifname; size %u; flags dynamic;\n"
	"	}\n"
	"	ct timeout vm_tcp {\n"
	"		protocol tcp; policy = { established : 86400, time_wait : 15 }\n"
	"	}\n"
	"}\n"
	"flush table inet ramet\n"
	"table inet ramet {\n"
	"	chain refuse {\n"
	"		add @refusals { iifname limit rate 100/second } "
	"reject with icmpx admin-prohibited\n"
	"		drop\n"
	"	}\n"
	"	chain first {\n"
	"		type filter hook prerouting priority raw; policy accept;\n"
	"		iifname @" NET_NO_EGRESS " counter drop\n"
	"		iifname \"" NET_HOST "*\" ip saddr != %s drop\n"
	"		iifname \"" NET_HOST "*\" ip6 saddr != { " NET_LINK_IPV6
	"/112, fe80::/10 } drop\n"
	"	}\n"
	"	chain to_host {\n"
	"		icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n";
static const char host_forward[] =
	"		jump refuse\n"
	"	}\n"
	"	chain input {\n"
	"		type filter hook input priority filter; policy accept;\n"
	"		iifname \"" NET_HOST "*\" jump to_host\n"
	"	}\n"
	"	chain from_vm {\n"
	"		oifname \"" NET_HOST "*\" jump refuse\n"
	"		tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu\n";
static const char host_end[] =
	"		ip daddr { " PRIVATE4 " } jump refuse\n"
	"		ip6 daddr != " PUBLIC6 " jump refuse\n"
	"		ip6 daddr { " PRIVATE6 " } jump refuse\n"
	"	}\n"
	"	chain forward {\n"
	"		type filter hook forward priority filter; policy accept;\n"
	"		iifname \"" NET_HOST "*\" goto from_vm\n"
	"		oifname \"" NET_HOST "*\" ct state established,related accept\n"
	"		oifname \"" NET_HOST "*\" counter drop\n"
	"%s"
	"	}\n"
	"	chain from_service {\n" /* the service answers clients, and connects only to peers
					 */
	"		type filter hook output priority filter; policy accept;\n"
	"%s"
	"		meta skuid %u tcp flags & (syn | ack) == syn reject with tcp reset\n"
	"		meta skuid %u meta l4proto != tcp reject with icmpx admin-prohibited\n"
	"	}\n"
	"	chain hide {\n"
	"		type nat hook postrouting priority srcnat; policy accept;\n"
	"		oifname != \"" NET_HOST "*\" ip saddr %s masquerade\n"
	"		oifname != \"" NET_HOST "*\" ip6 saddr " NET_LINK_IPV6 "/112 masquerade\n"
	"	}\n"
	"}\n";

static void print_host(FILE *f, const void *arg)
{
	const struct net_plan *plan = arg;
	const char *block = plan->config->network;
	const char *peer_port = strrchr(plan->config->fleet_listen, ':');
	char peers[80] = "";

	if (peer_port)
		snprintf(peers, sizeof(peers), "\t\tmeta skuid %u tcp dport %s accept\n",
			 plan->service_uid, peer_port + 1);
	fprintf(f, host_begin, WARDEN_SLOTS_MAX, WARDEN_SLOTS_MAX, block);
	print_open(f, plan);
	fputs(host_forward, f);
	print_open(f, plan);
	fprintf(f, host_end, plan->closed6 ? "\t\tmeta nfproto ipv6 drop\n" : "", peers,
		plan->service_uid, plan->service_uid, block);
}

char *net_rules_jail(const struct net_plan *plan)
{
	return text_print(print_jail, plan);
}

char *net_rules_host(const struct net_plan *plan)
{
	return text_print(print_host, plan);
}

/* --- the name server ------------------------------------------------------------------------- */

bool net_find_dns(const char *text, char out[static INET_ADDRSTRLEN], bool *loopback)
{
	*loopback = false;
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		char name[64];
		struct range r;

		if (sscanf(line, "nameserver%*1[ \t]%63s", name) != 1)
			continue;
		if (strcmp(name, "::1") == 0)
			*loopback = true;
		if (!range_parse(&r, name) || r.family != AF_INET || strchr(name, '/'))
			continue;
		if (r.first[0] != 127) {
			inet_ntop(AF_INET, r.first, out, INET_ADDRSTRLEN);
			return true;
		}
		*loopback = true;
	}
	return false;
}
