// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/version.h"
#include "orchestrator/store/schema.h"
#include "orchestrator/store/store-internal.h"

#define APPLICATION_ID	 0x52414d54 /* "RAMT" */
#define CHECKPOINT_PAGES 128
#define RESERVE_BYTES	 (2u << 20)
#define RESERVE_SPARE	 (32u << 10) /* for the pages that list the free pages */
#define BUSY_MS		 2000

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
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return EBADMSG;
	case SQLITE_CONSTRAINT:
		return EEXIST;
	}
	return EIO;
}

int store_db_error(sqlite3 *db, int rc, struct err *e)
{
	/* SQLite's own text has no reason. */
	if (db && (rc & 0xff) == SQLITE_CANTOPEN && sqlite3_system_errno(db))
		return err_say(e, errno_of(rc), "unable to open database file: %s",
			       strerror(sqlite3_system_errno(db)));
	return err_say(e, errno_of(rc), "%s", db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

/* --- schema --------------------------------------------------------------------------------- */

int store_exec(sqlite3 *db, const char *sql, struct err *e)
{
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : store_db_error(db, rc, e);
}

int store_commit(sqlite3 *db, int ret, struct err *e)
{
	if (ret == 0)
		ret = store_exec(db, "COMMIT", e);
	if (ret < 0)
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return ret;
}

static int read_number(sqlite3 *db, const char *sql, int64_t *out, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		*out = sqlite3_column_int64(st, 0);
	int ret = rc == SQLITE_ROW ? 0 : store_db_error(db, rc, e);
	sqlite3_finalize(st);
	return ret;
}

/* Checks that the database is a catalogue, or empty (version 0), of a version that can be read. */
static int read_version(sqlite3 *db, const struct schema *schema, int64_t *version, struct err *e)
{
	int64_t app = 0, objects = 0;

	if (read_number(db, "PRAGMA application_id", &app, e) < 0 ||
	    read_number(db, "PRAGMA user_version", version, e) < 0 ||
	    read_number(db, "SELECT count(*) FROM sqlite_master", &objects, e) < 0)
		return e->code;
	if (!app && !*version && !objects)
		return 0;
	if (app != APPLICATION_ID)
		return err_say(e, EINVAL, "it is a database of another program");
	return version_check("its schema", (uint32_t)*version, (uint32_t)schema->first,
			     (uint32_t)schema->newest, e);
}

static int migrate(sqlite3 *db, const struct schema *schema, int64_t from, struct err *e)
{
	char number[64];

	for (int64_t step = from; step <= schema->newest; step++) {
		int ret = store_exec(db, schema->steps[step - schema->first], e);

		if (ret < 0)
			return ret;
	}
	snprintf(number, sizeof(number), "PRAGMA application_id=%d; PRAGMA user_version=%d;",
		 APPLICATION_ID, (int)schema->newest);
	return store_exec(db, number, e);
}

int store_check_schema(sqlite3 *db, const struct schema *schema, struct err *e)
{
	int64_t version = 0;
	int ret = read_version(db, schema, &version, e);

	if (ret == 0 && !version)
		return migrate(db, schema, schema->first, e);
	return ret || version == schema->newest ? ret : migrate(db, schema, version + 1, e);
}

/* Checks that every page is readable and in its place, which takes about as long as reading the
 * rows. */
static int check_whole(sqlite3 *db, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL), ret = 0;

	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc != SQLITE_ROW)
		ret = store_db_error(db, rc, e);
	const char *said = rc == SQLITE_ROW ? text_at(st, 0) : "ok";
	const char *line = strchr(said, '\n'); /* the first line is only the database's name */
	if (strcmp(said, "ok") != 0)
		ret = err_say(e, EBADMSG, "%s", line ? line + 1 : said);
	sqlite3_finalize(st);
	return ret;
}

/* Creates or upgrades the tables in one transaction, which a kill cannot leave half done. */
static int prepare_schema(sqlite3 *db, struct err *e)
{
	int ret = store_exec(db, "BEGIN IMMEDIATE", e);

	return ret < 0 ? ret : store_commit(db, store_check_schema(db, &catalogue_schema, e), e);
}

/* --- open ----------------------------------------------------------------------------------- */

