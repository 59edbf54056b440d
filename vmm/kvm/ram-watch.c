// SPDX-License-Identifier: Apache-2.0
/*
 * Tracks which pages the guest writes: they are write-protected, and the kernel itself makes each
 * one writable again on the first write and records it (userfaultfd in asynchronous mode, Linux
 * 6.7). Nobody reads the descriptor.
 */
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "vmm/kvm/pagemap.h"

#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

int watch_open(void)
{
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

bool watch_begin(struct ram *r, struct extents *own)
{
	struct uffdio_register reg = {.range = all_of(r), .mode = UFFDIO_REGISTER_MODE_WP};
	struct extents protected = {0};

	if (r->watching || r->watch_fd < 0 || ioctl(r->watch_fd, UFFDIO_REGISTER, &reg) < 0)
		return false;
	r->watching = true;
	if (pagemap_protect(r->pagemap_fd, r->gm, &protected, NULL)) {
		watch_end(r);
		extents_free(&protected);
		return false;
	}
	extents_free(own);
	*own = protected;
	return true;
}

void watch_end(struct ram *r)
{
	struct uffdio_range range = all_of(r);

	if (r->watching)
		ioctl(r->watch_fd, UFFDIO_UNREGISTER, &range);
	r->watching = false;
}
