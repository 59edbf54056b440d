// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/guestops/guest-op.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/guestops/state.h"
#include "orchestrator/sandbox/tenant.h"

#define DIAL_LIMIT_MS 30000 /* the guest may be slow */
#define LOST_MS	      500 /* until a lost connection is reported: a VM's death is reported first */
#define TOUCH_MS      1000
#define UNDO_MS	      30000
#define DATA_CHUNK    (4 * AGENT_PAYLOAD_MAX) /* bytes of data handed to the connection at a time */

/* --- idle connections ----------------------------------------------------------------------- */

static void idle_conn_drop(struct agent **idle)
{
	agent_free(*idle);
	*idle = NULL;
}

static void on_idle_conn_frame(void *arg, const struct agent_frame *frame)
{
	idle_conn_drop(arg);
}

static void on_idle_conn_ended(void *arg, const char *reason)
{
	idle_conn_drop(arg);
}

static const struct agent_events idle_conn_events = {on_idle_conn_frame, on_idle_conn_ended, NULL};

void idle_conns_drop(struct sandbox *s)
{
	loop_timer_clear(s->service->loop, &guestops_of(s)->idle_conn_timer);
	for (size_t i = 0; i < IDLE_CONNS_MAX; i++)
		idle_conn_drop(&guestops_of(s)->idle_conns[i]);
}

static void on_idle_conns_old(void *arg)
{
	idle_conns_drop(arg);
}

static void idle_conn_keep(struct sandbox *s, struct agent *agent)
{
	size_t i = 0;

	while (i < IDLE_CONNS_MAX && guestops_of(s)->idle_conns[i])
		i++;
	if (i == IDLE_CONNS_MAX || agent_is_sending(agent)) {
		agent_free(agent);
		return;
	}
	guestops_of(s)->idle_conns[i] = agent;
	agent_set_events(agent, &idle_conn_events, &guestops_of(s)->idle_conns[i]);
	agent_resume(agent);
	guestops_of(s)->idle_conn_timer.fn = on_idle_conns_old;
	guestops_of(s)->idle_conn_timer.arg = s;
	loop_timer_set(s->service->loop, &guestops_of(s)->idle_conn_timer, IDLE_CONN_MS);
}

static struct agent *idle_conn_take(struct sandbox *s)
{
	for (size_t i = 0; i < IDLE_CONNS_MAX; i++) {
		struct agent *agent = guestops_of(s)->idle_conns[i];

		guestops_of(s)->idle_conns[i] = NULL;
		if (agent)
			return agent;
	}
	return NULL;
}

/* --- end ------------------------------------------------------------------------------------ */

static bool counts_as_activity(const struct guest_op *op)
{
	return !op->kind->listens || op->kind->works;
}

/* Counts the operation in (by 1) or out (by -1), with its sandbox, its tenant and the service. */
static void count(const struct guest_op *op, int by)
{
	struct guestops_sandbox *s = guestops_of(op->sandbox);
	struct guestops_tenant *t = guestops_of_tenant(op->sandbox->owner);
	struct guestops_service *c = guestops_of_service(op->sandbox->service);

	if (counts_as_activity(op))
		op->sandbox->n_busy += (size_t)by;
	if (op->listens) {
		s->n_listeners += (unsigned)by;
		t->listeners += (size_t)by;
		c->listeners += (size_t)by;
	} else {
		s->n_ops += (unsigned)by;
		t->operations += (size_t)by;
		c->operations += (size_t)by;
	}
}

/* Detaches the operation from its sandbox. */
static void leave(struct guest_op *op)
{
	if (!op->sandbox)
		return;
	guest_link_close(&op->guest);
	count(op, -1);
	op->sandbox = NULL;
	op->data_left = 0;
	op->unfinished = false;
}

static void guest_op_put_away(struct op *base)
{
	struct guest_op *op = guest_op_of(base);

	leave(op);
	if (op->kind->fini)
		op->kind->fini(op);
	if (op->owner)
		tenant_put(op->owner);
	free(op->request.p);
}

