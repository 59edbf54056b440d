// SPDX-License-Identifier: Apache-2.0
/* Serves AGENT_WALK: lists folders with what is in them, depth first. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/files/descent.h"
#include "guest/files/file-work.h"
#include "guest/files/owners.h"
#include "guest/files/worker-io.h"

static struct {
	uint32_t max_depth, left; /* left: answers that may still be sent */
	struct owners users, groups;
	struct descent at; /* its path is within the first folder */
	/* The path in the current folder after which the listing continues; NULL: all of it is
	 * listed. */
	const char *after;
} walk;

static void send_node(const char *name, const struct statx *st, const char *target,
		      size_t target_len)
{
	const char *user = owners_name(&walk.users, st->stx_uid);
	const char *group = owners_name(&walk.groups, st->stx_gid);
	size_t len = strlen(name), texts = len + target_len + strlen(user) + strlen(group);
	struct wire w = worker_io_frame(AGENT_NODE, 4 * 4 + 12 + 8 + 8 + texts);

	wire_put_str(&w, name, len);
	wire_put_u32(&w, st->stx_mode);
	wire_put_u32(&w, st->stx_uid);
	wire_put_u32(&w, st->stx_gid);
	wire_put_u64(&w, S_ISREG(st->stx_mode) ? st->stx_size : 0);
	wire_put_u64(&w, (uint64_t)st->stx_mtime.tv_sec * 1000000000 + st->stx_mtime.tv_nsec);
	wire_put_str(&w, target, target_len);
	wire_put_str(&w, user, strlen(user));
	wire_put_str(&w, group, strlen(group));
}

/* Describes the file `name` in the folder, under the name `shown`, and sets *st. If `link` is set,
 * symbolic links are not followed. Returns -1 with errno set when it cannot be described. */
static int describe(int folder, const char *name, const char *shown, bool link, struct statx *st)
{
	char target[PATH_MAX];
	ssize_t len = 0;

	if (statx(folder, name, AT_NO_AUTOMOUNT | (link ? AT_SYMLINK_NOFOLLOW : 0),
		  STATX_BASIC_STATS, st) < 0)
		return -1;
	if (S_ISLNK(st->stx_mode))
		len = readlinkat(folder, name, target, sizeof(target));
	if (len < 0)
		return -1;
	send_node(shown, st, target, (size_t)len);
	return 0;
}

/* Begins to list the folder `fd`, whose path is walk.at.path. Takes ownership of `fd`. */
static void enter(int fd, const char *after)
{
	descent_enter(&walk.at, fd);
	walk.after = after && *after ? after : NULL;
}

/* Enters the folder that was described last, unless it is too deep, a mount point or not readable.
 */
static void try_enter(int parent, const char *name, const struct statx *st, const char *after)
{
	if (!S_ISDIR(st->stx_mode) || walk.at.depth == walk.max_depth ||
	    st->stx_attributes & STATX_ATTR_MOUNT_ROOT)
		return;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		enter(fd, after);
	else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		worker_io_fail_path("open", walk.at.path);
}

/* Compares `name` with the path after which the listing continues. Returns < 0: listed before, with
 * all that is in it; 0: listed, and *rest is the last path listed in it, or NULL; > 0: not listed
 * yet. */
static int compare(const char *name, const char **rest)
{
	*rest = NULL;
	if (!walk.after)
		return 1;
	size_t len = strcspn(walk.after, "/"), name_len = strlen(name);
	int order = memcmp(name, walk.after, len < name_len ? len : name_len);
	if (order || name_len != len)
		return order ? order : name_len < len ? -1 : 1;
	*rest = walk.after[len] ? walk.after + len + 1 : NULL;
	return 0;
}

static void list_name(int parent, const char *name)
{
	const char *rest;
	struct statx st;
	int order = compare(name, &rest);

	if (order < 0 || !descent_set_path(&walk.at, name, AGENT_NAME_MAX))
		return;
	walk.after = NULL;
	if (order == 0) {
		if (statx(parent, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS,
			  &st) == 0)
			try_enter(parent, name, &st, rest);
		return;
	}
	/* ENOENT, EINVAL: it is gone, or no longer a symbolic link. */
	if (describe(parent, name, walk.at.path, true, &st) == 0) {
		walk.left--;
		try_enter(parent, name, &st, NULL);
	} else if (errno != ENOENT && errno != EINVAL) {
		worker_io_fail_path("stat", walk.at.path);
	}
}

static void list_all(void)
{
	while (walk.at.depth && walk.left) {
		int folder;
		const char *name = descent_next(&walk.at, &folder);

		if (name)
			list_name(folder, name);
		else
			walk.after = NULL;
	}
}

void serve_walk(const struct file_request *r)
{
	struct statx st;

	owners_read(&walk.users, "/etc/passwd");
	owners_read(&walk.groups, "/etc/group");
	if (!r->depth) {
		if (describe(AT_FDCWD, r->path, r->path, r->flag, &st) < 0)
			worker_io_fail_path("stat", r->path);
		worker_io_done();
	}
	walk.max_depth = r->depth;
	walk.left = r->limit ? r->limit : UINT32_MAX;
	int fd = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		worker_io_fail_path("list", r->path);
	enter(fd, r->after);
	list_all();
	worker_io_done();
}
