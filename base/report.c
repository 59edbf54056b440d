// SPDX-License-Identifier: Apache-2.0
#include "base/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char cut_mark[] = "\n(cut off here)\n";

struct report report_on(char *buffer, size_t size)
{
	buffer[0] = '\0';
	return (struct report){.text = buffer, .size = size};
}

static void mark_cut(struct report *r)
{
	r->cut = true;
	r->len = r->size - 1;
	memcpy(r->text + r->size - sizeof(cut_mark), cut_mark, sizeof(cut_mark));
}

void report_add(struct report *r, const char *format, ...)
{
	size_t room = r->size - r->len;
	va_list args;

	if (r->cut)
		return;
	va_start(args, format);
	int len = vsnprintf(r->text + r->len, room, format, args);
	va_end(args);
	if (len >= 0 && (size_t)len < room)
		r->len += (size_t)len;
	else
		mark_cut(r);
}

static char cleaned(char c)
{
	return (c >= ' ' && c <= '~') || c == '\n' ? c : '?';
}

void report_clean(char *line)
{
	for (; *line; line++)
		*line = *line == '\n' ? '?' : cleaned(*line);
}

void report_add_foreign(struct report *r, const char *text, size_t len)
{
	len = strnlen(text, len);
	for (size_t i = 0; i < len && !r->cut; i++) {
		if (r->len + 1 < r->size)
			r->text[r->len++] = cleaned(text[i]);
		else
			mark_cut(r);
	}
	if (!r->cut)
		r->text[r->len] = '\0';
}