static void guest_op_finished(struct op *base)
{
	struct guest_op *op = guest_op_of(base);
	struct sandbox *s = op->sandbox;

	leave(op);
	if (s)
		sandbox_touch(s);
	guestops_of_service(base->service)->file_failures += op->kind->file && base->failed;
}

static const struct guest_op_kind undo_kind = {.timeout_ms = UNDO_MS, .undoes = true};

/* Sends the request with a new operation, since this one's connection may be closed, or carry a
 * stream. The new operation counts against the same limits: otherwise, a guest that never answers
 * could hold any number of operations. */
static void send_apart(const struct guest_op *op, struct agent_bytes request)
{
	struct guest_op *by = guest_op_new(op->base.service, &undo_kind, sizeof(*by), NULL, NULL);

	by->listens = op->listens;
	guest_op_start(by, op->owner->name, op->of, request);
}

/* Only here is it certain whether the client learns of the result: it may leave after the operation
 * was finished. */
static void guest_op_notify(struct op *base)
{
	struct guest_op *op = guest_op_of(base);

	if (op->made && (base->abandoned || base->failed))
		send_apart(op, op->kind->undo(op));
	if (op->kind->notify)
		op->kind->notify(base);
	else
		op_notify_done(base);
}

static void guest_op_abandon(struct op *base)
{
	struct guest_op *op = guest_op_of(base);
	struct sandbox *s = op->sandbox;

	base->abandoned = true;
	if (op->unseen)
		return;
	leave(op);
	if (s)
		sandbox_touch(s);
	op_free(base);
}

static void guest_op_hang_up(struct op *base)
{
	struct guest_op *op = guest_op_of(base);

	if (op->owner && op->kind->hang_up &&
	    !op->unseen) /* an unseen start is undone by guest_op_abandon */
		send_apart(op, op->kind->hang_up(op));
	guest_op_abandon(base);
}

void guest_op_sandbox_gone(struct sandbox *s, const struct failure *f)
{
	ops_finish(&guestops_of(s)->ops, f);
	ops_finish(&guestops_of(s)->delayed, f);
	idle_conns_drop(s);
}

void guest_op_succeed(struct guest_op *op)
{
	struct agent *agent = guest_link_release(&op->guest);

	if (op->sandbox)
		idle_conn_keep(op->sandbox, agent);
	op_finish(&op->base, NULL);
}

void guest_op_enough(struct guest_op *op)
{
	op_finish(&op->base, NULL);
}

void guest_op_fail(struct guest_op *op, enum failure_code code, const char *format, ...)
{
	bool may_retry_soon = code == FAIL_NO_MEMORY || code == FAIL_TOO_MANY;
	char text[ERR_TEXT_MAX];
	struct failure f;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	failure_set(&f, code, may_retry_soon ? 1 : 0, "%s", text);
	op_finish(&op->base, &f);
}

void guest_op_fail_rules(struct guest_op *op)
{
	guest_op_fail(op, FAIL_AGENT_ERROR,
		      "sandbox %s: its guest's agent sent a frame that is not expected here",
		      op->sandbox->id);
}

static const struct guest_refusal file_refusals[] = {
	{ENOENT, FAIL_NO_SUCH_FILE},	 {EISDIR, FAIL_IS_A_DIRECTORY},
	{ENOTDIR, FAIL_NOT_A_DIRECTORY}, {EEXIST, FAIL_FILE_EXISTS},
	{ENOTEMPTY, FAIL_NOT_EMPTY},	 {EBUSY, FAIL_FILE_BUSY},
	{ETXTBSY, FAIL_FILE_BUSY},	 {EINVAL, FAIL_NOT_A_FILE},
	{ENXIO, FAIL_NOT_A_FILE},	 {ERANGE, FAIL_OUT_OF_RANGE},
	{ELOOP, FAIL_BAD_PATH},		 {ENAMETOOLONG, FAIL_BAD_PATH},
	{EACCES, FAIL_NOT_PERMITTED},	 {EPERM, FAIL_NOT_PERMITTED},
	{EROFS, FAIL_NOT_PERMITTED},	 {EXDEV, FAIL_NOT_PERMITTED},
	{EFBIG, FAIL_TOO_LARGE},	 {EMFILE, FAIL_TOO_MANY},
	{ENFILE, FAIL_TOO_MANY},	 {EAGAIN, FAIL_TOO_MANY},
	{EUSERS, FAIL_TOO_MANY},	 {ENOSPC, FAIL_DISK_FULL},
	{EDQUOT, FAIL_DISK_FULL},	 {0, FAIL_AGENT_ERROR},
};

