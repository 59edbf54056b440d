// SPDX-License-Identifier: Apache-2.0
/*
 * Serves AGENT_UNPACK: unpacks a tar archive into a folder. Paths are resolved beneath that folder:
 * a symbolic link that leads out of it, from the archive or from before, is never followed. Each
 * file is written under a temporary name and renamed when it is complete.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"
#include "guest/files/file-work.h"
#include "guest/files/folder.h"
#include "guest/files/staged.h"
#include "guest/files/tar.h"
#include "guest/files/worker-io.h"
#include "guest/files/worker.h"

#define TIMES_MAX (16u << 20) /* bytes of paths whose times are set at the end */

/* The times of a folder, which change while it is filled. */
struct folder_time {
	struct folder_time *next;
	struct timespec mtime;
	char path[];
};

static struct {
	struct staged_file *staged; /* the file that is being written */
	const char *folder;	    /* absolute */
	int top;		    /* the folder */
	bool created;		    /* by this request */
	/* The temporary name of the file that is being written, the same for one file after
	 * another. */
	char temporary[STAGED_NAME_SIZE];
	int parent; /* folder of the current entry; -1: none */
	char parent_path[PATH_MAX];
	int file; /* being written; -1: none */
	uint64_t at;
	struct folder_time *times; /* the last one first */
	size_t times_bytes;
} un = {.top = -1, .parent = -1, .file = -1};

/* --- folders -------------------------------------------------------------------------------- */

static int open_beneath(const char *path)
{
	const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				     .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};

	return (int)syscall(SYS_openat2, un.top, path[0] ? path : ".", &how, sizeof(how));
}

/* Returns the last name of the path. */
static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Opens the folder at `path`, and creates it and those above it when they are missing. */
static int open_folder(const char *path, struct err *e)
{
	int fd = open_beneath(path);

	if (fd < 0 && errno == ENOENT) {
		char part[PATH_MAX];

		strcpy(part, path);
		for (char *slash = strchr(part, '/');; slash = strchr(slash + 1, '/')) {
			char above[PATH_MAX];

			if (slash)
				*slash = '\0';
			size_t len = (size_t)(name_of(part) - part);
			memcpy(above, part, len);
			above[len] = '\0';
			scoped_fd int in = open_beneath(above);
			if (in >= 0 && mkdirat(in, name_of(part), 0755) < 0 && errno != EEXIST)
				return err_set(e, errno, "create the folder %.100s", part);
			if (!slash)
				break;
			*slash = '/';
		}
		fd = open_beneath(path);
	}
	if (fd < 0 && errno == EXDEV)
		return err_say(e, EBADMSG, "the archive is refused: %.100s leads out of the folder",
			       path);
	return fd < 0 ? err_set(e, errno, "open the folder %.100s", path) : fd;
}

/* Opens the folder that contains `path`, unless it is open already. */
static int open_parent(const char *path, struct err *e)
{
	char above[PATH_MAX];
	const char *name = name_of(path);
	size_t len = name == path ? 0 : (size_t)(name - path) - 1;

	memcpy(above, path, len);
	above[len] = '\0';
	if (un.parent >= 0 && strcmp(above, un.parent_path) == 0)
		return 0;
	close_fd(&un.parent);
	int fd = open_folder(above, e);
	if (fd < 0)
		return fd;
	un.parent = fd;
	strcpy(un.parent_path, above);
	return 0;
}

/* --- attributes ----------------------------------------------------------------------------- */

static struct timespec time_of(const struct tar_entry *n)
{
	return (struct timespec){.tv_sec = n->mtime_s, .tv_nsec = n->mtime_ns};
}

/* Sets owner, mode and time of `name`; of a link, not of its target. A link has no mode. The mode
 * comes after the owner, because a change of the owner clears the set-id bits. */
