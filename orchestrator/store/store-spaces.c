// SPDX-License-Identifier: Apache-2.0
/* The catalogue's tables of Spaces and checkpoints. */
#include <stdio.h>

#include "orchestrator/store/store-internal.h"

#define COLUMNS                                                                                    \
	"id, tenant, sandbox, template, vcpus, ram_mib, rootfs_gb, timeout_s, idle_timeout_s, "    \
	"egress, created_at_ms, size_bytes, seq_reserved, metadata, env, root, depth, score, "     \
	"labels"
/* `name` is NULL in the row of a Space that is no checkpoint. */
#define CHECKPOINT_COLUMNS                                                                         \
	"name, pin, expires_at_ms, kind, call_seq, parent, ancestors, shared_bytes"

const struct store_sql store_space_sql[] = {
	{SPACE_ADD, "INSERT INTO spaces (" COLUMNS ") "
		    "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"},
	{SPACE_FORGET, "DELETE FROM spaces WHERE id = ?"},
	{SPACE_ALL, "SELECT " COLUMNS ", " CHECKPOINT_COLUMNS
		    " FROM spaces LEFT JOIN (SELECT id AS chk, " CHECKPOINT_COLUMNS
		    " FROM checkpoints) ON chk = id ORDER BY created_at_ms, id"},
	{GONE_ADD, "INSERT OR IGNORE INTO spaces_gone (id) VALUES (?)"},
	{GONE_FORGET, "DELETE FROM spaces_gone WHERE id = ?"},
	{GONE_FIND, "SELECT id FROM spaces_gone WHERE id = ?"},
	{GONE_ALL, "SELECT id FROM spaces_gone"},
	{CHECKPOINT_ADD, "INSERT INTO checkpoints (" CHECKPOINT_COLUMNS
			 ", id, tenant) VALUES (?,?,?,?,?,?,?,?,?,?)"},
	{CHECKPOINT_CHANGE, "UPDATE checkpoints SET name = ?, pin = ?, expires_at_ms = ?, "
			    "kind = ? WHERE id = ?"},
	{CHECKPOINT_NODE, "UPDATE spaces SET score = ?, labels = ? WHERE id = ?"},
	{CHECKPOINT_SHARED, "UPDATE checkpoints SET shared_bytes = ? WHERE id = ?"},
	{CHECKPOINT_FORGET, "DELETE FROM checkpoints WHERE id = ?"},
	{CHECKPOINT_LOSES_PARENT, "UPDATE checkpoints SET parent = (SELECT parent FROM "
				  "checkpoints WHERE id = ?1) WHERE parent = ?1"},
	{CHECKPOINT_UNSTORED, "SELECT id, tenant FROM checkpoints WHERE id NOT IN "
			      "(SELECT id FROM spaces)"},
	{0},
};

static int add(struct store *s, const struct store_space *row, struct err *e)
{
	const struct sandbox_config *config = &row->config;

	return store_do(s, e, SPACE_ADD, TEXT(row->id), TEXT(row->tenant), TEXT(row->sandbox),
			TEXT(config->template), NUMBER(config->size.vcpus),
			NUMBER(config->size.ram_mib), NUMBER(config->size.rootfs_gb),
			NUMBER(config->timeout_s), NUMBER(config->idle_timeout_s),
			NUMBER(config->egress), NUMBER(row->created_at_ms), NUMBER(row->size_bytes),
			NUMBER(row->seq_reserved), TEXT(row->metadata),
			BYTES(row->env, row->env_len), TEXT(row->root), NUMBER(row->depth),
			SCORE(row->score), TEXT(row->labels ? row->labels : "{}"));
}

/* Ends the sandbox and adds the Space; runs inside a transaction. */
static int replace(struct store *s, const char *sandbox, const struct store_space *row,
		   int64_t at_ms, const char *code, const char *text, struct err *e)
{
	int ret = store_sandbox_end(s, sandbox, at_ms, code, text, e);

	ret = store_changed(s, ret, sandbox, e);
	return ret < 0 ? ret : add(s, row, e);
}

