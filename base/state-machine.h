// SPDX-License-Identifier: Apache-2.0
/*
 * State machines as tables, which have the next state for each state and event. The owner stores
 * the state. States and events are two enums of the owner; both begin at 0.
 *
 *   static const uint8_t next[N_STATES][N_EVENTS] = {
 *           [IDLE] = {[START] = STATE_TO(BUSY)},
 *           [BUSY] = {[DONE] = STATE_TO(IDLE)},
 *   };
 *   static const struct state_machine machine = STATE_MACHINE("job", next);
 */
#ifndef RAMET_BASE_STATE_MACHINE_H
#define RAMET_BASE_STATE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

/* An entry of the table. Entries that are not set are illegal steps. */
#define STATE_TO(state) ((uint8_t)((state) + 1))

struct state_machine {
	const char *name; /* names the object in the log; static */
	unsigned n_states, n_events;
	const uint8_t *next; /* [n_states][n_events] */
};
#define STATE_MACHINE(what, table)                                                                 \
	{                                                                                          \
		.name = (what), .n_states = sizeof(table) / sizeof((table)[0]),                    \
		.n_events = sizeof((table)[0]), .next = &(table)[0][0]                             \
	}

/* If `event` is legal in *state, moves *state to the state that follows and returns true. For
 * events that may come in a state where they are illegal. */
bool state_try(const struct state_machine *m, unsigned *state, unsigned event);
/* Returns the state that follows. An illegal step is a bug: it is logged and leaves the state as it
 * is; a debug build aborts. */
unsigned state_after(const struct state_machine *m, unsigned state, unsigned event);

#endif
