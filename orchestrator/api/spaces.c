// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/handler.h"

/* --- freeze and resume ---------------------------------------------------------------------- */

void text_frozen(struct text *t, const char *space)
{
	text_printf(t, "{\"space_id\":\"%s\"}\n", space);
}

static void on_frozen(void *arg, const char *space, const struct failure *f)
{
	struct request *r = arg;

	if (space) {
		trace_space(r, space);
		text_frozen(&r->out, space);
	}
	request_made(r, 200, f);
}

void serve_freeze(struct request *r)
{
	request_ref(r);
	r->op = service_freeze(r->service, r->tenant, r->id, on_frozen, r);
}

void serve_resume(struct request *r, const struct resume_body *b)
{
	const struct space_resume how = {
		.timeout_s = b->lifetime_seconds,
		.idle_timeout_s = b->idle_timeout_seconds,
		.persistent = b->persistent,
		.egress = change_of(b->egress),
	};

	request_ref(r);
	r->op = service_space_resume(r->service, r->tenant, r->id, &how, request_created, r);
}

/* --- info, list, delete --------------------------------------------------------------------- */

static void add_view(struct text *t, const struct space_view *v)
{
	text_printf(t, "{\"id\":\"%s\",\"state\":\"%s\"", v->id, v->state);
	json_member_time(t, "created_at", v->created_at_ms);
	json_member_number(t, "size_bytes", v->size_bytes);
	json_member(t, "sandbox", v->sandbox);
	text_node(t, v->root, v->depth, v->score, v->labels);
	text_machine(t, &v->config);
	json_member_number(t, "lifetime_seconds", v->config.timeout_s);
	json_member_number(t, "timeout_seconds", v->config.timeout_s);
	json_member_number(t, "idle_timeout_seconds", v->config.idle_timeout_s);
	json_member_bool(t, "egress", v->config.egress);
	if (v->damage)
		json_member(t, "damage", v->damage);
	text_metadata(t, v->metadata);
	text_putc(t, '}');
}

void serve_space(struct request *r)
{
	struct space_view view;
	struct failure f;

	if (!service_space_view(r->service, r->tenant, r->id, &view, &f)) {
		answer_failure(r, &f);
		return;
	}
	add_view(&r->out, &view);
	text_putc(&r->out, '\n');
	answer(r, 200, "application/json");
}

static void add_to_list(void *arg, const struct space_view *view)
{
	struct request *r = arg;

	pages_comma(r);
	add_view(&r->out, view);
}

static bool add_some(struct request *r, size_t most)
{
	return service_spaces(r->service, &pages_of(r)->list, &pages_of(r)->page, most, add_to_list,
			      r);
}

void serve_spaces(struct request *r)
{
	const struct list_name list = {.kind = LIST_SPACES, .tenant = r->tenant};

	serve_pages(r, &list, add_some);
}

void serve_space_delete(struct request *r)
{
	request_ref(r);
	r->op = service_space_delete(r->service, r->tenant, r->id, request_done, r);
}