/*
 * Keeps the index of the write-ahead log in this process's memory. As a file, it would be created
 * at each start, which fails on a full disk. The price is that no other process can open the
 * catalogue. The log itself is kept on close, because the next start needs its blocks.
 */
int store_open_db(sqlite3 **db, const char *path, struct err *e)
{
	int keep_log = 1;
	int rc = sqlite3_open_v2(path, db,
				 SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
				 "unix-excl");

	if (rc != SQLITE_OK)
		return store_db_error(*db, rc, e);
	sqlite3_busy_timeout(*db, BUSY_MS);
	sqlite3_file_control(*db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep_log);
	return 0;
}

/*
 * Allocates the blocks on the disk before the database gets its free pages. A change that fits in
 * the log but not in the database cannot be checkpointed, and blocks all changes after it.
 */
static int lengthen(sqlite3 *db, struct err *e)
{
	static const char used[] = "SELECT (page_count - freelist_count) * page_size FROM "
				   "pragma_page_count, pragma_freelist_count, pragma_page_size";
	int64_t bytes = 0;
	int chunk = 4096; /* without a chunk size, SQLite ignores the hint */
	int ret = read_number(db, used, &bytes, e);

	if (ret < 0)
		return ret;
	bytes += RESERVE_BYTES + RESERVE_SPARE;
	sqlite3_file_control(db, "main", SQLITE_FCNTL_CHUNK_SIZE, &chunk);
	int rc = sqlite3_file_control(db, "main", SQLITE_FCNTL_SIZE_HINT, &bytes);
	return rc == SQLITE_OK ? 0 : store_db_error(NULL, rc, e);
}

/*
 * Allocates space for both files in advance, so that rows can still be written when the disk is
 * full: SQLite overwrites a log that was checkpointed, and uses the database's free pages first. On
 * a disk that is full already, the space from the previous start remains.
 */
int store_reserve(sqlite3 *db, struct err *e)
{
	char sql[160];
	int ret = store_exec(db, "PRAGMA wal_checkpoint", e);

	if (ret == 0)
		ret = lengthen(db, e);
	if (ret < 0)
		return ret;
	snprintf(sql, sizeof(sql),
		 "BEGIN; CREATE TABLE room (x); INSERT INTO room VALUES (zeroblob(%u)); "
		 "DROP TABLE room; COMMIT; PRAGMA wal_checkpoint;",
		 RESERVE_BYTES);
	ret = store_exec(db, sql, e);
	if (ret < 0)
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return ret;
}

int store_check(sqlite3 *db, struct err *e)
{
	int ret = check_whole(db, e);

	return ret == 0 ? prepare_schema(db, e) : ret;
}

static int set_up(sqlite3 *db, struct err *e)
{
	int ret = store_exec(db,
			     "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
			     "PRAGMA temp_store=MEMORY;",
			     e);

	sqlite3_wal_autocheckpoint(db, 0);
	if (ret == 0)
		ret = store_check(db, e);
	if (ret == 0)
		ret = store_reserve(db, e);
	else
		return ret;
	if (ret == -EBADMSG)
		return ret;
	if (ret < 0)
		log_warn("cannot reserve disk space for the catalogue; is the disk full? %s",
			 e->text);
	sqlite3_wal_autocheckpoint(db, CHECKPOINT_PAGES);
	return 0;
}

/* Opens the live copy; without space for it, the loop's thread works on the disk. */
static void open_live(struct store *s, const char *live)
{
	struct err e;

	if (live && store_mirror_open(s, live, &e) < 0)
		log_warn(
			"cannot make a live copy of the catalogue, so a disk that hangs will block "
			"the service: %s",
			e.text);
}

/* Prepares all statements, for as long as the store is open. */
static int prepare(struct store *s, struct err *e)
{
	static const struct store_sql *const tables[] = {store_sandbox_sql, store_key_sql,
							 store_space_sql,   store_tree_sql,
							 store_answer_sql,  store_event_sql};
	int rc = SQLITE_OK;

	for (size_t t = 0; t < ARRAY_LEN(tables); t++)
		for (const struct store_sql *sql = tables[t]; sql->text && rc == SQLITE_OK; sql++)
			rc = sqlite3_prepare_v3(s->db, sql->text, -1, SQLITE_PREPARE_PERSISTENT,
						&s->statements[sql->statement], NULL);
	return rc == SQLITE_OK ? store_events_open(s, e) : store_db_error(s->db, rc, e);
}

