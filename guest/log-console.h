// SPDX-License-Identifier: Apache-2.0
/* Writes one short line to standard error, which in a guest is the console. */
#ifndef RAMET_GUEST_LOG_CONSOLE_H
#define RAMET_GUEST_LOG_CONSOLE_H

#include <stdio.h>
#include <unistd.h>

#define log_console(format, ...) dprintf(STDERR_FILENO, "ramet: " format "\n", ##__VA_ARGS__)

#endif
