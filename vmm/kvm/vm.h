// SPDX-License-Identifier: Apache-2.0
/*
 * A KVM VM: interrupt chips, timer, memory slots and vCPUs. All of it is created with the blank VM,
 * since creating it later costs milliseconds. This code does not depend on threads and devices, so
 * that a VM process can replace its KVM VM.
 */
#ifndef RAMET_VMM_KVM_VM_H
#define RAMET_VMM_KVM_VM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/kvm.h>

#include "base/err.h"
#include "vmm/kvm/cpuid.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/msrs.h"

#define KVM_VCPUS_MAX 32
#define KVM_XSAVE_MAX 16384

/* The capabilities of this host's KVM, queried once. */
struct kvm_host {
	int fd; /* /dev/kvm, not owned */
	size_t run_bytes;
	size_t xsave_bytes;
	unsigned vcpus_max;
	bool pre_faults; /* KVM_PRE_FAULT_MEMORY works */
	unsigned nmsrs;
	uint32_t msrs[KVM_MSRS_MAX]; /* registers to save, in the order they are restored */
	struct cpuid_list supported;
};

struct kvm_vcpu {
	int fd;
	uint32_t tsc_khz;	 /* rate of its TSC; 0: unknown to KVM */
	struct kvm_run *run;	 /* shared with the kernel */
	struct cpuid_list cpuid; /* as it was set; most of the array is never touched */
};

struct kvm_vm {
	const struct kvm_host *host;
	int fd;
	unsigned nvcpus;
	bool has_tsc_offset; /* tsc_offset is known: vCPU 0's, which the others get */
	uint64_t tsc_offset;
	struct kvm_vcpu vcpu[KVM_VCPUS_MAX];
};

int kvm_host_init(struct kvm_host *h, int kvm_fd, struct err *e);

/*
 * Creates a VM with memory slots over `mem`, which may still be PROT_NONE. `h` and `mem` must
 * outlive the VM.
 */
int kvm_vm_new(struct kvm_vm **out, const struct kvm_host *h, unsigned nvcpus, const struct gm *mem,
	       struct err *e);

/* Sets the CPUID leaves. Call it before the vCPU's first run. */
int kvm_vcpu_set_cpuid(struct kvm_vcpu *c, const struct cpuid_list *cpuid, struct err *e);
/* Calls KVM_RUN once. Returns 0 or -errno (-EINTR: a signal arrived, or immediate_exit was set). */
int kvm_vcpu_run(struct kvm_vcpu *c);
/* Notifies the guest that its clock was stopped, so that its watchdogs do not fire. */
void kvm_vcpu_clock_stopped(struct kvm_vcpu *c);

#endif
