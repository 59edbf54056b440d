// SPDX-License-Identifier: Apache-2.0
/* The VM's own fields, for the files that together are vm.h: vm.c, pause.c and fork.c. */
#ifndef RAMET_VMM_VM_INTERNAL_H
#define RAMET_VMM_VM_INTERNAL_H

#include <pthread.h>

#include "vmm/confine.h"
#include "vmm/kvm/ram.h"
#include "vmm/kvm/vcpus.h"
#include "vmm/kvm/vm.h"
#include "vmm/machine.h"
#include "vmm/state/state.h"
#include "vmm/vm.h"

/* Why the guest is gone: the first reason that a vCPU thread came upon. */
struct vm_end {
	pthread_mutex_t lock;
	int fd; /* eventfd: tells the loop */
	struct loop_watch *watch;
	bool set;
	enum ctl_end_reason reason;
	unsigned vcpu;
	char text[CTL_TEXT_MAX];
};

struct vm {
	struct config cfg;
	struct loop *loop;
	struct confine *confine;
	struct kvm_host host;
	struct kvm_vm *kvm;
	struct gm mem;
	struct ram *ram;
	struct machine machine;
	struct vcpus *vcpus;

	enum ctl_vm_state state;
	bool spoiled;  /* a fill failed half-way */
	bool restored; /* filled from an image */
	uint64_t filled_at, paused_at;

	void (*on_drained)(struct vm *vm); /* a drain is under way; what comes after it */
	unsigned draining;		   /* devices with I/O in flight */

	vm_paused_fn *on_paused; /* a pause is under way */
	void *on_paused_arg;

	vm_forked_fn *on_forked; /* a fork is under way */
	void *on_forked_arg;
	int fork_writable; /* the disk layer it was given */
	struct vm_fork_how fork_how;
	struct loop_timer flatten;

	vm_ended_fn *on_ended;
	void *on_ended_arg;
	struct vm_end end;
};

struct state_parts vm_parts(struct vm *vm);
struct vio_dev *vm_blk(const struct vm *vm);
/* After the vCPUs stood still: so that the guest's watchdogs do not bark. */
void vm_tell_clock_stopped(struct vm *vm);

/* Stops the devices and calls `next` once none has I/O in flight, perhaps before it returns; never,
 * when the guest ends meanwhile. */
void vm_drain(struct vm *vm, void (*next)(struct vm *vm));
void vm_continue_devices(struct vm *vm);

/* The guest is gone: whoever waits is told. */
void vm_end_pause(struct vm *vm);
void vm_end_fork(struct vm *vm);

/* Memory layers are merged in the background from now on, while the guest runs. */
void vm_flatten(struct vm *vm);

#endif
