// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/core/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Shared by the rings of a parent and its children. */
struct replay_bytes {
	unsigned users;
	char bytes[]; /* the data, then traceparent and code, each with its NUL when there is one */
};

struct replay_entry {
	struct event ev;
	size_t size;
	struct replay_bytes *copy;
	bool traced;
};

static void put_bytes(struct replay_bytes *copy)
{
	if (--copy->users == 0)
		free(copy);
}

static void drop_first(struct replay *r)
{
	struct replay_entry *entry = &r->entries[r->first];

	r->bytes -= entry->size;
	put_bytes(entry->copy);
	r->first = (r->first + 1) % REPLAY_EVENTS_MAX;
	r->count--;
}

void replay_add(struct replay *r, const struct event *ev, const char *traceparent)
{
	size_t trace = traceparent ? strlen(traceparent) + 1 : 0;
	size_t code = ev->code ? strlen(ev->code) + 1 : 0, size = ev->len + trace + code;

	if (!r->entries)
		r->entries = calloc(REPLAY_EVENTS_MAX, sizeof(*r->entries));
	struct replay_bytes *copy = malloc(sizeof(*copy) + size);
	if (!r->entries || !copy || size > REPLAY_BYTES_MAX) {
		free(copy);
		return;
	}
	while (r->count == REPLAY_EVENTS_MAX || r->bytes + size > REPLAY_BYTES_MAX)
		drop_first(r);
	copy->users = 1;
	if (ev->len)
		memcpy(copy->bytes, ev->data, ev->len);
	if (trace)
		memcpy(copy->bytes + ev->len, traceparent, trace);
	if (code)
		memcpy(copy->bytes + ev->len + trace, ev->code, code);
	struct replay_entry *entry = &r->entries[(r->first + r->count++) % REPLAY_EVENTS_MAX];
	*entry = (struct replay_entry){.ev = *ev, .size = size, .copy = copy, .traced = trace != 0};
	entry->ev.data = (uint8_t *)copy->bytes;
	entry->ev.code = code ? copy->bytes + ev->len + trace : NULL;
	r->bytes += size;
}

int replay_copy(struct replay *to, const struct replay *from)
{
	*to = (struct replay){.count = from->count, .bytes = from->bytes};
	if (!from->count)
		return 0;
	to->entries = calloc(REPLAY_EVENTS_MAX, sizeof(*to->entries));
	if (!to->entries) {
		to->count = to->bytes = 0;
		return -ENOMEM;
	}
	for (size_t i = 0; i < from->count; i++) {
		to->entries[i] = from->entries[(from->first + i) % REPLAY_EVENTS_MAX];
		to->entries[i].copy->users++;
	}
	return 0;
}

static const struct replay_entry *entry_at(const struct replay *r, size_t i)
{
	return &r->entries[(r->first + i) % REPLAY_EVENTS_MAX];
}

static const char *trace_of(const struct replay_entry *entry)
{
	return entry->traced ? entry->copy->bytes + entry->ev.len : NULL;
}

void replay_each(const struct replay *r,
		 void (*each)(void *arg, const struct event *ev, const char *traceparent),
		 void *arg)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct replay_entry *entry = entry_at(r, i);

		each(arg, &entry->ev, trace_of(entry));
	}
}

const struct event *replay_after(const struct replay *r, uint64_t seq, const char **traceparent)
{
	size_t low = 0, high = r->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (entry_at(r, middle)->ev.seq <= seq)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == r->count)
		return NULL;
	*traceparent = trace_of(entry_at(r, low));
	return &entry_at(r, low)->ev;
}

uint64_t replay_last(const struct replay *r)
{
	return r->count ? entry_at(r, r->count - 1)->ev.seq : 0;
}

void replay_fini(struct replay *r)
{
	while (r->count)
		drop_first(r);
	free(r->entries);
	memset(r, 0, sizeof(*r));
}
