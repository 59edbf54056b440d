// SPDX-License-Identifier: Apache-2.0
/* Opens and reads a file that claims to be a sealed disk layer. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/wire.h"
#include "vmm/backend/layer.h"

#define DISK   (64u * 4096)
#define HEAD   8192u /* header and bitmap */
#define CRC_AT 52u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int new_file(void)
{
	int fd = memfd_create("layer", MFD_CLOEXEC);

	if (fd < 0)
		abort();
	return fd;
}

/* Creates a layer file: the input has its first fields, then the bitmap. Flags: 1 corrects the
 * checksum, 2 the size. */
static int make_file(struct wire *in, uint8_t flags)
{
	static uint8_t head[HEAD];
	int fd = new_file();
	uint32_t crc;
	size_t left;

	memset(head, 0, sizeof(head));
	wire_get_bytes(in, head, 56);
	left = wire_left(in) < 64 ? wire_left(in) : 64;
	wire_get_bytes(in, head + 4096, left);
	if (flags & 1) {
		memset(head + CRC_AT, 0, 4);
		crc = crc32c(0, head, sizeof(head));
		memcpy(head + CRC_AT, &crc, 4);
	}
	if (pwrite(fd, head, flags & 4 ? 40 : HEAD, 0) < 0 ||
	    (flags & 2 && ftruncate(fd, HEAD + DISK) < 0))
		abort();
	return fd;
}

static void walk(struct layer_stack *s)
{
	uint64_t at = 0, step = 512;

	while (at < DISK) {
		struct layer_extent extent = layer_map(s, at, DISK - at);

		if (!extent.len || extent.len > DISK - at ||
		    (extent.fd >= 0 && extent.offset + extent.len > HEAD + DISK))
			__builtin_trap();
		if (layer_write_map(s, at, DISK - at, &extent) == LAYER_COPY && extent.len != 4096)
			__builtin_trap();
		if (extent.offset + extent.len > HEAD + DISK)
			__builtin_trap();
		at += step;
		step = step * 2 > 9000 ? 512 : step * 2;
	}
}

/* Copies up all of both sealed layers, and drops the copies. */
static void copy_up(struct layer_stack *s)
{
	uint64_t from, end;

	layer_copy_up_plan(s, 1);
	while (layer_copy_up_next(s, 8192, &from, &end)) {
		if (from >= end || end > DISK || !layer_copy_up_wanted(s, from))
			__builtin_trap();
		layer_written(s, from, end - from);
		if (layer_copy_up_wanted(s, from) || layer_copy_up_wanted(s, end - 1))
			__builtin_trap();
	}
	if (layer_copying_up(s))
		__builtin_trap();
	walk(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire in = wire_from(data, size);
	int fd = make_file(&in, wire_get_u8(&in)), writable = new_file();
	struct layer_stack *s;

	if (layer_stack_open(&s, -1, &fd, 1, writable, DISK, NULL) < 0) {
		close(fd);
		close(writable);
		return 0;
	}
	walk(s);
	layer_written(s, 4096, 8192);
	if (layer_stack_prepare(s, new_file(), NULL) < 0)
		__builtin_trap();
	layer_stack_commit(s);
	walk(s);
	copy_up(s);
	layer_stack_free(s);
	return 0;
}
