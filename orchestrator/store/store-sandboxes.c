// SPDX-License-Identifier: Apache-2.0
/* The catalogue's table of sandboxes. */
#include <stdio.h>
#include <string.h>

#include "orchestrator/store/store-internal.h"

#define COLUMNS                                                                                    \
	"id, tenant, template, slot, pid, vcpus, ram_mib, rootfs_gb, timeout_s, idle_timeout_s, "  \
	"persistent, egress, created_at_ms, expires_at_ms, seq_reserved, metadata, env, "          \
	"ended_at_ms, ended_code, ended_text, ancestors, instance, ports, root, depth, score, "    \
	"labels, checkpoint_calls, checkpoint, given_seq, given_state"

const struct store_sql store_sandbox_sql[] = {
	{SANDBOX_ADD, "INSERT INTO sandboxes (" COLUMNS ") "
		      "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
	{SANDBOX_END, "UPDATE sandboxes SET ended_at_ms = ?2, ended_code = ?3, ended_text = ?4, "
		      "metadata = '', env = x'', ports = '', labels = '{}', checkpoint = '' "
		      "WHERE id = ?1"},
	{SANDBOX_CHANGE, "UPDATE sandboxes SET timeout_s = ?2, idle_timeout_s = ?3, "
			 "persistent = ?4, egress = ?5, expires_at_ms = ?6, metadata = ?7, "
			 "score = ?8, labels = ?9, checkpoint_calls = ?10 "
			 "WHERE id = ?1"},
	{SANDBOX_PORTS, "UPDATE sandboxes SET ports = ?2 WHERE id = ?1"},
	{SANDBOX_SEQ, "UPDATE sandboxes SET seq_reserved = ?2 WHERE id = ?1"},
	{SANDBOX_MOVE, "UPDATE sandboxes SET slot = ?2, pid = ?3, seq_reserved = ?4, "
		       "instance = ?5, egress = ?6, checkpoint = ?7 WHERE id = ?1"},
	{SANDBOX_ANCESTORS, "UPDATE sandboxes SET ancestors = ?2 WHERE id = ?1"},
	{SANDBOX_CHECKPOINT, "UPDATE sandboxes SET checkpoint = ?2 WHERE id = ?1"},
	{SANDBOX_GIVEN, "UPDATE sandboxes SET given_seq = ?2, given_state = ?3 WHERE id = ?1"},
	{SANDBOX_LOSES_CHECKPOINT, "UPDATE sandboxes SET checkpoint = (SELECT parent FROM "
				   "checkpoints WHERE id = ?1) WHERE checkpoint = ?1"},
	{SANDBOX_FORGET, "DELETE FROM sandboxes WHERE id = ?"},
	{SANDBOX_LIVING, "SELECT " COLUMNS " FROM sandboxes WHERE ended_at_ms = 0 "
			 "ORDER BY created_at_ms, id"},
	{SANDBOX_ENDED, "SELECT " COLUMNS " FROM (SELECT * FROM sandboxes "
			"WHERE ended_at_ms > ?1 ORDER BY ended_at_ms DESC LIMIT ?2) "
			"ORDER BY ended_at_ms"},
	{SANDBOX_PURGE, "DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes "
			"WHERE ended_at_ms > 0 AND ended_at_ms < ?1 "
			"ORDER BY ended_at_ms, id LIMIT ?2)"},
	{0},
};

int store_sandbox_insert(struct store *s, const struct store_sandbox *row, struct err *e)
{
	const struct sandbox_config *config = &row->config;
	int ret = store_do(s, e, SANDBOX_ADD, TEXT(row->id), TEXT(row->tenant),
			   TEXT(config->template), NUMBER(row->slot), NUMBER(row->pid),
			   NUMBER(config->size.vcpus), NUMBER(config->size.ram_mib),
			   NUMBER(config->size.rootfs_gb), NUMBER(config->timeout_s),
			   NUMBER(config->idle_timeout_s), NUMBER(config->persistent),
			   NUMBER(config->egress), NUMBER(row->created_at_ms),
			   NUMBER(row->expires_at_ms), NUMBER(row->seq_reserved),
			   TEXT(row->metadata), BYTES(row->env, row->env_len),
			   NUMBER(row->ended_at_ms), TEXT(row->ended_code), TEXT(row->ended_text),
			   TEXT(row->ancestors), BYTES(row->instance, sizeof(row->instance)),
			   TEXT(row->ports), TEXT(row->root), NUMBER(row->depth), SCORE(row->score),
			   TEXT(row->labels ? row->labels : "{}"), NUMBER(config->checkpoint_calls),
			   TEXT(row->checkpoint), NUMBER(row->given_seq), NUMBER(row->given_state));

	if (ret == 0 && row->tree)
		ret = store_tree_set(s, row->tree, e);
	return ret == 0 && row->answer ? store_answer_insert(s, row->answer, e) : ret;
}

int store_sandbox_add(struct store *s, const struct store_sandbox *row, struct err *e)
{
	if (!row->answer && !row->tree)
		return store_sandbox_insert(s, row, e);
	return store_sandboxes_add(s, row, 1, e);
}

int store_sandboxes_add(struct store *s, const struct store_sandbox *rows, size_t n, struct err *e)
{
	int ret = store_begin(s, e);

	for (size_t i = 0; i < n && ret == 0; i++)
		ret = store_sandbox_insert(s, &rows[i], e);
	return store_end(s, ret, e);
}

static int move(struct store *s, const struct store_merge *m, struct err *e)
{
	int ret = store_do(s, e, SANDBOX_MOVE, TEXT(m->parent), NUMBER(m->slot), NUMBER(m->pid),
			   NUMBER(m->seq_reserved), BYTES(m->instance, STORE_INSTANCE_LEN),
			   NUMBER(m->egress), TEXT(m->checkpoint));

	return store_changed(s, ret, m->parent, e);
}

int store_sandbox_merge(struct store *s, const struct store_merge *m, struct err *e)
{
	int ret = store_begin(s, e);

	/* The winner ends first, because a slot can have only one living sandbox. */
	if (ret == 0 && m->winner)
		ret = store_sandbox_end(s, m->winner, m->at_ms, m->code, m->text, e);
	if (ret == 0)
		ret = move(s, m, e);
	for (size_t i = 0; i < m->n_lines && ret == 0; i++)
		ret = store_do(s, e, SANDBOX_ANCESTORS, TEXT(m->lines[i].id),
			       TEXT(m->lines[i].ancestors));
	return store_end(s, ret, e);
}

int store_sandbox_end(struct store *s, const char *id, int64_t at_ms, const char *code,
		      const char *text, struct err *e)
{
	return store_do(s, e, SANDBOX_END, TEXT(id), NUMBER(at_ms), TEXT(code), TEXT(text));
}

int store_sandbox_change(struct store *s, const struct store_sandbox *row, struct err *e)
{
	return store_do(s, e, SANDBOX_CHANGE, TEXT(row->id), NUMBER(row->config.timeout_s),
			NUMBER(row->config.idle_timeout_s), NUMBER(row->config.persistent),
			NUMBER(row->config.egress), NUMBER(row->expires_at_ms), TEXT(row->metadata),
			SCORE(row->score), TEXT(row->labels), NUMBER(row->config.checkpoint_calls));
}

int store_sandbox_ports(struct store *s, const char *id, const char *ports, struct err *e)
{
	return store_do(s, e, SANDBOX_PORTS, TEXT(id), TEXT(ports));
}

int store_sandbox_seq(struct store *s, const char *id, uint64_t seq_reserved, struct err *e)
{
	return store_do(s, e, SANDBOX_SEQ, TEXT(id), NUMBER(seq_reserved));
}

int store_sandbox_given(struct store *s, const char *id, uint64_t seq, uint64_t state,
			struct err *e)
{
	return store_do(s, e, SANDBOX_GIVEN, TEXT(id), NUMBER(seq), NUMBER(state));
}

int store_sandbox_forget(struct store *s, const char *id, struct err *e)
{
	return store_do(s, e, SANDBOX_FORGET, TEXT(id));
}

int store_purge_ended(struct store *s, int64_t before_ms, unsigned most, struct err *e)
{
	int ret = store_do(s, e, SANDBOX_PURGE, NUMBER(before_ms), NUMBER(most));

	return ret < 0 ? ret : sqlite3_changes(s->db);
}

static struct store_sandbox read_row(sqlite3_stmt *st)
{
	struct store_sandbox row = {
		.id = text_at(st, 0),
		.tenant = text_at(st, 1),
		.slot = u32_at(st, 3),
		.pid = u32_at(st, 4),
		.config = {.size = {u32_at(st, 5), u32_at(st, 6), u32_at(st, 7)},
			   .timeout_s = u32_at(st, 8),
			   .idle_timeout_s = u32_at(st, 9),
			   .persistent = u32_at(st, 10),
			   .egress = u32_at(st, 11),
			   .checkpoint_calls = u32_at(st, 27)},
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
		.ports = text_at(st, 22),
		.root = text_at(st, 23),
		.depth = u32_at(st, 24),
		.score = score_at(st, 25),
		.labels = text_at(st, 26),
		.checkpoint = text_at(st, 28),
		.given_seq = (uint64_t)sqlite3_column_int64(st, 29),
		.given_state = (uint64_t)sqlite3_column_int64(st, 30),
	};
	snprintf(row.config.template, sizeof(row.config.template), "%s", text_at(st, 2));
	if (sqlite3_column_bytes(st, 21) == sizeof(row.instance))
		memcpy(row.instance, sqlite3_column_blob(st, 21), sizeof(row.instance));
	return row;
}

static int read_rows(struct store *s, sqlite3_stmt *st, store_sandbox_fn *each, void *arg,
		     struct err *e)
{
	int ret;

	while ((ret = store_next(s, st, e)) > 0) {
		struct store_sandbox row = read_row(st);

		each(arg, &row);
	}
	return ret;
}

int store_sandboxes(struct store *s, store_sandbox_fn *each, void *arg, struct err *e)
{
	return read_rows(s, s->statements[SANDBOX_LIVING], each, arg, e);
}

int store_sandboxes_ended(struct store *s, int64_t after_ms, unsigned most, store_sandbox_fn *each,
			  void *arg, struct err *e)
{
	store_bind(s->statements[SANDBOX_ENDED], NUMBER(after_ms), NUMBER(most));
	return read_rows(s, s->statements[SANDBOX_ENDED], each, arg, e);
}
