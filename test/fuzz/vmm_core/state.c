// SPDX-License-Identifier: Apache-2.0
/*
 * Reads an arbitrary state file, which begins after the first byte of the input. That byte: bits 0
 * to 3 are the reader's number of devices. The file's version, length and checksum are corrected so
 * that the code after these checks is reached, unless bit 7 is set.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "proto/image.h"
#include "vmm/state/state.h"

#define HEADER_BYTES 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_header_right(uint8_t *file, size_t size)
{
	struct wire h = wire_on(file, HEADER_BYTES);

	wire_put_bytes(&h, IMAGE_STATE_MAGIC, 8);
	wire_put_u32(&h, IMAGE_STATE_VERSION);
	wire_put_u32(&h, (uint32_t)(size - HEADER_BYTES));
	wire_put_u32(&h, crc32c(0, file + HEADER_BYTES, size - HEADER_BYTES));
	wire_put_u32(&h, 0);
}

/* Aborts unless all of the set can be mapped. */
static void check_set(const struct working_set *set, uint64_t ram)
{
	const struct extents *lists[] = {&set->used, &set->written};

	for (int i = 0; i < 2; i++) {
		const struct extents *x = lists[i];

		if (x->n && x->extent[x->n - 1].offset + x->extent[x->n - 1].bytes > ram)
			abort();
		if (extents_bytes(x) > WORKING_SET_BYTES_MAX)
			abort();
	}
}

static void read_fields(struct state_file *img)
{
	static struct vcpu_state vcpu;
	struct working_set set = {0};
	struct vm_state vm;
	struct err e = {0};

	vm_state_read(&state_find(img, STATE_VM)->body, &vm, &e);
	for (unsigned i = 0; i < img->vcpus; i++)
		vcpu_state_read(&state_find(img, STATE_VCPU + i)->body, &vcpu, &e);
	if (!working_set_read(&state_find(img, STATE_WORKING_SET)->body, &set, img->ram_mib, &e))
		check_set(&set, (uint64_t)img->ram_mib << 20);
	working_set_free(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct state_file img;
	struct err e = {0};
	uint8_t *file;

	if (size < 1)
		return 0;
	file = malloc(size);
	if (!file)
		abort();
	memcpy(file, data + 1, size - 1);
	if (size - 1 >= HEADER_BYTES && !(data[0] & 0x80))
		put_header_right(file, size - 1);
	if (!state_parse(&img, file, size - 1, data[0] % STATE_DEVICES_MAX, &e))
		read_fields(&img);
	else if (!e.text[0])
		abort();
	free(file);
	return 0;
}
