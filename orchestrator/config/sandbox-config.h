// SPDX-License-Identifier: Apache-2.0
/*
 * The configuration of a sandbox. Create requests, sandboxes, Spaces, their views and their
 * catalogue rows embed it, and copy it as a whole.
 *
 * It holds no pointers, so an assignment copies it. Metadata and environment are separate, because
 * their owners differ: a sandbox and a Space own copies; requests, views and rows borrow them.
 */
#ifndef RAMET_ORCHESTRATOR_CONFIG_SANDBOX_CONFIG_H
#define RAMET_ORCHESTRATOR_CONFIG_SANDBOX_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define SANDBOX_NAME_MAX 63 /* bytes of a template's name */
#define LABELS_MAX	 64
#define LABELS_BYTES_MAX (4u << 10) /* bytes of all names and values */

/* The resources of a VM. */
struct size {
	uint32_t vcpus, ram_mib, rootfs_gb;
};

/* A create request may leave out values: the sandbox gets the defaults named here. */
struct sandbox_config {
	char template[SANDBOX_NAME_MAX + 1]; /* empty: the default template */
	struct size size;		     /* each 0: the template's own */
	uint32_t timeout_s, idle_timeout_s;  /* 0: the configured defaults */
	/* At the end of a time limit, the sandbox is frozen instead of ended. Always false in a
	 * Space and its row: each resume sets it again. */
	bool persistent;
	bool egress; /* has network access */
	/* A checkpoint is taken after each call, and so many of the last ones are kept; 0: none is
	 * taken. Belongs to one sandbox: always 0 in a Space and its row. */
	uint32_t checkpoint_calls;
};

/* The values are those in the catalogue. */
enum checkpoint_kind {
	CHECKPOINT_ASKED,
	CHECKPOINT_OF_CALL, /* taken by the service after a call */
	CHECKPOINT_UNDONE,  /* CHECKPOINT_OF_CALL until the sandbox went back to an older one */
};

/* A client's rating of a sandbox; higher is better. */
struct score {
	bool given;
	double value;
};

/* What happens to a fork that would exceed the limit `live` or `ram_mib` of its tree's budget. The
 * values are those in the catalogue. */
enum tree_at_limit {
	TREE_REFUSE,
	TREE_WAIT,
	TREE_FREEZE_OLDEST_LEAF,
	TREE_END_LOWEST_SCORE,
};

/* The budget of a tree: of a root sandbox and all its descendants together. 0: no limit. */
struct tree_budget {
	uint32_t live; /* sandboxes at one time */
	uint64_t ram_mib;
	uint32_t cpu_s, wall_s;
	uint32_t depth; /* forks from the root to a sandbox */
	enum tree_at_limit at_limit;
};

#endif
