// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/json/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/utf8.h"

void text_free(struct text *t)
{
	free(t->p);
	*t = (struct text){0};
}

/* Makes room for `len` more bytes and returns where they are to be written. */
static char *reserve(struct text *t, size_t len)
{
	if (array_grow(&t->p, &t->room, t->len + len, 1) < 0)
		abort();
	return t->p + t->len;
}

void text_add(struct text *t, const void *p, size_t len)
{
	if (!len)
		return;
	memcpy(reserve(t, len), p, len);
	t->len += len;
}

void text_puts(struct text *t, const char *s)
{
	text_add(t, s, strlen(s));
}

void text_putc(struct text *t, char c)
{
	*reserve(t, 1) = c;
	t->len++;
}

void text_printf(struct text *t, const char *format, ...)
{
	va_list args, again;

	va_start(args, format);
	va_copy(again, args);
	int len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	char *at = reserve(t, (size_t)len + 1);
	vsnprintf(at, (size_t)len + 1, format, again);
	va_end(again);
	t->len += (size_t)len;
}

void text_number(struct text *t, int64_t n)
{
	char digits[24], *p = digits + sizeof(digits);
	uint64_t rest = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;

	do
		*--p = (char)('0' + rest % 10);
	while (rest /= 10);
	if (n < 0)
		*--p = '-';
	text_add(t, p, (size_t)(digits + sizeof(digits) - p));
}

static void escape(struct text *t, unsigned char c)
{
	static const char hex[] = "0123456789abcdef";
	/* Not text_printf, which takes eight times as long: 0.8 s for a result of 8 MiB. */
	const char code[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};

	switch (c) {
	case '\n':
		text_add(t, "\\n", 2);
		break;
	case '\t':
		text_add(t, "\\t", 2);
		break;
	case '\r':
		text_add(t, "\\r", 2);
		break;
	case '"':
	case '\\':
		text_putc(t, '\\');
		text_putc(t, (char)c);
		break;
	default:
		text_add(t, code, sizeof(code));
	}
}

/* Returns true for bytes that a JSON string contains unescaped. */
static bool plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* Returns whether eight bytes are plain, in one test of all: no sum below carries into the next
 * byte unless a byte has its top bit set, which is tested separately. */
static bool all_plain(const unsigned char eight[8])
{
	const uint64_t each = 0x0101010101010101, top = 0x80 * each;
	uint64_t v;

	memcpy(&v, eight, sizeof(v));
	uint64_t printable = (v + 0x60 * each) & ~(v + each) & ~v;
	uint64_t unquoted = ((v ^ '"' * each) + 0x7f * each) & ((v ^ '\\' * each) + 0x7f * each);
	return (printable & unquoted & top) == top;
}

/* Adds one character of two or more bytes, or replaces an invalid byte sequence and clears *good.
 * Returns the number of bytes read. */
static size_t add_wide(struct text *t, const unsigned char *p, const unsigned char *end, bool *good)
{
	size_t bad, len = utf8_len(p, end, &bad);

	if (!len) {
		text_add(t, "\xef\xbf\xbd", 3);
		*good = false;
		return bad;
	}
	if (len == 2 && p[0] == 0xc2 && p[1] == 0x85)
		text_puts(t, "\\u0085");
	else if (len == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] & 0xfe) == 0xa8)
		text_puts(t, p[2] == 0xa8 ? "\\u2028" : "\\u2029");
	else
		text_add(t, p, len);
	return len;
}

bool json_string(struct text *t, const void *start, size_t len)
{
	const unsigned char *p = start ? start : (const void *)"", *end = p + len;
	bool good = true;

	text_putc(t, '"');
	while (p < end) {
		const unsigned char *run = p;

		while (end - p >= 8 && all_plain(p))
			p += 8;
		while (p < end && plain(*p))
			p++;
		text_add(t, run, (size_t)(p - run));
		if (p == end)
			break;
		if (*p < 0x80)
			escape(t, *p++);
		else
			p += add_wide(t, p, end, &good);
	}
	text_putc(t, '"');
	return good;
}

void json_value(struct text *t, const void *start, size_t len)
{
	const unsigned char *p = start, *end = p + len;
	bool good;

	while (p < end) {
		const unsigned char *run = p;

		while (p < end && *p >= 0x20 && *p < 0x80)
			p++;
		text_add(t, run, (size_t)(p - run));
		if (p < end && *p < 0x20)
			p++; /* blank space between the value's parts: strings have none of these */
		else if (p < end)
			p += add_wide(t, p, end, &good);
	}
}

bool utf8_valid(const void *start, size_t len)
{
	const unsigned char *p = start, *end = p + len;
	size_t bad;

	while (p < end) {
		size_t one = utf8_len(p, end, &bad);

		if (!one)
			return false;
		p += one;
	}
	return true;
}

void json_base64(struct text *t, const uint8_t *p, size_t len)
{
	static const char digit[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *out = reserve(t, (len + 2) / 3 * 4 + 2);

	*out++ = '"';
	for (; len >= 3; p += 3, len -= 3) {
		*out++ = digit[p[0] >> 2];
		*out++ = digit[(p[0] & 3) << 4 | p[1] >> 4];
		*out++ = digit[(p[1] & 15) << 2 | p[2] >> 6];
		*out++ = digit[p[2] & 63];
	}
	if (len) {
		unsigned second = len > 1 ? p[1] : 0;

		*out++ = digit[p[0] >> 2];
		*out++ = digit[(p[0] & 3) << 4 | second >> 4];
		*out++ = len > 1 ? digit[(second & 15) << 2] : '=';
		*out++ = '=';
	}
	*out++ = '"';
	t->len = (size_t)(out - t->p);
}

void json_error(struct text *t, const char *sentence, const char *code)
{
	text_puts(t, "{\"error\":");
	json_string(t, sentence, strlen(sentence));
	text_puts(t, ",\"code\":");
	json_string(t, code, strlen(code));
	text_puts(t, "}\n");
}

void json_time(struct text *t, int64_t ms_since_epoch)
{
	time_t seconds = (time_t)(ms_since_epoch / 1000);
	struct tm tm;

	if (ms_since_epoch <= 0 || !gmtime_r(&seconds, &tm)) {
		text_puts(t, "null");
		return;
	}
	text_printf(t, "\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\"", tm.tm_year + 1900, tm.tm_mon + 1,
		    tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(ms_since_epoch % 1000));
}

void json_member(struct text *t, const char *name, const char *value)
{
	text_printf(t, ",\"%s\":", name);
	if (value)
		json_string(t, value, strlen(value));
	else
		text_puts(t, "null");
}

void json_member_number(struct text *t, const char *name, uint64_t n)
{
	text_printf(t, ",\"%s\":%llu", name, (unsigned long long)n);
}

void json_member_bool(struct text *t, const char *name, bool value)
{
	text_printf(t, ",\"%s\":%s", name, value ? "true" : "false");
}

void json_member_time(struct text *t, const char *name, int64_t ms_since_epoch)
{
	text_printf(t, ",\"%s\":", name);
	json_time(t, ms_since_epoch);
}
