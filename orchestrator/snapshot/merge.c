// SPDX-License-Identifier: Apache-2.0
/*
 * A merge moves a sandbox's id to the VM of one of its descendants: first in the catalogue, in one
 * transaction, then in memory, within the same turn of the loop. No other call sees a state in
 * between.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/sandbox/tree.h"
#include "orchestrator/snapshot/internal.h"

/* Fills `lines` with the new ancestors of the winner's descendants, which descend from the parent
 * after the merge. Returns their number; the caller frees their `ancestors`. */
static size_t rewrite_lines(const struct sandbox *winner, const char *parent,
			    struct store_line *lines)
{
	size_t n = 0;

	list_each (pos, &winner->living_descendants) {
		const struct sandbox *s =
			container_of(pos, struct ancestry, of_ancestor)->descendant;

		lines[n++] = (struct store_line){s->id,
						 lineage_merged(s->ancestors, winner->id, parent)};
	}
	return n;
}

/* Applies the new ancestor lists if `keep`, else frees them. */
static void apply_lines(struct sandbox *s, const struct store_line *lines, size_t n, bool keep)
{
	for (size_t i = 0; i < n; i++) {
		char *ancestors = (char *)(uintptr_t)lines[i].ancestors;
		struct sandbox *each =
			keep ? sandbox_living(s->service, s->tenant, lines[i].id) : NULL;

		if (each)
			lineage_change(each, ancestors);
		else
			free(ancestors);
	}
}

/* Drops the parent's VM with its connections and gives the parent the winner's VM. The network
 * access is closed if it was closed for the parent or for the winner. */
static void move_vm(struct sandbox *parent, struct sandbox *winner, const struct store_merge *m)
{
	struct vmproc *old = parent->vm;

	exec_move_link(winner, parent);
	tree_vm_ends(parent);
	parent->use = winner->use;
	winner->use = (struct vm_use){0}; /* its VM does not end */
	parent->vm = winner->vm;
	winner->vm = NULL;
	parent->slot = winner->slot;
	parent->pid = winner->pid;
	winner->pid = 0;
	memcpy(parent->instance, winner->instance, sizeof(parent->instance));
	vmproc_set_owner(parent->vm, &sandbox_vm_owner, parent);
	vmproc_drop(old, NULL, NULL);
	parent->config.egress = m->egress;
}

/* Returns the number of the entry in the history that has the checkpoint's state, or that of the
 * nearest earlier checkpoint with an entry; 0: none. */
static uint32_t find_state(const struct history_log *h, const struct checkpoint *k)
{
	uint32_t n = 0;

	for (; k && !n; k = k->parent.to)
		n = history_find(h, k->space->id);
	return n;
}

/* Adds the move to the parent's history. `to`: NULL for a merge. */
static void note_move(struct sandbox *parent, const struct sandbox *winner, const struct space *to)
{
	struct history_log *h = &exec_of(parent)->history;
	struct history_entry e = {.kind = to ? HISTORY_ROLLBACK : HISTORY_MERGE,
				  .at_ms = realtime_ms()};

	snprintf(e.text, sizeof(e.text), "%s", to ? to->id : winner->id);
	uint32_t from = find_state(h, to ? to->checkpoint : snapshots_of(winner)->checkpoint.to);
	if (!to)
		from = history_join(h, parent->id, &exec_of(winner)->history, from);
	history_add(h, &e, from ? from : history_first(h));
}

/* Gives the parent the winner's VM and state. Operations in progress in the parent's previous VM
 * fail with `f`. `to`: the checkpoint that the winner was started from for a rollback; NULL for a
 * merge. */
static void move(struct sandbox *parent, struct sandbox *winner, const struct store_merge *m,
		 const struct space *to, const struct failure *f)
{
	/* An undo counts a merge as a call, also if the winner has run none. */
	const bool is_call = !to && parent->config.checkpoint_calls;
	const uint64_t seq = max_u64(parent->seq, winner->seq) + is_call;
	const uint64_t state = is_call ? seq : each_call_state(winner);

	sandbox_fail_ops(parent, f);
	exec_move_interrupts(winner, parent);
	sandbox_fail_ops(winner, f);
	exec_move(winner, parent, f);
	move_vm(parent, winner, m);
	exec_move_events(winner, parent, seq, m->seq_reserved);
	note_move(parent, winner, to);
	checkpoint_ref_set(&snapshots_of(parent)->checkpoint, snapshots_of(winner)->checkpoint.to);
	each_call_moved(parent, state, to);
	sandbox_end_merged(winner, m->at_ms, m->text);
	exec_keep_all(parent, REPLAY_BYTES_MAX);
	sandbox_touch(parent);
	exec_dial(parent);
	stall_begin_all(parent);
	exec_hold(parent, false);
	sandbox_schedule(parent);
}

