// SPDX-License-Identifier: Apache-2.0
/* Reads an arbitrary table of a memory layer. Its checksum is corrected unless the top bit of the
 * first byte is set. An accepted table must satisfy the rules in proto/image.h. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "vmm/kvm/ram-table.h"

#define CRC_AT 24
#define RAM    (64ull << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_checksum_right(uint8_t *table, size_t size)
{
	uint32_t crc;

	memset(table + CRC_AT, 0, 4);
	crc = crc32c(0, table, size);
	for (unsigned i = 0; i < 4; i++)
		table[CRC_AT + i] = (uint8_t)(crc >> (8 * i));
}

static void check(const struct extents *r)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		if (r->extent[i].offset < end || !r->extent[i].bytes ||
		    r->extent[i].offset % RAM_PAGE)
			abort();
		end = r->extent[i].offset + r->extent[i].bytes;
		if (end % RAM_PAGE || end > RAM)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct extents extents = {0};
	struct err e = {0};
	uint8_t *table;

	if (size < 1)
		return 0;
	table = malloc(size);
	if (!table)
		abort();
	memcpy(table, data + 1, size - 1);
	if (size - 1 >= CRC_AT + 4 && !(data[0] & 0x80))
		put_checksum_right(table, size - 1);
	if (!ram_table_parse(&extents, table, size - 1, RAM, &e))
		check(&extents);
	else if (!e.text[0])
		abort();
	extents_free(&extents);
	free(table);
	return 0;
}
