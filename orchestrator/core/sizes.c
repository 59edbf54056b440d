// SPDX-License-Identifier: Apache-2.0
/*
 * Which sizes there are images of, or will be, and which of them serves a request. With `auto` they
 * are ladders, each rung so near the one before that whatever is between them is near the upper.
 */
#include <string.h>

#include "base/num.h"
#include "orchestrator/core/internal.h"
#include "orchestrator/tiers.h"

/* A size that is so many times larger is as good: what is not used costs nothing. */
#define RAM_NEAR    2
#define VCPUS_NEAR  2
#define ROOTFS_NEAR 4
/* With a large disk, one over ROOTFS_NEAR times the template's: any larger one is as good, and RAM
 * that is so many times more. Else there would be too many of them. */
#define RAM_NEAR_LARGE 4

struct size source_size(const struct source *from)
{
	return (struct size){from->vcpus, from->ram_mib, from->rootfs_gb};
}

bool size_equal(const struct size *a, const struct size *b)
{
	return a->vcpus == b->vcpus && a->ram_mib == b->ram_mib && a->rootfs_gb == b->rootfs_gb;
}

static const struct size no_limit = {UINT32_MAX, UINT32_MAX, UINT32_MAX};

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

/* --- what there is an image of, or will be ---------------------------------------------------- */

static void add(struct sizes *s, struct size size)
{
	for (size_t i = 0; i < s->n; i++)
		if (size_equal(&s->all[i], &size))
			return;
	if (s->n < SIZES_MAX)
		s->all[s->n++] = size;
}

static uint32_t times(uint32_t n, uint32_t factor, uint32_t most)
{
	return min_u32((uint64_t)n * factor, most);
}

/* The rung behind `at`; the last is `most`, and behind it is one that is higher. */
static uint32_t next_rung(uint32_t at, uint32_t factor, uint32_t most)
{
	return at < most ? times(at, factor, most) : most + 1;
}

static bool is_large(const struct size *size, const struct size *own)
{
	return size->rootfs_gb > (uint64_t)own->rootfs_gb * ROOTFS_NEAR;
}

static void add_ram_ladder(struct sizes *s, uint32_t vcpus, const struct size *most)
{
	const struct size *own = &s->all[0];
	uint32_t rootfs_gb = times(own->rootfs_gb, ROOTFS_NEAR, most->rootfs_gb);
	uint32_t ram_mib = min_u32(own->ram_mib, most->ram_mib);

	for (; ram_mib <= most->ram_mib; ram_mib = next_rung(ram_mib, RAM_NEAR, most->ram_mib))
		add(s, (struct size){vcpus, ram_mib, rootfs_gb});
}

/* The largest disk, in steps as wide as they may be. */
static void add_large(struct sizes *s, const struct size *most)
{
	const struct size *own = &s->all[0];
	uint32_t vcpus = min_u32(VCPUS_NEAR, most->vcpus);

	for (; is_large(most, own) && vcpus <= most->vcpus;
	     vcpus = next_rung(vcpus, VCPUS_NEAR, most->vcpus)) {
		uint32_t ram_mib = times(own->ram_mib, RAM_NEAR_LARGE, most->ram_mib);

		for (; ram_mib <= most->ram_mib;
		     ram_mib = next_rung(ram_mib, RAM_NEAR_LARGE, most->ram_mib))
			add(s, (struct size){vcpus, ram_mib, most->rootfs_gb});
	}
}

/* What may be asked for within `most`, most likely first. */
static void add_ladders(struct sizes *s, const struct size *most)
{
	const struct size *own = &s->all[0];
	uint32_t ram_mib = min_u32(own->ram_mib, most->ram_mib);

	add_ram_ladder(s, own->vcpus, most);
	for (uint32_t gb = own->rootfs_gb; gb <= most->rootfs_gb;
	     gb = next_rung(gb, ROOTFS_NEAR, most->rootfs_gb))
		add(s, (struct size){own->vcpus, ram_mib, gb});
	for (uint32_t n = 1; n <= most->vcpus; n = next_rung(n, VCPUS_NEAR, most->vcpus))
		add_ram_ladder(s, n, most);
	add_large(s, most);
}

static void add_auto(struct sizes *s, const struct config *c, const struct size *host)
{
	struct size most = size_limit(host, &s->all[0], &no_limit);
	struct tier tier;

	add_ladders(s, &most);
	for (size_t i = 0; tier_at(&tier, c, i); i++) {
		struct size of_tier = size_of_tier(&tier);

		most = size_limit(host, &s->all[0], &of_tier);
		add_ladders(s, &most);
	}
}

