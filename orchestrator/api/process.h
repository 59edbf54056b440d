// SPDX-License-Identifier: Apache-2.0
/* What requests for processes and for terminals share. */
#ifndef RAMET_ORCHESTRATOR_API_PROCESS_H
#define RAMET_ORCHESTRATOR_API_PROCESS_H

#include "orchestrator/guestops/guestops.h"

#define COMMAND_LABEL_MAX 256

struct request;

/* Returns false, with an answer given, unless exactly one of `command`, which clients call `field`,
 * and `argv` is given and argv names a program. */
bool command_is_good(struct request *r, const char *field, const char *command, char *const *argv);
/* Makes a label of the command for people: its words, cut between two characters. */
void command_label(char out[static COMMAND_LABEL_MAX + 1], const char *command, char *const *argv);
/* Sends the request, about the process of the path. */
void process_do(struct request *r, struct agent_process_request request, service_done_fn *fn);

#endif
