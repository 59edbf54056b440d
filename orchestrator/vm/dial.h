// SPDX-License-Identifier: Apache-2.0
/* Connects to the agent in a VM and retries while the guest is not ready. */
#ifndef RAMET_ORCHESTRATOR_VM_DIAL_H
#define RAMET_ORCHESTRATOR_VM_DIAL_H

#include "orchestrator/vm/vmproc.h"

struct dial;

/* `fd` is -1 on failure, with the reason in `text`; otherwise the callee owns it. */
typedef void dial_fn(void *arg, int fd, const char *text);

/* Tries for `limit_ms`. Calls `fn` once, from the loop, unless cancelled. The handle is invalid
 * after that call. */
struct dial *dial_start(struct vmproc *vm, uint32_t limit_ms, dial_fn *fn, void *arg);
/* Like dial_start, but retries until the VM process has made no progress for `stalled_ms`: for VMs
 * that are unusable without a connection and may be slow. */
struct dial *dial_while_working(struct vmproc *vm, uint32_t stalled_ms, dial_fn *fn, void *arg);
/* Must be called before the VM is dropped. Accepts NULL. */
void dial_cancel(struct dial *d);

#endif
