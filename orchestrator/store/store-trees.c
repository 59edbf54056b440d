// SPDX-License-Identifier: Apache-2.0
/* The catalogue's table of trees that have a budget. */
#include "orchestrator/store/store-internal.h"

#define COLUMNS                                                                                    \
	"root, tenant, live, ram_mib, cpu_s, wall_s, depth, at_limit, created_at_ms, spent_ms"

const struct store_sql store_tree_sql[] = {
	{TREE_ADD, "INSERT OR REPLACE INTO trees (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?)"},
	{TREE_SPENT, "UPDATE trees SET spent_ms = ?2 WHERE root = ?1"},
	{TREE_FORGET, "DELETE FROM trees WHERE root = ?"},
	{TREE_PURGE, "DELETE FROM trees WHERE root NOT IN (SELECT root FROM sandboxes "
		     "WHERE ended_at_ms = 0 UNION SELECT root FROM spaces)"},
	{TREE_ALL, "SELECT " COLUMNS " FROM trees"},
	{0},
};

int store_tree_set(struct store *s, const struct store_tree *row, struct err *e)
{
	const struct tree_budget *b = &row->budget;

	return store_do(s, e, TREE_ADD, TEXT(row->root), TEXT(row->tenant), NUMBER(b->live),
			NUMBER(b->ram_mib), NUMBER(b->cpu_s), NUMBER(b->wall_s), NUMBER(b->depth),
			NUMBER(b->at_limit), NUMBER(row->created_at_ms), NUMBER(row->spent_ms));
}

int store_tree_spent(struct store *s, const char *root, uint64_t spent_ms, struct err *e)
{
	return store_do(s, e, TREE_SPENT, TEXT(root), NUMBER(spent_ms));
}

int store_tree_forget(struct store *s, const char *root, struct err *e)
{
	return store_do(s, e, TREE_FORGET, TEXT(root));
}

int store_trees(struct store *s, void (*each)(void *arg, const struct store_tree *row), void *arg,
		struct err *e)
{
	sqlite3_stmt *st = s->statements[TREE_ALL];
	int ret = store_run(s, TREE_PURGE, e);

	if (ret < 0)
		return ret;
	while ((ret = store_next(s, st, e)) > 0) {
		const struct store_tree row = {
			.root = text_at(st, 0),
			.tenant = text_at(st, 1),
			.budget = {.live = u32_at(st, 2),
				   .ram_mib = (uint64_t)sqlite3_column_int64(st, 3),
				   .cpu_s = u32_at(st, 4),
				   .wall_s = u32_at(st, 5),
				   .depth = u32_at(st, 6),
				   .at_limit = (enum tree_at_limit)u32_at(st, 7)},
			.created_at_ms = sqlite3_column_int64(st, 8),
			.spent_ms = (uint64_t)sqlite3_column_int64(st, 9),
		};

		each(arg, &row);
	}
	return ret;
}
