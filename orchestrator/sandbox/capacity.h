// SPDX-License-Identifier: Apache-2.0
/* Whether the host has room for more sandboxes: enough VM slots (create.c), and enough RAM
 * (promise.c). */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_CAPACITY_H
#define RAMET_ORCHESTRATOR_SANDBOX_CAPACITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct service;
struct failure;

/* Returns true when the host has memory left, and VM slots for `n` more sandboxes. Slots of the
 * pool's VMs count as free, because the pool gives its VMs up. Else returns false with *f filled.
 */
bool host_has_room(struct service *c, size_t n, struct failure *f);
/* Schedules an update of the VMs' OOM scores: when memory runs out, the kernel first kills VMs of
 * tenants who were promised more than their share. */
void promises_changed(struct service *c);
/* Updates the OOM scores after the VMs' memory was measured. `arg` is the service. */
void promises_measured(void *arg);
/* Returns true when the RAM of all sandboxes, including those being made, plus `mib` is within the
 * setting memory_overcommit (0: no limit); else false with *f filled. */
bool promises_have_room(const struct service *c, uint64_t mib, struct failure *f);
/* Returns in *total_mib the memory for sandboxes, and in *used_mib how much of it is used: with
 * memory_overcommit set, what is promised to sandboxes; else what all processes of the host use. */
void promises_room(const struct service *c, uint64_t *used_mib, uint64_t *total_mib);
/* Returns how many creates are still looking for their template on disk. Each of them will take a
 * warm sandbox, so that many fewer are left for other creates. */
uint32_t creates_choosing(const struct service *c);

#endif
