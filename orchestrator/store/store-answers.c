// SPDX-License-Identifier: Apache-2.0
/*
 * The catalogue's table of answers to requests with an Idempotency-Key. A row is added in the
 * transaction that records what the request made, so that both survive a kill or neither does.
 */
#include <string.h>

#include "orchestrator/store/store-internal.h"

#define COLUMNS "key, asks, tenant, answered_at_ms, kind, ids, pause_us, ready_us, copied_bytes"

const char *const store_answer_sql[ANSWER_STATEMENTS] = {
	[ANSWER_ADD] = "INSERT OR REPLACE INTO answers (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?)",
	[ANSWER_FIND] = "SELECT key FROM answers WHERE key = ?",
	[ANSWER_FORGET] = "DELETE FROM answers WHERE key = ?",
	[ANSWER_PURGE] = "DELETE FROM answers WHERE answered_at_ms < ?",
	[ANSWER_ALL] = "SELECT " COLUMNS " FROM answers ORDER BY answered_at_ms, key",
};

static void bind_hash(sqlite3_stmt *st, int at, const uint8_t *hash)
{
	sqlite3_bind_blob(st, at, hash, STORE_HASH_LEN, SQLITE_STATIC);
}

int store_answer_insert(struct store *s, const struct store_answer *row, struct err *e)
{
	sqlite3_stmt *st = s->answers[ANSWER_ADD];

	bind_hash(st, 1, row->key);
	bind_hash(st, 2, row->asks);
	bind_text(st, 3, row->tenant);
	sqlite3_bind_int64(st, 4, row->answered_at_ms);
	sqlite3_bind_int64(st, 5, row->kind);
	bind_text(st, 6, row->ids);
	sqlite3_bind_int64(st, 7, (int64_t)row->pause_us);
	sqlite3_bind_int64(st, 8, (int64_t)row->ready_us);
	sqlite3_bind_int64(st, 9, (int64_t)row->copied_bytes);
	return store_run(s, st, e);
}

/* Looks first, because even a statement that deletes nothing would be repeated on the disk. */
int store_answer_forget(struct store *s, const uint8_t key[static STORE_HASH_LEN], struct err *e)
{
	bind_hash(s->answers[ANSWER_FIND], 1, key);
	int found = store_has_row(s, s->answers[ANSWER_FIND], e);
	if (found <= 0)
		return found;
	bind_hash(s->answers[ANSWER_FORGET], 1, key);
	return store_run(s, s->answers[ANSWER_FORGET], e);
}

int store_answers_purge(struct store *s, int64_t before_ms, struct err *e)
{
	sqlite3_bind_int64(s->answers[ANSWER_PURGE], 1, before_ms);
	return store_run(s, s->answers[ANSWER_PURGE], e);
}

int store_answers(struct store *s, void (*each)(void *arg, const struct store_answer *row),
		  void *arg, struct err *e)
{
	sqlite3_stmt *st = s->answers[ANSWER_ALL];
	int ret;

	while ((ret = store_next(s, st, e)) > 0) {
		const struct store_answer row = {
			.key = sqlite3_column_blob(st, 0),
			.asks = sqlite3_column_blob(st, 1),
			.tenant = text_at(st, 2),
			.answered_at_ms = sqlite3_column_int64(st, 3),
			.kind = u32_at(st, 4),
			.ids = text_at(st, 5),
			.pause_us = (uint64_t)sqlite3_column_int64(st, 6),
			.ready_us = (uint64_t)sqlite3_column_int64(st, 7),
			.copied_bytes = (uint64_t)sqlite3_column_int64(st, 8),
		};

		if (sqlite3_column_bytes(st, 0) == STORE_HASH_LEN &&
		    sqlite3_column_bytes(st, 1) == STORE_HASH_LEN)
			each(arg, &row);
	}
	return ret;
}
