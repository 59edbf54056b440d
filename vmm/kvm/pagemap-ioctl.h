// SPDX-License-Identifier: Apache-2.0
/* The kernel interface PAGEMAP_SCAN (Linux 6.7), for builds with older headers. */
#ifndef RAMET_VMM_KVM_PAGEMAP_IOCTL_H
#define RAMET_VMM_KVM_PAGEMAP_IOCTL_H

#include <linux/fs.h>
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

#endif
