// SPDX-License-Identifier: Apache-2.0
/* Requests about single objects of nftables. They are netlink messages, because libnftables takes
 * more time for a command, and lists the tables first. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/warden/net-netfilter.h"
#include "orchestrator/warden/net-rules.h"
#include "orchestrator/warden/net.h"

/* --- the set of closed slots ----------------------------------------------------------------- */

struct batch {
	size_t used;
	_Alignas(struct nlmsghdr) char bytes[1024];
};

/* Adds a message, which must end with end_message, and is short enough. */
static struct nlmsghdr *begin_message(struct batch *b, uint8_t subsystem, uint8_t type,
				      uint16_t flags, int family)
{
	return netfilter_begin(b->bytes + b->used, subsystem, type, flags, family);
}

static void end_message(struct batch *b, const struct nlmsghdr *head)
{
	b->used += MNL_ALIGN(head->nlmsg_len);
}

/* Begins or ends a transaction of nftables. */
static void add_bound(struct batch *b, uint8_t type)
{
	struct nlmsghdr *head = begin_message(b, NFNL_SUBSYS_NONE, type, 0, AF_UNSPEC);
	struct nfgenmsg *gen = mnl_nlmsg_get_payload(head);

	gen->res_id = htons(NFNL_SUBSYS_NFTABLES);
	end_message(b, head);
}

static void add_slot(struct batch *b, uint8_t type, uint16_t flags, uint32_t slot)
{
	char name[NET_NAME_MAX] = ""; /* the key is the whole array */
	struct nlmsghdr *head = begin_message(b, NFNL_SUBSYS_NFTABLES, type, flags, NFPROTO_INET);

	snprintf(name, sizeof(name), NET_HOST "%u", slot);
	mnl_attr_put_strz(head, NFTA_SET_ELEM_LIST_TABLE, NET_TABLE);
	mnl_attr_put_strz(head, NFTA_SET_ELEM_LIST_SET, NET_NO_EGRESS);
	struct nlattr *list = mnl_attr_nest_start(head, NFTA_SET_ELEM_LIST_ELEMENTS);
	struct nlattr *element = mnl_attr_nest_start(head, NFTA_LIST_ELEM);
	struct nlattr *key = mnl_attr_nest_start(head, NFTA_SET_ELEM_KEY);
	mnl_attr_put(head, NFTA_DATA_VALUE, sizeof(name), name);
	mnl_attr_nest_end(head, key);
	mnl_attr_nest_end(head, element);
	mnl_attr_nest_end(head, list);
	end_message(b, head);
}

/* Returns whether the slot is in the set; true if that cannot be found out. */
static bool is_closed(uint32_t slot)
{
	struct batch b = {0};

	add_slot(&b, NFT_MSG_GETSETELEM, NLM_F_ACK, slot);
	return netfilter_ask(b.bytes, b.used, NULL, NULL) != -ENOENT;
}

/* Works whatever the previous state of the slot was: only elements that exist can be deleted, and
 * adding an existing one changes nothing. A slot that is open already is left alone: a deletion
 * would cost each new VM 11 ms, since the kernel then lets the close of the socket wait for a grace
 * period. */
int net_egress(const struct net *n, uint32_t slot, bool allowed, struct err *e)
{
	struct batch b = {0};

	if (!n->on || (allowed && !is_closed(slot)))
		return 0;
	add_bound(&b, NFNL_MSG_BATCH_BEGIN);
	add_slot(&b, NFT_MSG_NEWSETELEM, NLM_F_CREATE | (allowed ? 0 : NLM_F_ACK), slot);
	if (allowed)
		add_slot(&b, NFT_MSG_DELSETELEM, NLM_F_ACK, slot);
	add_bound(&b, NFNL_MSG_BATCH_END);
	int r = netfilter_ask(b.bytes, b.used, NULL, NULL);
	return r < 0 ? err_set(e, -r, "%s the network of slot %u", allowed ? "open" : "close", slot)
		     : 0;
}

/* --- the counter of fragments ---------------------------------------------------------------- */

static int on_counter(const struct nlmsghdr *head, void *arg)
{
	struct nlattr *attr;

	mnl_attr_for_each(attr, head, sizeof(struct nfgenmsg))
	{
		const struct nlattr *packets = mnl_attr_get_type(attr) == NFTA_OBJ_DATA
						       ? netfilter_find(attr, NFTA_COUNTER_PACKETS)
						       : NULL;

		if (packets && mnl_attr_get_payload_len(packets) == sizeof(uint64_t))
			*(int64_t *)arg = (int64_t)be64toh(mnl_attr_get_u64(packets));
	}
	return MNL_CB_OK;
}

int64_t net_fragments(struct err *e)
{
	_Alignas(struct nlmsghdr) char bytes[NETFILTER_REQUEST_MAX];
	struct nlmsghdr *head = netfilter_begin(bytes, NFNL_SUBSYS_NFTABLES, NFT_MSG_GETOBJ,
						NLM_F_ACK, NFPROTO_INET);
	int64_t count = -ENOMSG;

	mnl_attr_put_strz(head, NFTA_OBJ_TABLE, NET_TABLE);
	mnl_attr_put_strz(head, NFTA_OBJ_NAME, NET_FRAGMENTS);
	mnl_attr_put_u32(head, NFTA_OBJ_TYPE, htonl(NFT_OBJECT_COUNTER));
	int r = netfilter_ask(head, head->nlmsg_len, on_counter, &count);
	if (r == 0 && count < 0)
		r = (int)count;
	return r < 0 ? err_set(e, -r, "read the jail's counter of fragments") : count;
}