int store_space_freeze(struct store *s, const struct store_space *row, int64_t at_ms,
		       const char *code, const char *text, struct err *e)
{
	int ret = store_begin(s, e);

	if (ret == 0)
		ret = replace(s, row->sandbox, row, at_ms, code, text, e);
	for (size_t i = 0; i < row->n_answers && ret == 0; i++)
		ret = store_answer_insert(s, &row->answers[i], e);
	return store_end(s, ret, e);
}

/* Removes a Space and records it as gone; runs inside a transaction. */
static int forget(struct store *s, const char *id, struct err *e)
{
	int ret = store_changed(s, store_do(s, e, SPACE_FORGET, TEXT(id)), id, e);

	return ret < 0 ? ret : store_do(s, e, GONE_ADD, TEXT(id));
}

int store_space_resume(struct store *s, const char *space, const struct store_sandbox *row,
		       struct err *e)
{
	int ret = store_begin(s, e);

	if (ret == 0)
		ret = forget(s, space, e);
	if (ret == 0)
		ret = store_sandbox_insert(s, row, e);
	return store_end(s, ret, e);
}

int store_space_unresume(struct store *s, const char *sandbox, const struct store_space *row,
			 int64_t at_ms, const char *code, const char *text, struct err *e)
{
	int ret = store_begin(s, e);

	if (ret == 0)
		ret = replace(s, sandbox, row, at_ms, code, text, e);
	if (ret == 0)
		ret = store_do(s, e, GONE_FORGET, TEXT(row->id));
	return store_end(s, ret, e);
}

int store_space_forget(struct store *s, const char *id, struct err *e)
{
	int ret = store_begin(s, e);

	return store_end(s, ret == 0 ? forget(s, id, e) : ret, e);
}

/* --- Spaces whose files must still be removed ------------------------------------------------ */

int store_space_removed(struct store *s, const char *id, struct err *e)
{
	return store_do(s, e, GONE_FORGET, TEXT(id));
}

int store_space_is_gone(struct store *s, const char *id, struct err *e)
{
	store_bind(s->statements[GONE_FIND], TEXT(id));
	return store_has_row(s, s->statements[GONE_FIND], e);
}

int store_spaces_gone(struct store *s, void (*each)(void *arg, const char *id), void *arg,
		      struct err *e)
{
	sqlite3_stmt *st = s->statements[GONE_ALL];
	int ret;

	while ((ret = store_next(s, st, e)) > 0)
		each(arg, text_at(st, 0));
	return ret;
}

/* --- checkpoints ----------------------------------------------------------------------------- */

static int insert_checkpoint(struct store *s, const struct store_checkpoint *row, struct err *e)
{
	return store_do(s, e, CHECKPOINT_ADD, TEXT(row->name), NUMBER(row->pin),
			NUMBER(row->expires_at_ms), NUMBER(row->kind), NUMBER(row->call_seq),
			TEXT(row->parent), TEXT(row->ancestors), NUMBER(row->shared_bytes),
			TEXT(row->id), TEXT(row->tenant));
}

int store_checkpoint_add(struct store *s, const struct store_checkpoint *row, const char *sandbox,
			 const struct store_answer *answer, struct err *e)
{
	int ret = store_begin(s, e);

	if (ret == 0)
		ret = insert_checkpoint(s, row, e);
	if (ret == 0)
		ret = store_do(s, e, SANDBOX_CHECKPOINT, TEXT(sandbox), TEXT(row->id));
	if (ret == 0 && answer)
		ret = store_answer_insert(s, answer, e);
	return store_end(s, ret, e);
}

/* Changes the row of a Space; a checkpoint that is in memory has no such row yet. */
static int change_node(struct store *s, const struct store_space *row, struct err *e)
{
	return store_do(s, e, CHECKPOINT_NODE, SCORE(row->score), TEXT(row->labels), TEXT(row->id));
}

int store_checkpoint_change(struct store *s, const struct store_space *row, struct err *e)
{
	const struct store_checkpoint *c = row->checkpoint;
	int ret = store_begin(s, e);

	if (ret == 0)
		ret = store_do(s, e, CHECKPOINT_CHANGE, TEXT(c->name), NUMBER(c->pin),
			       NUMBER(c->expires_at_ms), NUMBER(c->kind), TEXT(row->id));
	ret = store_changed(s, ret, row->id, e);
	if (ret == 0)
		ret = change_node(s, row, e);
	return store_end(s, ret, e);
}

