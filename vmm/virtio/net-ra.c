// SPDX-License-Identifier: Apache-2.0
/*
 * Router advertisements (RFC 4861, 4.1, 4.2 and 6.2), from which a guest derives its IPv6 address.
 */
#include <arpa/inet.h>
#include <string.h>

#include "vmm/virtio/net-internal.h"

#define ETHERTYPE_IPV6 0x86dd
#define IP_BYTES       40
#define IP_ICMP	       58
/* A lower value shows that the packet crossed a router (RFC 4861, 6.1). */
#define HOPS 255

enum { ICMP_SOLICIT = 133, ICMP_ADVERTISE = 134 };
enum { OPTION_SOURCE = 1, OPTION_PREFIX = 3, OPTION_MTU = 5 };

#define SOLICIT_BYTES	8
#define ADVERTISE_BYTES (16 + 8 + 8 + 32)
#define PREFIX_FLAGS	0xc0 /* on-link, and usable for address autoconfiguration */

static const uint8_t gateway_mac[NET_MAC_BYTES] = NET_GATEWAY_MAC;

bool net_is_solicitation(const uint8_t *frame, size_t len)
{
	const uint8_t *ip = frame + NET_ETH_BYTES;

	return len >= NET_ETH_BYTES + IP_BYTES + SOLICIT_BYTES &&
	       net_get16(frame + 12) == ETHERTYPE_IPV6 && ip[0] >> 4 == 6 && ip[6] == IP_ICMP &&
	       ip[7] == HOPS && ip[IP_BYTES] == ICMP_SOLICIT && ip[IP_BYTES + 1] == 0;
}

uint32_t net_sum(const uint8_t *data, size_t len)
{
	uint32_t sum = 0;
	size_t i;

	for (i = 0; i + 1 < len; i += 2)
		sum += net_get16(data + i);
	return i < len ? sum + ((uint32_t)data[i] << 8) : sum;
}

uint16_t net_sum_fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void put_ip(uint8_t *ip)
{
	memset(ip, 0, IP_BYTES);
	ip[0] = 0x60;
	net_put16(ip + 4, ADVERTISE_BYTES);
	ip[6] = IP_ICMP;
	ip[7] = HOPS;
	inet_pton(AF_INET6, NET_GATEWAY_LINK_LOCAL, ip + 8);
	inet_pton(AF_INET6, "ff02::1", ip + 24);
}

static void put_options(uint8_t *p)
{
	p[0] = OPTION_SOURCE;
	p[1] = 1; /* lengths are in units of 8 bytes */
	memcpy(p + 2, gateway_mac, NET_MAC_BYTES);
	p += 8;
	p[0] = OPTION_MTU;
	p[1] = 1;
	net_put16(p + 6, NET_MTU);
	p += 8;
	p[0] = OPTION_PREFIX;
	p[1] = 4;
	p[2] = NET_PREFIX_IPV6;
	p[3] = PREFIX_FLAGS;
	memset(p + 4, 0xff, 8); /* valid and preferred lifetime: infinite */
	inet_pton(AF_INET6, NET_GATEWAY_IPV6, p + 16);
	memset(p + 16 + NET_PREFIX_IPV6 / 8, 0, 16 - NET_PREFIX_IPV6 / 8);
}

size_t net_advertisement(uint16_t lifetime_s, uint8_t out[NET_ANSWER_BYTES])
{
	static const uint8_t all_nodes[NET_MAC_BYTES] = {0x33, 0x33, 0, 0, 0, 1};
	uint8_t *ip = out + NET_ETH_BYTES, *icmp = ip + IP_BYTES;

	memcpy(out, all_nodes, NET_MAC_BYTES);
	memcpy(out + NET_MAC_BYTES, gateway_mac, NET_MAC_BYTES);
	net_put16(out + 12, ETHERTYPE_IPV6);
	put_ip(ip);
	memset(icmp, 0, ADVERTISE_BYTES);
	icmp[0] = ICMP_ADVERTISE;
	icmp[4] = 64; /* hop limit of the guest's packets */
	net_put16(icmp + 6, lifetime_s);
	put_options(icmp + 16);
	net_put16(icmp + 2, net_sum_fold(net_sum(ip + 8, 32) + ADVERTISE_BYTES + IP_ICMP +
					 net_sum(icmp, ADVERTISE_BYTES)));
	return NET_ETH_BYTES + IP_BYTES + ADVERTISE_BYTES;
}
