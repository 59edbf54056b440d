// SPDX-License-Identifier: Apache-2.0
/*
 * A DHCP server for a network with a single client (RFC 2131, RFC 2132). It offers one address,
 * with an infinite lease, and keeps no state.
 */
#include <arpa/inet.h>
#include <string.h>

#include "vmm/virtio/net-internal.h"

#define ETHERTYPE_IPV4 0x0800
#define IP_BYTES       20
#define IP_UDP	       17
#define IP_OFFSET_MASK 0x1fff
#define UDP_BYTES      8
#define SERVER_PORT    67
#define CLIENT_PORT    68

/* Offsets of the fields of a message. */
enum bootp {
	BOOTP_OP = 0,
	BOOTP_HTYPE = 1,
	BOOTP_HLEN = 2,
	BOOTP_XID = 4,
	BOOTP_FLAGS = 10,
	BOOTP_CIADDR = 12,
	BOOTP_YIADDR = 16,
	BOOTP_CHADDR = 28,
	BOOTP_COOKIE = 236,
	BOOTP_OPTIONS = 240,
	BOOTP_MIN = 300, /* minimum message size for old clients (RFC 1542, 2.1) */
};

#define OP_REQUEST     1
#define OP_REPLY       2
#define HTYPE_ETHERNET 1
#define FLAG_BROADCAST 0x8000

static const uint8_t cookie[4] = {0x63, 0x82, 0x53, 0x63};
static const uint8_t guest_mac[NET_MAC_BYTES] = NET_GUEST_MAC;
static const uint8_t gateway_mac[NET_MAC_BYTES] = NET_GATEWAY_MAC;

enum message { DISCOVER = 1, OFFER = 2, REQUEST = 3, ACK = 5, NAK = 6, INFORM = 8 };

enum option {
	OPTION_PAD = 0,
	OPTION_MASK = 1,
	OPTION_ROUTER = 3,
	OPTION_DNS = 6,
	OPTION_MTU = 26,
	OPTION_BROADCAST = 28,
	OPTION_ADDRESS = 50,
	OPTION_LEASE = 51,
	OPTION_MESSAGE = 53,
	OPTION_SERVER = 54,
	OPTION_CLIENT_ID = 61,
	OPTION_END = 255,
};

#define CLIENT_ID_MAX 64

struct dhcp_request {
	const uint8_t *bootp;
	uint8_t message;
	const uint8_t *address; /* option 50; NULL: absent */
	const uint8_t *server;	/* option 54; NULL: absent */
	const uint8_t *client_id;
	uint8_t client_id_len;
};

static uint32_t address(const char *text)
{
	struct in_addr a;

	inet_pton(AF_INET, text, &a);
	return a.s_addr; /* in network byte order, like all addresses below */
}

static uint32_t get_address(const uint8_t *p)
{
	uint32_t a;

	memcpy(&a, p, sizeof(a));
	return a;
}

/* --- Requests --- */

/* Returns the offset of the UDP header in an IPv4 frame, or 0 when there is none. */
static size_t find_udp(const uint8_t *frame, size_t len)
{
	const uint8_t *ip = frame + NET_ETH_BYTES;
	size_t ip_bytes;

	if (len < NET_ETH_BYTES + IP_BYTES || net_get16(frame + 12) != ETHERTYPE_IPV4)
		return 0;
	ip_bytes = 4u * (ip[0] & 15);
	if (ip[0] >> 4 != 4 || ip_bytes < IP_BYTES || ip[9] != IP_UDP ||
	    net_get16(ip + 6) & IP_OFFSET_MASK)
		return 0;
	return len < NET_ETH_BYTES + ip_bytes + UDP_BYTES ? 0 : NET_ETH_BYTES + ip_bytes;
}

bool net_is_dhcp(const uint8_t *frame, size_t len)
{
	size_t udp = find_udp(frame, len);

	return udp && net_get16(frame + udp + 2) == SERVER_PORT;
}

/* Stores an option that is used. Returns false when its length is wrong. */
static bool take_option(struct dhcp_request *r, uint8_t option, const uint8_t *value, uint8_t len)
{
	switch (option) {
	case OPTION_MESSAGE:
		r->message = value[0];
		return len == 1;
	case OPTION_ADDRESS:
		r->address = value;
		return len == 4;
	case OPTION_SERVER:
		r->server = value;
		return len == 4;
	case OPTION_CLIENT_ID:
		r->client_id = value;
		r->client_id_len = len;
		return len >= 2 && len <= CLIENT_ID_MAX;
	default:
		return true;
	}
}

