// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/warden/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"

#define DIRECTORY_PATH_MAX 512

static int make_parents(const char *path, struct err *e)
{
	char part[DIRECTORY_PATH_MAX];
	size_t len = strlen(path);

	if (len >= sizeof(part))
		return err_set(e, ENAMETOOLONG, "create directory %s", path);
	memcpy(part, path, len + 1);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		/* The umask is for private directories; parents are readable by all. */
		if (mkdir(part, 0755) == 0)
			chmod(part, 0755);
		else if (errno != EEXIST)
			return err_set(e, errno, "create directory %s", part);
		*slash = '/';
	}
	return 0;
}

/* Opens `path` and sets *made if it was created just now. */
static int open_or_make(const char *path, mode_t mode, bool *made, struct err *e)
{
	int r = make_parents(path, e);
	if (r < 0)
		return r;
	*made = mkdir(path, mode) == 0;
	if (!*made && errno != EEXIST)
		return err_set(e, errno, "create directory %s", path);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_set(e, errno, "open %s", path) : fd;
}

static int hand_over(int fd, const char *path, uid_t uid, gid_t gid, mode_t mode, struct err *e)
{
	if (fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0)
		return err_set(e, errno, "give %s to uid %u", path, uid);
	return 0;
}

/* Opens a directory only to inspect it, which needs no rights in it. */
static int open_to_look(const char *path, struct err *e)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_set(e, errno, "open %s", path) : fd;
}

static int check_for_root(int fd, const char *path, gid_t gid, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "inspect %s", path);
	if (st.st_uid != 0 || st.st_mode & (S_IWGRP | S_IWOTH))
		return err_say(e, EPERM,
			       "%s must belong to root and be writable by root only (chown root "
			       "%s; chmod go-w %s)",
			       path, path, path);
	if (!(st.st_mode & S_IXOTH) && (st.st_gid != gid || !(st.st_mode & S_IXGRP)))
		return err_say(e, EPERM, "%s must be open to group %u (chgrp %u %s; chmod 0750 %s)",
			       path, gid, gid, path, path);
	return 0;
}

int directory_for_root(const char *path, gid_t gid, struct err *e)
{
	bool made;

	scoped_fd int fd = open_or_make(path, 0750, &made, e);
	if (fd < 0)
		return fd;
	if (made && hand_over(fd, path, 0, gid, 0750, e) < 0)
		return e ? e->code : -EPERM;
	int r = check_for_root(fd, path, gid, e);
	return r < 0 ? r : take_fd(&fd);
}

int directory_look_for_root(const char *path, gid_t gid, struct err *e)
{
	scoped_fd int fd = open_to_look(path, e);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	return check_for_root(fd, path, gid, e);
}

static bool is_empty(int fd)
{
	DIR *dir = directory_list(fd, ".");
	struct dirent *entry;
	bool empty = true;

	if (!dir)
		return false;
	while (empty && (entry = readdir(dir)))
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			strcmp(entry->d_name, "lost+found") == 0;
	closedir(dir);
	return empty;
}

static int refuse_owner(const char *path, uid_t owner, struct account account, struct err *e)
{
	return err_say(e, EPERM, "%s belongs to uid %u, expected uid %u (chown -R %u:%u %s)", path,
		       owner, account.uid, account.uid, account.gid, path);
}

int directory_for_account(const char *path, struct account account, struct err *e)
{
	struct stat st;
	bool made;

	scoped_fd int fd = open_or_make(path, 0700, &made, e);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "inspect %s", path);
	if (made || (st.st_uid == 0 && is_empty(fd))) {
		int r = hand_over(fd, path, account.uid, account.gid, 0700, e);

		return r < 0 ? r : take_fd(&fd);
	}
	if (st.st_uid != account.uid)
		return refuse_owner(path, st.st_uid, account, e);
	return take_fd(&fd);
}

int directory_look_for_account(const char *path, struct account account, struct err *e)
{
	struct stat st;
	scoped_fd int fd = open_to_look(path, e);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "inspect %s", path);
	if (st.st_uid == 0 && faccessat(fd, ".", R_OK, AT_EACCESS) < 0)
		return err_set(e, errno, "list %s", path);
	if (st.st_uid == account.uid)
		return 1;
	if (st.st_uid == 0 && is_empty(fd))
		return 0;
	return refuse_owner(path, st.st_uid, account, e);
}
