// SPDX-License-Identifier: Apache-2.0
/* The plan of a merge of files: the changes of each path, and what the guest made of them. */
#ifndef RAMET_ORCHESTRATOR_GUESTOPS_MERGE_PLAN_H
#define RAMET_ORCHESTRATOR_GUESTOPS_MERGE_PLAN_H

#include "base/err.h"
#include "orchestrator/guestops/diff-result.h"
#include "orchestrator/guestops/guestops.h"
#include "orchestrator/json/text.h"

#define MERGE_PATHS_MAX 20000u	   /* changes of all branches together */
#define MERGE_BYTES_MAX (2u << 20) /* of their paths */

/* Collects the changes of a branch against the base. The paths stay in `d`, which must outlive the
 * plan. Returns 0 or, with *e filled, -EFBIG or -ENOMEM. */
int merge_plan_add(struct merge_plan *p, unsigned branch, const struct service_diff *d,
		   struct err *e);
/* Sorts the paths, and makes one entry of each. Returns 0 or, with *e filled, -EAGAIN: the base
 * changed meanwhile. */
int merge_plan_sort(struct merge_plan *p, struct err *e);
/* Writes the list of files to copy from a source: 0 is the base, 1 the first branch, … */
void merge_plan_list(const struct merge_plan *p, unsigned source, struct text *out);
/* Writes the plan for merge_files.py. */
void merge_plan_text(const struct merge_plan *p, struct text *out);
/* Reads what the guest reports on the paths: for each a letter (enum merge_outcome) and another one
 * (enum merge_resolution). Returns 0 or, with *e filled, -EPROTO. */
int merge_plan_read(struct merge_plan *p, const void *said, size_t len, struct err *e);
void merge_plan_free(struct merge_plan *p);

#endif
