// SPDX-License-Identifier: Apache-2.0
/* The known Spaces: sandboxes on disk. freeze.c makes them, resume.c resumes them. */
#include "orchestrator/snapshot/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/catalogue.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"
#include "orchestrator/snapshot/internal.h"
#include "orchestrator/snapshot/space-files.h"

/* --- the list ------------------------------------------------------------------------------- */

const char *space_noun(const char *id)
{
	return !strncmp(id, CHECKPOINT_ID_PREFIX, strlen(CHECKPOINT_ID_PREFIX)) ? "checkpoint"
										: "space";
}

static struct roster *roster_of(const struct space *p)
{
	struct snapshot_tenant *of = snapshots_of_tenant(p->owner);

	return space_is_checkpoint(p) ? &of->checkpoints : &of->spaces;
}

/* Counts the Space (`by` is 1), or stops counting it (-1). */
static void count(struct space *p, int by)
{
	struct snapshot_service *of = snapshots_of_service(p->service);
	const uint64_t bytes = by < 0 ? -p->size_bytes : p->size_bytes;

	p->owner->spaces_bytes += bytes;
	if (space_is_checkpoint(p)) {
		p->owner->checkpoints += (uint64_t)by;
		of->n_checkpoints += (uint64_t)by;
		of->checkpoints_bytes += bytes;
	} else {
		of->n_spaces += (uint64_t)by;
		of->spaces_bytes += bytes;
	}
}

void space_resize(struct space *p, uint64_t size_bytes)
{
	count(p, -1);
	p->size_bytes = size_bytes;
	count(p, 1);
}

bool space_has_room(const struct sandbox *s, uint64_t bytes, const char *refused, struct failure *f)
{
	char what[128];

	snprintf(what, sizeof(what), "sandbox %s %s", s->id, refused);
	return tenant_has_space(s->owner, bytes, what, f);
}

static void disown(struct space *p)
{
	roster_remove(roster_of(p), &p->listed);
	tenant_put(p->owner);
}

void checkpoint_ref_set(struct checkpoint_ref *ref, struct checkpoint *to)
{
	list_del(&ref->link);
	ref->to = to;
	if (to)
		list_add_tail(&to->refs, &ref->link);
}

const char *checkpoint_ref_id(const struct checkpoint_ref *ref)
{
	return ref->to ? ref->to->space->id : NULL;
}

/* Everything that came from the checkpoint comes from the checkpoint before it from now on. */
static void take_out(struct checkpoint *k)
{
	list_each_of_safe (ref, struct checkpoint_ref, link, &k->refs)
		checkpoint_ref_set(ref, k->parent.to);
	checkpoint_ref_set(&k->parent, NULL);
}

static struct checkpoint *checkpoint_new(struct space *p, const struct store_checkpoint *row)
{
	struct checkpoint *k = must_alloc(sizeof(*k));
	const struct space *parent = row->parent ? space_of(p->service, row->parent) : NULL;

	*k = (struct checkpoint){.space = p,
				 .name = must_copy(row->name),
				 .ancestors = must_copy(row->ancestors),
				 .pin = row->pin,
				 .expires_at_ms = row->expires_at_ms,
				 .shared_bytes = row->shared_bytes,
				 .kind = row->kind,
				 .call_seq = row->call_seq};
	checkpoint_ref_set(&k->parent, parent ? parent->checkpoint : NULL);
	return k;
}

void space_free_snapshot(struct checkpoint *k)
{
	vmproc_image_put(k->image);
	k->image = NULL;
	exec_point_fini(&k->call);
}

static void checkpoint_free(struct checkpoint *k)
{
	if (!k)
		return;
	list_del(&k->unwritten);
	list_del(&k->of_calls);
	take_out(k);
	space_free_snapshot(k);
	free(k->name);
	free(k->ancestors);
	free(k);
}

static void space_free(struct space *p)
{
	list_del(&p->link);
	list_del(&p->bucket);
	list_del(&p->unread);
	tree_put(p->tree);
	count(p, -1);
	disown(p);
	checkpoint_free(p->checkpoint);
	free(p->metadata);
	free(p->labels);
	free(p->env);
	free(p);
}

struct space *space_add(struct service *c, const struct store_space *row)
{
	struct snapshot_service *of = snapshots_of_service(c);
	struct space *p = must_alloc(sizeof(*p));

