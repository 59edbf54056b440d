// SPDX-License-Identifier: Apache-2.0
#include "guest/files/file-work.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/num.h"
#include "guest/files/folder.h"
#include "guest/files/staged.h"
#include "guest/files/worker-io.h"
#include "guest/files/worker.h"

/* --- data ----------------------------------------------------------------------------------- */

int check_room(int fd, uint64_t size, struct err *e)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0 || !fs.f_blocks || size / (uint64_t)fs.f_bsize <= fs.f_bfree)
		return 0;
	return err_say(e, ENOSPC, "%llu bytes do not fit on the disk, which has %llu left",
		       (unsigned long long)size,
		       (unsigned long long)(fs.f_bfree * (uint64_t)fs.f_bsize));
}

/* Writes the host's data to `fd`, starting at offset `at`; at the end of a file that was opened
 * with O_APPEND. */
static int take_data(int fd, uint64_t at, struct err *e)
{
	const uint8_t *data;
	size_t n;

	while ((n = worker_io_data(&data)) > 0) {
		int bad = file_write(fd, at, data, n, e);
		if (bad)
			return bad;
		at += n;
	}
	return 0;
}

/* Returns by how much the file grows: bytes that replace others need no room. */
static uint64_t bytes_beyond(int fd, uint64_t offset, uint64_t size)
{
	struct stat st;
	uint64_t end = offset + size, old = fstat(fd, &st) < 0 ? 0 : (uint64_t)st.st_size;

	return end <= old ? 0 : min_u64(end - old, size);
}

/* --- whole files ---------------------------------------------------------------------------- */

static int put(const struct file_request *r, struct err *e)
{
	scoped_fd int fd = staged_create(worker_staged(), r->path, r->mode, e);

	if (fd < 0)
		return fd;
	int bad = r->size == AGENT_UNSIZED ? 0 : check_room(fd, r->size, e);
	if (!bad)
		bad = take_data(fd, 0, e);
	if (bad)
		return err_context(e, "write %.100s", r->path);
	return staged_rename(worker_staged(), e);
}

void serve_put(const struct file_request *r)
{
	struct err e;

	signal(SIGXFSZ, SIG_IGN); /* EFBIG instead */
	worker_io_expect(r->size);
	if (put(r, &e) == 0)
		worker_io_done();
	staged_remove(worker_staged());
	err_context(&e, "put");
	worker_io_fail_err(&e);
}

/* --- in place ------------------------------------------------------------------------------- */

/* Opens a regular file for writing, and creates it if it is missing. Refuses files that open(2)
 * would wait for, or that opening alone would affect. */
static int open_in_place(const struct file_request *r, struct err *e)
{
	int how = r->how == AGENT_WRITE_NEW ? O_TRUNC : r->how == AGENT_WRITE_APPEND ? O_APPEND : 0;
	struct stat st;

	int bad = folder_make_parents(r->path, e);
	if (bad)
		return bad;
	bool there = stat(r->path, &st) == 0;
	if (there && S_ISDIR(st.st_mode))
		return err_set(e, EISDIR, "write %.100s", r->path);
	if (there && !S_ISREG(st.st_mode))
		return err_say(e, EINVAL, "%.100s is not a regular file", r->path);
	int fd = open(r->path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | how,
		      r->mode ? r->mode : 0644);
	return fd < 0 ? err_set(e, errno, "open %.100s", r->path) : fd;
}

static int write_in_place(const struct file_request *r, struct err *e)
{
	uint64_t at = r->how == AGENT_WRITE_AT ? r->offset : 0;
	bool sized = r->size != AGENT_UNSIZED;

	if (at > INT64_MAX || (sized && r->size > INT64_MAX - at))
		return err_set(e, EFBIG, "%llu bytes at offset %llu", (unsigned long long)r->size,
			       (unsigned long long)at);
	scoped_fd int fd = open_in_place(r, e);
	if (fd < 0)
		return fd;
	uint64_t more = r->how == AGENT_WRITE_AT ? bytes_beyond(fd, at, r->size) : r->size;
	int bad = sized ? check_room(fd, more, e) : 0;
	return bad ? bad : take_data(fd, at, e);
}

void serve_write(const struct file_request *r)
{
	struct err e;

	signal(SIGXFSZ, SIG_IGN); /* EFBIG instead */
	worker_io_expect(r->size);
	if (write_in_place(r, &e) == 0)
		worker_io_done();
	err_context(&e, "write");
	worker_io_fail_err(&e);
}

/* --- folders, removal ----------------------------------------------------------------------- */

static int make_folder(const char *path, uint32_t mode, bool parents, struct err *e)
{
	struct stat st;
	int bad = parents ? folder_make_parents(path, e) : 0;

	if (bad)
		return bad;
	if (mkdir(path, mode) < 0) {
		int saved = errno;
		bool there = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
		bool fine = parents && saved == EEXIST && there;
		return fine ? 0 : err_set(e, saved, "create the folder %.100s", path);
	}
	/* mkdir(2) ignores set-id bits. */
	return chmod(path, mode) < 0 ? err_set(e, errno, "set the mode of %.100s", path) : 0;
}

void serve_mkdir(const struct file_request *r)
{
	char path[AGENT_PATH_MAX + 1];
	struct err e;

	folder_trim(path, r->path);
	if (make_folder(path, r->mode ? r->mode : 0755, r->flag, &e) < 0)
		worker_io_fail_err(&e);
	worker_io_done();
}

void serve_remove(const struct file_request *r)
{
	const char *path = r->path;
	struct err e;

	if (r->flag && folder_remove(path, &e) < 0)
		worker_io_fail_err(&e);
	/* Linux reports a folder with EISDIR, not with POSIX's EPERM. */
	if (!r->flag && unlink(path) < 0 && (errno != EISDIR || rmdir(path) < 0))
		worker_io_fail_path("remove", path);
	worker_io_done();
}
