// SPDX-License-Identifier: Apache-2.0
/* Programs that the warden keeps running, each in its own cgroup and account. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_PROGRAM_H
#define RAMET_ORCHESTRATOR_WARDEN_PROGRAM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include "orchestrator/warden/account.h"
#include "orchestrator/warden/cgroup.h"

#define PROGRAM_FIRST_FD 3

struct program {
	const char *name; /* of the cgroup, and in the log */
	char *const *argv;
	struct account account;
	struct cgroup_limits limits;
	rlim_t files;	/* maximum of open descriptors; less if the kernel's limit is lower */
	int exe;	/* descriptor of the executable */
	const int *fds; /* become PROGRAM_FIRST_FD and up; no others are passed */
	size_t n_fds;
	const char *const *kept; /* all that it sees of /run (view.h); NULL: everything */
	size_t n_kept;
	int setup_exit; /* exit status when it cannot be executed, after logging why */
};

/* Starts the program without capabilities. Returns a pidfd that the caller owns, or -errno with *e
 * filled. */
int program_start(const struct cgroup_tree *tree, const struct program *p, struct err *e);

/* Returns whether the process has ended; if so, closes *pidfd and fills *info. */
bool program_ended(int *pidfd, siginfo_t *info);

#endif
