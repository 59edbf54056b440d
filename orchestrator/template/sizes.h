// SPDX-License-Identifier: Apache-2.0
/* The resources and the image of each size, and which images are made ahead. */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_SIZES_H
#define RAMET_ORCHESTRATOR_TEMPLATE_SIZES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "orchestrator/config/config.h"
#include "orchestrator/template/template-source.h"

#define RAM_STEP_MIB 64 /* RAM is rounded up to it: each size has an image of its own */
#define RAM_MIN_MIB  128

struct size {
	uint32_t vcpus, ram_mib, rootfs_gb;
};
struct size source_size(const struct source *from); /* of a sandbox that asks for nothing else */
bool size_equal(const struct size *a, const struct size *b);
/* What a sandbox gets, and the image it is made from: all but the disk is the same, which may have
 * to grow. */
struct sized_choice {
	struct size size, image;
};
#define SIZE_NO_LIMIT ((struct size){UINT32_MAX, UINT32_MAX, UINT32_MAX})
/* The most that a sandbox of a template of size `own` gets on such a host, up to `most`: a disk is
 * no smaller than the template's. */
struct size size_limit(const struct size *host, const struct size *own, const struct size *most);
/* What a tier allows. */
struct tier;
struct size size_of_tier(const struct tier *t);
/* Exactly what was asked for (0: the template's own), RAM rounded up to a step, up to the limit. */
struct size size_exact(const struct size *asked, const struct size *own, const struct size *limit);
/* The image that serves a size: any disk that is larger than the template's grows at create. */
struct size size_image(const struct size *size, const struct size *own);

/* With `sizes = auto`, no more images than this are made ahead of need, of all templates. */
#define AHEAD_IMAGES_MAX 8
#define AHEAD_BYTES_MAX	 (2ull << 30)
/* Sizes of the default template that are prepared beside its own, the likeliest first. */
struct sizes {
	struct size all[CONFIG_SIZES_MAX];
	size_t n;
};
void sizes_ahead(struct sizes *out, const struct config *c, const struct size *own,
		 const struct size *host);
/* About what an image takes on the disk. */
uint64_t size_image_bytes(const struct size *image);
/* Whether one of `more` bytes may be made beside `images` with `bytes`. */
bool sizes_have_room(size_t images, uint64_t bytes, uint64_t more);

#endif