	*p = (struct space){.service = c,
			    .owner = tenant_get(c, row->tenant),
			    .config = row->config,
			    .created_at_ms = row->created_at_ms,
			    .size_bytes = row->size_bytes,
			    .seq = row->seq_reserved,
			    .depth = row->depth,
			    .score = row->score,
			    .env_len = row->env_len};
	snprintf(p->id, sizeof(p->id), "%s", row->id);
	snprintf(p->sandbox, sizeof(p->sandbox), "%s", row->sandbox);
	p->tenant = p->owner->name;
	p->metadata = must_copy(row->metadata);
	p->labels = must_copy(row->labels);
	p->tree = tree_get(c, p->owner, row->root);
	p->env = must_alloc(row->env_len + 1);
	if (row->env_len)
		memcpy(p->env, row->env, row->env_len);
	if (row->checkpoint)
		p->checkpoint = checkpoint_new(p, row->checkpoint);
	list_add_tail(&of->spaces, &p->link);
	list_add_tail(&of->space_buckets[bucket_number(p->id)], &p->bucket);
	list_add_tail(&of->unread_spaces, &p->unread);
	p->listed.place.at_ms = p->created_at_ms;
	memcpy(p->listed.place.id, p->id, sizeof(p->id));
	roster_add(roster_of(p), &p->listed);
	count(p, 1);
	return p;
}

struct store_space space_row_new(const struct sandbox *s, const char *id)
{
	struct store_space row = {.id = id,
				  .tenant = s->tenant,
				  .sandbox = s->id,
				  .config = s->config,
				  .metadata = s->metadata,
				  .env = s->env,
				  .env_len = s->env_len,
				  .root = s->tree->root,
				  .depth = s->depth};

	row.config.persistent = false;
	row.config.checkpoint_calls = 0;
	return row;
}

struct store_space space_row(const struct space *p)
{
	return (struct store_space){.id = p->id,
				    .tenant = p->tenant,
				    .sandbox = p->sandbox,
				    .config = p->config,
				    .created_at_ms = p->created_at_ms,
				    .size_bytes = p->size_bytes,
				    .seq_reserved = p->seq,
				    .metadata = p->metadata,
				    .env = p->env,
				    .env_len = p->env_len,
				    .root = p->tree->root,
				    .depth = p->depth,
				    .score = p->score,
				    .labels = p->labels};
}

void space_forget(struct space *p)
{
	struct snapshot_service *of = snapshots_of_service(p->service);

	of->spaces_damaged -= p->damage[0] != 0;
	space_scrub_stop(p);
	space_free(p);
}

void space_checked(struct space *p)
{
	list_del(&p->unread);
}

void space_damaged(struct space *p, const char *what)
{
	log_error("%s %s is damaged: %s", space_noun(p->id), p->id, what);
	snapshots_of_service(p->service)->spaces_damaged += !p->damage[0];
	snprintf(p->damage, sizeof(p->damage), "%s", what[0] ? what : "it can't be read");
}

struct space *space_of(struct service *c, const char *id)
{
	list_each_of (p, struct space, bucket,
		      &snapshots_of_service(c)->space_buckets[bucket_number(id)])
		if (!strcmp(p->id, id))
			return p;
	return NULL;
}

struct space *space_lookup(struct service *c, const char *tenant, const char *id, struct failure *f)
{
	struct space *p = space_of(c, id);

	if (p && !strcmp(p->tenant, tenant))
		return p;
	failure_set(f, FAIL_NOT_FOUND, 0, "there is no %s %s", space_noun(id), id);
	return NULL;
}

struct space *space_find(struct service *c, const char *tenant, const char *id, struct failure *f)
{
	struct space *p = space_lookup(c, tenant, id, f);

	if (!p || !p->damage[0])
		return p;
	if (space_is_checkpoint(p))
		failure_set(f, FAIL_CHECKPOINT_DAMAGED, 0,
			    "checkpoint %s is damaged and can't be started: %.170s", id, p->damage);
	else
		failure_set(f, FAIL_SPACE_DAMAGED, 0,
			    "space %s is damaged and can't be resumed: %.180s", id, p->damage);
	return NULL;
}

bool space_is_unused(const struct space *p, struct failure *f)
{
	if (p->resume)
		failure_set(f, FAIL_IN_USE, 1, "space %s is being resumed", p->id);
	else if (p->users)
		failure_set(f, FAIL_IN_USE, 1, "sandboxes are being started from %s %s",
			    space_noun(p->id), p->id);
	return !p->resume && !p->users;
}