int store_checkpoint_stored(struct store *s, const struct store_space *row, struct err *e)
{
	int ret = store_begin(s, e);

	if (ret == 0)
		ret = store_do(s, e, CHECKPOINT_SHARED, NUMBER(row->checkpoint->shared_bytes),
			       TEXT(row->id));
	ret = store_changed(s, ret, row->id, e);
	if (ret == 0)
		ret = add(s, row, e);
	return store_end(s, ret, e);
}

int store_checkpoint_forget(struct store *s, const char *id, struct err *e)
{
	int ret = store_begin(s, e);

	if (ret == 0)
		ret = store_do(s, e, SANDBOX_LOSES_CHECKPOINT, TEXT(id));
	if (ret == 0)
		ret = store_do(s, e, CHECKPOINT_LOSES_PARENT, TEXT(id));
	if (ret == 0)
		ret = store_changed(s, store_do(s, e, CHECKPOINT_FORGET, TEXT(id)), id, e);
	if (ret == 0)
		ret = store_do(s, e, SPACE_FORGET, TEXT(id));
	if (ret == 0)
		ret = store_do(s, e, GONE_ADD, TEXT(id));
	return store_end(s, ret, e);
}

int store_checkpoints_unstored(struct store *s,
			       void (*each)(void *arg, const struct store_checkpoint *row),
			       void *arg, struct err *e)
{
	sqlite3_stmt *st = s->statements[CHECKPOINT_UNSTORED];
	int ret;

	while ((ret = store_next(s, st, e)) > 0) {
		const struct store_checkpoint row = {.id = text_at(st, 0),
						     .tenant = text_at(st, 1)};

		each(arg, &row);
	}
	return ret;
}

/* --- rows ------------------------------------------------------------------------------------ */

static struct store_space read_row(sqlite3_stmt *st)
{
	struct store_space row = {
		.id = text_at(st, 0),
		.tenant = text_at(st, 1),
		.sandbox = text_at(st, 2),
		.config = {.size = {u32_at(st, 4), u32_at(st, 5), u32_at(st, 6)},
			   .timeout_s = u32_at(st, 7),
			   .idle_timeout_s = u32_at(st, 8),
			   .egress = u32_at(st, 9)},
		.created_at_ms = sqlite3_column_int64(st, 10),
		.size_bytes = (uint64_t)sqlite3_column_int64(st, 11),
		.seq_reserved = (uint64_t)sqlite3_column_int64(st, 12),
		.metadata = text_at(st, 13),
		.env = sqlite3_column_blob(st, 14),
		.env_len = (size_t)sqlite3_column_bytes(st, 14),
		.root = text_at(st, 15),
		.depth = u32_at(st, 16),
		.score = score_at(st, 17),
		.labels = text_at(st, 18),
	};
	snprintf(row.config.template, sizeof(row.config.template), "%s", text_at(st, 3));
	return row;
}

static struct store_checkpoint read_checkpoint(sqlite3_stmt *st)
{
	return (struct store_checkpoint){
		.id = text_at(st, 0),
		.tenant = text_at(st, 1),
		.name = text_at(st, 19),
		.pin = u32_at(st, 20),
		.expires_at_ms = sqlite3_column_int64(st, 21),
		.kind = (enum checkpoint_kind)u32_at(st, 22),
		.call_seq = (uint64_t)sqlite3_column_int64(st, 23),
		.parent = text_at(st, 24),
		.ancestors = text_at(st, 25),
		.shared_bytes = (uint64_t)sqlite3_column_int64(st, 26),
	};
}

int store_spaces(struct store *s, void (*each)(void *arg, const struct store_space *row), void *arg,
		 struct err *e)
{
	sqlite3_stmt *st = s->statements[SPACE_ALL];
	int ret;

	while ((ret = store_next(s, st, e)) > 0) {
		struct store_space row = read_row(st);
		struct store_checkpoint checkpoint = read_checkpoint(st);

		if (sqlite3_column_type(st, 19) != SQLITE_NULL)
			row.checkpoint = &checkpoint;
		each(arg, &row);
	}
	return ret;
}
