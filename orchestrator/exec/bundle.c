// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/exec/bundle.h"

#include <string.h>

#define NOTE_NAME "text/plain"

static bool name_is_sound(const struct bundle_entry *n)
{
	for (size_t i = 0; i < n->name_len; i++)
		if (n->name[i] < 0x20 || n->name[i] > 0x7e)
			return false;
	return n->name_len > 0;
}

bool bundle_next(struct wire *w, struct bundle_entry *out)
{
	if (w->bad || !wire_left(w))
		return false;
	out->name = wire_get_str(w, &out->name_len, BUNDLE_NAME_MAX);
	uint8_t kind = wire_get_u8(w);
	out->data = wire_get_str(w, &out->len, AGENT_BUNDLE_MAX);
	out->kind = (enum agent_bundle)kind;
	if (!w->bad && (kind > AGENT_BUNDLE_JSON || !name_is_sound(out)))
		w->bad = true;
	return !w->bad;
}

bool bundle_is_sound(const uint8_t *data, size_t len)
{
	struct wire w = wire_from(data, len);
	struct bundle_entry entry;
	unsigned n = 0;

	while (bundle_next(&w, &entry))
		n++;
	return !w.bad && n > 0 && n <= BUNDLE_ENTRIES_MAX;
}

size_t bundle_note(uint8_t out[BUNDLE_NOTE_MAX], const char *text)
{
	const size_t most = BUNDLE_NOTE_MAX - sizeof(NOTE_NAME) - 9, len = strlen(text);
	struct wire w = wire_on(out, BUNDLE_NOTE_MAX);

	wire_put_str(&w, NOTE_NAME, strlen(NOTE_NAME));
	wire_put_u8(&w, AGENT_BUNDLE_TEXT);
	wire_put_str(&w, text, len < most ? len : most);
	return w.pos;
}
