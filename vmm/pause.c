// SPDX-License-Identifier: Apache-2.0
/* Pauses and resumes a VM. */
#include <errno.h>

#include "vmm/vm-internal.h"

/* --- Devices --- */

static void on_device_drained(void *arg)
{
	struct vm *vm = arg;
	void (*next)(struct vm *) = vm->on_drained;

	if (--vm->draining || !next)
		return;
	vm->on_drained = NULL;
	next(vm);
}

void vm_drain(struct vm *vm, void (*next)(struct vm *vm))
{
	vm->on_drained = next;
	/* Counts this loop, so that no device finishes the drain before the last one was asked. */
	vm->draining = 1;
	for (unsigned i = 0; i < MACHINE_DEVICES; i++) {
		struct vio_dev *d = vio_mmio_device(vm->machine.devices[i]);

		d->on_drained = on_device_drained;
		d->on_drained_arg = vm;
		vm->draining++;
		if (vio_mmio_drain(vm->machine.devices[i]))
			vm->draining--;
	}
	on_device_drained(vm);
}

void vm_continue_devices(struct vm *vm)
{
	for (unsigned i = 0; i < MACHINE_DEVICES; i++)
		vio_mmio_continue(vm->machine.devices[i]);
}

/* --- Pause and run --- */

static void finish_pause(struct vm *vm, int result)
{
	vm_paused_fn *done = vm->on_paused;

	vm->on_paused = NULL;
	vm->cancel = NULL;
	done(vm->on_paused_arg, result);
}

static void on_quiesced(struct vm *vm)
{
	vm->state = CTL_PAUSED;
	finish_pause(vm, 0);
}

static void cancel(struct vm *vm)
{
	vm->on_drained = NULL;
	finish_pause(vm, -ECANCELED);
}

int vm_pause(struct vm *vm, vm_paused_fn *done, void *arg, struct err *e)
{
	int r = vm_check_free(vm, e);

	if (r)
		return r;
	vm->cancel = cancel;
	vm->on_paused = done;
	vm->on_paused_arg = arg;
	vcpus_pause(vm->vcpus);
	/* A guest that has just ended is not paused: on_end_event is due and reports the end. */
	if (!vm->end.set)
		vm_drain(vm, on_quiesced);
	return 0;
}

void vm_notify_clock_stopped(struct vm *vm)
{
	for (unsigned i = 0; i < vm->cfg.vcpus; i++)
		kvm_vcpu_clock_stopped(&vm->kvm->vcpu[i]);
}

int vm_run(struct vm *vm, struct err *e)
{
	if (vm->state != CTL_PAUSED)
		return err_say(e, EINVAL, "the VM is not paused");
	vm_notify_clock_stopped(vm);
	vm_continue_devices(vm);
	vm->state = CTL_RUNNING;
	vcpus_run(vm->vcpus);
	vm_flatten(vm);
	return 0;
}
