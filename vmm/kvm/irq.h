// SPDX-License-Identifier: Apache-2.0
/* Interrupt lines and doorbells of a KVM VM, as eventfds that the kernel serves. */
#ifndef RAMET_VMM_KVM_IRQ_H
#define RAMET_VMM_KVM_IRQ_H

#include <stdint.h>

#include "base/err.h"

struct kvm_vm;

/*
 * An interrupt line: an eventfd that raises GSI `gsi` (edge-triggered) in the VM. A device knows
 * only the eventfd. It can therefore be tested without KVM, and keeps the eventfd when the KVM VM
 * is replaced.
 */
struct irq_line {
	int fd; /* eventfd, owned */
	uint32_t gsi;
};

int irq_line_init(struct irq_line *line, uint32_t gsi, struct err *e);
/* Raises one edge. Safe from any thread. */
void irq_line_raise(const struct irq_line *line);

/* Raises one edge of GSI `gsi`. On return, the vCPUs' local APICs have received it. */
int irq_pulse(const struct kvm_vm *vm, uint32_t gsi, struct err *e);

/*
 * Attach to this KVM VM an interrupt line (KVM_IRQFD), or a doorbell (KVM_IOEVENTFD): an eventfd
 * that is signalled when the guest writes the 4 bytes `value` to `mmio_addr`.
 */
int irq_line_attach(struct kvm_vm *vm, const struct irq_line *line, struct err *e);
int doorbell_attach(struct kvm_vm *vm, uint64_t mmio_addr, uint32_t value, int eventfd,
		    struct err *e);

#endif
