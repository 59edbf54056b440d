// SPDX-License-Identifier: Apache-2.0
/*
 * Guest RAM: one reservation of host address space that the memory slots point to. RAM offsets
 * below GM_HOLE_START are also guest physical addresses; the rest of RAM starts at guest address 4
 * GiB. The backing of the reservation (PROT_NONE in a blank VM, a memfd, or a private mapping of a
 * snapshot) changes with mmap(MAP_FIXED); the reservation never moves.
 */
#ifndef RAMET_VMM_KVM_MEMORY_H
#define RAMET_VMM_KVM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define GM_HOLE_START (3ull << 30) /* guest physical: RAM ends here, devices follow */
#define GM_HIGH_START (4ull << 30) /* guest physical: the rest of RAM */

struct gm {
	uint8_t *base;	   /* host address of RAM offset 0 */
	uint64_t bytes;	   /* size of RAM */
	uint64_t reserved; /* address space reserved for it; the memory slots cover all of it */
};

/*
 * Returns the host address of guest physical [addr, addr + len), or NULL unless every byte of it is
 * RAM. This is the only conversion of a guest address to a pointer, and it always takes a length.
 * The guest may change the bytes at any moment: copy once, then check the copy.
 */
void *gm_ptr(const struct gm *m, uint64_t addr, uint64_t len);

/*
 * Copies out of or into guest RAM. Returns false, with nothing copied, unless all of the range is
 * RAM.
 */
bool gm_read(const struct gm *m, uint64_t addr, void *out, uint64_t len);
bool gm_write(const struct gm *m, uint64_t addr, const void *data, uint64_t len);

/*
 * Returns the RAM offset (the position in the memory file) of guest physical `addr`, or UINT64_MAX
 * when it is not RAM.
 */
uint64_t gm_offset(const struct gm *m, uint64_t addr);

/* Returns the guest physical address of a RAM offset. */
uint64_t gm_addr(uint64_t offset);

/* Reserves address space for `bytes` (a multiple of 2 MiB), PROT_NONE, aligned to 1 GiB. */
int gm_reserve(struct gm *out, uint64_t bytes, struct err *e);
/*
 * Sets the size of RAM, a multiple of 2 MiB within the reservation. Call it before RAM is backed.
 */
int gm_resize(struct gm *m, uint64_t bytes, struct err *e);
/* Maps a file from byte `at` on over RAM offsets [start, end), MAP_SHARED or MAP_PRIVATE. */
int gm_map(const struct gm *m, uint64_t start, uint64_t end, int how, int fd, uint64_t at,
	   struct err *e);
/* Backs all of RAM with a new shared memfd. The caller owns *fd. */
int gm_back_with_memfd(struct gm *m, int *fd, struct err *e);
/* Backs all of RAM with a private, copy-on-write mapping of a memory file of exactly m->bytes. */
int gm_back_with_file(struct gm *m, int fd, struct err *e);
/* Unmaps the reservation. */
void gm_release(struct gm *m);

#endif
