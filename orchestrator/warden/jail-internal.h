// SPDX-License-Identifier: Apache-2.0
/* Shared by jail.c, which prepares a jail in the warden, and jail-child.c, which runs in the new
 * process. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_JAIL_INTERNAL_H
#define RAMET_ORCHESTRATOR_WARDEN_JAIL_INTERNAL_H

#include <sys/types.h>

struct jails;
struct warden_msg;

/*
 * When memory runs out the kernel kills the process with the highest memory use plus this many
 * thousandths of all memory (oom_score_adj(5)). VMs come before the rest of the host. VMs of
 * tenants above their share of memory (sandbox/promise.c) come before all other VMs that use up to
 * 0.6 of the memory.
 */
#define JAIL_OOM_LAST  "300"
#define JAIL_OOM_FIRST "900"

/* Descriptor numbers that the VM program expects. */
enum jail_fd { JAIL_KVM = 3, JAIL_CTL = 4, JAIL_PROC = 5, JAIL_TAP = 6, JAIL_FDS = 7 };

struct jail_child {
	const char *root; /* directory over which the empty root is mounted */
	int log, kvm, ctl;
	int status; /* write end: receives a struct err; closed by the exec */
	int net_ns; /* the jail's network namespace; -1: the process was cloned into its own */
	int tap;    /* -1: none */
	const struct jails *jails;
	const struct warden_msg *request;
	uid_t uid; /* also the gid */
};

/* Runs in the cloned process. Ends by executing the VM program, or by reporting an error to
 * `status`. */
_Noreturn void jail_child_run(const struct jail_child *c);

#endif
