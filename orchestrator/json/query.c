// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/json/query.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "base/num.h"

#define NUMBER_MAX (1ull << 53)
#define SHORT_ROOM 64 /* for the value of a number or a flag, with its NUL */

struct span {
	const char *p, *end;
};

static bool span_is(struct span s, const char *text)
{
	size_t len = strlen(text);

	return (size_t)(s.end - s.p) == len && memcmp(s.p, text, len) == 0;
}

/* Cuts off and returns the text before the next `c`, or all of it. */
static struct span cut(struct span *s, char c)
{
	const char *at = memchr(s->p, c, (size_t)(s->end - s->p));
	struct span first = {s->p, at ? at : s->end};

	s->p = at ? at + 1 : s->end;
	return first;
}

int percent_byte(const char **p, const char *end)
{
	const char *at = (*p)++;
	uint8_t byte;

	if (*at != '%')
		return *at ? (unsigned char)*at : -1;
	if (end - at < 3 || !hex_bytes(&byte, 1, at + 1))
		return -1;
	*p = at + 3;
	return byte ? byte : -1;
}

static int decode(struct span s, const char *name, char *out, size_t room, struct err *e)
{
	size_t len = 0;

	while (s.p < s.end) {
		const bool is_space = *s.p == '+';
		int byte = percent_byte(&s.p, s.end);

		if (byte < 0)
			return err_say(
				e, EINVAL,
				"%s in the query contains a %% without two hexadecimal digits "
				"after it, or a NUL byte",
				name);
		if (len + 1 == room)
			return err_say(e, EINVAL, "%s in the query is longer than %zu bytes", name,
				       room - 1);
		out[len++] = is_space ? ' ' : (char)byte;
	}
	out[len] = '\0';
	return (int)len;
}

int query_text(const char *url, size_t url_len, const char *name, char *out, size_t room,
	       struct err *e)
{
	struct span rest = {url, url + url_len}, value = {0};

	cut(&rest, '?');
	while (rest.p < rest.end) {
		struct span field = cut(&rest, '&');

		if (!span_is(cut(&field, '='), name))
			continue;
		if (value.p)
			return err_say(e, EINVAL, "%s is in the query twice: give it once", name);
		value = field;
	}
	return value.p ? decode(value, name, out, room, e) : -ENOENT;
}

static bool is_named(struct span field, const char *const *names, size_t n)
{
	const struct span name = cut(&field, '=');

	for (size_t i = 0; i < n; i++)
		if (span_is(name, names[i]))
			return true;
	return false;
}

void query_without(struct text *out, const char *url, size_t url_len, const char *const *names,
		   size_t n)
{
	struct span rest = {url, url + url_len};

	cut(&rest, '?');
	while (rest.p < rest.end) {
		struct span field = cut(&rest, '&');

		if (is_named(field, names, n))
			continue;
		text_putc(out, '&');
		text_add(out, field.p, (size_t)(field.end - field.p));
	}
}

int query_path(const char *url, size_t url_len, const char *name, char *out, size_t room,
	       struct err *e)
{
	int len = query_text(url, url_len, name, out, room, e);

	if (len == -ENOENT)
		return err_say(e, EINVAL, "the query has no %s: add %s=/absolute/path", name, name);
	if (len >= 0 && out[0] != '/')
		return err_say(e, EINVAL, "%s must be absolute, \"%.100s\" is not", name, out);
	return len;
}

/* Reads `digits` decimal digits and the character `end` after them. Returns -1 for others. */
static int fixed_number(const char **p, int digits, char end)
{
	int n = 0;

	for (int i = 0; i < digits; i++, (*p)++) {
		if (**p < '0' || **p > '9')
			return -1;
		n = n * 10 + **p - '0';
	}
	return *(*p)++ == end ? n : -1;
}

