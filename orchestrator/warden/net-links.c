// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/net-links.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>

#include "proto/net.h"

/* Requests are short, and only the start of an answer is read. */
#define REQUEST_MAX 512
#define ANSWER_MAX  16384

struct request {
	struct nlmsghdr *head;
	_Alignas(struct nlmsghdr) char bytes[REQUEST_MAX];
};

struct mnl_socket *netlink_open(int protocol)
{
	struct mnl_socket *nl = mnl_socket_open2(protocol, SOCK_CLOEXEC);

	if (nl && mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) == 0)
		return nl;
	netlink_close(&nl);
	return NULL;
}

struct mnl_socket *links_open(struct err *e)
{
	struct mnl_socket *nl = netlink_open(NETLINK_ROUTE);

	if (!nl)
		err_set(e, errno, "open a netlink socket");
	return nl;
}

static void *begin(struct request *r, uint16_t type, uint16_t flags, size_t extra)
{
	r->head = mnl_nlmsg_put_header(r->bytes);
	r->head->nlmsg_type = type;
	r->head->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	return mnl_nlmsg_put_extra_header(r->head, extra);
}

static struct ifinfomsg *begin_link(struct request *r, uint16_t type, uint16_t flags,
				    const char *name)
{
	struct ifinfomsg *link = begin(r, type, flags, sizeof(*link));

	link->ifi_family = AF_UNSPEC;
	mnl_attr_put_strz(r->head, IFLA_IFNAME, name);
	return link;
}

size_t address_len(const struct range *range)
{
	return range->family == AF_INET6 ? 16 : 4;
}

int netlink_ask(struct mnl_socket *nl, const void *request, size_t len, mnl_cb_t on_data, void *arg)
{
	char answer[ANSWER_MAX];
	int more = MNL_CB_OK;

	if (mnl_socket_sendto(nl, request, len) < 0)
		return -errno;
	while (more > MNL_CB_STOP) {
		ssize_t n = mnl_socket_recvfrom(nl, answer, sizeof(answer));

		if (n < 0)
			return -errno;
		more = mnl_cb_run(answer, (size_t)n, 0, mnl_socket_get_portid(nl), on_data, arg);
	}
	return more < 0 ? -errno : 0;
}

static int notify(struct mnl_socket *nl, const struct request *r)
{
	return netlink_ask(nl, r->head, r->head->nlmsg_len, NULL, NULL);
}

/* --- links ----------------------------------------------------------------------------------- */