static bool read_options(struct dhcp_request *r, const uint8_t *p, size_t len)
{
	size_t at = 0;

	while (at < len && p[at] != OPTION_END) {
		if (p[at] == OPTION_PAD) {
			at++;
			continue;
		}
		if (len - at < 2 || p[at + 1] > len - at - 2)
			return false;
		if (p[at + 1] && !take_option(r, p[at], p + at + 2, p[at + 1]))
			return false;
		at += 2u + p[at + 1];
	}
	return true;
}

static bool read_request(struct dhcp_request *r, const uint8_t *frame, size_t len)
{
	size_t udp = find_udp(frame, len), udp_bytes;
	const uint8_t *b;

	if (!udp)
		return false;
	udp_bytes = net_get16(frame + udp + 4);
	if (udp_bytes < UDP_BYTES + BOOTP_OPTIONS || udp_bytes > len - udp)
		return false;
	b = frame + udp + UDP_BYTES;
	*r = (struct dhcp_request){.bootp = b};
	if (b[BOOTP_OP] != OP_REQUEST || b[BOOTP_HTYPE] != HTYPE_ETHERNET ||
	    b[BOOTP_HLEN] != NET_MAC_BYTES || memcmp(b + BOOTP_CHADDR, guest_mac, NET_MAC_BYTES) ||
	    memcmp(b + BOOTP_COOKIE, cookie, sizeof(cookie)))
		return false;
	return read_options(r, b + BOOTP_OPTIONS, udp_bytes - UDP_BYTES - BOOTP_OPTIONS);
}

/* --- Answers --- */

/*
 * Returns the type of the answer, or 0 for none. A client names the address that it wants or
 * already has (RFC 2131, 4.3.2).
 */
static uint8_t answer_to(const struct dhcp_request *r)
{
	uint32_t guest = address(NET_GUEST_IPV4), gateway = address(NET_GATEWAY_IPV4);
	const uint8_t *wanted = r->address ? r->address : r->bootp + BOOTP_CIADDR;

	switch (r->message) {
	case DISCOVER:
		return OFFER;
	case REQUEST:
		if (r->server && get_address(r->server) != gateway)
			return 0; /* the offer of another server */
		return get_address(wanted) == guest ? ACK : NAK;
	case INFORM:
		return ACK;
	default:
		return 0;
	}
}

static uint8_t *put_option(uint8_t *p, enum option option, const void *value, uint8_t len)
{
	p[0] = option;
	p[1] = len;
	memcpy(p + 2, value, len);
	return p + 2 + len;
}

static uint8_t *put_address(uint8_t *p, enum option option, uint32_t a)
{
	return put_option(p, option, &a, sizeof(a));
}

static uint8_t *put_network(uint8_t *p)
{
	const uint32_t gateway = address(NET_GATEWAY_IPV4);
	const uint32_t mask = htonl(~0u << (32 - NET_PREFIX_IPV4));
	uint8_t mtu[2];

	net_put16(mtu, NET_MTU);
	p = put_address(p, OPTION_MASK, mask);
	p = put_address(p, OPTION_ROUTER, gateway);
	p = put_address(p, OPTION_DNS, gateway);
	p = put_option(p, OPTION_MTU, mtu, sizeof(mtu));
	return put_address(p, OPTION_BROADCAST, gateway | ~mask);
}

static size_t put_options(uint8_t *start, const struct dhcp_request *r, uint8_t message)
{
	uint8_t *p = put_option(start, OPTION_MESSAGE, &message, 1);

	p = put_address(p, OPTION_SERVER, address(NET_GATEWAY_IPV4));
	if (message != NAK && r->message != INFORM)
		p = put_address(p, OPTION_LEASE, UINT32_MAX); /* infinite (3.3) */
	if (message != NAK)
		p = put_network(p);
	if (r->client_id) /* RFC 6842 */
		p = put_option(p, OPTION_CLIENT_ID, r->client_id, r->client_id_len);
	*p++ = OPTION_END;
	return (size_t)(p - start);
}

