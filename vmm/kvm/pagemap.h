// SPDX-License-Identifier: Apache-2.0
/*
 * Finds the pages of a private file mapping that this process has written and therefore owns, in
 * /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst).
 */
#ifndef RAMET_VMM_KVM_PAGEMAP_H
#define RAMET_VMM_KVM_PAGEMAP_H

#include "base/err.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/extent-map.h"

/*
 * Opens the page map: "self/pagemap" below `proc_fd`, the root of a procfs mount, or by its usual
 * path when `proc_fd` is -1. Returns a descriptor or -errno.
 */
int pagemap_open(int proc_fd, struct err *e);

/*
 * Appends the extents of written pages, as RAM offsets, to `out`. Pages that are first written
 * meanwhile may be missing.
 */
int pagemap_dirty(int fd, const struct gm *gm, struct extents *out, struct err *e);

/*
 * For RAM that is being watched (ram-watch.c). pagemap_written appends the own pages written since
 * they were protected, and those that never were. pagemap_protect does the same in and near
 * `where`, and write-protects them; they count as written again after their next write.
 */
int pagemap_protect(int fd, const struct gm *gm, const struct extents *where, struct extents *out,
		    struct err *e);
int pagemap_written(int fd, const struct gm *gm, struct extents *out, struct err *e);

/*
 * For RAM that was unmapped and write-protected (ram-record.c), and may be a shared mapping.
 * Appends the pages that are mapped now to `used`, and the mapped pages that are no longer
 * protected to `written`, too.
 */
int pagemap_used(int fd, const struct gm *gm, struct extents *used, struct extents *written,
		 struct err *e);

/*
 * The two ways to ask the kernel, exposed for tests: PAGEMAP_SCAN for all pages at once, which
 * fails with -ENOTTY before Linux 6.7, and reading the entry of every page.
 */
int pagemap_scan(int fd, const struct gm *gm, struct extents *out, struct err *e);
int pagemap_read(int fd, const struct gm *gm, struct extents *out, struct err *e);

#endif
