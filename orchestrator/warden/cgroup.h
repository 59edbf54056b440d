// SPDX-License-Identifier: Apache-2.0
/*
 * The part of the cgroup v2 tree that is ours:
 *
 *   BASE/ramet/warden     this process
 *   BASE/ramet/service    the service
 *   BASE/ramet/notify     what sends webhooks, if it is wanted
 *   BASE/ramet/vm-SLOT    one VM process each, with its limits
 *
 * BASE is the cgroup rametd was started in, so that it works under systemd with Delegate=yes as
 * on a bare host. Processes are in leaves only, as the kernel asks (cgroup-v2.rst, "No Internal
 * Process Constraint").
 */
#ifndef RAMET_ORCHESTRATOR_WARDEN_CGROUP_H
#define RAMET_ORCHESTRATOR_WARDEN_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define CGROUP_PATH_MAX 512

struct cgroup_tree {
	int base;		    /* directory BASE */
	int top;		    /* directory BASE/ramet */
	const char *const *enabled; /* controllers in use; NULL-terminated */
	bool base_is_root;	    /* the top of the hierarchy may hold processes */
	bool base_is_named;	    /* by the setting `cgroup`: nothing else is in it */
	bool base_is_made;	    /* by us */
	bool io;		    /* the io controller is in use as well */
	pid_t with;		    /* goes where this process goes; 0: nobody */
	char path[CGROUP_PATH_MAX]; /* of BASE, for messages */
};

/* The share of a cgroup where CPUs and disks are short. */
#define CGROUP_WEIGHT_IDLE  1 /* only what all others leave */
#define CGROUP_WEIGHT_MOST  10000
#define CGROUP_WEIGHT_USUAL 100 /* as the kernel gives it */

/* Whose pages go when memory is short, those that can be read again: of what is FIRST before that
 * of what is LAST. */
enum cgroup_reclaim { CGROUP_RECLAIM_FIRST = 1, CGROUP_RECLAIM_LAST };

struct cgroup_limits {
	/* 0: none, or what the kernel gives, or as it was */
	uint64_t memory_max;  /* bytes */
	uint32_t cpu_max_pct; /* of one CPU */
	uint32_t weight;      /* from CGROUP_WEIGHT_IDLE to CGROUP_WEIGHT_MOST */
	uint32_t pids_max;
	enum cgroup_reclaim reclaim;
};

/* memory, cpu and pids: what a jail can't be without. With io, where it is given, VMs share a disk
 * by their weights. There is no io.max: it would hold back data of one VM that the journal of the
 * file system writes before anybody's fsync is answered (the limits are in the VM's disk). */
extern const char *const cgroup_controllers[];

/*
 * Finds BASE (`wanted`: its path in the hierarchy, made if it is missing; or empty for the own
 * one), makes the tree with `controllers` enabled for the VMs and moves this process into `warden`,
 * and the process `with` (0: none), which would be in the way of that in a BASE that is the own
 * one. What an earlier warden left is kept; -EEXIST when one is at work there. On failure nothing
 * is open.
 */
int cgroup_tree_open(struct cgroup_tree *t, const char *wanted, pid_t with,
		     const char *const *controllers, struct err *e);
/* Closes the tree; with `remove` also takes it away, as far as it is empty. */
void cgroup_tree_close(struct cgroup_tree *t, bool remove);

/* Sets what BASE/ramet may take as a whole: bytes, at which the kernel ends a VM and the rest of
 * the host notices nothing, and its share of the CPUs beside the rest of the host. */
int cgroup_limit_all(const struct cgroup_tree *t, uint64_t memory_max, uint32_t weight,
		     struct err *e);

/* Makes `name` under BASE/ramet with those limits (NULL: none). Returns its directory, owned. */
int cgroup_make(const struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits,
		struct err *e);
/* Sets those limits of it that are not 0. */
int cgroup_limit(const struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits,
		 struct err *e);
/* The bytes of memory that are charged to it and not page cache, which goes when room is needed.
 * -ENOTSUP without the memory controller. */
int cgroup_charged(const struct cgroup_tree *t, const char *name, uint64_t *bytes, struct err *e);
/* Sets oom_score_adj of every process in it. */
int cgroup_oom_score(const struct cgroup_tree *t, const char *name, const char *score,
		     struct err *e);
/* 0 also when there is none of that name. */
int cgroup_remove(const struct cgroup_tree *t, const char *name, struct err *e);
/* Kills everything in it, forks in flight included. 0 also when there is none of that name. */
int cgroup_kill(const struct cgroup_tree *t, const char *name, struct err *e);
/* Opens cgroup.events of `name`: EPOLLPRI when `populated` changed. */
int cgroup_watch(const struct cgroup_tree *t, const char *name, struct err *e);
/* 1 while the cgroup of that events file holds a live process, 0 when not; -errno. */
int cgroup_populated(int events);
/* Kills everything in it and waits until it is gone; for start-up only. */
int cgroup_empty(const struct cgroup_tree *t, const char *name, struct err *e);

/* Calls each(arg, slot) for every vm-SLOT there is. */
int cgroup_each_vm(const struct cgroup_tree *t, void (*each)(void *arg, uint32_t slot), void *arg,
		   struct err *e);

/* --- parsing, apart for tests ------------------------------------------------------------- */

/* One line of /proc/self/mountinfo: true when it is a cgroup v2 mount; then fills `root` (what
 * of the hierarchy is mounted) and `point` (where). */
bool cgroup_mount_line(const char *line, char root[static CGROUP_PATH_MAX],
		       char point[static CGROUP_PATH_MAX]);
/* One line of /proc/self/cgroup: true when it names the own cgroup v2 path; then fills it. */
bool cgroup_own_line(const char *line, char path[static CGROUP_PATH_MAX]);
/* The number N of "vm-N" in its only spelling; false for any other name. */
bool cgroup_vm_name(const char *name, uint32_t *slot);

#endif