void space_view_fill(const struct space *p, struct space_view *view)
{
	*view = (struct space_view){
		.state = p->damage[0] ? "damaged"
			 : p->resume  ? "resuming"
				      : "frozen",
		.damage = p->damage[0] ? p->damage : NULL,
		.sandbox = p->sandbox,
		.config = p->config,
		.created_at_ms = p->created_at_ms,
		.size_bytes = p->size_bytes,
		.metadata = p->metadata,
		.root = p->tree->root,
		.depth = p->depth,
		.score = p->score,
		.labels = p->labels,
	};
	memcpy(view->id, p->id, sizeof(view->id));
}

bool service_space_view(struct service *c, const char *tenant, const char *id,
			struct space_view *view, struct failure *f)
{
	const struct space *p = space_lookup(c, tenant, id, f);

	if (p)
		space_view_fill(p, view);
	return p != NULL;
}

/* --- delete --------------------------------------------------------------------------------- */

struct delete_op {
	struct op op;
	char space[SANDBOX_ID_LEN + 1]; /* its id */
};

static char *deleted_space(const struct op *op)
{
	return container_of(op, struct delete_op, op)->space;
}

const struct op_methods space_drop_ops = {.size = sizeof(struct delete_op)};

/* Removes the files after the deletion was flushed to disk. Otherwise a power failure could bring
 * back a Space without files. */
static void on_deleted(void *arg, int error)
{
	struct op *op = arg;

	if (error)
		log_error("%s %s: its deletion can't be flushed to disk: %s",
			  space_noun(deleted_space(op)), deleted_space(op), strerror(-error));
	space_files_drop(op->service, deleted_space(op));
	op_finish(op, NULL);
}

void space_drop(struct space *p, struct op *op)
{
	memcpy(deleted_space(op), p->id, SANDBOX_ID_LEN + 1);
	list_add_tail(&op->service->waits, &op->link);
	space_forget(p);
	catalogue_sync(op->service, on_deleted, op);
}

struct op *service_space_delete(struct service *c, const char *tenant, const char *id,
				service_done_fn *fn, void *arg)
{
	struct op *op = op_new(c, &space_drop_ops, arg);
	struct failure f;
	struct err e;

	op->done_fn = fn;
	struct space *p = space_lookup(c, tenant, id, &f);
	if (p && !space_is_unused(p, &f)) {
		p = NULL;
	} else if (p && store_space_forget(c->store, id, &e) < 0) {
		failure_catalogue(&f, &e);
		p = NULL;
	}
	if (!p)
		return op_finish(op, &f);
	space_drop(p, op);
	return op;
}

/* --- scrub ---------------------------------------------------------------------------------- */

static void on_scrubbed(void *owner, void *job)
{
	struct service *c = owner;
	const struct space_read *read = job;
	struct space *p = space_of(c, read->id);

	snapshots_of_service(c)->scrub = NULL;
	if (p && read->damaged)
		space_damaged(p, read->job.err.text);
	if (p)
		space_checked(p);
	spaces_scrub(c);
}

static const struct step_job_ops scrub_ops = {LOOP_BULK, space_read_step, NULL, on_scrubbed,
					      space_read_free};

void space_scrub_stop(const struct space *p)
{
	struct snapshot_service *of = snapshots_of_service(p->service);

	if (!of->scrub || strcmp(of->scrub->id, p->id) != 0)
		return;
	step_job_cancel(of->scrub);
	of->scrub = NULL;
}

static const struct space *next_unread(const struct service *c)
{
	list_each_of (p, const struct space, unread, &snapshots_of_service(c)->unread_spaces)
		if (!p->resume && !p->users)
			return p;
	return NULL;
}

void spaces_scrub(struct service *c)
{
	struct snapshot_service *of = snapshots_of_service(c);
	const struct space *next = of->scrub || c->closing ? NULL : next_unread(c);

	if (!next)
		return;
	of->scrub = must_alloc(sizeof(*of->scrub));
	space_read_begin(of->scrub, c->config.state_dir, next->id);
	step_job_start(c->loop, of->scrub, &scrub_ops, c);
}

/* --- end ------------------------------------------------------------------------------------ */

void spaces_free(struct service *c)
{
	step_job_cancel(snapshots_of_service(c)->scrub);
	step_job_cancel(snapshots_of_service(c)->writing);
	loop_timer_clear(c->loop, &snapshots_of_service(c)->write_soon);
	spaces_unload(c);
	list_drain_of (p, struct space, link, &snapshots_of_service(c)->spaces)
		space_free(p);
}
