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

/* Writes `used`, `closed`, the numbers of warm sandboxes and the figures for operators, separated
 * by spaces. */
void load_print(char out[static LOAD_TEXT_MAX], const struct place_load *load);
/* Reads such a text of `len` bytes. Later versions may add fields at its end; the figures for
 * operators may be missing, and then are 0. Returns false, with *load unchanged, when the text is
 * invalid. */
bool load_read(struct place_load *load, const char *text, size_t len);

/*
 * Returns a number for the sandboxes of a template and size. All hosts compute the same number, but
 * different sandboxes may share it: then a host that seemed to have a warm sandbox refuses, which
 * costs a try.
 */
uint32_t load_kind(const char *template, uint32_t vcpus, uint32_t ram_mib, uint32_t rootfs_gb);
#define LOAD_KIND_NONE (PLACE_KINDS - 1) /* no host has warm sandboxes of this kind */

/* FNV-1a of a text, from which place_homes finds the hosts that are home to it. */
uint64_t load_hash(const char *text, size_t len);

#endif
