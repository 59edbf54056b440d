// SPDX-License-Identifier: Apache-2.0
/* Limits of the host that are too small for max_vms (docs/operating.md). */
#ifndef RAMET_ORCHESTRATOR_WARDEN_LIMITS_H
#define RAMET_ORCHESTRATOR_WARDEN_LIMITS_H

#include <stdint.h>

#include "orchestrator/config/config.h"

enum host_limit {
	LIMIT_NOFILE, /* RLIMIT_NOFILE, as far as root can raise it */
	LIMIT_NR_OPEN,
	LIMIT_FILE_MAX,
	LIMIT_PID_MAX,
	LIMIT_THREADS_MAX,
	LIMIT_MAP_COUNT,
	LIMIT_NET_NS,
	LIMIT_PID_NS,
	LIMIT_MNT_NS,
	LIMIT_IPC_NS,
	LIMIT_UTS_NS,
	LIMIT_CGROUP_NS,
	LIMIT_NEIGHBOURS,
	LIMIT_NEIGHBOURS6,
	LIMIT_CONNTRACK,
	LIMIT_TASKS,	   /* pids.max of the VMs' cgroups, or of one above */
	LIMIT_DESCENDANTS, /* cgroup.max.descendants of the same cgroups */
	LIMIT_DEPTH,	   /* cgroup.max.depth: levels below the base of rametd's cgroups */
	LIMITS,
};

/* The cgroup of VMs under systemd. */
#define LIMITS_UNIT_CGROUP "/system.slice/ramet-vms.service"

#define LIMIT_NONE UINT64_MAX /* unlimited, or unknown to this kernel */

struct host_limits {
	uint64_t most[LIMITS];
};

void limits_read(struct host_limits *out, const struct config *config);

/* Returns how much of a limit the setting max_vms needs; 0: nothing. */
uint64_t limits_need(enum host_limit limit, const struct config *config);

/* Calls notify(arg, sentence) for each limit that is too small, with the value that is needed and
 * how to set it. */
void limits_check(const struct host_limits *limits, const struct config *config,
		  void (*notify)(void *arg, const char *sentence), void *arg);

/* If no setting names a cgroup, and ramet-vms.service runs on the host whose files are below
 * `root`, sets config->cgroup to the cgroup of that unit. For programs that an operator starts in a
 * shell, whose own cgroup is that of the login. */
void limits_use_unit(struct config *config, const char *root);

/* Runs limits_check for this host. */
void limits_check_host(const struct config *config, void (*notify)(void *arg, const char *sentence),
		       void *arg);

#endif
