// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room. */
#ifndef RAMET_ORCHESTRATOR_EXEC_INTERNAL_H
#define RAMET_ORCHESTRATOR_EXEC_INTERNAL_H

#include "orchestrator/config/failure.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/sandbox/service.h"

/* Contexts that have calls, or had some until recently. */
#define LANES_MAX (2 * AGENT_CONTEXT_MAX)

struct agent_frame;
struct op;
struct failure;

/* Starts the next queued call, unless one is running (exec.c). */
void exec_start_waiting(struct sandbox *s);
/* Handles a frame for the first call of the lane `arg`. */
void exec_on_frame(void *arg, const struct agent_frame *frame);
/* Continues the running call on a new connection to the agent, or fails it. */
void exec_lane_reached(struct exec_lane *lane);
/* Moves the calls of `from` to the end of those of `to`. */
void exec_append_calls(struct exec_lane *to, struct exec_lane *from);
/* Fails the lane's first call. */
void exec_lane_fail(struct exec_lane *lane, enum failure_code code, const char *text);
/* Ends the charge for the bytes of the lane's request, which was sent, or is lost with its
 * connection. */
void exec_lane_sent(struct exec_lane *lane);
/* Returns true while the lane's first call is at the guest. */
bool exec_lane_runs(const struct exec_lane *lane);

/* The interrupt of a call whose client has hung up. */
struct exec_hang_up {
	bool due;	      /* the guest has not confirmed it yet */
	struct op *interrupt; /* in flight; NULL: none */
};
/* Begins that interrupt of the lane's call with this number (interrupt.c). The limit of pending
 * interrupts does not apply: there is at most one for each call at a guest. */
void interrupt_for_hang_up(struct exec_lane *lane, uint64_t number, struct exec_hang_up *hang_up);

/* Initializes a lane without calls and without a connection (lane.c). */
void lane_init(struct exec_lane *lane, struct sandbox *s, const struct guest_link_events *events);
/* Returns the lane of a context; a new one if there is none. Returns NULL, with *f filled, when too
 * many contexts have calls. */
struct exec_lane *lane_of(struct sandbox *s, const char *context, struct failure *f);
/* Connects a context with waiting calls to the agent. */
void lane_dial(struct exec_lane *lane);
/* Notes that a call has left the lane. */
void lane_left(struct exec_lane *lane);
/* Gives up the connection: the guest broke the protocol or its time limit, or has no such context
 * (`reason` is NULL). */
void lane_lose(struct exec_lane *lane, const char *reason);
/* Handles an event of the connection (struct guest_link_events). */
void lane_on_sent(void *arg);

/* The default interpreter's lane (main-lane.c). */
void main_lane_init(struct exec_lane *lane, struct sandbox *s);
/* Ends its connection: the sandbox loses its VM. */
void main_lane_close(struct exec_lane *lane);
/* Gives up its connection, and makes a new one soon. */
void main_lane_lose(struct exec_lane *lane, const char *reason);
/* Moves the lanes of `from`, whose VM `to` gets. The running calls of `to` fail with the text. */
void lanes_move(struct sandbox *from, struct sandbox *to, const struct failure *f);
/* Frees all lanes of contexts, and their calls, without reporting. */
void lanes_free(struct sandbox *s);

/* Loops over the lanes of the sandbox, the main one first. The present one may be freed. */
#define EACH_LANE(lane, s)                                                                         \
	for (struct exec_lane *lane = &exec_of(s)->main, *after_;                                  \
	     lane && ((after_ = lane_after(lane)), true); lane = after_)
struct exec_lane *lane_after(const struct exec_lane *lane);

/* Restores the sandbox's state from the session journal of a previous instance (inherit.c). */
void exec_adopt(struct sandbox *s, const struct store_sandbox *row);

/* Commits the changes noted in the journal, then calls output_trim. */
void exec_keep(struct sandbox *s);
/* Returns true when an unfinished line of a running call exceeds LINE_TIGHT_BYTES, the limit while
 * the output budget is used up. */
bool exec_has_long_line(struct sandbox *s);
/* Delivers unfinished lines that are longer than LINE_TIGHT_BYTES, as partial lines. */
void exec_cut_lines(struct sandbox *s);
/* Drops held output until all of it is within the budget (output.c). */
void output_trim(struct service *c);
/* Notifies followers of new events, or that nothing runs any more. */
void follow_news(struct sandbox *s);

/* Starts to watch the progress of the lane's call (stall.c). */
void stall_begin(struct exec_lane *lane);
/* Notes that the guest has sent something. */
void stall_heard(struct exec_lane *lane);
/* Ends the watch that stall_begin started, since the guest does not run the call any more. */
void stall_end(struct exec_lane *lane);

#endif
