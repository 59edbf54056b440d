// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/exec/splitter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "orchestrator/exec/output-budget.h"

#define ROOM_KEPT (64u << 10) /* largest buffer that is kept while nothing is held */

/* Returns the length of a character by its first byte; 1 for a byte that cannot begin one. */
static size_t utf8_size(uint8_t lead)
{
	if (lead >= 0xc2 && lead <= 0xdf)
		return 2;
	if (lead >= 0xe0 && lead <= 0xef)
		return 3;
	if (lead >= 0xf0 && lead <= 0xf4)
		return 4;
	return 1;
}

size_t utf8_cut(const uint8_t *data, size_t len)
{
	for (size_t back = 1; back <= 3 && back <= len; back++) {
		uint8_t c = data[len - back];

		if ((c & 0xc0) != 0x80)
			return utf8_size(c) > back ? back : 0;
	}
	return 0;
}

int splitter_hold(struct splitter *s, const uint8_t *data, size_t len)
{
	if (s->len + len > s->room) {
		size_t room = s->room ? s->room : 256;
		uint8_t *held;

		while (room < s->len + len)
			room *= 2;
		held = realloc(s->held, room);
		if (!held)
			return -ENOMEM;
		output_count(s->account, s->room, room);
		s->held = held;
		s->room = room;
	}
	if (len)
		memcpy(s->held + s->len, data, len);
	s->len += len;
	return 0;
}

static void drop_room(struct splitter *s)
{
	free(s->held);
	output_count(s->account, s->room, 0);
	s->held = NULL;
	s->room = 0;
}

/* Empties the buffer, and frees it if it has grown for a long line. */
static void set_empty(struct splitter *s)
{
	s->len = 0;
	if (s->room > ROOM_KEPT)
		drop_room(s);
}

/* Passes on the held bytes, except an incomplete character at the end. */
static void flush(struct splitter *s, bool partial, splitter_fn *fn, void *arg)
{
	size_t keep = utf8_cut(s->held, s->len), out = s->len - keep;

	if (!out)
		return;
	fn(arg, s->held, out, partial);
	memmove(s->held, s->held + out, keep);
	s->len = keep;
	if (!keep)
		set_empty(s);
}

void splitter_cut(struct splitter *s, splitter_fn *fn, void *arg)
{
	flush(s, true, fn, arg);
}

static size_t line_limit(const struct splitter *s)
{
	return s->tight ? LINE_TIGHT_BYTES : LINE_MAX_BYTES;
}

static void out_of_memory(struct splitter *s, splitter_fn *fn, void *arg)
{
	if (s->len)
		fn(arg, s->held, s->len, true);
	set_empty(s);
}

static int feed_chunk(struct splitter *s, const uint8_t *data, size_t len, splitter_fn *fn,
		      void *arg)
{
	if (s->len) { /* at most three bytes: an incomplete character */
		int ret = splitter_hold(s, data, len);

		if (ret == 0)
			flush(s, false, fn, arg);
		else
			out_of_memory(s, fn, arg);
		return ret;
	}
	size_t keep = utf8_cut(data, len);
	if (len > keep)
		fn(arg, data, len - keep, false);
	return splitter_hold(s, data + len - keep, keep);
}

/* Feeds a part of a line that does not contain its end. */
static int feed_part(struct splitter *s, const uint8_t *data, size_t len, splitter_fn *fn,
		     void *arg)
{
	size_t limit = line_limit(s);

	while (len) {
		/* Flushes only when more bytes come, since a line of exactly the limit is whole. */
		if (s->len >= limit) {
			flush(s, true, fn, arg);
			continue;
		}
		size_t part = limit - s->len;
		part = part < len ? part : len;
		int ret = splitter_hold(s, data, part);
		if (ret < 0) {
			out_of_memory(s, fn, arg);
			return ret;
		}
		data += part;
		len -= part;
	}
	return 0;
}

static int feed_lines(struct splitter *s, const uint8_t *data, size_t len, splitter_fn *fn,
		      void *arg)
{
	const uint8_t *end;

	while (len && (end = memchr(data, '\n', len))) {
		size_t line = (size_t)(end - data);

		if (!s->len && line <= line_limit(s)) {
			fn(arg, data, line, false);
		} else {
			int ret = feed_part(s, data, line, fn, arg);

			if (ret < 0)
				return ret;
			fn(arg, s->held, s->len, false);
			set_empty(s);
		}
		data += line + 1;
		len -= line + 1;
	}
	return feed_part(s, data, len, fn, arg);
}

int splitter_feed(struct splitter *s, const uint8_t *data, size_t len, splitter_fn *fn, void *arg)
{
	if (!len)
		return 0;
	return s->chunks ? feed_chunk(s, data, len, fn, arg) : feed_lines(s, data, len, fn, arg);
}

void splitter_end(struct splitter *s, splitter_fn *fn, void *arg)
{
	if (s->len)
		fn(arg, s->held, s->len, false);
	splitter_fini(s);
}

void splitter_fini(struct splitter *s)
{
	drop_room(s);
	s->len = 0;
}

int splitter_copy(struct splitter *to, const struct splitter *from)
{
	*to = (struct splitter){.chunks = from->chunks, .account = to->account};
	return splitter_hold(to, from->held, from->len);
}
