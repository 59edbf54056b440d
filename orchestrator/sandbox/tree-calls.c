// SPDX-License-Identifier: Apache-2.0
/* The API's requests on trees. */
#include "base/alloc.h"
#include "base/elements.h"
#include "base/fd.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"

static struct tree *find_any(struct service *c, const char *tenant, const char *id,
			     struct failure *f)
{
	struct tree *t = tree_find(c, tenant, id);
	struct sandbox *s = t ? NULL : sandbox_find(c, tenant, id, f);

	return s ? s->tree : t;
}

bool service_tree(struct service *c, const char *tenant, const char *id, struct tree_view *view,
		  struct failure *f)
{
	const struct tree *t = find_any(c, tenant, id, f);

	if (!t)
		return false;
	*view = (struct tree_view){.root = t->root,
				   .limited = t->limited,
				   .budget = t->budget,
				   .created_at_ms = t->created_at_ms,
				   .live = t->nodes.n,
				   .waiting = list_count(&t->claims),
				   .ram_mib = t->ram_mib,
				   .cpu_ms = tree_cpu_ms(t),
				   .wall_ms = tree_wall_ms(t)};
	return true;
}

bool service_tree_nodes(struct service *c, const char *tenant, const char *root,
			service_tree_node_fn *each, void *arg)
{
	const struct tree *t = tree_find(c, tenant, root);

	for (size_t i = 0; t && i < t->nodes.n; i++) {
		const struct sandbox *s = tree_node(t, i);
		struct sandbox_view view;

		sandbox_view_fill(s, &view);
		if (!each(arg, &view, s->cpu_ms))
			return false;
	}
	return true;
}

static struct tree_budget changed(const struct tree_budget *was, const struct tree_change *change)
{
	const struct tree_budget *to = &change->budget;

	return (struct tree_budget){
		.live = to->live ? to->live : was->live,
		.ram_mib = to->ram_mib ? to->ram_mib : was->ram_mib,
		.cpu_s = to->cpu_s ? to->cpu_s : was->cpu_s,
		.wall_s = to->wall_s ? to->wall_s : was->wall_s,
		.depth = to->depth ? to->depth : was->depth,
		.at_limit = change->at_limit ? to->at_limit : was->at_limit,
	};
}

bool service_tree_change(struct service *c, const char *tenant, const char *id,
			 const struct tree_change *change, struct failure *f)
{
	struct tree *t = find_any(c, tenant, id, f);
	struct err e;

	if (!t)
		return false;
	const struct store_tree row = {.root = t->root,
				       .tenant = t->owner->name,
				       .budget = changed(&t->budget, change),
				       .created_at_ms = t->created_at_ms,
				       .spent_ms = t->spent_ms};
	if (!tree_budget_fits(c, tenant, &row.budget, NULL, f))
		return false;
	if (store_tree_set(c->store, &row, &e) < 0)
		return failure_catalogue(f, &e);
	tree_set_budget(t, &row.budget);
	return true;
}

/* Deletes sandboxes, each with an operation of its own. */
struct tree_delete {
	struct op op;
	size_t left;
	bool failed;
	struct failure first;
};

static void on_deleted(void *arg, const struct failure *f)
{
	struct tree_delete *d = arg;

	if (f && !d->failed)
		d->first = *f;
	d->failed = d->failed || f;
	if (--d->left == 0)
		op_finish(&d->op, d->failed ? &d->first : NULL);
}

/* Ends what starts from a checkpoint of the sandbox or of a descendant, and is not listed yet. */
static void end_starts(const struct sandbox *s)
{
	list_each_of (claim, struct tree_claim, starts, &s->tree->starts)
		claim->deleted |= lineage_has(claim->ancestors, s->id);
}

/* Returns the sandboxes that are to end, and their number; the caller frees the array. */
static struct sandbox **doomed(struct service *c, const char *tenant, const char *id, size_t *n,
			       struct failure *f)
{
	struct tree *t = tree_find(c, tenant, id);
	struct sandbox *s = t ? NULL : sandbox_find(c, tenant, id, f);

	if (!t && !s)
		return NULL;
	if (t)
		t->deletes++; /* what starts from a checkpoint or Space is not listed yet */
	else
		end_starts(s);
	struct sandbox **all = must_alloc(((t ? t->nodes.n : s->tree->nodes.n) + 1) * sizeof(s));
	*n = 0;
	for (size_t i = 0; t && i < t->nodes.n; i++)
		all[(*n)++] = tree_node(t, i);
	if (t)
		return all;
	list_each_of (pair, struct ancestry, of_ancestor, &s->living_descendants)
		all[(*n)++] = pair->descendant;
	all[(*n)++] = s;
	return all;
}

struct op *service_tree_delete(struct service *c, const char *tenant, const char *id,
			       service_done_fn *fn, void *arg)
{
	static const struct op_methods methods = {.size = sizeof(struct tree_delete)};
	struct tree_delete *d = container_of(op_new(c, &methods, arg), struct tree_delete, op);
	struct failure f;
	size_t n = 0;

	d->op.done_fn = fn;
	scoped_free struct sandbox **all = doomed(c, tenant, id, &n, &f);
	if (!n)
		return op_finish(&d->op, all ? NULL : &f);
	d->left = n;
	list_add_tail(&c->waits, &d->op.link);
	/* Each end is reported on a later turn, so all of `all` are valid here. */
	for (size_t i = 0; i < n; i++)
		service_delete(c, tenant, all[i]->id, on_deleted, d);
	return &d->op;
}
