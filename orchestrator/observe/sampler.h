// SPDX-License-Identifier: Apache-2.0
/*
 * Looks at the VM process of each sandbox every few seconds, from outside: an idle VM process is
 * not woken.
 */
#ifndef RAMET_ORCHESTRATOR_OBSERVE_SAMPLER_H
#define RAMET_ORCHESTRATOR_OBSERVE_SAMPLER_H

#include "base/list.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/sandbox/sandboxes.h"

#define SAMPLER_TURNS 50

struct service;
struct sandbox;

/* This room's state for the service. */
struct sampler {
	struct list turns[SAMPLER_TURNS]; /* struct usage_sandbox.turn */
	/* The list to look at next; the list that gets the next sandbox. */
	unsigned turn, next_turn;
	struct sampling *job; /* in progress, or NULL */
	struct loop_timer timer;
	uint32_t step_ms;
};

/* Adds a sandbox that has its VM. It is removed when its state is freed (part.shed). */
void sampler_add(struct sandbox *s);

/* Starts to look at each VM process every `step_ms`. */
void sampler_start(struct service *c, uint32_t step_ms);
void sampler_stop(struct service *c);
/* Returns the memory of all sandboxes' VM processes, as of the last looks. */
struct memory_use sampler_memory(const struct service *c);

#endif
