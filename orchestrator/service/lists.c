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

/* Takes up to `most` of the page's remaining entries: *n from `*first` on. Returns true when more
 * remain. */
static bool take(struct service *c, const struct list_name *list, struct list_page *page,
		 size_t most, struct listed *const **first, size_t *n)
{
	struct failure f;
	const struct roster *r = roster_of(c, list, &f);
	const size_t from = r ? roster_after(r, &page->after) : 0;
	const size_t rest = r ? roster_after(r, &page->last) - from : 0;

	*n = rest < most ? rest : most;
	*first = rest ? r->all + from : NULL;
	if (*n)
		page->after = (*first)[*n - 1]->place;
	return rest > most;
}

bool service_list(struct service *c, const struct list_name *list, struct list_page *page,
		  size_t most, void (*each)(void *arg, const struct sandbox_view *view), void *arg)
{
	struct listed *const *l;
	struct sandbox_view view;
	size_t n;
	const bool more = take(c, list, page, most, &l, &n);

	for (; n; n--, l++) {
		sandbox_view_fill(container_of(*l, struct sandbox, listed), &view);
		each(arg, &view);
	}
	return more;
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
	struct listed *const *l;
	struct space_view view;
	size_t n;
	const bool more = take(c, list, page, most, &l, &n);

	for (; n; n--, l++) {
		space_view_fill(container_of(*l, struct space, listed), &view);
		each(arg, &view);
	}
	return more;
}

bool service_checkpoints(struct service *c, const struct list_name *list, struct list_page *page,
			 size_t most, void (*each)(void *arg, const struct checkpoint_view *view),
			 void *arg)
{
	struct listed *const *l;
	struct checkpoint_view view;
	size_t n;
	const bool more = take(c, list, page, most, &l, &n);

	for (; n; n--, l++) {
		checkpoint_view_fill(container_of(*l, struct space, listed), &view);
		each(arg, &view);
	}
	return more;
}
