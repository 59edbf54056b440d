// SPDX-License-Identifier: Apache-2.0
/*
 * KVM's state of a vCPU and of a VM, except memory, read and set in the order that KVM requires.
 * The vCPUs must be parked. vmm/state defines how it is written to a file.
 */
#ifndef RAMET_VMM_KVM_STATE_H
#define RAMET_VMM_KVM_STATE_H

#include "vmm/kvm/vm.h"

/* A struct kvm_msrs with room for the maximum that a snapshot carries. */
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
	bool tsc_stable;   /* all vCPUs derive it from equal TSCs; not part of a snapshot */
};

int vcpu_state_get(const struct kvm_vm *vm, unsigned i, struct vcpu_state *out, struct err *e);
/*
 * Set a vCPU in two steps, when guest memory is in place. The second step sets the model-specific
 * registers and pending events. It must be done for vCPU 0 before all others, since their TSCs
 * follow its own. CPUID leaves that the vCPU already has are not set again.
 */
int vcpu_state_set(struct kvm_vm *vm, unsigned i, const struct vcpu_state *s, struct err *e);
int vcpu_state_finish(struct kvm_vm *vm, unsigned i, const struct vcpu_state *s, struct err *e);

int vm_state_get(const struct kvm_vm *vm, struct vm_state *out, struct err *e);
/*
 * Call it after all vCPUs are set, since the chips may deliver interrupts to them. The clock
 * continues from the saved value.
 */
int vm_state_set(const struct kvm_vm *vm, const struct vm_state *s, struct err *e);

/* Logs the vCPU's most important registers in one line. */
void vcpu_log_registers(const struct kvm_vm *vm, unsigned i);

#endif
