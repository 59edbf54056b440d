// SPDX-License-Identifier: Apache-2.0
/*
 * The input is a part of another host's events, behind some bytes: the order, the size of a page,
 * the number of events that this host has, and their times. Whatever the other host gives, this
 * host's events must all be in the pages, once and in order; and what the merge takes, it must
 * write as lines in order.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/api/event-merge.h"
#include "orchestrator/events/line.h"
#include "orchestrator/json/json.h"

#define ID	"evt_00112233445566778899aabbccddeeff"
#define SELF	3
#define OTHER	5
#define OWN_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct own {
	size_t n;
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
		const size_t len = audit_line_make(line, n, ID, &event) - 1;
		event_part_add(m, &p, &(struct logged_event){n, at_ms, line, len});
	}
	if (p.bad)
		abort();
	event_part_end(m, &p);
}

/* Checks the lines of a page. Returns how many are this host's, whose last number is *last. */
static size_t check(const struct text *page, size_t n, bool newest_first, uint64_t *last)
{
	const char *at = page->p, *end = at ? at + page->len : at;
	size_t own = 0;

	for (; n--; at++) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		struct audit_line head;

		if (!newline || !json_is_value(at, (size_t)(newline - at), 0) ||
		    !audit_line_parse(&head, at, (size_t)(newline - at)))
			abort();
		at = newline;
		if (strcmp(head.name, "own.event") != 0)
			continue;
		if (head.n != (newest_first ? *last - 1 : *last + 1))
			abort();
		*last = head.n;
		own++;
	}
	if (at != end)
		abort();
	return own;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct own own = {0};
	struct event_merge m = {0};
	bool more = true;

	if (size < 3 + OWN_MAX)
		return 0;
	m.newest_first = data[0] & 1;
	own.n = data[1] % (OWN_MAX + 1);
	for (size_t i = 0; i < own.n; i++)
		own.at_ms[i] = (i ? own.at_ms[i - 1] : 1) + data[3 + i];
	const char *part = (const char *)data + 3 + OWN_MAX;
	const size_t len = size - 3 - OWN_MAX;
	if (memmem(part, len, "own.event", strlen("own.event")))
		return 0;
	uint64_t last = m.newest_first ? own.n + 1 : 0;
	/* The other host gives the same part each time, which is refused from some position on. */
	for (size_t left = own.n, turns = 0; more; turns++) {
		struct text page = {0};

		m.left = 1 + data[2] % 8;
		add_own(&m, &own);
		event_merge_take(&m, OTHER, part, len, data[0] & 2);
		const size_t n = event_merge_write(&m, &page, &more);
		if (n > 1 + (size_t)data[2] % 8 || (more && !n) || turns > size)
			abort();
		left -= check(&page, n, m.newest_first, &last);
		if (!more && left)
			abort();
		text_free(&page);
	}
	return 0;
}
