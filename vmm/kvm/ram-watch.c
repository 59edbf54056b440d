// SPDX-License-Identifier: Apache-2.0
/*
 * Tracks which own pages the guest writes: they are write-protected, and the kernel itself makes
 * each one writable again on the first write and records it (userfaultfd in asynchronous mode).
 * Nobody reads the descriptor.
 */
#include "vmm/kvm/ram-internal.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "vmm/kvm/pagemap.h"

#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

/*
 * False on Linux 6.7 and 6.8, which mistake a bit in the entry of a swapped page for its
 * protection.
 */
static bool kernel_is_right(void)
{
	struct utsname name;
	unsigned major, minor;

	return uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 9));
}

int watch_open(void)
{
	if (!kernel_is_right())
		return -1;
	/*
	 * USER_MODE_ONLY lets unprivileged processes open it. It excludes faults in the kernel,
	 * which asynchronous mode does not need.
	 */
	scoped_fd int fd =
		(int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_WP_ASYNC};

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
		return -1;
	return take_fd(&fd);
}

static struct uffdio_range all_of(const struct ram *r)
{
	return (struct uffdio_range){.start = (uintptr_t)r->gm->base, .len = r->gm->bytes};
}

/* Adds `by` to the list, or removes it. Returns 0, or -ENOMEM with nothing changed. */
static int change(struct extents *list, const struct extents *by, bool add)
{
	const struct extent_map none = {0};
	struct extent_map before = {0}, after = {0};
	struct extents changed = {0};
	int r = extent_map_cover(&before, &none, list, 1, 0);

	if (!r)
		r = add ? extent_map_cover(&after, &before, by, 1, 0)
			: extent_map_replace(&after, &before, by, &none);
	if (!r)
		r = extent_map_extents(&changed, &after);
	if (!r) {
		extents_free(list);
		*list = changed;
	}
	extent_map_free(&before);
	extent_map_free(&after);
	return r;
}

bool watch_written(struct ram *r, struct extents *written)
{
	/* Also adds the mappings that were made since the last time. */
	struct uffdio_register reg = {.range = all_of(r), .mode = UFFDIO_REGISTER_MODE_WP};
	struct extents list = {0};

	if (r->watch_fd < 0 || ioctl(r->watch_fd, UFFDIO_REGISTER, &reg) < 0)
		return false;
	r->watching = true;
	if (pagemap_protect(r->pagemap_fd, r->gm, written, &list, NULL) ||
	    change(&r->watched, &list, true)) {
		watch_end(r);
		extents_free(&list);
		return false;
	}
	extents_free(written);
	*written = list;
	return true;
}

void watch_mapped(struct ram *r, const struct extents *where)
{
	change(&r->watched, where, false);
}

int watch_from_empty(struct ram *r)
{
	struct uffdio_register reg = {.range = all_of(r), .mode = UFFDIO_REGISTER_MODE_WP};
	struct uffdio_writeprotect protect = {.range = all_of(r),
					      .mode = UFFDIO_WRITEPROTECT_MODE_WP};

	if (ioctl(r->watch_fd, UFFDIO_REGISTER, &reg) < 0 ||
	    madvise(r->gm->base, r->gm->bytes, MADV_DONTNEED) < 0)
		return -1;
	return ioctl(r->watch_fd, UFFDIO_WRITEPROTECT, &protect);
}

void watch_end(struct ram *r)
{
	struct uffdio_range range = all_of(r);

	/*
	 * Pages that stay protected would be missing in the next list. If they can't be
	 * unprotected, closing the descriptor unprotects them all.
	 */
	if (r->watching && ioctl(r->watch_fd, UFFDIO_UNREGISTER, &range) < 0)
		close_fd(&r->watch_fd);
	r->watching = false;
	extents_free(&r->watched);
}
