// SPDX-License-Identifier: Apache-2.0
/*
 * Serves AGENT_PACK: writes a folder as a tar archive with libarchive, as it is read. What is
 * removed or replaced meanwhile is left out; a file that shrinks is filled up with zeros.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <search.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/num.h"
#include "guest/files/file-work.h"
#include "guest/files/owners.h"
#include "guest/files/worker-io.h"

#define READ_BYTES (256u << 10)

/* A file with several names, found under the first of them. */
struct linked {
	dev_t dev;
	ino_t ino;
	char path[];
};

static struct {
	struct archive *archive;
	struct archive_entry *entry;
	struct owners users, groups;
	void *linked; /* a tree of tsearch(3) */
} pack;

__attribute__((noreturn)) static void fail(int errnum, const char *what, const char *path)
{
	worker_io_fail(errnum, "%s %.100s: %s", what, path, strerror(errnum));
}

__attribute__((noreturn)) static void fail_archive(void)
{
	const char *text = archive_error_string(pack.archive);

	worker_io_fail(EIO, "pack: %.150s", text ? text : "no memory");
}

/* Returns true for errors of a file that was removed or replaced since its folder was read. */
static bool is_gone(int errnum)
{
	return errnum == ENOENT || errnum == ENOTDIR || errnum == ELOOP || errnum == ENXIO;
}

/* --- entries -------------------------------------------------------------------------------- */

static int by_inode(const void *a, const void *b)
{
	const struct linked *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

/* Returns the path under which the file was packed before. If there is none, remembers `path` and
 * returns NULL. */
static const char *packed_as(const char *path, const struct stat *st)
{
	size_t len = strlen(path) + 1;

	if (S_ISDIR(st->st_mode) || st->st_nlink < 2)
		return NULL;
	struct linked *new = malloc(sizeof(*new) + len);
	if (!new)
		fail(ENOMEM, "pack", path);
	*new = (struct linked){.dev = st->st_dev, .ino = st->st_ino};
	memcpy(new->path, path, len);
	struct linked **found = tsearch(new, &pack.linked, by_inode);
	if (!found)
		fail(ENOMEM, "pack", path);
	if (*found == new)
		return NULL;
	free(new);
	return (*found)->path;
}

/* Writes the header of an entry. Returns true if the bytes of a file must follow. */
static bool write_header(const char *path, const struct stat *st, const char *target)
{
	struct archive_entry *n = archive_entry_clear(pack.entry);
	const char *user = owners_name(&pack.users, st->st_uid);
	const char *group = owners_name(&pack.groups, st->st_gid);
	const char *first = packed_as(path, st);

	archive_entry_copy_pathname(n, path);
	archive_entry_set_mode(n, st->st_mode);
	archive_entry_set_uid(n, st->st_uid);
	archive_entry_set_gid(n, st->st_gid);
	archive_entry_copy_uname(n, user);
	archive_entry_copy_gname(n, group);
	/* libarchive gets the fractions of times before 1970 wrong. */
	archive_entry_set_mtime(n, st->st_mtim.tv_sec,
				st->st_mtim.tv_sec < 0 ? 0 : st->st_mtim.tv_nsec);
	archive_entry_set_rdev(n, st->st_rdev);
	if (S_ISREG(st->st_mode) && !first)
		archive_entry_set_size(n, st->st_size);
	if (first)
		archive_entry_copy_hardlink(n, first);
	else if (target)
		archive_entry_copy_symlink(n, target);
	/* A warning is about a name that is not valid UTF-8; its bytes are written. */
	if (archive_write_header(pack.archive, n) < ARCHIVE_WARN)
		fail_archive();
	return S_ISREG(st->st_mode) && !first;
}

static void pack_file(const FTSENT *f)
{
	/* The name may have changed its type by now: do not wait for a FIFO or follow a link. */
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	static uint8_t buf[READ_BYTES];
	struct stat st;
	ssize_t n;

	scoped_fd int fd = open(f->fts_accpath, flags);
	if (fd < 0 && is_gone(errno))
		return;
	if (fd < 0 || fstat(fd, &st) < 0)
		worker_io_fail_path("open", f->fts_path);
	if (!S_ISREG(st.st_mode) || !write_header(f->fts_path, &st, NULL))
		return;
	for (uint64_t left = (uint64_t)st.st_size; left; left -= (uint64_t)n) {
		do
			n = read(fd, buf, min_u64(left, sizeof(buf)));
		while (n < 0 && errno == EINTR);
		if (n < 0)
			worker_io_fail_path("read", f->fts_path);
		if (n == 0)
			return;
		if (archive_write_data(pack.archive, buf, (size_t)n) != n)
			fail_archive();
	}
}

static void pack_link(const FTSENT *f)
{
	char target[PATH_MAX];
	ssize_t n = readlink(f->fts_accpath, target, sizeof(target) - 1);

	if (n < 0 && (is_gone(errno) || errno == EINVAL))
		return;
	if (n < 0)
		worker_io_fail_path("read the link", f->fts_path);
	target[n] = '\0';
	write_header(f->fts_path, f->fts_statp, target);
}

static void pack_node(const FTSENT *f)
{
	switch (f->fts_info) {
	case FTS_F:
		pack_file(f);
		return;
	case FTS_SL:
	case FTS_SLNONE:
		pack_link(f);
		return;
	case FTS_D:
		write_header(f->fts_path, f->fts_statp, NULL);
		return;
	case FTS_DEFAULT: /* a FIFO, a device or a socket */
		if (!S_ISSOCK(f->fts_statp->st_mode))
			write_header(f->fts_path, f->fts_statp, NULL);
		return;
	case FTS_NS:
	case FTS_DNR:
	case FTS_ERR:
		if (!is_gone(f->fts_errno))
			fail(f->fts_errno, "read", f->fts_path);
		return;
	default: /* the end of a folder */
		return;
	}
}

/* --- the request ---------------------------------------------------------------------------- */

static la_ssize_t send_bytes(struct archive *a, void *arg, const void *data, size_t len)
{
	size_t n = min_u64(len, AGENT_PAYLOAD_MAX);

	memcpy(worker_io_room(), data, n);
	worker_io_send(AGENT_BYTES, n);
	return (la_ssize_t)n;
}

static void begin_archive(void)
{
	struct archive *a = pack.archive = archive_write_new();

	pack.entry = archive_entry_new();
	if (!a || !pack.entry)
		worker_io_fail(ENOMEM, "pack: no memory");
	if (archive_write_set_format_pax(a) != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(a, AGENT_PAYLOAD_MAX) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(a, 1) != ARCHIVE_OK ||
	    archive_write_open(a, NULL, NULL, send_bytes, NULL) != ARCHIVE_OK)
		fail_archive();
}

void serve_pack(const struct file_request *r)
{
	char here[] = ".", *const top[] = {here, NULL};
	const char *path = r->path;
	FTSENT *f;

	owners_read(&pack.users, "/etc/passwd");
	owners_read(&pack.groups, "/etc/group");
	if (chdir(path) < 0)
		worker_io_fail_path("pack", path);
	FTS *walk = fts_open(top, FTS_PHYSICAL | FTS_XDEV, NULL);
	if (!walk)
		worker_io_fail_path("pack", path);
	begin_archive();
	while ((f = fts_read(walk)))
		pack_node(f);
	if (errno)
		worker_io_fail_path("pack", path);
	if (archive_write_close(pack.archive) != ARCHIVE_OK)
		fail_archive();
	worker_io_done();
}
