// SPDX-License-Identifier: Apache-2.0
/* The table of a memory layer (proto/image.h): which stretches of RAM the layer holds. */
#ifndef RAMET_VMM_KVM_RAM_TABLE_H
#define RAMET_VMM_KVM_RAM_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "vmm/kvm/overlay.h"

/*
 * Reads a table of exactly `size` bytes, which may be hostile, into `out` (empty before): at most
 * IMAGE_MEMORY_RUNS_MAX runs, each inside a RAM of `ram_bytes`.
 */
int ram_table_parse(struct runs *out, const uint8_t *table, size_t size, uint64_t ram_bytes,
		    struct err *e);

/* How much of a layer's file the table of so many runs takes: their pages begin there. */
uint64_t ram_table_bytes(uint32_t runs);

/* The same as parse from a layer's file; checks its size. */
int ram_table_read(struct runs *out, int fd, uint64_t ram_bytes, struct err *e);
/* Writes it to one; `runs` has at most IMAGE_MEMORY_RUNS_MAX. */
int ram_table_write(int fd, const struct runs *runs, uint64_t ram_bytes, struct err *e);

#endif
