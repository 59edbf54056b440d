// SPDX-License-Identifier: Apache-2.0
#include "guest/files/staged.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/files/folder.h"

#define LINKS_MAX 40 /* the kernel's limit */

/* Replaces the last name of `path` with the target of the symbolic link there. */
static int follow(char path[PATH_MAX], const char *target)
{
	size_t folder = target[0] == '/' ? 0 : (size_t)(strrchr(path, '/') + 1 - path);

	if (folder + strlen(target) >= PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(path + folder, target, strlen(target) + 1);
	return 0;
}

/* Resolves the last name of `path` as open(2) with O_CREAT does: the rename must not replace a
 * symbolic link. */
static int resolve_links(char path[PATH_MAX], struct err *e)
{
	char target[PATH_MAX];

	for (int i = 0; i < LINKS_MAX; i++) {
		if (path[strlen(path) - 1] == '/')
			return err_set(e, EISDIR, "write %.100s", path);
		ssize_t n = readlink(path, target, sizeof(target) - 1);

		if (n < 0 && (errno == EINVAL || errno == ENOENT))
			return 0;
		if (n < 0)
			return err_set(e, errno, "write %.100s", path);
		target[n] = '\0';
		int bad = follow(path, target);
		if (bad)
			return err_set(e, -bad, "follow %.100s", path);
	}
	return err_set(e, ELOOP, "write %.100s", path);
}

/* Stats the file to be replaced, whose mode and owner the new file gets. Fails unless it is a
 * regular file or does not exist. */
static int look_at_old(const char *path, bool *there, struct stat *st, struct err *e)
{
	*there = stat(path, st) == 0;
	if (!*there && errno != ENOENT)
		return err_set(e, errno, "write %.100s", path);
	if (!*there)
		return 0;
	if (S_ISDIR(st->st_mode))
		return err_set(e, EISDIR, "write %.100s", path);
	if (!S_ISREG(st->st_mode))
		return err_say(e, EINVAL, "%.100s is not a regular file", path);
	return 0;
}

static int name_temporary(struct staged_file *f, struct err *e)
{
	size_t folder = (size_t)(strrchr(f->path, '/') + 1 - f->path);
	char name[STAGED_NAME_SIZE];

	staged_name(name);
	int n = snprintf(f->temporary, sizeof(f->temporary), "%.*s%s", (int)folder, f->path, name);
	if ((size_t)n >= sizeof(f->temporary))
		return err_set(e, ENAMETOOLONG, "write %.100s", f->path);
	return 0;
}

static int set_owner_and_mode(int fd, uint32_t mode, const struct stat *old, struct err *e)
{
	if (old && fchown(fd, old->st_uid, old->st_gid) < 0)
		return err_set(e, errno, "set the owner of the new file");
	if (!mode)
		mode = old ? old->st_mode & 07777 : 0644;
	/* Sets the mode after the owner, since a change of the owner clears the set-id bits. */
	if (fchmod(fd, mode) < 0)
		return err_set(e, errno, "set the mode of the new file");
	return 0;
}

static int create(struct staged_file *f, uint32_t mode, struct err *e)
{
	struct stat st;
	bool there;

	int bad = resolve_links(f->path, e);
	if (bad)
		return bad;
	bad = folder_make_parents(f->path, e);
	if (!bad)
		bad = look_at_old(f->path, &there, &st, e);
	if (!bad)
		bad = name_temporary(f, e);
	if (bad)
		return bad;
	/* Set before the file exists, so that it is removed if this worker is killed. */
	f->state = STAGED_OPEN;
	scoped_fd int fd = open(f->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, errno, "create a file in the folder of %.100s", f->path);
	bad = set_owner_and_mode(fd, mode, there ? &st : NULL, e);
	return bad ? bad : take_fd(&fd);
}

int staged_create(struct staged_file *f, const char *path, uint32_t mode, struct err *e)
{
	if (strlen(path) >= sizeof(f->path))
		return err_set(e, ENAMETOOLONG, "write %.100s", path);
	memcpy(f->path, path, strlen(path) + 1);
	int fd = create(f, mode, e);
	if (fd < 0)
		staged_remove(f);
	return fd;
}

int staged_rename(struct staged_file *f, struct err *e)
{
	if (rename(f->temporary, f->path) < 0)
		return err_set(e, errno, "rename the file to %.100s", f->path);
	f->state = STAGED_OVER;
	return 0;
}

void staged_remove(struct staged_file *f)
{
	if (f->state == STAGED_OPEN)
		unlink(f->temporary);
	f->state = STAGED_OVER;
}
