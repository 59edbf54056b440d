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

struct mnl_socket *netfilter_open(void)
{
	struct mnl_socket *nl = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);

	if (nl && mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) == 0)
		return nl;
	if (nl)
		mnl_socket_close(nl);
	return NULL;
}

int netfilter_ask(const void *request, size_t len, mnl_cb_t on_data, void *arg)
{
	struct mnl_socket *nl = netfilter_open();

	if (!nl)
		return -errno;
	int r = netlink_ask(nl, request, len, on_data, arg);
	mnl_socket_close(nl);
	return r;
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
