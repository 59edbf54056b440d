// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "orchestrator/events/line.h"

#define NAME_ROOM 32

static void file_name(char out[static NAME_ROOM], unsigned age)
{
	if (age)
		snprintf(out, NAME_ROOM, AUDIT_FILE ".%u", age);
	else
		snprintf(out, NAME_ROOM, AUDIT_FILE);
}

/* --- the last line -------------------------------------------------------------------------- */

static uint64_t last_line(const char *text, size_t len)
{
	struct audit_line line;

	while (len) {
		const char *end = memrchr(text, '\n', len);
		const char *before = end ? memrchr(text, '\n', (size_t)(end - text)) : NULL;
		const char *start = before ? before + 1 : text;

		if (!end)
			break;
		if (audit_line_parse(&line, start, (size_t)(end - start)))
			return line.n;
		len = (size_t)(start - text);
	}
	return 0;
}

static uint64_t last_in(int dir, const char *name)
{
	char text[4 * AUDIT_LINE_MAX];
	struct stat st;
	scoped_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	off_t from = st.st_size > (off_t)sizeof(text) ? st.st_size - (off_t)sizeof(text) : 0;
	ssize_t len = pread(fd, text, sizeof(text), from);
	return len > 0 ? last_line(text, (size_t)len) : 0;
}

uint64_t audit_files_last(int dir)
{
	char name[NAME_ROOM];
	uint64_t n = 0;

	/* In the worst case, the current file is new, and the one before it has only a torn
	 * line. */
	for (unsigned age = 0; !n && age < 3; age++) {
		file_name(name, age);
		n = last_in(dir, name);
	}
	return n;
}

/* --- writing -------------------------------------------------------------------------------- */

static int end_torn_line(struct audit_files *j, struct err *e)
{
	char last;

	if (!j->size || pread(j->fd, &last, 1, (off_t)j->size - 1) != 1 || last == '\n')
		return 0;
	if (write(j->fd, "\n", 1) != 1)
		return err_set(e, errno, "end the last line of " AUDIT_FILE);
	j->size++;
	return 0;
}

static int open_current(struct audit_files *j, struct err *e)
{
	struct stat st;
	scoped_fd int fd = openat(j->dir, AUDIT_FILE,
				  O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);

	/* 0640 whatever the umask: ramet-notify reads the file through its group. */
	if (fd < 0 || fchmod(fd, 0640) < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "open " AUDIT_FILE);
	if (!S_ISREG(st.st_mode))
		return err_say(e, EINVAL, AUDIT_FILE " is not a regular file");
	j->fd = fd;
	j->size = (uint64_t)st.st_size;
	int r = end_torn_line(j, e);
	if (r < 0)
		j->fd = -1;
	else
		take_fd(&fd);
	return r;
}

/* Returns the lowest age (the number at the end of a name) that no file has, or that of the oldest
 * file, which is then replaced. A failed rotation leaves such a gap; moving the files behind the
 * gap again would lose the oldest one. */
static unsigned first_free_age(const struct audit_files *j)
{
	char name[NAME_ROOM];
	unsigned age = 1;
	struct stat st;

	for (; age < j->files - 1; age++) {
		file_name(name, age);
		if (fstatat(j->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
			break;
	}
	return age;
}

static int rotate(struct audit_files *j, struct err *e)
{
	char from[NAME_ROOM], to[NAME_ROOM];

	/* Sync first: after the close, a write error can no longer be reported. */
	if (fdatasync(j->fd) < 0)
		return err_set(e, errno, "sync " AUDIT_FILE);
	for (unsigned age = first_free_age(j); age > 0; age--) {
		file_name(from, age - 1);
		file_name(to, age);
		if (renameat(j->dir, from, j->dir, to) < 0 && errno != ENOENT)
			return err_set(e, errno, "rename %s", from);
	}
	audit_files_close(j);
	return 0;
}

int audit_files_append(struct audit_files *j, const char *p, size_t len, bool at_line, size_t *done,
		       struct err *e)
{
	int r = 0;

	*done = 0;
	if (j->fd < 0)
		r = open_current(j, e);
	if (r == 0 && at_line && j->size && j->size + len > j->max_bytes) {
		r = rotate(j, e);
		r = r < 0 ? r : open_current(j, e);
	}
	while (r == 0 && *done < len) {
		ssize_t n = write(j->fd, p + *done, len - *done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(e, n < 0 ? errno : EIO, "write " AUDIT_FILE);
		*done += (size_t)n;
		j->size += (size_t)n;
		/* Atomic, because the loop's thread reads it for audit_stats. */
		__atomic_fetch_add(&j->written, (uint64_t)n, __ATOMIC_RELAXED);
	}
	return r;
}

int audit_files_sync(struct audit_files *j, struct err *e)
{
	if (j->fd >= 0 && fdatasync(j->fd) < 0)
		return err_set(e, errno, "sync " AUDIT_FILE);
	return 0;
}

int audit_files_add(struct audit_files *j, const struct audit_event *event, struct err *e)
{
	char line[AUDIT_LINE_MAX];
	size_t done, len = audit_line_new(line, audit_files_last(j->dir) + 1, event);
	int r = audit_files_append(j, line, len, true, &done, e);
	return r < 0 ? r : audit_files_sync(j, e);
}

void audit_files_close(struct audit_files *j)
{
	close_fd(&j->fd);
}
