// SPDX-License-Identifier: Apache-2.0
/*
 * Gives a bash context its work. bash cannot read frames, which have zero bytes, so it reads lines
 * of commands from a pipe: short ones, which call the functions of driver.bash. The code of a call
 * and its folder and variables are in two files. Answers are frames, as from the other drivers.
 */
#ifndef RAMET_GUEST_EXEC_BASH_FEED_H
#define RAMET_GUEST_EXEC_BASH_FEED_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct bash_feed {
	char dir[PATH_MAX]; /* has the two files; empty: it is closed */
	int commands;	    /* write end of the pipe; -1: there is none */
	int code;	    /* the file of the code; -1: not open */
	uint32_t missing;   /* bytes of code */
	int error;	    /* why a file could not be written: -errno */
};

/* Creates the folder `dir` for the files. Returns 0 or -errno. */
int bash_feed_open(struct bash_feed *b, const char *dir, struct err *e);
/* Makes a new pipe, whose first line loads driver.bash from `script`. Returns the read end, which
 * the caller closes, or -errno. */
int bash_feed_start(struct bash_feed *b, const char *script, struct err *e);
/* Passes on a frame for a driver: AGENT_EXEC, AGENT_CODE or AGENT_RESEED. */
void bash_feed_put(struct bash_feed *b, uint8_t type, const uint8_t *payload, size_t len);
/* Closes the pipe: its reader is gone. */
void bash_feed_stop(struct bash_feed *b);
/* Closes everything and removes the folder. */
void bash_feed_close(struct bash_feed *b);

#endif
