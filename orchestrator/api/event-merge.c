// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/event-merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/num.h"
#include "base/text-part.h"
#include "orchestrator/events/line.h"
#include "orchestrator/json/json.h"

#define TURN_SIZE  (256u << 10) /* bytes of a turn */
#define LINE_DEPTH 0		/* of objects and arrays in an event */

struct event_merge_line {
	struct event_moment at;
	size_t len;
	char *text;
};

/* --- the order ------------------------------------------------------------------------------ */

static int compare(const struct event_moment *a, const struct event_moment *b)
{
	if (a->at_ms != b->at_ms)
		return a->at_ms < b->at_ms ? -1 : 1;
	if (a->host != b->host)
		return a->host < b->host ? -1 : 1;
	return a->n == b->n ? 0 : a->n < b->n ? -1 : 1;
}

/* Like compare, in the order of the answer. */
static int order(const struct event_merge *m, const struct event_moment *a,
		 const struct event_moment *b)
{
	return m->newest_first ? compare(b, a) : compare(a, b);
}

static int by_moment(const void *a, const void *b, void *arg)
{
	const struct event_merge_line *one = a, *other = b;

	return order(arg, &one->at, &other->at);
}

size_t event_merge_wanted(const struct event_merge *m)
{
	return min_u64(m->left, PAGE_MAX);
}

struct event_position event_merge_from(const struct event_merge *m, uint32_t host)
{
	if (!m->is_begun)
		return (struct event_position){.at_ms = m->newest_first ? EVENT_MS_MAX + 1 : 0};
	if (host == m->after.host)
		return (struct event_position){m->after.at_ms, m->after.n};
	/* Events of the same time are in the order of the hosts' numbers. */
	if (m->newest_first)
		return (struct event_position){m->after.at_ms + (host < m->after.host), 0};
	return (struct event_position){m->after.at_ms - (host > m->after.host), 0};
}

/* --- lines ---------------------------------------------------------------------------------- */

static void drop_last(struct event_merge *m)
{
	m->bytes -= m->lines[--m->n].len;
	free(m->lines[m->n].text);
}

void event_merge_drop(struct event_merge *m)
{
	while (m->n)
		drop_last(m);
	free(m->lines);
	m->lines = NULL;
	m->room = 0;
	m->more = m->bounded = false;
}

static void keep(struct event_merge *m, const struct event_moment *at, const char *line, size_t len)
{
	if (array_grow(&m->lines, &m->room, m->n + 1, sizeof(*m->lines)) < 0)
		abort();
	char *copy = must_alloc(len + 1);
	memcpy(copy, line, len);
	m->lines[m->n++] = (struct event_merge_line){*at, len, copy};
	m->bytes += len;
}

/* --- parts ---------------------------------------------------------------------------------- */

struct event_part event_part_begin(const struct event_merge *m, uint32_t host)
{
	const struct event_position from = event_merge_from(m, host);

	return (struct event_part){.last = {from.at_ms, host, from.n}};
}

/* Returns whether an event may follow the last one of the part. */
static bool is_next(const struct event_merge *m, const struct event_part *p,
		    const struct logged_event *event)
{
	const struct event_moment at = {event->at_ms, p->last.host, event->n};
	const bool in_time =
		m->newest_first ? at.at_ms <= p->last.at_ms : at.at_ms >= p->last.at_ms;

	if (at.at_ms < 1 || at.at_ms > EVENT_MS_MAX || !at.n || at.n > INT64_MAX)
		return false;
	if (!p->last.n) /* a position that is only a time */
		return in_time && at.at_ms != p->last.at_ms;
	return in_time && (m->newest_first ? at.n < p->last.n : at.n > p->last.n);
}

void event_part_add(struct event_merge *m, struct event_part *p, const struct logged_event *event)
{
	p->bad |= event->len >= AUDIT_LINE_MAX; /* no event is that long */
	p->more |=
		p->bad || p->n == event_merge_wanted(m) || p->bytes + event->len > EVENTS_PART_SIZE;
	if (p->more)
		return;
	p->bad = p->more = !is_next(m, p, event);
	if (p->bad)
		return;
	p->last = (struct event_moment){event->at_ms, p->last.host, event->n};
	p->n++;
	p->bytes += event->len;
	keep(m, &p->last, event->line, event->len);
}

/* Notes that some host may have events behind `at` that have not arrived. */
static void bound(struct event_merge *m, const struct event_moment *at)
{
	if (!m->bounded || order(m, &m->bound, at) > 0)
		m->bound = *at;
	m->bounded = m->more = true;
}

static bool is_full(const struct event_merge *m)
{
	return m->n > event_merge_wanted(m) || (m->n > 1 && m->bytes > TURN_SIZE);
}

/* Keeps as many of all lines as the turn can have. */
void event_part_end(struct event_merge *m, const struct event_part *p)
{
	if (p->more)
		bound(m, &p->last);
	if (m->n)
		qsort_r(m->lines, m->n, sizeof(*m->lines), by_moment, m);
	while (is_full(m)) {
		drop_last(m);
		bound(m, &m->lines[m->n - 1].at);
	}
}

/* --- parts of other hosts ------------------------------------------------------------------- */

void event_part_write(struct text *out, const struct logged_event *event)
{
	text_number(out, event->at_ms);
	text_putc(out, ' ');
	text_add(out, event->line, event->len);
	text_putc(out, '\n');
}

/* Reads what event_part_write wrote, without the newline. */
static bool read_line(struct logged_event *event, const char *line, size_t len)
{
	struct text_part in = {line, line + len};
	struct audit_line head;
	uint64_t at_ms;

	if (!text_part_take_number(&in, &at_ms) || at_ms > EVENT_MS_MAX ||
	    !text_part_take(&in, " "))
		return false;
	*event = (struct logged_event){
		.at_ms = (int64_t)at_ms, .line = in.p, .len = (size_t)(in.end - in.p)};
	if (!json_is_value(event->line, event->len, LINE_DEPTH) ||
	    !audit_line_parse(&head, event->line, event->len))
		return false;
	event->n = head.n;
	return true;
}

static void add_lines(struct event_merge *m, struct event_part *p, const char *lines, size_t len)
{
	const char *end = lines + len;

	while (lines < end && !p->bad) {
		const char *newline = memchr(lines, '\n', (size_t)(end - lines));
		struct logged_event event;

		p->bad = !newline || !read_line(&event, lines, (size_t)(newline - lines));
		if (p->bad)
			return;
		event_part_add(m, p, &event);
		lines = newline + 1;
	}
}

bool event_merge_take(struct event_merge *m, uint32_t host, const char *part, size_t len, bool more)
{
	struct event_part p = event_part_begin(m, host);
	const size_t before = m->n;

	add_lines(m, &p, part, len);
	if (p.bad || (more && !p.n)) {
		while (m->n > before)
			drop_last(m);
		return false;
	}
	p.more |= more;
	event_part_end(m, &p);
	return true;
}

/* --- the turn ------------------------------------------------------------------------------- */

size_t event_merge_write(struct event_merge *m, struct text *out, bool *more)
{
	while (m->bounded && m->n && order(m, &m->lines[m->n - 1].at, &m->bound) > 0)
		drop_last(m); /* m->more is true */
	const size_t n = m->n;
	for (size_t i = 0; i < n; i++) {
		text_add(out, m->lines[i].text, m->lines[i].len);
		text_putc(out, '\n');
	}
	if (n) {
		m->is_begun = true;
		m->after = m->lines[n - 1].at;
		m->left -= n;
	}
	*more = m->more;
	event_merge_drop(m);
	return n;
}