static enum failure_code code_of(const struct guest_refusal *r, uint32_t errnum)
{
	while (r->errnum && r->errnum != errnum)
		r++;
	return r->code;
}

static void refused(struct guest_op *op, const struct agent_frame *frame)
{
	const struct guest_refusal *own = op->kind->refusals;
	enum failure_code code = own ? code_of(own, frame->errnum) : FAIL_NONE;
	char text[200];

	if (code == FAIL_NONE)
		code = code_of(file_refusals, frame->errnum);
	if (frame->len)
		snprintf(text, sizeof(text), "%.*s", (int)min_u64(frame->len, sizeof(text) - 1),
			 (const char *)frame->data);
	else
		snprintf(text, sizeof(text), "the guest: %s", strerror((int)frame->errnum));
	if (code == FAIL_AGENT_ERROR)
		guest_op_fail(op, code, "sandbox %s: %s", op->sandbox->id, text);
	else
		guest_op_fail(op, code, "%s", text);
}

/* --- in progress ---------------------------------------------------------------------------- */

static void on_deadline(void *arg)
{
	struct guest_op *op = arg;
	uint32_t timeout_ms = op->kind->timeout_ms;
	uint64_t idle_ms = loop_now_ms(op->base.service->loop) - op->moved_ms;

	if (op->lost[0]) {
		guest_op_fail(op, FAIL_AGENT_LOST, "sandbox %s: %.150s", op->sandbox->id, op->lost);
	} else if (op->paused || op->wants_input) {
		guest_link_set_deadline(&op->guest, timeout_ms);
	} else if (op->sandbox->state == SBX_FREEZING) { /* the VM is paused */
		op->moved_ms = loop_now_ms(op->base.service->loop);
		guest_link_set_deadline(&op->guest, timeout_ms);
	} else if (idle_ms < timeout_ms) {
		guest_link_set_deadline(&op->guest, timeout_ms - idle_ms);
	} else if (op->kind->impatient_code) {
		guest_op_fail(op, op->kind->impatient_code, "the guest took no data for %u s",
			      timeout_ms / 1000);
	} else {
		guest_op_fail(op, FAIL_AGENT_ERROR, "sandbox %s: its guest sent nothing for %u s",
			      op->sandbox->id, timeout_ms / 1000);
	}
}

/* Notes that data moved; touches the sandbox at most once per TOUCH_MS. */
static void note_progress(struct guest_op *op)
{
	uint64_t now = loop_now_ms(op->base.service->loop);

	op->moved_ms = now;
	if (!counts_as_activity(op) || now - op->touched_ms < TOUCH_MS)
		return;
	op->touched_ms = now;
	sandbox_touch(op->sandbox);
}

static void send_part(struct guest_op *op, const void *part, size_t part_len)
{
	const struct agent_bytes bytes = agent_data_bytes(part, part_len);

	if (bytes.error < 0) {
		guest_op_fail(op, FAIL_NO_MEMORY, "the service has no memory for the request");
		return;
	}
	if (op->count)
		*op->count += part_len;
	guest_link_send(&op->guest, bytes);
}

