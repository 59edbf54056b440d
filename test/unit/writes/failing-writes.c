// SPDX-License-Identifier: Apache-2.0
#include "test/unit/writes/failing-writes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char below[PATH_MAX];
#define KILLS -1
static int failure; /* errno; 0: writes half of the bytes; or KILLS */
static atomic_uint left;
static atomic_bool fired;

static void begin(const char *dir, unsigned n, int error)
{
	atomic_store(&left, 0);
	if (!realpath(dir, below))
		abort();
	failure = error;
	atomic_store(&fired, false);
	atomic_store(&left, n);
}

void writes_fail(const char *dir, unsigned n, int error)
{
	begin(dir, n, error);
}

void writes_are_short(const char *dir, unsigned n)
{
	begin(dir, n, 0);
}

void writes_kill(const char *dir, unsigned n)
{
	begin(dir, n, KILLS);
}

bool writes_end(void)
{
	atomic_store(&left, 0);
	return atomic_load(&fired);
}

static bool is_its_turn(void)
{
	unsigned n = atomic_load(&left);

	while (n && !atomic_compare_exchange_weak(&left, &n, n - 1))
		;
	if (n != 1)
		return false;
	atomic_store(&fired, true);
	return true;
}

static bool is_below(const char *path)
{
	size_t len = strlen(below);

	return strncmp(path, below, len) == 0 && (path[len] == '/' || !path[len]);
}

static bool fd_is_below(int fd)
{
	char link[32], path[1024];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t len = readlink(link, path, sizeof(path) - 1);
	if (len < 0)
		return false;
	path[len] = 0;
	return is_below(path);
}

static bool fails(bool is_there)
{
	if (!is_there || !failure || !is_its_turn())
		return false;
	if (failure == KILLS)
		kill(getpid(), SIGKILL);
	errno = failure;
	return true;
}

static bool fails_at(int dir, const char *path)
{
	int saved = errno;
	bool counts = atomic_load(&left) && (path[0] == '/' ? is_below(path) : fd_is_below(dir));

	errno = saved;
	return fails(counts);
}

static bool fails_on(int fd)
{
	int saved = errno;
	bool counts = atomic_load(&left) && fd_is_below(fd);

	errno = saved;
	return fails(counts);
}

static size_t shorten(int fd, size_t len)
{
	bool counts = atomic_load(&left) && !failure && len > 1 && fd_is_below(fd);

	return counts && is_its_turn() ? len / 2 : len;
}

/* --- the calls ------------------------------------------------------------------------------ */

#define WRAP(type, name, ...)                                                                      \
	type __real_##name(__VA_ARGS__);                                                           \
	type __wrap_##name(__VA_ARGS__);                                                           \
	type __wrap_##name(__VA_ARGS__)

WRAP(int, fallocate64, int fd, int mode, off_t at, off_t len)
{
	return fails_on(fd) ? -1 : __real_fallocate64(fd, mode, at, len);
}

WRAP(int, fchmod, int fd, mode_t mode)
{
	return fails_on(fd) ? -1 : __real_fchmod(fd, mode);
}

WRAP(int, fchown, int fd, uid_t uid, gid_t gid)
{
	return fails_on(fd) ? -1 : __real_fchown(fd, uid, gid);
}

WRAP(int, fdatasync, int fd)
{
	return fails_on(fd) ? -1 : __real_fdatasync(fd);
}

WRAP(int, fsync, int fd)
{
	return fails_on(fd) ? -1 : __real_fsync(fd);
}

WRAP(int, ftruncate64, int fd, off_t len)
{
	return fails_on(fd) ? -1 : __real_ftruncate64(fd, len);
}

WRAP(int, linkat, int from_dir, const char *from, int dir, const char *path, int flags)
{
	return fails_at(dir, path) ? -1 : __real_linkat(from_dir, from, dir, path, flags);
}

WRAP(int, mkdir, const char *path, mode_t mode)
{
	return fails_at(AT_FDCWD, path) ? -1 : __real_mkdir(path, mode);
}

WRAP(int, mkdirat, int dir, const char *path, mode_t mode)
{
	return fails_at(dir, path) ? -1 : __real_mkdirat(dir, path, mode);
}

static bool makes(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

static mode_t mode_of(int flags, va_list args)
{
	return makes(flags) ? va_arg(args, mode_t) : 0;
}

WRAP(int, open64, const char *path, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	mode_t mode = mode_of(flags, args);
	va_end(args);
	return makes(flags) && fails_at(AT_FDCWD, path) ? -1 : __real_open64(path, flags, mode);
}

WRAP(int, openat64, int dir, const char *path, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	mode_t mode = mode_of(flags, args);
	va_end(args);
	return makes(flags) && fails_at(dir, path) ? -1 : __real_openat64(dir, path, flags, mode);
}

WRAP(ssize_t, pwrite64, int fd, const void *data, size_t len, off_t at)
{
	return fails_on(fd) ? -1 : __real_pwrite64(fd, data, shorten(fd, len), at);
}

WRAP(int, rename, const char *from, const char *to)
{
	return fails_at(AT_FDCWD, to) ? -1 : __real_rename(from, to);
}

WRAP(int, renameat, int from_dir, const char *from, int dir, const char *to)
{
	return fails_at(dir, to) ? -1 : __real_renameat(from_dir, from, dir, to);
}

WRAP(int, sync_file_range, int fd, off_t at, off_t len, unsigned flags)
{
	return fails_on(fd) ? -1 : __real_sync_file_range(fd, at, len, flags);
}

WRAP(ssize_t, write, int fd, const void *data, size_t len)
{
	return fails_on(fd) ? -1 : __real_write(fd, data, shorten(fd, len));
}

/* Only a kill counts removals: what fails to be removed is a leftover. */
WRAP(int, unlinkat, int dir, const char *path, int flags)
{
	return failure == KILLS && fails_at(dir, path) ? -1 : __real_unlinkat(dir, path, flags);
}
