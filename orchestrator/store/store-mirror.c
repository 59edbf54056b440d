// SPDX-License-Identifier: Apache-2.0
/*
 * The live copy. The loop's thread reads and writes a database on a tmpfs, and this file updates
 * the database on the disk from it. Each statement that changes the live copy is recorded as text;
 * a worker thread runs the statements recorded since the last time on the disk's database, in the
 * same order and in one transaction. If that fails, it copies all rows instead.
 *
 * After a kill, the live copy still exists and is newer than the disk. After a power cut it is
 * lost, and the disk has an earlier, consistent state. Both databases hold the same random id, so
 * that a live copy is never used with another catalogue (a restored backup has no id).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "orchestrator/store/store-internal.h"

#define CHECKPOINT_PAGES 128
#define NOTED_MAX	 (4u << 20) /* bytes of statements; above it, all rows are copied instead */
#define ID_LEN		 32

struct mirror {
	sqlite3 *
		disk; /* used by the worker while a batch is in flight, else by the loop's thread */
	char *path;   /* path of the live copy */
	int log_pages; /* pages in the disk database's write-ahead log */
	char *noted;   /* recorded statements, each with a semicolon */
	size_t len, room;
	size_t kept; /* length of `noted` before the open transaction */
	bool whole;  /* copy all rows; `noted` is not needed */
	void (*changed)(void *arg);
	void *arg;
};

struct store_batch {
	char *sql;  /* NULL: none */
	bool whole; /* copy all rows; the disk's database has a transaction that sees the live rows
		     */
	bool committed;
};

/* All tables except live_copy. */
static const char copy_rows[] =
	"DELETE FROM main.sandboxes; INSERT INTO main.sandboxes SELECT * FROM source.sandboxes;"
	"DELETE FROM main.keys; INSERT INTO main.keys SELECT * FROM source.keys;"
	"DELETE FROM main.spaces; INSERT INTO main.spaces SELECT * FROM source.spaces;"
	"DELETE FROM main.checkpoints; INSERT INTO main.checkpoints SELECT * FROM "
	"source.checkpoints;"
	"DELETE FROM main.spaces_gone;"
	"INSERT INTO main.spaces_gone SELECT * FROM source.spaces_gone;"
	"DELETE FROM main.answers; INSERT INTO main.answers SELECT * FROM source.answers;"
	"DELETE FROM main.trees; INSERT INTO main.trees SELECT * FROM source.trees;"
	"DELETE FROM main.webhooks; INSERT INTO main.webhooks SELECT * FROM source.webhooks;"
	/* An event never changes, so only the missing ones are copied. */
	"DELETE FROM main.events WHERE n < (SELECT min(n) FROM source.events);"
	"INSERT INTO main.events SELECT * FROM source.events "
	"WHERE n > (SELECT coalesce(max(n), 0) FROM main.events);";

/* Runs the SQL `format`, which contains one %Q for `text`. */
static int run_with(sqlite3 *db, const char *format, const char *text, struct err *e)
{
	char *sql = sqlite3_mprintf(format, text);
	int ret = sql ? store_exec(db, sql, e) : err_set(e, ENOMEM, "change the catalogue");

	sqlite3_free(sql);
	return ret;
}

static void roll_back(sqlite3 *db)
{
	sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	sqlite3_exec(db, "DETACH source", NULL, NULL, NULL);
}

/* Begins a transaction in which `db` sees a snapshot of the database at `path` as `source`. */
static int begin_copy(sqlite3 *db, const char *path, struct err *e)
{
	int ret = run_with(db, "ATTACH %Q AS source", path, e);

	if (ret == 0)
		ret = store_exec(db, "BEGIN; SELECT count(*) FROM source.sqlite_master", e);
	if (ret < 0)
		roll_back(db);
	return ret;
}

static int end_copy(sqlite3 *db, struct err *e)
{
	int ret = store_exec(db, copy_rows, e);

	if (ret == 0)
		ret = store_exec(db, "COMMIT; DETACH source", e);
	if (ret < 0)
		roll_back(db);
	return ret;
}

/* --- recorded statements -------------------------------------------------------------------- */

static bool make_room(struct mirror *m, size_t more)
{
	size_t room = m->room ? m->room : 4096;

	while (room < m->len + more)
		room *= 2;
	if (room == m->room)
		return true;
	char *longer = room <= NOTED_MAX ? realloc(m->noted, room) : NULL;
	if (!longer)
		return false;
	m->noted = longer;
	m->room = room;
	return true;
}

