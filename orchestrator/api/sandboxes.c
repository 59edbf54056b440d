// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "orchestrator/api/placement.h"
#include "orchestrator/exec/exec.h"

/* --- create --------------------------------------------------------------------------------- */

static bool name_valid(const char *name)
{
	for (const char *p = name; *p; p++)
		if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '-' ||
		      *p == '_' || (*p == '.' && p > name)))
			return false;
	return true;
}

/* Adds the region and endpoint of the sandbox, if configured. */
static void add_endpoint(struct text *t, const struct config *config)
{
	if (config->region[0])
		json_member(t, "region", config->region);
	if (config->endpoint[0])
		json_member(t, "endpoint", config->endpoint);
}

void text_created(struct text *t, const struct config *config, const char *id, const char *state)
{
	text_printf(t, "{\"id\":\"%s\",\"state\":\"%s\"", id, state);
	add_endpoint(t, config);
	text_puts(t, "}\n");
}

void request_created(void *arg, const struct sandbox_view *view, const struct failure *f)
{
	struct request *r = arg;

	if (view) {
		trace_sandbox(r, view->id);
		text_created(&r->out, r->config, view->id, view->state);
	}
	request_made(r, 201, f);
}

/* Reads checkpoint_each_call if the body has it. Returns false after it has answered with an error.
 */
static bool each_call_read(struct request *r, const struct json_text *field, uint32_t *keep)
{
	struct each_call_body b = {0};
	struct err e;

	if (!field->p)
		return true;
	if (json_read(field->p, field->len, each_call_json.fields, each_call_json.n_fields, &b,
		      &e) < 0) {
		answer_error(r, 400, "bad_request", "checkpoint_each_call.%s", e.text);
		return false;
	}
	*keep = b.keep;
	return true;
}

void serve_create(struct request *r, const struct create_body *b)
{
	struct tree_budget budget;
	char labels[LABELS_JSON_MAX];
	struct sandbox_spec spec = {
		.config = {.size = {.vcpus = b->vcpus,
				    .ram_mib = b->ram_mib,
				    .rootfs_gb = b->rootfs_gb},
			   .timeout_s = b->lifetime_seconds,
			   .idle_timeout_s = b->idle_timeout_seconds,
			   .persistent = b->persistent,
			   .egress = b->egress},
		.metadata = b->metadata.p,
		.env = (const char *const *)b->env,
	};

	if (b->checkpoint.p && !checkpoint_is_id(r, &b->checkpoint))
		return;
	if (b->template.p && !name_valid(b->template.p)) {
		answer_error(r, 400, "bad_request",
			     "template must be a name of a-z, 0-9, -, _ and ., not \"%s\"",
			     b->template.p);
		return;
	}
	if (!labels_read(r, b->labels, labels) ||
	    (b->tree.p && !budget_read(r, &b->tree, &budget)) ||
	    !each_call_read(r, &b->checkpoint_each_call, &spec.config.checkpoint_calls))
		return;
	spec.labels = labels;
	spec.tree = b->tree.p ? &budget : NULL;
	if (b->template.p)
		memcpy(spec.config.template, b->template.p, b->template.len);
	if (!placement_is_here(r, b, &spec))
		return;
	request_ref(r);
	r->op = b->checkpoint.p ? service_create_from(r->service, r->tenant, b->checkpoint.p, &spec,
						      request_created, r)
				: service_create(r->service, r->tenant, &spec, request_created, r);
}

/* --- info and list -------------------------------------------------------------------------- */

static void add_children(struct text *t, const char *const *children)
{
	text_puts(t, ",\"children\":[");
	for (const char *const *id = children; *id; id++)
		text_printf(t, "%s\"%s\"", id == children ? "" : ",", *id);
	text_putc(t, ']');
}

