// SPDX-License-Identifier: Apache-2.0
/*
 * Which pages of a private map of files are this process's own: those it wrote to. The kernel says
 * so in /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst).
 */
#ifndef RAMET_VMM_KVM_PAGEMAP_H
#define RAMET_VMM_KVM_PAGEMAP_H

#include "base/err.h"
#include "vmm/kvm/memory.h"
#include "vmm/kvm/overlay.h"

/*
 * Opens it: as "self/pagemap" of the procfs mount that `proc_fd` is the root of, by its path when
 * that is -1. A descriptor, or -errno.
 */
int pagemap_open(int proc_fd, struct err *e);

/* Appends the runs of written pages, as RAM offsets, to `out`. Nothing writes to RAM meanwhile. */
int pagemap_dirty(int fd, const struct gm *gm, struct runs *out, struct err *e);

/*
 * For a RAM that is watched (ram-watch.c). Appends the same, and protects those pages: they count
 * as written again from their next write on. And: those of them that were written to since, or were
 * never protected.
 */
int pagemap_protect(int fd, const struct gm *gm, struct runs *out, struct err *e);
int pagemap_written(int fd, const struct gm *gm, struct runs *out, struct err *e);

/* How it asks the kernel: all at once, which not every kernel can, or page by page. Exposed for
 * tests. pagemap_scan fails with -ENOTTY on a kernel before 6.7. */
int pagemap_scan(int fd, const struct gm *gm, struct runs *out, struct err *e);
int pagemap_read(int fd, const struct gm *gm, struct runs *out, struct err *e);

#endif
