// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "base/text-part.h"
#include "base/utf8.h"

/* --- writing a line ------------------------------------------------------------------------- */

struct out {
	char *p;
	size_t len;
	bool full;
};

static void put(struct out *o, const void *p, size_t len)
{
	/* Leaves space for the brace and the newline at the end. */
	if (o->full || len > AUDIT_LINE_MAX - 2 - o->len) {
		o->full = true;
		return;
	}
	memcpy(o->p + o->len, p, len);
	o->len += len;
}

/* Writes one character; returns the number of its bytes in the text. Control characters become a
 * question mark, and so do U+0085, U+2028 and U+2029, at which line iterators of some clients
 * split. */
static size_t put_char(struct out *o, const unsigned char *p, const unsigned char *end)
{
	size_t bad, len = utf8_len(p, end, &bad);
	bool control = *p < 0x20 || *p == 0x7f || (len == 2 && p[0] == 0xc2 && p[1] < 0xa0) ||
		       (len == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] & 0xfe) == 0xa8);

	if (!len || control)
		put(o, "?", 1);
	else if (*p == '"' || *p == '\\')
		put(o, (const char[]){'\\', (char)*p}, 2);
	else
		put(o, p, len);
	return len ? len : bad;
}

/* Writes a field. Writes nothing if `text` is NULL or the whole field does not fit. */
static void put_text(struct out *o, const char *name, const char *text)
{
	const struct out before = *o;

	if (!text)
		return;
	const unsigned char *p = (const void *)text, *end = p + strlen(text);
	put(o, ",\"", 2);
	put(o, name, strlen(name));
	put(o, "\":\"", 3);
	while (p < end)
		p += put_char(o, p, end);
	put(o, "\"", 1);
	if (o->full)
		*o = before;
}

static size_t put_head(char *out, uint64_t n, const char *id, const struct audit_event *event)
{
	time_t seconds = (time_t)(event->at_ms / 1000);
	struct tm tm = {0};

	gmtime_r(&seconds, &tm);
	return (size_t)snprintf(out, AUDIT_LINE_MAX,
				"{\"n\":%" PRIu64 ",\"id\":\"%.*s\",\"time\":\"%04d-%02d-%02dT"
				"%02d:%02d:%02d.%03dZ\",\"event\":\"%.*s\"",
				n, AUDIT_ID_LEN, id, tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
				tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(event->at_ms % 1000),
				AUDIT_NAME_MAX, event->name);
}

size_t audit_line_make(char out[static AUDIT_LINE_MAX], uint64_t n, const char *id,
		       const struct audit_event *event)
{
	struct out o = {.p = out, .len = put_head(out, n, id, event)};

	put_text(&o, "tenant", event->tenant);
	put_text(&o, "sandbox", event->sandbox);
	put_text(&o, "template", event->template);
	put_text(&o, "parent", event->parent);
	put_text(&o, "winner", event->winner);
	put_text(&o, "space", event->space);
	put_text(&o, "checkpoint", event->checkpoint);
	put_text(&o, "key", event->key);
	put_text(&o, "previous", event->previous);
	put_text(&o, "text", event->text);
	memcpy(out + o.len, "}\n", 2);
	return o.len + 2;
}

size_t audit_line_new(char out[static AUDIT_LINE_MAX], uint64_t n, const struct audit_event *event)
{
	char id[AUDIT_ID_LEN + 1];

	random_id(id, sizeof(id), "evt_");
	return audit_line_make(out, n, id, event);
}

/* --- reading the head of a line ------------------------------------------------------------- */

static bool take_digits(struct text_part *in, int count, int *out)
{
	*out = 0;
	for (int i = 0; i < count; i++, in->p++) {
		if (in->p == in->end || *in->p < '0' || *in->p > '9')
			return false;
		*out = *out * 10 + (*in->p - '0');
	}
	return true;
}

static bool take_id(struct text_part *in, char out[static AUDIT_ID_LEN + 1])
{
	if (in->end - in->p < AUDIT_ID_LEN || !id_valid("evt_", in->p, AUDIT_ID_LEN))
		return false;
	memcpy(out, in->p, AUDIT_ID_LEN);
	out[AUDIT_ID_LEN] = '\0';
	in->p += AUDIT_ID_LEN;
	return true;
}

static bool take_time(struct text_part *in, int64_t *at_ms)
{
	struct tm tm = {0};
	int ms;

	if (!take_digits(in, 4, &tm.tm_year) || !text_part_take(in, "-") ||
	    !take_digits(in, 2, &tm.tm_mon) || !text_part_take(in, "-") ||
	    !take_digits(in, 2, &tm.tm_mday) || !text_part_take(in, "T") ||
	    !take_digits(in, 2, &tm.tm_hour) || !text_part_take(in, ":") ||
	    !take_digits(in, 2, &tm.tm_min) || !text_part_take(in, ":") ||
	    !take_digits(in, 2, &tm.tm_sec) || !text_part_take(in, ".") ||
	    !take_digits(in, 3, &ms) || !text_part_take(in, "Z"))
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	*at_ms = (int64_t)timegm(&tm) * 1000 + ms;
	return true;
}

static bool take_name(struct text_part *in, char out[static AUDIT_NAME_MAX + 1])
{
	const char *quote = memchr(in->p, '"', (size_t)(in->end - in->p));

	if (!quote || quote == in->p || quote - in->p > AUDIT_NAME_MAX)
		return false;
	for (const char *p = in->p; p < quote; p++)
		if ((*p < 'a' || *p > 'z') && *p != '.' && *p != '_')
			return false;
	memcpy(out, in->p, (size_t)(quote - in->p));
	out[quote - in->p] = '\0';
	in->p = quote;
	return true;
}

bool audit_line_parse(struct audit_line *out, const char *p, size_t len)
{
	struct text_part in = {p, p + len};

	return len && p[len - 1] == '}' && text_part_take(&in, "{\"n\":") &&
	       text_part_take_number(&in, &out->n) && text_part_take(&in, ",\"id\":\"") &&
	       take_id(&in, out->id) && text_part_take(&in, "\",\"time\":\"") &&
	       take_time(&in, &out->at_ms) && text_part_take(&in, "\",\"event\":\"") &&
	       take_name(&in, out->name) && text_part_take(&in, "\"") &&
	       (*in.p == ',' || *in.p == '}');
}
