// SPDX-License-Identifier: Apache-2.0
/* Moves files, and changes their permissions and owners. */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/files/file-work.h"
#include "guest/files/folder.h"
#include "guest/files/worker-io.h"

/* --- moves ---------------------------------------------------------------------------------- */

static int move(const char *from, const char *to, bool replace, struct err *e)
{
	struct stat st;

	/* First, so that a missing file leaves no new folders. */
	if (lstat(from, &st) < 0)
		return err_set(e, errno, "move %.100s", from);
	int bad = folder_make_parents(to, e);
	if (bad)
		return bad;
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, replace ? 0 : RENAME_NOREPLACE) == 0)
		return 0;
	if (errno == EINVAL)
		return err_say(e, ELOOP, "%.80s can't be moved into itself, to %.80s", from, to);
	if (errno == EXDEV)
		return err_say(
			e, EXDEV,
			"%.80s is on another file system than %.80s: copy it, then remove it", from,
			to);
	return err_set(e, errno, "move %.80s to %.80s", from, to);
}

void serve_move(const struct file_request *r)
{
	char to[AGENT_PATH_MAX + 1];
	struct err e;

	folder_trim(to, r->to);
	if (move(r->path, to, r->flag, &e) < 0)
		worker_io_fail_err(&e);
	worker_io_done();
}

/* --- permissions and owners ----------------------------------------------------------------- */

/* Changes the file `name` in the working directory, never the target of a link, even if the guest
 * replaces the file by a link meanwhile. Returns -ENOENT, without an error text, when it vanished.
 */
static int change(const char *name, const struct file_request *r, struct err *e)
{
	char itself[32];
	struct stat st;
	scoped_fd int fd = open(name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, errno, "open %.100s", name);
	/* The owner first, because chown(2) clears the set-id bits. UINT32_MAX is (uid_t)-1, which
	 * means unchanged there, too. */
	if ((r->uid & r->gid) != AGENT_UNCHANGED &&
	    fchownat(fd, "", r->uid, r->gid, AT_EMPTY_PATH) < 0)
		return err_set(e, errno, "change the owner of %.100s", name);
	if (r->mode == AGENT_UNCHANGED || S_ISLNK(st.st_mode))
		return 0;
	snprintf(itself, sizeof(itself), "/proc/self/fd/%d", fd);
	return chmod(itself, r->mode) < 0 ? err_set(e, errno, "change the mode of %.100s", name)
					  : 0;
}

/* Changes the folder and what is in it, from bottom to top, so that a folder that gets closed to
 * everybody is done already. fts(3) walks with fchdir(2) and checks that it is in the same folder
 * as before, whatever is renamed meanwhile. */
static int change_tree(char *path, const struct file_request *r, struct err *e)
{
	char *paths[] = {path, NULL};
	FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_XDEV, NULL);
	int ret = tree ? 0 : err_set(e, errno, "read %.100s", path);

	while (ret == 0) {
		errno = 0;
		const FTSENT *at = fts_read(tree);

		if (!at) {
			ret = errno ? err_set(e, errno, "read %.100s", path) : 0;
			break;
		}
		if (at->fts_info == FTS_DNR || at->fts_info == FTS_ERR)
			ret = err_set(e, at->fts_errno, "read %.100s", at->fts_path);
		else if (at->fts_info != FTS_D && at->fts_info != FTS_NS)
			ret = change(at->fts_accpath, r, e);
		if (ret == -ENOENT)
			ret = 0;
	}
	if (tree)
		fts_close(tree);
	return ret;
}

void serve_change(const struct file_request *r)
{
	char target[PATH_MAX];
	struct err e;

	/* Only the path itself may be a link that is followed. */
	if (!realpath(r->path, target))
		worker_io_fail(errno, "%.100s: %s", r->path, strerror(errno));
	int ret = r->flag ? change_tree(target, r, &e) : change(target, r, &e);
	if (ret == -ENOENT)
		worker_io_fail(ENOENT, "%.100s: %s", r->path, strerror(ENOENT));
	if (ret < 0)
		worker_io_fail_err(&e);
	worker_io_done();
}