/* Sends the next bytes of data that is complete in memory. */
static void send_data(struct guest_op *op)
{
	size_t len = min_u64(op->data_left, DATA_CHUNK);
	const uint8_t *part = op->data;

	if (op->wants || !len)
		return;
	op->data += len;
	op->data_left -= len;
	send_part(op, part, len);
}

static void on_sent(void *arg)
{
	struct guest_op *op = arg;

	note_progress(op);
	send_data(op);
	if (!op->unfinished || op->wants_input)
		return;
	op->wants_input = true;
	op->wants(op->base.arg);
}

/* Returns whether a part is within the length of the data, and only the last one reaches its end.
 */
static bool part_fits(const struct guest_op *op, size_t len, bool last)
{
	if (op->data_left == AGENT_UNSIZED)
		return true;
	return len <= op->data_left && last == (len == op->data_left);
}

void service_file_feed(struct op *base, const void *part, size_t len, bool last)
{
	struct guest_op *op = guest_op_of(base);
	bool unsized = op->data_left == AGENT_UNSIZED;

	assert(op->wants_input && (len || last));
	op->wants_input = false;
	if (!op->guest.agent) /* lost, which fails the operation soon */
		return;
	if (!part_fits(op, len, last)) {
		guest_op_fail(op, FAIL_OUT_OF_RANGE, "the data does not have the announced length");
		return;
	}
	op->unfinished = !last;
	if (!unsized)
		op->data_left -= len;
	else if (last)
		op->data_left = 0;
	op->moved_ms = loop_now_ms(base->service->loop);
	if (len)
		send_part(op, part, len);
	if (unsized && last && op->guest.agent)
		guest_link_send_plain(&op->guest, AGENT_DATA); /* the mark of the end */
}

static void on_done(struct guest_op *op)
{
	if (op->data_left || op->unfinished)
		guest_op_fail_rules(op);
	else if (op->kind->done)
		op->kind->done(op);
	else
		guest_op_succeed(op);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct guest_op *op = arg;

	note_progress(op);
	if (frame->type == AGENT_ERROR)
		refused(op, frame);
	else if (frame->type == AGENT_DONE)
		on_done(op);
	else if (op->kind->frame)
		op->kind->frame(op, frame);
	else
		guest_op_fail_rules(op);
}

static void on_lost(void *arg, enum guest_lost reason, const char *text)
{
	struct guest_op *op = arg;

	if (reason == GUEST_NO_MEMORY) {
		guest_op_fail(op, FAIL_NO_MEMORY,
			      "sandbox %s: no memory for a connection to its guest",
			      op->sandbox->id);
		return;
	}
	op->data_left = 0;
	op->unfinished = false;
	snprintf(op->lost, sizeof(op->lost), "%s", text);
	guest_link_set_deadline(&op->guest, LOST_MS);
}

static void send_request(struct guest_op *op)
{
	const struct agent_bytes request = op->request;

	op->request.p = NULL;
	guest_link_send(&op->guest, request);
	send_data(op);
}

static void on_reached(void *arg)
{
	send_request(arg);
}

static const struct guest_link_events guest_events = {on_reached, on_frame, on_lost, on_deadline,
						      on_sent};

void guest_op_next(struct guest_op *op, struct agent_bytes request)
{
	op->request = request;
	if (request.error < 0)
		guest_op_fail(op, FAIL_NO_MEMORY, "the service has no memory for the request");
	else
		send_request(op);
}

/* --- start ---------------------------------------------------------------------------------- */

static bool has_room(const struct guest_op *op, const struct sandbox *s, struct failure *f)
{
	const struct guestops_service *c = guestops_of_service(s->service);
	const struct guestops_tenant *t = guestops_of_tenant(s->owner);
	bool listens = op->listens;
	const char *what = listens ? "listeners" : "operations";

	if (listens ? guestops_of(s)->n_listeners >= LISTENERS_MAX
		    : guestops_of(s)->n_ops >= OPS_MAX) {
		failure_set(f, FAIL_TOO_MANY, 1,
			    "%d %s are under way in sandbox %s, which is the limit",
			    listens ? LISTENERS_MAX : OPS_MAX, what, s->id);
		return false;
	}
	if (listens)
		return tenant_may_begin(s->service, what, c->listeners, t->listeners,
					ALL_LISTENERS_MAX, f);
	return tenant_may_begin(s->service, what, c->operations, t->operations, ALL_OPS_MAX, f);
}

