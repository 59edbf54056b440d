// SPDX-License-Identifier: Apache-2.0
/*
 * The two pipes that are fd 1 and 2 of everything the driver runs. They live as long as the agent:
 * what an old interpreter left running writes on into the same pipes. What is written while no
 * call runs, or while its client is gone, is read and dropped, so that no writer ever blocks for
 * good; what is written during a call belongs to it, whoever wrote it.
 */
#ifndef RAMET_GUEST_OUTPUT_H
#define RAMET_GUEST_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "guest/conn.h"

enum output_stream { OUTPUT_STDOUT, OUTPUT_STDERR, OUTPUT_COUNT };

/* Must be called once. The write ends stay open here too, so the pipes never hang up. 0, -errno. */
int output_open(struct err *e);
int output_write_end(enum output_stream stream);
/*
 * A sealed page that holds one u64 for each stream: the bytes read from its pipe so far. With it
 * the driver knows when the agent has passed a point in one stream and it may write to the other,
 * also while some child keeps that pipe full.
 */
int output_progress_fd(void);

/* From now on output goes to `c`, or nowhere when it is NULL. */
void output_to(struct conn *c);
/* The connection of output_to has sent all it had. */
void output_resume(void);

/* Marks what the pipes hold now as the last of this call. */
void output_mark_end(void);
/* Moves output up to that mark. True when all of it was; else again after output_resume. */
bool output_drain(void);

#endif
