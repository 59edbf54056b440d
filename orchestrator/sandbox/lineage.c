// SPDX-License-Identifier: Apache-2.0
/*
 * Records which sandbox was forked from which. Each sandbox stores the ids of its ancestors, oldest
 * first, separated by spaces; a fork leaves out the ids of ancestors that have ended. For each pair
 * of a living ancestor and a living descendant there is a struct descent. A tree of parents would
 * not suffice because of merges: a descendant of the winner then descends from the parent, but the
 * sandboxes between the two remain its ancestors.
 */
#include "orchestrator/sandbox/lineage.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
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
	/* The elders are a subset of the parent's ancestors, which bounds the length. */
	char *list = must_alloc(strlen(parent->ancestors) + SANDBOX_ID_LEN + 2);

	list_each (pos, &parent->elders)
		append(list, container_of(pos, struct descent, of_heir)->elder->id);
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

static void descent_free(struct descent *d)
{
	list_del(&d->of_heir);
	list_del(&d->of_elder);
	free(d);
}

static void add_elder(struct sandbox *s, struct sandbox *elder)
{
	struct descent *d = must_alloc(sizeof(*d));

	d->elder = elder;
	d->heir = s;
	list_add_tail(&s->elders, &d->of_heir);
	list_add_tail(&elder->heirs, &d->of_elder);
}

static void drop_elders(struct sandbox *s)
{
	while (!list_empty(&s->elders))
		descent_free(container_of(s->elders.next, struct descent, of_heir));
}

/* Makes the most recent living ancestor the sandbox's parent. */
static void find_parent(struct sandbox *s)
{
	struct sandbox *parent = NULL;

	if (!list_empty(&s->elders))
		parent = container_of(s->elders.prev, struct descent, of_heir)->elder;
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
		struct sandbox *elder = sandbox_living(s->core, s->tenant, id);

		if (elder && elder != s)
			add_elder(s, elder);
	}
	find_parent(s);
}

void lineage_unlink(struct sandbox *s)
{
	drop_elders(s);
	find_parent(s);
	while (!list_empty(&s->heirs)) {
		struct descent *d = container_of(s->heirs.next, struct descent, of_elder);
		struct sandbox *heir = d->heir;

		descent_free(d);
		find_parent(heir);
	}
}

void lineage_change(struct sandbox *s, char *ancestors)
{
	free(s->ancestors);
	s->ancestors = ancestors;
	drop_elders(s);
	lineage_link(s);
}
