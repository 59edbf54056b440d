// SPDX-License-Identifier: Apache-2.0
#include "guest/files/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"

void folder_trim(char out[static AGENT_PATH_MAX + 1], const char *path)
{
	size_t len = strlen(strcpy(out, path));

	while (len > 1 && out[len - 1] == '/')
		out[--len] = '\0';
}

int folder_make_parents(const char *path, struct err *e)
{
	char folder[PATH_MAX];

	if (strlen(path) >= sizeof(folder))
		return err_set(e, ENAMETOOLONG, "create the folders of %.100s", path);
	memcpy(folder, path, strlen(path) + 1);
	for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		if (mkdir(folder, 0755) < 0 && errno != EEXIST)
			return err_set(e, errno, "create the folder %.100s", folder);
		*at = '/';
	}
	return 0;
}

/* --- removal -------------------------------------------------------------------------------- */

/* A folder that is being emptied; `name` is its name in the level before. */
struct level {
	int fd;
	off_t at; /* where the next read starts */
	char name[NAME_MAX + 1];
};

struct removal {
	struct level *levels;
	size_t depth, room;
};

/* Removes a file, or makes a folder the last level. Returns 1 for a folder, 0 for a file. */
static int enter(struct removal *r, int folder, const char *name, struct err *e)
{
	struct statx st;

	if (statx(folder, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &st) < 0)
		return errno == ENOENT ? 0 : err_set(e, errno, "stat %.100s", name);
	if (st.stx_attributes & STATX_ATTR_MOUNT_ROOT)
		return err_say(e, EBUSY, "something is mounted on %.100s", name);
	if (!S_ISDIR(st.stx_mode)) {
		if (unlinkat(folder, name, 0) < 0 && errno != ENOENT)
			return err_set(e, errno, "remove %.100s", name);
		return 0;
	}
	scoped_fd int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, errno, "open %.100s", name);
	if (array_grow(&r->levels, &r->room, r->depth + 1, sizeof(*r->levels)) < 0)
		return err_set(e, ENOMEM, "remove %.100s", name);
	struct level *l = &r->levels[r->depth++];
	l->at = 0;
	l->fd = take_fd(&fd);
	strcpy(l->name, name);
	return 1;
}

/* Empties the last level up to its first folder, which it enters. Returns 1 if it entered one, 0 if
 * the level is empty. */
static int empty_level(struct removal *r, struct err *e)
{
	static char buf[32768] __attribute__((aligned(8)));
	struct level *l = &r->levels[r->depth - 1];
	int fd = l->fd;
	ssize_t n;

	if (lseek(fd, l->at, SEEK_SET) < 0)
		return err_set(e, errno, "read %.100s", l->name);
	while ((n = getdents64(fd, buf, sizeof(buf))) > 0) {
		for (char *at = buf; at < buf + n;) {
			const struct dirent64 *d = (const struct dirent64 *)at;
			bool itself = strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0;

			at += d->d_reclen;
			if (itself)
				continue;
			l->at = d->d_off;
			int entered = enter(r, fd, d->d_name, e);
			if (entered)
				return entered;
		}
	}
	return n < 0 ? err_set(e, errno, "read %.100s", l->name) : 0;
}

static int remove_levels(struct removal *r, int top, struct err *e)
{
	while (r->depth) {
		int more = empty_level(r, e);

		if (more < 0)
			return more;
		if (more)
			continue;
		struct level *l = &r->levels[--r->depth];
		int folder = r->depth ? r->levels[r->depth - 1].fd : top;
		close(l->fd);
		if (unlinkat(folder, l->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			return err_set(e, errno, "remove %.100s", l->name);
	}
	return 0;
}

/* Splits a path into its last name and the folder that contains it. */
static int split(const char *path, char folder[PATH_MAX], char name[NAME_MAX + 1], struct err *e)
{
	size_t len = strlen(path);

	while (len && path[len - 1] == '/')
		len--;
	size_t begin = len;
	while (begin && path[begin - 1] != '/')
		begin--;
	if (begin == len)
		return err_say(e, EBUSY, "the root folder cannot be removed");
	if (begin >= PATH_MAX || len - begin > NAME_MAX)
		return err_set(e, ENAMETOOLONG, "remove %.100s", path);
	memcpy(folder, path, begin);
	folder[begin] = '\0';
	memcpy(name, path + begin, len - begin);
	name[len - begin] = '\0';
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return err_say(e, EINVAL, "a path that ends with %s cannot be removed", name);
	return 0;
}

int folder_remove(const char *path, struct err *e)
{
	char folder[PATH_MAX], name[NAME_MAX + 1];
	struct removal r = {0};

	int bad = split(path, folder, name, e);
	if (bad)
		return bad;
	scoped_fd int top = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return err_set(e, errno, "open %.100s", folder);
	if (faccessat(top, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, errno, "look up %.100s", path);
	bad = enter(&r, top, name, e);
	if (bad > 0)
		bad = remove_levels(&r, top, e);
	while (r.depth)
		close(r.levels[--r.depth].fd);
	free(r.levels);
	return bad;
}
