// SPDX-License-Identifier: Apache-2.0
#include "guest/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text-file.h"

/* Documentation/filesystems/ext4: takes the new number of blocks. No kernel header defines it. */
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)
#define SECTOR		   512
#define WAIT_MS		   5000

struct disk {
	char size_file[64];
	uint64_t want; /* bytes */
};

/* Returns the size that the kernel knows; 0 when it cannot be read. */
static uint64_t disk_bytes(const struct disk *d)
{
	char text[32];

	text_file_read(AT_FDCWD, d->size_file, text, sizeof(text));
	return strtoull(text, NULL, 10) * SECTOR;
}

static bool has_grown(const void *arg)
{
	const struct disk *d = arg;

	return disk_bytes(d) >= d->want;
}

static int remount(const char *option, struct err *e)
{
	if (mount(NULL, "/", NULL, MS_REMOUNT, option) < 0)
		return err_set(e, errno, "remount the root file system with %s", option);
	return 0;
}

/* The new inode tables read as zeros already. With init_itable the kernel does not zero them while
 * the file system grows, and with noinit_itable its thread does not zero them later in each
 * sandbox. */
static int grow_to(int fd, uint64_t blocks, struct err *e)
{
	int ret = remount("init_itable", e);

	if (ret == 0 && ioctl(fd, EXT4_IOC_RESIZE_FS, &blocks) < 0)
		ret = err_set(e, errno, "grow the root file system to %" PRIu64 " blocks", blocks);
	return ret == 0 ? remount("noinit_itable", e) : ret;
}

int grow_root(uint64_t bytes, struct err *e)
{
	struct disk d = {.want = bytes};
	struct statfs fs;
	struct stat st;
	scoped_fd int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return err_set(e, errno, "stat the root file system");
	if (fs.f_type != EXT4_SUPER_MAGIC)
		return err_say(e, EOPNOTSUPP, "the root file system is not ext4");
	snprintf(d.size_file, sizeof(d.size_file), "/sys/dev/block/%u:%u/size", major(st.st_dev),
		 minor(st.st_dev));
	if (!uevent_wait(has_grown, &d, WAIT_MS))
		return err_say(e, ETIMEDOUT, "the disk has %" PRIu64 " bytes, not %" PRIu64,
			       disk_bytes(&d), bytes);
	return grow_to(fd, disk_bytes(&d) / (uint64_t)fs.f_bsize, e);
}
