// SPDX-License-Identifier: Apache-2.0
/* The known checkpoints. fork.c takes them, and fork-from.c starts sandboxes from them. */
#include "orchestrator/snapshot/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/fd.h"
#include "orchestrator/events/line.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/io/disk-job.h"
#include "orchestrator/sandbox/lineage.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-files.h"

#define PRUNED_MAX 1000 /* by one call */

static bool is_stored(const struct checkpoint *k)
{
	return list_empty(&k->unwritten);
}

void checkpoint_give_back(struct checkpoint *k)
{
	if (k->space->users)
		return;
	if (is_stored(k))
		space_free_snapshot(k);
	else
		checkpoint_write_soon(k->space->service);
}

static struct store_checkpoint row_of(const struct checkpoint *k)
{
	return (struct store_checkpoint){.id = k->space->id,
					 .tenant = k->space->tenant,
					 .name = k->name,
					 .parent = checkpoint_ref_id(&k->parent),
					 .ancestors = k->ancestors,
					 .pin = k->pin,
					 .expires_at_ms = k->expires_at_ms,
					 .kind = k->kind,
					 .call_seq = k->call_seq};
}

static void note(struct service *c, const struct space *p, const char *event, const char *text)
{
	store_event(c->store, &(struct audit_event){.name = event,
						    .at_ms = realtime_ms(),
						    .tenant = p->tenant,
						    .sandbox = p->sandbox,
						    .template = p->config.template,
						    .checkpoint = p->id,
						    .text = text});
}

static struct space *find(struct service *c, const char *tenant, const char *id, struct failure *f)
{
	struct space *p = space_lookup(c, tenant, id, f);

	if (p && space_is_checkpoint(p))
		return p;
	failure_set(f, FAIL_NOT_FOUND, 0, "there is no checkpoint %s", id);
	return NULL;
}

/* --- take ----------------------------------------------------------------------------------- */

/* Moves the running calls to the checkpoint, without their deadlines: each sandbox that is started
 * sets them anew. */
static void take_calls(struct checkpoint *k, struct exec_point *from)
{
	k->call = *from;
	*from = (struct exec_point){0};
	for (struct exec_point *each = &k->call; each; each = each->next)
		each->limit_ms = 0;
}

static int64_t expiry_in(uint32_t ttl_s)
{
	return ttl_s ? realtime_ms() + (int64_t)ttl_s * 1000 : 0;
}

int checkpoint_set_kind(struct space *p, enum checkpoint_kind kind, struct err *e)
{
	struct store_checkpoint more = row_of(p->checkpoint);
	struct store_space row = space_row(p);

	more.kind = kind;
	row.checkpoint = &more;
	int ret = store_checkpoint_change(p->service->store, &row, e);
	if (ret < 0)
		return ret;
	p->checkpoint->kind = kind;
	return 0;
}

/* Returns the time of a new checkpoint: later than that of all others, because an undo finds the
 * order in which checkpoints were taken by their times. */
static int64_t time_after(const struct roster *all)
{
	return realtime_ms_after(all->n ? all->all[all->n - 1]->place.at_ms : 0);
}

struct space *checkpoint_add(struct sandbox *s, const struct checkpoint_spec *spec,
			     const struct checkpoint_taken *taken,
			     const struct store_answer *answer, struct failure *f)
{
	struct service *c = s->service;
	scoped_free char *ancestors = lineage_of_child(s);
	struct snapshot_sandbox *of = snapshots_of(s);
	const struct store_checkpoint more = {.id = taken->id,
					      .tenant = s->tenant,
					      .name = spec->name ? spec->name : "",
					      .parent = checkpoint_ref_id(&of->checkpoint),
					      .ancestors = ancestors,
					      .pin = spec->pin,
					      .kind = spec->kind,
					      .call_seq = taken->call_seq,
					      .expires_at_ms = expiry_in(spec->ttl_s)};
	struct store_space row = space_row_new(s, taken->id);
	struct err e;

	row.created_at_ms = time_after(&snapshots_of_tenant(s->owner)->checkpoints);
	row.size_bytes = taken->bytes;
	row.seq_reserved = taken->seq;
	row.labels = spec->labels ? spec->labels : "{}";
	row.checkpoint = &more;
	struct space *p = space_add(c, &row);
	struct checkpoint *k = p->checkpoint;
	k->image = taken->image;
	k->guest_busy = taken->guest_busy;
	take_calls(k, taken->call);
	space_checked(p);
	if (spec->kind == CHECKPOINT_ASKED)
		note(c, p, "checkpoint.taken", NULL);
	else
		each_call_added(s, k);
	if (store_checkpoint_add(c->store, &more, s->id, answer, &e) < 0) {
		failure_catalogue(f, &e);
		space_forget(p);
		return NULL;
	}
	snapshots_of_service(c)->n_taken++;
	checkpoint_ref_set(&of->checkpoint, k);
	exec_kept(s, p->id, spec->kind == CHECKPOINT_ASKED ? k->name : NULL, taken->history_n);
	log_info("sandbox %s: checkpoint %s taken, its VM was paused for %llu us", s->id, p->id,
		 (unsigned long long)k->image->pause_ns / 1000);
	list_add_tail(&snapshots_of_service(c)->unwritten, &k->unwritten);
	checkpoint_write_soon(c);
	return p;
}