/* Keeps only the first line of the error, since the error of the check may have many. */
static void say_damaged(struct err *e)
{
	char reason[ERR_TEXT_MAX];

	snprintf(reason, sizeof(reason), "%.*s", (int)strcspn(e->text, "\n"), e->text);
	err_say(e, EBADMSG,
		"it is damaged (%.70s); nothing was changed: restore a backup, as described in "
		"docs/recovery.md",
		reason);
}

int store_open_live(struct store **out, const char *path, const char *live, struct err *e)
{
	struct store *s = must_alloc(sizeof(*s));
	mode_t before = umask(0077); /* the catalogue names tenants */

	s->path = must_copy(path);
	int ret = store_open_db(&s->db, path, e);
	if (ret == 0)
		ret = set_up(s->db, e);
	if (ret == 0)
		open_live(s, live);
	if (ret == 0)
		ret = prepare(s, e);
	umask(before);
	if (ret == -EBUSY)
		err_say(e, EBUSY, "another process has it open");
	if (ret == -EBADMSG)
		say_damaged(e);
	if (ret < 0) {
		store_close(s);
		err_context(e, "catalogue %s", path);
		return ret;
	}
	*out = s;
	return 0;
}

int store_open(struct store **out, const char *path, struct err *e)
{
	return store_open_live(out, path, NULL, e);
}

int store_fold(const char *path, const char *live, struct err *e)
{
	struct store *s;

	if (access(live, F_OK) < 0)
		return 0;
	int ret = store_open_live(&s, path, live, e);
	if (ret < 0)
		return ret;
	store_close(s);
	return access(live, F_OK) < 0
		       ? 0
		       : err_say(e, EIO, "cannot write the changes in %s to %s", live, path);
}

/* --- look ----------------------------------------------------------------------------------- */

/* Returns whether the catalogue has a log, or may have one. */
static bool has_log(const char *path)
{
	char log[PATH_MAX + sizeof("-wal")];

	snprintf(log, sizeof(log), "%s-wal", path);
	return access(log, F_OK) == 0 || errno != ENOENT;
}

/* Returns the URI by which SQLite opens a database as one that nobody changes, without a log. The
 * caller frees it. */
static char *immutable_uri(const char *path)
{
	char *uri = must_alloc(strlen("file://?immutable=1") + 3 * strlen(path) + 1);
	char *end = stpcpy(uri, *path == '/' ? "file://" : "file:");

	for (; *path; path++)
		end += sprintf(end, strchr("%?#", *path) ? "%%%02X" : "%c", *path);
	strcpy(end, "?immutable=1");
	return uri;
}

/* Opens the catalogue, which another process may have open, to read it. Takes no lock and writes
 * nothing, not even when the catalogue is closed. As in store_open_db, the index of the log is in
 * memory. If the log is missing, immutable=1 keeps SQLite from making one. */
