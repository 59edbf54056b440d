// SPDX-License-Identifier: Apache-2.0
/*
 * The vCPU threads: made and parked with the shell, they run between vcpus_run and vcpus_pause.
 * All functions but vcpus_halt are for the loop's thread.
 */
#ifndef RAMET_VMM_KVM_VCPUS_H
#define RAMET_VMM_KVM_VCPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "vmm/kvm/vm.h"

struct vcpus;

struct vcpus_ops {
	/* On each new thread, before it parks: to confine it. Failure fails vcpus_new. */
	int (*on_start)(void *arg, struct err *e);
	/* On each thread, before it runs its vCPU for the first time. */
	void (*on_first_run)(void *arg, unsigned vcpu);
	/* KVM_RUN returned with something to serve (error 0), or failed with -errno. */
	void (*on_exit)(void *arg, unsigned vcpu, struct kvm_run *run, int error);
};

/* `vm`, `ops` and `arg` outlive it. */
int vcpus_new(struct vcpus **out, struct kvm_vm *vm, const struct vcpus_ops *ops, void *arg,
	      struct err *e);
void vcpus_free(struct vcpus *v);

/*
 * Prepares the vCPUs on their own threads, all at once, while they stand still: `each` for every
 * vCPU, then `last` once, on the thread that was done last. vcpus_run may be called meanwhile: the
 * vCPUs run as soon as all are prepared, and not at all if one could not be.
 */
struct vcpus_job {
	int (*each)(void *arg, unsigned vcpu, struct err *e);
	int (*last)(void *arg, struct err *e);
};
void vcpus_prepare(struct vcpus *v, const struct vcpus_job *job, void *arg);
/* Waits until they are; fails as the first that failed. */
int vcpus_prepared(struct vcpus *v, struct err *e);

/*
 * Has vCPU 0 run alone until vcpus_follow (on any thread), but for 10 ms at most, since it may wait
 * for others. To be called before vcpus_run.
 */
void vcpus_lead(struct vcpus *v);
void vcpus_follow(struct vcpus *v);

void vcpus_run(struct vcpus *v);
/* Returns when every vCPU stands still, with no half-done exit in it. */
void vcpus_pause(struct vcpus *v);
/* Makes all vCPUs park soon; from on_exit. */
void vcpus_halt(struct vcpus *v);

/*
 * Stops the vCPUs so that they can be read, and waits up to `ms` until they are parked. One that is
 * stuck in the kernel does not park; vcpus_activity tells. vcpus_unhold runs them again, unless the
 * guest's end or a pause had stopped them before.
 */
void vcpus_hold(struct vcpus *v, unsigned ms);
void vcpus_unhold(struct vcpus *v);

/* The present and the last work of a vCPU's thread. */
struct vcpu_activity {
	bool parked;   /* its vCPU may be read */
	bool in_guest; /* in KVM_RUN; one that is neither parked nor there serves the last exit */
	uint64_t exits;
	int64_t exit_reason; /* KVM_EXIT_*, or -errno of KVM_RUN */
	uint64_t exit_addr;  /* of the last KVM_EXIT_IO or KVM_EXIT_MMIO */
	uint64_t exit_ns;    /* since the last exit */
};
struct vcpu_activity vcpus_activity(struct vcpus *v, unsigned i);

/* Returns of KVM_RUN, all vCPUs together. */
uint64_t vcpus_exits(const struct vcpus *v);

#endif
