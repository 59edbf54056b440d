// SPDX-License-Identifier: Apache-2.0
/* Snapshots of running VMs, as VM processes hand them over. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/vm/vmproc.h"
#include "proto/image.h"

#define PLAIN_FDS 3 /* state, memory, disk base */

static int check_counts(const struct ctl_msg *reply, unsigned nfds, struct err *e)
{
	uint32_t memory_layers = reply->reply.fork.memory_layers, layers = reply->reply.fork.layers;
	uint64_t disk_bytes = reply->reply.fork.disk_bytes;

	if (memory_layers > CTL_MEMORY_MAX || layers > CTL_LAYERS_MAX)
		return err_say(
			e, EPROTO,
			"the VM process made a snapshot with %u memory and %u disk layers, the "
			"limits are %u and %u",
			memory_layers, layers, CTL_MEMORY_MAX, CTL_LAYERS_MAX);
	if (nfds != PLAIN_FDS + memory_layers + layers)
		return err_say(e, EPROTO, "the VM process sent a snapshot of %u files, expected %u",
			       nfds, PLAIN_FDS + memory_layers + layers);
	if (!disk_bytes || disk_bytes % IMAGE_CLUSTER)
		return err_say(
			e, EPROTO,
			"the VM process made a snapshot with an invalid disk size of %llu bytes",
			(unsigned long long)disk_bytes);
	return 0;
}

/* Checks types and sizes, so that no socket or device is passed on. The restoring VM validates the
 * contents. */
static int check_files(const int *fds, unsigned nfds, uint32_t ram_mib, struct err *e)
{
	for (unsigned i = 0; i < nfds; i++) {
		struct stat st;

		if (fstat(fds[i], &st) < 0)
			return err_set(e, errno, "inspect the snapshot of a VM");
		if (!S_ISREG(st.st_mode))
			return err_say(e, EPROTO,
				       "the VM process sent a snapshot with a descriptor that is "
				       "not a regular file");
		if (i == 0 && st.st_size > IMAGE_STATE_MAX)
			return err_say(
				e, EPROTO,
				"the VM process sent a state file of %lld bytes, the limit is %u",
				(long long)st.st_size, IMAGE_STATE_MAX);
		if (i == 1 && st.st_size != (off_t)ram_mib << 20)
			return err_say(
				e, EPROTO,
				"the VM process sent a memory file of %lld bytes, expected %u MiB",
				(long long)st.st_size, ram_mib);
	}
	return 0;
}

/* Replaces *fd, if it is writable, with a read-only descriptor. Parent and children share these
 * files, and no VM process may write to those of another. Seals guarantee that for memory files
 * only; disk layers arrive with the parent's write access. */
static int make_read_only(int *fd, struct err *e)
{
	char path[32];

	if ((fcntl(*fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", *fd);
	int read_only = open(path, O_RDONLY | O_CLOEXEC);
	if (read_only < 0)
		return err_set(e, errno, "reopen the snapshot of a VM read-only");
	close_fd(fd);
	*fd = read_only;
	return 0;
}

struct vmproc_image *vmproc_image_new(const struct ctl_msg *reply, int *fds, unsigned nfds,
				      uint32_t ram_mib, struct err *e)
{
	if (check_counts(reply, nfds, e) < 0 || check_files(fds, nfds, ram_mib, e) < 0)
		return NULL;
	for (unsigned i = 0; i < nfds; i++)
		if (make_read_only(&fds[i], e) < 0)
			return NULL;
	struct vmproc_image image = {.memory_layers = reply->reply.fork.memory_layers,
				     .layers = reply->reply.fork.layers,
				     .disk_bytes = reply->reply.fork.disk_bytes,
				     .pause_ns = reply->reply.fork.pause_ns,
				     .copied_bytes = reply->reply.fork.copied_bytes,
				     .nfds = nfds};
	for (unsigned i = 0; i < nfds; i++)
		image.fds[i] = take_fd(&fds[i]);
	return vmproc_image_of(&image);
}

struct vmproc_image *vmproc_image_of(const struct vmproc_image *from)
{
	struct vmproc_image *image = must_alloc(sizeof(*image));

	*image = *from;
	image->users = 1;
	return image;
}

struct vmproc_image *vmproc_image_get(struct vmproc_image *image)
{
	image->users++;
	return image;
}

void vmproc_image_put(struct vmproc_image *image)
{
	if (!image || --image->users)
		return;
	for (unsigned i = 0; i < image->nfds; i++)
		close_fd(&image->fds[i]);
	free(image);
}
