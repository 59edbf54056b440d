// SPDX-License-Identifier: Apache-2.0
/* Routes about the service itself. */
#include <stdio.h>
#include <string.h>

#include "orchestrator/api/internal.h"
#include "orchestrator/json/cursor.h"

void serve_healthz(struct request *r)
{
	if (!service_ready(r->service)) {
		answer_retry_after(r, 1);
		answer_error(r, 503, "not_ready", "%s",
			     guard_is_operator(r) ? service_error(r->service)
						  : "the service is not ready");
		return;
	}
	text_puts(&r->out, "ok");
	answer(r, 200, "text/plain; charset=utf-8");
}

/* Answers "ok", which proves that the event loop turns. */
void serve_livez(struct request *r)
{
	text_puts(&r->out, "ok");
	answer(r, 200, "text/plain; charset=utf-8");
}

struct checks {
	struct request *r;
	bool shown;
	bool ready;
};

static void add_check(void *arg, const char *name, const char *reason)
{
	struct checks *checks = arg;
	struct text *t = &checks->r->out;

	checks->ready = checks->ready && !reason;
	if (!checks->shown)
		return;
	text_printf(t, "%s\"%s\":", t->len ? "," : "{\"checks\":{", name);
	json_string(t, reason ? reason : "ok", strlen(reason ? reason : "ok"));
}

void serve_readyz(struct request *r)
{
	struct checks checks = {r, guard_is_operator(r), true};

	service_checks(r->service, add_check, &checks);
	text_printf(&r->out, "%s\"ready\":%s}\n", checks.shown ? "}," : "{",
		    checks.ready ? "true" : "false");
	if (!checks.ready)
		answer_retry_after(r, 1);
	answer(r, checks.ready ? 200 : 503, "application/json");
}

/* A page of templates. They are few, so each page walks through all of them. */
struct templates {
	struct request *r;
	char last[CURSOR_KEY_MAX + 1]; /* name of the last template returned; empty: none */
	size_t left;
	bool more;
};

/* Returns whether the template `name` comes after `last` in the list: the default template is
 * first, the others follow in the order of their names. All come after an empty `last`. */
static bool is_behind(const char *name, const char *last)
{
	static const char first[] = "default";

	if (!*last || strcmp(name, first) == 0)
		return !*last;
	return strcmp(last, first) == 0 || strcmp(name, last) > 0;
}

static void add_template(void *arg, const struct template_view *v)
{
	struct templates *page = arg;
	struct text *t = &page->r->out;

	if (!is_behind(v->name, page->last))
		return;
	if (!page->left) {
		page->more = true;
		return;
	}
	page->left--;
	snprintf(page->last, sizeof(page->last), "%s", v->name);
	text_puts(t, t->len ? ",{\"name\":" : "[{\"name\":");
	json_string(t, v->name, strlen(v->name));
	json_member(t, "description", v->description);
	json_member(t, "state", v->state);
	if (v->reason[0])
		json_member(t, "why", v->reason);
	text_printf(t, ",\"vcpus\":%u,\"ram_mib\":%u,\"rootfs_gb\":%u,\"sizes\":[", v->size.vcpus,
		    v->size.ram_mib, v->size.rootfs_gb);
	for (size_t i = 0; i < v->n_sizes; i++)
		text_printf(t, "%s{\"vcpus\":%u,\"ram_mib\":%u,\"rootfs_gb\":%u}", i ? "," : "",
			    v->sizes[i].vcpus, v->sizes[i].ram_mib, v->sizes[i].rootfs_gb);
	text_puts(t, "]}");
}

/* Returns false, with an answer given, when the query is invalid. */
static bool ask_page(struct request *r, struct templates *page)
{
	*page = (struct templates){.r = r, .left = SIZE_MAX};
	return ask_limit(r, &page->left) &&
	       ask_cursor(r, 't', page->last, 1, sizeof(page->last) - 1) >= 0;
}

static void on_templates(void *arg, const struct failure *f)
{
	struct request *r = arg;
	struct templates page;

	if (!request_called_well(r, f) || !ask_page(r, &page))
		return;
	service_templates(r->service, add_template, &page);
	if (page.more)
		answer_next(r, 't', page.last, strlen(page.last));
	text_puts(&r->out, r->out.len ? "]\n" : "[]\n");
	answer(r, 200, "application/json");
}

void serve_templates(struct request *r)
{
	struct templates page;

	if (!ask_page(r, &page))
		return;
	request_ref(r);
	r->op = service_templates_look(r->service, on_templates, r);
}

void serve_openapi(struct request *r)
{
	text_add(&r->out, openapi_json, (size_t)(openapi_json_end - openapi_json));
	answer(r, 200, "application/json");
}

void serve_metrics(struct request *r)
{
	metrics_print(r->api, &r->out);
	answer(r, 200, "text/plain; version=0.0.4; charset=utf-8");
}
