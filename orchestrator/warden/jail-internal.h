// SPDX-License-Identifier: Apache-2.0
/* Between jail.c, which prepares in the warden, and jail-child.c, which runs in the new process. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_JAIL_INTERNAL_H
#define RAMET_ORCHESTRATOR_WARDEN_JAIL_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct net;

/*
 * The kernel ends the process with most memory, counted with this many thousandths of all there is
 * (oom_score_adj(5)). VMs come before the rest of the host, and those of tenants who were promised
 * more than their share come before all others of up to 0.6 of the memory.
 */
#define JAIL_OOM_LAST  "300"
#define JAIL_OOM_FIRST "900"

/* The descriptors as the VM program finds them. */
enum jail_fd { JAIL_KVM = 3, JAIL_CTL = 4, JAIL_PROC = 5, JAIL_TAP = 6, JAIL_FDS = 7 };

struct jail_child {
	const char *root; /* directory the empty root is mounted over */
	int log, kvm, ctl;
	int program; /* executable */
	int status;  /* write end: a struct err goes here; closed by the exec */
	const struct net *net;
	uint32_t slot, vcpus, ram_mib;
	uid_t uid; /* and gid */
	uint32_t disk_bytes_s, disk_ops_s;
	bool alone_on_core;
};

/* Runs in the cloned process; ends in the VM program or after telling `status` why not. */
_Noreturn void jail_child_run(const struct jail_child *c);

#endif
