// SPDX-License-Identifier: Apache-2.0
/*
 * A look at a VM that stands still: what the service knows of it, what the VM process says of its
 * vCPUs and devices, and what the host's kernel says of its threads. The VM process is not trusted,
 * and need not answer.
 */
#ifndef RAMET_ORCHESTRATOR_VM_LOOK_H
#define RAMET_ORCHESTRATOR_VM_LOOK_H

#include "base/report.h"
#include "orchestrator/vm/vmproc.h"

#define VM_LOOK_TEXT_MAX (CTL_REPORT_MAX + (32u << 10))
#define VM_LOOK_MS	 3000 /* for the VM process to answer */

struct vmproc_look;

/* `answers`: the VM process did, if only to say that it can't tell. The text is good during the
 * call. */
typedef void vmproc_look_fn(void *arg, bool answers, const char *text);
/* `fn` comes once, from the loop, also when the VM dies or is dropped meanwhile. NULL: no memory,
 * and `fn` does not come. */
struct vmproc_look *vmproc_look(struct vmproc *vm, vmproc_look_fn *fn, void *arg);
/* `fn` will not be called. NULL is fine. */
void vmproc_look_cancel(struct vmproc_look *l);

/* Adds what the service knows of the VM, its requests under way included. */
void vmproc_report(const struct vmproc *vm, struct report *r);

#endif