/* Returns what the catalogue records for merges and rollbacks alike. */
static struct store_merge move_of(const struct sandbox *parent, const struct sandbox *winner)
{
	return (struct store_merge){
		.parent = parent->id,
		.checkpoint = checkpoint_ref_id(&snapshots_of(winner)->checkpoint),
		.slot = winner->slot,
		.pid = winner->pid,
		.instance = winner->instance,
		.egress = parent->config.egress && winner->config.egress,
		.seq_reserved = max_u64(parent->seq, winner->seq) + SEQ_BLOCK,
		.at_ms = realtime_ms(),
		.text = "",
	};
}

static bool merge(struct sandbox *parent, struct sandbox *winner, struct failure *f)
{
	struct service *c = parent->service;
	scoped_free struct store_line *lines =
		must_alloc((list_count(&winner->living_descendants) + 1) * sizeof(*lines));
	char text[ERR_TEXT_MAX];
	struct err e;

	snprintf(text, sizeof(text), "it was merged into %s", parent->id);
	struct store_merge m = move_of(parent, winner);
	m.winner = winner->id;
	m.code = "merged";
	m.text = text;
	m.lines = lines;
	m.n_lines = rewrite_lines(winner, parent->id, lines);
	life_note(parent, (struct audit_event){.name = "sandbox.merged", .winner = winner->id});
	int ret = store_sandbox_merge(c->store, &m, &e);
	apply_lines(parent, lines, m.n_lines, ret == 0);
	if (ret < 0)
		return failure_catalogue(f, &e);
	snapshots_of_service(c)->merges++;
	log_info("sandbox %s: continues in the VM of %s, slot %u", parent->id, winner->id,
		 winner->slot);
	failure_set(f, FAIL_MERGED_DURING_CALL, 0, "sandbox %s was merged into %s during the call",
		    winner->id, parent->id);
	move(parent, winner, &m, NULL, f);
	return true;
}

bool merge_rolled_back(struct sandbox *parent, struct sandbox *winner, struct ready_vm *ready,
		       const struct space *to, struct failure *f)
{
	struct service *c = parent->service;
	const struct store_merge m = move_of(parent, winner);
	struct err e;

	life_note(parent,
		  (struct audit_event){.name = "sandbox.rolled_back", .checkpoint = to->id});
	if (store_sandbox_merge(c->store, &m, &e) < 0)
		return failure_catalogue(f, &e);
	log_info("sandbox %s: rolled back to checkpoint %s, in slot %u", parent->id, to->id,
		 winner->slot);
	winner->off_catalogue = true;
	winner->forget = true;
	sandbox_begin(winner, ready);
	failure_set(f, FAIL_ROLLED_BACK, 0,
		    "sandbox %s was rolled back to checkpoint %s during the call", parent->id,
		    to->id);
	move(parent, winner, &m, to, f);
	return true;
}

static bool try_merge(struct service *c, const char *tenant, const char *parent_id,
		      const char *winner_id, struct failure *f)
{
	struct sandbox *parent = sandbox_find(c, tenant, parent_id, f);
	struct sandbox *winner = parent ? sandbox_find(c, tenant, winner_id, f) : NULL;

	if (!winner)
		return false;
	if (!lineage_has(winner->ancestors, parent->id)) {
		failure_set(f, FAIL_NOT_A_DESCENDANT, 0, "sandbox %s does not descend from %s",
			    winner->id, parent->id);
		return false;
	}
	return sandbox_is_reached(parent, f) && sandbox_is_reached(winner, f) &&
	       merge(parent, winner, f);
}

struct op *service_merge(struct service *c, const char *tenant, const char *parent,
			 const char *winner, service_done_fn *fn, void *arg)
{
	struct op *op = op_new(c, &op_plain, arg);
	struct failure f;

	op->done_fn = fn;
	if (!try_merge(c, tenant, parent, winner, &f))
		return op_finish(op, &f);
	struct sandbox *s = sandbox_living(c, tenant, parent);
	if (s->config.egress) {
		op_finish(op, NULL);
	} else { /* the winner's VM may still have network access */
		list_add_tail(&s->changes, &op->link);
		sandbox_close_egress(s);
	}
	return op;
}
