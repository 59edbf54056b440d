// SPDX-License-Identifier: Apache-2.0
/*
 * Records which sandbox was forked from which. Each sandbox stores the ids of its ancestors, oldest
 * first, separated by spaces; a fork leaves out the ids of ancestors that have ended. For each pair
 * of a living ancestor and a living descendant there is a struct ancestry. A tree of parents would
 * not suffice because of merges: a descendant of the winner then descends from the parent, but the
 * sandboxes between the two remain its ancestors.
 */
#include "orchestrator/sandbox/lineage.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "orchestrator/sandbox/sandbox.h"

/* Copies the next id at *at and moves *at past it; returns false at the end. */
static bool next_id(const char **at, char id[SANDBOX_ID_LEN + 1])
{
	*at += strspn(*at, " ");
	size_t len = strcspn(*at, " ");

	if (!len)
		return false;
	snprintf(id, SANDBOX_ID_LEN + 1, "%.*s", (int)len, *at);
	*at += len;
	return true;
}

bool lineage_has(const char *ancestors, const char *id)
{
	char each[SANDBOX_ID_LEN + 1];

	while (next_id(&ancestors, each))
		if (!strcmp(each, id))
			return true;
	return false;
}

static void append(char *list, const char *id)
{
	size_t len = strlen(list);

	snprintf(list + len, SANDBOX_ID_LEN + 2, "%s%s", len ? " " : "", id);
}

char *lineage_of_child(const struct sandbox *parent)
{
	/* The living ones are a subset of the parent's ancestors, which bounds the length. */
	char *list = must_alloc(strlen(parent->ancestors) + SANDBOX_ID_LEN + 2);

	list_each_of (pair, struct ancestry, of_descendant, &parent->living_ancestors)
		append(list, pair->ancestor->id);
	append(list, parent->id);
	return list;
}

char *lineage_merged(const char *ancestors, const char *winner, const char *parent)
{
	char *list = must_alloc(strlen(ancestors) + SANDBOX_ID_LEN + 2);
	char id[SANDBOX_ID_LEN + 1];

	while (next_id(&ancestors, id)) {
		if (!strcmp(id, winner))
			append(list, parent);
		else if (strcmp(id, parent) != 0)
			append(list, id);
	}
	return list;
}

/* --- living ancestors and descendants --------------------------------------------------------- */

static void ancestry_free(struct ancestry *pair)
{
	list_del(&pair->of_descendant);
	list_del(&pair->of_ancestor);
	free(pair);
}

static void add_ancestor(struct sandbox *s, struct sandbox *ancestor)
{
	struct ancestry *pair = must_alloc(sizeof(*pair));

	pair->ancestor = ancestor;
	pair->descendant = s;
	list_add_tail(&s->living_ancestors, &pair->of_descendant);
	list_add_tail(&ancestor->living_descendants, &pair->of_ancestor);
}

static void drop_ancestors(struct sandbox *s)
{
	list_drain_of (pair, struct ancestry, of_descendant, &s->living_ancestors)
		ancestry_free(pair);
}

/* Makes the most recent living ancestor the sandbox's parent. */
static void find_parent(struct sandbox *s)
{
	struct sandbox *parent = NULL;

	if (!list_empty(&s->living_ancestors))
		parent = container_of(s->living_ancestors.prev, struct ancestry, of_descendant)
				 ->ancestor;
	if (parent == s->parent)
		return;
	if (s->parent)
		roster_remove(&s->parent->children, &s->listed);
	s->parent = parent;
	if (parent)
		roster_add(&parent->children, &s->listed);
}

void lineage_link(struct sandbox *s)
{
	const char *at = s->ancestors;
	char id[SANDBOX_ID_LEN + 1];

	while (next_id(&at, id)) {
		struct sandbox *ancestor = sandbox_living(s->service, s->tenant, id);

		if (ancestor && ancestor != s)
			add_ancestor(s, ancestor);
	}
	find_parent(s);
}

void lineage_unlink(struct sandbox *s)
{
	drop_ancestors(s);
	find_parent(s);
	list_drain_of (pair, struct ancestry, of_ancestor, &s->living_descendants) {
		struct sandbox *descendant = pair->descendant;

		ancestry_free(pair);
		find_parent(descendant);
	}
}

void lineage_change(struct sandbox *s, char *ancestors)
{
	free(s->ancestors);
	s->ancestors = ancestors;
	drop_ancestors(s);
	lineage_link(s);
}
