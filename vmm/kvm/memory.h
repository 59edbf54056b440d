// SPDX-License-Identifier: Apache-2.0
/*
 * Guest RAM: one reservation of host address space that the memslots point at. RAM below
 * GM_HOLE_START sits at its own guest address, the rest from 4 GiB up. What backs the reservation
 * (PROT_NONE in a shell, a memfd, a private map of an image) changes with mmap(MAP_FIXED) and
 * never moves it.
 */
#ifndef RAMET_VMM_KVM_MEMORY_H
#define RAMET_VMM_KVM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define GM_HOLE_START (3ull << 30) /* guest physical: RAM ends here, devices follow */
#define GM_HIGH_START (4ull << 30) /* guest physical: the rest of RAM */

struct gm {
	uint8_t *base;	/* host address of RAM offset 0 */
	uint64_t bytes; /* all of RAM */
	uint64_t
		reserved; /* address space for it; memory slots that were made of it are as large */
};

/*
 * Host address of guest physical [addr, addr + len), or NULL unless every byte of it is RAM. An
 * address travels with its length: this is the only way from a guest number to a pointer. The
 * guest may change what is there at any moment: copy once, then check.
 */
void *gm_ptr(const struct gm *m, uint64_t addr, uint64_t len);

/* Copies out of and into guest RAM; false (nothing copied) unless all of it is RAM. */
bool gm_read(const struct gm *m, uint64_t addr, void *out, uint64_t len);
bool gm_write(const struct gm *m, uint64_t addr, const void *data, uint64_t len);

/* RAM offset (position in the memory file) of guest physical `addr`; UINT64_MAX when no RAM. */
uint64_t gm_offset(const struct gm *m, uint64_t addr);

/* Reserves address space for `bytes` (a multiple of 2 MiB), PROT_NONE, aligned to 1 GiB. */
int gm_reserve(struct gm *out, uint64_t bytes, struct err *e);
/* RAM shall be less than what is reserved: a multiple of 2 MiB. Before anything backs it. */
int gm_resize(struct gm *m, uint64_t bytes, struct err *e);
/* Backs all of RAM with a new shared memfd (fd returned in *fd, owned by the caller). */
int gm_back_with_memfd(struct gm *m, int *fd, struct err *e);
/* Backs all of RAM with a private, copy-on-write map of a memory file of exactly m->bytes. */
int gm_back_with_image(struct gm *m, int fd, struct err *e);
/* Unmaps the reservation. */
void gm_release(struct gm *m);

#endif
