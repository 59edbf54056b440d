// SPDX-License-Identifier: Apache-2.0
/*
 * A resume opens a Space's files, and reads those whose checksums are not verified yet. It restores
 * a VM from them as a fork restores a child from its parent's snapshot: the VM maps the files
 * instead of reading them. Then one change of the catalogue turns the Space into a sandbox. If a
 * step before that fails, the Space remains. If the client leaves after it, but before the answer,
 * another change of the catalogue turns the sandbox into the Space again. The Space's files stay in
 * place while the sandbox lives, because its VM maps them. When the sandbox is frozen again, they
 * are linked, not copied.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/images/disk-layer.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/pool/vm-bringup.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/catalogue.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-open.h"

struct resume {
	struct op op;
	service_create_fn *fn;
	struct space *space;	      /* in memory until the end, even if it is a sandbox by then;
					 NULL: the resume could not begin */
	struct sandbox_config config; /* of the sandbox */
	struct tree_claim claim;      /* in the Space's tree, until the sandbox is in it */
	struct space_open open;
	struct disk_job *layer; /* being opened, once the files were read */
	struct vm_bringup *bringup;
	struct catalogue_sync *sync;
	char *tenant;
	char id[SANDBOX_ID_LEN + 1]; /* of the sandbox; empty before it exists */
};

static struct resume *resume_of(const struct op *op)
{
	return container_of(op, struct resume, op);
}

/* Returns the sandbox that the call has made, unless it has ended or somebody who found it has
 * begun to freeze, fork or merge it. */
static struct sandbox *made_sandbox(const struct resume *r)
{
	struct sandbox *s = sandbox_living(r->op.service, r->tenant, r->id);
	bool as_made = s && s->state != SBX_FREEZING && list_empty(&s->living_descendants) &&
		       strcmp(snapshots_of(s)->space, r->space->id) == 0;

	return as_made ? s : NULL;
}

/* Turns the sandbox into the Space again, in the catalogue as in memory, and drops its VM. What the
 * VM has done since its start is lost, as if the resume had failed before its end. */
static void undo(struct resume *r)
{
	struct sandbox *s = made_sandbox(r);
	struct space *p = r->space;
	const struct store_space row = space_row(p);
	const int64_t now_ms = realtime_ms();
	char text[ERR_TEXT_MAX];
	struct err e;

	if (!s)
		return;
	snprintf(text, sizeof(text), "its resume was given up, and it is space %s again", p->id);
	life_note(s, (struct audit_event){.name = "sandbox.frozen", .space = p->id});
	if (store_space_unresume(p->service->store, s->id, &row, now_ms, "frozen", text, &e) < 0) {
		log_error("sandbox %s: its resume can't be undone: %s", s->id, e.text);
		/* So that the sandbox becomes a Space once it is idle. */
		s->config.persistent = true;
		return;
	}
	r->id[0] = '\0';
	snapshots_of(s)->space[0] = '\0'; /* so that the Space's files stay */
	sandbox_end_frozen(s, now_ms, text);
	catalogue_sync(p->service, NULL, NULL);
}

static void resume_put_away(struct op *op)
{
	struct resume *r = resume_of(op);

	if (!r->space)
		return;
	if (r->id[0] && (op->failed || op->abandoned))
		undo(r);
	tree_claim_drop(&r->claim);
	r->space->resume = NULL;
	space_open_fini(&r->open);
	if (r->id[0])
		space_forget(r->space);
	disk_job_cancel(r->layer);
	vm_bringup_free(r->bringup);
	catalogue_sync_cancel(r->sync);
	free(r->tenant);
}

static void fail(struct resume *r, const struct failure *f)
{
	snapshots_of_service(r->op.service)->resume_failures++;
	op_finish(&r->op, f);
}

/* --- the catalogue -------------------------------------------------------------------------- */

static void begin_history(struct sandbox *s, const struct space *p)
{
	struct history_entry e = {.kind = HISTORY_RESUMED, .at_ms = s->created_at_ms};

	snprintf(e.text, sizeof(e.text), "%s", p->id);
	history_add(&exec_of(s)->history, &e, 0);
}

/* Makes the sandbox, without its VM. Returns NULL when there is no memory. */
static struct sandbox *sandbox_of(struct resume *r)
{
	const struct space *p = r->space;
	struct sandbox *s = sandbox_new(p->service, "", p->tenant);

	s->config = r->config;
	s->seq = p->seq;
	s->tree = tree_hold(p->tree);
	s->depth = p->depth;
	s->score = p->score;
	exec_of(s)->main.guest_busy = r->open.guest_busy;
	sandbox_set_env(s, p->env, p->env_len);
	if (sandbox_set_text(&s->metadata, p->metadata) &&
	    sandbox_set_text(&s->labels, p->labels) && exec_copy(s, r->open.call) == 0)
		return s;
	sandbox_free(s);
	return NULL;
}

static void on_synced(void *arg, int error)
{
	struct resume *r = arg;

	r->sync = NULL;
	if (error)
		log_error("sandbox %s: its resume can't be flushed to disk, and a power failure "
			  "may undo it: %s",
			  r->id, strerror(-error));
	op_finish(&r->op, NULL);
}

static void begin(struct resume *r, struct sandbox *s, struct ready_vm *ready)
{
	struct service *c = r->op.service;
	struct space *p = r->space;

	snapshots_of_service(c)->n_resumed++;
	log_info("space %s: resumed as sandbox %s", p->id, s->id);
	memcpy(snapshots_of(s)->space, p->id, sizeof(snapshots_of(s)->space));
	memcpy(r->id, s->id, sizeof(r->id));
	op_expects_none(&r->op);
	tree_claim_drop(&r->claim);
	sandbox_begin(s, ready);
	r->sync = catalogue_sync(c, on_synced, r);
}

