// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/net-netfilter.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <sys/socket.h>

#include "orchestrator/warden/net-links.h"

struct nlmsghdr *netfilter_begin(void *bytes, uint8_t subsystem, uint8_t type, uint16_t flags,
				 int family)
{
	struct nlmsghdr *head = mnl_nlmsg_put_header(bytes);

	head->nlmsg_type = (uint16_t)(subsystem << 8 | type);
	head->nlmsg_flags = NLM_F_REQUEST | flags;
	struct nfgenmsg *gen = mnl_nlmsg_put_extra_header(head, sizeof(*gen));
	gen->nfgen_family = (uint8_t)family;
	gen->version = NFNETLINK_V0;
	return head;
}

int netfilter_ask(const void *request, size_t len, mnl_cb_t on_data, void *arg)
{
	scoped_socket struct mnl_socket *nl = netlink_open(NETLINK_NETFILTER);

	return nl ? netlink_ask(nl, request, len, on_data, arg) : -errno;
}

const struct nlattr *netfilter_find(const struct nlattr *nest, uint16_t type)
{
	struct nlattr *attr;

	mnl_attr_for_each_nested(attr, nest)
	{
		if (mnl_attr_get_type(attr) == type)
			return attr;
	}
	return NULL;
}
