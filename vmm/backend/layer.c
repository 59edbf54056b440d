// SPDX-License-Identifier: Apache-2.0
#include "vmm/backend/layer.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/crc32c.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/num.h"
#include "base/version.h"
#include "base/wire.h"
#include "proto/image.h"

#define HEADER_BYTES 4096u
#define CRC_AT	     52u
#define PAGE	     4096u
#define CLUSTER	     IMAGE_CLUSTER

/*
 * A sealed layer's bitmap is mapped from its file. The writable layer's is anonymous memory, and
 * its touched pages are written when it is sealed. Until then nobody else can use the file, and
 * a full host disk can't break the mapping.
 */
struct layer {
	int fd;
	uint64_t id, parent;
	/* Where cluster 0 is in the file; depends on the size that the disk had. */
	uint64_t data_offset;
	uint8_t *bits;	  /* one bit per cluster of the disk */
	uint8_t *touched; /* writable layer: one byte per page of the bitmap; else NULL */
	uint64_t held;	  /* clusters in the layer; UINT64_MAX: not counted yet, or writable */
};

struct layer_stack {
	int base_fd;
	uint64_t base_bytes;
	uint64_t disk_bytes, clusters;
	uint64_t map_bytes; /* bytes of one bitmap, in whole pages */
	unsigned n;	    /* number of layers; the last one is writable */
	bool copying_up;    /* the sealed layers from copy_up_from on are being copied up */
	unsigned copy_up_from;
	uint64_t copy_up_at; /* clusters below it are done */
	bool written;	     /* the writable layer has data */
	bool prepared;	     /* `next` will become the writable layer */
	struct layer next;
	struct layer layer[LAYER_SEALED_MAX + 1];
};

static struct layer *writable(const struct layer_stack *s)
{
	return (struct layer *)&s->layer[s->n - 1];
}

/* Returns the size of a disk's bitmap. */
static uint64_t bitmap_bytes(uint64_t disk_bytes)
{
	return (disk_bytes / CLUSTER + 8 * PAGE - 1) / (8 * PAGE) * PAGE;
}

/* --- headers --- */

static void encode_header(uint8_t block[HEADER_BYTES], const struct layer_stack *s,
			  const struct layer *l, bool sealed, uint32_t crc)
{
	struct wire w = wire_on(block, HEADER_BYTES);

	memset(block, 0, HEADER_BYTES);
	wire_put_bytes(&w, IMAGE_LAYER_MAGIC, 8);
	wire_put_u32(&w, IMAGE_LAYER_VERSION);
	wire_put_u32(&w, CLUSTER);
	wire_put_u64(&w, s->disk_bytes);
	wire_put_u64(&w, l->data_offset);
	wire_put_u64(&w, l->id);
	wire_put_u64(&w, l->parent);
	wire_put_u32(&w, sealed);
	wire_put_u32(&w, crc);
}

/* --- sealed layers --- */

/*
 * Returns whether the disk has, or earlier had, this size. Each earlier size fills whole pages of
 * the bitmap, so no bits after the old end are read.
 */
static bool is_part(const struct layer_stack *s, uint64_t disk_bytes)
{
	return disk_bytes == s->disk_bytes ||
	       (disk_bytes && disk_bytes < s->disk_bytes && disk_bytes % (8 * PAGE * CLUSTER) == 0);
}

static int check_geometry(const struct layer_stack *s, struct wire *w, struct layer *l,
			  uint64_t *disk_bytes, uint32_t *crc, struct err *e)
{
	char magic[8];
	uint32_t version, cluster, sealed;
	uint64_t disk;

	wire_get_bytes(w, magic, 8);
	if (memcmp(magic, IMAGE_LAYER_MAGIC, 8))
		return err_say(e, EINVAL, "this file is not a disk layer");
	version = wire_get_u32(w);
	if (version_check("the disk layer", version, IMAGE_LAYER_VERSION_OLDEST,
			  IMAGE_LAYER_VERSION, e) < 0)
		return -ENOTSUP;
	cluster = wire_get_u32(w);
	disk = wire_get_u64(w);
	l->data_offset = wire_get_u64(w);
	l->id = wire_get_u64(w);
	l->parent = wire_get_u64(w);
	sealed = wire_get_u32(w);
	*crc = wire_get_u32(w);
	*disk_bytes = disk;
	if (cluster != CLUSTER || !is_part(s, disk) ||
	    l->data_offset != HEADER_BYTES + bitmap_bytes(disk))
		return err_say(
			e, EINVAL,
			"it is for a disk of %llu bytes in clusters of %u, expected %llu in %u",
			(unsigned long long)disk, cluster, (unsigned long long)s->disk_bytes,
			CLUSTER);
	if (sealed != 1)
		return err_say(e, EINVAL, "it was never sealed");
	return 0;
}

