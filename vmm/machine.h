// SPDX-License-Identifier: Apache-2.0
/*
 * The hardware of the virtual machine: the bus, its devices and their interrupt lines, which are
 * attached to a KVM VM.
 */
#ifndef RAMET_VMM_MACHINE_H
#define RAMET_VMM_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "vmm/arch/x86/boot.h"
#include "vmm/dev/bus.h"
#include "vmm/dev/cmos.h"
#include "vmm/dev/generation.h"
#include "vmm/dev/i8042.h"
#include "vmm/dev/serial.h"
#include "vmm/kvm/ram.h"
#include "vmm/virtio/device.h"

/* In the order of their addresses and of their sections in a state file. */
enum machine_device {
	MACHINE_BLK,
	MACHINE_VSOCK,
	MACHINE_RNG,
	MACHINE_CONSOLE,
	MACHINE_NET,
	MACHINE_BALLOON,
	MACHINE_DEVICES
};

struct machine_config {
	const struct gm *mem;
	struct ram *ram;    /* gets the pages that the guest frees */
	struct kvm_vm *kvm; /* gets the interrupt lines and doorbells */
	struct event_loop *loop;
	uint64_t cid;
	struct vio_blk_limits disk;
	int tap_fd; /* owned by the machine after success; -1: no link */
	bool ipv6;
	bool debug_serial;
	i8042_fn *on_request;	  /* reset and power-off; called on a vCPU thread */
	generation_fn *on_unique; /* the guest has made itself unique; called on a vCPU thread */
	void *arg;
};

struct machine {
	struct bus bus;
	struct cmos cmos;
	struct i8042 i8042;
	struct generation generation;
	struct serial serial; /* on the bus with debug_serial only */
	struct irq_line lines[MACHINE_DEVICES];
	struct vio_mmio *devices[MACHINE_DEVICES];
};

int machine_init(struct machine *m, const struct machine_config *cfg, struct err *e);

/* Describes where the guest finds the devices. */
void machine_describe(struct boot_device out[MACHINE_DEVICES]);

#endif
