// SPDX-License-Identifier: Apache-2.0
/* Interfaces of newer kernels, for builds with older headers: PAGEMAP_SCAN is from Linux 6.7,
 * KVM_PRE_FAULT_MEMORY from 6.11. */
#ifndef RAMET_VMM_KVM_NEW_IOCTLS_H
#define RAMET_VMM_KVM_NEW_IOCTLS_H

#include <linux/fs.h>
#include <linux/kvm.h>
#include <stdint.h>

#ifndef PAGEMAP_SCAN
#define PAGE_IS_WRITTEN (1u << 1)
#define PAGE_IS_FILE	(1u << 2)
#define PAGE_IS_PRESENT (1u << 3)
#define PAGE_IS_SWAPPED (1u << 4)

struct page_region {
	uint64_t start, end, categories;
};

struct pm_scan_arg {
	uint64_t size, flags;
	uint64_t start, end, walk_end;
	uint64_t vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define PM_SCAN_WP_MATCHING   (1u << 0)
#define PM_SCAN_CHECK_WPASYNC (1u << 1)

#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#endif

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