static int check_size(int fd, uint64_t expected, struct err *e)
{
	uint64_t bytes;
	int rc = file_size(fd, &bytes, e);

	if (rc == 0 && bytes != expected)
		rc = err_say(e, EINVAL, "the file has %llu bytes, expected %llu",
			     (unsigned long long)bytes, (unsigned long long)expected);
	return rc;
}

/*
 * Computes the checksum of a mapped bitmap. Skips holes, which make up most of it: reading them
 * would put pages of zeros into memory.
 */
static uint32_t crc_of_mapped(const struct layer *l, int fd, uint32_t crc)
{
	uint64_t at = HEADER_BYTES, data, hole;

	for (; at < l->data_offset; at = hole) {
		file_next_data(fd, at, l->data_offset, &data, &hole);
		for (; at < data; at += PAGE)
			crc = crc32c_zero_page(crc);
		crc = crc32c(crc, l->bits + data - HEADER_BYTES, hole - data);
	}
	return crc;
}

/* Maps the bitmap of a layer, followed by zeros for the part by which the disk has grown since. */
static int map_bits(const struct layer_stack *s, int fd, struct layer *l, struct err *e)
{
	uint64_t own = l->data_offset - HEADER_BYTES;
	bool grown = own < s->map_bytes;
	void *p = mmap(NULL, s->map_bytes, PROT_READ, MAP_PRIVATE | (grown ? MAP_ANONYMOUS : 0),
		       grown ? -1 : fd, grown ? 0 : HEADER_BYTES);

	if (p == MAP_FAILED)
		return err_set(e, errno, "map the bitmap");
	l->bits = p;
	if (grown &&
	    mmap(p, own, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, HEADER_BYTES) == MAP_FAILED)
		return err_set(e, errno, "map the bitmap");
	return 0;
}

static int open_sealed(const struct layer_stack *s, int fd, struct layer *l, struct err *e)
{
	uint8_t block[HEADER_BYTES];
	struct wire w = wire_from(block, HEADER_BYTES);
	uint64_t disk_bytes = 0;
	uint32_t want = 0, crc;
	int rc = file_read(fd, 0, block, HEADER_BYTES, e);

	if (rc == 0)
		rc = check_geometry(s, &w, l, &disk_bytes, &want, e);
	if (rc == 0)
		rc = check_size(fd, l->data_offset + disk_bytes, e);
	if (rc == 0)
		rc = map_bits(s, fd, l, e);
	if (rc < 0)
		return rc;
	memset(block + CRC_AT, 0, 4);
	crc = crc_of_mapped(l, fd, crc32c(0, block, HEADER_BYTES));
	if (crc != want)
		return err_say(e, EINVAL, "wrong checksum: the layer is torn or damaged");
	l->fd = fd;
	l->held = UINT64_MAX;
	return 0;
}

static int open_chain(struct layer_stack *s, const int *fds, unsigned n, struct err *e)
{
	uint64_t below = 0;

	for (unsigned i = 0; i < n; i++) {
		struct layer *l = &s->layer[s->n++];

		l->fd = -1;
		if (open_sealed(s, fds[i], l, e) < 0)
			return err_context(e, "disk layer %u", i);
		if (l->parent != below)
			return err_say(e, EINVAL,
				       "the parent of disk layer %u is not the layer before it", i);
		below = l->id;
	}
	return 0;
}

/* --- the writable layer --- */

static void drop_layer(const struct layer_stack *s, struct layer *l)
{
	if (l->bits)
		munmap(l->bits, s->map_bytes);
	free(l->touched);
	*l = (struct layer){.fd = -1};
}

