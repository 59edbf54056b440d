// SPDX-License-Identifier: Apache-2.0
/*
 * The input is the events of another host, as event_part_write writes them, behind some bytes:
 * flags, the number of this host's events, the size of a page, and the times of this host's events.
 * In each turn the other host gives what lies behind the position, as far as its own claims go.
 * Whatever it gives, this host's events must all be in the pages, once and in order. What the merge
 * takes of the other host, it must write as lines, each number once and in order.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text-part.h"
#include "orchestrator/api/event-merge.h"
#include "orchestrator/events/line.h"
#include "orchestrator/json/json.h"

#define ID	"evt_00112233445566778899aabbccddeeff"
#define SELF	3
#define OTHER	5
#define OWN_MAX 80
#define HEAD	(3 + OWN_MAX) /* bytes before the other host's events */

enum { NEWEST_FIRST = 1, HAS_MORE = 2, LONG_LINES = 4 }; /* flags */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The events of this host. */
struct own {
	size_t n, pad;
	int64_t at_ms[OWN_MAX];
};

/* Adds this host's events behind the position. */
static void add_own(struct event_merge *m, const struct own *own)
{
	const struct event_position from = event_merge_from(m, SELF);
	struct event_part p = event_part_begin(m, SELF);
	char line[AUDIT_LINE_MAX];

	for (size_t i = 0; i < own->n; i++) {
		const size_t n = m->newest_first ? own->n - i : i + 1;
		const int64_t at_ms = own->at_ms[n - 1];
		const struct audit_event event = {"own.event", .at_ms = at_ms};

		if (m->newest_first ? from.n ? n >= from.n : at_ms >= from.at_ms
		    : from.n	    ? n <= from.n
				    : at_ms <= from.at_ms)
			continue;
		size_t len = audit_line_make(line, n, ID, &event) - 1;
		const size_t pad = n % 3 ? own->pad : 0;
		memset(line + len, ' ', pad);
		len += pad;
		event_part_add(m, &p, &(struct logged_event){n, at_ms, line, len});
	}
	if (p.bad)
		abort();
	event_part_end(m, &p);
}

/* Returns what the other host gives: its lines from the first one on that claims to lie behind the
 * position. */
static const char *behind(const struct event_merge *m, const char *part, const char *end)
{
	const struct event_position from = event_merge_from(m, OTHER);
	const char *newline;

	for (; (newline = memchr(part, '\n', (size_t)(end - part))); part = newline + 1) {
		const char *space = memchr(part, ' ', (size_t)(newline - part));
		struct text_part in = {part, newline};
		struct audit_line head;
		uint64_t at_ms;

		if (!space || !text_part_take_number(&in, &at_ms) ||
		    !audit_line_parse(&head, space + 1, (size_t)(newline - space - 1)))
			break;
		if (m->newest_first ? from.n ? head.n < from.n : at_ms < (uint64_t)from.at_ms
		    : from.n	    ? head.n > from.n
				    : at_ms > (uint64_t)from.at_ms)
			break;
	}
	return newline ? part : end;
}

/* The last numbers of both hosts in the pages so far. */
struct last {
	uint64_t own, other; /* other is 0 before its first event */
};

/* Checks the lines of a page. Returns how many are this host's. */
static size_t check(const struct text *page, size_t n, bool newest_first, struct last *last)
{
	const char *at = page->p, *end = at ? at + page->len : at;
	size_t own = 0;

	for (; n--; at++) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *close = newline;
		struct audit_line head;

		if (!newline || !json_is_value(at, (size_t)(newline - at), 0))
			abort();
		while (close[-1] == ' ') /* of a long line */
			close--;
		if (!audit_line_parse(&head, at, (size_t)(close - at)))
			abort();
		at = newline;
		if (strcmp(head.name, "own.event") != 0) {
			if (last->other &&
			    (newest_first ? head.n >= last->other : head.n <= last->other))
				abort();
			last->other = head.n;
			continue;
		}
		if (head.n != (newest_first ? last->own - 1 : last->own + 1))
			abort();
		last->own = head.n;
		own++;
	}
	if (at != end)
		abort();
	return own;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct event_merge m = {0};
	struct own own = {0};
	bool more = true;

	if (size < HEAD || memmem(data + HEAD, size - HEAD, "own.event", strlen("own.event")))
		return 0;
	m.newest_first = data[0] & NEWEST_FIRST;
	own.n = data[1] % (OWN_MAX + 1);
	own.pad = data[0] & LONG_LINES ? 3800 : 0;
	for (size_t i = 0; i < own.n; i++)
		own.at_ms[i] = (i ? own.at_ms[i - 1] : 1) + data[3 + i];
	const char *part = (const char *)data + HEAD, *end = (const char *)data + size;
	struct last last = {.own = m.newest_first ? own.n + 1 : 0};
	const size_t limit = 1 + data[2];
	for (size_t left = own.n, turns = 0; more; turns++) {
		struct text page = {0};

		m.left = limit;
		add_own(&m, &own);
		const char *given = behind(&m, part, end);
		event_merge_take(&m, OTHER, given, (size_t)(end - given), data[0] & HAS_MORE);
		const size_t n = event_merge_write(&m, &page, &more);
		if (n > limit || (more && !n) || turns > size)
			abort();
		left -= check(&page, n, m.newest_first, &last);
		if (!more && left)
			abort();
		text_free(&page);
	}
	return 0;
}
