// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/core/replay.h"

#include <stdlib.h>
#include <string.h>

struct replay_entry {
	struct event ev;
	size_t size;
	char *copy; /* the data, then the traceparent with its NUL when there is one */
	bool traced;
};

static void drop_first(struct replay *r)
{
	struct replay_entry *entry = &r->entries[r->first];

	r->bytes -= entry->size;
	free(entry->copy);
	r->first = (r->first + 1) % REPLAY_EVENTS_MAX;
	r->count--;
}

void replay_add(struct replay *r, const struct event *ev, const char *traceparent)
{
	size_t trace = traceparent ? strlen(traceparent) + 1 : 0, size = ev->len + trace;

	if (!r->entries)
		r->entries = calloc(REPLAY_EVENTS_MAX, sizeof(*r->entries));
	char *copy = malloc(size ? size : 1);
	if (!r->entries || !copy || size > REPLAY_BYTES_MAX) {
		free(copy);
		return;
	}
	while (r->count == REPLAY_EVENTS_MAX || r->bytes + size > REPLAY_BYTES_MAX)
		drop_first(r);
	if (ev->len)
		memcpy(copy, ev->data, ev->len);
	if (trace)
		memcpy(copy + ev->len, traceparent, trace);
	struct replay_entry *entry = &r->entries[(r->first + r->count++) % REPLAY_EVENTS_MAX];
	*entry = (struct replay_entry){.ev = *ev, .size = size, .copy = copy, .traced = trace != 0};
	entry->ev.data = (uint8_t *)copy;
	r->bytes += size;
}

void replay_each(const struct replay *r,
		 void (*each)(void *arg, const struct event *ev, const char *traceparent),
		 void *arg)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct replay_entry *entry = &r->entries[(r->first + i) % REPLAY_EVENTS_MAX];

		each(arg, &entry->ev, entry->traced ? entry->copy + entry->ev.len : NULL);
	}
}

void replay_fini(struct replay *r)
{
	while (r->count)
		drop_first(r);
	free(r->entries);
	memset(r, 0, sizeof(*r));
}
