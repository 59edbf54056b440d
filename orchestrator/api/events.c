// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/handler.h"
#include "orchestrator/exec/bundle.h"
#include "orchestrator/json/json.h"

static void add_error(struct text *t, const struct event *ev)
{
	text_puts(t, "{\"type\":\"error\",\"data\":");
	json_string(t, ev->data, ev->len);
	text_puts(t, ",\"code\":");
	json_string(t, ev->code, strlen(ev->code));
}

static void add_output(struct text *t, const struct event *ev)
{
	text_puts(t, ev->type == EVENT_STDOUT ? "{\"type\":\"stdout\",\"data\":"
					      : "{\"type\":\"stderr\",\"data\":");
	if (!json_string(t, ev->data, ev->len)) {
		text_puts(t, ",\"data_b64\":");
		json_base64(t, ev->data, ev->len);
	}
	if (ev->partial)
		text_puts(t, ",\"partial\":true");
}

#define EVENT_DEPTH 2 /* an entry is in `mime`, in the event */

static void add_entry(struct text *t, const struct bundle_entry *entry)
{
	if (entry->kind == AGENT_BUNDLE_BYTES)
		json_base64(t, entry->data, entry->len);
	else if (entry->kind == AGENT_BUNDLE_JSON &&
		 json_is_value((const char *)entry->data, entry->len, EVENT_DEPTH))
		json_value(t, entry->data, entry->len);
	else
		json_string(t, entry->data, entry->len);
}

/* Adds the entries of a bundle as members of an object. */
static void add_entries(struct text *t, const struct event *ev)
{
	struct wire w = wire_from(ev->data, ev->len);
	struct bundle_entry entry;

	for (bool first = true; bundle_next(&w, &entry); first = false) {
		if (!first)
			text_putc(t, ',');
		json_string(t, entry.name, entry.name_len);
		text_putc(t, ':');
		add_entry(t, &entry);
	}
}

/* `data` is there because clients expect it in every event. */
static void add_result(struct text *t, const struct event *ev)
{
	text_puts(t, "{\"type\":\"result\",\"data\":\"\",\"mime\":{");
	add_entries(t, ev);
	text_puts(t, ev->main ? "},\"main\":true" : "},\"main\":false");
}

static void add_field(struct text *t, const struct event *ev, const char *name)
{
	struct wire w = wire_from(ev->data, ev->len);
	struct bundle_entry entry;

	text_puts(t, ",\"");
	text_puts(t, name);
	text_puts(t, "\":");
	while (bundle_next(&w, &entry))
		if (entry.name_len == strlen(name) &&
		    memcmp(entry.name, name, entry.name_len) == 0) {
			json_string(t, entry.data, entry.len);
			return;
		}
	text_puts(t, "\"\"");
}

static void add_fault(struct text *t, const struct event *ev)
{
	text_puts(t, "{\"type\":\"error\",\"data\":\"\"");
	add_field(t, ev, "name");
	add_field(t, ev, "value");
	add_field(t, ev, "traceback");
}

void event_line(struct text *t, const struct event *ev, const char *traceparent)
{
	if (ev->type == EVENT_EXIT) {
		text_puts(t, "{\"type\":\"exit\",\"data\":");
		text_number(t, ev->exit_code);
	} else if (ev->type == EVENT_ERROR) {
		add_error(t, ev);
	} else if (ev->type == EVENT_RESULT) {
		add_result(t, ev);
	} else if (ev->type == EVENT_FAULT) {
		add_fault(t, ev);
	} else {
		add_output(t, ev);
	}
	text_puts(t, ",\"seq\":");
	text_number(t, (int64_t)ev->seq);
	text_puts(t, ",\"ts\":");
	text_number(t, ev->ts_ms);
	if (ev->context) {
		text_puts(t, ",\"context\":");
		json_string(t, ev->context, strlen(ev->context));
	}
	if (traceparent && *traceparent) {
		text_puts(t, ",\"traceparent\":");
		json_string(t, traceparent, strlen(traceparent));
	}
	text_puts(t, "}\n");
}
