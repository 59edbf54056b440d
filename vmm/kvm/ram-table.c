// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/ram-table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/version.h"
#include "base/wire.h"
#include "proto/image.h"

#define HEADER_BYTES 32u
#define CRC_AT	     24u
#define EXTENT_BYTES 16u
#define COUNT_AT     12u

/* Returns the checksum of the table, computed with the checksum field as zeros. */
static uint32_t checksum(const uint8_t *table, size_t size)
{
	static const uint8_t zero[4];
	uint32_t crc = crc32c(0, table, CRC_AT);

	crc = crc32c(crc, zero, sizeof(zero));
	return crc32c(crc, table + CRC_AT + 4, size - CRC_AT - 4);
}

static int check_header(struct wire *w, uint64_t ram_bytes, uint32_t *count, struct err *e)
{
	uint8_t magic[8];
	uint32_t version, crc;
	uint64_t bytes;

	wire_get_bytes(w, magic, sizeof(magic));
	version = wire_get_u32(w);
	*count = wire_get_u32(w);
	bytes = wire_get_u64(w);
	crc = wire_get_u32(w);
	wire_get_u32(w);
	if (w->bad || memcmp(magic, IMAGE_MEMORY_MAGIC, sizeof(magic)) != 0)
		return err_say(e, EINVAL, "the file is not a memory layer");
	if (version_check("the memory layer", version, IMAGE_MEMORY_VERSION_OLDEST,
			  IMAGE_MEMORY_VERSION, e) < 0)
		return -ENOTSUP;
	if (bytes != ram_bytes)
		return err_say(e, EINVAL,
			       "the memory layer is for %llu bytes of RAM, but this VM has %llu",
			       (unsigned long long)bytes, (unsigned long long)ram_bytes);
	if (*count > IMAGE_MEMORY_EXTENTS_MAX || wire_left(w) != *count * (size_t)EXTENT_BYTES)
		return err_say(e, EINVAL,
			       "its table has %u extents in %zu bytes; the limit is %u extents",
			       *count, w->size, IMAGE_MEMORY_EXTENTS_MAX);
	if (crc != checksum(w->p, w->size))
		return err_say(e, EINVAL, "the table of extents is damaged: its checksum is wrong");
	return 0;
}

int ram_table_parse(struct extents *out, const uint8_t *table, size_t size, uint64_t ram_bytes,
		    struct err *e)
{
	struct wire w = wire_from(table, size);
	uint64_t end = 0;
	uint32_t count;
	int r = check_header(&w, ram_bytes, &count, e);

	for (uint32_t i = 0; i < count && !r; i++) {
		uint64_t offset = wire_get_u64(&w), bytes = wire_get_u64(&w);

		if (offset % RAM_PAGE || bytes % RAM_PAGE || !bytes ||
		    (i ? offset <= end : offset < end) || offset > ram_bytes ||
		    bytes > ram_bytes - offset)
			return err_say(e, EINVAL, "extent %u is invalid: 0x%llx bytes at 0x%llx", i,
				       (unsigned long long)bytes, (unsigned long long)offset);
		end = offset + bytes;
		if (extents_add(out, offset, bytes))
			r = err_set(e, ENOMEM, "allocate the extents of a layer");
	}
	return r;
}

static size_t exact_bytes(uint32_t extents)
{
	return HEADER_BYTES + extents * (size_t)EXTENT_BYTES;
}

uint64_t ram_table_bytes(uint32_t extents)
{
	return (exact_bytes(extents) + RAM_PAGE - 1) / RAM_PAGE * RAM_PAGE;
}

/*
 * Returns the number of extents that the table claims, limited to the maximum; the parser checks
 * it.
 */
static uint32_t count_in(const uint8_t *table)
{
	struct wire w = wire_from(table + COUNT_AT, 4);
	uint32_t extents = wire_get_u32(&w);

	return extents < IMAGE_MEMORY_EXTENTS_MAX ? extents : IMAGE_MEMORY_EXTENTS_MAX;
}

/* Reads the table of a file of `size` bytes. Most tables fit into the first page. */
static int read_table(struct extents *out, int fd, uint64_t size, uint64_t ram_bytes, struct err *e)
{
	uint8_t first[RAM_PAGE];
	scoped_free uint8_t *all = NULL;
	size_t bytes;
	int r = file_read(fd, 0, first, sizeof(first), e);

	if (r)
		return r;
	bytes = exact_bytes(count_in(first));
	if (bytes <= sizeof(first))
		return ram_table_parse(out, first, bytes, ram_bytes, e);
	if (bytes > size)
		bytes = size;
	all = malloc(bytes);
	if (!all)
		return err_set(e, ENOMEM, "allocate %zu bytes for its table", bytes);
	r = file_read(fd, 0, all, bytes, e);
	return r ? r : ram_table_parse(out, all, bytes, ram_bytes, e);
}

int ram_table_read(struct extents *out, int fd, uint64_t ram_bytes, struct err *e)
{
	uint64_t size, expected;
	int r = file_size(fd, &size, e);

	if (r)
		return r;
	if (size < RAM_PAGE)
		return err_say(e, EINVAL, "the file has %llu bytes, too few for a memory layer",
			       (unsigned long long)size);
	r = read_table(out, fd, size, ram_bytes, e);
	if (r)
		return r;
	expected = ram_table_bytes(out->n) + extents_bytes(out);
	if (size != expected)
		return err_say(
			e, EINVAL,
			"the file has %llu bytes, but its %u extents and their table take %llu",
			(unsigned long long)size, out->n, (unsigned long long)expected);
	return 0;
}

int ram_table_write(int fd, const struct extents *extents, uint64_t ram_bytes, struct err *e)
{
	size_t size = exact_bytes(extents->n);
	scoped_free uint8_t *table = malloc(size);
	struct wire w = wire_on(table, size), crc;

	if (!table)
		return err_set(e, ENOMEM, "make the table of a memory layer");
	wire_put_bytes(&w, IMAGE_MEMORY_MAGIC, 8);
	wire_put_u32(&w, IMAGE_MEMORY_VERSION);
	wire_put_u32(&w, extents->n);
	wire_put_u64(&w, ram_bytes);
	wire_put_u64(&w, 0); /* the checksum, and zero */
	for (uint32_t i = 0; i < extents->n; i++) {
		wire_put_u64(&w, extents->extent[i].offset);
		wire_put_u64(&w, extents->extent[i].bytes);
	}
	crc = wire_on(table + CRC_AT, 4);
	wire_put_u32(&crc, checksum(table, size));
	return file_write(fd, 0, table, size, e);
}
