// SPDX-License-Identifier: Apache-2.0
/* Connects to the agent in a VM and retries while the guest is not ready. */
#ifndef RAMET_ORCHESTRATOR_VM_DIAL_H
#define RAMET_ORCHESTRATOR_VM_DIAL_H

#include "orchestrator/vm/vmproc.h"

struct dial;

/* Gets the connection `fd`, which the callee then owns, or -1 with the reason in `text`. */
typedef void dial_fn(void *arg, int fd, const char *text);

/* Tries to connect for `limit_ms`. Calls `fn` once, from the loop, unless cancelled. The handle is
 * invalid after that call. */
struct dial *dial_start(struct vmproc *vm, uint32_t limit_ms, dial_fn *fn, void *arg);
/* Like dial_start, but gives up only after the VM process has made no progress for `stalled_ms`:
 * for VMs that may be slow and are unusable without a connection. */
struct dial *dial_while_working(struct vmproc *vm, uint32_t stalled_ms, dial_fn *fn, void *arg);
/* Ends the attempt; `fn` is not called. Must be called before the VM is dropped. NULL is fine. */
void dial_cancel(struct dial *d);

#endif