int link_add_veth(struct mnl_socket *nl, const char *name, const char *far, int ns, struct err *e)
{
	struct request r;

	begin_link(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, name);
	mnl_attr_put_u32(r.head, IFLA_MTU, NET_MTU);
	struct nlattr *info = mnl_attr_nest_start(r.head, IFLA_LINKINFO);
	mnl_attr_put_strz(r.head, IFLA_INFO_KIND, "veth");
	struct nlattr *data = mnl_attr_nest_start(r.head, IFLA_INFO_DATA);
	struct nlattr *peer = mnl_attr_nest_start(r.head, VETH_INFO_PEER);
	mnl_nlmsg_put_extra_header(r.head, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(r.head, IFLA_IFNAME, far);
	mnl_attr_put_u32(r.head, IFLA_MTU, NET_MTU);
	mnl_attr_put_u32(r.head, IFLA_NET_NS_FD, (uint32_t)ns);
	mnl_attr_nest_end(r.head, peer);
	mnl_attr_nest_end(r.head, data);
	mnl_attr_nest_end(r.head, info);
	int ret = notify(nl, &r);
	return ret < 0 ? err_set(e, -ret, "create the link %s", far) : 0;
}

int link_delete(struct mnl_socket *nl, const char *name, struct err *e)
{
	struct request r;

	begin_link(&r, RTM_DELLINK, 0, name);
	int ret = notify(nl, &r);
	return ret < 0 && ret != -ENODEV ? err_set(e, -ret, "remove the link %s", name) : 0;
}

static int on_link(const struct nlmsghdr *head, void *arg)
{
	const struct ifinfomsg *link = mnl_nlmsg_get_payload(head);

	if (head->nlmsg_type == RTM_NEWLINK)
		*(int *)arg = link->ifi_index;
	return MNL_CB_OK;
}

int link_index(struct mnl_socket *nl, const char *name, struct err *e)
{
	struct request r;
	int index = -ENODEV;

	begin_link(&r, RTM_GETLINK, 0, name);
	int ret = netlink_ask(nl, r.head, r.head->nlmsg_len, on_link, &index);
	if (ret == 0 && index < 0)
		ret = index;
	return ret < 0 ? err_set(e, -ret, "find the link %s", name) : index;
}

static int on_received(const struct nlmsghdr *head, void *arg)
{
	struct nlattr *attr;

	/* struct rtnl_link_stats64 begins with rx_packets. */
	mnl_attr_for_each(attr, head, sizeof(struct ifinfomsg))
	{
		if (mnl_attr_get_type(attr) == IFLA_STATS64 &&
		    mnl_attr_get_payload_len(attr) >= sizeof(uint64_t))
			memcpy(arg, mnl_attr_get_payload(attr), sizeof(uint64_t));
	}
	return MNL_CB_OK;
}

uint64_t link_received(struct mnl_socket *nl, const char *name)
{
	uint64_t packets = UINT64_MAX;
	struct request r;

	begin_link(&r, RTM_GETLINK, 0, name);
	return netlink_ask(nl, r.head, r.head->nlmsg_len, on_received, &packets) < 0 ? UINT64_MAX
										     : packets;
}

int link_set(struct mnl_socket *nl, const char *name, bool up, struct err *e)
{
	struct request r;
	struct ifinfomsg *link = begin_link(&r, RTM_NEWLINK, 0, name);

	link->ifi_flags = up ? IFF_UP : 0;
	link->ifi_change = IFF_UP;
	int ret = notify(nl, &r);
	return ret < 0 ? err_set(e, -ret, "%s the link %s", up ? "bring up" : "take down", name)
		       : 0;
}

int link_forwarding(struct mnl_socket *nl, const char *name, bool on, struct err *e)
{
	struct request r;

	begin_link(&r, RTM_NEWLINK, 0, name);
	struct nlattr *families = mnl_attr_nest_start(r.head, IFLA_AF_SPEC);
	struct nlattr *ipv4 = mnl_attr_nest_start(r.head, AF_INET);
	struct nlattr *conf = mnl_attr_nest_start(r.head, IFLA_INET_CONF);
	mnl_attr_put_u32(r.head, IPV4_DEVCONF_FORWARDING, on);
	mnl_attr_nest_end(r.head, conf);
	mnl_attr_nest_end(r.head, ipv4);
	mnl_attr_nest_end(r.head, families);
	int ret = notify(nl, &r);
	return ret < 0 ? err_set(e, -ret, "set the forwarding of the link %s", name) : 0;
}

/* --- addresses and routes -------------------------------------------------------------------- */

int link_address(struct mnl_socket *nl, const char *name, const struct range *range, struct err *e)
{
	struct request r;
	int index = link_index(nl, name, e);

	if (index < 0)
		return index;
	struct ifaddrmsg *a = begin(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*a));
	a->ifa_family = (uint8_t)range->family;
	a->ifa_prefixlen = (uint8_t)range->prefix;
	a->ifa_flags = IFA_F_NODAD;
	a->ifa_index = (uint32_t)index;
	mnl_attr_put(r.head, IFA_LOCAL, address_len(range), range->first);
	mnl_attr_put(r.head, IFA_ADDRESS, address_len(range), range->first);
	int ret = notify(nl, &r);
	return ret < 0 ? err_set(e, -ret, "set the address of the link %s", name) : 0;
}

int route_default(struct mnl_socket *nl, const struct range *gateway, struct err *e)
{
	struct request r;
	struct rtmsg *route = begin(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*route));

	route->rtm_family = (uint8_t)gateway->family;
	route->rtm_table = RT_TABLE_MAIN;
	route->rtm_protocol = RTPROT_STATIC;
	route->rtm_scope = RT_SCOPE_UNIVERSE;
	route->rtm_type = RTN_UNICAST;
	mnl_attr_put(r.head, RTA_GATEWAY, address_len(gateway), gateway->first);
	int ret = notify(nl, &r);
	return ret < 0 ? err_set(e, -ret, "set the default route") : 0;
}

static int on_route(const struct nlmsghdr *head, void *arg)
{
	const struct rtmsg *route = mnl_nlmsg_get_payload(head);
	struct nlattr *attr;

	if (head->nlmsg_type != RTM_NEWROUTE || route->rtm_type != RTN_UNICAST)
		return MNL_CB_OK;
	mnl_attr_for_each(attr, head, sizeof(*route)) if (mnl_attr_get_type(attr) == RTA_OIF) *
		(int *)arg = (int)mnl_attr_get_u32(attr);
	return MNL_CB_OK;
}

int route_link(struct mnl_socket *nl, const struct range *to, struct err *e)
{
	struct request r;
	int index = -ENETUNREACH;
	struct rtmsg *route = begin(&r, RTM_GETROUTE, 0, sizeof(*route));

	route->rtm_family = (uint8_t)to->family;
	route->rtm_dst_len = (uint8_t)(8 * address_len(to));
	mnl_attr_put(r.head, RTA_DST, address_len(to), to->first);
	int ret = netlink_ask(nl, r.head, r.head->nlmsg_len, on_route, &index);
	if (ret == 0 && index < 0)
		ret = index;
	return ret < 0 ? err_set(e, -ret, "find a route to the network") : index;
}
