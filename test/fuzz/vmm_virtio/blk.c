// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest.h"
#include "vmm/backend/layer.h"

#define DISK (32u * 4096)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int new_file(void)
{
	int fd = memfd_create("layer", MFD_CLOEXEC);

	if (fd < 0)
		abort();
	return fd;
}

static void seal(struct guest *g)
{
	struct layer_stack *disk = vio_blk_disk(g->v.dev);
	struct err e;
	int fd = new_file();

	for (int i = 0; i < 1000 && !vio_mmio_drain(g->v.mmio); i++)
		event_loop_turn(g->v.loop, 10);
	int rc = layer_stack_prepare(disk, fd, &e);
	if (rc == -E2BIG) /* the input seals more often than a disk may have layers */
		close(fd);
	else if (rc < 0)
		abort();
	else
		layer_stack_commit(disk);
	vio_mmio_continue(g->v.mmio);
}

/* Sends a request that is well-formed except for the numbers from the input. */
static void request(struct guest *g)
{
	uint8_t type = wire_get_u8(&g->in) % 16;
	uint64_t sector = wire_get_u16(&g->in) % (DISK / 512 + 4);
	uint32_t len = 512u * (wire_get_u8(&g->in) % 32) + wire_get_u8(&g->in) / 255;
	uint32_t head[2] = {type, 0}, range[2] = {wire_get_u8(&g->in), wire_get_u8(&g->in) & 1};
	uint64_t at = 16384 + 64 * (wire_get_u8(&g->in) % 16), data = 24576;
	struct drv_buf bufs[] = {{at, 16, false}, {data, len, type == 0}, {at + 32, 1, true}};

	if (!g->v.q[0].desc)
		return;
	memcpy(drv_ptr(&g->v, at), head, 8);
	memcpy(drv_ptr(&g->v, at + 8), &sector, 8);
	if (type == 11 || type == 13) {
		memcpy(drv_ptr(&g->v, data), &sector, 8);
		memcpy(drv_ptr(&g->v, data + 8), range, 8);
		bufs[1].len = 16;
	}
	drv_add(&g->v, 0, bufs, 3);
}

static void special(struct guest *g, uint8_t what)
{
	if (what % 8 == 7) {
		seal(g);
	} else if (what % 8 == 6) {
		layer_copy_up_plan(vio_blk_disk(g->v.dev), 1);
		vio_blk_sealed(g->v.dev);
	} else {
		request(g);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest g = {.in = wire_from(data, size), .special = special};
	struct layer_stack *disk;
	struct vio_dev *dev;
	int base = new_file();

	if (ftruncate(base, DISK / 2 + 700) < 0)
		abort();
	drv_init(&g.v, GUEST_MEM);
	if (layer_stack_open(&disk, base, NULL, 0, new_file(), DISK, NULL) < 0 ||
	    vio_blk_new(&dev, &g.v.mem, g.v.loop, disk, NULL) < 0)
		abort();
	drv_attach(&g.v, dev);
	guest_maybe_restore(&g);
	guest_play(&g);
	drv_fini(&g.v);
	return 0;
}
