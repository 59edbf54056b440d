// SPDX-License-Identifier: Apache-2.0
/* Gets a connection to the agent in a VM, trying again while the guest is not there yet. */
#ifndef RAMET_ORCHESTRATOR_VM_DIAL_H
#define RAMET_ORCHESTRATOR_VM_DIAL_H

#include "orchestrator/vm/vmproc.h"

struct dial;

/* `fd` is -1 on failure, with a sentence; else it is the callee's. */
typedef void dial_fn(void *arg, int fd, const char *text);

/* Tries for `limit_ms`. `fn` comes once, from the loop, unless cancelled; then the handle is gone.
 */
struct dial *dial_start(struct vmproc *vm, uint32_t limit_ms, dial_fn *fn, void *arg);
/* The same, but tries until the VM process has stood still for `still_ms`: for VMs that are of no
 * use without a connection, and may be slow. */
struct dial *dial_while_working(struct vmproc *vm, uint32_t stalled_ms, dial_fn *fn, void *arg);
/* NULL is fine. To be called before the VM is dropped. */
void dial_cancel(struct dial *d);

#endif
