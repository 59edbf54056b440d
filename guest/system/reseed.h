// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_SYSTEM_RESEED_H
#define RAMET_GUEST_SYSTEM_RESEED_H

#include "guest/frame.h"
#include "guest/system/system.h"

/*
 * Makes a restored guest unique: entropy, boot id, clock (stepped only when it is off by more than
 * a millisecond), host name; ends the TCP connections of the original. Then opens the network. The
 * driver reseeds Python's generators. Returns 0 or -errno; the error names the step that failed,
 * and the steps before it are done.
 */
int reseed_apply(const struct reseed_request *r, const struct system_ops *sys, struct err *e);

#endif
