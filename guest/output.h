// SPDX-License-Identifier: Apache-2.0
/*
 * The two pipes that are fd 1 and 2 of everything the driver runs. They live as long as the agent:
 * what an old interpreter left running writes on into the same pipes. What is written while no
 * call runs is read and dropped, so that no writer ever blocks for good; what is written during a
 * call belongs to it, whoever wrote it. It goes to the call's connection; the last of it is kept
 * beyond that, for a host that attaches when the connection broke.
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
 * Returns a sealed page with three u64: for each stream the bytes read from its pipe so far, then
 * the number of the stream (1: stdout, 2: stderr, 0: none) whose pipe is emptied before the other
 * one is read. By these the driver knows when it may write to one stream behind its text in the
 * other, even while some child keeps that pipe full.
 */
int output_progress_fd(void);

/* A call starts: what comes from now on is its output, and what was kept of another is gone. */
void output_begin(void);
/*
 * Returns true when there is text that is not sent yet, in its pipe or read already. It can wait
 * for more text or the call's end, since its writer wakes nobody meanwhile.
 */
bool output_is_due(void);
/* Takes and sends the text that is there now. Returns how many bytes it took. */
size_t output_send_due(void);
/* True when byte `from` of it and all after it are there, or will be. */
bool output_keeps(uint64_t from);
/* From now on its output goes to `c`, from byte `from` on; it waits while that is NULL. */
void output_to(struct conn *c, uint64_t from);
/* Nobody is waited for until the next output_to: what is too much to keep is given up. */
void output_let_go(void);
/* The connection of output_to has sent all it had. */
void output_resume(void);

/* Marks what the pipes hold now as the last of this call. */
void output_mark_end(void);
/* Takes output up to that mark out of the pipes. True when all of it was; else again after
 * output_resume. */
bool output_drain(void);
/* Puts text behind it, on stderr. */
void output_add(const void *text, size_t len);
/* True when the connection was given everything and has sent it, or will with what comes next (it
 * is corked); or there is none. */
bool output_is_sent(void);
/* What comes from now on is of no call. What is kept stays until output_begin. */
void output_end(void);

#endif
