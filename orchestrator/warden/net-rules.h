// SPDX-License-Identifier: Apache-2.0
/* Rules as text for nft, and their inputs. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_NET_RULES_H
#define RAMET_ORCHESTRATOR_WARDEN_NET_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/address.h"
#include "orchestrator/config/config.h"

#define NET_UPLINK "up0" /* the jail's end of the veth pair */
#define NET_HOST   "rt"	 /* prefix of the host's end, followed by the slot */

/* The jail's counter of fragments (net_fragments), and the table that has it. */
#define NET_TABLE     "ramet"
#define NET_FRAGMENTS "fragments"
/* The set of the links whose slots have no access to the network. It is in the host's own table,
 * which is called NET_TABLE, too. */
#define NET_NO_EGRESS "no_egress"

/* Addresses of both ends of a slot's link. IPv4 comes from the configured range; IPv6 is private
 * and fixed. */
#define NET_LINK_IPV6 "fd52:616d:6574:ff00::"
struct net_link {
	struct range host, jail, host6, jail6;
};
void net_link_of(struct net_link *out, const struct range *block, uint32_t slot);

/* Inputs of the rules. */
struct net_plan {
	const struct config *config;
	const char *dns; /* IPv4 address; empty: none */
	uint32_t service_uid;
	bool ipv6;
	bool closed6; /* the host forwards IPv6 for VMs only */
};

/* Return the rules as text that the caller frees, or NULL when out of memory. */
char *net_rules_jail(const struct net_plan *plan);
char *net_rules_host(const struct net_plan *plan);

/* Finds the first IPv4 name server in the text of a resolv.conf that is not on the loopback and
 * copies it to `out`. Returns false when there is none. Sets *loopback if a loopback one was
 * skipped. */
bool net_find_dns(const char *text, char out[static INET_ADDRSTRLEN], bool *loopback);

#endif
