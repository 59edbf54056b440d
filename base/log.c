// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char log_role[32] = "ramet";
static enum log_level log_least = LOG_INFO;

void log_init(const char *role, enum log_level least)
{
	snprintf(log_role, sizeof(log_role), "%s", role);
	log_least = least;
}

/* What a guest or client chose must not forge a second line or drive the reader's terminal. To one
 * that reads UTF-8, U+0080 to U+009F are controls as well: U+009B stands for ESC [. */
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

/* The date and time up to the second change once a second: most lines find them made. */
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

static size_t render(char *line, size_t size, enum log_level level, const char *format,
		     va_list args)
{
	static const char *const names[] = {"debug", "info", "warn", "error"};
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
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
	ssize_t ignored = write(STDERR_FILENO, line, len);
	(void)ignored; /* there is nowhere left to tell that the log is gone */
	errno = saved;
}
