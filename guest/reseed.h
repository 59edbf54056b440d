// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_RESEED_H
#define RAMET_GUEST_RESEED_H

#include "guest/frame.h"
#include "guest/system.h"

/*
 * Makes a restored guest unique: entropy, boot id, clock (stepped only when it is off by more than
 * a millisecond), host name, no connections of the old one. Then lets its frames out. Python's own
 * generators are the driver's part. 0 or -errno; the sentence names the step that failed, and those
 * before it were done.
 */
int reseed_apply(const struct reseed_request *r, const struct system_ops *sys, struct err *e);

#endif
