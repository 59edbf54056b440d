// SPDX-License-Identifier: Apache-2.0
/*
 * The hardware of the virtual machine: the bus and what sits on it, with the interrupt lines. It
 * knows a KVM VM only while it is attached to it, so that another can take its place.
 */
#ifndef RAMET_VMM_MACHINE_H
#define RAMET_VMM_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "vmm/arch/x86/boot.h"
#include "vmm/dev/bus.h"
#include "vmm/dev/generation.h"
#include "vmm/dev/legacy.h"
#include "vmm/dev/serial.h"
#include "vmm/kvm/ram.h"
#include "vmm/virtio/device.h"

/* Their order is the order of their addresses and of their sections in a state file. */
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
	struct ram *ram; /* to which freed pages go back */
	struct loop *loop;
	uint64_t cid;
	struct vio_blk_limits disk;
	int tap_fd; /* owned by the machine from its success on; -1: no link */
	bool ipv6;
	bool debug_serial;
	legacy_fn *on_request;	  /* reset, power off; on a vCPU thread */
	generation_fn *on_unique; /* the guest has made itself unique; on a vCPU thread */
	void *arg;
};

struct machine {
	struct bus *bus;
	struct legacy *legacy;
	struct generation *generation;
	struct serial *serial; /* NULL without debug_serial */
	struct irq_line serial_line;
	struct irq_line lines[MACHINE_DEVICES];
	struct vio_mmio *devices[MACHINE_DEVICES];
};

int machine_init(struct machine *m, const struct machine_config *cfg, struct err *e);
void machine_fini(struct machine *m);

/* Interrupt lines and doorbells to this KVM VM. */
int machine_attach(const struct machine *m, struct kvm_vm *kvm, struct err *e);

/* Where the guest finds the devices. */
void machine_describe(struct boot_device out[MACHINE_DEVICES]);

#endif
