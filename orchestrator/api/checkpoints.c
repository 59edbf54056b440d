// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "base/random.h"
#include "orchestrator/api/fleet-prune.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/peers/peers.h"

/* --- one checkpoint ------------------------------------------------------------------------- */

static void add_view(struct text *t, const struct checkpoint_view *v)
{
	text_printf(t, "{\"id\":\"%s\",\"state\":\"%s\"", v->id, v->state);
	json_member(t, "name", v->name);
	text_node(t, v->root, v->depth, v->score, v->labels);
	json_member_bool(t, "pin", v->pin);
	json_member(t, "sandbox", v->sandbox);
	json_member(t, "parent", v->parent);
	json_member_time(t, "created_at", v->created_at_ms);
	json_member_time(t, "expires_at", v->expires_at_ms);
	text_machine(t, &v->config);
	json_member_bool(t, "egress", v->config.egress);
	json_member_number(t, "bytes", v->bytes);
	json_member_number(t, "bytes_shared", v->shared_bytes);
	if (v->freed_bytes >= 0)
		json_member_number(t, "bytes_freed", (uint64_t)v->freed_bytes);
	if (v->damage)
		json_member(t, "damage", v->damage);
	if (v->kind == CHECKPOINT_ASKED)
		json_member(t, "call", NULL);
	else
		json_member_number(t, "call", v->call_seq);
	json_member_bool(t, "undone", v->kind == CHECKPOINT_UNDONE);
	text_metadata(t, v->metadata);
	text_putc(t, '}');
}

void text_checkpoint(struct text *t, const struct checkpoint_view *view)
{
	add_view(t, view);
	text_putc(t, '\n');
}

static void answer_view(struct request *r, const struct checkpoint_view *view)
{
	text_checkpoint(&r->out, view);
	answer(r, 200, "application/json");
}

static void on_looked(void *arg, const struct checkpoint_view *view, const struct failure *f)
{
	if (request_called_well(arg, f))
		answer_view(arg, view);
}

void serve_checkpoint(struct request *r)
{
	request_ref(r);
	r->op = service_checkpoint_look(r->service, r->tenant, r->id, on_looked, r);
}

static void on_taken(void *arg, const struct checkpoint_view *view, const struct failure *f)
{
	struct request *r = arg;

	if (view)
		text_checkpoint(&r->out, view);
	request_made(r, 201, f);
}

void serve_checkpoint_take(struct request *r, const struct checkpoint_take_body *b)
{
	char labels[LABELS_JSON_MAX];
	const struct checkpoint_spec spec = {
		.name = b->name.p, .labels = labels, .ttl_s = b->ttl_seconds, .pin = b->pin};

	if (!labels_read(r, b->labels, labels))
		return;
	request_ref(r);
	r->op = service_checkpoint(r->service, r->tenant, r->id, &spec, on_taken, r);
}

void serve_checkpoint_change(struct request *r, const struct checkpoint_change_body *b)
{
	char labels[LABELS_JSON_MAX];
	const struct checkpoint_change to = {.name = b->name.p,
					     .labels = b->labels ? labels : NULL,
					     .score = {!isnan(b->score), b->score},
					     .pin = change_of(b->pin),
					     .ttl_s = b->ttl_seconds};
	struct checkpoint_view view;
	struct failure f;

	if (!labels_read(r, b->labels, labels))
		return;
	if (service_checkpoint_change(r->service, r->tenant, r->id, &to, &f) &&
	    service_checkpoint_view(r->service, r->tenant, r->id, &view, &f))
		answer_view(r, &view);
	else
		answer_failure(r, &f);
}

void serve_checkpoint_delete(struct request *r)
{
	request_ref(r);
	r->op = service_checkpoint_delete(r->service, r->tenant, r->id, request_done, r);
}

/* --- list and prune ------------------------------------------------------------------------- */

static void add_to_list(void *arg, const struct checkpoint_view *view)
{
	struct request *r = arg;

	if (!checkpoint_filter_fits(&pages_of(r)->filter, view)) {
		pages_of(r)->rejected++;
		return;
	}
	pages_comma(r);
	add_view(&r->out, view);
}

static bool add_some(struct request *r, size_t most)
{
	return service_checkpoints(r->service, &pages_of(r)->list, &pages_of(r)->page, most,
				   add_to_list, r);
}

void serve_checkpoints(struct request *r)
{
	const struct list_name list = {.kind = LIST_CHECKPOINTS, .tenant = r->tenant};

	serve_pages(r, &list, add_some);
}

struct pruned {
	struct text *ids;
	size_t n;
	uint64_t bytes;
};

static void add_pruned(void *arg, const char *id, uint64_t bytes)
{
	struct pruned *p = arg;

	text_printf(p->ids, "%s\"%s\"", p->n++ ? "," : "", id);
	p->bytes += bytes;
}

static void end_pruned(struct request *r, uint64_t bytes)
{
	text_printf(&r->out, "],\"bytes\":%llu}\n", (unsigned long long)bytes);
}

