// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdlib.h>

#include "orchestrator/guestops/guestops.h"
#include "test/api/fake_call.h"

#define CONTEXTS_MAX 3

struct fake_context {
	struct list link;
	struct context_view view;
	char cwd[AGENT_PATH_MAX + 1];
};

static struct fake_context *find(const struct core *c, const char *id)
{
	list_each (pos, &c->contexts) {
		struct fake_context *x = container_of(pos, struct fake_context, link);

		if (strcmp(x->view.id, id) == 0)
			return x;
	}
	return NULL;
}

bool fake_context_is(const struct core *c, const char *id)
{
	return find(c, id) != NULL;
}

static void context_free(struct fake_context *x)
{
	list_del(&x->link);
	free(x);
}

void fake_contexts_free(struct core *c)
{
	while (!list_empty(&c->contexts))
		context_free(container_of(c->contexts.next, struct fake_context, link));
}

/* --- start --- */

static void list_failed(struct core_call *call)
{
	call->contexts.ended(call->arg, &call->failure);
}

static void start_run(struct core_call *call)
{
	call->contexts.context(call->arg, &find(call->core, call->path)->view);
	call->contexts.ended(call->arg, NULL);
	call_free(call);
}

struct core_call *core_context_start(struct core *c, const char *tenant, const char *id,
				     const struct context_spec *spec,
				     const struct context_list_sink *sink, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->contexts = *sink;
	call->run = start_run;
	call->on_failed = list_failed;
	if (call->failing)
		return call;
	if (spec->language == AGENT_JAVASCRIPT)
		fail(call, FAIL_NOT_INSTALLED, "JavaScript is not installed in this sandbox");
	else if (spec->cwd && strcmp(spec->cwd, "/nosuch") == 0)
		fail(call, FAIL_BAD_PATH, "enter the folder /nosuch: No such file or directory");
	else if (list_count(&c->contexts) == CONTEXTS_MAX)
		fail(call, FAIL_TOO_MANY, "there are too many contexts");
	if (call->failing)
		return call;
	struct fake_context *x = calloc(1, sizeof(*x));
	snprintf(x->view.id, sizeof(x->view.id), "ctx_%032" PRIx64, ++c->next_id);
	snprintf(x->cwd, sizeof(x->cwd), "%s", spec->cwd ? spec->cwd : "");
	x->view.language = spec->language;
	x->view.started_at_ms = 1700000000123;
	x->view.cwd = x->cwd;
	x->view.cwd_len = strlen(x->cwd);
	list_add_tail(&c->contexts, &x->link);
	strcpy(call->path, x->view.id);
	return call;
}

/* --- others --- */

static void done_failed(struct core_call *call)
{
	call->done(call->arg, &call->failure);
}

static void done_run(struct core_call *call)
{
	call->done(call->arg, NULL);
	call_free(call);
}

static struct core_call *done_call(struct core *c, const char *id, const char *context,
				   core_done_fn *fn, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->done = fn;
	call->run = done_run;
	call->on_failed = done_failed;
	if (!call->failing && !find(c, context))
		fail(call, FAIL_NO_SUCH_CONTEXT, "there is no such context");
	return call;
}

struct core_call *core_context_restart(struct core *c, const char *tenant, const char *id,
				       const char *context, core_done_fn *fn, void *arg)
{
	return done_call(c, id, context, fn, arg);
}

struct core_call *core_context_end(struct core *c, const char *tenant, const char *id,
				   const char *context, core_done_fn *fn, void *arg)
{
	struct core_call *call = done_call(c, id, context, fn, arg);

	if (!call->failing)
		context_free(find(c, context));
	return call;
}

static void list_run(struct core_call *call)
{
	list_each (pos, &call->core->contexts)
		call->contexts.context(call->arg,
				       &container_of(pos, struct fake_context, link)->view);
	call->contexts.ended(call->arg, NULL);
	call_free(call);
}

struct core_call *core_context_list(struct core *c, const char *tenant, const char *id,
				    const struct context_list_sink *sink, void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->contexts = *sink;
	call->run = list_run;
	call->on_failed = list_failed;
	return call;
}
