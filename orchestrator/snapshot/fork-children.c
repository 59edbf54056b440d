// SPDX-License-Identifier: Apache-2.0
/* The children of a fork: what they take over from their parent, checkpoint or Space, and their
 * rows in the catalogue. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/snapshot/fork-op.h"
#include "orchestrator/snapshot/internal.h"

/* Copies what the child takes over from its parent, checkpoint or Space. */
static bool inherit(struct fork *fork, struct sandbox *s)
{
	const struct sandbox *p = fork->parent;
	const struct space *from = fork->open.space;
	const char *metadata = p ? p->metadata : from->metadata;

	if (p)
		sandbox_set_env(s, p->env, p->env_len);
	else if (fork->env)
		sandbox_set_env(s, fork->env, fork->env_len);
	else
		sandbox_set_env(s, from->env, from->env_len);
	checkpoint_ref_set(&snapshots_of(s)->checkpoint,
			   p ? fork->checkpoint.to : from->checkpoint);
	snapshots_of(s)->given = (struct given_state){fork->seq, fork->state_seq};
	return sandbox_set_text(&s->metadata, fork->metadata ? fork->metadata : metadata);
}

/* Puts the child into its tree: below the sandbox that is forked, or below the one whose state the
 * checkpoint has. A child of a Space has no ancestors, like a resumed sandbox. */
static void place(const struct fork *fork, struct sandbox *s)
{
	const struct space *from = fork->open.space;
	char *ancestors;

	if (fork->parent)
		ancestors = lineage_of_child(fork->parent);
	else
		ancestors = must_copy(space_is_checkpoint(from) ? from->checkpoint->ancestors : "");
	free(s->ancestors);
	s->ancestors = ancestors;
	s->tree = tree_hold(fork->claim.tree);
	s->depth = fork->claim.depth;
}

static void begin_history(const struct fork *fork, struct sandbox *s)
{
	const struct space *from = fork->open.space;
	struct history_entry e = {.kind = fork->created_fn ? HISTORY_CREATED : HISTORY_FORKED,
				  .at_ms = s->created_at_ms,
				  .began_ms =
					  fork->parent ? fork->noted_at_ms : from->created_at_ms,
				  .seq = fork->history_n};

	snprintf(e.text, sizeof(e.text), "%s", fork->parent ? fork->parent->id : from->id);
	history_add(&exec_of(s)->history, &e, 0);
}

/* Returns a child that is complete except for the VM, or NULL without memory. */
static struct sandbox *sandbox_of(struct fork *fork)
{
	struct sandbox *s = sandbox_new(fork->op.service, "", fork->tenant);

	place(fork, s);
	s->config = fork->config;
	s->seq = fork->seq;
	exec_of(s)->main.guest_busy = fork->guest_busy;
	if (inherit(fork, s) && sandbox_set_text(&s->labels, fork->labels) &&
	    replay_copy(&exec_of(s)->replay, &fork->replay) == 0 &&
	    exec_copy(s, fork->parent ? &fork->point : fork->open.call) == 0)
		return s;
	sandbox_free(s);
	return NULL;
}

/* Makes a child exactly as old as its sibling: histories and merges of files tell forks apart by
 * their times. */
static void take_times(struct sandbox *s, const struct sandbox *sibling)
{
	s->created_at_ms = sibling->created_at_ms;
	s->expires_at_ms = sibling->expires_at_ms;
	s->expires_ms = sibling->expires_ms;
}

static struct store_sandbox row_of(struct sandbox *s)
{
	const struct snapshot_sandbox *of = snapshots_of(s);
	struct store_sandbox row = sandbox_row(s);

	row.checkpoint = checkpoint_ref_id(&of->checkpoint);
	row.given_seq = of->given.seq;
	row.given_state = of->given.state;
	return row;
}

