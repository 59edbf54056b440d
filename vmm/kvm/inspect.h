// SPDX-License-Identifier: Apache-2.0
/* What a VM's vCPUs and interrupt controllers are doing, as text for people. */
#ifndef RAMET_VMM_KVM_INSPECT_H
#define RAMET_VMM_KVM_INSPECT_H

#include "base/report.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/vcpus.h"
#include "vmm/kvm/vm.h"

/* What its thread does and did last, as it was before vcpus_hold: that is an exit as well. */
void vcpu_inspect_thread(unsigned i, const struct vcpu_activity *a, struct report *r);
/* Registers, pending events, local APIC, clocks. The vCPU stands still. Of guest memory, which may
 * hold anything, no more than the steal time is read. */
void vcpu_inspect_state(const struct kvm_vm *vm, unsigned i, const struct gm *mem,
			struct report *r);
/* Pins of the I/O APIC that are not masked, or pending; the old controllers; KVM's clock. */
void chips_inspect(const struct kvm_vm *vm, struct report *r);

#endif
