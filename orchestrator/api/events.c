// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/internal.h"

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

void event_line(struct text *t, const struct event *ev, const char *traceparent)
{
	if (ev->type == EVENT_EXIT) {
		text_puts(t, "{\"type\":\"exit\",\"data\":");
		text_number(t, ev->exit_code);
	} else if (ev->type == EVENT_ERROR) {
		add_error(t, ev);
	} else {
		add_output(t, ev);
	}
	text_puts(t, ",\"seq\":");
	text_number(t, (int64_t)ev->seq);
	text_puts(t, ",\"ts\":");
	text_number(t, ev->ts_ms);
	if (traceparent && *traceparent) {
		text_puts(t, ",\"traceparent\":");
		json_string(t, traceparent, strlen(traceparent));
	}
	text_puts(t, "}\n");
}