static void add_listed(struct sizes *s, const struct config *c, const struct size *host)
{
	struct size most = size_limit(host, &s->all[0], &no_limit);
	struct config_size sizes[CONFIG_SIZES_MAX];
	struct err e;
	int n = config_sizes(c, sizes, &e);

	for (int i = 0; i < n; i++)
		add(s, (struct size){min_u32(sizes[i].vcpus, most.vcpus),
				     min_u32(sizes[i].ram_mib, most.ram_mib),
				     max_u32(sizes[i].rootfs_gb, s->all[0].rootfs_gb)});
}

void sizes_of(struct sizes *out, const struct config *c, const struct source *from,
	      const struct size *host)
{
	out->n = 0;
	add(out, source_size(from));
	if (config_sizes_auto(c))
		add_auto(out, c, host);
	else
		add_listed(out, c, host);
	out->ahead = strcmp(from->name, TEMPLATE_DEFAULT) == 0 ? out->n : 1;
}

/* --- which of them serves a request ----------------------------------------------------------- */

static bool is_near(uint32_t asked, uint32_t candidate, uint32_t factor)
{
	return candidate >= asked && candidate <= (uint64_t)factor * asked;
}

/* But for the disk. RAM below the template's own is as good as that. */
static bool serves(const struct size *size, const struct size *asked, const struct size *own)
{
	uint32_t near = is_large(asked, own) ? RAM_NEAR_LARGE : RAM_NEAR;

	return is_near(asked->vcpus, size->vcpus, VCPUS_NEAR) && size->ram_mib >= asked->ram_mib &&
	       size->ram_mib <= (uint64_t)near * max_u32(asked->ram_mib, own->ram_mib);
}

static bool disk_serves(const struct size *size, const struct size *asked, const struct size *own)
{
	uint32_t near = is_large(asked, own) ? UINT32_MAX : ROOTFS_NEAR;

	return is_near(asked->rootfs_gb, size->rootfs_gb, near);
}

static bool is_within(const struct size *size, const struct size *limit)
{
	return size->vcpus <= limit->vcpus && size->ram_mib <= limit->ram_mib &&
	       size->rootfs_gb <= limit->rootfs_gb;
}

/* Of two that serve: the less the better, but of a disk that has to grow the more. */
static bool is_better(const struct size *a, const struct size *b, bool grows)
{
	if (a->vcpus != b->vcpus)
		return a->vcpus < b->vcpus;
	if (a->ram_mib != b->ram_mib)
		return a->ram_mib < b->ram_mib;
	return grows ? a->rootfs_gb > b->rootfs_gb : a->rootfs_gb < b->rootfs_gb;
}

/* Of the first `n`; `grows`: one whose disk is smaller than asked for. NULL: there is none. */
static const struct size *find(const struct sizes *s, size_t n, const struct size *asked,
			       const struct size *limit, bool grows)
{
	const struct size *best = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct size *size = &s->all[i];
		bool disk = grows ? size->rootfs_gb < asked->rootfs_gb
				  : disk_serves(size, asked, &s->all[0]);

		if (disk && serves(size, asked, &s->all[0]) && is_within(size, limit) &&
		    (!best || is_better(size, best, grows)))
			best = size;
	}
	return best;
}

static const struct size *find_any(const struct sizes *s, size_t n, const struct size *asked,
				   const struct size *limit)
{
	const struct size *found = find(s, n, asked, limit, false);

	return found ? found : find(s, n, asked, limit, true);
}

struct sized_choice sizes_choose(const struct sizes *s, const struct size *asked,
				 const struct size *limit)
{
	const struct size *found = find_any(s, s->ahead, asked, limit);
	struct sized_choice out = {*asked, *asked};

	if (!found)
		found = find_any(s, s->n, asked, limit);
	if (found) {
		out.size = out.image = *found;
		out.size.rootfs_gb = max_u32(found->rootfs_gb, asked->rootfs_gb);
		return out;
	}
	out.size.ram_mib = min_u32(
		(asked->ram_mib + RAM_STEP_MIB - 1) / RAM_STEP_MIB * RAM_STEP_MIB, limit->ram_mib);
	out.image.ram_mib = out.size.ram_mib;
	out.image.rootfs_gb = s->all[0].rootfs_gb;
	return out;
}
