// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room, one for each table. */
#ifndef RAMET_ORCHESTRATOR_STORE_INTERNAL_H
#define RAMET_ORCHESTRATOR_STORE_INTERNAL_H

#include <sqlite3.h>

#include "orchestrator/store/store.h"

/* The statements of one table follow each other. */
enum statement {
	SANDBOX_ADD,
	SANDBOX_END,
	SANDBOX_CHANGE,
	SANDBOX_PORTS,
	SANDBOX_SEQ,
	SANDBOX_MOVE,
	SANDBOX_ANCESTORS,
	SANDBOX_CHECKPOINT,
	SANDBOX_GIVEN,
	SANDBOX_LOSES_CHECKPOINT,
	SANDBOX_FORGET,
	SANDBOX_LIVING,
	SANDBOX_ENDED,
	SANDBOX_PURGE,
	TREE_ADD,
	TREE_SPENT,
	TREE_FORGET,
	TREE_PURGE,
	TREE_ALL,
	KEY_ADD,
	KEY_REVOKE,
	KEY_SET_TIER,
	KEY_ALL,
	SPACE_ADD,
	SPACE_FORGET,
	SPACE_ALL,
	GONE_ADD,
	GONE_FORGET,
	GONE_FIND,
	GONE_ALL,
	CHECKPOINT_ADD,
	CHECKPOINT_CHANGE,
	CHECKPOINT_NODE,
	CHECKPOINT_SHARED,
	CHECKPOINT_FORGET,
	CHECKPOINT_LOSES_PARENT,
	CHECKPOINT_UNSTORED,
	ANSWER_ADD,
	ANSWER_FIND,
	ANSWER_FORGET,
	ANSWER_PURGE,
	ANSWER_ALL,
	EVENT_ADD,
	EVENT_TRIM,
	EVENT_PURGE,
	EVENT_LIST,
	EVENT_LIST_BACK,
	EVENT_LIST_TENANT,
	EVENT_LIST_TENANT_BACK,
	EVENT_LAST,
	EVENT_FROM,
	WEBHOOKS_SET,
	WEBHOOKS_DONE,
	STATEMENTS,
};

struct events {
	struct waiting_event {
		int64_t at_ms; /* not before that of the event before it */
		char *tenant, *line;
	} * waiting; /* for the next change */
	size_t n_waiting;
	uint64_t last; /* number of the last event; 0: none */
	int64_t last_ms;
	uint64_t added; /* since the store was opened */
	uint64_t most;	/* that are kept */
	void (*fn)(void *arg);
	void *arg;
};

struct mirror;

struct store {
	sqlite3 *db;	       /* the live copy, or the file itself if there is none */
	struct mirror *mirror; /* NULL: no live copy */
	char *path;
	sqlite3_stmt *statements[STATEMENTS];
	struct events events;
};

/* The steps that make the tables: steps[i] turns version first + i - 1 into the next one, and
 * steps[0] begins with an empty database. */
struct schema {
	const char *const *steps;
	int64_t first, newest;
};

int store_db_error(sqlite3 *db, int rc, struct err *e);
/* Opens a connection to the catalogue. The caller closes it, also on failure. */
int store_open_db(sqlite3 **db, const char *path, struct err *e);
/* Checks that the database is undamaged and belongs to Ramet, and upgrades an older schema. Returns
 * 0, or -errno with *e filled. */
int store_check(sqlite3 *db, struct err *e);
/* Creates the tables in an empty database, or upgrades those of an older version. Returns 0, or
 * -errno with *e filled, also for a version that no step follows. */
int store_check_schema(sqlite3 *db, const struct schema *schema, struct err *e);
/* Allocates disk space in advance, for writes while the disk is full. */
int store_reserve(sqlite3 *db, struct err *e);
void store_finalize(sqlite3 *db);
/* Runs SQL statements and ignores their rows. */
int store_exec(sqlite3 *db, const char *sql, struct err *e);
/* Passes on `ret`, but fails if the statement that was run did not change the row of `id`. */
int store_changed(struct store *s, int ret, const char *id, struct err *e);
/* Runs a statement that selects the row of a text or hash. Returns 1 if there is one, else 0. */
int store_has_row(struct store *s, sqlite3_stmt *st, struct err *e);
/* Steps to the next row of a bound statement. Returns 1, or resets the statement and returns 0
 * after the last row, or -errno with *e filled. */
