// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the session journal in which a previous instance of the service left the last events of a
 * sandbox's calls and the progress of the running one.
 */
#include "base/log.h"
#include "orchestrator/exec/internal.h"

/* Starts a new journal. The state of the guest is unknown, so it may still run a call. */
static void take_nothing(struct sandbox *s)
{
	exec_of(s)->main.guest_busy = true;
	exec_of(s)->journal = journal_new(s->service->config.run_dir, s->slot, s->pid);
}

/* Restores the state from the journal. After a merge, the catalogue may have reserved event numbers
 * that the journal does not know. The last number used is then unknown, and the row's is kept. */
static void take_journal(struct sandbox *s, struct journal_state *past)
{
	if (past->seq_reserved == s->seq_reserved || past->seq > s->seq)
		s->seq = past->seq;
	exec_of(s)->main.guest_busy = past->guest_busy;
	s->idle_since_ms = past->idle_since_ms;
	s->expires_ms = past->expires_ms;
	replay_move(&exec_of(s)->replay, &past->replay);
	exec_of(s)->history = past->history;
	past->history = (struct history_log){0};
	if (exec_copy(s, &past->point) < 0)
		log_error("sandbox %s: no memory to take over its running call", s->id);
}

/* Returns true when the journal can be continued and already holds the current event numbers. */
static bool journal_is_current(const struct sandbox *s, const struct journal_state *past)
{
	return journal_goes_on(exec_of(s)->journal) && past->seq == s->seq &&
	       past->seq_reserved == s->seq_reserved;
}

void exec_adopt(struct sandbox *s, const struct store_sandbox *row)
{
	struct journal_state past;

	exec_of(s)->journal = journal_open(s->service->config.run_dir, s->slot, s->pid, &past);
	if (exec_of(s)->journal)
		take_journal(s, &past);
	else
		take_nothing(s);
	journal_count(exec_of(s)->journal, exec_of(s)->output);
	if (!journal_is_current(s, &past))
		exec_keep_all(s, REPLAY_BYTES_MAX);
	if (!exec_of(s)->history.count)
		exec_happened(s, &(struct history_entry){.kind = HISTORY_CREATED,
							 .at_ms = s->created_at_ms});
	output_trim(s->service);
	journal_times(exec_of(s)->journal, s->expires_ms, s->idle_since_ms);
	journal_state_fini(&past);
}

static bool has_sandbox(void *arg, uint32_t slot)
{
	struct service *c = arg;

	return slot < c->vms.max_vms && c->vms.slots[slot];
}

void exec_sweep_journals(struct service *c)
{
	journals_sweep(c->config.run_dir, has_sandbox, c);
}
