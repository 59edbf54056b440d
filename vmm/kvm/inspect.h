// SPDX-License-Identifier: Apache-2.0
/* The state of a VM's vCPUs and interrupt controllers, as human-readable text. */
#ifndef RAMET_VMM_KVM_INSPECT_H
#define RAMET_VMM_KVM_INSPECT_H

#include "base/report.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/vcpus.h"
#include "vmm/kvm/vm.h"

/*
 * Adds the current and the last work of a vCPU's thread. `a` must come from before vcpus_hold,
 * which itself causes an exit.
 */
void vcpu_inspect_thread(unsigned i, const struct vcpu_activity *a, struct report *r);
/*
 * Adds the registers, pending events, local APIC and clocks of a parked vCPU. From guest memory it
 * reads the steal time only.
 */
void vcpu_inspect_state(const struct kvm_vm *vm, unsigned i, const struct gm *mem,
			struct report *r);
/* Adds the I/O APIC's pins that are pending or unmasked, the i8259s, and KVM's clock. */
void chips_inspect(const struct kvm_vm *vm, struct report *r);

#endif