int fork_make_rows(struct fork *fork, struct store_sandbox *rows)
{
	const struct sandbox *first = NULL;
	int n = 0;

	for (unsigned i = 0; i < fork->n; i++) {
		struct child *child = &fork->children[i];

		if (child->error)
			continue;
		child->sandbox = sandbox_of(fork);
		if (!child->sandbox)
			return -ENOMEM;
		child->ready = vm_bringup_take(child->bringup);
		child->bringup = NULL;
		memcpy(child->id, child->ready.id, sizeof(child->id));
		sandbox_note_vm(child->sandbox, &child->ready);
		if (!first)
			first = child->sandbox;
		take_times(child->sandbox, first);
		begin_history(fork, child->sandbox);
		rows[n++] = row_of(child->sandbox);
	}
	return n;
}

void fork_note_stats(struct fork *fork)
{
	struct service_forked *made = &fork->made;

	for (unsigned i = 0; i < fork->n; i++) {
		const struct child *child = &fork->children[i];
		uint64_t ready_us =
			child->error ? 0 : (child->ready.running_ns - fork->began_ns) / 1000;

		if (ready_us > made->ready_us)
			made->ready_us = ready_us;
	}
	if (!fork->parent)
		return;
	made->pause_us = fork->image->pause_ns / 1000;
	made->copied_bytes = fork->image->copied_bytes;
}

static void note_parent_forked(struct fork *fork)
{
	snapshots_of_service(fork->op.service)->forks++;
	log_info("sandbox %s: forked into %u, its VM was paused for %llu us, %llu KiB copied",
		 fork->parent->id, fork->n, (unsigned long long)fork->made.pause_us,
		 (unsigned long long)fork->made.copied_bytes >> 10);
	exec_happened(fork->parent,
		      &(struct history_entry){.kind = HISTORY_FORK,
					      .at_ms = fork->children[0].sandbox->created_at_ms,
					      .children = (uint16_t)fork->n});
	sandbox_touch(fork->parent);
}

void fork_begin(struct fork *fork, int n)
{
	struct service *c = fork->op.service;

	fork_step(fork, FORK_USABLE);
	if (fork->parent) {
		note_parent_forked(fork);
	} else {
		snapshots_of_service(c)->n_started += (unsigned)n;
		log_info("%s %s: %d sandboxes started from it", space_noun(fork->open.space->id),
			 fork->open.space->id, n);
	}
	tree_claim_drop(&fork->claim);
	vmproc_image_put(fork->image);
	fork->image = NULL;
	for (unsigned i = 0; i < fork->n; i++) {
		struct child *child = &fork->children[i];
		struct sandbox *s = child->sandbox;

		child->sandbox = NULL;
		if (s)
			sandbox_begin(s, &child->ready);
	}
	pool_rest(c->pool, SANDBOX_HEAD_START_MS);
	op_finish(&fork->op, NULL);
}

static void note_event(struct fork *fork, const struct sandbox *child)
{
	const struct space *from = fork->open.space;
	struct audit_event event = {.name = "sandbox.forked"};

	if (fork->created_fn)
		event.name = "sandbox.created";
	if (fork->parent)
		event.parent = fork->parent->id;
	else if (space_is_checkpoint(from))
		event.checkpoint = from->id;
	else
		event.space = from->id;
	life_note(child, event);
}

int fork_record(struct fork *fork, struct store_sandbox *rows, int n, struct err *e)
{
	scoped_free char *ids = must_alloc(fork->n * sizeof(fork->children[0].id));
	struct store_answer answer = {0};
	size_t len = 0;

	for (unsigned i = 0; i < fork->n; i++)
		len += (size_t)sprintf(ids + len, "%s%s", i ? " " : "",
				       fork->children[i].error ? "-" : fork->children[i].id);
	rows[0].answer = op_answer(&fork->op, fork->tenant,
				   fork->created_fn ? MADE_SANDBOX
				   : fork->parent   ? MADE_CHILDREN
						    : MADE_STARTS,
				   ids, &answer);
	answer.pause_us = fork->made.pause_us;
	answer.ready_us = fork->made.ready_us;
	answer.copied_bytes = fork->made.copied_bytes;
	for (unsigned i = 0; i < fork->n; i++)
		if (fork->children[i].sandbox)
			note_event(fork, fork->children[i].sandbox);
	return store_sandboxes_add(fork->op.service->store, rows, (size_t)n, e);
}
