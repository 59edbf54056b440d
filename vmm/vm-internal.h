// SPDX-License-Identifier: Apache-2.0
/* The VM's own fields, for the files that implement vm.h: vm.c, pause.c, fork.c and inspect.c. */
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

/* Why the guest has ended: the first reason that was reported. */
struct vm_end {
	pthread_mutex_t lock;
	int fd; /* eventfd: notifies the loop */
	struct event_watch *watch;
	bool set;
	enum ctl_end_reason reason;
	unsigned vcpu;
	char text[CTL_TEXT_MAX];
};

struct vm {
	struct vm_config cfg;
	struct event_loop *loop;
	struct confine *confine;
	struct kvm_host host;
	struct kvm_vm *kvm;
	struct gm mem;
	struct ram *ram;
	struct machine machine;
	struct vcpus *vcpus;

	enum ctl_vm_state state;
	bool unusable; /* a boot or restore failed half-way */
	bool restored; /* from a snapshot */
	uint64_t started_at;

	void (*on_drained)(struct vm *vm); /* called at the end of the drain that is in progress */
	unsigned draining;		   /* devices with I/O in flight */

	/* Calls the callback of the pause or fork that is in progress, because the guest has ended;
	 * NULL: there is none. */
	void (*cancel)(struct vm *vm);

	vm_paused_fn *on_paused; /* NULL unless a pause is in progress */
	void *on_paused_arg;

	vm_forked_fn *on_forked; /* NULL unless a fork is in progress */
	void *on_forked_arg;
	int fork_writable; /* the disk layer for the fork */
	struct vm_fork_how fork_how;
	struct event_timer flatten;

	vm_ended_fn *on_ended;
	void *on_ended_arg;
	struct vm_end end;
};

struct state_parts vm_parts(struct vm *vm);
struct vio_dev *vm_blk(const struct vm *vm);
/*
 * Notifies the guest that its clock was stopped, so that its watchdogs do not fire. Call it after a
 * pause, before the vCPUs run again.
 */
void vm_notify_clock_stopped(struct vm *vm);

/*
 * Drains the devices. Calls `next` once none has I/O in flight, perhaps before this returns, but
 * not if the guest ends meanwhile.
 */
void vm_drain(struct vm *vm, void (*next)(struct vm *vm));
void vm_continue_devices(struct vm *vm);

/* Returns 0, or an error unless the VM runs and is not being paused or forked. */
int vm_check_free(const struct vm *vm, struct err *e);
/* Starts merging memory layers in the background, while the guest runs. */
void vm_flatten(struct vm *vm);

#endif
