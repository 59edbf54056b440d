// SPDX-License-Identifier: Apache-2.0
/*
 * Which sandbox was forked from which. Each knows the ids of its ancestors, oldest first with a
 * space between them; those that have ended are left out when it is forked.
 */
#include <stdio.h>
#include <string.h>

#include "orchestrator/core/internal.h"

/* The next id from *at on, which moves past it; false at the end. */
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

struct sandbox *lineage_parent(const struct sandbox *s)
{
	const char *at = s->ancestors;
	char id[SANDBOX_ID_LEN + 1];
	struct sandbox *last = NULL;

	while (next_id(&at, id)) {
		struct sandbox *each = sandbox_living(s->core, s->tenant, id);

		last = each ? each : last;
	}
	return last;
}

static void append(char *list, const char *id)
{
	size_t len = strlen(list);

	snprintf(list + len, SANDBOX_ID_LEN + 2, "%s%s", len ? " " : "", id);
}

char *lineage_of_child(const struct sandbox *parent)
{
	const char *at = parent->ancestors;
	char *list = must_alloc(strlen(at) + SANDBOX_ID_LEN + 2);
	char id[SANDBOX_ID_LEN + 1];

	while (next_id(&at, id))
		if (sandbox_living(parent->core, parent->tenant, id))
			append(list, id);
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

const char *const *lineage_children(const struct sandbox *s)
{
	struct core *c = s->core;
	size_t n = 0;

	free(c->children);
	c->children = must_alloc((c->n_sandboxes + 1) * sizeof(*c->children));
	list_each (pos, &c->sandboxes) {
		struct sandbox *each = container_of(pos, struct sandbox, link);

		if (each->state < SBX_ENDING && !strcmp(each->tenant, s->tenant) &&
		    strstr(each->ancestors, s->id) && lineage_parent(each) == s)
			c->children[n++] = each->id;
	}
	return c->children;
}
