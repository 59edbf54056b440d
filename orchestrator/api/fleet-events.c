// SPDX-License-Identifier: Apache-2.0
/*
 * The audit log of all hosts of a fleet, in the order of time. Each host has its events in the
 * order of their numbers. It is merged in turns: in each, every host is asked for its events behind
 * the last position. Of all that arrive, the first ones are sent, up to the point from which on a
 * host may have more than what has arrived. A page is one turn, since its head has the cursor and
 * the hosts that are missing.
 *
 * A host's clock may be set back: an event then counts as being of the time of the one before it.
 */
#include "orchestrator/api/fleet-events.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/num.h"
#include "orchestrator/api/fleet-list.h"
#include "orchestrator/api/page-key.h"
#include "orchestrator/events/line.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/json/query.h"
#include "orchestrator/peers/peers.h"

#define TURN_SIZE  (256u << 10) /* bytes of a turn */
#define CHUNK_SIZE (64u << 10)	/* bytes of a longer answer that are sent at a time */
#define TURN_MS	   5000		/* after which no more hosts are asked */
#define LINE_DEPTH 0		/* of objects and arrays in an event */

/* Where an event is in the order of all. */
struct moment {
	int64_t at_ms;
	uint32_t host;
	uint64_t n;
};

struct line {
	struct moment at;
	size_t len;
	char *text;
};

/* The events of one host that arrive. */
struct part {
	struct moment last; /* of the part so far */
	size_t n, bytes;
	bool more, bad;
};

struct fleet_events {
	struct fleet_list list;
	bool newest_first;
	uint64_t left; /* events that the answer may still have */
	bool is_page;  /* of one turn, with a cursor */
	bool is_begun; /* `after` is the position behind which it goes on */
	struct moment after;
	/* The present turn: */
	struct line *lines;
	size_t n, room, bytes;
	bool more;    /* events that were left out follow */
	bool bounded; /* events behind `bound` are not known of all hosts */
	struct moment bound;
	struct part own;
	struct fleet_round round;
	bool sending; /* a chunk that the client has not taken yet */
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

/* --- the order ------------------------------------------------------------------------------ */

static int compare(const struct moment *a, const struct moment *b)
{
	if (a->at_ms != b->at_ms)
		return a->at_ms < b->at_ms ? -1 : 1;
	if (a->host != b->host)
		return a->host < b->host ? -1 : 1;
	return a->n == b->n ? 0 : a->n < b->n ? -1 : 1;
}

/* Returns whether `a` comes after `b` in the answer. */
static bool follows(const struct fleet_events *w, const struct moment *a, const struct moment *b)
{
	const int order = compare(a, b);

	return w->newest_first ? order < 0 : order > 0;
}

static int by_moment(const void *a, const void *b, void *arg)
{
	const struct line *one = a, *other = b;
	const int order = compare(&one->at, &other->at);

	return ((const struct fleet_events *)arg)->newest_first ? -order : order;
}

static size_t wanted(const struct fleet_events *w)
{
	return min_u64(w->left, PAGE_MAX);
}

/* Returns the position from which on a host has what follows. */
static struct event_position position_at(const struct fleet_events *w, uint32_t host)
{
	if (!w->is_begun)
		return (struct event_position){.at_ms = w->newest_first ? INT64_MAX - 1 : 0};
	if (host == w->after.host)
		return (struct event_position){w->after.at_ms, w->after.n};
	/* Events of the same time are in the order of the hosts' numbers. */
	if (w->newest_first)
		return (struct event_position){w->after.at_ms + (host < w->after.host), 0};
	return (struct event_position){w->after.at_ms - (host > w->after.host), 0};
}

/* --- gathering ------------------------------------------------------------------------------ */

static void drop_last(struct fleet_events *w)
{
	w->bytes -= w->lines[--w->n].len;
	free(w->lines[w->n].text);
}

static void drop_all(struct fleet_events *w)
{
	while (w->n)
		drop_last(w);
	free(w->lines);
	w->lines = NULL;
	w->room = 0;
	w->more = w->bounded = false;
}

/* Begins a host's part. */
static struct part part_of(const struct fleet_events *w, uint32_t host)
{
	const struct event_position from = position_at(w, host);

