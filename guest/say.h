// SPDX-License-Identifier: Apache-2.0
/* One short line on standard error, which in a guest is the console. */
#ifndef RAMET_GUEST_SAY_H
#define RAMET_GUEST_SAY_H

#include <stdio.h>
#include <unistd.h>

#define say(format, ...) dprintf(STDERR_FILENO, "ramet: " format "\n", ##__VA_ARGS__)

#endif
