// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/exec/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of an event, shared by the rings of a parent and its children, and counted once. */
struct replay_bytes {
	struct output_account *account;
	unsigned users;
	size_t size;
	char bytes[]; /* the data, then traceparent, code and context, if any, each NUL-terminated
		       */
};

struct replay_entry {
	struct event ev;
	size_t size;
	struct replay_bytes *copy;
	bool traced;
};

#define ROOM_FIRST 16

static struct replay_bytes *bytes_new(struct output_account *account, size_t size)
{
	struct replay_bytes *copy = malloc(sizeof(*copy) + size);

	if (!copy)
		return NULL;
	*copy = (struct replay_bytes){.account = account, .users = 1, .size = size};
	output_count(account, 0, sizeof(*copy) + size);
	return copy;
}

static void put_bytes(struct replay_bytes *copy)
{
	if (--copy->users)
		return;
	output_count(copy->account, sizeof(*copy) + copy->size, 0);
	free(copy);
}

static struct replay_entry *entry_at(const struct replay *r, size_t i)
{
	return &r->entries[(r->first + i) % r->room];
}

/* Moves the events to the start of a new ring, which must have room for all. Returns false, and
 * changes nothing, when out of memory. */
static bool set_room(struct replay *r, size_t room)
{
	struct replay_entry *entries = calloc(room, sizeof(*entries));

	if (!entries)
		return false;
	for (size_t i = 0; i < r->count; i++)
		entries[i] = *entry_at(r, i);
	free(r->entries);
	output_count(r->account, r->room * sizeof(*entries), room * sizeof(*entries));
	r->entries = entries;
	r->room = room;
	r->first = 0;
	return true;
}

static void drop_room(struct replay *r)
{
	free(r->entries);
	output_count(r->account, r->room * sizeof(*r->entries), 0);
	r->entries = NULL;
	r->room = r->first = 0;
}

static void drop_first(struct replay *r)
{
	struct replay_entry *entry = entry_at(r, 0);

	r->bytes -= entry->size;
	put_bytes(entry->copy);
	r->first = (r->first + 1) % r->room;
	r->count--;
}

/* Makes room for one more event; returns false when out of memory. */
static bool has_room(struct replay *r)
{
	size_t room = r->room ? 2 * r->room : ROOM_FIRST;

	if (r->count < r->room)
		return true;
	return set_room(r, room < REPLAY_EVENTS_MAX ? room : REPLAY_EVENTS_MAX);
}

void replay_add(struct replay *r, const struct event *ev, const char *traceparent)
{
	size_t trace = traceparent ? strlen(traceparent) + 1 : 0;
	size_t code = ev->code ? strlen(ev->code) + 1 : 0;
	size_t context = ev->context ? strlen(ev->context) + 1 : 0;
	size_t size = ev->len + trace + code + context;

	if (size > REPLAY_BYTES_MAX)
		return;
	while (r->count == REPLAY_EVENTS_MAX || r->bytes + size > REPLAY_BYTES_MAX)
		drop_first(r);
	struct replay_bytes *copy = has_room(r) ? bytes_new(r->account, size) : NULL;
	if (!copy)
		return;
	if (ev->len)
		memcpy(copy->bytes, ev->data, ev->len);
	if (trace)
		memcpy(copy->bytes + ev->len, traceparent, trace);
	if (code)
		memcpy(copy->bytes + ev->len + trace, ev->code, code);
	if (context)
		memcpy(copy->bytes + ev->len + trace + code, ev->context, context);
	struct replay_entry *entry = entry_at(r, r->count++);
	*entry = (struct replay_entry){.ev = *ev, .size = size, .copy = copy, .traced = trace != 0};
	entry->ev.data = (uint8_t *)copy->bytes;
	entry->ev.code = code ? copy->bytes + ev->len + trace : NULL;
	entry->ev.context = context ? copy->bytes + ev->len + trace + code : NULL;
	r->bytes += size;
}

int replay_copy(struct replay *to, const struct replay *from)
{
	*to = (struct replay){.account = from->account};
	if (!from->count)
		return 0;
	if (!set_room(to, from->room))
		return -ENOMEM;
	for (size_t i = 0; i < from->count; i++) {
		to->entries[i] = *entry_at(from, i);
		to->entries[i].copy->users++;
	}
	to->count = from->count;
	to->bytes = from->bytes;
	return 0;
}

void replay_move(struct replay *to, struct replay *from)
{
	struct output_account *account = to->account;

	output_count(from->account, from->room * sizeof(*from->entries), 0);
	*to = *from;
	to->account = account;
	output_count(account, 0, to->room * sizeof(*to->entries));
	for (size_t i = 0; i < to->count; i++) {
		struct replay_bytes *copy = entry_at(to, i)->copy;

		output_count(copy->account, sizeof(*copy) + copy->size, 0);
		output_count(account, 0, sizeof(*copy) + copy->size);
		copy->account = account;
	}
	*from = (struct replay){.account = from->account};
}

void replay_drop(struct replay *r, size_t bytes)
{
	size_t most = r->bytes > bytes ? r->bytes - bytes : 0;

	if (r->count)
		drop_first(r);
	while (r->count && r->bytes > most)
		drop_first(r);
	if (!r->count)
		drop_room(r);
}

int64_t replay_since_ms(const struct replay *r)
{
	return r->count ? entry_at(r, 0)->ev.ts_ms : INT64_MAX;
}

static const char *trace_of(const struct replay_entry *entry)
{
	return entry->traced ? entry->copy->bytes + entry->ev.len : NULL;
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
	drop_room(r);
	*r = (struct replay){.account = r->account};
}
