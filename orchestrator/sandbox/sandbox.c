// SPDX-License-Identifier: Apache-2.0
/* A sandbox, from the time it gets its VM until the record of its end is all that remains. */
#include "orchestrator/sandbox/sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/num.h"
#include "base/proc.h"
#include "base/state-machine.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/pool/vm-bringup.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/ended.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/sandbox/tree.h"

#define ADOPT_RETRY_MS 1000

#define CLOCKS_SLACK_MS 5 /* two clocks read in a row differ by less */

static const uint8_t next[SBX_NSTATES][SBX_NEVENTS] = {
	[SBX_ADOPTING] = {[SBX_REACHED] = STATE_TO(SBX_READY), [SBX_END] = STATE_TO(SBX_ENDING)},
	[SBX_READY] = {[SBX_EXEC] = STATE_TO(SBX_RUNNING),
		       [SBX_FREEZE] = STATE_TO(SBX_FREEZING),
		       [SBX_END] = STATE_TO(SBX_ENDING)},
	[SBX_RUNNING] = {[SBX_EXEC_OVER] = STATE_TO(SBX_READY),
			 [SBX_FREEZE] = STATE_TO(SBX_FREEZING),
			 [SBX_END] = STATE_TO(SBX_ENDING)},
	[SBX_FREEZING] = {[SBX_THAW] = STATE_TO(SBX_READY), [SBX_END] = STATE_TO(SBX_ENDING)},
	[SBX_ENDING] = {[SBX_VM_GONE] = STATE_TO(SBX_ENDED)},
};
static const struct state_machine machine = STATE_MACHINE("sandbox", next);

bool sandbox_step(struct sandbox *s, enum sandbox_event event)
{
	unsigned state = s->state;

	if (!state_try(&machine, &state, event))
		return false;
	s->service->n_in[s->state] -= s->is_listed;
	s->state = (enum sandbox_state)state;
	s->service->n_in[s->state] += s->is_listed;
	return true;
}

static void start_waiting(void *arg)
{
	struct sandbox *s = arg;

	if (s->state == SBX_READY || s->state == SBX_RUNNING)
		RUN_PARTS(s->service, start_waiting, s);
}

void sandbox_schedule(struct sandbox *s)
{
	deferred_run(&s->service->deferred, &s->scheduled, start_waiting, s);
}

/* --- by id ---------------------------------------------------------------------------------- */

static struct list *bucket_of(struct service *c, const char *id)
{
	return &c->buckets[bucket_number(id)];
}

void sandbox_index(struct sandbox *s)
{
	list_add_tail(bucket_of(s->service, s->id), &s->bucket);
}

static struct sandbox *lookup(struct service *c, const char *tenant, const char *id)
{
	struct list *bucket = bucket_of(c, id);

	list_each_of (s, struct sandbox, bucket, bucket)
		if (!strcmp(s->id, id) && !strcmp(s->tenant, tenant))
			return s;
	return NULL;
}

struct sandbox *sandbox_of_any(struct service *c, const char *id)
{
	list_each_of (s, struct sandbox, bucket, bucket_of(c, id))
		if (!strcmp(s->id, id) && s->state < SBX_ENDING)
			return s;
	return NULL;
}

struct sandbox *sandbox_living(struct service *c, const char *tenant, const char *id)
{
	struct sandbox *s = lookup(c, tenant, id);

	return s && s->state < SBX_ENDING ? s : NULL;
}

struct sandbox *sandbox_find(struct service *c, const char *tenant, const char *id,
			     struct failure *f)
{
	struct sandbox *s = lookup(c, tenant, id);

	if (s && s->state < SBX_ENDING)
		return s;
	if (s && s->ended_code && !s->forget)
		failure_set(f, life_end(s->ended_code)->failure, 0, "sandbox %s is gone: %s", s->id,
			    s->ended_text);
	else
		failure_set(f, FAIL_NOT_FOUND, 0, "there is no sandbox %.40s", id);
	return NULL;
}

