// SPDX-License-Identifier: Apache-2.0
/* Spaces of the fake core: sandboxes on another list. */
#include <inttypes.h>
#include <stdlib.h>

#include "orchestrator/snapshot/snapshots.h"
#include "test/api/fake_call.h"

static struct sandbox *find(struct core *c, const char *id)
{
	list_each (pos, &c->spaces) {
		struct sandbox *s = container_of(pos, struct sandbox, link);

		if (strcmp(s->space, id) == 0)
			return s;
	}
	return NULL;
}

static void frozen_failed(struct core_call *call)
{
	call->id_fn(call->arg, NULL, &call->failure);
}

static void frozen_run(struct core_call *call)
{
	struct sandbox *s = call->sandbox;

	snprintf(s->space, sizeof(s->space), "spc_%032" PRIx64, ++call->core->next_id);
	list_del(&s->link);
	list_add_tail(&call->core->spaces, &s->link);
	call->core->stats.sandboxes--;
	call->id_fn(call->arg, s->space, NULL);
	call_free(call);
}

struct core_call *core_freeze(struct core *c, const char *tenant, const char *id, core_id_fn *fn,
			      void *arg)
{
	struct core_call *call = call_on(c, OP, id, arg);

	call->id_fn = fn;
	call->run = frozen_run;
	call->on_failed = frozen_failed;
	call->held = !call->failing && strcmp(call->sandbox->spec.config.template, "drowsy") == 0;
	return call;
}

/* Makes the Space a sandbox with a new id. */
static void resumed_run(struct core_call *call)
{
	struct sandbox *s = call->sandbox;
	struct sandbox_view view = {.state = "ready"};

	snprintf(s->id, sizeof(s->id), "sbx_%032" PRIx64, ++call->core->next_id);
	s->space[0] = 0;
	list_del(&s->link);
	list_add_tail(&call->core->sandboxes, &s->link);
	call->core->stats.sandboxes++;
	memcpy(view.id, s->id, sizeof(view.id));
	call->created(call->arg, &view, NULL);
	call_free(call);
}

static void resumed_failed(struct core_call *call)
{
	call->created(call->arg, NULL, &call->failure);
}

struct core_call *core_space_resume(struct core *c, const char *tenant, const char *id,
				    const struct space_resume *how, core_create_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, OP, arg);
	struct sandbox *s = find(c, id);

	call->created = fn;
	call->run = resumed_run;
	call->on_failed = resumed_failed;
	call->sandbox = s;
	if (!s) {
		fail(call, FAIL_NOT_FOUND, "there is no such space");
	} else if (strcmp(s->spec.config.template, "rotten") == 0) {
		fail(call, FAIL_SPACE_DAMAGED, "its checksum is not right");
	} else if (how->egress == CHANGE_TRUE && !s->spec.config.egress) {
		fail(call, FAIL_EGRESS_CLOSED, "it was closed");
	} else {
		s->spec.config.persistent = how->persistent;
		s->spec.config.egress = s->spec.config.egress && how->egress != CHANGE_FALSE;
		s->spec.config.timeout_s = how->timeout_s;
		s->spec.config.idle_timeout_s = how->idle_timeout_s;
		call->held = strcmp(s->spec.config.template, "sleepy") == 0;
	}
	return call;
}

struct core_call *core_space_delete(struct core *c, const char *tenant, const char *id,
				    core_done_fn *fn, void *arg)
{
	struct core_call *call = call_new(c, DONE, arg);
	struct sandbox *s = find(c, id);

	call->done = fn;
	if (!s) {
		fail(call, FAIL_NOT_FOUND, "there is no such space");
		return call;
	}
	list_del(&s->link);
	free(s->metadata);
	free(s);
	return call;
}

void fake_space_view(const struct sandbox *s, struct space_view *v)
{
	bool rotten = strcmp(s->spec.config.template, "rotten") == 0;

	*v = (struct space_view){.state = rotten ? "damaged" : "frozen",
				 .damage = rotten ? "disk-1: \"bad\"" : NULL,
				 .sandbox = s->id,
				 .config = {.size = {2, 512, 4},
					    .timeout_s = s->spec.config.timeout_s,
					    .idle_timeout_s = 30,
					    .egress = s->spec.config.egress},
				 .created_at_ms = 1700000000123,
				 .size_bytes = 5u << 30 >> 8,
				 .metadata = s->metadata};
	memcpy(v->config.template, s->spec.config.template, sizeof(v->config.template));
	memcpy(v->id, s->space, sizeof(v->id));
}

bool core_space_view(struct core *c, const char *tenant, const char *id, struct space_view *view,
		     struct failure *f)
{
	const struct sandbox *s = find(c, id);

	if (s) {
		fake_space_view(s, view);
		return true;
	}
	failure_set(f, FAIL_NOT_FOUND, 0, "there is no space %s", id);
	return false;
}
