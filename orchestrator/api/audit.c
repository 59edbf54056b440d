// SPDX-License-Identifier: Apache-2.0
/* The audit log: events of sandboxes and keys, as a stream. */
#include "orchestrator/api/handler.h"

static void on_event(void *arg, const char *line, size_t len)
{
	struct request *r = arg;

	text_add(&r->out, line, len);
	text_putc(&r->out, '\n');
	stream_touch(r);
	stream_hold(r);
}

static void on_ended(void *arg, const struct failure *f)
{
	struct request *r = arg;

	if (f ? stream_called_late(r, f) : request_called(r))
		stream_end(r, f != NULL);
}

void serve_events(struct request *r)
{
	struct event_query query = {.since = UINT64_MAX};
	struct failure f;

	if (!ask_number(r, "since", &query.since) || !ask_flag(r, "follow", &query.follow) ||
	    !answer_may_be_long(r))
		return;
	if (request_is_head(r)) {
		answer_head(r, 200, "application/x-ndjson", SIZE_MAX);
		return;
	}
	query.from_now = query.follow && query.since == UINT64_MAX;
	if (query.since == UINT64_MAX)
		query.since = 0;
	r->op = service_events(r->service, guard_is_operator(r) ? NULL : r->tenant, &query,
			       on_event, on_ended, r, &f);
	if (!r->op) {
		answer_failure(r, &f);
		return;
	}
	request_ref(r);
	if (query.follow) { /* an empty line, so that the head is sent at once */
		r->streaming = true;
		text_putc(&r->out, '\n');
		stream_touch(r);
	}
}
