// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room: each table has one of its own. */
#ifndef RAMET_ORCHESTRATOR_STORE_INTERNAL_H
#define RAMET_ORCHESTRATOR_STORE_INTERNAL_H

#include <sqlite3.h>

#include "orchestrator/store/store.h"

enum sandbox_statement {
	SANDBOX_ADD,
	SANDBOX_END,
	SANDBOX_SEQ,
	SANDBOX_MOVE,
	SANDBOX_ANCESTORS,
	SANDBOX_FORGET,
	SANDBOX_LIVING,
	SANDBOX_ENDED,
	SANDBOX_PURGE,
	SANDBOX_STATEMENTS,
};

enum key_statement {
	KEY_ADD,
	KEY_REVOKE,
	KEY_ALL,
	KEY_STATEMENTS,
};

enum space_statement {
	SPACE_ADD,
	SPACE_FORGET,
	SPACE_ALL,
	GONE_ADD,
	GONE_FORGET,
	GONE_FIND,
	GONE_ALL,
	SPACE_STATEMENTS,
};

struct mirror;

struct store {
	sqlite3 *db;	       /* the live copy, or the file itself without one */
	struct mirror *mirror; /* NULL: there is no live copy */
	char *path;
	sqlite3_stmt *sandboxes[SANDBOX_STATEMENTS];
	sqlite3_stmt *keys[KEY_STATEMENTS];
	sqlite3_stmt *spaces[SPACE_STATEMENTS];
};

int store_db_error(sqlite3 *db, int rc, struct err *e);
/* A connection to the catalogue; to be closed on failure, too. */
int store_open_db(sqlite3 **db, const char *path, struct err *e);
/* Returns 0 when the database is whole, and ours with today's tables. */
int store_check(sqlite3 *db, struct err *e);
/* Takes room ahead of need. */
int store_reserve(sqlite3 *db, struct err *e);
void store_finalize(sqlite3 *db);
/* Runs statements that answer nothing that is wanted. */
int store_exec(sqlite3 *db, const char *sql, struct err *e);
/* Statements for as long as the store is open: out[i] is that of sql[i]. */
int store_prepare(struct store *s, const char *const *sql, int n, sqlite3_stmt **out,
		  struct err *e);
/* Runs a bound statement that answers nothing, and makes it ready for its next use. */
int store_run(struct store *s, sqlite3_stmt *st, struct err *e);
/* Calls `each` for every row of a bound statement, which is then as new. */
int store_rows(struct store *s, sqlite3_stmt *st, void (*each)(void *arg, sqlite3_stmt *row),
	       void *arg, struct err *e);

/* Several changes, all of them or none: begin, the changes while they return 0, end with what the
 * last one returned. */
int store_begin(struct store *s, struct err *e);
int store_end(struct store *s, int ret, struct err *e);

/* The live copy; store-mirror.c. */
/* From here on s->db is the live copy at `path`, and the database that it was follows. */
int store_mirror_open(struct store *s, const char *path, struct err *e);
/* The reverse; the live copy stays when the disk could not take all of it. */
void store_mirror_close(struct store *s);
/* A bound statement has changed the database. */
void store_mirror_note(struct store *s, sqlite3_stmt *st);
/* The transaction is over, and its statements count, or not. */
void store_mirror_keep(struct store *s, bool committed);

/* NULL is the empty text. It must stay until the statement was run. */
void bind_text(sqlite3_stmt *st, int at, const char *text);
/* Never NULL; good until the next row. */
const char *text_at(sqlite3_stmt *st, int at);
uint32_t u32_at(sqlite3_stmt *st, int at);

/* Of each table, when the store is opened. */
int store_sandboxes_prepare(struct store *s, struct err *e);
int store_keys_prepare(struct store *s, struct err *e);
int store_spaces_prepare(struct store *s, struct err *e);

#endif
