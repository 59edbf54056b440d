// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/pagemap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include "base/file.h"
#include "vmm/kvm/new-ioctls.h"

#define ENTRY_PRESENT (1ull << 63)
#define ENTRY_SWAPPED (1ull << 62)
#define ENTRY_FILE    (1ull << 61) /* in the page cache of a file: not an own page */

#define ENTRIES 4096 /* entries per read: 32 KiB for 16 MiB of RAM */
/* Regions per call. Linux 6.18 reports some regions twice when there is room for more. */
#define REGIONS 512
/* A call for one more extent takes as long as a look at 16 pages. */
#define SCAN_GAP  (16 * RAM_PAGE)
#define SCANS_MAX 1024 /* extents; the gap grows until they are no more than this */

int pagemap_open(int proc_fd, struct err *e)
{
	int fd = proc_fd < 0 ? open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)
			     : openat(proc_fd, "self/pagemap", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? err_set(e, errno, "open this process's page map") : fd;
}

static int no_memory(struct err *e)
{
	return err_set(e, ENOMEM, "list the pages that the guest wrote");
}

int pagemap_read(int fd, const struct gm *gm, struct extents *out, struct err *e)
{
	uint64_t entries[ENTRIES], pages = gm->bytes / RAM_PAGE;
	uint64_t first = (uintptr_t)gm->base / RAM_PAGE;

	for (uint64_t at = 0; at < pages; at += ENTRIES) {
		uint64_t n = pages - at < ENTRIES ? pages - at : ENTRIES;
		int r = file_read(fd, (first + at) * sizeof(*entries), entries,
				  n * sizeof(*entries), e);

		if (r)
			return err_context(e, "this process's page map");
		for (uint64_t i = 0; i < n; i++)
			if (entries[i] & (ENTRY_PRESENT | ENTRY_SWAPPED) &&
			    !(entries[i] & ENTRY_FILE) &&
			    extents_add(out, (at + i) * RAM_PAGE, RAM_PAGE))
				return no_memory(e);
	}
	return 0;
}

static int add_regions(const struct gm *gm, const struct page_region *region, int n,
		       struct extents *out, struct err *e)
{
	for (int i = 0; i < n; i++)
		if (extents_add(out, region[i].start - (uintptr_t)gm->base,
				region[i].end - region[i].start))
			return no_memory(e);
	return 0;
}

/* Scans `where`, an extent of RAM, for the pages that `want` describes. */
static int scan(int fd, const struct gm *gm, struct extent where, const struct pm_scan_arg *want,
		struct extents *out, struct err *e)
{
	struct page_region regions[REGIONS];
	struct pm_scan_arg arg = *want;

	arg.size = sizeof(arg);
	arg.start = (uintptr_t)gm->base + where.offset;
	arg.end = arg.start + where.bytes;
	arg.vec = (uintptr_t)regions;
	arg.vec_len = REGIONS;
	while (arg.start < arg.end) {
		int n = ioctl(fd, PAGEMAP_SCAN, &arg);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, errno, "scan the page map for written pages");
		r = add_regions(gm, regions, n, out, e);
		if (r)
			return r;
		arg.start = arg.walk_end;
	}
	return 0;
}

static struct pm_scan_arg own_pages(uint64_t flags, uint64_t categories)
{
	return (struct pm_scan_arg){.flags = flags,
				    .category_inverted = PAGE_IS_FILE,
				    .category_mask = PAGE_IS_FILE | categories,
				    .category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED};
}

static struct extent all_of(const struct gm *gm)
{
	return (struct extent){.bytes = gm->bytes};
}

int pagemap_scan(int fd, const struct gm *gm, struct extents *out, struct err *e)
{
	struct pm_scan_arg want = own_pages(0, 0);

	return scan(fd, gm, all_of(gm), &want, out, e);
}

/* Scans the extents `where`, and small gaps between them. */
static int scan_near(int fd, const struct gm *gm, const struct extents *where,
		     const struct pm_scan_arg *want, struct extents *out, struct err *e)
{
	struct extents in = {0};
	int r = extents_join(&in, where, SCAN_GAP, SCANS_MAX) ? no_memory(e) : 0;

	for (uint32_t i = 0; i < in.n && !r; i++)
		r = scan(fd, gm, in.extent[i], want, out, e);
	extents_free(&in);
	return r;
}

int pagemap_protect(int fd, const struct gm *gm, const struct extents *where, struct extents *out,
		    struct err *e)
{
	struct pm_scan_arg want =
		own_pages(PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC, PAGE_IS_WRITTEN);

	return scan_near(fd, gm, where, &want, out, e);
}

/*
 * The kernel skips protected pages ten times as fast when it is asked for nothing but
 * PAGE_IS_WRITTEN (fs/proc/task_mmu.c, pagemap_scan_pmd_entry). Pages that are not own pages may
 * count as written then.
 */
int pagemap_written(int fd, const struct gm *gm, struct extents *out, struct err *e)
{
	const struct pm_scan_arg unprotected = {.category_mask = PAGE_IS_WRITTEN,
						.return_mask = PAGE_IS_WRITTEN};
	const struct pm_scan_arg want = own_pages(0, PAGE_IS_WRITTEN);
	struct extents found = {0};
	int r = scan(fd, gm, all_of(gm), &unprotected, &found, e);

	if (!r)
		r = scan_near(fd, gm, &found, &want, out, e);
	extents_free(&found);
	return r;
}

int pagemap_used(int fd, const struct gm *gm, struct extents *used, struct extents *written,
		 struct err *e)
{
	const struct pm_scan_arg mapped = {.category_mask = PAGE_IS_PRESENT};
	const struct pm_scan_arg unprotected = {.category_mask = PAGE_IS_PRESENT | PAGE_IS_WRITTEN};
	int r = scan(fd, gm, all_of(gm), &mapped, used, e);

	return r ? r : scan(fd, gm, all_of(gm), &unprotected, written, e);
}

int pagemap_dirty(int fd, const struct gm *gm, struct extents *out, struct err *e)
{
	struct err scan_err = {0};
	int r = pagemap_scan(fd, gm, out, &scan_err);

	if (r == -ENOTTY) /* a kernel without the ioctl fails the first call */
		return pagemap_read(fd, gm, out, e);
	if (r && e)
		*e = scan_err;
	return r;
}
