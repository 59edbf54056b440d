// SPDX-License-Identifier: Apache-2.0
/* The state of a VM's vCPUs and interrupt controllers, as text for people. */
#ifndef RAMET_VMM_KVM_INSPECT_H
#define RAMET_VMM_KVM_INSPECT_H

#include "base/report.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/vcpus.h"
#include "vmm/kvm/vm.h"

/* Adds what a vCPU's thread does and did last. `a` is from before vcpus_hold, which causes an exit.
 */
void vcpu_inspect_thread(unsigned i, const struct vcpu_activity *a, struct report *r);
/* Adds registers, pending events, local APIC and clocks of a vCPU that is parked. Reads nothing of
 * guest memory but the steal time. */
void vcpu_inspect_state(const struct kvm_vm *vm, unsigned i, const struct gm *mem,
			struct report *r);
/* Adds the I/O APIC's pins that are pending or not masked, the i8259s and KVM's clock. */
void chips_inspect(const struct kvm_vm *vm, struct report *r);

#endif
