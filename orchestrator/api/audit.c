// SPDX-License-Identifier: Apache-2.0
/* The audit log: events of sandboxes and keys, as a stream. */
#include <errno.h>

#include "base/alloc.h"
#include "orchestrator/api/event-merge.h"
#include "orchestrator/api/fleet-events.h"
#include "orchestrator/api/internal.h"
#include "orchestrator/events/line.h"
#include "orchestrator/http/dispatch.h"
#include "orchestrator/json/cursor.h"
#include "orchestrator/json/query.h"

static void on_event(void *arg, const struct logged_event *event)
{
	struct request *r = arg;

	text_add(&r->out, event->line, event->len);
	text_putc(&r->out, '\n');
	stream_touch(r);
	stream_hold(r);
}

/* --- the query ------------------------------------------------------------------------------ */

static bool has_parameter(const struct request *r, const char *name)
{
	const h2o_iovec_t url = r->req->input.path;
	char text[CURSOR_TEXT_MAX + 1];
	struct err e;

	return query_text(url.base, url.len, name, text, sizeof(text), &e) != -ENOENT;
}

/* Returns whether all hosts are asked. Numbers and new events are those of one host. */
static bool is_over_fleet(const struct request *r, const struct event_query *q)
{
	return r->api->peers && !http_is_from_peer(r->req) && !q->follow &&
	       !has_parameter(r, "since");
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
	if (has_parameter(r, "cursor") && !is_over_fleet(r, q) && !http_is_from_peer(r->req))
		return bad_request(r, "cursor is for the events of all hosts of a fleet, without "
				      "since and follow");
	q->from_now = q->follow && since == UINT64_MAX;
	q->since = since == UINT64_MAX ? 0 : since;
	return true;
}

static bool read_events(struct request *r, const struct event_query *q, service_event_fn *fn,
			service_done_fn *ended, struct failure *f)
{
	r->op = service_events(r->service, guard_is_operator(r) ? NULL : r->tenant, q, fn, ended, r,
			       f);
	if (r->op)
		request_ref(r);
	return r->op;
}

/* Completes a query for the events after a position. Returns false with *f filled. */
static bool query_from(struct request *r, const struct event_position *at, struct event_query *q,
		       struct failure *f)
{
	uint64_t n = at->n;

	if (q->newest_first) {
		if (!n && !service_events_later(r->service, at->at_ms - 1, &n, f))
			return false;
		q->before = n;
		return true;
	}
	if (!n) {
		if (!service_events_later(r->service, at->at_ms, &n, f))
			return false;
		n--;
	}
	q->since = n;
	return true;
}

bool events_read_from(struct request *r, const struct event_position *at, struct event_query *q,
		      service_event_fn *fn, service_done_fn *ended, struct failure *f)
{
	return query_from(r, at, q, f) && read_events(r, q, fn, ended, f);
}

/* --- for another host of the fleet ----------------------------------------------------------- */

struct events_part {
	size_t n, limit;
	uint64_t last; /* number of the last event in the part */
	bool full;
};

static void on_part_event(void *arg, const struct logged_event *event)
{
	struct request *r = arg;
	struct events_part *p = r->state;
	struct audit_line head;

	p->full |= p->n && r->out.len + event->len > EVENTS_PART_SIZE;
	if (p->full || !audit_line_parse(&head, event->line, event->len))
		return;
	event_part_write(&r->out, event);
	p->last = event->n;
	p->n++;
}

/* Tells the other host whether more events follow: the number in the cursor is then not 0. */
static void on_part_ended(void *arg, const struct failure *f)
{
	struct request *r = arg;
	const struct events_part *p = r->state;
	struct event_position next = {0};
	uint8_t key[EVENT_KEY_LEN];

	if (!request_called_well(r, f))
		return;
	if (p->full || p->n == p->limit)
		next.n = p->last;
	event_key_write(key, &next);
	answer_next(r, EVENT_LETTER, key, sizeof(key));
	answer(r, 200, "application/x-ndjson");
}

/* Returns false when the request has no position. */
static bool serve_part(struct request *r, struct event_query *q)
{
	uint8_t key[EVENT_KEY_LEN];
	struct event_position at;
	struct failure f;
	int len = ask_cursor(r, EVENT_LETTER, key, sizeof(key), sizeof(key));

	if (len <= 0)
		return len < 0;
	if (!event_key_read(&at, key))
		return !bad_request(
			r, "cursor has a time that no event can have: use a value of the header "
			   "ramet-next-cursor");
	struct events_part *p = r->state = must_alloc(sizeof(*p));
	p->limit = q->limit = q->limit && q->limit < PAGE_MAX ? q->limit : PAGE_MAX;
	if (!events_read_from(r, &at, q, on_part_event, on_part_ended, &f))
		answer_failure(r, &f);
	return true;
}

/* --- start ---------------------------------------------------------------------------------- */

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
	if (is_over_fleet(r, &query)) {
		fleet_events_serve(r, &query);
		return;
	}
	if (http_is_from_peer(r->req) && serve_part(r, &query))
		return;
	if (!read_events(r, &query, on_event, stream_ended, &f)) {
		answer_failure(r, &f);
		return;
	}
	if (query.follow) { /* an empty line, so that the head is sent at once */
		r->streaming = true;
		text_putc(&r->out, '\n');
		stream_touch(r);
	}
}
