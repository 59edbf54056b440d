// SPDX-License-Identifier: Apache-2.0
/* Contexts of a sandbox: further interpreters. */
#include <string.h>

#include "base/fd.h"
#include "orchestrator/api/handler.h"
#include "orchestrator/exec/exec.h"
#include "orchestrator/guestops/guestops.h"

static const char *const languages[] = {
	[AGENT_PYTHON] = "python", [AGENT_BASH] = "bash", [AGENT_JAVASCRIPT] = "javascript"};

static void add_context(struct text *t, const struct context_view *x)
{
	text_printf(t, "{\"id\":\"%s\",\"language\":\"%s\",\"cwd\":", x->id,
		    languages[x->language]);
	if (x->cwd_len)
		json_string(t, x->cwd, x->cwd_len);
	else
		text_puts(t, "null");
	json_member_bool(t, "busy", x->busy);
	json_member_time(t, "started_at", x->started_at_ms);
	text_putc(t, '}');
}

/* --- start ---------------------------------------------------------------------------------- */

static void on_made(void *arg, const struct context_view *x)
{
	struct request *r = arg;

	add_context(&r->out, x);
	text_putc(&r->out, '\n');
}

static const struct context_list_sink start_sink = {.context = on_made, .ended = request_done_201};

void serve_context_start(struct request *r, const struct context_start_body *b)
{
	struct context_spec spec = {.cwd = b->cwd.len ? b->cwd.p : NULL,
				    .env = (const char *const *)b->env};

	for (size_t i = 0; b->language.p && i < ARRAY_LEN(languages); i++)
		if (strcmp(b->language.p, languages[i]) == 0)
			spec.language = (enum agent_language)i;
	request_ref(r);
	r->op = service_context_start(r->service, r->tenant, r->id, &spec, &start_sink, r);
}

/* --- list and one --------------------------------------------------------------------------- */

static void on_context(void *arg, const struct context_view *x)
{
	struct request *r = arg;

	text_putc(&r->out, r->out.len ? ',' : '[');
	add_context(&r->out, x);
}

static const struct context_list_sink list_sink = {.context = on_context, .ended = request_listed};

static void on_one(void *arg, const struct context_view *x)
{
	struct request *r = arg;

	if (!r->out.len && strcmp(x->id, r->other) == 0)
		add_context(&r->out, x);
}

static void on_one_end(void *arg, const struct failure *f)
{
	struct request *r = arg;
	struct failure missing;

	if (!request_called_well(r, f))
		return;
	if (!r->out.len) {
		failure_set(&missing, FAIL_NO_SUCH_CONTEXT, 0,
			    "there is no context %s in this sandbox", r->other);
		answer_failure(r, &missing);
		return;
	}
	text_putc(&r->out, '\n');
	answer(r, 200, "application/json");
}

static const struct context_list_sink one_sink = {.context = on_one, .ended = on_one_end};

static void list(struct request *r, const struct context_list_sink *sink)
{
	if (!answer_may_be_long(r))
		return;
	request_ref(r);
	r->op = service_context_list(r->service, r->tenant, r->id, sink, r);
}

void serve_contexts(struct request *r)
{
	list(r, &list_sink);
}

void serve_context(struct request *r)
{
	list(r, &one_sink);
}

/* --- restart, interrupt, delete ------------------------------------------------------------- */

static void change(struct request *r, enum agent_request type)
{
	request_ref(r);
	r->op = service_context_do(r->service, r->tenant, r->id, type, r->other, request_done, r);
}

void serve_context_restart(struct request *r)
{
	change(r, AGENT_CONTEXT_RESTART);
}

void serve_context_interrupt(struct request *r)
{
	request_ref(r);
	r->op = service_interrupt(r->service, r->tenant, r->id, r->other, request_done, r);
}

void serve_context_delete(struct request *r)
{
	change(r, AGENT_CONTEXT_END);
}