	return (struct part){.last = {from.at_ms, host, from.n}};
}

/* Returns the time of the part's next event: not before that of the last one, and behind a position
 * that is only a time. */
static int64_t time_after(const struct fleet_events *w, const struct part *p, int64_t at_ms)
{
	const int64_t last_ms = p->last.at_ms;
	const bool is_time = !p->last.n;

	if (w->newest_first)
		return at_ms < last_ms ? at_ms : last_ms - is_time;
	return at_ms > last_ms ? at_ms : last_ms + is_time;
}

/* Adds a line of a host. */
static void add_line(struct fleet_events *w, struct part *p, const char *text, size_t len)
{
	struct audit_line head;
	const bool back = w->newest_first;

	p->bad |= len >= AUDIT_LINE_MAX; /* no part is too small for the first line */
	if (p->bad || p->n == wanted(w) || p->bytes + len > EVENTS_PART_SIZE) {
		p->more = true;
		return;
	}
	if (!audit_line_parse(&head, text, len) || !head.n ||
	    (p->last.n && (back ? head.n >= p->last.n : head.n <= p->last.n))) {
		p->bad = true;
		return;
	}
	const int64_t at_ms = time_after(w, p, head.at_ms);
	if (at_ms < 1) {
		p->bad = true;
		return;
	}
	p->last = (struct moment){at_ms, p->last.host, head.n};
	p->n++;
	p->bytes += len;
	if (array_grow(&w->lines, &w->room, w->n + 1, sizeof(*w->lines)) < 0)
		abort();
	char *copy = must_alloc(len + 1);
	memcpy(copy, text, len);
	w->lines[w->n++] = (struct line){p->last, len, copy};
	w->bytes += len;
}

/* Notes that events behind `at` are not known of all hosts. */
static void bound(struct fleet_events *w, const struct moment *at)
{
	if (!w->bounded || follows(w, &w->bound, at))
		w->bound = *at;
	w->bounded = w->more = true;
}

static bool is_full(const struct fleet_events *w)
{
	return w->n > wanted(w) || (w->n > 1 && w->bytes > TURN_SIZE);
}

/* Ends a host's part: keeps as many of all lines as the turn can have. */
static void end_part(struct fleet_events *w, const struct part *p)
{
	if (p->more)
		bound(w, &p->last);
	if (w->n)
		qsort_r(w->lines, w->n, sizeof(*w->lines), by_moment, w);
	while (is_full(w)) {
		drop_last(w);
		bound(w, &w->lines[w->n - 1].at);
	}
}

/* Reads whether more events follow the part. Returns false if it does not say so, as that of an
 * older version, which does not know positions. */
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

/* Takes the lines of another host, all or none. Returns false if they are malformed. */
static bool take(struct request *r, uint32_t number, const struct peers_part *part)
{
	struct fleet_events *w = events_of(r);
	struct part p = part_of(w, number);
	const char *at = part->len ? part->body : "", *end = at + part->len;
	const size_t before = w->n;
	bool more = false;

	while (at < end && !p.bad) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const size_t len = newline ? (size_t)(newline - at) : 0;

		p.bad |= !len || !json_is_value(at, len, LINE_DEPTH);
		add_line(w, &p, at, len);
		at += len + 1;
	}
	p.bad |= !read_next(part, &more);
	if (p.bad || (more && !p.n)) {
		while (w->n > before)
			drop_last(w);
		return false;
	}
	p.more |= more;
	end_part(w, &p);
	return true;
}

/* --- the answer ----------------------------------------------------------------------------- */

static void begin_turn(struct request *r);

static void answer_place(struct request *r)
{
	const struct fleet_events *w = events_of(r);
	const struct fleet_place place = {table_of(r)->cell, w->after.host};
	const struct event_position at = {w->after.at_ms, w->after.n};
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

/* Ends an answer that could go on, and has nothing to go on with. */
static void end_broken(struct request *r)
{
	struct failure f;

	if (r->started || r->out.len) {
		stream_end(r, true);
		return;
	}
	failure_set(&f, FAIL_CATALOGUE, 0,
		    "the audit log has an event that can't be read, before all that can");
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

/* Adds the lines that are certain to be next. */
static void add_known(struct request *r)
{
	struct fleet_events *w = events_of(r);

	while (w->bounded && w->n && follows(w, &w->lines[w->n - 1].at, &w->bound))
		drop_last(w); /* w->more is true */
	for (size_t i = 0; i < w->n; i++) {
		text_add(&r->out, w->lines[i].text, w->lines[i].len);
		text_putc(&r->out, '\n');
	}
	if (!w->n)
		return;
	w->is_begun = true;
	w->after = w->lines[w->n - 1].at;
	w->left -= w->n;
}

static void end_turn(struct request *r)
{
	struct fleet_events *w = events_of(r);

	request_leave_call(r);
	add_known(r);
	const bool more = w->more, any = w->n;
	drop_all(w);
	if (more && !any)
		end_broken(r);
	else if (!more || !w->left || w->is_page)
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
	const struct fleet_events *w = events_of(r);
	const struct event_position from = position_at(w, host->number);
	char cursor[CURSOR_TEXT_MAX + 1];
	uint8_t key[EVENT_KEY_LEN];
	struct text path = {0};

	event_key_write(key, &from);
	cursor_write(cursor, EVENT_LETTER, key, sizeof(key));
	text_printf(&path, "%s?limit=%zu&cursor=%s%s", r->route->pattern, wanted(w), cursor,
		    w->newest_first ? "&newest_first=1" : "");
	const bool asked = peers_ask(r->api->peers, r, host, &path, wanted(w), go_on);
	text_free(&path);
	return asked;
}

static void on_own(void *arg, const char *line, size_t len)
{
	struct fleet_events *w = events_of(arg);

	add_line(w, &w->own, line, len);
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
	w->own.more |= w->own.n == wanted(w);
	end_part(w, &w->own);
	fleet_round_begin(&w->list, &w->round);
}

/* Reads the events of this host first. */
static void begin_turn(struct request *r)
{
	struct fleet_events *w = events_of(r);
	const uint32_t self = table_of(r)->self->number;
	const struct event_position from = position_at(w, self);
	struct event_query q = {.newest_first = w->newest_first, .limit = wanted(w)};
	struct failure f;

	w->own = part_of(w, self);
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
	drop_all(events_of(r));
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
		return bad_request(r, "cursor is not one of this cell of the fleet: use a value "
				      "of the header ramet-next-cursor");
	w->is_begun = true;
	w->after = (struct moment){at.at_ms, place.host, at.n};
	return true;
}

void fleet_events_serve(struct request *r, const struct event_query *q)
{
	struct fleet_events *w = must_alloc(sizeof(*w));

	w->newest_first = q->newest_first;
	w->left = q->limit ? q->limit : UINT64_MAX;
	w->is_page = w->left <= PAGE_MAX;
	w->round = (struct fleet_round){
		.ask = ask, .take = take, .over = end_turn, .limit_ms = TURN_MS};
	r->state = w;
	r->ops = &ops;
	if (fleet_list_begin(&w->list, r) && ask_place(r, w))
		begin_turn(r);
}
