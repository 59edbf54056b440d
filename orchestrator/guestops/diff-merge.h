// SPDX-License-Identifier: Apache-2.0
/*
 * Compares two listings of a tree, each in the order of AGENT_TREE, while they arrive. Entries that
 * are not compared yet are bounded by back-pressure on the side that is ahead. The number and the
 * size of differing paths have limits.
 */
#ifndef RAMET_ORCHESTRATOR_GUESTOPS_DIFF_MERGE_H
#define RAMET_ORCHESTRATOR_GUESTOPS_DIFF_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/list.h"
#include "orchestrator/agent/agent.h"
#include "orchestrator/guestops/guestops.h"

#define DIFF_FOUND_MAX	     200000u
#define DIFF_FOUND_BYTES_MAX (16u << 20)  /* bytes of all differing paths together */
#define DIFF_AHEAD_MAX	     (256u << 10) /* bytes of uncompared entries before back-pressure */

struct diff_entry;

struct diff_side {
	struct list ahead; /* struct diff_entry: not compared yet */
	size_t ahead_bytes;
	struct diff_entry *last; /* the entry received last; the next one must sort after it */
	bool ended;		 /* the listing of the root is complete */
};

struct diff_merge {
	struct diff_side side[2];
	struct service_diff *found;
	const char *root;
};

void diff_merge_init(struct diff_merge *m);
void diff_merge_fini(struct diff_merge *m);
/* Starts the comparison of the trees under `root`: absolute, without a trailing slash, not copied.
 * May be called again for the next root once both sides have ended. */
void diff_merge_begin(struct diff_merge *m, const char *root);
/* Adds the next entry of a side. Returns 0; or, with *e filled, -EPROTO when the guest violates the
 * protocol, -EFBIG when the differing paths exceed a limit, or -ENOMEM. */
int diff_merge_entry(struct diff_merge *m, unsigned side, const struct agent_entry *entry,
		     struct err *e);
/* Ends the listing of a side. Errors as for diff_merge_entry. */
int diff_merge_end(struct diff_merge *m, unsigned side, struct err *e);
/* Returns true when both sides have ended and every entry was compared. */
bool diff_merge_complete(const struct diff_merge *m);
/* Returns true while this side must not be read, because the other has to catch up. */
bool diff_merge_is_ahead(const struct diff_merge *m, unsigned side);
/* Takes the result, unsorted. Nothing but diff_merge_fini may follow. */
struct service_diff *diff_merge_take(struct diff_merge *m);

#endif