static int set_attributes(const char *name, const struct tar_entry *n, struct err *e)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, time_of(n)};

	if (fchownat(un.parent, name, n->uid, n->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "set the owner of %.100s", n->path);
	/* The name was created here, or is a folder, so it is not a link unless the guest just made
	 * it one. */
	if (n->type != TAR_LINK && fchmodat(un.parent, name, n->mode, 0) < 0)
		return err_set(e, errno, "set the mode of %.100s", n->path);
	if (n->type != TAR_FOLDER && utimensat(un.parent, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "set the time of %.100s", n->path);
	return 0;
}

static void note_time(const struct tar_entry *n)
{
	size_t size = sizeof(struct folder_time) + strlen(n->path) + 1;

	if (un.times_bytes + size > TIMES_MAX)
		return;
	struct folder_time *t = malloc(size);
	if (!t)
		return;
	un.times_bytes += size;
	t->mtime = time_of(n);
	strcpy(t->path, n->path);
	t->next = un.times;
	un.times = t;
}

static void set_times(void)
{
	for (const struct folder_time *t = un.times; t; t = t->next) {
		const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, t->mtime};
		char itself[32];
		scoped_fd int fd = open_beneath(t->path);

		snprintf(itself, sizeof(itself), "/proc/self/fd/%d", fd);
		if (fd >= 0)
			utimensat(AT_FDCWD, itself, times, 0);
	}
}

/* --- entries -------------------------------------------------------------------------------- */