/* --- view and change ------------------------------------------------------------------------ */

void checkpoint_view_fill(const struct space *p, struct checkpoint_view *view)
{
	const struct checkpoint *k = p->checkpoint;

	*view = (struct checkpoint_view){
		.state = p->damage[0]	? "damaged"
			 : is_stored(k) ? "stored"
					: "memory",
		.damage = p->damage[0] ? p->damage : NULL,
		.name = k->name[0] ? k->name : NULL,
		.labels = p->labels,
		.score = p->score,
		.root = p->tree->root,
		.depth = p->depth,
		.pin = k->pin,
		.sandbox = p->sandbox,
		.ancestors = k->ancestors,
		.parent = checkpoint_ref_id(&k->parent),
		.config = p->config,
		.created_at_ms = p->created_at_ms,
		.expires_at_ms = k->expires_at_ms,
		.kind = k->kind,
		.call_seq = k->call_seq,
		.bytes = p->size_bytes,
		.shared_bytes = k->shared_bytes,
		.freed_bytes = -1,
		.metadata = p->metadata,
	};
	memcpy(view->id, p->id, sizeof(view->id));
}

bool service_checkpoint_view(struct service *c, const char *tenant, const char *id,
			     struct checkpoint_view *view, struct failure *f)
{
	const struct space *p = find(c, tenant, id, f);

	if (p)
		checkpoint_view_fill(p, view);
	return p != NULL;
}

struct look_op {
	struct op op;
	service_checkpoint_fn *fn;
	char id[SANDBOX_ID_LEN + 1], tenant[SANDBOX_NAME_MAX + 1];
	struct disk_job *job;
	uint64_t freed_bytes;
};

/* The worker's own copy, since the operation may be freed while the worker runs. */
struct look {
	char state_dir[CONFIG_PATH_MAX], id[SANDBOX_ID_LEN + 1];
	uint64_t freed_bytes;
};

static struct look_op *look_of(struct op *op)
{
	return container_of(op, struct look_op, op);
}

static void look_put_away(struct op *op)
{
	disk_job_cancel(look_of(op)->job);
}

static void look_notify(struct op *op)
{
	const struct look_op *look = look_of(op);
	struct failure f = op->failure;
	struct checkpoint_view view;
	bool is_there = !op->failed &&
			service_checkpoint_view(op->service, look->tenant, look->id, &view, &f);

	if (is_there)
		view.freed_bytes = (int64_t)look->freed_bytes;
	look->fn(op->arg, is_there ? &view : NULL, is_there ? NULL : &f);
}

static const struct op_methods look_ops = {.size = sizeof(struct look_op),
					   .passive = true,
					   .put_away = look_put_away,
					   .notify = look_notify,
					   .abandon = op_free};

static int look_work(struct disk_job *job)
{
	struct look *look = job->what;

	look->freed_bytes = space_freed_bytes(look->state_dir, look->id);
	return 0;
}

static void on_looked(void *arg, struct disk_job *job)
{
	struct look_op *look = arg;
	const struct look *found = job->what;
	struct failure f;

	look->job = NULL;
	look->freed_bytes = found->freed_bytes;
	failure_set(&f, FAIL_NO_MEMORY, 5, "%s", job->job.err.text);
	op_finish(&look->op, job->job.ret < 0 ? &f : NULL);
}

