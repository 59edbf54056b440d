// SPDX-License-Identifier: Apache-2.0
/*
 * The jail of one VM: the directory RUN_DIR/vm/SLOT with its control socket and log, and the
 * process. The process has its own uid, cgroup, and mount, pid, network, ipc, uts and cgroup
 * namespaces, an empty read-only root, no capabilities, and seven descriptors: 0 to 2 are the log,
 * then /dev/kvm, the listening control socket, a procfs root and the tap (net.h).
 */
#ifndef RAMET_ORCHESTRATOR_WARDEN_JAIL_H
#define RAMET_ORCHESTRATOR_WARDEN_JAIL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/warden/account.h"
#include "orchestrator/warden/cgroup.h"
#include "orchestrator/warden/net.h"
#include "proto/warden.h"

struct jails {
	const struct config *config;
	const struct cgroup_tree *tree;
	struct account account; /* of the service: its group may use RUN_DIR/vm */
	const struct net *net;	/* used for each jail */
	int vm_dir;		/* RUN_DIR/vm */
	int program;		/* the VM program */
};

/* A process that was just cloned; the caller owns the descriptors. */
struct jailed {
	pid_t pid;
	int pidfd;
	int status; /* non-blocking: yields a struct err when the child failed, EOF when it runs */
	int events; /* cgroup.events of its cgroup */
};

/* Creates RUN_DIR and RUN_DIR/vm if missing. On failure nothing is open. */
int jails_open(struct jails *j, const struct config *config, const struct cgroup_tree *tree,
	       const struct net *net, struct account account, struct err *e);
/* Closes everything; with `remove` also removes RUN_DIR/vm if it is empty. */
void jails_close(struct jails *j, bool remove);

/* Checks at start-up that /dev/kvm can be used, and opens the VM program. All VMs start from that
 * file: an upgrade replaces it before the warden, which may not fit the new one. */
int jails_check(struct jails *j, struct err *e);

/* Creates the jail for a checked `request` and starts the VM process in it. Undoes everything on
 * failure. `net` is what the slot's previous jail left, and is changed when a new one is created.
 */
int jail_start(const struct jails *j, const struct warden_msg *request, struct net_jail *net,
	       struct jailed *out, struct err *e);
/* Sets the VM's share of contended CPUs and disks. `priority` is a valid enum warden_priority. */
int jail_set_priority(const struct jails *j, uint32_t slot, uint32_t priority, struct err *e);
/* Sets whether the kernel kills this VM before unmarked ones when memory runs out. */
int jail_set_oom(const struct jails *j, uint32_t slot, bool first, struct err *e);
/* Kills all processes in the jail. The caller waits until they have ended. */
int jail_kill(const struct jails *j, uint32_t slot, struct err *e);
/* Removes what jail_start created. No process may be left in the jail. */
int jail_remove(const struct jails *j, uint32_t slot, struct err *e);
/* Removes every directory under RUN_DIR/vm for which keep(arg, slot) is false. */
int jails_sweep(const struct jails *j, bool (*keep)(void *arg, uint32_t slot), void *arg,
		struct err *e);

/* Returns the name of a slot's cgroup. */
struct jail_name {
	char text[16];
};
struct jail_name jail_name(uint32_t slot);

#endif