static int make_folder(const struct tar_entry *n, struct err *e)
{
	const char *name = name_of(n->path);
	struct stat st;

	if (!n->path[0]) { /* the folder itself, whose attributes only a new one gets */
		if (!un.created)
			return 0;
		if (fchown(un.top, n->uid, n->gid) < 0 || fchmod(un.top, n->mode) < 0)
			return err_set(e, errno, "set owner and mode of %.100s", un.folder);
		note_time(n);
		return 0;
	}
	if (mkdirat(un.parent, name, 0700) < 0) {
		int saved = errno;

		if (saved != EEXIST || fstatat(un.parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_set(e, saved, "create the folder %.100s", n->path);
		if (S_ISLNK(st.st_mode)) /* a link that leads to a folder within `folder` stays */
			return 0;
		if (!S_ISDIR(st.st_mode))
			return err_set(e, EEXIST, "create the folder %.100s", n->path);
	}
	note_time(n);
	return set_attributes(name, n, e);
}

/* Removes what is in the way of the entry, unless it is a folder. */
static int make_way(const struct tar_entry *n, struct err *e)
{
	if (unlinkat(un.parent, name_of(n->path), 0) < 0 && errno != ENOENT)
		return err_set(e, errno, "replace %.100s", n->path);
	return 0;
}

static int make_link(const struct tar_entry *n, struct err *e)
{
	int bad = make_way(n, e);

	if (bad)
		return bad;
	if (symlinkat(n->target, un.parent, name_of(n->path)) < 0)
		return err_set(e, errno, "create the link %.100s", n->path);
	return set_attributes(name_of(n->path), n, e);
}

static int make_hard_link(const struct tar_entry *n, struct err *e)
{
	char above[PATH_MAX];
	const char *name = name_of(n->target);

	if (strcmp(n->target, n->path) == 0)
		return err_say(e, EBADMSG, "the archive is broken: %.100s is a link to itself",
			       n->path);
	memcpy(above, n->target, (size_t)(name - n->target));
	above[name - n->target] = '\0';
	scoped_fd int from = open_beneath(above);
	if (from < 0 && errno == EXDEV)
		return err_say(e, EBADMSG, "the archive is refused: %.100s leads out of the folder",
			       n->target);
	int bad = make_way(n, e);
	if (bad)
		return bad;
	if (from < 0 || linkat(from, name, un.parent, name_of(n->path), 0) < 0)
		return err_set(e, errno == ENOENT ? EBADMSG : errno, "link %.80s to %.80s", n->path,
			       n->target);
	return 0;
}

static int make_fifo(const struct tar_entry *n, struct err *e)
{
	int bad = make_way(n, e);

	if (bad)
		return bad;
	if (mkfifoat(un.parent, name_of(n->path), 0600) < 0)
		return err_set(e, errno, "create the FIFO %.100s", n->path);
	return set_attributes(name_of(n->path), n, e);
}

/* Opens the temporary file. The agent removes it if this process is killed. */
static int begin_file(const struct tar_entry *n, struct err *e)
{
	char *path = un.staged->temporary;
	const char *above = un.parent_path;
	int len = snprintf(path, sizeof(un.staged->temporary), "%s/%s%s%s", un.folder, above,
			   above[0] ? "/" : "", un.temporary);

	if ((size_t)len >= sizeof(un.staged->temporary))
		return err_set(e, ENAMETOOLONG, "unpack %.100s", n->path);
	un.staged->state = STAGED_OPEN;
	un.file = openat(un.parent, un.temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (un.file < 0)
		return err_set(e, errno, "create %.100s", n->path);
	un.at = 0;
	return 0;
}

static int on_entry(void *arg, const struct tar_entry *n, struct err *e)
{
	int bad = n->path[0] ? open_parent(n->path, e) : 0;

	if (bad)
		return bad;
	switch (n->type) {
	case TAR_FILE:
		return begin_file(n, e);
	case TAR_FOLDER:
		return make_folder(n, e);
	case TAR_LINK:
		return make_link(n, e);
	case TAR_HARD_LINK:
		return make_hard_link(n, e);
	case TAR_FIFO:
		return make_fifo(n, e);
	}
	return 0;
}

static int on_bytes(void *arg, const uint8_t *data, size_t len, struct err *e)
{
	int bad = file_write(un.file, un.at, data, len, e);

	un.at += len;
	return bad;
}

static int on_complete(void *arg, const struct tar_entry *n, struct err *e)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, time_of(n)};

	if (n->type != TAR_FILE)
		return 0;
	if (fchown(un.file, n->uid, n->gid) < 0 || fchmod(un.file, n->mode) < 0 ||
	    futimens(un.file, times) < 0)
		return err_set(e, errno, "set owner, mode and time of %.100s", n->path);
	close_fd(&un.file);
	if (renameat(un.parent, un.temporary, un.parent, name_of(n->path)) < 0)
		return err_set(e, errno, "write %.100s", n->path);
	un.staged->state = STAGED_NEW;
	return 0;
}

/* --- the request ---------------------------------------------------------------------------- */

static int open_top(const char *path, struct err *e)
{
	int bad = folder_make_parents(path, e);

	if (bad)
		return bad;
	un.folder = strcmp(path, "/") == 0 ? "" : path;
	un.created = mkdir(path, 0755) == 0;
	if (!un.created && errno != EEXIST)
		return err_set(e, errno, "create the folder %.100s", path);
	un.top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return un.top < 0 ? err_set(e, errno, "open the folder %.100s", path) : 0;
}

static size_t on_read(void *arg, const uint8_t **data)
{
	return worker_io_data(data);
}

static int unpack(const struct file_request *r, uint64_t *entries, struct err *e)
{
	static const struct tar_calls calls = {on_read, on_entry, on_bytes, on_complete};
	char path[AGENT_PATH_MAX + 1];
	const uint8_t *rest;

	folder_trim(path, r->path);
	int bad = open_top(path, e);
	staged_name(un.temporary);
	if (!bad && r->size != AGENT_UNSIZED)
		bad = check_room(un.top, r->size, e);
	if (!bad)
		bad = tar_read(&calls, NULL, entries, e);
	/* Reads what follows the last entry, such as zeros, because success is reported only after
	 * all data. */
	while (!bad && worker_io_data(&rest))
		continue;
	return bad;
}

void serve_unpack(const struct file_request *r)
{
	uint64_t entries = 0;
	struct err e;

	signal(SIGXFSZ, SIG_IGN); /* EFBIG instead */
	worker_io_expect(r->size);
	un.staged = worker_staged();
	int bad = unpack(r, &entries, &e);
	staged_remove(un.staged);
	set_times();
	if (!bad)
		worker_io_done();
	err_context(&e, "after %llu entries", (unsigned long long)entries);
	worker_io_fail_err(&e);
}
