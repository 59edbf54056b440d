// SPDX-License-Identifier: Apache-2.0
/* Programs that the warden keeps running: each in a cgroup and of an account of its own. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_PROGRAM_H
#define RAMET_ORCHESTRATOR_WARDEN_PROGRAM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include "orchestrator/warden/account.h"
#include "orchestrator/warden/cgroup.h"

#define PROGRAM_FIRST_FD 3

struct program {
	const char *name; /* of its cgroup, and in the log */
	char *const *argv;
	struct account account;
	struct cgroup_limits limits;
	rlim_t files;	/* descriptors it may have; what the kernel gives if that is less */
	int exe;	/* the file to execute */
	const int *fds; /* it gets these as PROGRAM_FIRST_FD and on, and no other */
	size_t n_fds;
	int setup_exit; /* its status when it can't be executed, which it tells the log */
};

/* Starts it, without capabilities. Returns a pidfd, owned. */
int program_start(const struct cgroup_tree *tree, const struct program *p, struct err *e);

/* The pause in ms before the next start after `failures` in a row: from `first_ms`, doubled by each
 * failure, up to `most_ms`. */
uint64_t program_pause_ms(unsigned failures, uint64_t first_ms, uint64_t most_ms);

#endif
