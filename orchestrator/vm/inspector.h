// SPDX-License-Identifier: Apache-2.0
/* Lets the rooms below observe/, which implements the functions, start a report on a VM that makes
 * no progress. */
#ifndef RAMET_ORCHESTRATOR_VM_INSPECTOR_H
#define RAMET_ORCHESTRATOR_VM_INSPECTOR_H

#include <stdbool.h>

struct service;
struct inspection;
struct sandbox;
struct vmproc;

/* The result of an inspection, which is valid only during the call of inspected_fn. */
struct inspected {
	const char *text;
	bool vm_answers, agent_answers;
};
typedef void inspected_fn(void *arg, const struct inspected *found);

struct inspector {
	/* Starts an inspection. `s` is NULL if `vm` belongs to no sandbox; then the agent is not
	 * asked. `fn` is called once, from the loop, unless the inspection is cancelled. Returns
	 * NULL when too many inspections are in progress; for operators there is no limit. */
	struct inspection *(*start)(struct service *c, struct vmproc *vm, struct sandbox *s,
				    inspected_fn *fn, void *arg);
	/* Cancels an inspection. NULL is fine. */
	void (*cancel)(struct inspection *i);
	/* Logs the report `text` on a VM or call that makes no progress, unless many were logged
	 * recently. `what` names the VM or call. */
	void (*log)(struct service *c, const char *what, const char *text);
};

#endif
