// SPDX-License-Identifier: Apache-2.0
/*
 * The control socket (proto/ctl.h): takes requests from the newest connection, checks each as
 * hostile, and answers. All on the loop's thread.
 */
#ifndef RAMET_VMM_CTL_H
#define RAMET_VMM_CTL_H

#include <stddef.h>

#include "base/err.h"
#include "proto/ctl.h"
#include "vmm/config.h"
#include "vmm/dev/loop.h"
#include "vmm/vm.h"

struct ctl;

/* `vm` and `loop` outlive it; CTL_QUIT stops the loop. */
int ctl_new(struct ctl **out, const struct config *cfg, struct loop *loop, struct vm *vm,
	    struct err *e);
void ctl_free(struct ctl *c);

/*
 * Whether `m`, of which `bytes` were received together with `nfds` descriptors, is a request that
 * keeps the protocol: 0, or -EPROTO with a sentence. Pure, for tests and fuzzers.
 */
int ctl_check(const struct ctl_msg *m, size_t bytes, unsigned nfds, struct err *e);

#endif
