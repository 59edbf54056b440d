// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/store/store.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "orchestrator/store/schema.h"

#define APPLICATION_ID	 0x52414d54 /* "RAMT" */
#define CHECKPOINT_PAGES 128
#define RESERVE_BYTES	 (2u << 20)
#define BUSY_MS		 2000

enum statement { ADD, END, SEQ, MOVE, ANCESTORS, FORGET, FORGET_ENDED, ALL, NSTATEMENTS };

#define COLUMNS                                                                                    \
	"id, tenant, template, slot, pid, vcpus, ram_mib, rootfs_gb, timeout_s, idle_timeout_s, "  \
	"persistent, egress, created_at_ms, expires_at_ms, seq_reserved, metadata, env, "          \
	"ended_at_ms, ended_code, ended_text, ancestors"

static const char *const statements[NSTATEMENTS] = {
	[ADD] = "INSERT INTO sandboxes (" COLUMNS ") "
		"VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
	[END] = "UPDATE sandboxes SET ended_at_ms = ?2, ended_code = ?3, ended_text = ?4 "
		"WHERE id = ?1",
	[SEQ] = "UPDATE sandboxes SET seq_reserved = ?2 WHERE id = ?1",
	[MOVE] = "UPDATE sandboxes SET slot = ?2, pid = ?3, seq_reserved = ?4 WHERE id = ?1",
	[ANCESTORS] = "UPDATE sandboxes SET ancestors = ?2 WHERE id = ?1",
	[FORGET] = "DELETE FROM sandboxes WHERE id = ?",
	[FORGET_ENDED] = "DELETE FROM sandboxes WHERE ended_at_ms > 0 AND ended_at_ms < ?",
	[ALL] = "SELECT " COLUMNS " FROM sandboxes ORDER BY created_at_ms, id",
};

struct store {
	sqlite3 *db;
	sqlite3_stmt *st[NSTATEMENTS];
	int wal_pages;
};

static int errno_of(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_FULL:
		return ENOSPC;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return EBUSY;
	case SQLITE_NOMEM:
		return ENOMEM;
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
	case SQLITE_READONLY:
		return EACCES;
	}
	return EIO;
}

