// SPDX-License-Identifier: Apache-2.0
/*
 * What guest RAM is made of: a memory file, memory layers over it (proto/image.h), and over them
 * the pages that the guest wrote since, which are this process's own. A freeze turns those into one
 * more layer, so that file and layers together are an image of RAM at that moment. All functions
 * are for the loop's thread.
 */
#ifndef RAMET_VMM_KVM_RAM_H
#define RAMET_VMM_KVM_RAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ctl.h"
#include "vmm/kvm/memory.h"

struct ram;

/*
 * `gm` is a reservation (gm_reserve) and outlives it. `pagemap_fd` is this process's own
 * /proc/self/pagemap, taken over; -1: this VM can't be frozen once it runs on an image.
 */
int ram_new(struct ram **out, struct gm *gm, int pagemap_fd, struct err *e);
void ram_free(struct ram *r);

/* Backs RAM, once: with a new memfd, mapped shared, or with an image, mapped privately. The
 * image's descriptors stay the caller's: what is kept is duplicated. */
int ram_back_with_memfd(struct ram *r, struct err *e);
int ram_back_with_image(struct ram *r, int memory_fd, const int *layers, unsigned n, struct err *e);

/* The memfd while RAM is shared with it, else -1. */
int ram_memfd(const struct ram *r);

/*
 * Copies ahead, while the guest runs, what the freeze to come would have to copy, when that is
 * much, or many `children` will map it: what is not written to again until then is only compared.
 * On failure RAM is as before.
 */
int ram_prepare(struct ram *r, unsigned children, struct err *e);
/* Ends what it began, when the guest runs again after the freeze, or there was none. */
void ram_settle(struct ram *r);

/*
 * Makes what RAM holds now part of an image that no later write of the guest changes. vCPUs stand
 * still and no I/O into RAM is under way. A memfd becomes the image's memory file and nothing is
 * copied; later, the pages that differ from the image are copied into a new memory layer, and
 * *copied says how many bytes, with those of ram_prepare. With none no layer is added. On failure
 * RAM is as before.
 */
int ram_freeze(struct ram *r, uint64_t *copied, struct err *e);

/*
 * The image that the last freeze made: fds[0] is the memory file, the layers follow, oldest first.
 * Returns how many; they stay owned by `r`.
 */
#define RAM_IMAGE_FDS (1 + CTL_MEMORY_MAX)
unsigned ram_image(const struct ram *r, int fds[RAM_IMAGE_FDS]);

/*
 * The guest has no use for these bytes of RAM, whatever they hold: what whole pages of them take is
 * given back to the host, as far as it is no image's. 0 or -errno.
 */
int ram_discard(struct ram *r, uint64_t offset, uint64_t bytes);

/*
 * A piece of the work that keeps the chain of layers short, some 100 us of it; true while there is
 * more to do. Between freezes, while the guest runs. ram_freeze takes over what is complete.
 */
bool ram_flatten_step(struct ram *r);

#endif
