// SPDX-License-Identifier: Apache-2.0
/* Validates requests of the service. The warden uses no request that was not checked here. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_REQUEST_H
#define RAMET_ORCHESTRATOR_WARDEN_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/warden.h"

/*
 * Checks one packet of `len` bytes (the received length: larger than the struct when it was
 * truncated) and copies it to *out. Returns 0, or -errno with *e filled; *seq is then the sequence
 * number to answer, or 0 when the packet is too short to contain one.
 */
int request_check(struct warden_msg *out, uint32_t *seq, const void *packet, size_t len,
		  uint32_t max_slots, struct err *e);

#endif
