// SPDX-License-Identifier: Apache-2.0
/*
 * The value of the header Ramet-Load, by which a host tells another host in each answer how full
 * it is. The value is input: a peer may lie.
 */
#ifndef RAMET_ORCHESTRATOR_FLEET_LOAD_H
#define RAMET_ORCHESTRATOR_FLEET_LOAD_H

#include <stddef.h>

#include "orchestrator/fleet/place.h"

#define LOAD_TEXT_MAX (8 + 4 * PLACE_KINDS + 2 * 11)

/* Writes `used`, `closed`, the numbers of warm sandboxes, and what operators see, with spaces
 * between them. */
void load_print(char out[static LOAD_TEXT_MAX], const struct place_load *load);
/* Reads such a text of `len` bytes. Later versions may say more at its end; what operators see may
 * be missing, and counts as 0 then. Returns false, with *load unchanged, when it is invalid. */
bool load_read(struct place_load *load, const char *text, size_t len);

/*
 * Returns the kind of sandboxes of a template and size. All hosts compute the same one, and nothing
 * else: two kinds of sandboxes may have the same number. So a host that seems to have a warm
 * sandbox says no now and then, which costs a try.
 */
uint32_t load_kind(const char *template, uint32_t vcpus, uint32_t ram_mib, uint32_t rootfs_gb);
#define LOAD_KIND_NONE (PLACE_KINDS - 1) /* of which no host has warm sandboxes */

/* FNV-1a of a text, from which place_homes finds the hosts that are home to it. */
uint64_t load_hash(const char *text, size_t len);

#endif
