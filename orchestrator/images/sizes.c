// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/images/sizes.h"

#include <string.h>

#include "base/num.h"
#include "orchestrator/config/tiers.h"

/* Measured bytes of an image on disk: a fixed part, and one for each GiB of RAM (the kernel's own
 * pages). */
#define IMAGE_BYTES	    (45ull << 20)
#define IMAGE_BYTES_PER_GIB (18ull << 20)

bool size_equal(const struct size *a, const struct size *b)
{
	return a->vcpus == b->vcpus && a->ram_mib == b->ram_mib && a->rootfs_gb == b->rootfs_gb;
}

struct size size_limit(const struct size *host, const struct size *own, const struct size *most)
{
	return (struct size){
		.vcpus = min_u32(max_u32(host->vcpus, own->vcpus), most->vcpus),
		.ram_mib = min_u32(max_u32(host->ram_mib, own->ram_mib), most->ram_mib),
		.rootfs_gb = max_u32(min_u32(host->rootfs_gb, most->rootfs_gb), own->rootfs_gb),
	};
}

struct size size_of_tier(const struct tier *t)
{
	return (struct size){.vcpus = UINT32_MAX,
			     .ram_mib = t->ram_mib / RAM_STEP_MIB * RAM_STEP_MIB,
			     .rootfs_gb = t->rootfs_gb};
}

static uint32_t asked_or(uint32_t asked, uint32_t own)
{
	return asked ? asked : own;
}

static uint32_t round_ram(uint64_t ram_mib)
{
	return min_u32((ram_mib + RAM_STEP_MIB - 1) / RAM_STEP_MIB * RAM_STEP_MIB, UINT32_MAX);
}

struct size size_exact(const struct size *asked, const struct size *own, const struct size *limit)
{
	uint32_t ram_mib = asked->ram_mib ? round_ram(asked->ram_mib) : own->ram_mib;

	return (struct size){
		.vcpus = min_u32(asked_or(asked->vcpus, own->vcpus), limit->vcpus),
		.ram_mib = min_u32(ram_mib, limit->ram_mib),
		.rootfs_gb = min_u32(asked_or(asked->rootfs_gb, own->rootfs_gb), limit->rootfs_gb),
	};
}

struct size size_image(const struct size *size, const struct size *own)
{
	return (struct size){size->vcpus, size->ram_mib, min_u32(size->rootfs_gb, own->rootfs_gb)};
}

/* --- ahead of need --------------------------------------------------------------------------- */

static void add(struct sizes *s, struct size size)
{
	for (size_t i = 0; i < s->n; i++)
		if (size_equal(&s->all[i], &size))
			return;
	s->all[s->n++] = size;
}

void sizes_ahead(struct sizes *out, const struct config *c, const struct size *own,
		 const struct size *host)
{
	struct size limit = size_limit(host, own, &SIZE_NO_LIMIT);
	struct size listed[CONFIG_SIZES_MAX];
	struct err e;
	int n = config_sizes(c, listed, &e); /* negative with "auto" */

	out->n = 0;
	for (int i = 0; i < n; i++)
		add(out, size_exact(&listed[i], own, &limit));
}

uint64_t size_image_bytes(const struct size *image)
{
	return IMAGE_BYTES + IMAGE_BYTES_PER_GIB * image->ram_mib / 1024;
}

bool sizes_have_room(size_t images, uint64_t bytes, uint64_t more)
{
	return images < AHEAD_IMAGES_MAX && bytes + more <= AHEAD_BYTES_MAX;
}