static int make_bitmap(const struct layer_stack *s, struct layer *l, struct err *e)
{
	void *p = mmap(NULL, s->map_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return err_set(e, errno, "allocate a bitmap of %llu bytes",
			       (unsigned long long)s->map_bytes);
	l->bits = p;
	l->touched = calloc(1, s->map_bytes / PAGE);
	return l->touched ? 0
			  : err_set(e, ENOMEM, "allocate an array of %llu bytes",
				    (unsigned long long)(s->map_bytes / PAGE));
}

static int make_identity(struct layer *l, uint64_t parent, struct err *e)
{
	l->parent = parent;
	do {
		if (getrandom(&l->id, sizeof(l->id), 0) != sizeof(l->id))
			return err_set(e, errno, "draw the id of a disk layer");
	} while (l->id == 0);
	return 0;
}

/* Formats the empty file `fd` as the writable layer `l`. On failure `l` is empty. */
static int format(const struct layer_stack *s, int fd, uint64_t parent, struct layer *l,
		  struct err *e)
{
	uint8_t block[HEADER_BYTES];
	uint64_t bytes;
	int rc = file_size(fd, &bytes, e);

	if (rc == 0 && bytes)
		rc = err_say(e, EINVAL, "the file for the writable disk layer is not empty");
	*l = (struct layer){.fd = -1, .data_offset = HEADER_BYTES + s->map_bytes};
	if (rc == 0)
		rc = make_identity(l, parent, e);
	if (rc == 0)
		rc = make_bitmap(s, l, e);
	if (rc == 0) {
		encode_header(block, s, l, false, 0);
		rc = file_write(fd, 0, block, HEADER_BYTES, e);
	}
	/*
	 * Extend the file to its full size, so that reading a cluster that is a hole is never
	 * short.
	 */
	if (rc == 0 && ftruncate(fd, (off_t)(l->data_offset + s->disk_bytes)) < 0)
		rc = err_set(e, errno, "set the size of the writable disk layer");
	if (rc < 0) {
		drop_layer(s, l);
		return rc;
	}
	l->fd = fd;
	l->held = UINT64_MAX;
	return 0;
}

/* --- the stack --- */

static int measure_base(struct layer_stack *s, int fd, struct err *e)
{
	off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);

	if (end < 0)
		return err_set(e, errno, "get the size of the disk's base");
	s->base_fd = fd;
	s->base_bytes = (uint64_t)end;
	return 0;
}

static int check_disk(uint64_t disk_bytes, unsigned n, struct err *e)
{
	if (!disk_bytes || disk_bytes % CLUSTER || disk_bytes > LAYER_DISK_MAX)
		return err_say(e, EINVAL,
			       "the disk has %llu bytes; it must be a multiple of %u, at most %llu",
			       (unsigned long long)disk_bytes, CLUSTER,
			       (unsigned long long)LAYER_DISK_MAX);
	if (n > LAYER_SEALED_MAX)
		return err_say(e, EINVAL, "%u disk layers; the limit is %d", n, LAYER_SEALED_MAX);
	return 0;
}

static void free_maps(struct layer_stack *s)
{
	for (unsigned i = 0; i < s->n; i++)
		drop_layer(s, &s->layer[i]);
	free(s);
}

static uint64_t top_id(const struct layer_stack *s)
{
	return s->n ? s->layer[s->n - 1].id : 0;
}

static int open_all(struct layer_stack *s, int base_fd, const int *sealed, unsigned n,
		    int writable_fd, struct err *e)
{
	int rc = measure_base(s, base_fd, e);

	if (rc == 0)
		rc = open_chain(s, sealed, n, e);
	if (rc == 0)
		rc = format(s, writable_fd, top_id(s), &s->layer[s->n], e);
	if (rc == 0)
		s->n++;
	return rc;
}

int layer_stack_open(struct layer_stack **out, int base_fd, const int *sealed, unsigned n,
		     int writable_fd, uint64_t disk_bytes, struct err *e)
{
	struct layer_stack *s;
	int rc = check_disk(disk_bytes, n, e);

	if (rc < 0)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ENOMEM, "open a disk");
	s->disk_bytes = disk_bytes;
	s->clusters = disk_bytes / CLUSTER;
	s->map_bytes = bitmap_bytes(disk_bytes);
	rc = open_all(s, base_fd, sealed, n, writable_fd, e);
	if (rc < 0)
		free_maps(s);
	else
		*out = s;
	return rc;
}

void layer_stack_free(struct layer_stack *s)
{
	if (!s)
		return;
	layer_stack_abandon(s);
	close_fd(&s->base_fd);
	for (unsigned i = 0; i < s->n; i++)
		close_fd(&s->layer[i].fd);
	free_maps(s);
}

/* Computes the checksum of a bitmap without reading its untouched pages. */
static uint32_t crc_of_bitmap(const struct layer_stack *s, const struct layer *l, uint32_t crc)
{
	for (uint64_t page = 0; page < s->map_bytes / PAGE; page++)
		crc = l->touched[page] ? crc32c(crc, l->bits + page * PAGE, PAGE)
				       : crc32c_zero_page(crc);
	return crc;
}

