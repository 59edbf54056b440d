// SPDX-License-Identifier: Apache-2.0
#include "base/state-machine.h"

#include <assert.h>

#include "base/log.h"

bool state_try(const struct state_machine *m, unsigned *state, unsigned event)
{
	assert(*state < m->n_states && event < m->n_events);
	uint8_t entry = m->next[*state * m->n_events + event];

	if (!entry)
		return false;
	*state = entry - 1u;
	return true;
}

unsigned state_after(const struct state_machine *m, unsigned state, unsigned event)
{
	unsigned next = state;
	bool legal = state_try(m, &next, event);

	if (!legal)
		log_error("bug: event %u is illegal in state %u of a %s; the state is unchanged",
			  event, state, m->name);
	assert(legal);
	return next;
}
