// SPDX-License-Identifier: Apache-2.0
/*
 * The two pipes that are fd 1 and 2 of everything the driver runs, and the output of the call that
 * runs or ran last. The pipes live as long as the agent: processes that an old interpreter left
 * running continue to write to them. Output between calls is read and dropped, so that no writer
 * blocks for good. Output during a call belongs to that call, whoever wrote it. It is sent to the
 * call's connection, and the last of it stays in a ring for a host that attaches later.
 */
#ifndef RAMET_GUEST_EXEC_OUTPUT_H
#define RAMET_GUEST_EXEC_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "guest/conn.h"
#include "guest/exec/driver.h"
#include "guest/exec/output-ring.h"

#define OUTPUT_PIPES	   2 /* of OUTPUT_STDOUT and OUTPUT_STDERR */
#define OUTPUT_DROPPED_MAX 512

struct output_pipe {
	struct watch watch; /* of the read end */
	struct output *output;
	int write_fd;
	enum output_kind kind;
	int left;	    /* bytes that were in the pipe at the last mark and are unread */
	uint64_t *progress; /* in the page that the driver sees; never read here */
	uint64_t moved;
};

/* All fields are private to output.c. */
struct output {
	/* --- as long as the agent --- */
	struct output_pipe pipes[OUTPUT_PIPES];
	struct output_pipe *last; /* the one that was read last */
	int progress_fd;
	uint64_t *page; /* shared with the driver */
	/* In the page that the driver sees: the number of `last` while left_in_pipe, else 0. */
	uint64_t *older;
	uint64_t *results; /* in that page: how many results were taken, or dropped */
	uint64_t n_results;
	/* The end of the text on stderr that was dropped: why an interpreter did not start. */
	char dropped[OUTPUT_DROPPED_MAX];
	size_t dropped_len;

	/* --- the call's --- */
	bool of_call;	       /* text that arrives is a call's output */
	struct conn *sink;     /* NULL: nobody is there to take it */
	uint64_t sent;	       /* bytes that were given to a connection */
	bool no_backpressure;  /* the writer does not wait for a connection */
	bool ends;	       /* only bytes before the marks are the call's */
	bool part_waits;       /* a part of a result will follow the bytes before the marks */
	bool due;	       /* text was left in a pipe, or was read and could be sent */
	unsigned reads_in_row; /* of `last`, up to READS_IN_ROW_MAX */
	/*
	 * Text is left in `last`: the pipe is not watched, so its writer wakes nobody. Text in the
	 * other pipe is newer. `older` reports this to the driver, which can then write to the
	 * other pipe at once: it need not wait until `last` is read.
	 */
	bool left_in_pipe;
	int64_t send_at; /* when output that is due is sent, by loop_now_ms; 0: none is due */
	bool flooded;	 /* FLOOD bytes or more came before output was sent the last time */
	struct output_ring ring;
};

/* Opens the pipes of a zeroed struct. The write ends stay open here too, so the pipes never hang
 * up. Returns 0 or -errno; in both cases, output_close releases what it holds. */
int output_open(struct output *o, struct err *e);
/* Closes the pipes; processes that still write to them get SIGPIPE. */
void output_close(struct output *o);
/* Returns what the driver gets: the pipes' write ends and the page of driver_pipes.progress. */
struct driver_pipes output_driver_pipes(const struct output *o);

/* Reads and drops what the pipes hold now: it was written before the call that starts next. */
void output_drop_old(struct output *o);
/* Forgets the text that was dropped so far. */
void output_forget_dropped(struct output *o);
/* Copies the last line that was dropped from stderr since output_forget_dropped, without control
 * characters; empty if there is none. */
void output_last_dropped(const struct output *o, char *out, size_t size);
/* Starts a call, of which the host has the first `have` bytes: what arrives from now on is its
 * output, and the ring is cleared. */
void output_begin(struct output *o, uint64_t have);
/* Returns whether byte `from` of the output and all bytes after it are in the ring, or will be. */
bool output_keeps(const struct output *o, uint64_t from);
/* Sends the output to `c` from now on, starting at byte `from`. It waits while `c` is NULL. */
void output_to(struct output *o, struct conn *c, uint64_t from);
/* Reads on without a connection until the next output_to; the ring drops its oldest bytes. */
void output_drop_backpressure(struct output *o);
/* Continues after the connection of output_to has sent everything it was given. */
void output_resume(struct output *o);

/* Returns the milliseconds until output_on_time has to be called; -1: nothing is due. */
int output_timeout_ms(const struct output *o);
/* Sends output that has waited long enough; called after each event. `ran_ms`: how long the call's
 * code has been running. */
void output_on_time(struct output *o, int64_t ran_ms);

/* Marks what the pipes hold now as the last output of this call. */
void output_mark_end(struct output *o);
/* Reads the pipes up to that mark. Returns true when all of it was read; otherwise it is to be
 * called again after output_resume. */
bool output_drain(struct output *o);
/* Adds a part of a result, or its end, after the text that the pipes hold now. Returns false when
 * there is no room for it yet: it is to be called again after output_resume. */
bool output_add_part(struct output *o, enum output_kind kind, const void *data, size_t len);
/* Counts a result of the driver's that belongs to no call. */
void output_drop_result(struct output *o);
/* Appends text on stderr. */
void output_add(struct output *o, const void *text, size_t len);
/* Returns true when the connection was given everything and has sent it, or is corked and will
 * send it with what follows; or when there is no connection. */
bool output_is_sent(const struct output *o);
/* Ends the call: what arrives from now on belongs to no call. The ring stays until output_begin. */
void output_end(struct output *o);

#endif
