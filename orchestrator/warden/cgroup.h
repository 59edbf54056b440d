// SPDX-License-Identifier: Apache-2.0
/*
 * The part of the cgroup v2 tree that rametd manages:
 *
 *   BASE/ramet/warden     this process
 *   BASE/ramet/service    the service
 *   BASE/ramet/notify     the sender of webhooks, if configured
 *   BASE/ramet/vm-SLOT    one VM process each, with its limits
 *
 * BASE is the cgroup that rametd was started in, so that it works under systemd with Delegate=yes
 * and on a bare host. Processes are in leaves only, as the kernel requires (cgroup-v2.rst, "No
 * Internal Process Constraint").
 */
#ifndef RAMET_ORCHESTRATOR_WARDEN_CGROUP_H
#define RAMET_ORCHESTRATOR_WARDEN_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"

#define CGROUP_PATH_MAX 512

struct cgroup_tree {
	int base;		    /* directory BASE */
	int top;		    /* directory BASE/ramet */
	const char *const *enabled; /* controllers in use; NULL-terminated */
	bool base_is_root;	    /* the root cgroup may hold processes */
	bool base_is_named;	    /* by the setting `cgroup`: holds nothing else */
	bool base_is_made;	    /* created by this process */
	bool io;		    /* the io controller is in use as well */
	pid_t with;		    /* the supervisor, which moves with this process; 0: none */
	char path[CGROUP_PATH_MAX]; /* path of BASE, for messages */
};

/* Weights: the share of contended CPUs and disks. */
#define CGROUP_WEIGHT_IDLE  1 /* gets only what all others leave */
#define CGROUP_WEIGHT_MOST  10000
#define CGROUP_WEIGHT_USUAL 100 /* the kernel's default */

/* Order in which cgroups lose reclaimable pages under memory pressure. */
enum cgroup_reclaim { CGROUP_RECLAIM_FIRST = 1, CGROUP_RECLAIM_LAST };

struct cgroup_limits {
	/* 0: not set, so the kernel's default or the previous limit applies */
	uint64_t memory_max;  /* bytes */
	uint32_t cpu_max_pct; /* percent of one CPU */
	uint32_t weight;      /* from CGROUP_WEIGHT_IDLE to CGROUP_WEIGHT_MOST */
	uint32_t pids_max;
	enum cgroup_reclaim reclaim;
};

/* memory, cpu and pids are required for a jail. With io, where available, VMs share a disk by their
 * weights. There is no io.max: it would hold back data of one VM that the file system's journal
 * must write before it can answer anybody's fsync. The VM's disk device has limits instead. */
extern const char *const cgroup_controllers[];

/* Finds the path of BASE (see below), which need not exist, and the mount point above it. */
int cgroup_find_base(char path[static CGROUP_PATH_MAX], char point[static CGROUP_PATH_MAX],
		     const char *wanted, struct err *e);

/*
 * Opens the tree below BASE. `wanted` is BASE's path in the hierarchy, created if missing, or empty
 * for the current cgroup. Moves this process into `warden` and enables `controllers` for the VMs.
 * If BASE is the current cgroup, it must hold no process then, so the process `with` (0: none) is
 * moved, too. Keeps what a previous warden left. Returns -EEXIST when another warden uses the tree.
 * On failure nothing is open.
 */
int cgroup_tree_open(struct cgroup_tree *t, const char *wanted, pid_t with,
		     const char *const *controllers, struct err *e);
/* Closes the tree; with `remove` also removes its empty parts. */
void cgroup_tree_close(struct cgroup_tree *t, bool remove);

/* Sets limits for all of BASE/ramet: memory in bytes, beyond which the kernel kills a VM without
 * effect on the rest of the host, and the CPU weight relative to the rest of the host. */
int cgroup_limit_all(const struct cgroup_tree *t, uint64_t memory_max, uint32_t weight,
		     struct err *e);

/* Creates `name` under BASE/ramet with these limits (NULL: none). Returns its directory, owned by
 * the caller. */
int cgroup_make(const struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits,
		struct err *e);
/* Sets the limits that are not 0. */
int cgroup_limit(const struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits,
		 struct err *e);
/* Returns in *bytes the memory charged to the cgroup without page cache, which can be reclaimed.
 * Fails with -ENOTSUP without the memory controller. */
int cgroup_charged(const struct cgroup_tree *t, const char *name, uint64_t *bytes, struct err *e);
/* Sets oom_score_adj of every process in the cgroup to `score`. */
int cgroup_oom_score(const struct cgroup_tree *t, const char *name, const char *score,
		     struct err *e);
/* Removes the cgroup. Returns 0 also when it does not exist. */
int cgroup_remove(const struct cgroup_tree *t, const char *name, struct err *e);
/* Kills every process in the cgroup, including forks in progress. Returns 0 also when it does not
 * exist. */
int cgroup_kill(const struct cgroup_tree *t, const char *name, struct err *e);
/* Opens cgroup.events of `name`, which signals EPOLLPRI when `populated` changes. */
int cgroup_watch(const struct cgroup_tree *t, const char *name, struct err *e);
/* Returns 1 while the cgroup of that events file holds a live process, 0 when not, or -errno. */
int cgroup_populated(int events);
/* Kills every process in the cgroup and waits until all are gone. Blocks: for start-up only. */
int cgroup_empty(const struct cgroup_tree *t, const char *name, struct err *e);

/* Calls each(arg, slot) for every existing vm-SLOT. */
int cgroup_each_vm(const struct cgroup_tree *t, void (*each)(void *arg, uint32_t slot), void *arg,
		   struct err *e);

/* --- parsing, separate for tests ---------------------------------------------------------- */

/* Parses a line of /proc/self/mountinfo. Returns true for a cgroup v2 mount, with the mounted
 * subtree in `root` and the mount point in `point`. */
bool cgroup_mount_line(const char *line, char root[static CGROUP_PATH_MAX],
		       char point[static CGROUP_PATH_MAX]);
/* Finds the cgroup v2 mount that shows most of the hierarchy: a unit may show a part of it a second
 * time, because only that part may be written to. Returns false if there is none. */
bool cgroup_find_mount(FILE *mountinfo, char root[static CGROUP_PATH_MAX],
		       char point[static CGROUP_PATH_MAX]);
/* Parses a line of /proc/self/cgroup. Returns true for the process's own cgroup v2 path, copied to
 * `path`. */
bool cgroup_own_line(const char *line, char path[static CGROUP_PATH_MAX]);
/* Parses the number N of "vm-N" in its canonical spelling; returns false for any other name. */
bool cgroup_vm_name(const char *name, uint32_t *slot);

#endif
