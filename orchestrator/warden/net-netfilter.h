// SPDX-License-Identifier: Apache-2.0
/* Messages to netfilter in the kernel, in the present network namespace. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_NET_NETFILTER_H
#define RAMET_ORCHESTRATOR_WARDEN_NET_NETFILTER_H

#include <libmnl/libmnl.h>
#include <stdint.h>

#define NETFILTER_REQUEST_MAX 512

/* Begins a request in `bytes`. */
struct nlmsghdr *netfilter_begin(void *bytes, uint8_t subsystem, uint8_t type, uint16_t flags,
				 int family);
/* Sends requests through a new socket, as netlink_ask does. */
int netfilter_ask(const void *request, size_t len, mnl_cb_t on_data, void *arg);
/* Returns the first attribute of that type in a nest, or NULL. */
const struct nlattr *netfilter_find(const struct nlattr *nest, uint16_t type);

#endif