static bool is_encoded(const struct agent_bytes *request, struct failure *f)
{
	if (request->error == -E2BIG)
		failure_set(f, FAIL_OUT_OF_RANGE, 0,
			    "the request is too long for the guest's agent: a path may have %u "
			    "bytes, the whole request %u bytes and 1024 variables",
			    AGENT_PATH_MAX, AGENT_PAYLOAD_MAX);
	else if (request->error < 0)
		failure_no_memory(f);
	return request->error >= 0;
}

static void begin(struct guest_op *op, struct sandbox *s)
{
	struct service *c = s->service;

	op->sandbox = s;
	if (op->kind->undo || op->kind->hang_up) {
		op->owner = tenant_hold(s->owner);
		memcpy(op->of, s->id, sizeof(op->of));
	}
	list_add_tail(&guestops_of(s)->ops, &op->base.link);
	count(op, 1);
	guestops_of_service(c)->file_calls += op->kind->file;
	op->moved_ms = op->touched_ms = loop_now_ms(c->loop);
	sandbox_touch(s);
	guest_link_init(&op->guest, c->loop, &guest_events, op);
	if (!op->kind->listens)
		guest_link_set_deadline(&op->guest, op->kind->timeout_ms);
	guest_link_take(&op->guest, idle_conn_take(s));
	if (op->guest.agent)
		send_request(op);
	else
		guest_link_dial(&op->guest, s->vm, DIAL_LIMIT_MS, false);
}

static void guest_op_set_paused(struct op *base, bool paused)
{
	struct guest_op *op = guest_op_of(base);

	if (op->paused == paused)
		return;
	op->paused = paused;
	op->moved_ms = loop_now_ms(base->service->loop);
	guest_link_pause(&op->guest, paused);
}

static const struct op_methods guest_op_ops = {
	.passive = true,
	.put_away = guest_op_put_away,
	.finished = guest_op_finished,
	.notify = guest_op_notify,
	.abandon = guest_op_abandon,
	.hang_up = guest_op_hang_up,
	.set_paused = guest_op_set_paused,
};

struct guest_op *guest_op_new(struct service *c, const struct guest_op_kind *kind, size_t size,
			      service_done_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_of(op_new_sized(c, &guest_op_ops, size, arg));

	op->base.done_fn = fn;
	op->kind = kind;
	op->listens = kind->listens;
	op->unseen = kind->undo != NULL;
	return op;
}

void guest_op_set_data(struct guest_op *op, const struct file_data *data, uint64_t *count)
{
	op->data = data->p;
	op->data_left = data->len;
	op->wants = data->wants;
	op->unfinished = data->wants && data->len;
	op->count = count;
}

struct op *guest_op_start(struct guest_op *op, const char *tenant, const char *id,
			  struct agent_bytes request)
{
	struct op *base = &op->base;
	struct failure f;
	struct sandbox *s = sandbox_find(base->service, tenant, id, &f);

	op->request = request;
	if (s && op->kind->undoes && s->state == SBX_FREEZING && is_encoded(&request, &f))
		list_add_tail(&guestops_of(s)->delayed, &base->link);
	else if (s && sandbox_is_reached(s, &f) && is_encoded(&request, &f) &&
		 (op->kind->undoes || has_room(op, s, &f)))
		begin(op, s);
	else
		op_finish(base, &f);
	return base;
}

void guest_op_start_delayed(struct sandbox *s)
{
	list_drain_of (base, struct op, link, &guestops_of(s)->delayed) {
		list_del(&base->link);
		begin(guest_op_of(base), s);
	}
}
