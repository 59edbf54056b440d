// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

static const char *const names[] = {"debug", "info", "warn", "error"};
static char log_role[32] = "ramet";
static enum log_level log_least = LOG_INFO;
static bool log_json;

static void write_now(const char *lines, size_t len)
{
	ssize_t ignored = write(STDERR_FILENO, lines, len);

	(void)ignored; /* there is nowhere left to report that the log is gone */
}

static log_write_fn *log_output = write_now;

void log_set_output(log_write_fn *output)
{
	log_output = output ? output : write_now;
}

void log_write(const char *lines, size_t len)
{
	log_output(lines, len);
}

void log_init(const char *role, enum log_level least)
{
	snprintf(log_role, sizeof(log_role), "%s", role);
	log_least = least;
}

void log_set_json(bool json)
{
	log_json = json;
}

/*
 * Replaces control characters by question marks. Text from a guest or client must not forge a
 * second line or control the reader's terminal. For a UTF-8 terminal, U+0080 to U+009F are control
 * characters too: U+009B stands for ESC [.
 */
static void escape_controls(char *text)
{
	unsigned char before = 0;

	for (; *text; before = (unsigned char)*text++) {
		unsigned char c = (unsigned char)*text;
		bool high = c >= 0x80 && c < 0xa0 && (before < 0x80 || before == 0xc2);

		if (c < 0x20 || c == 0x7f || high)
			*text = '?';
	}
}

/* Returns the date and time of the second `now`. Most lines reuse the text of the previous one. */
static const char *second(time_t now)
{
	static _Thread_local char text[24];
	static _Thread_local time_t made;
	struct tm tm;

	if (now != made && gmtime_r(&now, &tm)) {
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
		made = now;
	}
	return text;
}

/*
 * Appends text as the inside of a JSON string. Bytes that are not UTF-8 become question marks.
 * Leaves room for the end of the object.
 */
static size_t add_quoted(char *line, size_t used, size_t size, const char *text)
{
	const unsigned char *p = (const unsigned char *)text, *end = p + strlen(text);

	while (p < end && used + 8 < size) {
		size_t bad, len = utf8_len(p, end, &bad);

		if (*p == '"' || *p == '\\')
			line[used++] = '\\';
		if (len)
			memcpy(line + used, p, len);
		else
			line[used] = '?';
		used += len ? len : 1;
		p += len ? len : bad;
	}
	return used;
}

static size_t render_json(char *line, size_t size, enum log_level level, const struct timespec *now,
			  const char *text)
{
	int head = snprintf(line, size,
			    "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"role\":\"%s\",\"text\":\"",
			    second(now->tv_sec), now->tv_nsec / 1000000, names[level], log_role);
	size_t used = add_quoted(line, (size_t)head, size, text);

	memcpy(line + used, "\"}\n", 3);
	return used + 3;
}

static size_t render(char *line, size_t size, enum log_level level, const char *format,
		     va_list args)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (log_json) {
		char text[LOG_LINE_MAX];

		vsnprintf(text, sizeof(text), format, args);
		escape_controls(text);
		return render_json(line, size, level, &now, text);
	}
	int used = snprintf(line, size, "%s.%03ldZ %s %s: ", second(now.tv_sec),
			    now.tv_nsec / 1000000, names[level], log_role);
	vsnprintf(line + used, size - (size_t)used - 1, format, args);
	escape_controls(line + used);
	size_t len = strlen(line);
	line[len++] = '\n';
	return len;
}

size_t log_render(char *line, size_t size, enum log_level level, const char *format, ...)
{
	va_list args;

	if (level < log_least)
		return 0;
	va_start(args, format);
	size_t len = render(line, size, level, format, args);
	va_end(args);
	return len;
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	int saved = errno;
	va_list args;

	if (level < log_least)
		return;
	va_start(args, format);
	size_t len = render(line, sizeof(line), level, format, args);
	va_end(args);
	log_write(line, len);
	errno = saved;
}