bool failure_catalogue(struct failure *f, const struct err *e)
{
	failure_set(f, FAIL_CATALOGUE, 5, "%s", e->text);
	return false;
}

bool failure_no_memory(struct failure *f)
{
	failure_set(f, FAIL_NO_MEMORY, 5, "the service has no memory for the request");
	return false;
}

bool sandbox_is_reached(const struct sandbox *s, struct failure *f)
{
	if (s->state == SBX_ADOPTING)
		failure_set(f, FAIL_NOT_READY, 1,
			    "sandbox %s is being reconnected after a restart of the service",
			    s->id);
	else if (s->state == SBX_FREEZING)
		failure_set(f, FAIL_FREEZING, 0, "sandbox %s is being frozen", s->id);
	else
		return true;
	return false;
}

struct sandbox *sandbox_find_reached(struct service *c, const char *tenant, const char *id,
				     struct failure *f)
{
	struct sandbox *s = sandbox_find(c, tenant, id, f);

	return s && sandbox_is_reached(s, f) ? s : NULL;
}

/* --- life ----------------------------------------------------------------------------------- */

struct sandbox *sandbox_new(struct service *c, const char *id, const char *tenant)
{
	struct sandbox *s = must_alloc(c->sizes.sandbox);

	s->service = c;
	snprintf(s->id, sizeof(s->id), "%s", id);
	s->owner = tenant_get(c, tenant);
	s->tenant = s->owner->name;
	s->metadata = must_copy("{}");
	s->ancestors = must_copy("");
	s->labels = must_copy("{}");
	sandbox_set_env(s, "", 0);
	RUN_PARTS(c, sandbox_init, s);
	return s;
}

void sandbox_set_env(struct sandbox *s, const void *env, size_t len)
{
	size_t n = 0, i = 0;

	free(s->env);
	free(s->env_list);
	s->env = must_alloc(len + 1);
	memcpy(s->env, env, len);
	s->env_len = len;
	for (size_t at = 0; at < len; at++)
		n += s->env[at] == 0;
	s->env_list = must_alloc((n + 1) * sizeof(*s->env_list));
	for (char *at = s->env; i < n; at += strlen(at) + 1)
		s->env_list[i++] = at;
}

bool sandbox_set_text(char **field, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return false;
	free(*field);
	*field = copy;
	return true;
}

/* Frees everything except the record of the sandbox. */
static void shed(struct sandbox *s)
{
	loop_timer_clear(s->service->loop, &s->lifetime);
	loop_timer_clear(s->service->loop, &s->idle);
	RUN_PARTS(s->service, shed, s);
	tree_put(s->tree);
	s->tree = NULL;
}

void sandbox_free(struct sandbox *s)
{
	sandbox_delist(s);
	shed(s);
	deferred_cancel(&s->scheduled);
	ops_free(&s->deletes);
	ops_free(&s->changes);
	list_del(&s->link);
	list_del(&s->bucket);
	list_del(&s->unrecorded);
	tenant_put(s->owner);
	free(s->metadata);
	free(s->ancestors);
	free(s->labels);
	free(s->env);
	free(s->env_list);
	free(s);
}

void sandbox_note_vm(struct sandbox *s, const struct ready_vm *ready)
{
	const struct vmproc_id *vm = vmproc_id(ready->vm);

	memcpy(s->id, ready->id, sizeof(s->id));
	s->slot = vm->slot;
	s->pid = vm->pid;
	memcpy(s->instance, vm->instance, sizeof(s->instance));
	s->created_at_ms = realtime_ms();
	s->expires_at_ms =
		s->config.timeout_s ? s->created_at_ms + (int64_t)s->config.timeout_s * 1000 : 0;
	s->expires_ms = s->config.timeout_s ? boottime_ms() + s->config.timeout_s * 1000ull : 0;
}

