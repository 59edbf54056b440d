// SPDX-License-Identifier: Apache-2.0
/* Whether the host has room for more sandboxes: VMs (create.c), RAM (promise.c). */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_CAPACITY_H
#define RAMET_ORCHESTRATOR_SANDBOX_CAPACITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct service;
struct failure;

/* Returns true when the host has memory left, and VM slots for `n` more sandboxes; slots of the
 * pool's VMs count as free. Else returns false with *f filled. */
bool host_has_room(struct service *c, size_t n, struct failure *f);
/* Schedules an update of the VMs' OOM scores: when memory runs out, the kernel first kills VMs of
 * tenants who were promised more than their share. */
void promises_changed(struct service *c);
/* Updates the OOM scores after the VMs' memory was measured. `arg` is the service. */
void promises_measured(void *arg);
/* Returns true when the RAM of all sandboxes, including those being made, plus `mib` is within the
 * setting memory_overcommit (0: no limit); else false with *f filled. */
bool promises_have_room(const struct service *c, uint64_t mib, struct failure *f);
/* Finds how much memory sandboxes use of how much, in MiB: as promised if memory_overcommit is set,
 * or else as the host's processes use it. */
void promises_room(const struct service *c, uint64_t *used_mib, uint64_t *total_mib);
/* Returns how many creates look for their template, and will then take a warm sandbox. */
uint32_t creates_choosing(const struct service *c);

#endif
