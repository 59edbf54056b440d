// SPDX-License-Identifier: Apache-2.0
/* Reads a corrupt session journal. An accepted journal must satisfy the invariants. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/exec/bundle.h"
#include "orchestrator/exec/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool right)
{
	if (!right)
		abort();
}

static void check_events(const struct replay *r)
{
	const struct event *ev;
	const char *traceparent;
	uint64_t last = 0;
	size_t n = 0;

	for (; (ev = replay_after(r, last, &traceparent)); last = ev->seq, n++) {
		expect(ev->seq > last && ev->type <= EVENT_FAULT && ev->len <= REPLAY_BYTES_MAX);
		expect(ev->type < EVENT_RESULT || bundle_is_sound(ev->data, ev->len));
		expect((ev->type == EVENT_ERROR) == (ev->code != NULL));
		expect(!traceparent || strlen(traceparent) > 0);
	}
	expect(n == r->count); /* else the events are not in the order of their numbers */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct journal_state s;
	struct err e;

	if (journal_read(data, size, &s, &e) == 0) {
		check_events(&s.replay);
		expect(s.replay.bytes <= REPLAY_BYTES_MAX);
		expect(s.history.count <= HISTORY_MAX);
		for (uint32_t i = 0; i < s.history.count; i++) {
			const struct history_entry *one = &s.history.entries[i];

			expect(one->kind < HISTORY_NKINDS && one->result < HISTORY_NRESULTS);
			expect(one->after < one->n && (!i || one->n > one[-1].n));
		}
		for (const struct exec_point *p = &s.point; p; p = p->next) {
			expect(p->running || !p->traceparent);
			expect(p->bundle.len <= AGENT_BUNDLE_MAX);
		}
	}
	journal_state_fini(&s);
	return 0;
}