struct op *service_checkpoint_look(struct service *c, const char *tenant, const char *id,
				   service_checkpoint_fn *fn, void *arg)
{
	struct look_op *look = look_of(op_new(c, &look_ops, arg));
	struct failure f;

	look->fn = fn;
	if (!find(c, tenant, id, &f))
		return op_finish(&look->op, &f);
	struct look *at = must_alloc(sizeof(*at));
	*at = (struct look){0};
	snprintf(look->id, sizeof(look->id), "%s", id);
	snprintf(look->tenant, sizeof(look->tenant), "%s", tenant);
	snprintf(at->id, sizeof(at->id), "%s", id);
	snprintf(at->state_dir, sizeof(at->state_dir), "%s", c->config.state_dir);
	list_add_tail(&c->waits, &look->op.link);
	look->job = disk_job_start(c->loop, look_work, at, 0, on_looked, look);
	return &look->op;
}

static void set_text(char **at, const char *text)
{
	if (!text)
		return;
	free(*at);
	*at = must_copy(text);
}

bool service_checkpoint_change(struct service *c, const char *tenant, const char *id,
			       const struct checkpoint_change *change, struct failure *f)
{
	struct space *p = find(c, tenant, id, f);
	struct err e;

	if (!p)
		return false;
	struct checkpoint *k = p->checkpoint;
	struct store_checkpoint more = row_of(k);
	struct store_space row = space_row(p);
	row.checkpoint = &more;
	if (change->labels)
		row.labels = change->labels;
	if (change->score.given)
		row.score = change->score;
	if (change->name)
		more.name = change->name;
	if (change->pin != CHANGE_NONE)
		more.pin = change->pin == CHANGE_TRUE;
	if (change->ttl_s)
		more.expires_at_ms = expiry_in(change->ttl_s);
	if (store_checkpoint_change(c->store, &row, &e) < 0)
		return failure_catalogue(f, &e);
	set_text(&k->name, change->name);
	set_text(&p->labels, change->labels);
	p->score = row.score;
	k->pin = more.pin;
	k->expires_at_ms = more.expires_at_ms;
	return true;
}

/* --- removal -------------------------------------------------------------------------------- */

/* `op`: as in space_drop; on failure the caller ends or frees it. */
static int remove_by(struct op *op, struct space *p, const char *event, const char *text,
		     struct err *e)
{
	struct service *c = p->service;

	if (event)
		note(c, p, event, text);
	int ret = store_checkpoint_forget(c->store, p->id, e);
	if (ret < 0)
		return ret;
	checkpoint_write_stop(p->checkpoint);
	space_drop(p, op);
	return 0;
}

int checkpoint_remove(struct space *p, const char *event, const char *text, struct err *e)
{
	struct op *op = op_new(p->service, &space_drop_ops, NULL);
	int ret = remove_by(op, p, event, text, e);

	if (ret < 0)
		op_free(op);
	return ret;
}

static struct space *find_deletable(struct service *c, const char *tenant, const char *id,
				    struct failure *f)
{
	struct space *p = find(c, tenant, id, f);

	if (!p || !space_is_unused(p, f))
		return NULL;
	if (!p->checkpoint->pin)
		return p;
	failure_set(f, FAIL_PINNED, 0, "checkpoint %s is pinned: unpin it before you delete it",
		    id);
	return NULL;
}

struct op *service_checkpoint_delete(struct service *c, const char *tenant, const char *id,
				     service_done_fn *fn, void *arg)
{
	struct op *op = op_new(c, &space_drop_ops, arg);
	struct failure f;
	struct err e;

	op->done_fn = fn;
	struct space *p = find_deletable(c, tenant, id, &f);
	if (p && remove_by(op, p, "checkpoint.deleted", NULL, &e) < 0) {
		failure_catalogue(&f, &e);
		p = NULL;
	}
	return p ? op : op_finish(op, &f);
}

/* --- retention ------------------------------------------------------------------------------ */

bool checkpoint_is_removable(const struct space *p)
{
	return !p->checkpoint->pin && !p->users;
}

