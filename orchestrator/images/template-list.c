// SPDX-License-Identifier: Apache-2.0
/* Fills in the views that lists of templates show. */
#include <string.h>

#include "base/elements.h"
#include "orchestrator/images/template-internal.h"

#define SIZES_SEEN 64 /* of one template; more are left out */

static const char *state_name(const struct template *t)
{
	if (!t || t->state == TPL_NEW)
		return "waiting";
	if (t->state == TPL_READY)
		return "ready";
	return t->state == TPL_FAILED ? "failed" : "building";
}

static size_t list_sizes(struct templates *ts, const char *name, struct size out[SIZES_SEEN])
{
	size_t n = 0;

	list_each_of (t, const struct template, link, &ts->all)
		if (n < SIZES_SEEN && t->state == TPL_READY && !strcmp(t->source.name, name))
			out[n++] = t->size;
	return n;
}

static void show(struct templates *ts, const struct known_source *known,
		 void (*each)(void *arg, const struct template_view *view), void *arg)
{
	struct size sizes[SIZES_SEEN];
	struct template_view view;
	const struct source *from = &known->source;
	const struct template *t = template_find(ts, from->name, &from->size);
	const char *error_text = t && t->reason ? t->reason : t ? template_error(t) : "";

	view = (struct template_view){.name = from->name,
				      .description = from->description,
				      .state = known->ret < 0 ? "failed" : state_name(t),
				      .reason = known->ret < 0 ? known->reason : error_text,
				      .size = from->size,
				      .sizes = sizes,
				      .n_sizes = list_sizes(ts, from->name, sizes)};
	each(arg, &view);
}

void templates_list(struct templates *ts, void (*each)(void *arg, const struct template_view *view),
		    void *arg)
{
	for (size_t i = 0; i < ts->sources->n; i++)
		show(ts, &ts->sources->all[i], each, arg);
}
