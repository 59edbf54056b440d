// SPDX-License-Identifier: Apache-2.0
/* Connects to the agent in a VM and retries while the guest is not ready. */
#ifndef RAMET_ORCHESTRATOR_VM_DIAL_H
#define RAMET_ORCHESTRATOR_VM_DIAL_H

#include "orchestrator/vm/vmproc.h"

struct dial;

/* Gets the connection `fd`, which the callee then owns, or -1 with the reason in `text`. */
typedef void dial_fn(void *arg, int fd, const char *text);

/* Tries to connect for `ms`, or with `while_working` until the VM process has made no progress for
 * `ms`: for VMs that may be slow and are unusable without a connection. Calls `fn` once, from the
 * loop, unless cancelled. The handle is invalid after that call. */
struct dial *dial_start(struct vmproc *vm, uint32_t ms, bool while_working, dial_fn *fn, void *arg);
/* Ends the attempt; `fn` is not called. Must be called before the VM is dropped. NULL is fine. */
void dial_cancel(struct dial *d);

#endif