static void forget_noted(struct mirror *m)
{
	free(m->noted);
	m->noted = NULL;
	m->len = m->room = m->kept = 0;
}

static void append(struct mirror *m, const char *sql)
{
	size_t len = sql ? strlen(sql) : 0;

	if (m->whole)
		return;
	if (!sql || !make_room(m, len + 2)) {
		m->whole = true;
		forget_noted(m);
		return;
	}
	memcpy(m->noted + m->len, sql, len);
	memcpy(m->noted + m->len + len, ";", 2);
	m->len += len + 1;
}

void store_mirror_note(struct store *s, sqlite3_stmt *st)
{
	struct mirror *m = s->mirror;

	if (!m)
		return;
	char *sql = sqlite3_expanded_sql(st);
	append(m, sql);
	sqlite3_free(sql);
	if (sqlite3_get_autocommit(s->db))
		store_mirror_keep(s, true);
}

void store_mirror_keep(struct store *s, bool committed)
{
	struct mirror *m = s->mirror;

	if (!m)
		return;
	if (!committed) {
		m->len = m->kept;
		if (m->noted)
			m->noted[m->len] = 0;
		return;
	}
	m->kept = m->len;
	if (m->changed)
		m->changed(m->arg);
}

void store_watch(struct store *s, void (*changed)(void *arg), void *arg)
{
	if (!s->mirror)
		return;
	s->mirror->changed = changed;
	s->mirror->arg = arg;
}

bool store_is_behind(const struct store *s)
{
	return s->mirror && (s->mirror->whole || s->mirror->len);
}

/* --- to the disk ---------------------------------------------------------------------------- */

struct store_batch *store_take(struct store *s)
{
	struct store_batch *b = must_alloc(sizeof(*b));
	struct mirror *m = s->mirror;
	struct err e;

	if (!m)
		return b;
	if (m->whole) {
		if (begin_copy(m->disk, m->path, &e) < 0) {
			log_error("cannot read the live catalogue: %s", e.text);
			free(b);
			return NULL;
		}
		b->whole = true;
		m->whole = false;
		forget_noted(m);
	} else if (m->len) {
		b->sql = m->noted;
		m->noted = NULL;
		forget_noted(m);
	}
	return b;
}

static int run_noted(sqlite3 *db, const char *sql, struct err *e)
{
	int ret = store_exec(db, "BEGIN IMMEDIATE", e);

	return ret < 0 ? ret : store_commit(db, store_exec(db, sql, e), e);
}

/* Syncs the write-ahead log only: a change is durable once it is there. */
static int sync_log(const struct store *s, struct err *e)
{
	char *path = sqlite3_mprintf("%s-wal", s->path);
	scoped_fd int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	sqlite3_free(path);
	return fd < 0 || fsync(fd) < 0 ? err_set(e, errno, "write the catalogue to disk") : 0;
}

