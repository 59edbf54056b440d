// SPDX-License-Identifier: Apache-2.0
/* A watch of files in a sandbox: a stream of events until the client leaves. */
#include "orchestrator/api/handler.h"
#include "orchestrator/guestops/guestops.h"

static const char *const types[] = {
	[AGENT_WATCHING] = "watching", [AGENT_CREATED] = "create", [AGENT_WRITTEN] = "write",
	[AGENT_REMOVED] = "remove",    [AGENT_RENAMED] = "rename", [AGENT_ATTRIBUTES] = "chmod",
	[AGENT_OVERFLOW] = "overflow",
};

static void on_event(void *arg, const struct watch_event *event)
{
	struct request *r = arg;

	r->streaming = true;
	text_printf(&r->out, "{\"type\":\"%s\",", types[event->type]);
	add_name(&r->out, "path", event->path, event->path_len);
	if (event->to_len) {
		text_putc(&r->out, ',');
		add_name(&r->out, "to", event->to, event->to_len);
	}
	if (event->type != AGENT_WATCHING && event->type != AGENT_OVERFLOW)
		text_puts(&r->out, event->folder ? ",\"directory\":true" : ",\"directory\":false");
	text_puts(&r->out, "}\n");
	stream_touch(r);
	stream_hold(r);
}

void text_failed(struct text *t, const char *type, const char *key, const struct failure *f)
{
	text_printf(t, "{\"type\":\"%s\"", type);
	json_member(t, key, f->text);
	json_member(t, "code", failure_code_name(f->code));
}

static void on_ended(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (f ? !stream_called_late(r, f) : !request_called(r))
		return;
	if (f) {
		text_failed(&r->out, "error", "message", f);
		text_puts(&r->out, "}\n");
	}
	stream_end(r, f != NULL);
}

static const struct watch_sink sink = {on_event, on_ended};

void serve_watch(struct request *r)
{
	char path[AGENT_PATH_MAX + 1];
	bool recursive = false;

	if (!ask_path(r, path) || !ask_flag(r, "recursive", &recursive) || stream_is_head(r))
		return;
	request_ref(r);
	r->op = service_file_watch(r->service, r->tenant, r->id, path, recursive, &sink, r);
}
