// SPDX-License-Identifier: Apache-2.0
/*
 * The control socket (proto/ctl.h). Takes requests from the newest connection, checks each as
 * hostile, and answers it. Everything runs on the loop's thread.
 */
#ifndef RAMET_VMM_CTL_H
#define RAMET_VMM_CTL_H

#include <stddef.h>

#include "base/err.h"
#include "proto/ctl.h"
#include "vmm/config.h"
#include "vmm/dev/event-loop.h"
#include "vmm/vm.h"

/*
 * Serves the socket cfg->ctl_fd. `cfg`, `loop` and `vm` must stay valid until the process ends.
 * CTL_QUIT stops the loop.
 */
int ctl_serve(const struct vm_config *cfg, struct event_loop *loop, struct vm *vm, struct err *e);

/*
 * Checks that `m`, received with `bytes` bytes and `nfds` descriptors, is a valid request. Returns
 * 0, or -EPROTO with a message. It has no side effects, so tests and fuzzers can call it.
 */
int ctl_check_request(const struct ctl_msg *m, size_t bytes, unsigned nfds, struct err *e);

#endif
