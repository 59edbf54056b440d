// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/num.h"

#define PAGE 4096u

int file_size(int fd, uint64_t *bytes, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "get the size of the file");
	if (!S_ISREG(st.st_mode))
		return err_say(e, EINVAL, "not a regular file");
	*bytes = (uint64_t)st.st_size;
	return 0;
}

int file_read(int fd, uint64_t offset, void *out, uint64_t len, struct err *e)
{
	uint8_t *p = out;

	if (offset > INT64_MAX || len > INT64_MAX - offset)
		return err_say(e, EINVAL, "offset 0x%llx is beyond the maximum size of a file",
			       (unsigned long long)offset);
	while (len) {
		ssize_t n = pread(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, errno, "read");
		if (n == 0)
			return err_say(e, ENODATA, "the file is too short");
		p += n;
		offset += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

int file_write(int fd, uint64_t offset, const void *data, uint64_t len, struct err *e)
{
	const uint8_t *p = data;

	while (len) {
		ssize_t n = pwrite(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(e, n < 0 ? errno : EIO, "write");
		p += n;
		offset += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

void file_next_data(int fd, uint64_t at, uint64_t end, uint64_t *data, uint64_t *hole)
{
	off_t found = lseek(fd, (off_t)at, SEEK_DATA);

	if (found < 0)
		*data = errno == ENXIO ? end : at;
	else
		*data = min_u64(max_u64((uint64_t)found / PAGE * PAGE, at), end);
	found = *data < end ? lseek(fd, (off_t)*data, SEEK_HOLE) : -1;
	/* *hole must be after *data, even if the file has changed meanwhile. */
	*hole = found <= (off_t)*data ? end
				      : min_u64(((uint64_t)found + PAGE - 1) / PAGE * PAGE, end);
}

char *file_text(int fd, size_t most, size_t *len, struct err *e)
{
	char *text = fd < 0 ? NULL : malloc(most + 2);
	ssize_t n = -1;

	*len = 0;
	while (text && *len <= most && (n = read(fd, text + *len, most + 1 - *len)) > 0)
		*len += (size_t)n;
	if (n == 0) {
		text[*len] = '\0';
		return text;
	}
	if (n < 0)
		err_set(e, errno, fd < 0 ? "open" : "read");
	else
		err_say(e, EFBIG, "it has more than %zu bytes", most);
	free(text);
	return NULL;
}

int file_replace(int dir, const char *name, const void *data, size_t len, mode_t mode, gid_t group,
		 struct err *e)
{
	char temporary[NAME_MAX + 1];

	snprintf(temporary, sizeof(temporary), "%s.tmp", name);
	unlinkat(dir, temporary, 0);
	scoped_fd int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, errno, "create %s", temporary);
	if (file_write(fd, 0, data, len, e) < 0)
		return err_context(e, "%s", temporary);
	if ((group && fchown(fd, (uid_t)-1, group) < 0) || fchmod(fd, mode) < 0 || fsync(fd) < 0 ||
	    renameat(dir, temporary, dir, name) < 0)
		return err_set(e, errno, "write %s", name);
	return 0;
}

int directory_open(const char *path, struct err *e)
{
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_set(e, errno, "make %s", path);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_set(e, errno, "open %s", path) : fd;
}

DIR *directory_list(int dir, const char *path)
{
	int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list)
		close_fd(&fd);
	return list;
}
