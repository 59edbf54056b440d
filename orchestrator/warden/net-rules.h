// SPDX-License-Identifier: Apache-2.0
/* The rules as text for nft, and what goes into them. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_NET_RULES_H
#define RAMET_ORCHESTRATOR_WARDEN_NET_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/address.h"
#include "orchestrator/config/config.h"

#define NET_UPLINK "up0" /* the jail's end of the veth pair */
#define NET_HOST   "rt"	 /* the host's end: this and the slot */

/* The two ends of a slot's link. IPv4 is from the configured range; IPv6 is private and fixed. */
#define NET_LINK_IPV6 "fd52:616d:6574:ff00::"
struct net_link {
	struct range host, jail, host6, jail6;
};
void net_link_of(struct net_link *out, const struct range *block, uint32_t slot);

/* What the rules are made from. */
struct net_plan {
	const struct config *config;
	const char *dns; /* IPv4, or empty: none */
	uint32_t service_uid;
	bool ipv6;
	bool closed6; /* the host forwards IPv6 for VMs only */
};

/* Owned by the caller; NULL: no memory. */
char *net_rules_jail(const struct net_plan *plan);
char *net_rules_host(const struct net_plan *plan);

/* The first IPv4 name server in the text of a resolv.conf that is not on the loopback: copied to
 * `out`. False when there is none; `loopback` tells whether there was one of that kind. */
bool net_find_dns(const char *text, char out[static INET_ADDRSTRLEN], bool *loopback);

#endif