struct store_sandbox sandbox_row(struct sandbox *s)
{
	s->seq_reserved = s->seq + SEQ_BLOCK;
	struct store_sandbox row = {
		.id = s->id,
		.tenant = s->tenant,
		.config = s->config,
		.slot = s->slot,
		.pid = s->pid,
		.created_at_ms = s->created_at_ms,
		.expires_at_ms = s->expires_at_ms,
		.seq_reserved = s->seq_reserved,
		.metadata = s->metadata,
		.env = s->env,
		.env_len = s->env_len,
		.ancestors = s->ancestors,
		.root = s->tree ? s->tree->root : s->id,
		.depth = s->depth,
		.score = s->score,
		.labels = s->labels,
	};

	memcpy(row.instance, s->instance, sizeof(row.instance));
	return row;
}

/* Freezes a persistent sandbox instead of ending it, once its agent is connected. Returns false
 * when it is not persistent. */
static bool freezes_instead(struct sandbox *s, struct loop_timer *timer)
{
	if (!s->config.persistent)
		return false;
	if (s->state == SBX_ADOPTING)
		loop_timer_set(s->service->loop, timer, ADOPT_RETRY_MS);
	else
		RUN_PARTS(s->service, freeze, s);
	return true;
}

/* Returns the smaller of both; 0 is none. */
static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* Returns when the sandbox ends, in ms since the epoch; 0: never. */
static int64_t expires_at(const struct sandbox *s)
{
	return (int64_t)earlier((uint64_t)s->expires_at_ms,
				(uint64_t)s->service->drain.deadline_at_ms);
}

/* Returns the same on the boot-time clock. */
static uint64_t expires(const struct sandbox *s)
{
	return earlier(s->expires_ms, s->service->drain.deadline_ms);
}

bool sandbox_is_over(const struct sandbox *s)
{
	return expires(s) && boottime_ms() >= expires(s);
}

static void on_lifetime(void *arg)
{
	struct sandbox *s = arg;
	char text[ERR_TEXT_MAX];

	if (freezes_instead(s, &s->lifetime))
		return;
	if (expires_at(s) == s->expires_at_ms)
		snprintf(text, sizeof(text), "its lifetime of %lld s is over",
			 (long long)(s->expires_at_ms - s->created_at_ms) / 1000);
	else
		snprintf(text, sizeof(text), "its host is drained, and the time for that is over");
	sandbox_end(s, "expired", text, false);
}

static uint64_t idle_timeout_s(const struct sandbox *s)
{
	return earlier(s->config.idle_timeout_s,
		       s->service->drain.on && s->config.persistent ? DRAIN_IDLE_S : 0);
}

static void on_idle(void *arg)
{
	struct sandbox *s = arg;
	char text[ERR_TEXT_MAX];

	if (freezes_instead(s, &s->idle))
		return;
	snprintf(text, sizeof(text), "it was idle for %u s", s->config.idle_timeout_s);
	sandbox_end(s, "expired", text, false);
}

static void set_idle(struct sandbox *s)
{
	const uint64_t timeout_s = idle_timeout_s(s);
	uint64_t now = boottime_ms(), due = s->idle_since_ms + timeout_s * 1000;

	if (s->n_busy || !timeout_s)
		loop_timer_clear(s->service->loop, &s->idle);
	else
		loop_timer_set(s->service->loop, &s->idle, due > now ? due - now : 0);
}

void sandbox_set_timers(struct sandbox *s)
{
	uint64_t now = boottime_ms(), at = expires(s);

	if (at)
		loop_timer_set(s->service->loop, &s->lifetime, at > now ? at - now : 0);
	else
		loop_timer_clear(s->service->loop, &s->lifetime);
	set_idle(s);
	tree_check(s->tree);
}

void sandboxes_set_timers(struct service *c)
{
	list_each_of (s, struct sandbox, link, &c->sandboxes)
		if (s->state < SBX_ENDING)
			sandbox_set_timers(s);
}

void sandbox_start_timers(struct sandbox *s)
{
	s->lifetime = (struct loop_timer){.fn = on_lifetime, .arg = s};
	s->idle = (struct loop_timer){.fn = on_idle, .arg = s};
	sandbox_set_timers(s);
}