int store_next(struct store *s, sqlite3_stmt *st, struct err *e);
/* Resets a statement whose further rows are not wanted. */
void store_reset(sqlite3_stmt *st);

/* Ends a transaction of any connection: commits it, or rolls it back if `ret` is negative or the
 * commit fails. */
int store_commit(sqlite3 *db, int ret, struct err *e);
/* A transaction: call store_begin, then make changes while all of these return 0, then call
 * store_end with the last result, which commits or rolls back. */
int store_begin(struct store *s, struct err *e);
int store_end(struct store *s, int ret, struct err *e);

/* The live copy; store-mirror.c. */
/* Makes the live copy at `path` the database s->db; the former s->db is updated from it. */
int store_mirror_open(struct store *s, const char *path, struct err *e);
/* Undoes store_mirror_open. The live copy is kept if not all of it could be written to the disk. */
void store_mirror_close(struct store *s);
/* Records a bound statement that changed the database. */
void store_mirror_note(struct store *s, sqlite3_stmt *st);
/* Keeps or discards the recorded statements of a transaction that ended. */
void store_mirror_keep(struct store *s, bool committed);

/* A value for a parameter of a statement. Texts and bytes must stay valid until the statement
 * was run; NULL is an empty one. */
struct store_value {
	enum { VALUE_NUMBER, VALUE_TEXT, VALUE_BYTES, VALUE_SCORE } kind;
	int64_t number; /* of bytes: how many */
	const void *p;
	struct score score; /* NULL in the database if none is given */
};
#define NUMBER(n)	((struct store_value){VALUE_NUMBER, .number = (int64_t)(n)})
#define TEXT(text)	((struct store_value){VALUE_TEXT, .p = (text)})
#define BYTES(bytes, n) ((struct store_value){VALUE_BYTES, .p = (bytes), .number = (int64_t)(n)})
#define SCORE(s)	((struct store_value){VALUE_SCORE, .score = (s)})
/* Binds all parameters of a statement, in order. */
#define store_bind(st, ...)                                                                        \
	store_bind_values(st, (const struct store_value[]){__VA_ARGS__},                           \
			  sizeof((struct store_value[]){__VA_ARGS__}) /                            \
				  sizeof(struct store_value))
void store_bind_values(sqlite3_stmt *st, const struct store_value *values, size_t n);
/* Binds all parameters of a statement that returns no rows, and runs it. Outside a transaction,
 * events that wait are added in the one of the statement. */
#define store_do(s, e, statement, ...)                                                             \
	(store_bind((s)->statements[statement], __VA_ARGS__), store_run(s, statement, e))
int store_run(struct store *s, enum statement statement, struct err *e);
/* Returns a column's text, valid until the next row; never NULL. */
const char *text_at(sqlite3_stmt *st, int at);
uint32_t u32_at(sqlite3_stmt *st, int at);
struct score score_at(sqlite3_stmt *st, int at);

/* The statements of each table; the last entry is empty. */
struct store_sql {
	enum statement statement;
	const char *text;
};
extern const struct store_sql store_sandbox_sql[];
extern const struct store_sql store_key_sql[];
extern const struct store_sql store_space_sql[];
extern const struct store_sql store_answer_sql[];
extern const struct store_sql store_tree_sql[];
extern const struct store_sql store_event_sql[];

/* Reads the number of the last event, when the store is opened. */
int store_events_open(struct store *s, struct err *e);
/* Adds the events that wait; inside a transaction. */
int store_events_add(struct store *s, struct err *e);
/* Drops the events that wait, which now are in the catalogue if the transaction was committed. */
void store_events_end(struct store *s, bool committed);

/* Add a row; inside a transaction. The first one also adds row->tree and row->answer. */
int store_sandbox_insert(struct store *s, const struct store_sandbox *row, struct err *e);
int store_answer_insert(struct store *s, const struct store_answer *row, struct err *e);

#endif
