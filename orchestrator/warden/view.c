// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define RUN "/run"

/* A mount of a kept folder or file, which is attached nowhere while /run is being replaced. */
struct kept {
	char *path; /* NULL: none */
	int mount;
	bool is_dir;
};

static int keep(struct kept *k, const char *path, struct err *e)
{
	scoped_free char *real = path[0] ? realpath(path, NULL) : NULL;
	struct stat st;

	if (!real || strncmp(real, RUN "/", sizeof(RUN)) != 0)
		return 0;
	k->mount = open_tree(AT_FDCWD, real, OPEN_TREE_CLONE | AT_RECURSIVE | OPEN_TREE_CLOEXEC);
	if (k->mount < 0 || fstat(k->mount, &st) < 0)
		return err_set(e, errno, "keep %s visible", real);
	k->is_dir = S_ISDIR(st.st_mode);
	k->path = real;
	real = NULL;
	return 0;
}

/* Makes the folder or file over which the kept one is mounted. It exists already if a folder that
 * contains it is kept, too. */
static int make_place(const struct kept *k)
{
	for (char *slash = strchr(k->path + sizeof(RUN), '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		int r = mkdir(k->path, 0755);
		*slash = '/';
		if (r < 0 && errno != EEXIST)
			return -1;
	}
	int r = k->is_dir ? mkdir(k->path, 0755) : mknod(k->path, S_IFREG | 0444, 0);
	return r < 0 && errno != EEXIST ? -1 : 0;
}

static int put_back(const struct kept *k, struct err *e)
{
	if (make_place(k) < 0 ||
	    move_mount(k->mount, "", AT_FDCWD, k->path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_set(e, errno, "put %s back", k->path);
	return 0;
}

static int replace(const struct kept *kept, size_t n, struct err *e)
{
	const mode_t before = umask(022);
	int r = 0;

	if (mount("ramet", RUN, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=1m") < 0)
		r = err_set(e, errno, "mount an empty folder over " RUN);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (kept[i].path)
			r = put_back(&kept[i], e);
	umask(before);
	return r;
}

int view_hide_run(const char *const *kept, size_t n, struct err *e)
{
	struct kept all[VIEW_PATHS_MAX];
	int r = 0;

	if (n > VIEW_PATHS_MAX)
		return err_set(e, E2BIG, "hide " RUN);
	if (unshare(CLONE_NEWNS) < 0)
		return err_set(e, errno, "create a mount namespace");
	/* What the host unmounts later is unmounted here, too. */
	if (mount("", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_set(e, errno, "separate the mounts from the host's");
	for (size_t i = 0; i < n; i++)
		all[i] = (struct kept){.mount = -1};
	for (size_t i = 0; r == 0 && i < n; i++)
		r = keep(&all[i], kept[i], e);
	if (r == 0)
		r = replace(all, n, e);
	for (size_t i = 0; i < n; i++) {
		close_fd(&all[i].mount);
		free(all[i].path);
	}
	return r;
}
