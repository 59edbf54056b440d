// SPDX-License-Identifier: Apache-2.0
/* The history of a sandbox, with what still exists of the checkpoints and children in it. */
#include "orchestrator/exec/history.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/sandbox/sandbox.h"
#include "orchestrator/snapshot/internal.h"

/* Counts the living children of a fork: those that were created when the entry says
 * (fork-children.c sees to that). Returns their ids, in an array that the caller frees. */
static const char **find_children(const struct sandbox *s, struct history_view *view)
{
	/* A position without an id comes before all ids of that time. */
	const struct list_position place = {.at_ms = view->entry->at_ms};
	const char **ids = must_alloc((view->entry->children + 1) * sizeof(*ids));

	for (size_t i = roster_after(&s->children, &place);
	     i < s->children.n && view->n_children < view->entry->children; i++) {
		if (s->children.all[i]->place.at_ms != place.at_ms)
			break;
		ids[view->n_children++] = s->children.all[i]->place.id;
	}
	return ids;
}

static bool report(const struct sandbox *s, const struct history_entry *e, bool undone,
		   bool (*each)(void *arg, const struct history_view *view), void *arg)
{
	struct history_view view = {.entry = e, .undone = undone};
	scoped_free const char **ids = NULL;

	if (e->checkpoint[0] && space_of(s->service, e->checkpoint))
		view.checkpoint = e->checkpoint;
	if (e->kind == HISTORY_FORK)
		ids = find_children(s, &view);
	view.children = ids;
	return each(arg, &view);
}

bool service_history(struct service *c, const char *tenant, const char *id, uint32_t after,
		     bool (*each)(void *arg, const struct history_view *view), void *arg,
		     struct failure *f)
{
	const struct sandbox *s = sandbox_find(c, tenant, id, f);
	bool undone[HISTORY_MAX];

	if (!s)
		return false;
	const struct history_log *h = &exec_of(s)->history;
	history_undone(h, undone);
	for (uint32_t i = 0; i < h->count; i++)
		if (h->entries[i].n > after && !report(s, &h->entries[i], undone[i], each, arg))
			break;
	return true;
}
