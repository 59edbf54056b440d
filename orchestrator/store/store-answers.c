// SPDX-License-Identifier: Apache-2.0
/*
 * The catalogue's table of answers to requests with an Idempotency-Key. A row is added in the
 * transaction that records what the request made, so that both survive a kill or neither does.
 */
#include <string.h>

#include "orchestrator/store/store-internal.h"

#define COLUMNS "key, asks, tenant, answered_at_ms, kind, ids, pause_us, ready_us, copied_bytes"

const struct store_sql store_answer_sql[] = {
	{ANSWER_ADD, "INSERT OR REPLACE INTO answers (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?)"},
	{ANSWER_FIND, "SELECT key FROM answers WHERE key = ?"},
	{ANSWER_FORGET, "DELETE FROM answers WHERE key = ?"},
	{ANSWER_PURGE, "DELETE FROM answers WHERE answered_at_ms < ?"},
	{ANSWER_ALL, "SELECT " COLUMNS " FROM answers ORDER BY answered_at_ms, key"},
	{0},
};

int store_answer_insert(struct store *s, const struct store_answer *row, struct err *e)
{
	return store_do(s, e, ANSWER_ADD, BYTES(row->key, STORE_HASH_LEN),
			BYTES(row->asks, STORE_HASH_LEN), TEXT(row->tenant),
			NUMBER(row->answered_at_ms), NUMBER(row->kind), TEXT(row->ids),
			NUMBER(row->pause_us), NUMBER(row->ready_us), NUMBER(row->copied_bytes));
}

/* Looks first, because even a statement that deletes nothing would be repeated on the disk. */
int store_answer_forget(struct store *s, const uint8_t key[static STORE_HASH_LEN], struct err *e)
{
	store_bind(s->statements[ANSWER_FIND], BYTES(key, STORE_HASH_LEN));
	int found = store_has_row(s, s->statements[ANSWER_FIND], e);
	if (found <= 0)
		return found;
	return store_do(s, e, ANSWER_FORGET, BYTES(key, STORE_HASH_LEN));
}

int store_answers_purge(struct store *s, int64_t before_ms, struct err *e)
{
	return store_do(s, e, ANSWER_PURGE, NUMBER(before_ms));
}

int store_answers(struct store *s, void (*each)(void *arg, const struct store_answer *row),
		  void *arg, struct err *e)
{
	sqlite3_stmt *st = s->statements[ANSWER_ALL];
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
