// SPDX-License-Identifier: Apache-2.0
#include "guest/system/system.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/array.h"
#include "base/fd.h"

/* All states except LISTEN and TIME_WAIT. */
#define STATES (0xffeu & ~(1u << TCP_LISTEN) & ~(1u << TCP_TIME_WAIT))

struct sockets {
	struct inet_diag_req_v2 *each;
	size_t count, room;
};

static int send_request(int fd, const void *request, size_t len)
{
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	ssize_t n = sendto(fd, request, len, 0, (const struct sockaddr *)&kernel, sizeof(kernel));

	return n < 0 ? -errno : 0;
}

/* --- routes --------------------------------------------------------------------------------- */

struct route_request {
	struct nlmsghdr header;
	struct rtmsg route;
	struct rtattr attr;
	uint8_t address[16];
};

/* Returns the interface of the answer: 0 when there is no route, -1 for the guest's own address. */
static int read_route(const struct nlmsghdr *h)
{
	const struct rtmsg *route = NLMSG_DATA(h);
	int left = (int)RTM_PAYLOAD(h), link = 0;

	if (h->nlmsg_type != RTM_NEWROUTE)
		return 0;
	if (route->rtm_type == RTN_LOCAL)
		return -1;
	for (const struct rtattr *a = RTM_RTA(route); RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == RTA_OIF)
			memcpy(&link, RTA_DATA(a), sizeof(link));
	return link;
}

static int find_route(int fd, int family, const void *address, size_t len)
{
	_Alignas(struct nlmsghdr) char answer[4096];
	struct route_request r = {
		.header = {.nlmsg_len = NLMSG_LENGTH(sizeof(r.route)) + RTA_LENGTH(len),
			   .nlmsg_type = RTM_GETROUTE,
			   .nlmsg_flags = NLM_F_REQUEST},
		.route = {.rtm_family = (unsigned char)family,
			  .rtm_dst_len = (unsigned char)(8 * len)},
		.attr = {.rta_type = RTA_DST, .rta_len = (unsigned short)RTA_LENGTH(len)},
	};

	memcpy(r.address, address, len);
	int bad = send_request(fd, &r, r.header.nlmsg_len);
	if (bad)
		return bad;
	ssize_t n = recv(fd, answer, sizeof(answer), 0);
	const struct nlmsghdr *h = (const struct nlmsghdr *)answer;
	return n >= 0 && NLMSG_OK(h, (size_t)n) ? read_route(h) : 0;
}

static bool is_outside(int fd, const struct inet_diag_req_v2 *s, int link)
{
	const struct in6_addr *peer = (const struct in6_addr *)s->id.idiag_dst;
	int found;

	if (s->sdiag_family == AF_INET)
		found = find_route(fd, AF_INET, peer, 4);
	else if (IN6_IS_ADDR_V4MAPPED(peer))
		found = find_route(fd, AF_INET, peer->s6_addr + 12, 4);
	else
		found = find_route(fd, AF_INET6, peer, 16);
	return found == link || found == 0;
}

/* --- sockets -------------------------------------------------------------------------------- */

static int keep(struct sockets *s, const struct inet_diag_msg *m)
{
	if (array_grow(&s->each, &s->room, s->count + 1, sizeof(*s->each)) < 0)
		return -ENOMEM;
	s->each[s->count++] = (struct inet_diag_req_v2){
		.sdiag_family = m->idiag_family,
		.sdiag_protocol = IPPROTO_TCP,
		.idiag_states = STATES,
		.id = m->id,
	};
	return 0;
}

/* Returns 1 after the last message, 0 if more follow, or -errno. */
static int take_message(const struct nlmsghdr *h, struct sockets *s)
{
	if (h->nlmsg_type == NLMSG_DONE)
		return 1;
	if (h->nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *e = NLMSG_DATA(h);
		return e->error ? e->error : 1;
	}
	if (h->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
		return -EPROTO;
	return keep(s, NLMSG_DATA(h));
}

static int list_sockets(int fd, int family, struct sockets *s)
{
	_Alignas(struct nlmsghdr) static char answer[32768];
	const struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 request;
	} r = {
		.header = {.nlmsg_len = sizeof(r),
			   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		.request = {.sdiag_family = (unsigned char)family,
			    .sdiag_protocol = IPPROTO_TCP,
			    .idiag_states = STATES},
	};
	int bad = send_request(fd, &r, sizeof(r));

	while (bad == 0) {
		ssize_t n = recv(fd, answer, sizeof(answer), 0);
		if (n < 0)
			return -errno;
		size_t left = (size_t)n;
		for (const struct nlmsghdr *h = (const struct nlmsghdr *)answer;
		     bad == 0 && NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
			bad = take_message(h, s);
	}
	return bad < 0 ? bad : 0;
}

/* Returns 0 or the error that the kernel answered. */
static int destroy(int fd, const struct inet_diag_req_v2 *socket_id)
{
	_Alignas(struct nlmsghdr) char answer[1024];
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 request;
	} r = {
		.header = {.nlmsg_len = sizeof(r),
			   .nlmsg_type = SOCK_DESTROY,
			   .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
		.request = *socket_id,
	};
	int bad = send_request(fd, &r, sizeof(r));

	if (bad)
		return bad;
	ssize_t n = recv(fd, answer, sizeof(answer), 0);
	const struct nlmsghdr *h = (const struct nlmsghdr *)answer;
	if (n < 0 || !NLMSG_OK(h, (size_t)n) || h->nlmsg_type != NLMSG_ERROR)
		return -EPROTO;
	return ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
}

static int end_outside(int diag, const struct sockets *s, int link)
{
	scoped_fd int routes = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int ended = 0;

	if (routes < 0)
		return -errno;
	for (size_t i = 0; i < s->count; i++) {
		if (!is_outside(routes, &s->each[i], link))
			continue;
		int bad = destroy(diag, &s->each[i]);
		if (bad == 0)
			ended++;
		else if (bad != -ENOENT) /* ENOENT: it ended meanwhile */
			return bad;
	}
	return ended;
}

int tcp_reset(const char *link)
{
	struct sockets s = {0};
	scoped_fd int diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (diag < 0)
		return -errno;
	int bad = list_sockets(diag, AF_INET, &s);
	int bad6 = list_sockets(diag, AF_INET6, &s);
	if (!bad && bad6 != -ENOENT) /* ENOENT: no IPv6 in the kernel */
		bad = bad6;
	int ended = s.count ? end_outside(diag, &s, (int)if_nametoindex(link)) : 0;
	free(s.each);
	return ended < 0 ? ended : bad ? bad : ended;
}