static void add_view(struct text *t, const struct sandbox_view *v, const struct config *config)
{
	text_printf(t, "{\"id\":\"%s\",\"state\":\"%s\"", v->id, v->state);
	add_endpoint(t, config);
	text_machine(t, &v->config);
	json_member_bool(t, "persistent", v->config.persistent);
	json_member_bool(t, "egress", v->config.egress);
	text_puts(t, ",\"checkpoint_each_call\":");
	if (v->config.checkpoint_calls)
		text_printf(t, "{\"keep\":%u}", v->config.checkpoint_calls);
	else
		text_puts(t, "null");
	json_member_time(t, "created_at", v->created_at_ms);
	json_member_time(t, "expires_at", v->expires_at_ms);
	json_member_time(t, "idle_expires_at", v->idle_expires_at_ms);
	json_member(t, "parent", v->parent);
	text_node(t, v->root, v->depth, v->score, v->labels);
	if (v->children)
		add_children(t, v->children);
	if (v->children && v->n_children > CHILDREN_SHOWN)
		json_member_bool(t, "children_more", true);
	json_member_number(t, "memory_private_bytes", v->memory.private_bytes);
	json_member_number(t, "memory_shared_bytes", v->memory.shared_bytes);
	if (v->freeze_bytes) {
		json_member_number(t, "frozen_bytes", v->frozen_bytes);
		json_member_number(t, "freeze_bytes", v->freeze_bytes);
	}
	text_metadata(t, v->metadata);
	text_putc(t, '}');
}

void serve_info(struct request *r)
{
	struct sandbox_view view;
	struct failure f;

	if (!service_view(r->service, r->tenant, r->id, &view, &f)) {
		answer_failure(r, &f);
		return;
	}
	add_view(&r->out, &view, r->config);
	text_putc(&r->out, '\n');
	answer(r, 200, "application/json");
}

static void add_to_list(void *arg, const struct sandbox_view *view)
{
	struct request *r = arg;

	if (!list_filter_fits(&pages_of(r)->filter, view)) {
		pages_of(r)->rejected++;
		return;
	}
	pages_comma(r);
	add_view(&r->out, view, r->config);
}

static bool add_some(struct request *r, size_t most)
{
	return service_list(r->service, &pages_of(r)->list, &pages_of(r)->page, most, add_to_list,
			    r);
}

void serve_list(struct request *r)
{
	const struct list_name list = {.kind = LIST_SANDBOXES, .tenant = r->tenant};

	serve_pages(r, &list, add_some);
}

void serve_children(struct request *r)
{
	const struct list_name list = {.kind = LIST_CHILDREN, .tenant = r->tenant, .parent = r->id};

	serve_pages(r, &list, add_some);
}

/* --- change --------------------------------------------------------------------------------- */

static void on_changed(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (request_called_well(r, f))
		serve_info(r);
}

void serve_change(struct request *r, const struct change_body *b)
{
	char labels[LABELS_JSON_MAX];
	uint32_t checkpoint_calls = 0;
	const struct sandbox_change to = {
		.timeout_s = b->lifetime_seconds,
		.idle_timeout_s = b->idle_timeout_seconds,
		.persistent = change_of(b->persistent),
		.egress = change_of(b->egress),
		.metadata = b->metadata.p,
		.score = {!isnan(b->score), b->score},
		.labels = b->labels ? labels : NULL,
		.checkpoint_calls = b->checkpoint_each_call.p ? &checkpoint_calls : NULL,
	};

	if (!labels_read(r, b->labels, labels) ||
	    !each_call_read(r, &b->checkpoint_each_call, &checkpoint_calls))
		return;
	request_ref(r);
	r->op = service_change(r->service, r->tenant, r->id, &to, on_changed, r);
}

/* --- delete and interrupt ------------------------------------------------------------------- */

void serve_delete(struct request *r)
{
	request_ref(r);
	r->op = service_delete(r->service, r->tenant, r->id, request_done, r);
}

void serve_interrupt(struct request *r)
{
	request_ref(r);
	r->op = service_interrupt(r->service, r->tenant, r->id, NULL, request_done, r);
}
