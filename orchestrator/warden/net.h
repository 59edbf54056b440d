// SPDX-License-Identifier: Apache-2.0
/*
 * The network of the VMs (proto/net.h, docs/network.md). Each jail has a tap for its VM and one end
 * of a veth pair whose other end, rtSLOT, is on the host. What a VM may do is ruled twice: by the
 * table of its own namespace, made before the VM program runs, and by `table inet ramet` of the
 * host. One warden at a time works in a network namespace.
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
	bool on;	  /* false: VMs have no network, and there is nothing on the host */
	bool ipv6;	  /* VMs reach out by it, too */
	bool opened_ipv6; /* the host forwarded no IPv6 before */
	int ns;		  /* the host's namespace; locked */
	struct nft_ctx *nft;
	char *rules; /* of a jail, as nft reads them */
	struct range block;
	char uplinks[NET_UPLINKS_MAX][NET_NAME_MAX]; /* that were made to forward */
	unsigned n_uplinks;
};

/* Sets up the host: the table, which keeps `service_uid` from opening connections, with an earlier
 * warden's list of closed slots, and forwarding. On failure nothing is open. */
int net_open(struct net *n, const struct config *config, uid_t service_uid, struct err *e);
/* Closes it; with `remove` also takes away what was set up. */
void net_close(struct net *n, bool remove);

/* Whether packets of the VM in `slot` leave the host; true is what a new slot must have. Holds when
 * it returns 0. */
int net_egress(struct net *n, uint32_t slot, bool allowed, struct err *e);

/* False when it is known that nothing has come from the VM in `slot`: there is nothing to forget,
 * which takes a walk over all that the host tracks. */
bool net_was_used(const struct net *n, uint32_t slot);
/* Takes what the host's connection tracking knows of a slot whose VM is gone. */
int net_forget(const struct net *n, uint32_t slot, struct err *e);

/* In the cloned process, which is root in a network namespace of its own: makes its links and rules
 * and returns the tap, which belongs to `uid`. -errno with *e filled. */
int net_jail(const struct net *n, uint32_t slot, uid_t uid, struct err *e);

#endif
