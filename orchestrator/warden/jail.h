// SPDX-License-Identifier: Apache-2.0
/*
 * One VM's jail: the directory RUN_DIR/vm/SLOT with its control socket and log, and the process:
 * own uid, own cgroup, own mount, pid, network, ipc, uts and cgroup namespaces, an empty read-only
 * root, no capabilities, and six descriptors: 0 to 2 are the log, then /dev/kvm, the listening
 * control socket and the tap (net.h).
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
	struct account account; /* the service's: its group may use what is in RUN_DIR/vm */
	const struct net *net;	/* in use for each jail */
	int vm_dir;		/* RUN_DIR/vm */
};

/* A process just cloned; the caller owns the descriptors. */
struct jailed {
	pid_t pid;
	int pidfd;
	int status; /* non-blocking: a struct err when the child failed, EOF when it runs */
	int events; /* cgroup.events of its cgroup */
};

/* Makes RUN_DIR and RUN_DIR/vm as far as they are missing. On failure nothing is open. */
int jails_open(struct jails *j, const struct config *config, const struct cgroup_tree *tree,
	       const struct net *net, struct account account, struct err *e);
/* Closes them; with `remove` also takes RUN_DIR/vm away, if it is empty. */
void jails_close(struct jails *j, bool remove);

/* Whether /dev/kvm and the VM program can be used, in words. For start-up. */
int jails_check(const struct jails *j, struct err *e);

/* Makes the jail that checked `request` asks for and starts the VM process in it. Nothing is left
 * on failure. */
int jail_start(const struct jails *j, const struct warden_msg *request, struct jailed *out,
	       struct err *e);
/* Sets the VM's share of what is short: `priority` is a checked enum warden_priority. */
int jail_set_priority(const struct jails *j, uint32_t slot, uint32_t priority, struct err *e);
/* Has the kernel end the VM before those that are not marked, when memory runs out. */
int jail_set_oom(const struct jails *j, uint32_t slot, bool first, struct err *e);
/* Kills what is in the jail. The caller waits for the end of it. */
int jail_kill(const struct jails *j, uint32_t slot, struct err *e);
/* Takes away what jail_start made; no process may be left in it. */
int jail_remove(const struct jails *j, uint32_t slot, struct err *e);
/* Removes every directory under RUN_DIR/vm for which keep(arg, slot) is false. */
int jails_sweep(const struct jails *j, bool (*keep)(void *arg, uint32_t slot), void *arg,
		struct err *e);

/* The name of a slot's cgroup. */
#define JAIL_NAME_MAX 16
void jail_name(char name[static JAIL_NAME_MAX], uint32_t slot);

#endif
