// SPDX-License-Identifier: Apache-2.0
/*
 * The report on a VM and its sandbox, for people who want to know why it stands still: the
 * service's view, then the VM's (orchestrator/vm/look.h), then whether the guest's agent answers.
 * Nothing of it can end the VM or its calls.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_INSPECT_H
#define RAMET_ORCHESTRATOR_CORE_INSPECT_H

#include "base/report.h"
#include "orchestrator/core/internal.h"

/* Good during the call only. */
struct inspected {
	const char *text;
	bool vm_answers, agent_answers;
};
typedef void inspected_fn(void *arg, const struct inspected *found);

struct inspection;
/* True when as many are under way as may be by themselves. What an operator asks for begins all the
 * same. */
bool inspections_full(const struct core *c);
/* `s` may be NULL: then `vm` is no sandbox's, and its agent is not asked. `fn` comes once, from the
 * loop, unless it is cancelled. */
struct inspection *inspection_start(struct core *c, struct vmproc *vm, struct sandbox *s,
				    inspected_fn *fn, void *arg);
/* NULL is fine. */
void inspection_cancel(struct inspection *i);

/* Writes a report to the log, for a VM that stands still; unless many were lately. `what` names
 * it. */
void stall_log(struct core *c, const char *what, const char *text);

/* exec.c: adds lines on the calls of a sandbox. */
void exec_report(const struct sandbox *s, struct report *r);

#endif
