// SPDX-License-Identifier: Apache-2.0
/*
 * The audit log of all hosts of a fleet, in the order of time. In each turn of the merge, every
 * host is asked for its events behind the last position. A page is one turn, since its head has the
 * cursor and the hosts that are missing.
 */
#include "orchestrator/api/fleet-events.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "orchestrator/api/event-merge.h"
#include "orchestrator/api/fleet-list.h"
#include "orchestrator/api/page-key.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/json/query.h"
#include "orchestrator/peers/peers.h"

#define CHUNK_SIZE (64u << 10) /* bytes of a longer answer that are sent at a time */
#define TURN_MS	   5000	       /* after which no more hosts are asked */

struct fleet_events {
	struct fleet_list list;
	struct event_merge merge;
	struct event_part own; /* of this host */
	struct fleet_round round;
	bool is_page;	  /* the answer is one turn, with a cursor */
	bool from_cursor; /* the answer begins behind the event of a cursor */
	bool sending;	  /* a chunk that the client has not taken yet */
	struct loop_timer turn;
};

static struct fleet_events *events_of(const struct request *r)
{
	return r->state;
}

static const struct fleet_table *table_of(const struct request *r)
{
	return member_table(service_member(r->service));
}

/* --- parts ---------------------------------------------------------------------------------- */

/* Reads whether more events follow the part. Returns false if the part does not say, as one from a
 * host with an older version, which does not know positions. */
static bool read_next(const struct peers_part *part, bool *more)
{
	uint8_t key[EVENT_KEY_LEN];
	struct event_position next;
	struct err e;

	if (cursor_read(part->next, EVENT_LETTER, key, sizeof(key), &e) != (int)sizeof(key) ||
	    !event_key_read(&next, key))
		return false;
	*more = next.n;
	return true;
}

static bool take(struct request *r, uint32_t number, const struct peers_part *part)
{
	bool more;

	return read_next(part, &more) &&
	       event_merge_take(&events_of(r)->merge, number, part->len ? part->body : "",
				part->len, more);
}

/* --- the answer ----------------------------------------------------------------------------- */

static void begin_turn(struct request *r);

static void answer_place(struct request *r)
{
	const struct event_moment *after = &events_of(r)->merge.after;
	const struct fleet_place place = {table_of(r)->cell, after->host};
	const struct event_position at = {after->at_ms, after->n};
	uint8_t key[FLEET_EVENT_KEY_LEN];

	fleet_event_key_write(key, member_keys(service_member(r->service)), place, &at);
	answer_next(r, EVENT_FLEET_LETTER, key, sizeof(key));
}

static void end(struct request *r, bool more)
{
	if (r->started) {
		stream_end(r, false);
		return;
	}
	if (!answer_has_room(r, r->out.len))
		return;
	if (more && events_of(r)->is_page)
		answer_place(r);
	fleet_list_answer(&events_of(r)->list);
	answer(r, 200, "application/x-ndjson");
}

/* Ends an answer that is not complete, but cannot go on. */
static void end_broken(struct request *r)
{
	struct failure f;

	if (r->started || r->out.len) {
		stream_end(r, true);
		return;
	}
	if (events_of(r)->from_cursor) { /* one that a client has changed, if not the log */
		answer_error(r, 400, "bad_request", BAD_FLEET_CURSOR);
		return;
	}
	failure_set(&f, FAIL_CATALOGUE, 0,
		    "the next event of the audit log can't be read, nor any after it");
	answer_failure(r, &f);
}

static void send_chunk(struct request *r)
{
	events_of(r)->sending = true;
	if (!r->started)
		fleet_list_answer(&events_of(r)->list);
	stream_touch(r);
}

static void on_turn(void *arg)
{
	begin_turn(arg);
}

static void taken(struct request *r)
{
	if (!events_of(r)->sending || r->ended)
		return;
	events_of(r)->sending = false;
	loop_timer_start(r->loop, &events_of(r)->turn, on_turn, r, 0);
}

