// SPDX-License-Identifier: Apache-2.0
/* A sandbox that is made and forked only to see that this works. */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_CANARY_H
#define RAMET_ORCHESTRATOR_OPERATOR_CANARY_H

#include <stdbool.h>

#include "orchestrator/operator/command.h"

struct canary;

/* Makes a sandbox, forks it and deletes both. Calls fn(arg, text, well) at the end, once, with the
 * times or with the reason why it failed; never before this function returns. Owned by the caller,
 * who may free it in `fn`. */
struct canary *canary_start(const struct command_env *env,
			    void (*fn)(void *arg, const char *text, bool well), void *arg);
/* Frees it, also before its end: the sandboxes then end by their time limit. NULL is ignored. */
void canary_free(struct canary *c);

#endif
