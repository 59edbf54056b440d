// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/store/store-internal.h"

#define STEP_PAGES 256

struct store_backup {
	sqlite3 *from, *to;
	sqlite3_backup *copy;
	int fd;
	char *path; /* path of the copy */
};

/* Opens the copy without a rollback journal, because an incomplete copy is discarded anyway; it is
 * flushed once, when it is complete. */
static int open_copy(struct store_backup *b, struct err *e)
{
	unlink(b->path);
	b->fd = open(b->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (b->fd < 0)
		return err_set(e, errno, "make %s", b->path);
	int rc = sqlite3_open_v2(b->path, &b->to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
				 "unix-none");
	if (rc != SQLITE_OK)
		return store_db_error(b->to, rc, e);
	int ret = store_exec(b->to, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", e);
	if (ret < 0)
		return ret;
	b->copy = sqlite3_backup_init(b->to, "main", b->from, "main");
	return b->copy ? 0 : store_db_error(b->to, SQLITE_ERROR, e);
}

int store_backup_new(struct store_backup **out, const char *path, const char *to, struct err *e)
{
	struct store_backup *b = must_alloc(sizeof(*b));

	b->fd = -1;
	b->path = must_copy(to);
	int ret = store_open_db(&b->from, path, e);
	/* A read transaction that lasts until the end, so that a change does not restart the copy.
	 */
	if (ret == 0)
		ret = store_exec(b->from, "BEGIN; SELECT count(*) FROM sqlite_master", e);
	if (ret == 0)
		ret = open_copy(b, e);
	if (ret < 0) {
		int fd = store_backup_end(b);

		close_fd(&fd);
		return ret;
	}
	*out = b;
	return 0;
}

/* Deletes the live copy's id from the backup: a restored backup must not be overwritten with the
 * newer rows of the live copy. */
static int forget_live(struct store_backup *b, struct err *e)
{
	sqlite3 *db = NULL;

	sqlite3_backup_finish(b->copy);
	b->copy = NULL;
	int ret = store_open_db(&db, b->path, e);
	if (ret == 0)
		ret = store_exec(db, "DELETE FROM live_copy; PRAGMA journal_mode=DELETE", e);
	sqlite3_close(db);
	return ret;
}

int store_backup_step(struct store_backup *b, struct err *e)
{
	int rc = sqlite3_backup_step(b->copy, STEP_PAGES);

	if (rc == SQLITE_OK)
		return 0;
	if (rc != SQLITE_DONE)
		return store_db_error(NULL, rc, e);
	if (forget_live(b, e) < 0)
		return -EIO;
	return fsync(b->fd) < 0 ? err_set(e, errno, "write the copy to disk") : 1;
}

void store_remove(const char *path)
{
	char wal[PATH_MAX];

	unlink(path);
	if (snprintf(wal, sizeof(wal), "%s-wal", path) < (int)sizeof(wal))
		unlink(wal);
}

int store_backup_end(struct store_backup *b)
{
	int fd = b->fd;

	sqlite3_backup_finish(b->copy);
	sqlite3_close(b->to);
	sqlite3_close(b->from);
	if (fd >= 0)
		store_remove(b->path);
	free(b->path);
	free(b);
	return fd;
}