static int db_error(sqlite3 *db, int rc, struct err *e)
{
	return err_say(e, errno_of(rc), "%s", db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

/* --- schema --------------------------------------------------------------------------------- */

static int exec(sqlite3 *db, const char *sql, struct err *e)
{
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : db_error(db, rc, e);
}

static int read_number(sqlite3 *db, const char *sql, int64_t *out, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		*out = sqlite3_column_int64(st, 0);
	int ret = rc == SQLITE_ROW ? 0 : db_error(db, rc, e);
	sqlite3_finalize(st);
	return ret;
}

static int migrate(sqlite3 *db, int64_t version, struct err *e)
{
	char number[64];

	for (int64_t step = version; step < SCHEMA_VERSION; step++) {
		int ret = exec(db, schema_steps[step], e);

		if (ret < 0)
			return ret;
	}
	snprintf(number, sizeof(number), "PRAGMA application_id=%d; PRAGMA user_version=%d;",
		 APPLICATION_ID, SCHEMA_VERSION);
	return exec(db, number, e);
}

/* In one transaction, so that two services that start at once don't both make the tables. */
static int check_schema(sqlite3 *db, struct err *e)
{
	int64_t app = 0, version = 0, objects = 0;
	int ret = read_number(db, "PRAGMA application_id", &app, e);

	if (ret == 0)
		ret = read_number(db, "PRAGMA user_version", &version, e);
	if (ret == 0)
		ret = read_number(db, "SELECT count(*) FROM sqlite_master", &objects, e);
	if (ret < 0)
		return ret;
	if (app != APPLICATION_ID && (app || version || objects))
		return err_say(e, EINVAL, "it is a database of another program");
	if (version > SCHEMA_VERSION)
		return err_say(e, EINVAL,
			       "it was written by a newer version (schema %lld, this one knows %d)",
			       (long long)version, SCHEMA_VERSION);
	if (version < 0)
		return err_say(e, EINVAL, "its schema version %lld is not ours",
			       (long long)version);
	return version < SCHEMA_VERSION ? migrate(db, version, e) : 0;
}

static int prepare_schema(sqlite3 *db, struct err *e)
{
	int ret = exec(db, "BEGIN IMMEDIATE", e);

	if (ret < 0)
		return ret;
	ret = check_schema(db, e);
	if (ret == 0)
		ret = exec(db, "COMMIT", e);
	if (ret < 0)
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return ret;
}

/* --- open ----------------------------------------------------------------------------------- */

static int on_wal(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct store *s = arg;

	s->wal_pages = pages;
	return SQLITE_OK;
}

static int open_db(sqlite3 **db, const char *path, struct err *e)
{
	int rc = sqlite3_open_v2(
		path, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

	if (rc != SQLITE_OK)
		return db_error(*db, rc, e);
	sqlite3_busy_timeout(*db, BUSY_MS);
	return 0;
}

/*
 * Gives both files room ahead of need, so that rows can still be written when the disk is full:
 * SQLite writes over a log that was written back, and takes the database's free pages first.
 */
static int reserve(sqlite3 *db, struct err *e)
{
	char sql[160];

	snprintf(sql, sizeof(sql),
		 "BEGIN; CREATE TABLE room (x); INSERT INTO room VALUES (zeroblob(%u)); "
		 "DROP TABLE room; COMMIT; PRAGMA wal_checkpoint;",
		 RESERVE_BYTES);
	int ret = exec(db, sql, e);
	if (ret < 0)
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return ret == -ENOSPC ? 0 : ret;
}

static int set_up(struct store *s, struct err *e)
{
	int ret = exec(s->db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;", e);

	if (ret == 0)
		ret = prepare_schema(s->db, e);
	sqlite3_wal_autocheckpoint(s->db, 0);
	if (ret == 0)
		ret = reserve(s->db, e);
	if (ret < 0)
		return ret;
	sqlite3_wal_hook(s->db, on_wal, s);
	for (int i = 0; i < NSTATEMENTS; i++) {
		int rc = sqlite3_prepare_v3(s->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT,
					    &s->st[i], NULL);

		if (rc != SQLITE_OK)
			return db_error(s->db, rc, e);
	}
	return 0;
}

int store_open(struct store **out, const char *path, struct err *e)
{
	struct store *s = calloc(1, sizeof(*s));
	mode_t before = umask(0077); /* it names tenants */

	int ret = s ? open_db(&s->db, path, e) : err_set(e, ENOMEM, "open it");
	if (ret == 0)
		ret = set_up(s, e);
	umask(before);
	if (ret < 0) {
		store_close(s);
		err_context(e, "catalogue %s", path);
		return ret;
	}
	*out = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	for (int i = 0; i < NSTATEMENTS; i++)
		sqlite3_finalize(s->st[i]);
	sqlite3_close(s->db);
	free(s);
}

/* --- rows ----------------------------------------------------------------------------------- */

static int run(struct store *s, enum statement which, struct err *e)
{
	sqlite3_stmt *st = s->st[which];
	int rc = sqlite3_step(st), ret = 0;

	if (rc != SQLITE_DONE) {
		ret = db_error(s->db, rc, e);
		err_context(e, "the catalogue can't be written");
	}
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return ret;
}

static void bind_text(sqlite3_stmt *st, int at, const char *text)
{
	sqlite3_bind_text(st, at, text ? text : "", -1, SQLITE_STATIC);
}

int store_sandbox_add(struct store *s, const struct store_sandbox *row, struct err *e)
{
	sqlite3_stmt *st = s->st[ADD];
	const int64_t numbers[] = {
		row->slot,	     row->pid,		 row->vcpus,
		row->ram_mib,	     row->rootfs_gb,	 row->timeout_s,
		row->idle_timeout_s, row->persistent,	 row->egress,
		row->created_at_ms,  row->expires_at_ms, (int64_t)row->seq_reserved};
	int at = 1;

	bind_text(st, at++, row->id);
	bind_text(st, at++, row->tenant);
	bind_text(st, at++, row->template);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sqlite3_bind_int64(st, at++, numbers[i]);
	bind_text(st, at++, row->metadata);
	sqlite3_bind_blob(st, at++, row->env ? row->env : "", (int)row->env_len, SQLITE_STATIC);
	sqlite3_bind_int64(st, at++, row->ended_at_ms);
	bind_text(st, at++, row->ended_code);
	bind_text(st, at++, row->ended_text);
	bind_text(st, at++, row->ancestors);
	return run(s, ADD, e);
}

/* All of it or nothing. */
static int finish(struct store *s, int ret, struct err *e)
{
	if (ret == 0)
		ret = exec(s->db, "COMMIT", e);
	if (ret < 0)
		sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	return ret;
}

int store_sandboxes_add(struct store *s, const struct store_sandbox *rows, size_t n, struct err *e)
{
	int ret = exec(s->db, "BEGIN IMMEDIATE", e);

	if (ret < 0)
		return ret;
	for (size_t i = 0; i < n && ret == 0; i++)
		ret = store_sandbox_add(s, &rows[i], e);
	return finish(s, ret, e);
}

static int move(struct store *s, const struct store_merge *m, struct err *e)
{
	bind_text(s->st[MOVE], 1, m->parent);
	sqlite3_bind_int64(s->st[MOVE], 2, m->slot);
	sqlite3_bind_int64(s->st[MOVE], 3, m->pid);
	sqlite3_bind_int64(s->st[MOVE], 4, (int64_t)m->seq_reserved);
	int ret = run(s, MOVE, e);
	if (ret == 0 && sqlite3_changes(s->db) != 1)
		return err_say(e, ENOENT, "the catalogue does not know %s", m->parent);
	return ret;
}

int store_sandbox_merge(struct store *s, const struct store_merge *m, struct err *e)
{
	int ret = exec(s->db, "BEGIN IMMEDIATE", e);

	if (ret < 0)
		return ret;
	ret = move(s, m, e);
	if (ret == 0)
		ret = store_sandbox_end(s, m->winner, m->at_ms, m->code, m->text, e);
	for (size_t i = 0; i < m->n_lines && ret == 0; i++) {
		bind_text(s->st[ANCESTORS], 1, m->lines[i].id);
		bind_text(s->st[ANCESTORS], 2, m->lines[i].ancestors);
		ret = run(s, ANCESTORS, e);
	}
	return finish(s, ret, e);
}

int store_sandbox_end(struct store *s, const char *id, int64_t at_ms, const char *code,
		      const char *text, struct err *e)
{
	bind_text(s->st[END], 1, id);
	sqlite3_bind_int64(s->st[END], 2, at_ms);
	bind_text(s->st[END], 3, code);
	bind_text(s->st[END], 4, text);
	return run(s, END, e);
}

int store_sandbox_seq(struct store *s, const char *id, uint64_t seq_reserved, struct err *e)
{
	bind_text(s->st[SEQ], 1, id);
	sqlite3_bind_int64(s->st[SEQ], 2, (int64_t)seq_reserved);
	return run(s, SEQ, e);
}

int store_sandbox_forget(struct store *s, const char *id, struct err *e)
{
	bind_text(s->st[FORGET], 1, id);
	return run(s, FORGET, e);
}

int store_forget_ended(struct store *s, int64_t before_ms, struct err *e)
{
	sqlite3_bind_int64(s->st[FORGET_ENDED], 1, before_ms);
	return run(s, FORGET_ENDED, e);
}

static const char *text_at(sqlite3_stmt *st, int at)
{
	const unsigned char *text = sqlite3_column_text(st, at);

	return text ? (const char *)text : "";
}

static uint32_t u32_at(sqlite3_stmt *st, int at)
{
	return (uint32_t)sqlite3_column_int64(st, at);
}

static struct store_sandbox read_row(sqlite3_stmt *st)
{
	return (struct store_sandbox){
		.id = text_at(st, 0),
		.tenant = text_at(st, 1),
		.template = text_at(st, 2),
		.slot = u32_at(st, 3),
		.pid = u32_at(st, 4),
		.vcpus = u32_at(st, 5),
		.ram_mib = u32_at(st, 6),
		.rootfs_gb = u32_at(st, 7),
		.timeout_s = u32_at(st, 8),
		.idle_timeout_s = u32_at(st, 9),
		.persistent = u32_at(st, 10),
		.egress = u32_at(st, 11),
		.created_at_ms = sqlite3_column_int64(st, 12),
		.expires_at_ms = sqlite3_column_int64(st, 13),
		.seq_reserved = (uint64_t)sqlite3_column_int64(st, 14),
		.metadata = text_at(st, 15),
		.env = sqlite3_column_blob(st, 16),
		.env_len = (size_t)sqlite3_column_bytes(st, 16),
		.ended_at_ms = sqlite3_column_int64(st, 17),
		.ended_code = text_at(st, 18),
		.ended_text = text_at(st, 19),
		.ancestors = text_at(st, 20),
	};
}

int store_sandboxes(struct store *s, void (*each)(void *arg, const struct store_sandbox *row),
		    void *arg, struct err *e)
{
	sqlite3_stmt *st = s->st[ALL];
	int rc, ret = 0;

	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct store_sandbox row = read_row(st);

		each(arg, &row);
	}
	if (rc != SQLITE_DONE) {
		ret = db_error(s->db, rc, e);
		err_context(e, "the catalogue can't be read");
	}
	sqlite3_reset(st);
	return ret;
}

/* --- checkpoint ----------------------------------------------------------------------------- */

bool store_wants_checkpoint(const struct store *s)
{
	return s->wal_pages >= CHECKPOINT_PAGES;
}

int store_checkpoint(const char *path, struct err *e)
{
	sqlite3 *db = NULL;
	int ret = open_db(&db, path, e);

	/* A connection finds the log when it first reads. */
	if (ret == 0)
		ret = exec(db, "SELECT count(*) FROM sqlite_master", e);
	if (ret == 0) {
		int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

		ret = rc == SQLITE_OK ? 0 : db_error(db, rc, e);
	}
	sqlite3_close(db);
	return ret;
}