static void complete(struct resume *r, struct vm_bringup *warm)
{
	struct service *c = r->op.service;
	struct sandbox *s = sandbox_of(r);
	struct ready_vm ready = vm_bringup_take(warm);
	struct store_answer answer;
	struct failure f;
	struct err e;

	failure_no_memory(&f);
	if (s && !tree_claim_stands(&r->claim, &f)) {
		sandbox_free(s);
	} else if (s) {
		sandbox_note_vm(s, &ready);
		begin_history(s, r->space);
		struct store_sandbox row = sandbox_row(s);

		row.answer = op_answer(&r->op, s->tenant, MADE_SANDBOX, s->id, &answer);
		life_note(s,
			  (struct audit_event){.name = "sandbox.resumed", .space = r->space->id});
		if (store_space_resume(c->store, r->space->id, &row, &e) == 0) {
			begin(r, s, &ready);
			return;
		}
		failure_catalogue(&f, &e);
		sandbox_free(s);
	}
	ready_vm_drop(&ready);
	fail(r, &f);
}

/* --- the VM --------------------------------------------------------------------------------- */

static void on_bringup(void *arg, struct vm_bringup *w, const char *text)
{
	struct resume *r = arg;
	struct failure f;

	r->bringup = NULL;
	if (w) {
		complete(r, w);
		return;
	}
	failure_set(&f, FAIL_VM_FAILED, 5, "space %s could not be started and is kept: %.180s",
		    r->space->id, text);
	fail(r, &f);
}

/* Starts a VM with the new disk layer. */
static void on_layer(void *arg, struct disk_job *layer)
{
	struct resume *r = arg;
	struct service *c = r->op.service;
	struct failure f;

	r->layer = NULL;
	if (layer->job.ret < 0) {
		failure_set(&f, FAIL_RESUME_FAILED, 5,
			    "space %s can't be resumed and is kept: %.180s", r->space->id,
			    layer->job.err.text);
		fail(r, &f);
		return;
	}
	const struct vm_bringup_spec spec = {
		.size = r->space->config.size,
		.image = r->open.image,
		.blank = pool_take_blank(c->pool, &r->space->config.size),
		.writable = take_fd(&layer->fds[0]),
		.closed = !r->config.egress};
	r->bringup = vm_bringup_start(&c->template_env, &spec, on_bringup, r);
}

static void on_opened(void *arg, const struct failure *f)
{
	struct resume *r = arg;
	struct service *c = r->op.service;

	if (f)
		fail(r, f);
	else
		r->layer = disk_layers_open(c->loop, c->config.state_dir, 1, on_layer, r);
}

/* --- the call ------------------------------------------------------------------------------- */

static bool check(struct service *c, const struct space *p, const struct space_resume *how,
		  struct failure *f)
{
	if (c->closing)
		failure_set(f, FAIL_STOPPING, 5, "the service is stopping");
	else if (!space_is_unused(p, f))
		return false;
	else if (how->egress == CHANGE_TRUE && !p->config.egress)
		failure_set(f, FAIL_EGRESS_CLOSED, 0,
			    "space %s was frozen from a sandbox without network access and "
			    "can't be resumed with it",
			    p->id);
	else
		return drain_allows(c, f) && tenant_has_room(c, p->tenant, 1, f) &&
		       host_has_room(c, 1, f) &&
		       tenant_has_disk(c, p->tenant, p->config.size.rootfs_gb, f) &&
		       promises_have_room(c, p->config.size.ram_mib, f);
	return false;
}

static void resume_abandon(struct op *op)
{
	op->abandoned = true;
	op_free(op);
}

static void resume_notify(struct op *op)
{
	const struct resume *r = resume_of(op);

	op_notify_made(op, r->tenant, r->id, r->fn);
}

static const struct op_methods resume_ops = {
	.size = sizeof(struct resume),
	.makes_sandboxes = true,
	.put_away = resume_put_away,
	.notify = resume_notify,
	.abandon = resume_abandon,
};

struct op *service_space_resume(struct service *c, const char *tenant, const char *id,
				const struct space_resume *how, service_create_fn *fn, void *arg)
{
	struct resume *r = resume_of(op_new(c, &resume_ops, arg));
	struct failure f;

	r->fn = fn;
	struct space *p = space_find(c, tenant, id, &f);
	if (p)
		r->claim =
			(struct tree_claim){.tree = p->tree, .n = 1, .mib = p->config.size.ram_mib};
	if (!p || !check(c, p, how, &f) || !tree_claim(&r->claim, &f)) {
		snapshots_of_service(c)->resume_failures++;
		return op_finish(&r->op, &f);
	}
	r->space = p;
	r->config = p->config;
	if (how->timeout_s)
		r->config.timeout_s = how->timeout_s;
	if (how->idle_timeout_s)
		r->config.idle_timeout_s = how->idle_timeout_s;
	if (how->egress == CHANGE_FALSE)
		r->config.egress = false;
	r->config.persistent = how->persistent;
	tenant_clamp(c, tenant, &r->config);
	r->tenant = must_copy(tenant);
	op_expect(&r->op, p->owner, 1, &p->config.size);
	p->resume = r;
	list_add_tail(&snapshots_of_service(c)->resumes, &r->op.link);
	space_open_start(&r->open, p, on_opened, r); /* a Space is never in memory */
	return &r->op;
}

void resume_shed(struct sandbox *s)
{
	if (snapshots_of(s)->space[0] && s->state >= SBX_ENDING)
		space_files_drop(s->service, snapshots_of(s)->space);
	snapshots_of(s)->space[0] = 0;
}
