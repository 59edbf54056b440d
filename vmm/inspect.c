// SPDX-License-Identifier: Apache-2.0
/*
 * A report on the current state of the VM, for people who want to know why it does not make
 * progress.
 */
#include "vmm/kvm/inspect.h"

#include "base/clock.h"
#include "vmm/vm-internal.h"

/*
 * Maximum time that the loop waits for the vCPUs to stop. A kick takes microseconds, or
 * milliseconds on a busy host.
 */
#define HOLD_MS 200

static unsigned long long pages(const struct extents *x)
{
	return extents_bytes(x) / RAM_PAGE;
}

static void add_state(const struct vm *vm, struct report *r)
{
	const struct working_set *set = ram_working_set(vm->ram);
	static const char *const states[] = {[CTL_BLANK] = "blank",
					     [CTL_RUNNING] = "running",
					     [CTL_PAUSED] = "paused",
					     [CTL_GUEST_ENDED] = "ended"};

	report_add(r, "VM: %s%s%s%s, %u MiB, %u vCPUs", states[vm->state],
		   vm->unusable ? ", unusable after a failed start" : "",
		   vm->on_paused ? ", being paused" : "", vm->on_forked ? ", being forked" : "",
		   vm_ram_mib(vm), vm->cfg.vcpus);
	if (vm->started_at)
		report_add(r, ", %s %.3f s ago", vm->restored ? "restored" : "booted",
			   (double)(now_ns() - vm->started_at) / 1e9);
	if (set->used.n)
		report_add(r, ", working set of %llu pages, %llu of them written",
			   pages(&set->used), pages(&set->written));
	if (vm->on_drained)
		report_add(r, ", %u devices have I/O in flight", vm->draining);
	report_add(r, "\n");
	if (vm->state == CTL_GUEST_ENDED)
		report_add(r, "the guest has ended: %s\n", vm->end.text);
}

static void add_vcpus(struct vm *vm, const struct vcpu_activity *before, struct report *r)
{
	for (unsigned i = 0; i < vm->cfg.vcpus; i++) {
		vcpu_inspect_thread(i, &before[i], r);
		if (vcpus_activity(vm->vcpus, i).parked)
			vcpu_inspect_state(vm->kvm, i, &vm->mem, r);
		else
			report_add(r, "  did not stop: its registers can't be read\n");
	}
}

void vm_inspect(struct vm *vm, struct report *r)
{
	struct vcpu_activity before[KVM_VCPUS_MAX];
	uint64_t began_ns;

	add_state(vm, r);
	for (unsigned i = 0; i < vm->cfg.vcpus; i++)
		before[i] = vcpus_activity(vm->vcpus, i);
	began_ns = now_ns();
	vcpus_hold(vm->vcpus, HOLD_MS);
	add_vcpus(vm, before, r);
	chips_inspect(vm->kvm, r);
	for (unsigned i = 0; i < MACHINE_DEVICES; i++)
		vio_mmio_inspect(vm->machine.devices[i], r);
	vcpus_unhold(vm->vcpus);
	report_add(r, "this report took %.3f ms, during which the vCPUs were stopped\n",
		   (double)(now_ns() - began_ns) / 1e6);
}
