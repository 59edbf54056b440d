// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room. */
#ifndef RAMET_ORCHESTRATOR_CORE_EXEC_INTERNAL_H
#define RAMET_ORCHESTRATOR_CORE_EXEC_INTERNAL_H

#include "orchestrator/core/internal.h"

/* What happens to the connection of a sandbox (exec.c). */
void exec_agent_reached(struct sandbox *s);
void exec_agent_frame(struct sandbox *s, const struct agent_frame *frame);
void exec_agent_sent(struct sandbox *s);
void exec_agent_dropped(struct sandbox *s);

/* Takes over what the session journal of a previous instance says (exec-inherit.c). */
void exec_adopt(struct sandbox *s);
/* Removes session journals whose VM slot has no sandbox. */
void exec_sweep_journals(struct core *c);

#endif
