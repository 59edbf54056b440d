// SPDX-License-Identifier: Apache-2.0
/* Pauses, saves and resumes a VM. */
#include <errno.h>

#include "base/clock.h"
#include "vmm/backend/layer.h"
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
	if (done)
		done(vm->on_paused_arg, result);
}

static void on_quiesced(struct vm *vm)
{
	vm->state = CTL_PAUSED;
	finish_pause(vm, 0);
}

void vm_end_pause(struct vm *vm)
{
	vm->on_drained = NULL;
	finish_pause(vm, -ECANCELED);
}

int vm_pause(struct vm *vm, vm_paused_fn *done, void *arg, struct err *e)
{
	if (vm->state != CTL_RUNNING)
		return err_say(e, EINVAL, "the VM is not running");
	if (vm->on_paused || vm->on_forked)
		return err_say(e, EBUSY, "the VM is already being %s",
			       vm->on_paused ? "paused" : "forked");
	vm->on_paused = done;
	vm->on_paused_arg = arg;
	vcpus_pause(vm->vcpus);
	vm->paused_at = now_ns();
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

/* --- Save --- */

int vm_save(struct vm *vm, int state_fd, int memory_fd, int *writable_fd, uint64_t *pause_ns,
	    struct err *e)
{
	const struct state_parts p = vm_parts(vm);
	int r;

	if (vm->state != CTL_PAUSED)
		return err_say(e, EINVAL, "the VM is not paused");
	if (vio_blk_enospc(vm_blk(vm)))
		return err_say(e, ENOSPC,
			       "the host's disk is full: writes of the guest wait for space");
	r = memory_save(&vm->mem, ram_memfd(vm->ram), memory_fd, e);
	if (!r)
		r = state_save(&p, state_fd, e);
	/* The last step, since it is the only one that changes the VM. */
	if (!r)
		r = layer_stack_seal(vio_blk_disk(vm_blk(vm)), *writable_fd, e);
	if (r)
		return r;
	*writable_fd = -1;
	vio_blk_sealed(vm_blk(vm));
	*pause_ns = now_ns() - vm->paused_at;
	return 0;
}