/* Writes the message. Returns its length. */
static size_t put_bootp(uint8_t *b, const struct dhcp_request *r, uint8_t message)
{
	const uint32_t guest = address(NET_GUEST_IPV4);
	size_t len;

	memset(b, 0, BOOTP_OPTIONS);
	b[BOOTP_OP] = OP_REPLY;
	b[BOOTP_HTYPE] = HTYPE_ETHERNET;
	b[BOOTP_HLEN] = NET_MAC_BYTES;
	memcpy(b + BOOTP_XID, r->bootp + BOOTP_XID, 4);
	memcpy(b + BOOTP_FLAGS, r->bootp + BOOTP_FLAGS, 2);
	if (message == ACK)
		memcpy(b + BOOTP_CIADDR, r->bootp + BOOTP_CIADDR, 4);
	if (message != NAK && r->message != INFORM)
		memcpy(b + BOOTP_YIADDR, &guest, sizeof(guest));
	memcpy(b + BOOTP_CHADDR, guest_mac, NET_MAC_BYTES);
	memcpy(b + BOOTP_COOKIE, cookie, sizeof(cookie));
	len = BOOTP_OPTIONS + put_options(b + BOOTP_OPTIONS, r, message);
	if (len < BOOTP_MIN)
		memset(b + len, OPTION_PAD, BOOTP_MIN - len);
	return len < BOOTP_MIN ? BOOTP_MIN : len;
}

/*
 * Returns the destination address. A client without an address says whether it can receive at the
 * one it will have (4.1).
 */
static uint32_t destination(const struct dhcp_request *r, uint8_t message)
{
	uint32_t has = get_address(r->bootp + BOOTP_CIADDR);

	if (message == NAK)
		return UINT32_MAX;
	if (has)
		return has;
	return net_get16(r->bootp + BOOTP_FLAGS) & FLAG_BROADCAST ? UINT32_MAX
								  : address(NET_GUEST_IPV4);
}

static void put_udp(uint8_t *ip, size_t payload)
{
	uint16_t bytes = (uint16_t)(UDP_BYTES + payload), sum;
	uint8_t *udp = ip + IP_BYTES;

	net_put16(udp, SERVER_PORT);
	net_put16(udp + 2, CLIENT_PORT);
	net_put16(udp + 4, bytes);
	net_put16(udp + 6, 0);
	sum = net_sum_fold(net_sum(ip + 12, 8) + IP_UDP + bytes + net_sum(udp, bytes));
	net_put16(udp + 6, sum ? sum : 0xffff);
}

static void put_ip(uint8_t *ip, uint32_t to, size_t payload)
{
	const uint32_t from = address(NET_GATEWAY_IPV4);

	memset(ip, 0, IP_BYTES);
	ip[0] = 0x45;
	net_put16(ip + 2, (uint16_t)(IP_BYTES + payload));
	ip[8] = 64; /* TTL */
	ip[9] = IP_UDP;
	memcpy(ip + 12, &from, sizeof(from));
	memcpy(ip + 16, &to, sizeof(to));
	net_put16(ip + 10, net_sum_fold(net_sum(ip, IP_BYTES)));
}

size_t net_dhcp_answer(const uint8_t *frame, size_t len, uint8_t out[NET_ANSWER_BYTES])
{
	uint8_t *ip = out + NET_ETH_BYTES, message;
	struct dhcp_request r;
	uint32_t to;
	size_t bytes;

	if (!read_request(&r, frame, len))
		return 0;
	message = answer_to(&r);
	if (!message)
		return 0;
	to = destination(&r, message);
	memcpy(out, guest_mac, NET_MAC_BYTES);
	if (to == UINT32_MAX)
		memset(out, 0xff, NET_MAC_BYTES);
	memcpy(out + NET_MAC_BYTES, gateway_mac, NET_MAC_BYTES);
	net_put16(out + 12, ETHERTYPE_IPV4);
	bytes = put_bootp(ip + IP_BYTES + UDP_BYTES, &r, message);
	put_ip(ip, to, UDP_BYTES + bytes);
	put_udp(ip, bytes);
	return NET_ETH_BYTES + IP_BYTES + UDP_BYTES + bytes;
}
