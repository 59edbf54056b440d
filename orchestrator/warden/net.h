// SPDX-License-Identifier: Apache-2.0
/*
 * The network of the VMs (proto/net.h, docs/network.md). Each jail has a tap for its VM and one end
 * of a veth pair whose other end, rtSLOT, is on the host. Two sets of rules restrict a VM: the
 * tables of its own namespace, set before the VM program runs, and the host's `table inet ramet`.
 * Only one warden at a time uses a network namespace.
 *
 * A jail's namespace outlives its VM, because creating and destroying one costs most of what a
 * blank VM costs. The next VM of the slot gets it after a scrub. Only descriptors keep it alive, so
 * nothing is left of it after a warden was killed.
 */
#ifndef RAMET_ORCHESTRATOR_WARDEN_NET_H
#define RAMET_ORCHESTRATOR_WARDEN_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/address.h"
#include "base/err.h"
#include "orchestrator/config/config.h"

#define NET_UPLINKS_MAX 8
#define NET_NAME_MAX	16 /* IFNAMSIZ */

struct net {
	bool on;	  /* false: VMs have no network, and nothing is set up on the host */
	bool ipv6;	  /* VMs reach the outside over IPv6, too */
	bool opened_ipv6; /* a warden enabled the host's IPv6 forwarding */
	int ns;		  /* the host's namespace, locked */
	int nft;	  /* a descriptor that is reserved for nftables (net-nft.h) */
	char *rules;	  /* rules of a jail, in nft's syntax */
	struct range block;
	char uplinks[NET_UPLINKS_MAX]
		    [NET_NAME_MAX]; /* links with forwarding enabled by this warden */
	unsigned n_uplinks;
};

/* Sets up the host: forwarding, and the table, which also prevents `service_uid` from opening
 * connections and keeps a previous warden's list of closed slots. On failure nothing is open. */
int net_open(struct net *n, const struct config *config, uid_t service_uid, struct err *e);
/* Closes the network; with `remove` also undoes the setup of the host. */
void net_close(struct net *n, bool remove);

/* Sets whether packets of the VM in `slot` may leave the host. A new VM needs true, if the previous
 * one in the slot had false. Returns 0 when the setting is in effect. */
int net_egress(const struct net *n, uint32_t slot, bool allowed, struct err *e);

/* The network of a slot, with or without a VM. */
struct net_jail {
	int ns;		  /* its namespace; -1: none */
	int tap;	  /* the index of its tap */
	uint64_t packets; /* that the host had received from the jail at the last net_was_used */
};
#define NET_JAIL_NONE ((struct net_jail){.ns = -1})

/* Returns false when the slot has certainly sent nothing since the last call, which is made when a
 * VM has ended. Then net_forget, which walks over all connections that the host tracks, can be
 * skipped. Probes of neighbours count, too. */
bool net_was_used(const struct net *n, uint32_t slot, struct net_jail *j);
/* Deletes the host's tracked connections of a slot whose VM has ended. */
int net_forget(const struct net *n, uint32_t slot, struct err *e);

/*
 * Returns a new descriptor of the slot's tap, which belongs to `uid`, or -errno with *e filled.
 * Creates the namespace with its links and rules first, if *j has none or if the tap of the one
 * that it has cannot be used.
 */
int net_jail_open(const struct net *n, uint32_t slot, uid_t uid, struct net_jail *j, struct err *e);
/* Removes what an ended VM, whose processes are gone, left in the namespace. After a failure the
 * namespace must not be used for another VM. */
int net_jail_scrub(const struct net *n, const struct net_jail *j, struct err *e);
/* Closes the namespace. It ends when no process is in it. */
void net_jail_close(struct net_jail *j);

/* Used in a jail's namespace: delete all tracked connections; return the number of fragments that
 * arrived there, or -errno. */
int net_flush_connections(struct err *e);
int64_t net_fragments(struct err *e);

#endif
