// SPDX-License-Identifier: Apache-2.0
/*
 * A KVM VM: its interrupt chips, timer, memory slots and vCPUs. Made in one go when a shell is
 * made, since creating any of it later costs milliseconds. A VM process may hold more than one
 * over time: nothing here knows threads or devices.
 */
#ifndef RAMET_VMM_KVM_VM_H
#define RAMET_VMM_KVM_VM_H

#include <stddef.h>
#include <stdint.h>

#include <linux/kvm.h>

#include "base/err.h"
#include "vmm/kvm/cpuid.h"
#include "vmm/kvm/memory.h"

#define KVM_VCPUS_MAX 32
#define KVM_MSRS_MAX  64 /* registers of one vCPU that an image carries */
#define KVM_XSAVE_MAX 16384

/* What this host's KVM offers; asked once. */
struct kvm_host {
	int fd; /* /dev/kvm, not owned */
	size_t run_bytes;
	size_t xsave_bytes;
	unsigned vcpus_max;
	unsigned nmsrs;
	uint32_t msrs[KVM_MSRS_MAX]; /* registers to save, in the order they are restored */
	struct cpuid_list supported;
};

struct kvm_vcpu {
	int fd;
	uint32_t tsc_khz;	 /* rate of its TSC; 0: KVM does not say */
	struct kvm_run *run;	 /* shared with the kernel */
	struct cpuid_list cpuid; /* as set; most of it is never touched */
};

struct kvm_vm {
	const struct kvm_host *host;
	int fd;
	unsigned nvcpus;
	struct kvm_vcpu vcpu[KVM_VCPUS_MAX];
};

int kvm_host_init(struct kvm_host *h, int kvm_fd, struct err *e);

/* `mem` may still be PROT_NONE; it must outlive the VM. */
int kvm_vm_new(struct kvm_vm **out, const struct kvm_host *h, unsigned nvcpus, const struct gm *mem,
	       struct err *e);
void kvm_vm_free(struct kvm_vm *vm);

/* Before the vCPU's first run. */
int kvm_vcpu_set_cpuid(struct kvm_vcpu *c, const struct cpuid_list *cpuid, struct err *e);
/* One KVM_RUN: 0 or -errno (-EINTR: a kick, or immediate_exit was set). */
int kvm_vcpu_run(struct kvm_vcpu *c);
/* Tells the guest that its clock stood still, so that its watchdogs do not bark. */
void kvm_vcpu_clock_stopped(struct kvm_vcpu *c);

#endif
