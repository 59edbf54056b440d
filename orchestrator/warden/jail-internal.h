// SPDX-License-Identifier: Apache-2.0
/* Between jail.c, which prepares in the warden, and jail-child.c, which runs in the new process. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_JAIL_INTERNAL_H
#define RAMET_ORCHESTRATOR_WARDEN_JAIL_INTERNAL_H

#include <sys/types.h>

#define JAIL_NUMBER_MAX 12

/* The descriptors as the VM program finds them. */
enum jail_fd { JAIL_KVM = 3, JAIL_CTL = 4, JAIL_PROC = 5, JAIL_FDS = 6 };

struct jail_child {
	const char *root; /* directory the empty root is mounted over */
	int log, kvm, ctl;
	int program; /* executable */
	int status;  /* write end: a struct err goes here; closed by the exec */
	uid_t uid;   /* and gid */
	char vcpus[JAIL_NUMBER_MAX], ram_mib[JAIL_NUMBER_MAX], slot[JAIL_NUMBER_MAX];
};

/* Runs in the cloned process; ends in the VM program or after telling `status` why not. */
_Noreturn void jail_child_run(const struct jail_child *c);

#endif
