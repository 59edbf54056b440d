// SPDX-License-Identifier: Apache-2.0
/* The resources and the image of each size, and the choice of images to prepare ahead. */
#ifndef RAMET_ORCHESTRATOR_IMAGES_SIZES_H
#define RAMET_ORCHESTRATOR_IMAGES_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/config/config.h"
#include "orchestrator/config/sandbox-config.h"
#include "orchestrator/images/template-source.h"

#define RAM_STEP_MIB 64 /* RAM is rounded up to a multiple, as each size needs its own image */
#define RAM_MIN_MIB  128

bool size_equal(const struct size *a, const struct size *b);
/* A sandbox's size, and the size of the image it is made from. They differ only in the disk, which
 * may have to grow. */
struct sized_choice {
	struct size size, image;
};
#define SIZE_NO_LIMIT ((struct size){UINT32_MAX, UINT32_MAX, UINT32_MAX})
/* Returns the largest size that a sandbox may have: limited by the host and by `most`, but its disk
 * is never smaller than that of the template, whose size is `own`. */
struct size size_limit(const struct size *host, const struct size *own, const struct size *most);
/* Returns a tier's limits on RAM and disk; a tier does not limit vCPUs. */
struct tier;
struct size size_of_tier(const struct tier *t);
/* Returns the requested size (0: the template's default), with RAM rounded up to a step and
 * everything cut to the limit. */
struct size size_exact(const struct size *asked, const struct size *own, const struct size *limit);
/* Returns the size of the image that serves `size`. Its disk is at most the template's: a create
 * grows a larger one. */
struct size size_image(const struct size *size, const struct size *own);

/* Limits on the images of all templates that are prepared ahead, with `sizes = auto`. */
#define AHEAD_IMAGES_MAX 8
#define AHEAD_BYTES_MAX	 (2ull << 30)
/* The default template's sizes to prepare besides its own: those that the setting lists. */
struct sizes {
	struct size all[CONFIG_SIZES_MAX];
	size_t n;
};
void sizes_ahead(struct sizes *out, const struct config *c, const struct size *own,
		 const struct size *host);
/* Returns the estimated bytes of an image on disk. */
uint64_t size_image_bytes(const struct size *image);
/* Returns true when an image of `more` bytes may be added to `images` images of `bytes` bytes in
 * total. */
bool sizes_have_room(size_t images, uint64_t bytes, uint64_t more);

#endif
