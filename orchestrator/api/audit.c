// SPDX-License-Identifier: Apache-2.0
/* The audit log: events of sandboxes and keys, as a stream. */
#include "orchestrator/api/handler.h"
#include "orchestrator/json/query.h"

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

/* Reads the query. Returns false, with an answer given, when it is invalid. */
static bool ask_query(struct request *r, struct event_query *q)
{
	uint64_t since = UINT64_MAX;

	*q = (struct event_query){0};
	if (!ask_number(r, "since", 0, &since) || !ask_flag(r, "follow", &q->follow) ||
	    !ask_flag(r, "newest_first", &q->newest_first) || !ask_number(r, "limit", 1, &q->limit))
		return false;
	if (q->follow && q->newest_first)
		return bad_request(
			r, "follow and newest_first cannot be combined: new events come after "
			   "the older ones");
	q->from_now = q->follow && since == UINT64_MAX;
	q->since = since == UINT64_MAX ? 0 : since;
	return true;
}

void serve_events(struct request *r)
{
	struct event_query query;
	struct failure f;

	if (!ask_query(r, &query) || !answer_may_be_long(r))
		return;
	if (request_is_head(r)) {
		answer_head(r, 200, "application/x-ndjson", SIZE_MAX);
		return;
	}
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
