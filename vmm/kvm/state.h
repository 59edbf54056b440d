// SPDX-License-Identifier: Apache-2.0
/*
 * All that KVM holds of a vCPU and of a VM beside its memory, read and set in the order in which
 * KVM wants it. vCPUs must stand still. How it is written to a file is vmm/state's matter.
 */
#ifndef RAMET_VMM_KVM_STATE_H
#define RAMET_VMM_KVM_STATE_H

#include "vmm/kvm/vm.h"

/* A struct kvm_msrs with room for the most we carry. */
struct kvm_msr_values {
	uint32_t nmsrs;
	uint32_t pad;
	struct kvm_msr_entry entries[KVM_MSRS_MAX];
};

struct vcpu_state {
	struct cpuid_list cpuid;
	struct kvm_mp_state mp_state;
	struct kvm_sregs sregs;
	struct kvm_regs regs;
	struct kvm_xcrs xcrs;
	struct kvm_debugregs debugregs;
	struct kvm_lapic_state lapic;
	struct kvm_msr_values msrs;
	struct kvm_vcpu_events events;
	uint32_t tsc_khz;
	uint32_t xsave_bytes;
	union {
		struct kvm_xsave area;
		uint8_t bytes[KVM_XSAVE_MAX];
	} xsave;
};

struct vm_state {
	struct kvm_irqchip chips[3]; /* master PIC, slave PIC, I/O APIC */
	struct kvm_pit_state2 pit;
	uint64_t clock_ns; /* KVM's clock, which the guest's monotonic time follows */
};

int vcpu_state_get(const struct kvm_vm *vm, unsigned i, struct vcpu_state *out, struct err *e);
/*
 * In two steps: the second sets the model-specific registers and what is pending, and must be done
 * for vCPU 0 before any other, since its TSC is the one that the others are matched to. Guest
 * memory is there. CPUID leaves that the vCPU already has are not set again.
 */
int vcpu_state_set(struct kvm_vm *vm, unsigned i, const struct vcpu_state *s, struct err *e);
int vcpu_state_finish(struct kvm_vm *vm, unsigned i, const struct vcpu_state *s, struct err *e);

int vm_state_get(const struct kvm_vm *vm, struct vm_state *out, struct err *e);
/* After all vCPUs: chips may hand interrupts to them. The clock goes on from where it was read. */
int vm_state_set(const struct kvm_vm *vm, const struct vm_state *s, struct err *e);

/* The registers that say where a vCPU was, on one line of the log. */
void vcpu_log_registers(const struct kvm_vm *vm, unsigned i);

#endif
