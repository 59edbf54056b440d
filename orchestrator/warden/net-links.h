// SPDX-License-Identifier: Apache-2.0
/* Links, addresses and routes, by rtnetlink in the network namespace that `nl` was opened in. All
 * return 0 or -errno with *e filled. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_NET_LINKS_H
#define RAMET_ORCHESTRATOR_WARDEN_NET_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/address.h"
#include "base/err.h"

struct mnl_socket;

/* NULL with *e filled when it fails; closed by mnl_socket_close(). */
struct mnl_socket *links_open(struct err *e);

/* A veth pair: `name` here, `far` in the namespace of descriptor `ns`. */
int link_add_veth(struct mnl_socket *nl, const char *name, const char *far, int ns, struct err *e);
/* 0 also when there is none of that name. */
int link_delete(struct mnl_socket *nl, const char *name, struct err *e);
/* The index of a link, or -errno. */
int link_index(struct mnl_socket *nl, const char *name, struct err *e);
/* Packets that came in by it; UINT64_MAX: not known. */
uint64_t link_received(struct mnl_socket *nl, const char *name);
int link_up(struct mnl_socket *nl, const char *name, struct err *e);
/* Whether IPv4 packets that come in by it are passed on. */
int link_forwarding(struct mnl_socket *nl, const char *name, bool on, struct err *e);

/* Gives `name` the address `range->first`, in a network of `range->prefix` bits. */
int link_address(struct mnl_socket *nl, const char *name, const struct range *range, struct err *e);
/* A default route by `gateway` (its prefix is not looked at). */
int route_default(struct mnl_socket *nl, const struct range *gateway, struct err *e);

/* The index of the link by which packets to `to` leave, or -errno (-ENETUNREACH: by none). */
int route_link(struct mnl_socket *nl, const struct range *to, struct err *e);

#endif
