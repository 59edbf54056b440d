// SPDX-License-Identifier: Apache-2.0
/* Pages of the fake core's lists, which are sorted again for each page. */
#include <stdlib.h>

#include "orchestrator/core/core.h"
#include "test/api/fake_call.h"

struct sorted {
	struct sandbox **all;
	size_t n;
	bool spaces;
};

static const char *id_of(const struct sandbox *s, bool space)
{
	return space ? s->space : s->id;
}

static int by_id(const void *a, const void *b)
{
	return strcmp((*(struct sandbox *const *)a)->id, (*(struct sandbox *const *)b)->id);
}

static int by_space(const void *a, const void *b)
{
	return strcmp((*(struct sandbox *const *)a)->space, (*(struct sandbox *const *)b)->space);
}

static struct sorted sort(const struct core *c, const struct list_name *list)
{
	const struct list *from = list->kind == LIST_SPACES ? &c->spaces : &c->sandboxes;
	struct sorted out = {.spaces = list->kind == LIST_SPACES};

	list_each (pos, from) {
		struct sandbox *s = container_of(pos, struct sandbox, link);

		if (list->kind == LIST_CHILDREN && strcmp(s->parent, list->parent) != 0)
			continue;
		out.all = realloc(out.all, (out.n + 1) * sizeof(struct sandbox *));
		out.all[out.n++] = s;
	}
	if (out.n)
		qsort(out.all, out.n, sizeof(struct sandbox *), out.spaces ? by_space : by_id);
	return out;
}

static size_t first_after(const struct sorted *s, const struct list_position *position)
{
	size_t at = 0;

	while (at < s->n && strcmp(id_of(s->all[at], s->spaces), position->id) <= 0)
		at++;
	return at;
}

bool core_page(struct core *c, const struct list_name *list, size_t most, struct list_page *page,
	       struct failure *f)
{
	struct sandbox_view view;

	if (list->kind == LIST_CHILDREN && !core_view(c, list->tenant, list->parent, &view, f))
		return false;
	struct sorted s = sort(c, list);
	size_t from = first_after(&s, &page->after), n = s.n - from < most ? s.n - from : most;
	page->last = page->after;
	if (n)
		page->last = (struct list_position){.at_ms = 1700000000123};
	if (n)
		strcpy(page->last.id, id_of(s.all[from + n - 1], s.spaces));
	page->more = from + n < s.n;
	free(s.all);
	return true;
}

/* Returns the next `*n` entries of the page, up to `most`, and whether more are left. */
static bool take(struct core *c, const struct list_name *list, struct list_page *page, size_t most,
		 struct sorted *s, size_t *from, size_t *n)
{
	*s = sort(c, list);
	*from = first_after(s, &page->after);
	size_t to = first_after(s, &page->last);
	*n = to < *from ? 0 : to - *from < most ? to - *from : most;
	if (*n)
		strcpy(page->after.id, id_of(s->all[*from + *n - 1], s->spaces));
	return *from + *n < to;
}

bool core_list(struct core *c, const struct list_name *list, struct list_page *page, size_t most,
	       void (*each)(void *arg, const struct sandbox_view *view), void *arg)
{
	struct sandbox_view view;
	struct sorted s;
	size_t from, n;
	bool more = take(c, list, page, most, &s, &from, &n);

	for (size_t i = 0; i < n; i++) {
		fake_sandbox_view(s.all[from + i], &view);
		each(arg, &view);
	}
	free(s.all);
	return more;
}

bool core_spaces(struct core *c, const struct list_name *list, struct list_page *page, size_t most,
		 void (*each)(void *arg, const struct space_view *view), void *arg)
{
	struct space_view view;
	struct sorted s;
	size_t from, n;
	bool more = take(c, list, page, most, &s, &from, &n);

	for (size_t i = 0; i < n; i++) {
		fake_space_view(s.all[from + i], &view);
		each(arg, &view);
	}
	free(s.all);
	return more;
}
