// SPDX-License-Identifier: Apache-2.0
/*
 * The network of the VMs (proto/net.h, docs/network.md). Each jail has a tap for its VM and one end
 * of a veth pair whose other end, rtSLOT, is on the host. Two sets of rules restrict a VM: the
 * tables of its own namespace, set before the VM program runs, and the host's `table inet ramet`.
 * Only one warden at a time uses a network namespace.
 */
#ifndef RAMET_ORCHESTRATOR_WARDEN_NET_H
#define RAMET_ORCHESTRATOR_WARDEN_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/address.h"
#include "base/err.h"
#include "orchestrator/config/config.h"

struct nft_ctx;

#define NET_UPLINKS_MAX 8
#define NET_NAME_MAX	16 /* IFNAMSIZ */

struct net {
	bool on;	  /* false: VMs have no network, and nothing is set up on the host */
	bool ipv6;	  /* VMs reach the outside over IPv6, too */
	bool opened_ipv6; /* a warden enabled the host's IPv6 forwarding */
	int ns;		  /* the host's namespace, locked */
	struct nft_ctx *nft;
	char *rules; /* rules of a jail, in nft's syntax */
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
int net_egress(struct net *n, uint32_t slot, bool allowed, struct err *e);

/* Returns false when the VM in `slot` has certainly sent nothing. Then net_forget, which walks over
 * all connections that the host tracks, can be skipped. */
bool net_was_used(const struct net *n, uint32_t slot);
/* Deletes the host's tracked connections of a slot whose VM has ended. */
int net_forget(const struct net *n, uint32_t slot, struct err *e);

/* Runs in the cloned process, as root in its own network namespace: creates its links and rules and
 * returns the tap, which belongs to `uid`, or -errno with *e filled. */
int net_jail(const struct net *n, uint32_t slot, uid_t uid, struct err *e);

#endif
