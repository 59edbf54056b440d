// SPDX-License-Identifier: Apache-2.0
/* Links, addresses and routes through rtnetlink, in the network namespace in which `nl` was opened.
 * Functions with an `e` return 0 or -errno with *e filled. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_NET_LINKS_H
#define RAMET_ORCHESTRATOR_WARDEN_NET_LINKS_H

#include <libmnl/libmnl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/address.h"
#include "base/err.h"

/* Opens a socket for links, addresses and routes, which the caller closes with mnl_socket_close().
 * Returns NULL with *e filled on failure. */
struct mnl_socket *links_open(struct err *e);
/* Opens one for any netlink protocol. Returns NULL with errno set on failure. */
struct mnl_socket *netlink_open(int protocol);

static inline void netlink_close(struct mnl_socket **nl)
{
	if (*nl)
		mnl_socket_close(*nl);
}
/* A socket that is closed at the end of its scope. */
#define scoped_socket __attribute__((cleanup(netlink_close)))

/* Sends a request, or several of which the last must ask for an acknowledgement or a list, through
 * any netlink socket, and calls on_data (NULL: none) for each message of the answer. Returns 0 or
 * -errno. */
int netlink_ask(struct mnl_socket *nl, const void *request, size_t len, mnl_cb_t on_data,
		void *arg);

/* Creates a veth pair: `name` in this namespace, `far` in the namespace of descriptor `ns`. */
int link_add_veth(struct mnl_socket *nl, const char *name, const char *far, int ns, struct err *e);
/* Deletes a link. Returns 0 also when it does not exist. */
int link_delete(struct mnl_socket *nl, const char *name, struct err *e);
/* Returns the index of a link, or -errno. */
int link_index(struct mnl_socket *nl, const char *name, struct err *e);
/* Returns the number of packets received on a link; UINT64_MAX: unknown. */
uint64_t link_received(struct mnl_socket *nl, const char *name);
/* Brings a link up, or takes it down. */
int link_set(struct mnl_socket *nl, const char *name, bool up, struct err *e);
/* Enables or disables forwarding of IPv4 packets received on a link. */
int link_forwarding(struct mnl_socket *nl, const char *name, bool on, struct err *e);

/* Returns the number of bytes of an address in the range. */
size_t address_len(const struct range *range);
/* Gives `name` the address `range->first` with a prefix of `range->prefix` bits. */
int link_address(struct mnl_socket *nl, const char *name, const struct range *range, struct err *e);
/* Adds a default route through `gateway`, whose prefix is ignored. */
int route_default(struct mnl_socket *nl, const struct range *gateway, struct err *e);

/* Returns the index of the outgoing link for `to`, or -errno (-ENETUNREACH: no route). */
int route_link(struct mnl_socket *nl, const struct range *to, struct err *e);

#endif