static void end_turn(struct request *r)
{
	struct fleet_events *w = events_of(r);
	bool more;

	request_leave_call(r);
	const bool any = event_merge_write(&w->merge, &r->out, &more) > 0;
	if (more && !any)
		end_broken(r);
	else if (!more || !w->merge.left || w->is_page)
		end(r, more);
	else if (r->out.len >= CHUNK_SIZE)
		send_chunk(r);
	else
		loop_timer_start(r->loop, &w->turn, on_turn, r, 0);
}

/* --- questions ------------------------------------------------------------------------------ */

static void go_on(struct request *r)
{
	fleet_round_go_on(&events_of(r)->list, &events_of(r)->round);
}

static bool ask(struct request *r, const struct fleet_host *host)
{
	const struct event_merge *m = &events_of(r)->merge;
	const struct event_position from = event_merge_from(m, host->number);
	const size_t wanted = event_merge_wanted(m);
	char cursor[CURSOR_TEXT_MAX + 1];
	uint8_t key[EVENT_KEY_LEN];
	struct text path = {0};

	event_key_write(key, &from);
	cursor_write(cursor, EVENT_LETTER, key, sizeof(key));
	text_printf(&path, "%s?limit=%zu&cursor=%s%s", r->route->pattern, wanted, cursor,
		    m->newest_first ? "&newest_first=1" : "");
	const bool asked = peers_ask(r->api->peers, r, host, &path, wanted, go_on);
	text_free(&path);
	return asked;
}

static void on_own(void *arg, const struct logged_event *event)
{
	struct fleet_events *w = events_of(arg);

	event_part_add(&w->merge, &w->own, event);
}

static void on_own_end(void *arg, const struct failure *f)
{
	struct request *r = arg;
	struct fleet_events *w = events_of(r);

	if (f) {
		if (stream_called_late(r, f))
			stream_end(r, true);
		return;
	}
	if (!request_called(r))
		return;
	if (w->own.bad) {
		end_broken(r);
		return;
	}
	w->own.more |= w->own.n == event_merge_wanted(&w->merge);
	event_part_end(&w->merge, &w->own);
	fleet_round_begin(&w->list, &w->round);
}

/* Reads the events of this host first. */
static void begin_turn(struct request *r)
{
	struct fleet_events *w = events_of(r);
	const uint32_t self = table_of(r)->self->number;
	const struct event_position from = event_merge_from(&w->merge, self);
	struct event_query q = {.newest_first = w->merge.newest_first,
				.limit = event_merge_wanted(&w->merge)};
	struct failure f;

	w->own = event_part_begin(&w->merge, self);
	request_leave_call(r);
	if (!events_read_from(r, &from, &q, on_own, on_own_end, &f))
		request_fail(r, &f);
}

/* --- start ---------------------------------------------------------------------------------- */

static void stop(struct request *r)
{
	loop_timer_clear(r->loop, &events_of(r)->turn);
}

static void free_events(struct request *r)
{
	event_merge_drop(&events_of(r)->merge);
	fleet_list_end(&events_of(r)->list);
}

static const struct request_ops ops = {.taken = taken, .gone = stop, .free = free_events};

static bool ask_place(struct request *r, struct fleet_events *w)
{
	uint8_t key[FLEET_EVENT_KEY_LEN];
	struct event_position at;
	struct fleet_place place;
	int len = ask_cursor(r, EVENT_FLEET_LETTER, key, sizeof(key), sizeof(key));

	if (len <= 0)
		return len == 0;
	if (!fleet_event_key_read(&place, &at, member_keys(service_member(r->service)), key) ||
	    place.cell != table_of(r)->cell)
		return bad_request(r, BAD_FLEET_CURSOR);
	w->from_cursor = true;
	w->merge.is_begun = true;
	w->merge.after = (struct event_moment){at.at_ms, place.host, at.n};
	return true;
}

void fleet_events_serve(struct request *r, const struct event_query *q)
{
	struct fleet_events *w = must_alloc(sizeof(*w));

	w->merge.newest_first = q->newest_first;
	w->merge.left = q->limit ? q->limit : UINT64_MAX;
	w->is_page = w->merge.left <= PAGE_MAX;
	w->round = (struct fleet_round){
		.ask = ask, .take = take, .over = end_turn, .limit_ms = TURN_MS};
	r->state = w;
	r->ops = &ops;
	if (fleet_list_begin(&w->list, r) && ask_place(r, w))
		begin_turn(r);
}
