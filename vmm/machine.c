// SPDX-License-Identifier: Apache-2.0
#include "vmm/machine.h"

#include <linux/virtio_mmio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/arch/x86/layout.h"
#include "vmm/kvm/irq.h"

/*
 * Average rate at which console output is logged: 88 MB a day. A burst may contain a minute's
 * worth, which is enough for a boot or a crash.
 */
#define CONSOLE_BYTES_PER_S 1024

/*
 * Pins of the interrupt controller that no other device uses; 8 is the clock's, 12 the generation's
 * (proto/platform.h).
 */
static const uint32_t device_gsi[MACHINE_DEVICES] = {
	[MACHINE_BLK] = 5,     [MACHINE_VSOCK] = 6, [MACHINE_RNG] = 7,
	[MACHINE_CONSOLE] = 9, [MACHINE_NET] = 10,  [MACHINE_BALLOON] = 11,
};

static uint64_t device_addr(unsigned i)
{
	return VIRTIO_ADDR + i * VIRTIO_STRIDE;
}

void machine_describe(struct boot_device out[MACHINE_DEVICES])
{
	for (unsigned i = 0; i < MACHINE_DEVICES; i++)
		out[i] = (struct boot_device){.addr = device_addr(i), .irq = device_gsi[i]};
}

static int discard(void *ram, uint64_t offset, uint64_t bytes)
{
	return ram_discard(ram, offset, bytes);
}

static int new_disk(struct vio_dev **out, const struct machine_config *cfg, struct err *e)
{
	int r = vio_blk_new(out, cfg->mem, cfg->loop, NULL, e);

	if (!r)
		vio_blk_limit(*out, &cfg->disk);
	return r;
}

static int new_device(struct vio_dev **out, enum machine_device which,
		      const struct machine_config *cfg, struct err *e)
{
	switch (which) {
	case MACHINE_BLK:
		return new_disk(out, cfg, e);
	case MACHINE_VSOCK:
		return vio_vsock_new(out, cfg->mem, cfg->loop, cfg->cid, e);
	case MACHINE_RNG:
		return vio_rng_new(out, cfg->mem, cfg->loop, e);
	case MACHINE_CONSOLE:
		return vio_console_new(out, cfg->mem, cfg->loop, STDERR_FILENO, CONSOLE_BYTES_PER_S,
				       e);
	case MACHINE_NET:
		return vio_net_new(out, cfg->mem, cfg->loop, cfg->tap_fd, cfg->ipv6, e);
	case MACHINE_BALLOON:
		return vio_balloon_new(out, cfg->mem, cfg->loop, discard, cfg->ram, e);
	case MACHINE_DEVICES:
		break;
	}
	abort();
}

static int add_device(struct machine *m, unsigned i, const struct machine_config *cfg,
		      struct err *e)
{
	struct vio_dev *dev;
	int r = irq_line_init(&m->lines[i], device_gsi[i], e);

	if (!r)
		r = new_device(&dev, (enum machine_device)i, cfg, e);
	if (!r)
		r = vio_mmio_new(&m->devices[i], dev, device_addr(i), &m->lines[i], &m->bus,
				 cfg->loop, e);
	if (!r)
		r = irq_line_attach(cfg->kvm, &m->lines[i], e);
	for (unsigned q = 0; !r && q < dev->ops->queues; q++)
		r = doorbell_attach(cfg->kvm, device_addr(i) + VIRTIO_MMIO_QUEUE_NOTIFY, q,
				    vio_mmio_doorbell(m->devices[i], q), e);
	return r;
}

int machine_init(struct machine *m, const struct machine_config *cfg, struct err *e)
{
	int r;

	memset(m, 0, sizeof(*m));
	r = cmos_add(&m->cmos, &m->bus, e);
	if (!r)
		r = i8042_add(&m->i8042, &m->bus, cfg->on_request, cfg->arg, e);
	if (!r)
		r = generation_add(&m->generation, &m->bus, cfg->on_unique, cfg->arg, e);
	if (!r && cfg->debug_serial)
		r = serial_add(&m->serial, &m->bus, e);
	for (unsigned i = 0; !r && i < MACHINE_DEVICES; i++)
		r = add_device(m, i, cfg, e);
	return r;
}
