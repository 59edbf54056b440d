// SPDX-License-Identifier: Apache-2.0
/* The kernel interface KVM_PRE_FAULT_MEMORY (Linux 6.11), for builds with older headers. */
#ifndef RAMET_VMM_KVM_PRE_FAULT_IOCTL_H
#define RAMET_VMM_KVM_PRE_FAULT_IOCTL_H

#include <linux/kvm.h>
#include <stdint.h>

#ifndef KVM_PRE_FAULT_MEMORY
#define KVM_CAP_PRE_FAULT_MEMORY 236

struct kvm_pre_fault_memory {
	uint64_t gpa, size; /* on return: what is left */
	uint64_t flags;
	uint64_t padding[5];
};

#define KVM_PRE_FAULT_MEMORY _IOWR(KVMIO, 0xd5, struct kvm_pre_fault_memory)
#endif

#endif
