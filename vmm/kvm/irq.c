// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/irq.h"

#include <errno.h>
#include <sys/ioctl.h>

#include "vmm/kvm/vm.h"

int irq_line_attach(struct kvm_vm *vm, const struct irq_line *line, struct err *e)
{
	struct kvm_irqfd r = {.fd = (uint32_t)line->fd, .gsi = line->gsi};

	if (ioctl(vm->fd, KVM_IRQFD, &r) < 0)
		return err_set(e, errno, "attach interrupt %u", line->gsi);
	return 0;
}

int irq_pulse(const struct kvm_vm *vm, uint32_t gsi, struct err *e)
{
	struct kvm_irq_level line = {.irq = gsi, .level = 1};
	int r = ioctl(vm->fd, KVM_IRQ_LINE, &line);

	line.level = 0;
	if (r < 0 || ioctl(vm->fd, KVM_IRQ_LINE, &line) < 0)
		return err_set(e, errno, "raise interrupt %u", gsi);
	return 0;
}

int doorbell_attach(struct kvm_vm *vm, uint64_t mmio_addr, uint32_t value, int eventfd,
		    struct err *e)
{
	struct kvm_ioeventfd r = {
		.datamatch = value,
		.addr = mmio_addr,
		.len = 4,
		.fd = eventfd,
		.flags = KVM_IOEVENTFD_FLAG_DATAMATCH,
	};

	if (ioctl(vm->fd, KVM_IOEVENTFD, &r) < 0)
		return err_set(e, errno, "attach the doorbell at 0x%llx",
			       (unsigned long long)mmio_addr);
	return 0;
}
