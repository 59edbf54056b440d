// SPDX-License-Identifier: Apache-2.0
/* Reads the lists of sandboxes, Spaces and checkpoints in pages, without walking through a whole
 * list. */
#include <string.h>

#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/service/service.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/snapshot/space.h"
#include "orchestrator/snapshot/state.h"

static const struct roster *children_of(struct service *c, const struct list_name *list,
					struct failure *f)
{
	const struct sandbox *s = sandbox_find(c, list->tenant, list->parent, f);

	return s ? &s->children : NULL;
}

/* Returns NULL with *f filled when there is no such list. */
static const struct roster *roster_of(struct service *c, const struct list_name *list,
				      struct failure *f)
{
	static const struct roster empty;

	if (list->kind == LIST_CHILDREN)
		return children_of(c, list, f);
	if (!list->tenant)
		return &c->all;
	const struct tenant *t = tenant_find(c, list->tenant);
	if (!t)
		return &empty;
	if (list->kind == LIST_CHECKPOINTS)
		return &snapshots_of_tenant(t)->checkpoints;
	return list->kind == LIST_SPACES ? &snapshots_of_tenant(t)->spaces : &t->sandboxes;
}

bool service_page(struct service *c, const struct list_name *list, size_t most,
		  struct list_page *page, struct failure *f)
{
	const struct roster *r = roster_of(c, list, f);

	if (!r)
		return false;
	size_t from = roster_after(r, &page->after);
	size_t n = r->n - from < most ? r->n - from : most;
	page->last = n ? r->all[from + n - 1]->place : page->after;
	page->more = from + n < r->n;
	return true;
}

/* Passes up to `most` of the page's remaining entries to `fn`. Returns true when more remain. */
static bool walk(struct service *c, const struct list_name *list, struct list_page *page,
		 size_t most, void (*fn)(void *arg, const struct listed *l), void *arg)
{
	struct failure f;
	const struct roster *r = roster_of(c, list, &f);
	size_t at = r ? roster_after(r, &page->after) : 0;

	for (; r && at < r->n && list_position_compare(&r->all[at]->place, &page->last) <= 0;
	     at++) {
		if (!most--)
			return true;
		page->after = r->all[at]->place;
		fn(arg, r->all[at]);
	}
	return false;
}

struct view_sink {
	void (*sandbox)(void *arg, const struct sandbox_view *view);
	void (*space)(void *arg, const struct space_view *view);
	void (*checkpoint)(void *arg, const struct checkpoint_view *view);
	void *arg;
};

static void emit_sandbox(void *arg, const struct listed *l)
{
	const struct view_sink *sink = arg;
	struct sandbox_view view;

	sandbox_view_fill(container_of(l, struct sandbox, listed), &view);
	sink->sandbox(sink->arg, &view);
}

static void emit_space(void *arg, const struct listed *l)
{
	const struct view_sink *sink = arg;
	struct space_view view;

	space_view_fill(container_of(l, struct space, listed), &view);
	sink->space(sink->arg, &view);
}

static void emit_checkpoint(void *arg, const struct listed *l)
{
	const struct view_sink *sink = arg;
	struct checkpoint_view view;

	checkpoint_view_fill(container_of(l, struct space, listed), &view);
	sink->checkpoint(sink->arg, &view);
}

bool service_list(struct service *c, const struct list_name *list, struct list_page *page,
		  size_t most, void (*each)(void *arg, const struct sandbox_view *view), void *arg)
{
	struct view_sink sink = {.sandbox = each, .arg = arg};

	return walk(c, list, page, most, emit_sandbox, &sink);
}

bool service_tree_spaces(struct service *c, const char *tenant, const char *root,
			 bool (*each)(void *arg, const struct space_view *view), void *arg)
{
	const struct tenant *t = tenant_find(c, tenant);
	const struct roster *r = t ? &snapshots_of_tenant(t)->spaces : NULL;

	for (size_t i = 0; r && i < r->n; i++) {
		const struct space *p = container_of(r->all[i], struct space, listed);
		struct space_view view;

		space_view_fill(p, &view);
		if (!strcmp(view.root, root) && !each(arg, &view))
			return false;
	}
	return true;
}

bool service_spaces(struct service *c, const struct list_name *list, struct list_page *page,
		    size_t most, void (*each)(void *arg, const struct space_view *view), void *arg)
{
	struct view_sink sink = {.space = each, .arg = arg};

	return walk(c, list, page, most, emit_space, &sink);
}

bool service_checkpoints(struct service *c, const struct list_name *list, struct list_page *page,
			 size_t most, void (*each)(void *arg, const struct checkpoint_view *view),
			 void *arg)
{
	struct view_sink sink = {.checkpoint = each, .arg = arg};

	return walk(c, list, page, most, emit_checkpoint, &sink);
}
