// SPDX-License-Identifier: Apache-2.0
/*
 * The vCPU threads. They are created, and parked, with the blank VM; they run between vcpus_run and
 * vcpus_pause. All functions except vcpus_halt and vcpus_follow are for the loop's thread.
 */
#ifndef RAMET_VMM_KVM_VCPUS_H
#define RAMET_VMM_KVM_VCPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "vmm/kvm/vm.h"

struct vcpus;

struct vcpus_ops {
	/*
	 * Called on each new thread before it parks, to confine it. A failure makes vcpus_new fail.
	 */
	int (*on_start)(void *arg, struct err *e);
	/* Called on each thread before it runs its vCPU for the first time. */
	void (*on_first_run)(void *arg, unsigned vcpu);
	/*
	 * Called when KVM_RUN returned with an exit to serve (`error` is 0), or failed (`error` is
	 * -errno, but never -EINTR or -EAGAIN).
	 */
	void (*on_exit)(void *arg, unsigned vcpu, struct kvm_run *run, int error);
};

/* Starts a parked thread for each vCPU. `vm`, `ops` and `arg` must stay valid until the process
 * ends, also after a failure: the threads go on. */
int vcpus_new(struct vcpus **out, struct kvm_vm *vm, const struct vcpus_ops *ops, void *arg,
	      struct err *e);

/*
 * Prepares the parked vCPUs on their own threads, all at once: calls `each` for every vCPU, then
 * `last` once, on the thread that finished last. vcpus_run may be called meanwhile: the vCPUs run
 * as soon as all are prepared, and none runs if one failed.
 */
struct vcpus_job {
	int (*each)(void *arg, unsigned vcpu, struct err *e);
	int (*last)(void *arg, struct err *e);
};
void vcpus_prepare(struct vcpus *v, const struct vcpus_job *job, void *arg);
/* Waits until all are prepared. Returns 0 or the first failure. */
int vcpus_prepared(struct vcpus *v, struct err *e);

/*
 * Lets vCPU 0 run alone until vcpus_follow (on any thread), so that its guest handles an interrupt
 * before the other vCPUs go on. They wait no longer than until vCPU 0 has run for 50 ms, because it
 * may itself wait for one of them, which may hold a lock; and a second at most, because vCPU 0 may
 * sleep while it waits. Call it before vcpus_run.
 */
void vcpus_lead(struct vcpus *v);
void vcpus_follow(struct vcpus *v);

void vcpus_run(struct vcpus *v);
/* Stops the vCPUs. Returns when each is parked and has completed its last exit. */
void vcpus_pause(struct vcpus *v);
/* Makes all vCPUs park soon, without waiting for them. on_exit may call it. */
void vcpus_halt(struct vcpus *v);

/*
 * Stops the vCPUs so that they can be read, and waits up to `ms` until they are parked. A vCPU that
 * is stuck in the kernel does not park; see vcpus_activity. vcpus_unhold runs them again, unless a
 * pause or the end of the guest had stopped them before.
 */
void vcpus_hold(struct vcpus *v, unsigned ms);
void vcpus_unhold(struct vcpus *v);

/* The current and the last work of a vCPU's thread. */
struct vcpu_activity {
	bool parked;   /* the vCPU may be read */
	bool in_guest; /* in KVM_RUN; neither parked nor in the guest: serving the last exit */
	uint64_t exits;
	int64_t exit_reason; /* KVM_EXIT_*, or -errno of KVM_RUN */
	uint64_t exit_addr;  /* of the last KVM_EXIT_IO or KVM_EXIT_MMIO */
	uint64_t exit_ns;    /* since the last exit */
};
struct vcpu_activity vcpus_activity(struct vcpus *v, unsigned i);

/* Returns how often KVM_RUN has returned, for all vCPUs together. */
uint64_t vcpus_exits(const struct vcpus *v);

#endif
