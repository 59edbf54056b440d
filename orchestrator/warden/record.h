// SPDX-License-Identifier: Apache-2.0
/*
 * Which requests ended a warden with a signal. The service repeats a request that was not answered,
 * such as the start of a VM in the first free slot, so without this record one that crashes the
 * warden would crash each of its successors.
 */
#ifndef RAMET_ORCHESTRATOR_WARDEN_RECORD_H
#define RAMET_ORCHESTRATOR_WARDEN_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/warden.h"

struct warden_record;

/* Returns a record in memory that child processes share, for as long as rametd runs; NULL: out of
 * memory. The functions below accept NULL and then do nothing. */
struct warden_record *warden_record_new(void);

/* Notes that the warden begins to serve a checked request, and that it has served it. */
void record_begin(struct warden_record *r, const struct warden_msg *m);
void record_end(struct warden_record *r);

/* Called by a new warden. `crashed`: a signal other than SIGKILL ended the previous one. Returns
 * true if that was while it served a request, and fills *type and *slot. */
bool record_take_over(struct warden_record *r, bool crashed, uint32_t *type, uint32_t *slot);

/* Returns true if this request, which is checked, ended the last two wardens that served it. */
bool record_refuses(const struct warden_record *r, const struct warden_msg *m);

#endif
