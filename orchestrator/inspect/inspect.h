// SPDX-License-Identifier: Apache-2.0
/*
 * The report on a VM and its sandbox, which shows why the VM makes no progress: the service's view,
 * then the VM's (orchestrator/vm/look.h), then whether the guest's agent answers. An inspection
 * can't end the VM or its calls.
 */
#ifndef RAMET_ORCHESTRATOR_INSPECT_INSPECT_H
#define RAMET_ORCHESTRATOR_INSPECT_INSPECT_H

#include "base/list.h"
#include "orchestrator/sandbox/inspector.h"
#include "orchestrator/sandbox/part.h"

struct inspect_core {
	struct list inspections; /* struct inspection: in progress */
	unsigned n_inspections;
	struct stall_reports {
		unsigned written, left_out; /* recent counts */
		uint64_t since_ms;
	} stall_reports;
};
extern struct part inspect_part;
static inline struct inspect_core *inspect_of_core(const struct core *c)
{
	return part_of_core(&inspect_part, c);
}

/* Returns whether the limit of automatic inspections is reached. Inspections that an operator
 * requests start regardless. */
bool inspections_full(const struct core *c);
/* Starts an inspection. `s` may be NULL: then `vm` belongs to no sandbox and its agent is not
 * asked. `fn` is called once, from the loop, unless the inspection is cancelled. */
struct inspection *inspection_start(struct core *c, struct vmproc *vm, struct sandbox *s,
				    inspected_fn *fn, void *arg);
/* Cancels an inspection; its callback is not called. Accepts NULL. */
void inspection_cancel(struct inspection *i);
/* Logs the report on a stalled VM, unless too many were logged recently. `what` names the VM. */
void stall_log(struct core *c, const char *what, const char *text);

#endif