void sandbox_touch(struct sandbox *s)
{
	pool_work_began(s->service->pool);
	s->idle_since_ms = boottime_ms();
	RUN_PARTS(s->service, touched, s);
	set_idle(s);
}

/* --- VM ------------------------------------------------------------------------------------- */

/* The VM of an adopted sandbox is ready. */
static void on_vm_ready(void *arg)
{
	struct sandbox *s = arg;

	RUN_PARTS(s->service, vm_ready, s);
}

/* Leaves the VM found in the sandbox's slot alone if it belongs to another sandbox. */
static void leave_foreign(struct sandbox *s)
{
	static const uint8_t none[CTL_INSTANCE_LEN];
	const uint8_t *instance = vmproc_id(s->vm)->instance;

	if (!vmproc_is_foreign(s->vm) || !memcmp(instance, none, sizeof(none)))
		return;
	list_each_of (each, const struct sandbox, link, &s->service->sandboxes) {
		if (each->state >= SBX_ENDING || memcmp(each->instance, instance, sizeof(none)))
			continue;
		log_error("slot %u holds the VM of sandbox %s, whose slot is %u in the catalogue: "
			  "the VM is left alone",
			  s->slot, each->id, each->slot);
		vmproc_leave(s->vm);
		s->vm = NULL;
		return;
	}
}

void sandbox_vm_died(struct sandbox *s, const char *reason)
{
	s->service->stats.vm_deaths++;
	log_warn("sandbox %s, slot %u: %s", s->id, s->slot, reason);
	leave_foreign(s);
	sandbox_end(s, "vm_died", reason, false);
}

static void on_vm_died(void *arg, const char *reason)
{
	sandbox_vm_died(arg, reason);
}

const struct vmproc_owner sandbox_vm_owner = {on_vm_ready, on_vm_died};

static void on_egress_closed(void *arg, int error, const char *text)
{
	struct sandbox *s = arg;

	if (error)
		sandbox_end(s, "vm_died", "its network access could not be closed", false);
	else
		ops_finish(&s->changes, NULL);
}

void sandbox_close_egress(struct sandbox *s)
{
	vmproc_close_egress(s->vm, on_egress_closed, s);
}

/* --- end ------------------------------------------------------------------------------------ */

static void on_vm_gone(void *arg)
{
	struct sandbox *s = arg;

	sandbox_step(s, SBX_VM_GONE);
	ops_finish(&s->deletes, NULL);
	ended_vm_gone(s);
}

void sandbox_fail_ops(struct sandbox *s, const struct failure *f)
{
	ops_finish(&s->changes, f);
	RUN_PARTS(s->service, fail_ops, s, f);
}

static void note_end(struct sandbox *s, int64_t at_ms, const char *code, const char *text)
{
	tree_vm_ends(s);
	sandbox_delist(s);
	s->ended_at_ms = at_ms;
	s->ended_code = life_end(code)->code;
	snprintf(s->ended_text, sizeof(s->ended_text), "%s", text);
}

void sandbox_end_merged(struct sandbox *s, int64_t at_ms, const char *text)
{
	sandbox_step(s, SBX_END);
	note_end(s, at_ms, "merged", text);
	shed(s);
	on_vm_gone(s);
}

/* Fails the ended sandbox's calls, frees its state and drops its VM. */
static void leave(struct sandbox *s)
{
	struct failure f;

	log_info("sandbox %s ended (%s)", s->id, s->ended_code);
	failure_set(&f, life_end(s->ended_code)->failure, 0, "sandbox %s is gone: %.180s", s->id,
		    s->ended_text);
	sandbox_fail_ops(s, &f);
	shed(s);
	if (s->vm)
		ended_drop_vm(s, on_vm_gone);
	else
		on_vm_gone(s);
}

void sandbox_end(struct sandbox *s, const char *code, const char *text, bool forget)
{
	if (!sandbox_step(s, SBX_END))
		return;
	s->forget = forget;
	note_end(s, realtime_ms(), code, text);
	ended_record(s);
	leave(s);
}

