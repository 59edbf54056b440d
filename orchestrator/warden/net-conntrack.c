// SPDX-License-Identifier: Apache-2.0
/* Deletes the conntrack entries of a VM that has ended: those of connections that nobody closed
 * would stay for days. On the host, each entry is listed through ctnetlink and then deleted by its
 * tuple; in a jail, all are deleted.
 */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <string.h>
#include <sys/socket.h>

#include "orchestrator/warden/net-links.h"
#include "orchestrator/warden/net-netfilter.h"
#include "orchestrator/warden/net-rules.h"
#include "orchestrator/warden/net.h"

#define ANSWER_MAX 32768
/* The kernel's CTA_FILTER_F_CTA_IP_SRC, missing from its uapi headers. */
#define FILTER_SOURCE 1u

struct sweep {
	const struct range *source;
	struct mnl_socket *deletes;
	int error;
};

static struct nlmsghdr *begin(void *bytes, uint8_t type, uint16_t flags, int family)
{
	return netfilter_begin(bytes, NFNL_SUBSYS_CTNETLINK, type, flags, family);
}

static uint16_t source_type(const struct range *r)
{
	return r->family == AF_INET6 ? CTA_IP_V6_SRC : CTA_IP_V4_SRC;
}

static bool is_from(const struct nlattr *tuple, const struct range *source)
{
	const struct nlattr *ip = netfilter_find(tuple, CTA_TUPLE_IP);
	const struct nlattr *at = ip ? netfilter_find(ip, source_type(source)) : NULL;

	return at && mnl_attr_get_payload_len(at) == address_len(source) &&
	       memcmp(mnl_attr_get_payload(at), source->first, address_len(source)) == 0;
}

static void delete_one(struct sweep *s, const struct nlattr *tuple)
{
	_Alignas(struct nlmsghdr) char bytes[NETFILTER_REQUEST_MAX], answer[NETFILTER_REQUEST_MAX];
	struct nlmsghdr *head = begin(bytes, IPCTNL_MSG_CT_DELETE, NLM_F_ACK, s->source->family);

	if (!mnl_attr_put_check(head, sizeof(bytes), CTA_TUPLE_ORIG | NLA_F_NESTED,
				mnl_attr_get_payload_len(tuple), mnl_attr_get_payload(tuple)))
		return;
	if (mnl_socket_sendto(s->deletes, head, head->nlmsg_len) < 0 ||
	    mnl_socket_recvfrom(s->deletes, answer, sizeof(answer)) < 0)
		s->error = errno; /* ignores the answer: the entry may have expired */
}

static int on_entry(const struct nlmsghdr *head, void *arg)
{
	struct sweep *s = arg;
	struct nlattr *attr;

	mnl_attr_for_each(attr, head, sizeof(struct nfgenmsg))
	{
		if (mnl_attr_get_type(attr) == CTA_TUPLE_ORIG && is_from(attr, s->source))
			delete_one(s, attr);
	}
	return MNL_CB_OK;
}

/* Requests the entries with this source. An older kernel ignores the filter and lists all entries,
 * so on_entry checks each again. */
static int ask_for_list(struct mnl_socket *nl, const struct range *source)
{
	_Alignas(struct nlmsghdr) char bytes[NETFILTER_REQUEST_MAX];
	struct nlmsghdr *head = begin(bytes, IPCTNL_MSG_CT_GET, NLM_F_DUMP, source->family);

	struct nlattr *tuple = mnl_attr_nest_start(head, CTA_TUPLE_ORIG);
	struct nlattr *ip = mnl_attr_nest_start(head, CTA_TUPLE_IP);
	mnl_attr_put(head, source_type(source), address_len(source), source->first);
	mnl_attr_nest_end(head, ip);
	mnl_attr_nest_end(head, tuple);
	struct nlattr *filter = mnl_attr_nest_start(head, CTA_FILTER);
	mnl_attr_put_u32(head, CTA_FILTER_ORIG_FLAGS, FILTER_SOURCE);
	mnl_attr_put_u32(head, CTA_FILTER_REPLY_FLAGS, 0);
	mnl_attr_nest_end(head, filter);
	return mnl_socket_sendto(nl, head, head->nlmsg_len) < 0 ? -errno : 0;
}

static int sweep(struct sweep *s, struct mnl_socket *nl)
{
	static char answer[ANSWER_MAX];
	int more = MNL_CB_OK;
	int r = ask_for_list(nl, s->source);

	while (r == 0 && more > MNL_CB_STOP) {
		ssize_t n = mnl_socket_recvfrom(nl, answer, sizeof(answer));

		more = n < 0 ? MNL_CB_ERROR
			     : mnl_cb_run(answer, (size_t)n, 0, mnl_socket_get_portid(nl), on_entry,
					  s);
		if (more < 0)
			r = -errno;
	}
	return r < 0 ? r : -s->error;
}

int net_forget(const struct net *n, uint32_t slot, struct err *e)
{
	struct net_link link;
	int r = 0;

	if (!n->on)
		return 0;
	net_link_of(&link, &n->block, slot);
	scoped_socket struct mnl_socket *lists = netlink_open(NETLINK_NETFILTER);
	scoped_socket struct mnl_socket *deletes = netlink_open(NETLINK_NETFILTER);
	const struct range *sources[] = {&link.jail, n->ipv6 ? &link.jail6 : NULL};
	if (!lists || !deletes)
		r = -errno;
	for (size_t i = 0; r == 0 && i < 2 && sources[i]; i++) {
		struct sweep s = {.source = sources[i], .deletes = deletes};

		r = sweep(&s, lists);
	}
	return r < 0 ? err_set(e, -r, "delete the tracked connections of an ended VM") : 0;
}

/* --- in a jail ------------------------------------------------------------------------------- */

int net_flush_connections(struct err *e)
{
	_Alignas(struct nlmsghdr) char bytes[NETFILTER_REQUEST_MAX];
	/* Without a tuple, the kernel deletes all entries of the namespace. */
	struct nlmsghdr *head = begin(bytes, IPCTNL_MSG_CT_DELETE, NLM_F_ACK, AF_UNSPEC);
	int r = netfilter_ask(head, head->nlmsg_len, NULL, NULL);

	return r < 0 ? err_set(e, -r, "delete the tracked connections in a jail") : 0;
}
