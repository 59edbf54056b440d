// SPDX-License-Identifier: Apache-2.0
/* The table of a memory layer (proto/image.h): the extents of RAM that the layer holds. */
#ifndef RAMET_VMM_KVM_RAM_TABLE_H
#define RAMET_VMM_KVM_RAM_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "vmm/kvm/extent-map.h"

/*
 * Parses a table of exactly `size` bytes, which may be hostile, into `out` (empty before): at most
 * IMAGE_MEMORY_EXTENTS_MAX extents, each inside a RAM of `ram_bytes`.
 */
int ram_table_parse(struct extents *out, const uint8_t *table, size_t size, uint64_t ram_bytes,
		    struct err *e);

/* Returns the size of a table of that many extents in a layer's file; their pages follow it. */
uint64_t ram_table_bytes(uint32_t extents);

/* Reads and parses the table of a layer's file, and checks the size of the file. */
int ram_table_read(struct extents *out, int fd, uint64_t ram_bytes, struct err *e);
/* Writes the table of a layer's file. `extents` has at most IMAGE_MEMORY_EXTENTS_MAX. */
int ram_table_write(int fd, const struct extents *extents, uint64_t ram_bytes, struct err *e);

#endif