void sandbox_end_frozen(struct sandbox *s, int64_t at_ms, const char *text)
{
	sandbox_step(s, SBX_END);
	note_end(s, at_ms, "frozen", text);
	leave(s);
}

/* --- calls ---------------------------------------------------------------------------------- */

struct op *service_delete(struct service *c, const char *tenant, const char *id,
			  service_done_fn *fn, void *arg)
{
	static const char deleted[] = "it was deleted";
	struct op *op = op_new(c, &op_plain, arg);
	struct failure f;
	struct err e;

	op->done_fn = fn;
	struct sandbox *s = sandbox_find(c, tenant, id, &f);
	if (!s) {
		/* A merged sandbox lives on under another id. Deleting the old id succeeds, so that
		 * its owner can release it. */
		return op_finish(op, f.code == FAIL_MERGED ? NULL : &f);
	}
	life_note(s, (struct audit_event){.name = "sandbox.deleted", .text = deleted});
	if (store_sandbox_forget(c->store, s->id, &e) < 0) {
		failure_catalogue(&f, &e);
		return op_finish(op, &f);
	}
	s->off_catalogue = true;
	list_add_tail(&s->deletes, &op->link);
	sandbox_end(s, "deleted", deleted, true);
	return op;
}

/* --- views ---------------------------------------------------------------------------------- */

/* Converts a time of the boot-time clock to the wall clock. The offset of the clocks is measured
 * each time, but the stored value is kept until a clock was set, since measurements differ by a
 * millisecond. */
static int64_t to_realtime(struct service *c, uint64_t boottime)
{
	uint64_t before = boottime_ms();
	int64_t distance = realtime_ms() - (int64_t)before;
	bool is_exact = boottime_ms() - before <= 1; /* no preemption in between */

	if (!c->clocks_ms || (is_exact && llabs(distance - c->clocks_ms) > CLOCKS_SLACK_MS))
		c->clocks_ms = distance;
	return (int64_t)boottime + c->clocks_ms;
}

void sandbox_view_fill(const struct sandbox *s, struct sandbox_view *view)
{
	uint64_t now = boottime_ms(), idle_from = s->n_busy ? now : s->idle_since_ms;

	*view = (struct sandbox_view){
		.state = s->state == SBX_FREEZING  ? "freezing"
			 : s->state == SBX_RUNNING ? "running"
						   : "ready",
		.config = s->config,
		.created_at_ms = s->created_at_ms,
		.expires_at_ms = expires_at(s),
		.idle_expires_at_ms =
			idle_timeout_s(s)
				? to_realtime(s->service, idle_from + idle_timeout_s(s) * 1000)
				: 0,
		.metadata = s->metadata,
		.root = s->tree->root,
		.depth = s->depth,
		.score = s->score,
		.labels = s->labels,
		.tenant = s->tenant,
		.pid = s->pid,
		.memory = s->use.memory,
		.idle_ms = now - idle_from,
	};
	memcpy(view->id, s->id, sizeof(view->id));
	RUN_PARTS(s->service, view, s, view);
	view->parent = s->parent ? s->parent->id : NULL;
	view->n_children = s->children.n;
}

/* Returns the ids of the first children. The array is valid until the next call. */
static const char *const *children_of(struct service *c, const struct sandbox *s)
{
	size_t n = s->children.n < CHILDREN_SHOWN ? s->children.n : CHILDREN_SHOWN;

	free(c->children);
	c->children = must_alloc((n + 1) * sizeof(*c->children));
	for (size_t i = 0; i < n; i++)
		c->children[i] = s->children.all[i]->place.id;
	return c->children;
}

bool service_view(struct service *c, const char *tenant, const char *id, struct sandbox_view *view,
		  struct failure *f)
{
	struct sandbox *s = sandbox_find(c, tenant, id, f);

	if (!s)
		return false;
	sandbox_view_fill(s, view);
	if (s->pid)
		proc_memory_read(s->pid, &view->memory.private_bytes, &view->memory.shared_bytes);
	view->children = children_of(c, s);
	return true;
}