static bool is_of_sandbox(const struct space *p, const struct checkpoint_prune *how)
{
	return !how->sandbox || !strcmp(p->sandbox, how->sandbox);
}

/* Returns whether a prune deletes the checkpoint. `newer`: how many newer ones it considered. */
static bool is_surplus(const struct space *p, const struct checkpoint_prune *how, size_t newer)
{
	int64_t age_ms = realtime_ms() - p->created_at_ms;

	return (!how->keeps || newer >= how->keep) &&
	       (!how->older_than_s || age_ms > (int64_t)how->older_than_s * 1000) &&
	       checkpoint_is_removable(p);
}

/* Fills `chosen` with the checkpoints to delete, newest first. Returns their number. */
static size_t choose(const struct roster *all, const struct checkpoint_prune *how,
		     struct space **chosen)
{
	size_t n = 0, newer = 0;

	for (size_t i = all->n; i-- && n < PRUNED_MAX;) {
		struct space *p = container_of(all->all[i], struct space, listed);

		if (!is_of_sandbox(p, how))
			continue;
		if (is_surplus(p, how, newer))
			chosen[n++] = p;
		newer++;
	}
	return n;
}

bool service_checkpoints_prune(struct service *c, const char *tenant,
			       const struct checkpoint_prune *how,
			       void (*each)(void *arg, const char *id, uint64_t bytes), void *arg,
			       struct failure *f)
{
	const struct tenant *t = tenant_find(c, tenant);
	scoped_free struct space **chosen = must_alloc(PRUNED_MAX * sizeof(struct space *));
	size_t n = t ? choose(&snapshots_of_tenant(t)->checkpoints, how, chosen) : 0;
	struct err e;

	for (size_t i = 0; i < n; i++)
		each(arg, chosen[i]->id, chosen[i]->size_bytes);
	/* Oldest first: each checkpoint_ref then moves once only, to a checkpoint that stays. */
	while (n-- && !how->dry_run) {
		if (checkpoint_remove(chosen[n], "checkpoint.deleted", "it was pruned", &e) == 0)
			continue;
		return failure_catalogue(f, &e);
	}
	return true;
}

static bool is_over(const struct space *p)
{
	const struct checkpoint *k = p->checkpoint;

	return k &&
	       ((k->expires_at_ms && realtime_ms() >= k->expires_at_ms) || each_call_over(p)) &&
	       checkpoint_is_removable(p);
}

void checkpoints_check(struct service *c)
{
	struct err e;

	list_each_of_safe (p, struct space, link, &snapshots_of_service(c)->spaces)
		if (is_over(p) && checkpoint_remove(p, "checkpoint.expired", NULL, &e) < 0)
			log_warn("checkpoint %s can't be removed: %s", p->id, e.text);
	checkpoint_write_next(c);
}

/* --- start ---------------------------------------------------------------------------------- */

struct dropped {
	struct list link;
	char id[SANDBOX_ID_LEN + 1], tenant[SANDBOX_NAME_MAX + 1];
};

static void on_unstored(void *arg, const struct store_checkpoint *row)
{
	struct dropped *d = must_alloc(sizeof(*d));

	snprintf(d->id, sizeof(d->id), "%s", row->id);
	snprintf(d->tenant, sizeof(d->tenant), "%s", row->tenant);
	list_add_tail(arg, &d->link);
}

static int drop(struct service *c, const struct dropped *d, struct err *e)
{
	log_warn("checkpoint %s was in memory only when the service ended, and is gone", d->id);
	store_event(c->store, &(struct audit_event){.name = "checkpoint.lost",
						    .at_ms = realtime_ms(),
						    .tenant = d->tenant,
						    .checkpoint = d->id,
						    .text = "the service ended before it was on "
							    "disk"});
	return store_checkpoint_forget(c->store, d->id, e);
}

int checkpoints_drop_unstored(struct service *c, struct err *e)
{
	struct list dropped;

	list_init(&dropped);
	int ret = store_checkpoints_unstored(c->store, on_unstored, &dropped, e);
	list_each_of_safe (d, struct dropped, link, &dropped) {
		if (ret == 0)
			ret = drop(c, d, e);
		list_del(&d->link);
		free(d);
	}
	return ret;
}