static int write_bitmap(const struct layer_stack *s, const struct layer *l, struct err *e)
{
	for (uint64_t page = 0; page < s->map_bytes / PAGE; page++) {
		int rc = 0;

		if (l->touched[page])
			rc = file_write(l->fd, HEADER_BYTES + page * PAGE, l->bits + page * PAGE,
					PAGE, e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Writes the header last: a file whose sealing was interrupted can't be opened. */
static int seal(const struct layer_stack *s, const struct layer *l, struct err *e)
{
	uint8_t block[HEADER_BYTES];
	int rc = write_bitmap(s, l, e);

	if (rc < 0)
		return rc;
	encode_header(block, s, l, true, 0);
	encode_header(block, s, l, true, crc_of_bitmap(s, l, crc32c(0, block, HEADER_BYTES)));
	return file_write(l->fd, 0, block, HEADER_BYTES, e);
}

int layer_stack_prepare(struct layer_stack *s, int writable_fd, struct err *e)
{
	int rc;

	if (s->n > LAYER_SEALED_MAX)
		return err_say(e, E2BIG, "the disk has the maximum of %d layers", s->n);
	rc = format(s, writable_fd, writable(s)->id, &s->next, e);
	if (rc < 0)
		return rc;
	s->prepared = true;
	rc = seal(s, writable(s), e);
	if (rc < 0) {
		layer_stack_abandon(s);
		return err_context(e, "seal the writable disk layer");
	}
	return 0;
}

void layer_stack_abandon(struct layer_stack *s)
{
	struct layer *l = writable(s);
	uint8_t block[HEADER_BYTES];

	if (!s->prepared)
		return;
	s->prepared = false;
	drop_layer(s, &s->next);
	/*
	 * A failure does no harm: nobody can open the file as sealed, and a later seal rewrites the
	 * header.
	 */
	encode_header(block, s, l, false, 0);
	file_write(l->fd, 0, block, HEADER_BYTES, NULL);
}

void layer_stack_commit(struct layer_stack *s)
{
	struct layer *old = writable(s);

	if (!s->prepared)
		return;
	free(old->touched);
	old->touched = NULL;
	s->layer[s->n++] = s->next;
	s->prepared = s->written = s->copying_up = false;
}

bool layer_stack_written(const struct layer_stack *s)
{
	return s->written;
}

unsigned layer_sealed(const struct layer_stack *s)
{
	return s->n - 1;
}

int layer_base_fd(const struct layer_stack *s)
{
	return s->base_fd;
}

unsigned layer_sealed_fds(const struct layer_stack *s, int fds[LAYER_SEALED_MAX])
{
	unsigned n = s->n - 1;

	for (unsigned i = 0; i < n; i++)
		fds[i] = s->layer[i].fd;
	return n;
}

uint64_t layer_disk_bytes(const struct layer_stack *s)
{
	return s->disk_bytes;
}

uint64_t layer_writable_bytes(const struct layer_stack *s)
{
	struct stat st;

	return fstat(writable(s)->fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

int layer_writable_fd(const struct layer_stack *s)
{
	return writable(s)->fd;
}

static struct layer_extent extent_in_base(const struct layer_stack *s, uint64_t at, uint64_t len)
{
	if (at >= s->base_bytes)
		return (struct layer_extent){-1, 0, len};
	return (struct layer_extent){s->base_fd, at, min_u64(len, s->base_bytes - at)};
}

struct layer_extent layer_map(const struct layer_stack *s, uint64_t at, uint64_t len)
{
	uint64_t first = at / CLUSTER, end = (at + len + CLUSTER - 1) / CLUSTER;
	const struct layer *owner = NULL;

	/*
	 * From the top down: the first layer that has the cluster holds it, and the extent ends
	 * where that layer lacks a cluster or a layer above has one.
	 */
	for (unsigned i = s->n; i-- > 0 && !owner;) {
		const struct layer *l = &s->layer[i];

		if (bit_get(l->bits, first))
			owner = l;
		end = bit_run(l->bits, first, end, owner != NULL);
	}
	len = min_u64(len, end * CLUSTER - at);
	if (!owner)
		return extent_in_base(s, at, len);
	return (struct layer_extent){owner->fd, owner->data_offset + at, len};
}

enum layer_how layer_write_map(const struct layer_stack *s, uint64_t at, uint64_t len,
			       struct layer_extent *extent)
{
	const struct layer *l = writable(s);
	uint64_t into = at % CLUSTER;

	extent->fd = l->fd;
	extent->offset = l->data_offset + at;
	if (into == 0 && len >= CLUSTER) {
		extent->len = len - len % CLUSTER;
		return LAYER_WRITE;
	}
	if (bit_get(l->bits, at / CLUSTER)) {
		extent->len = min_u64(len, CLUSTER - into);
		return LAYER_WRITE;
	}
	extent->offset -= into;
	extent->len = CLUSTER;
	return LAYER_COPY;
}

void layer_written(struct layer_stack *s, uint64_t at, uint64_t len)
{
	struct layer *l = writable(s);
	uint64_t first = at / CLUSTER, end = (at + len + CLUSTER - 1) / CLUSTER;

	s->written = true;
	bit_set_range(l->bits, first, end, true);
	for (uint64_t page = first / 8 / PAGE; page <= (end - 1) / 8 / PAGE; page++)
		l->touched[page] = 1;
}

/* --- copy-up --- */

/* Minimum number of layers per copy-up, since every copy-up copies clusters once more. */
#define COPY_UP_LAYERS_MIN 16

static uint64_t held(const struct layer_stack *s, struct layer *l)
{
	const uint64_t *words = (const uint64_t *)l->bits;

	if (l->held != UINT64_MAX)
		return l->held;
	l->held = 0;
	for (uint64_t i = 0; i < s->map_bytes / 8; i++)
		l->held += (unsigned)__builtin_popcountll(words[i]);
	return l->held;
}

/*
 * Returns the index of the lowest layer to copy up. Takes at least COPY_UP_LAYERS_MIN layers from
 * the top, then more as long as the next is not bigger than those above it together.
 */
static unsigned choose_lowest(struct layer_stack *s)
{
	unsigned low = s->n - 1;
	uint64_t sum = 0;

	while (low > 0) {
		uint64_t next = held(s, &s->layer[low - 1]);

		if (s->n - 1 - low >= COPY_UP_LAYERS_MIN && next > sum)
			break;
		sum += next;
		low--;
	}
	return low;
}

void layer_copy_up_plan(struct layer_stack *s, unsigned most)
{
	if (s->copying_up || s->prepared || s->n - 1 <= most)
		return;
	s->copy_up_from = choose_lowest(s);
	s->copy_up_at = 0;
	s->copying_up = true;
}

bool layer_copying_up(const struct layer_stack *s)
{
	return s->copying_up;
}

void layer_copy_up_stop(struct layer_stack *s)
{
	s->copying_up = false;
}

/* Returns the bits of the clusters from 64 * i on that have to be copied up. */
static uint64_t wanted_word(const struct layer_stack *s, uint64_t i)
{
	uint64_t word = 0;

	for (unsigned k = s->copy_up_from; k < s->n - 1; k++)
		word |= ((const uint64_t *)s->layer[k].bits)[i];
	return word & ~((const uint64_t *)writable(s)->bits)[i];
}

bool layer_copy_up_wanted(const struct layer_stack *s, uint64_t at)
{
	uint64_t cluster = at / CLUSTER;

	return s->copying_up && wanted_word(s, cluster / 64) >> cluster % 64 & 1;
}

/* Returns the first cluster from copy_up_at on that has to be copied up, or s->clusters. */
static uint64_t first_wanted(const struct layer_stack *s)
{
	uint64_t at = s->copy_up_at;

	while (at < s->clusters) {
		uint64_t word = wanted_word(s, at / 64) >> at % 64;

		if (word)
			return min_u64(at + (unsigned)__builtin_ctzll(word), s->clusters);
		at += 64 - at % 64;
	}
	return s->clusters;
}

/* Removes the layers that were copied up from the chain. */
static void drop_copied_up(struct layer_stack *s)
{
	struct layer top = *writable(s);

	for (unsigned k = s->copy_up_from; k < s->n - 1; k++) {
		close_fd(&s->layer[k].fd);
		drop_layer(s, &s->layer[k]);
	}
	top.parent = s->copy_up_from ? s->layer[s->copy_up_from - 1].id : 0;
	s->layer[s->copy_up_from] = top;
	s->n = s->copy_up_from + 1;
	s->copying_up = false;
}

bool layer_copy_up_next(struct layer_stack *s, uint64_t bytes, uint64_t *from, uint64_t *end)
{
	uint64_t first, last;

	if (!s->copying_up)
		return false;
	first = s->copy_up_at = first_wanted(s);
	if (first == s->clusters) {
		drop_copied_up(s);
		return false;
	}
	last = first;
	while (last < s->clusters && last - first < bytes / CLUSTER &&
	       layer_copy_up_wanted(s, last * CLUSTER))
		last++;
	*from = first * CLUSTER;
	*end = last * CLUSTER;
	return true;
}
