// SPDX-License-Identifier: Apache-2.0
/* The agent's log: standard error, which in a guest is the console. */
#ifndef RAMET_GUEST_LOG_CONSOLE_H
#define RAMET_GUEST_LOG_CONSOLE_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text-file.h"

/* Writes one short line. */
#define log_console(format, ...) dprintf(STDERR_FILENO, "ramet: " format "\n", ##__VA_ARGS__)

/* Writes the text to a file of the kernel, or logs why it could not. */
static inline void write_or_log(const char *path, const char *text)
{
	int bad = text_file_write(AT_FDCWD, path, text);

	if (bad)
		log_console("write \"%s\" to %s: %s", text, path, strerror(-bad));
}

#endif