/* Answers when what this host has deleted is on disk. */
static void answer_pruned(struct request *r, uint64_t bytes)
{
	end_pruned(r, bytes);
	request_ref(r);
	r->op = service_sync(r->service, request_done_200, r);
}

void serve_prune(struct request *r, const struct prune_body *b)
{
	const struct checkpoint_prune how = {.sandbox = b->sandbox.p,
					     .keeps = b->keep,
					     .keep = b->keep,
					     .older_than_s = b->older_than_seconds,
					     .dry_run = b->dry_run};
	struct pruned pruned = {.ids = &r->out};
	struct failure f;

	if (!b->keep && !b->older_than_seconds) {
		answer_error(r, 400, "bad_request",
			     "a prune needs keep, older_than_seconds or both: else it would delete "
			     "all checkpoints");
		return;
	}
	if (b->sandbox.p && !id_valid("sbx_", b->sandbox.p, b->sandbox.len)) {
		answer_error(r, 400, "bad_request",
			     "sandbox must be the id of a sandbox, not \"%s\"", b->sandbox.p);
		return;
	}
	if (!fleet_prune_is_here(r, &b->sandbox))
		return;
	const bool others = fleet_prune_asks(r, &b->sandbox);
	if (others && !fleet_prune_begin(r))
		return;
	text_puts(&r->out, "{\"checkpoints\":[");
	if (!service_checkpoints_prune(r->service, r->tenant, &how, add_pruned, &pruned, &f)) {
		r->out.len = 0;
		answer_failure(r, &f);
		return;
	}
	if (others) {
		fleet_prune(r, pruned.n, pruned.bytes, answer_pruned);
	} else if (b->dry_run) {
		end_pruned(r, pruned.bytes);
		answer(r, 200, "application/json");
	} else {
		answer_pruned(r, pruned.bytes);
	}
}

/* --- one in a body, which is not routed to the host of the fleet that has it ----------------- */

bool checkpoint_is_id(struct request *r, const struct json_text *id)
{
	if (id_valid(CHECKPOINT_ID_PREFIX, id->p, id->len))
		return true;
	answer_error(r, 400, "bad_request",
		     "checkpoint must be chk_ and 32 hexadecimal digits, not \"%s\"", id->p);
	return false;
}

bool checkpoint_is_good(struct request *r, const struct json_text *id)
{
	const struct fleet_host *host;

	if (!checkpoint_is_id(r, id))
		return false;
	if (r->api->peers && peers_is_elsewhere(r->api->peers, id->p, &host)) {
		answer_error(r, 404, "not_found",
			     "checkpoint %s is on another host of the fleet, where POST "
			     "/v1/checkpoints/%s/fork starts sandboxes from it",
			     id->p, id->p);
		return false;
	}
	return true;
}

/* --- start from one ------------------------------------------------------------------------- */

static void add_child(struct text *t, const char *id, const char *error)
{
	if (id) {
		text_printf(t, "{\"id\":\"%s\"}", id);
		return;
	}
	text_puts(t, "{\"error\":{\"code\":\"vm_failed\",\"message\":");
	json_string(t, error, strlen(error));
	text_puts(t, "}}");
}

void text_started(struct text *t, const struct service_forked *forked)
{
	text_puts(t, "{\"children\":[");
	for (unsigned i = 0; i < forked->n; i++) {
		if (i)
			text_putc(t, ',');
		add_child(t, forked->ids[i], forked->errors[i]);
	}
	text_printf(t, "],\"ready_us\":%llu}\n", (unsigned long long)forked->ready_us);
}

static void on_started(void *arg, const struct service_forked *forked, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	for (unsigned i = 0; i < forked->n; i++)
		if (forked->ids[i])
			trace_child(r, forked->ids[i]);
	text_started(&r->out, forked);
	answer(r, 200, "application/json");
}

void serve_fork_from(struct request *r, const struct fork_body *b)
{
	struct fork_spec spec;
	char labels[LABELS_JSON_MAX];

	if (!fork_spec_read(r, b, labels, &spec))
		return;
	request_ref(r);
	r->op = service_fork_from(r->service, r->tenant, r->id, &spec, on_started, r);
}

/* --- rollback ------------------------------------------------------------------------------- */

static void on_rolled_back(void *arg, const char *to, const char *kept, const struct failure *f)
{
	struct request *r = arg;

	if (!request_called_well(r, f))
		return;
	text_printf(&r->out, "{\"id\":\"%s\",\"checkpoint\":\"%s\"", r->id, to);
	json_member(&r->out, "kept", kept);
	text_puts(&r->out, "}\n");
	answer(r, 200, "application/json");
}

void serve_rollback(struct request *r, const struct rollback_body *b)
{
	if (!checkpoint_is_good(r, &b->checkpoint))
		return;
	request_ref(r);
	r->op = service_rollback(r->service, r->tenant, r->id, b->checkpoint.p, b->keep.p,
				 on_rolled_back, r);
}

void serve_undo(struct request *r, const struct undo_body *b)
{
	request_ref(r);
	r->op = service_undo(r->service, r->tenant, r->id, b->n, b->keep.p, on_rolled_back, r);
}
