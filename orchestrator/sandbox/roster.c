// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/sandbox/roster.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define FIRST_ROOM 4

int list_position_compare(const struct list_position *a, const struct list_position *b)
{
	if (a->at_ms != b->at_ms)
		return a->at_ms < b->at_ms ? -1 : 1;
	return strcmp(a->id, b->id);
}

size_t roster_after(const struct roster *r, const struct list_position *place)
{
	size_t from = 0, to = r->n;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (list_position_compare(&r->all[middle]->place, place) <= 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static void make_room(struct roster *r)
{
	if (r->n < r->room)
		return;
	r->room = r->room ? 2 * r->room : FIRST_ROOM;
	r->all = must_realloc(r->all, r->room * sizeof(struct listed *));
}

void roster_add(struct roster *r, struct listed *l)
{
	make_room(r);
	size_t at = roster_after(r, &l->place);
	memmove(r->all + at + 1, r->all + at, (r->n - at) * sizeof(struct listed *));
	r->all[at] = l;
	r->n++;
}

void roster_remove(struct roster *r, const struct listed *l)
{
	size_t behind = roster_after(r, &l->place);

	if (!behind || r->all[behind - 1] != l)
		abort();
	memmove(r->all + behind - 1, r->all + behind, (r->n - behind) * sizeof(struct listed *));
	if (--r->n == 0)
		roster_fini(r);
}

void roster_fini(struct roster *r)
{
	free(r->all);
	*r = (struct roster){0};
}
