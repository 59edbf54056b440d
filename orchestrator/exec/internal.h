// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room. */
#ifndef RAMET_ORCHESTRATOR_EXEC_INTERNAL_H
#define RAMET_ORCHESTRATOR_EXEC_INTERNAL_H

#include "orchestrator/exec/queue.h"
#include "orchestrator/sandbox/context.h"

struct agent_frame;

/* Starts the next queued call, unless one is running (exec.c). */
void exec_start_waiting(struct sandbox *s);
/* Handle events of the connection to a sandbox's agent (exec.c). */
void exec_agent_reached(struct sandbox *s);
void exec_agent_frame(struct sandbox *s, const struct agent_frame *frame);
void exec_agent_sent(struct sandbox *s);
void exec_agent_dropped(struct sandbox *s);
/* Restores the sandbox's state from the session journal of a previous instance (inherit.c). */
void exec_adopt(struct sandbox *s);
/* Removes session journals whose VM slot has no sandbox. */
void exec_sweep_journals(struct core *c);

/* Commits the changes noted in the journal, then calls output_trim. */
void exec_keep(struct sandbox *s);
/* Returns true when an unfinished line of the running call exceeds LINE_TIGHT_BYTES, the limit
 * while the output budget is used up. */
bool exec_has_long_line(struct sandbox *s);
/* Delivers what is held of such lines as partial lines. */
void exec_cut_lines(struct sandbox *s);
/* Drops held output until all of it is within the budget (output.c). */
void output_trim(struct core *c);
/* Notifies followers of new events, or that nothing runs any more. */
void follow_news(struct sandbox *s);

/* Notes that the guest has sent something (stall.c). */
void stall_heard(struct sandbox *s);
/* Ends the watch that stall_begin started, since the guest runs no call any more. */
void stall_end(struct sandbox *s);

#endif