static void write_back(struct mirror *m)
{
	if (m->log_pages < CHECKPOINT_PAGES)
		return;
	int rc = sqlite3_wal_checkpoint_v2(m->disk, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	if (rc != SQLITE_OK)
		log_warn("cannot checkpoint the catalogue's log: %s", sqlite3_errstr(rc));
}

int store_write(struct store *s, struct store_batch *b, bool sync, struct err *e)
{
	struct mirror *m = s->mirror;
	int ret = 0;

	errno = 0;
	if (b->whole)
		ret = end_copy(m->disk, e);
	else if (b->sql)
		ret = run_noted(m->disk, b->sql, e);
	/* When the disk is full, SQLite reports ENOSPC of fsync and ftruncate as an I/O error;
	 * only errno has the cause. (sqlite3_system_errno has an earlier error after a failed
	 * COMMIT.) */
	if (ret == -EIO && (errno == ENOSPC || errno == EDQUOT))
		ret = err_set(e, errno, "write the catalogue to disk");
	b->committed = ret == 0;
	if (ret == 0 && sync)
		ret = sync_log(s, e);
	if (ret == 0 && m)
		write_back(m);
	return ret;
}

/* Puts back statements that did not reach the disk, in front of those recorded since. */
static void put_back(struct mirror *m, char *sql)
{
	struct mirror since = *m;

	m->noted = NULL;
	forget_noted(m);
	append(m, sql);
	if (!m->whole && since.len)
		append(m, since.noted);
	m->kept = m->len;
	free(since.noted);
}

void store_written(struct store *s, struct store_batch *b, int ret)
{
	struct mirror *m = s->mirror;

	if (m && ret < 0) {
		/* Only a copy of all rows helps here: rows on the disk differ from those of the
		 * live copy, or the log may have lost changes that cannot be applied twice. */
		if (b->whole || b->committed || ret == -EEXIST)
			m->whole = true;
		else if (b->sql)
			put_back(m, b->sql);
	}
	free(b->sql);
	free(b);
}

/* --- open and close -------------------------------------------------------------------------- */

static int on_log(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct mirror *m = arg;

	m->log_pages = pages;
	return SQLITE_OK;
}

static bool read_id(sqlite3 *db, char id[ID_LEN + 1])
{
	sqlite3_stmt *st = NULL;
	bool found =
		sqlite3_prepare_v2(db, "SELECT id FROM live_copy", -1, &st, NULL) == SQLITE_OK &&
		sqlite3_step(st) == SQLITE_ROW;

	if (found)
		snprintf(id, ID_LEN + 1, "%s", text_at(st, 0));
	sqlite3_finalize(st);
	return found;
}

static int write_id(sqlite3 *db, const char *id, struct err *e)
{
	return run_with(db, "INSERT OR REPLACE INTO live_copy VALUES (1, %Q)", id, e);
}

/* Opens the live copy without syncing, because it does not survive a power cut anyway. */
static int open_live(sqlite3 **db, const char *path, struct err *e)
{
	int ret = store_open_db(db, path, e);

	if (ret == 0)
		ret = store_exec(*db,
				 "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; "
				 "PRAGMA temp_store=MEMORY",
				 e);
	sqlite3_wal_autocheckpoint(*db, CHECKPOINT_PAGES);
	return ret == 0 ? store_check(*db, e) : ret;
}

/* Opens the live copy that a killed service left. Returns false, with *live NULL, when there is
 * none or it does not belong to this catalogue. */
static bool find_live(sqlite3 *disk, sqlite3 **live, const char *path)
{
	char id[ID_LEN + 1], ours[ID_LEN + 1];
	struct err e = {0};

	if (access(path, F_OK) < 0)
		return false;
	int ret = open_live(live, path, &e);
	if (ret == 0 && read_id(*live, id) && read_id(disk, ours) && !strcmp(id, ours))
		return true;
	log_warn("%s is not the live copy of this catalogue and is removed: %s", path,
		 ret < 0 ? e.text : "it belongs to another catalogue");
	sqlite3_close(*live);
	*live = NULL;
	return false;
}

static int make_live(const struct store *s, sqlite3 **live, const char *path, struct err *e)
{
	char id[ID_LEN + 1];

	store_remove(path);
	random_id(id, sizeof(id), "");
	/* Space is reserved, as journals may fill the tmpfs. */
	if (open_live(live, path, e) < 0 || begin_copy(*live, s->path, e) < 0 ||
	    end_copy(*live, e) < 0 || store_reserve(*live, e) < 0 || write_id(*live, id, e) < 0)
		return e->code;
	/* The id in the file comes last: from then on the live copy is the newer database. */
	return write_id(s->db, id, e);
}

int store_mirror_open(struct store *s, const char *path, struct err *e)
{
	struct mirror *m = must_alloc(sizeof(*m));
	sqlite3 *live = NULL;
	int ret = 0;

	m->path = must_copy(path);
	m->whole = find_live(s->db, &live, path);
	if (!m->whole)
		ret = make_live(s, &live, path, e);
	if (ret < 0) {
		sqlite3_close(live);
		store_remove(path);
		free(m->path);
		free(m);
		return ret;
	}
	m->disk = s->db;
	sqlite3_wal_autocheckpoint(m->disk, 0);
	sqlite3_wal_hook(m->disk, on_log, m);
	s->db = live;
	s->mirror = m;
	return 0;
}

/* Writes all recorded changes; returns whether the disk has them all. */
static bool flush(struct store *s)
{
	struct err e = {0};
	int ret = 0;

	for (int tries = 0; store_is_behind(s) && tries < 2; tries++) {
		struct store_batch *b = store_take(s);

		if (!b)
			return false;
		ret = store_write(s, b, true, &e);
		store_written(s, b, ret);
	}
	if (ret < 0)
		log_error("the catalogue on the disk is behind; %s has the missing changes: %s",
			  s->mirror->path, e.text);
	return ret == 0 && !store_is_behind(s);
}

void store_mirror_close(struct store *s)
{
	struct mirror *m = s->mirror;
	bool whole = flush(s);

	store_finalize(s->db);
	sqlite3_close(s->db);
	if (whole)
		store_remove(m->path);
	s->db = m->disk;
	s->mirror = NULL;
	forget_noted(m);
	free(m->path);
	free(m);
}
