// SPDX-License-Identifier: Apache-2.0
/*
 * Two listings of a tree, each in the order of AGENT_TREE, compared as they come. What was read and
 * not yet compared is bounded by holding back the side that is ahead, what was found by a limit.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_DIFF_H
#define RAMET_ORCHESTRATOR_CORE_DIFF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/list.h"
#include "orchestrator/agent/agent.h"
#include "orchestrator/core/core.h"

#define DIFF_FOUND_MAX	     200000u
#define DIFF_FOUND_BYTES_MAX (16u << 20) /* of all paths found */
#define DIFF_AHEAD_MAX	     (256u << 10)

struct diff_entry;

struct diff_side {
	struct list ahead; /* struct diff_entry: waits for the other side's */
	size_t ahead_bytes;
	struct diff_entry *last; /* what came last: what comes next must be behind it */
	bool ended;		 /* all that is under the root has come */
};

struct diff_found {
	char **paths;
	size_t n, room;
};

enum diff_kind { DIFF_ADDED, DIFF_REMOVED, DIFF_MODIFIED, DIFF_NKINDS };

struct diff_merge {
	struct diff_side side[2];
	struct diff_found found[DIFF_NKINDS];
	size_t n_found, found_bytes;
	const char *root;
};

void diff_merge_init(struct diff_merge *m);
void diff_merge_fini(struct diff_merge *m);
/* Both sides list what is under `root` from here on: absolute, without a slash at its end, kept by
 * the caller. Several may follow each other. */
void diff_merge_begin(struct diff_merge *m, const char *root);
/* The next entry of a side. -EPROTO: a guest that keeps the rules does not send it; -EFBIG: more
 * differs than can be told; -ENOMEM. */
int diff_merge_entry(struct diff_merge *m, unsigned side, const struct agent_entry *entry,
		     struct err *e);
int diff_merge_end(struct diff_merge *m, unsigned side, struct err *e);
/* All that is under the root was compared. */
bool diff_merge_complete(const struct diff_merge *m);
/* Nothing more is to be read from this side until the other has caught up. */
bool diff_merge_is_ahead(const struct diff_merge *m, unsigned side);
/* The result, sorted, each path once; good until fini. */
void diff_merge_result(struct diff_merge *m, struct core_diff *out);

#endif