static int open_to_look(sqlite3 **db, const char *path, struct err *e)
{
	char *uri = has_log(path) ? NULL : immutable_uri(path);
	const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | (uri ? SQLITE_OPEN_URI : 0);
	int rc = sqlite3_open_v2(uri ? uri : path, db, flags, "unix-none");

	free(uri);
	if (rc != SQLITE_OK)
		return store_db_error(*db, rc, e);
	sqlite3_db_config(*db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	return store_exec(*db, "PRAGMA locking_mode=EXCLUSIVE", e);
}

static int look(sqlite3 *db, bool whole, bool *any_key, struct err *e)
{
	int64_t version = 0, keys = 0;
	int ret = whole ? check_whole(db, e) : 0;

	if (ret == 0)
		ret = read_version(db, &catalogue_schema, &version, e);
	if (ret == 0 && version)
		ret = read_number(db, "SELECT EXISTS (SELECT 1 FROM keys)", &keys, e);
	*any_key = keys != 0;
	return ret;
}

int store_look(const char *path, bool whole, bool *any_key, struct err *e)
{
	sqlite3 *db = NULL;

	*any_key = false;
	scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_set(e, errno, "open the catalogue %s", path);
	int ret = open_to_look(&db, path, e);
	if (ret == 0)
		ret = look(db, whole, any_key, e);
	sqlite3_close(db);
	if (ret == -EBADMSG)
		say_damaged(e);
	return ret < 0 ? err_context(e, "catalogue %s", path) : 0;
}

int store_wait_for_disk(struct store *s, struct err *e)
{
	return store_exec(s->db, "PRAGMA synchronous=FULL", e);
}

void store_finalize(sqlite3 *db)
{
	for (sqlite3_stmt *st; (st = sqlite3_next_stmt(db, NULL));)
		sqlite3_finalize(st);
}

void store_close(struct store *s)
{
	if (!s)
		return;
	if (s->mirror)
		store_mirror_close(s);
	store_events_end(s, false);
	free(s->events.waiting);
	store_finalize(s->db);
	sqlite3_close(s->db);
	free(s->path);
	free(s);
}

/* --- statements ------------------------------------------------------------------------------ */

void store_reset(sqlite3_stmt *st)
{
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
}

static int run(struct store *s, sqlite3_stmt *st, struct err *e)
{
	int rc = sqlite3_step(st), ret = 0;

	if (rc != SQLITE_DONE) {
		ret = store_db_error(s->db, rc, e);
		err_context(e, "write the catalogue");
	} else {
		store_mirror_note(s, st);
	}
	store_reset(st);
	return ret;
}

int store_run(struct store *s, enum statement statement, struct err *e)
{
	sqlite3_stmt *st = s->statements[statement];

	if (!s->events.n_waiting || !sqlite3_get_autocommit(s->db))
		return run(s, st, e);
	int ret = store_begin(s, e);
	return store_end(s, ret == 0 ? run(s, st, e) : ret, e);
}

int store_changed(struct store *s, int ret, const char *id, struct err *e)
{
	if (ret < 0 || sqlite3_changes(s->db) == 1)
		return ret;
	return err_say(e, ENOENT, "%s is not in the catalogue", id);
}

int store_next(struct store *s, sqlite3_stmt *st, struct err *e)
{
	int rc = sqlite3_step(st), ret = 0;

	if (rc == SQLITE_ROW)
		return 1;
	if (rc != SQLITE_DONE) {
		ret = store_db_error(s->db, rc, e);
		err_context(e, "read the catalogue");
	}
	store_reset(st);
	return ret;
}

int store_has_row(struct store *s, sqlite3_stmt *st, struct err *e)
{
	int ret = store_next(s, st, e);

	store_reset(st);
	return ret;
}

int store_begin(struct store *s, struct err *e)
{
	return store_exec(s->db, "BEGIN IMMEDIATE", e);
}

int store_end(struct store *s, int ret, struct err *e)
{
	if (ret == 0)
		ret = store_events_add(s, e);
	ret = store_commit(s->db, ret, e);
	store_mirror_keep(s, ret == 0);
	store_events_end(s, ret == 0);
	return ret;
}

void store_bind_values(sqlite3_stmt *st, const struct store_value *values, size_t n)
{
	for (int at = 1; at <= (int)n; at++) {
		const struct store_value *v = &values[at - 1];

		if (v->kind == VALUE_NUMBER)
			sqlite3_bind_int64(st, at, v->number);
		else if (v->kind == VALUE_TEXT)
			sqlite3_bind_text(st, at, v->p ? v->p : "", -1, SQLITE_STATIC);
		else if (v->kind == VALUE_BYTES)
			sqlite3_bind_blob(st, at, v->p ? v->p : "", (int)v->number, SQLITE_STATIC);
		else if (v->score.given)
			sqlite3_bind_double(st, at, v->score.value);
		else
			sqlite3_bind_null(st, at);
	}
}

struct score score_at(sqlite3_stmt *st, int at)
{
	return (struct score){sqlite3_column_type(st, at) != SQLITE_NULL,
			      sqlite3_column_double(st, at)};
}

const char *text_at(sqlite3_stmt *st, int at)
{
	const unsigned char *text = sqlite3_column_text(st, at);

	return text ? (const char *)text : "";
}

uint32_t u32_at(sqlite3_stmt *st, int at)
{
	return (uint32_t)sqlite3_column_int64(st, at);
}
