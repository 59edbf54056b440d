// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024

static char log_role[32] = "ramet";
static enum log_level log_least = LOG_INFO;

void log_init(const char *role, enum log_level least)
{
	snprintf(log_role, sizeof(log_role), "%s", role);
	log_least = least;
}

/* What a guest or client chose must not forge a second line or drive the reader's terminal. */
static void escape_controls(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

static int prefix(char *line, size_t size, enum log_level level)
{
	static const char *const names[] = {"debug", "info", "warn", "error"};
	struct timespec now;
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	return snprintf(line, size,
			"%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s: ", tm.tm_year + 1900,
			tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
			now.tv_nsec / 1000000, names[level], log_role);
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	int saved = errno;
	va_list args;

	if (level < log_least)
		return;
	int used = prefix(line, sizeof(line), level);
	va_start(args, format);
	vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
	va_end(args);
	escape_controls(line + used);
	size_t len = strlen(line);
	line[len++] = '\n';
	ssize_t ignored = write(STDERR_FILENO, line, len);
	(void)ignored; /* there is nowhere left to tell that the log is gone */
	errno = saved;
}