/* Returns -1 for a text that is not such a time. */
static int64_t time_of(const char *text)
{
	static const struct {
		int digits;
		char end;
	} parts[] = {{4, '-'}, {2, '-'}, {2, 'T'}, {2, ':'}, {2, ':'}};
	const char *p = text;
	int n[ARRAY_LEN(parts)], ms = 0;

	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		n[i] = fixed_number(&p, parts[i].digits, parts[i].end);
		if (n[i] < 0)
			return -1;
	}
	const char *fraction = p;
	int s = fixed_number(&p, 2, 'Z');
	if (s < 0) {
		p = fraction;
		s = fixed_number(&p, 2, '.');
		ms = s < 0 ? -1 : fixed_number(&p, 3, 'Z');
	}
	struct tm tm = {.tm_year = n[0] - 1900,
			.tm_mon = n[1] - 1,
			.tm_mday = n[2],
			.tm_hour = n[3],
			.tm_min = n[4],
			.tm_sec = s};
	const struct tm asked = tm;
	/* timegm accepts the 31st of February and changes it to a day of March. */
	time_t seconds = timegm(&tm);
	if (s < 0 || ms < 0 || *p || seconds <= 0 || tm.tm_mday != asked.tm_mday ||
	    tm.tm_mon != asked.tm_mon || tm.tm_hour != asked.tm_hour || tm.tm_min != asked.tm_min)
		return -1;
	return (int64_t)seconds * 1000 + ms;
}

int query_time(const char *url, size_t url_len, const char *name, int64_t *out, struct err *e)
{
	char text[SHORT_ROOM];
	int len = query_text(url, url_len, name, text, sizeof(text), e);

	if (len < 0)
		return len == -ENOENT ? 0 : len;
	int64_t ms = time_of(text);
	if (ms < 0)
		return err_say(e, EINVAL,
			       "%s must be a UTC time like 2026-01-31T23:59:59.123Z, not \"%s\"",
			       name, text);
	*out = ms;
	return 0;
}

int query_mode(const char *url, size_t url_len, uint32_t *out, struct err *e)
{
	char text[SHORT_ROOM];
	int len = query_text(url, url_len, "mode", text, sizeof(text), e);
	uint32_t mode = 0;

	if (len < 0)
		return len == -ENOENT ? 0 : len;
	for (const char *p = text; *p && mode <= 07777; p++)
		mode = *p >= '0' && *p <= '7' ? mode << 3 | (uint32_t)(*p - '0') : UINT32_MAX;
	if (mode < 1 || mode > 07777)
		return err_say(e, EINVAL, "mode must be octal digits from 1 to 7777, not \"%s\"",
			       text);
	*out = mode;
	return 0;
}

int query_flag(const char *url, size_t url_len, const char *name, bool *out, struct err *e)
{
	char text[SHORT_ROOM];
	int len = query_text(url, url_len, name, text, sizeof(text), e);

	if (len < 0)
		return len == -ENOENT ? 0 : len;
	bool yes = !strcmp(text, "1") || !strcmp(text, "true");
	if (!yes && strcmp(text, "0") != 0 && strcmp(text, "false") != 0)
		return err_say(e, EINVAL, "%s must be 1, true, 0 or false, not \"%s\"", name, text);
	*out = yes;
	return 0;
}

/* Reads decimal digits. Returns false when there are none or the number exceeds the limit. */
static bool number(struct span s, uint64_t *out)
{
	uint64_t n = 0;

	if (s.p == s.end)
		return false;
	for (; s.p < s.end; s.p++) {
		if (*s.p < '0' || *s.p > '9')
			return false;
		n = n * 10 + (uint64_t)(*s.p - '0');
		if (n > NUMBER_MAX)
			return false;
	}
	*out = n;
	return true;
}

int query_number(const char *url, size_t url_len, const char *name, uint64_t least, uint64_t *out,
		 struct err *e)
{
	char text[SHORT_ROOM];
	int len = query_text(url, url_len, name, text, sizeof(text), e);
	uint64_t n;

	if (len < 0)
		return len == -ENOENT ? 0 : len;
	if (!number((struct span){text, text + len}, &n) || n < least)
		return err_say(e, EINVAL, "%s must be a whole number from %llu to 2^53, not \"%s\"",
			       name, (unsigned long long)least, text);
	*out = n;
	return 0;
}

bool range_read(const char *value, size_t len, struct byte_range *out)
{
	struct span s = {value, value + len}, unit = cut(&s, '=');
	struct span first = cut(&s, '-');
	uint64_t from, to;

	if (!span_is(unit, "bytes") || first.end == value + len)
		return false;
	if (first.p == first.end) {
		*out = (struct byte_range){.length = UINT64_MAX, .from_end = true};
		return number(s, &out->offset) && out->offset > 0;
	}
	if (!number(first, &from))
		return false;
	*out = (struct byte_range){.offset = from, .length = UINT64_MAX};
	if (s.p == s.end)
		return true;
	if (!number(s, &to) || to < from)
		return false;
	out->length = to - from + 1;
	return true;
}
