// SPDX-License-Identifier: Apache-2.0
/*
 * Collects a report on a VM that seems stuck: what the service knows of the VM, what the VM process
 * says about its vCPUs and devices, and what the host's kernel says about its threads. The VM
 * process is not trusted and may not answer.
 */
#ifndef RAMET_ORCHESTRATOR_VM_LOOK_H
#define RAMET_ORCHESTRATOR_VM_LOOK_H

#include "orchestrator/vm/vmproc.h"

#define VM_LOOK_TEXT_MAX (CTL_REPORT_MAX + (32u << 10))
#define VM_LOOK_MS	 3000 /* deadline for the VM process's answer */

struct vmproc_look;

/* `answers`: the VM process replied, possibly with an error. `text` is valid during the call only.
 */
typedef void vmproc_look_fn(void *arg, bool answers, const char *text);
/* Starts a report. Calls `fn` with it once, from the loop, also if the VM dies or is dropped
 * meanwhile. */
struct vmproc_look *vmproc_look(struct vmproc *vm, vmproc_look_fn *fn, void *arg);
/* Cancels the report: `fn` is not called. NULL is fine. */
void vmproc_look_cancel(struct vmproc_look *l);

#endif
