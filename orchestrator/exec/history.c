// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/exec/history.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "orchestrator/exec/splitter.h"

#define ROOM_FIRST 4

void history_text(char out[static HISTORY_TEXT_MAX + 1], const char *text, size_t len)
{
	size_t n = 0;

	while (len && strchr(" \t\r\n", *text)) {
		text++;
		len--;
	}
	while (n < len && text[n] && text[n] != '\r' && text[n] != '\n')
		n++;
	if (n > HISTORY_TEXT_MAX) /* not in the middle of a character */
		n = HISTORY_TEXT_MAX - utf8_cut((const uint8_t *)text, HISTORY_TEXT_MAX);
	memcpy(out, text, n);
	out[n] = '\0';
}

/* --- entries -------------------------------------------------------------------------------- */

uint32_t history_first(const struct history_log *h)
{
	return h->count ? h->entries[0].n : 0;
}

uint32_t history_last(const struct history_log *h)
{
	return h->count ? h->entries[h->count - 1].n : 0;
}

static void grow(struct history_log *h)
{
	h->room = h->room ? (uint32_t)min_u64(2 * h->room, HISTORY_MAX) : ROOM_FIRST;
	h->entries = must_realloc(h->entries, h->room * sizeof(*h->entries));
}

static struct history_entry *append(struct history_log *h, const struct history_entry *entry)
{
	if (h->count == HISTORY_MAX) {
		h->count--;
		memmove(&h->entries[1], &h->entries[2], (h->count - 1) * sizeof(*h->entries));
	} else if (h->count == h->room) {
		grow(h);
	}
	h->entries[h->count] = *entry;
	return &h->entries[h->count++];
}

const struct history_entry *history_add(struct history_log *h, const struct history_entry *entry,
					uint32_t after)
{
	const uint32_t n = history_last(h) + 1;
	struct history_entry *e = append(h, entry);

	e->n = n;
	e->after = after;
	return e;
}

bool history_read(struct history_log *h, const struct history_entry *entry)
{
	const uint32_t last = history_last(h);

	if (entry->n < last || entry->n <= entry->after || entry->kind >= HISTORY_NKINDS ||
	    entry->result >= HISTORY_NRESULTS)
		return false;
	if (entry->n == last)
		h->entries[h->count - 1] = *entry;
	else
		append(h, entry);
	return true;
}

const struct history_entry *history_keep(struct history_log *h, uint32_t n, const char *checkpoint)
{
	for (uint32_t i = h->count; i--;) {
		struct history_entry *e = &h->entries[i];

		if (e->n != n)
			continue;
		if (e->checkpoint[0])
			return NULL;
		snprintf(e->checkpoint, sizeof(e->checkpoint), "%s", checkpoint);
		return e;
	}
	return NULL;
}

/* --- states --------------------------------------------------------------------------------- */

/* Returns the number of the last entry with the same state as the i-th one: the forks and
 * checkpoints that follow it change no state. */
static uint32_t with_state(const struct history_log *h, uint32_t i)
{
	while (i + 1 < h->count && h->entries[i + 1].after == h->entries[i].n &&
	       (h->entries[i + 1].kind == HISTORY_FORK ||
		h->entries[i + 1].kind == HISTORY_CHECKPOINT))
		i++;
	return h->entries[i].n;
}

uint32_t history_same(const struct history_log *h, uint32_t n)
{
	for (uint32_t i = h->count; i--;)
		if (h->entries[i].n == n)
			return with_state(h, i);
	return 0;
}

uint32_t history_find(const struct history_log *h, const char *checkpoint)
{
	for (uint32_t i = h->count; i--;)
		if (!strcmp(h->entries[i].checkpoint, checkpoint))
			return with_state(h, i);
	return 0;
}

/* Returns the number of the entry after which a descendant of the sandbox began. If the descendant
 * is a child, its first entry, `began`, has the number; if not, only the time is known. */
static uint32_t began_at(const struct history_log *h, const char *id,
			 const struct history_entry *began)
{
	const bool is_child = !strcmp(began->text, id);

	for (uint32_t i = h->count; i--;) {
		const struct history_entry *e = &h->entries[i];

		if (!i || (is_child ? e->n <= began->seq : e->at_ms <= began->began_ms))
			return with_state(h, i);
	}
	return 0;
}

/* Returns whether the state of the entry `n` comes from the entry `from`. */
static bool comes_from(const struct history_log *h, uint32_t n, uint32_t from)
{
	for (uint32_t i = h->count; i-- && n > from;)
		if (h->entries[i].n == n)
			n = h->entries[i].after;
	return n == from;
}

uint32_t history_join(struct history_log *h, const char *id, const struct history_log *winner,
		      uint32_t line)
{
	const uint32_t by_time =
		winner->count ? began_at(h, id, &winner->entries[0]) : history_last(h);
	const uint32_t began = !line || comes_from(h, by_time, line) ? by_time : line;
	const uint32_t first = winner->count > 1 ? winner->entries[1].n : 0;
	const uint32_t shift = history_last(h) + 1 - first; /* of the winner's numbers */

	for (uint32_t i = 1; i < winner->count; i++) {
		const struct history_entry *e = &winner->entries[i];
		const uint32_t base = line && e->kind == HISTORY_ROLLBACK ? line : began;

		history_add(h, e, e->after < first ? base : e->after + shift);
	}
	return first ? history_last(h) : began;
}

void history_undone(const struct history_log *h, bool undone[static HISTORY_MAX])
{
	uint32_t next = history_last(h);

	for (uint32_t i = h->count; i--;) {
		undone[i] = i && h->entries[i].n != next;
		if (!undone[i])
			next = h->entries[i].after;
	}
}

void history_fini(struct history_log *h)
{
	free(h->entries);
	*h = (struct history_log){0};
}
