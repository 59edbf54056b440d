// SPDX-License-Identifier: Apache-2.0
/* Calls in a sandbox. Those of one interpreter run one after the other, in order of arrival, over a
 * connection to the guest's agent. */
#include "orchestrator/exec/exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/elements.h"
#include "base/log.h"
#include "base/num.h"
#include "base/random.h"
#include "base/report.h"
#include "orchestrator/exec/bundle.h"
#include "orchestrator/exec/internal.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/tenant.h"

#define SEQ_RETRY   1000 /* events until the next try after a failed reservation */
#define QUEUE_MAX   1000
#define CALLS_SHOWN 10 /* in an inspection report */
/* Limit for the code of all queued calls. Queued calls stay when their clients disconnect. */
#define WAITING_BYTES_MAX (256u << 20)
/* Reconnects of a call. The first ones may reach the socket of an agent that is being killed. */
#define REATTACH_MAX 5
#define SHORT_CODE   (16u << 10) /* goes to an idle guest regardless of the limit */
/* Grace period on top of a call's time limit. The guest enforces the limit, and counts from the
 * start of the code. On a busy machine, the start of the interpreter before that, and the exit of a
 * killed interpreter, may take long. */
#define GRACE_MS	 120000
#define RESULT_TOO_LARGE "ramet: this result was dropped: the limit is 8 MiB"
#define RESULT_NO_MEMORY                                                                           \
	"ramet: this result was dropped: the service's memory for output is used up"
#define RESULT_UNSOUND "ramet: this result was dropped: it is malformed"
/* Bytes of CONTEXTS_HELD_MAX that stay free for short unfinished lines. */
#define CONTEXTS_SPARE (1u << 20)
#define BROKEN	       "the connection to the guest's agent broke during the call"
#define NOT_FORKED     "the call had not reached the guest before the fork: it runs only in the parent"

struct exec {
	struct op op;
	struct exec_sink sink;
	struct exec_lane *lane;	    /* valid while the call is in its queue */
	struct tenant *owner;	    /* charged for `request`; NULL: none is */
	struct agent_bytes request; /* its `p`: until it is sent */
	struct exec_point point;    /* without `context`, `running`, `at_guest` and `hung_up` */
	bool started, paused;
	const char *bundle_lost; /* why a result is dropped; NULL: none is */
	enum event_type type;	 /* type of the event that the splitter is emitting */
	struct loop_timer limit;
	struct event error; /* the failure as an event; also in the replay if the call was queued */
	/* The call began in the guest that this guest is a copy of, or under a previous instance of
	 * the service. */
	bool attached;
	unsigned reattached; /* times that its connection broke and its rest was asked for again */
	bool cut;	     /* the splitter emitted an event for the current frame */
	struct exec_hang_up hang_up;
};

static struct exec *exec_of_op(const struct op *op)
{
	return container_of(op, struct exec, op);
}

/* Adds `bytes` (negative: subtracts) to the counts of request bytes that are not sent yet. */
static void count_waiting(struct tenant *t, ssize_t bytes)
{
	exec_of_tenant(t)->waiting_bytes += (size_t)bytes;
	exec_of_service(t->service)->waiting_bytes += (size_t)bytes;
}

/* Charges the request to the tenant until it is sent completely. */
static void wait_to_send(struct exec *exec, struct sandbox *s)
{
	exec->owner = tenant_hold(s->owner);
	count_waiting(exec->owner, (ssize_t)exec->request.len);
}

/* Ends the interrupt of a call that is over, since it would interrupt nothing. */
static void drop_interrupt(struct exec *exec)
{
	if (exec->hang_up.interrupt)
		op_free(exec->hang_up.interrupt); /* which sets it to NULL */
}

static void exec_put_away(struct op *op)
{
	struct exec *exec = exec_of_op(op);

	loop_timer_clear(op->service->loop, &exec->limit);
	drop_interrupt(exec);
	exec_point_fini(&exec->point);
	if (exec->request.p)
		count_waiting(exec->owner, -(ssize_t)exec->request.len);
	tenant_put(exec->owner);
	free(exec->request.p);
}

static struct exec *first(const struct exec_lane *lane)
{
	return list_first_of(&lane->calls, struct exec, op.link);
}

bool exec_lane_runs(const struct exec_lane *lane)
{
	return lane->context[0] ? lane->running : lane->sandbox->state == SBX_RUNNING;
}

/* Counts calls that came into the queues of the sandbox (negative: that left them). */
static void count_calls(struct sandbox *s, ssize_t n)
{
	exec_of(s)->n_calls += (size_t)n;
	s->n_busy += (size_t)n;
}

static struct exec *running(const struct exec_lane *lane)
{
	return exec_lane_runs(lane) ? first(lane) : NULL;
}

/* Returns the journal, for records of the lane's call. */
static struct journal *journal_of(const struct exec_lane *lane)
{
	struct journal *j = exec_of(lane->sandbox)->journal;

	journal_in(j, lane->context);
	return j;
}

static void leave_queue(struct exec *exec)
{
	struct exec_lane *lane = exec->lane;
	struct sandbox *s = lane->sandbox;

	loop_timer_clear(exec->op.service->loop, &exec->limit);
	drop_interrupt(exec);
	list_del(&exec->op.link);
	count_calls(s, -1);
	stall_end(lane);
	journal_over(journal_of(lane));
	if (lane->context[0])
		lane_left(lane);
	else
		sandbox_step(s, SBX_EXEC_OVER);
	sandbox_touch(s);
	if (exec_of(s)->n_calls)
		sandbox_schedule(s);
}

/* --- state for the next instance of the service --------------------------------------------- */

/* Returns the call that runs, or that continues once the guest is reached again. Its buffers stay
 * owned by the call. */
static struct exec_point point_of(const struct exec_lane *lane)
{
	const struct exec *exec = first(lane);
	struct exec_point p = {0};

	if (exec && (exec_lane_runs(lane) || exec->attached)) {
		p = exec->point;
		p.running = true;
	}
	memcpy(p.context, lane->context, sizeof(p.context));
	return p;
}

void exec_keep_all(struct sandbox *s, size_t replay_most)
{
	struct journal_state now = {.seq = s->seq,
				    .seq_reserved = s->seq_reserved,
				    .guest_busy = exec_of(s)->main.guest_busy,
				    .replay = exec_of(s)->replay,
				    .history = exec_of(s)->history,
				    .point = point_of(&exec_of(s)->main)};
	struct exec_point contexts[LANES_MAX], *last = &now.point;

	list_each (pos, &exec_of(s)->lanes) {
		if (last == &contexts[LANES_MAX - 1])
			break;
		struct exec_point *p = last == &now.point ? contexts : last + 1;
		*p = point_of(container_of(pos, struct exec_lane, link));
		/* After a merge, more lanes may have calls than may run calls at the same time. */
		if (p->running)
			last = last->next = p;
	}
	journal_write(exec_of(s)->journal, &now, replay_most);
}

void exec_keep(struct sandbox *s)
{
	if (!journal_commit(exec_of(s)->journal, exec_of(s)->main.guest_busy))
		exec_keep_all(s, REPLAY_BYTES_MAX);
	output_trim(s->service);
}

/* --- history -------------------------------------------------------------------------------- */

static void add_to_history(struct sandbox *s, const struct history_entry *entry)
{
	struct history_log *h = &exec_of(s)->history;

	journal_history(exec_of(s)->journal, history_add(h, entry, history_last(h)));
}

void exec_happened(struct sandbox *s, const struct history_entry *entry)
{
	add_to_history(s, entry);
	exec_keep(s);
}

/* Notes the checkpoint in the entry `n`, if that has none. Returns whether it did. */
static bool note_kept(struct sandbox *s, const char *checkpoint, uint32_t n)
{
	struct history_log *h = &exec_of(s)->history;
	const struct history_entry *e = history_keep(h, n, checkpoint);

	if (!e)
		return false;
	if (n != history_last(h)) { /* a journal replaces only its last entry */
		exec_keep_all(s, REPLAY_BYTES_MAX);
		return true;
	}
	journal_history(exec_of(s)->journal, e);
	exec_keep(s);
	return true;
}

void exec_kept(struct sandbox *s, const char *checkpoint, const char *name, uint32_t after)
{
	struct history_entry e = {.kind = HISTORY_CHECKPOINT, .at_ms = realtime_ms()};
	const uint32_t n = history_same(&exec_of(s)->history, after);
	const bool is_present = n == history_last(&exec_of(s)->history);

	if (!is_present) { /* a new entry would seem to undo what came after that state */
		note_kept(s, checkpoint, n);
		return;
	}
	if (!name && note_kept(s, checkpoint, n))
		return;
	snprintf(e.checkpoint, sizeof(e.checkpoint), "%s", checkpoint);
	if (name)
		history_text(e.text, name, strlen(name));
	exec_happened(s, &e);
}

static enum history_result result_of(const struct exec *exec, const struct event *ev)
{
	if (ev->type == EVENT_EXIT)
		return ev->exit_code ? HISTORY_ERROR : HISTORY_OK;
	if (exec->op.failure.code == FAIL_ROLLED_BACK)
		return HISTORY_ROLLED_BACK;
	return exec->op.failure.code == FAIL_MERGED_DURING_CALL ? HISTORY_MERGED : HISTORY_FAILED;
}

/* Returns whether that is the end of a call that the guest had received. */
static bool is_end(const struct exec *exec, const struct event *ev)
{
	if (ev->type == EVENT_ERROR)
		return (exec->point.began_ms || exec->attached) &&
		       exec->op.failure.code != FAIL_NOT_FORKED;
	return ev->type == EVENT_EXIT;
}

static void note_end(const struct exec *exec, const struct event *ev)
{
	struct history_entry e = {.kind = HISTORY_CALL,
				  .at_ms = ev->ts_ms,
				  .began_ms = exec->point.began_ms,
				  .seq = ev->seq,
				  .result = (uint8_t)result_of(exec, ev)};

	memcpy(e.text, exec->point.text, sizeof(e.text));
	add_to_history(exec->lane->sandbox, &e);
}

/* --- events --------------------------------------------------------------------------------- */

static void notify_started(void *arg)
{
	struct exec *exec = arg;

	deferred_cancel(&exec->op.deferred);
	exec->started = true;
	if (!exec->op.abandoned)
		exec->sink.started(exec->op.arg);
}

/* Returns the next event number. Numbers are reserved in the catalogue in blocks, so that none is
 * used twice after a crash. */
static uint64_t next_seq(struct sandbox *s)
{
	struct err e;

	if (++s->seq >= s->seq_reserved) {
		s->seq_reserved = s->seq + SEQ_BLOCK;
		if (store_sandbox_seq(s->service->store, s->id, s->seq_reserved, &e) < 0) {
			log_error("sandbox %s: event numbers can't be reserved in the catalogue: "
				  "%s",
				  s->id, e.text);
			s->seq_reserved = s->seq + SEQ_RETRY;
		}
		journal_seq(exec_of(s)->journal, s->seq, s->seq_reserved);
	}
	return s->seq;
}

static void record(struct exec *exec, struct event *ev)
{
	struct exec_lane *lane = exec->lane;
	struct sandbox *s = lane->sandbox;

	ev->seq = next_seq(s);
	ev->ts_ms = realtime_ms();
	ev->context = lane->context[0] ? lane->context : NULL;
	replay_add(&exec_of(s)->replay, ev, exec->point.traceparent);
	journal_event(exec_of(s)->journal, ev, exec->point.traceparent);
	if (is_end(exec, ev))
		note_end(exec, ev);
	follow_news(s);
}

/* Records the failure as the last event of the call. */
static void exec_failed(struct op *op)
{
	struct exec *exec = exec_of_op(op);

	loop_timer_clear(op->service->loop, &exec->limit);
	drop_interrupt(exec);
	exec->error = (struct event){.type = EVENT_ERROR,
				     .code = failure_code_name(op->failure.code),
				     .data = (const uint8_t *)op->failure.text,
				     .len = strlen(op->failure.text)};
	if (!exec->lane)
		return;
	record(exec, &exec->error);
	exec->error.context = NULL; /* the lane may be gone when this is reported */
	exec_keep(exec->lane->sandbox);
}

static void emit(struct exec *exec, struct event *ev)
{
	/* The reader of an earlier event of the same frame has ended the sandbox. */
	if (exec->op.failed)
		return;
	record(exec, ev);
	if (!exec->started)
		notify_started(exec);
	if (!exec->op.abandoned)
		exec->sink.event(exec->op.arg, ev);
}

static void on_chunk(void *arg, const uint8_t *data, size_t len, bool partial)
{
	struct exec *exec = arg;
	struct event ev = {.type = exec->type, .partial = partial, .data = data, .len = len};

	exec->cut = true;
	emit(exec, &ev);
}

/* Records the progress of the call in the journal and commits all changes of one frame, its events
 * included. */
static void note_output(struct exec *exec, const struct splitter *s, size_t held_before)
{
	struct journal *j = journal_of(exec->lane);
	enum event_type what = s == &exec->point.out   ? EVENT_STDOUT
			       : s == &exec->point.err ? EVENT_STDERR
						       : EVENT_RESULT;

	if (exec->cut && (s->len || held_before))
		journal_held(j, what, true, s->held, s->len);
	else if (!exec->cut && s->len > held_before)
		journal_held(j, what, false, s->held + held_before, s->len - held_before);
	journal_have(j, exec->point.have);
	exec_keep(exec->lane->sandbox);
}

/* Returns the bytes of unfinished lines and results of all contexts' calls; 0 for the default
 * interpreter's lane. What the contexts hold must fit into the journal together. */
static size_t held_by_contexts(const struct exec_lane *lane)
{
	size_t held = 0;

	if (!lane->context[0])
		return 0;
	list_each (pos, &exec_of(lane->sandbox)->lanes) {
		const struct exec *exec = running(container_of(pos, struct exec_lane, link));

		if (exec)
			held += exec->point.out.len + exec->point.err.len + exec->point.bundle.len;
	}
	return held;
}

static void on_output(struct exec *exec, const struct agent_frame *frame)
{
	bool is_err = frame->type == AGENT_STDERR;
	struct splitter *s = is_err ? &exec->point.err : &exec->point.out;
	size_t held = s->len;

	exec->point.have += frame->len;
	exec->type = is_err ? EVENT_STDERR : EVENT_STDOUT;
	exec->cut = false;
	s->tight =
		output_is_tight(s->account) || held_by_contexts(exec->lane) > CONTEXTS_HELD_MAX / 4;
	if (splitter_feed(s, frame->data, frame->len, on_chunk, exec) < 0)
		log_error("sandbox %s: part of a call's output is lost: no memory",
			  exec->lane->sandbox->id);
	if (!exec->op.failed && frame->len)
		note_output(exec, s, held);
}

/* --- results -------------------------------------------------------------------------------- */

/* Drops the bundle, in the journal too. */
static void lose_bundle(struct exec *exec, const char *reason)
{
	splitter_fini(&exec->point.bundle);
	exec->bundle_lost = reason;
	exec_keep_all(exec->lane->sandbox, REPLAY_BYTES_MAX);
}

static void hold_bundle(struct exec *exec, const struct agent_frame *frame)
{
	struct splitter *s = &exec->point.bundle;

	if (s->len + frame->len > AGENT_BUNDLE_MAX)
		lose_bundle(exec, RESULT_TOO_LARGE);
	else if (held_by_contexts(exec->lane) + frame->len > CONTEXTS_HELD_MAX - CONTEXTS_SPARE ||
		 output_is_tight(s->account) || splitter_hold(s, frame->data, frame->len) < 0)
		lose_bundle(exec, RESULT_NO_MEMORY);
}

static void on_bundle(struct exec *exec, const struct agent_frame *frame)
{
	size_t held = exec->point.bundle.len;

	exec->point.have += frame->len;
	exec->cut = false;
	if (exec->point.results && !exec->bundle_lost)
		hold_bundle(exec, frame);
	note_output(exec, &exec->point.bundle, held);
}

static void emit_bundle(struct exec *exec, const struct agent_frame *frame)
{
	uint8_t note[BUNDLE_NOTE_MAX];
	struct event ev = {.type = frame->type == AGENT_FAULT ? EVENT_FAULT : EVENT_RESULT,
			   .main = frame->type == AGENT_RESULT &&
				   frame->data[0] == AGENT_RESULT_MAIN,
			   .data = exec->point.bundle.held,
			   .len = exec->point.bundle.len};

	if (!exec->bundle_lost && !bundle_is_sound(ev.data, ev.len))
		exec->bundle_lost = RESULT_UNSOUND;
	if (exec->bundle_lost) {
		ev.type = EVENT_RESULT;
		ev.data = note;
		ev.len = bundle_note(note, exec->bundle_lost);
	}
	emit(exec, &ev);
}

static void on_bundle_end(struct exec *exec, const struct agent_frame *frame)
{
	bool dropped = frame->type == AGENT_RESULT && frame->data[0] == AGENT_RESULT_DROPPED;
	size_t held = exec->point.bundle.len;

	exec->point.have += frame->len;
	if (exec->point.results && !dropped)
		emit_bundle(exec, frame);
	splitter_fini(&exec->point.bundle);
	exec->bundle_lost = NULL;
	exec->cut = true;
	if (!exec->op.failed)
		note_output(exec, &exec->point.bundle, held);
}

/* --- unfinished lines ----------------------------------------------------------------------- */

static void cut_line(struct exec *exec, bool is_err)
{
	struct splitter *s = is_err ? &exec->point.err : &exec->point.out;
	size_t held = s->len;

	if (held <= LINE_TIGHT_BYTES || exec->op.failed)
		return;
	exec->type = is_err ? EVENT_STDERR : EVENT_STDOUT;
	exec->cut = false;
	splitter_cut(s, on_chunk, exec);
	if (!exec->op.failed)
		note_output(exec, s, held);
}

static void cut_bundle(struct exec *exec)
{
	if (exec->point.bundle.len > LINE_TIGHT_BYTES)
		lose_bundle(exec, RESULT_NO_MEMORY);
}

static bool has_long_line(const struct exec_lane *lane)
{
	const struct exec *exec = running(lane);

	return exec &&
	       (exec->point.out.len > LINE_TIGHT_BYTES || exec->point.err.len > LINE_TIGHT_BYTES ||
		exec->point.bundle.len > LINE_TIGHT_BYTES);
}

bool exec_has_long_line(struct sandbox *s)
{
	EACH_LANE (lane, s)
		if (has_long_line(lane))
			return true;
	return false;
}

/* Cuts the lines of the first call with long lines; the reader of the event may end others. */
void exec_cut_lines(struct sandbox *s)
{
	struct exec_lane *lane = &exec_of(s)->main;

	while (lane && !has_long_line(lane))
		lane = lane_after(lane);
	if (!lane)
		return;
	struct exec *exec = running(lane);
	/* Only one: the reader of its event may end the sandbox. */
	if (exec->point.bundle.len > LINE_TIGHT_BYTES)
		cut_bundle(exec);
	else
		cut_line(exec, exec->point.out.len <= LINE_TIGHT_BYTES);
}

size_t exec_lines(struct sandbox *s)
{
	size_t held = 0;

	EACH_LANE (lane, s) {
		const struct exec *exec = running(lane);

		if (exec)
			held += exec->point.out.len + exec->point.err.len;
	}
	return held;
}

bool exec_cut_longest(struct sandbox *s)
{
	size_t most = LINE_TIGHT_BYTES;
	struct exec *found = NULL;
	bool is_err = false;

	EACH_LANE (lane, s) {
		struct exec *exec = running(lane);

		for (int err = 0; exec && err < 2; err++) {
			const size_t len = err ? exec->point.err.len : exec->point.out.len;

			if (len <= most)
				continue;
			most = len;
			found = exec;
			is_err = err;
		}
	}
	if (!found)
		return false;
	cut_line(found, is_err);
	return true;
}

static void on_exit_code(struct exec *exec, int code)
{
	struct event ev = {.type = EVENT_EXIT, .exit_code = code};

	exec->type = EVENT_STDOUT;
	splitter_end(&exec->point.out, on_chunk, exec);
	exec->type = EVENT_STDERR;
	splitter_end(&exec->point.err, on_chunk, exec);
	splitter_fini(&exec->point.bundle); /* of a result that was not completed */
	if (exec->op.failed) /* a reader ended the sandbox: that is reported instead */
		return;
	struct exec_lane *lane = exec->lane;
	struct sandbox *s = lane->sandbox; /* read it now: a merge may have moved the call */
	/* Leave the queue before the last event: its reader may end the sandbox or add a call. */
	lane->guest_busy = false;
	leave_queue(exec);
	exec_hold(s, exec_of(s)->held);
	/* The priority boost of a new VM ends with its first call. */
	vmproc_set_priority(s->vm, WARDEN_NORMAL);
	emit(exec, &ev);
	exec_keep(s);
	op_free(&exec->op);
}

static void hold(struct exec_lane *lane)
{
	const struct exec *exec = running(lane);

	guest_link_pause(&lane->guest, exec_of(lane->sandbox)->held || (exec && exec->paused));
}

void exec_hold(struct sandbox *s, bool held)
{
	exec_of(s)->held = held;
	EACH_LANE (lane, s)
		hold(lane);
}

static void fail(struct exec *exec, enum failure_code code, const char *text)
{
	struct failure f;

	failure_set(&f, code, 0, "%s", text);
	leave_queue(exec);
	op_finish(&exec->op, &f);
}

void exec_lane_fail(struct exec_lane *lane, enum failure_code code, const char *text)
{
	fail(first(lane), code, text);
}

/* Fails all calls: the guest has no such context. */
static void no_context(struct exec_lane *lane)
{
	while (!list_empty(&lane->calls)) {
		char text[ERR_TEXT_MAX];

		snprintf(text, sizeof(text), "there is no context %s in this sandbox",
			 lane->context);
		exec_lane_fail(lane, FAIL_NO_SUCH_CONTEXT, text);
	}
	lane_lose(lane, NULL);
}

static void on_error(struct exec *exec, const struct agent_frame *frame)
{
	struct exec_lane *lane = exec->lane;
	char text[ERR_TEXT_MAX];

	if (lane->context[0] && !exec->attached && frame->errnum == ENOENT) {
		no_context(lane);
	} else if (exec->point.inherited && frame->errnum == ENOENT) {
		fail(exec, FAIL_AGENT_LOST,
		     "the service stopped before the guest had received the whole call: it did not "
		     "run");
	} else if (exec->reattached && frame->errnum == ENOENT) {
		fail(exec, FAIL_AGENT_LOST, BROKEN);
	} else if (exec->attached && frame->errnum == ENOENT) {
		fail(exec, FAIL_NOT_FORKED, NOT_FORKED);
	} else if (frame->errnum == ECHILD && frame->len) {
		snprintf(text, sizeof(text), "%.*s", (int)frame->len, (const char *)frame->data);
		fail(exec, FAIL_INTERPRETER, text);
		/* The agent closes the connection without reading the code: send no call there. */
		lane_lose(lane, "its interpreter does not start");
	} else {
		snprintf(text, sizeof(text), "the guest's agent refused the call: %.*s",
			 (int)(frame->len && frame->len < 160 ? frame->len : 160),
			 frame->len ? (const char *)frame->data : "it gave no reason");
		/* An attached call may still be running. */
		lane->guest_busy = lane->guest_busy || exec->attached;
		fail(exec, FAIL_AGENT_ERROR, text);
	}
}

/* Reports to the clients of the lane's calls that their calls are accepted. */
static void note_accepted(struct exec_lane *lane)
{
	lane->known = true;
	list_each_of (exec, struct exec, op.link, &lane->calls)
		if (!exec->started)
			deferred_run(&exec->op.service->deferred, &exec->op.deferred,
				     notify_started, exec);
}

void exec_on_frame(void *arg, const struct agent_frame *frame)
{
	struct exec_lane *lane = arg;
	struct exec *exec = running(lane);

	stall_heard(lane);
	if (exec && (frame->type == AGENT_STDOUT || frame->type == AGENT_STDERR)) {
		on_output(exec, frame);
	} else if (exec && frame->type == AGENT_BUNDLE) {
		on_bundle(exec, frame);
	} else if (exec && (frame->type == AGENT_RESULT || frame->type == AGENT_FAULT)) {
		on_bundle_end(exec, frame);
	} else if (exec && frame->type == AGENT_EXIT) {
		on_exit_code(exec, frame->exit_code);
	} else if (exec && frame->type == AGENT_ERROR) {
		on_error(exec, frame);
	} else if (exec && frame->type == AGENT_DONE && lane->context[0]) {
		note_accepted(lane);
	} else {
		lane_lose(lane, "it sent a frame that is not expected here");
	}
}

static struct agent_bytes attach_bytes(const struct exec_lane *lane, uint64_t number, uint64_t have)
{
	return agent_attach_bytes(lane->context[0] ? lane->context : NULL, number, have);
}

/* Asks for the rest of the call: if the guest's agent was killed, the one that replaced it
 * ends the call and says so. */
void exec_lane_reached(struct exec_lane *lane)
{
	struct exec *exec = running(lane);
	struct agent_bytes request = {.error = -ENOMEM};

	hold(lane);
	if (!exec)
		return;
	if (exec->reattached < REATTACH_MAX)
		request = attach_bytes(lane, exec->point.number, exec->point.have);
	if (request.error < 0) {
		fail(exec, FAIL_AGENT_LOST, BROKEN);
		return;
	}
	exec->attached = true;
	exec->reattached++;
	agent_send(lane->guest.agent, request);
}

/* --- start ---------------------------------------------------------------------------------- */

static void on_limit(void *arg)
{
	struct exec *exec = arg;

	/* The exit frame may have arrived and be unread, because the client is slow. */
	if (exec->paused && !exec->op.abandoned)
		loop_timer_set(exec->op.service->loop, &exec->limit, GRACE_MS);
	else {
		exec->reattached = REATTACH_MAX; /* its time is over: do not ask again */
		lane_lose(exec->lane, "it did not end a call after its time limit");
	}
}

static void set_limit(struct exec *exec)
{
	uint64_t now = boottime_ms();

	loop_timer_set(exec->op.service->loop, &exec->limit,
		       exec->point.limit_ms > now ? exec->point.limit_ms - now : GRACE_MS);
}

/* Starts the time limit. A call inherited from a previous instance keeps its remaining time. */
static void start_limit(struct exec *exec)
{
	exec->limit = (struct loop_timer){.fn = on_limit, .arg = exec};
	if (!exec->point.timeout_ms || exec->lane->guest_busy)
		return;
	if (!exec->point.limit_ms)
		exec->point.limit_ms = boottime_ms() + exec->point.timeout_ms + GRACE_MS;
	set_limit(exec);
}

void exec_set_timer(struct sandbox *s)
{
	EACH_LANE (lane, s) {
		struct exec *exec = running(lane);

		if (exec && loop_timer_is_set(&exec->limit))
			set_limit(exec);
	}
}

void exec_lane_sent(struct exec_lane *lane)
{
	count_waiting(lane->sandbox->owner, -(ssize_t)lane->sending_bytes);
	lane->sending_bytes = 0;
}

/* Notes that the first call is at the guest. Returns false when it cannot run now. */
static bool enter(struct exec_lane *lane)
{
	if (!lane->context[0])
		return sandbox_step(lane->sandbox, SBX_EXEC);
	if (lane->running)
		return false;
	lane->running = true;
	return true;
}

/* Sends the lane's first call to the guest if that is possible: the lane is connected and runs
 * none. Connects the lane of a context. Fails a copied call that the guest had not received when it
 * was copied. */
static void start_next(struct exec_lane *lane)
{
	struct exec *exec = exec_lane_runs(lane) ? NULL : first(lane);
	struct sandbox *s = lane->sandbox;

	if (lane->context[0])
		lane_dial(lane);
	if (exec && !exec->request.p) {
		fail(exec, FAIL_NOT_FORKED, NOT_FORKED);
		exec = first(lane);
	}
	/* The previous request may still be sending: a guest can end a call before it has read all
	 * its code. */
	if (!exec || !lane->guest.agent || agent_is_sending(lane->guest.agent) || !enter(lane))
		return;
	exec_of_service(s->service)->execs += !exec->attached;
	agent_send(lane->guest.agent, exec->request);
	exec->request.p = NULL;
	lane->sending_bytes = exec->request.len;
	hold(lane);
	start_limit(exec);
	stall_begin(lane);
	if (exec->attached)
		return;
	exec->point.began_ms = realtime_ms();
	const struct exec_point point = point_of(lane);
	journal_call(journal_of(lane), &point);
	exec_keep(s);
}

static bool encode(struct exec *exec, struct sandbox *s, const struct exec_spec *spec,
		   struct failure *f)
{
	const struct agent_exec request = {
		.context = spec->context,
		.language = spec->bash ? AGENT_BASH : AGENT_PYTHON,
		.timeout_ms = spec->timeout_ms,
		.call = exec->point.number,
		.code = spec->code,
		.code_len = spec->code_len,
		.cwd = spec->cwd,
		/* A context got the sandbox's variables when it was started. */
		.env = {spec->context ? NULL : s->env_list, spec->env},
		.results = spec->results && !spec->bash,
	};
	exec->request = agent_exec_bytes(&request);
	int ret = exec->request.error;

	if (ret == -ENOMEM)
		failure_no_memory(f);
	else if (ret < 0 && spec->code_len > AGENT_CODE_MAX)
		failure_set(f, FAIL_TOO_LARGE, 0, "code has %zu bytes, the limit is %u",
			    spec->code_len, AGENT_CODE_MAX);
	else if (ret < 0)
		failure_set(f, FAIL_OUT_OF_RANGE, 0,
			    "env and cwd exceed the limit of %u bytes or of 1024 variables",
			    AGENT_PAYLOAD_MAX);
	return ret == 0;
}

static bool has_share(const struct sandbox *s)
{
	size_t total = exec_of_service(s->service)->waiting_bytes;

	return total < WAITING_BYTES_MAX / 2 ||
	       tenant_share(s->service, total, exec_of_tenant(s->owner)->waiting_bytes,
			    WAITING_BYTES_MAX);
}

static bool goes_at_once(const struct exec_lane *lane)
{
	return (lane->sandbox->state == SBX_READY || lane->context[0]) &&
	       list_empty(&lane->calls) && lane->guest.agent &&
	       !agent_is_sending(lane->guest.agent);
}

static bool may_wait(const struct exec_lane *lane, const struct exec_spec *spec, struct failure *f)
{
	const struct sandbox *s = lane->sandbox;
	const size_t waiting = exec_of_service(s->service)->waiting_bytes;

	if (exec_of(s)->n_calls >= QUEUE_MAX)
		failure_set(f, FAIL_QUEUE_FULL, 1,
			    "%d calls are queued in this sandbox already, which is the limit",
			    QUEUE_MAX);
	else if (spec->code_len <= SHORT_CODE && goes_at_once(lane))
		return true;
	else if (waiting + spec->code_len > WAITING_BYTES_MAX)
		failure_set(f, FAIL_QUEUE_FULL, 1,
			    "queued calls hold %zu MiB of code already, the limit is %u MiB",
			    waiting >> 20, WAITING_BYTES_MAX >> 20);
	else if (!has_share(s))
		failure_set(f, FAIL_QUEUE_FULL, 1,
			    "queued calls hold %zu MiB of code already, and those of this key at "
			    "least an eighth of the limit of %u MiB",
			    waiting >> 20, WAITING_BYTES_MAX >> 20);
	else
		return true;
	return false;
}

/* --- the call ------------------------------------------------------------------------------- */

static void exec_set_paused(struct op *op, bool paused)
{
	struct exec *exec = exec_of_op(op);

	if (op->failed || exec->paused == paused || (paused && op->abandoned))
		return;
	exec->paused = paused;
	hold(exec->lane);
}

/* Lets the call continue without a reader. It is freed at its end or after its failure. */
static void exec_abandon(struct op *op)
{
	op->abandoned = true;
	exec_set_paused(op, false);
}

/* Takes a call that has not begun out of its queue, and frees it. */
static void withdraw(struct exec *exec)
{
	struct exec_lane *lane = exec->lane;

	list_del(&exec->op.link);
	count_calls(lane->sandbox, -1);
	if (lane->context[0] && list_empty(&lane->calls))
		lane_left(lane);
	sandbox_touch(lane->sandbox);
	follow_news(lane->sandbox);
	op_free(&exec->op);
}

/* Interrupts the lane's call if its client has hung up and no interrupt has succeeded. */
static void hang_up_if_due(struct exec_lane *lane)
{
	struct exec *exec = running(lane);

	if (exec && exec->hang_up.due && !exec->hang_up.interrupt)
		interrupt_for_hang_up(lane, exec->point.number, &exec->hang_up);
}

/* During a freeze, running() finds no call, although the guest still has the one that it was sent.
 * Such a call is interrupted once the sandbox is scheduled again. */
static void exec_hang_up(struct op *op)
{
	struct exec *exec = exec_of_op(op);
	struct exec_lane *lane = exec->lane;

	if (op->failed || !lane) {
		exec_abandon(op);
	} else if (exec->request.p && !exec->attached) {
		withdraw(exec);
	} else {
		exec->hang_up.due = true;
		exec_abandon(op);
		sandbox_schedule(lane->sandbox);
	}
}

static void exec_notify(struct op *op)
{
	struct exec *exec = exec_of_op(op);

	if (!op->abandoned)
		exec->sink.failed(op->arg, &op->failure, &exec->error);
}

static const struct op_methods exec_ops = {
	.size = sizeof(struct exec),
	.put_away = exec_put_away,
	.finished = exec_failed,
	.notify = exec_notify,
	.abandon = exec_abandon,
	.hang_up = exec_hang_up,
	.set_paused = exec_set_paused,
};

/* Queues the call in the lane. */
static void join(struct exec *exec, struct exec_lane *lane)
{
	exec->lane = lane;
	exec->point.out.account = exec->point.err.account = exec->point.bundle.account =
		exec_of(lane->sandbox)->output;
	list_add_tail(&lane->calls, &exec->op.link);
	count_calls(lane->sandbox, 1);
}

struct op *service_exec(struct service *c, const char *tenant, const char *id,
			const struct exec_spec *spec, const struct exec_sink *sink, void *arg)
{
	struct exec *exec = exec_of_op(op_new(c, &exec_ops, arg));
	struct failure f;

	exec->sink = *sink;
	exec->point.out.chunks = exec->point.err.chunks = spec->chunks;
	exec->point.results = spec->results && !spec->bash;
	exec->point.timeout_ms = spec->timeout_ms;
	random_bytes(&exec->point.number, sizeof(exec->point.number));
	struct sandbox *s = sandbox_find(c, tenant, id, &f);
	struct exec_lane *lane = s ? lane_of(s, spec->context, &f) : NULL;
	if (!lane || !may_wait(lane, spec, &f) || !encode(exec, s, spec, &f))
		return op_finish(&exec->op, &f);
	wait_to_send(exec, s);
	join(exec, lane);
	if (spec->traceparent)
		exec->point.traceparent = strdup(spec->traceparent);
	history_text(exec->point.text, spec->code, spec->code_len);
	sandbox_touch(s);
	/* Only the guest knows whether a context exists. */
	if (!lane->context[0] || lane->known)
		deferred_run(&c->deferred, &exec->op.deferred, notify_started, exec);
	if (s->state == SBX_READY || s->state == SBX_RUNNING)
		start_next(lane);
	return &exec->op;
}

/* --- copies --------------------------------------------------------------------------------- */

static int note_lane(struct exec_lane *lane, struct exec_point *out)
{
	const struct exec *exec = running(lane);

	if (!exec)
		return 0;
	out->out.account = out->err.account = out->bundle.account = exec_of(lane->sandbox)->output;
	int ret = exec_point_copy_call(out, &exec->point);
	out->running = true;
	/* A call that is attached to has been sent before. */
	out->at_guest =
		exec->attached || !lane->guest.agent || !agent_is_sending(lane->guest.agent);
	out->hung_up = exec->hang_up.due;
	out->limit_ms = 0; /* each copy gets a new time limit */
	out->inherited = out->bundle_lost = false;
	return ret;
}

int exec_note(struct sandbox *s, struct exec_point *out)
{
	int ret = 0;

	*out = (struct exec_point){0};
	EACH_LANE (lane, s) {
		struct exec_point *p = ret == 0 && (running(lane) || !lane->context[0])
					       ? exec_point_of(out, lane->context)
					       : NULL;

		if (p)
			ret = note_lane(lane, p);
		else if (running(lane))
			ret = -ENOMEM;
	}
	return ret;
}

static bool note_hang_up(const struct exec_lane *lane, struct exec_point *first_point)
{
	const struct exec *exec = first(lane);

	for (struct exec_point *p = exec ? first_point : NULL; p; p = p->next) {
		if (!p->running || p->number != exec->point.number || p->hung_up ||
		    !exec->hang_up.due)
			continue;
		p->hung_up = true;
		return true;
	}
	return false;
}

bool exec_note_hang_ups(struct sandbox *s, struct exec_point *first_point)
{
	bool any = false;

	EACH_LANE (lane, s)
		any = note_hang_up(lane, first_point) || any;
	return any;
}

size_t exec_point_results(const struct exec_point *first_point)
{
	size_t held = 0;

	for (const struct exec_point *p = first_point; p; p = p->next)
		held += p->bundle.len;
	return held;
}

void exec_point_drop_results(struct exec_point *first_point)
{
	for (struct exec_point *p = first_point; p; p = p->next) {
		p->bundle_lost = p->bundle.len != 0;
		splitter_fini(&p->bundle);
	}
}

static int copy_point(struct exec_lane *lane, const struct exec_point *p)
{
	struct sandbox *s = lane->sandbox;
	struct exec *exec = exec_of_op(op_new(s->service, &exec_ops, NULL));

	exec->op.abandoned = true;
	exec->started = exec->attached = true;
	exec->hang_up.due = p->hung_up;
	exec->bundle_lost = p->bundle_lost ? RESULT_NO_MEMORY : NULL;
	join(exec, lane);
	int ret = exec_point_copy_call(&exec->point, p);
	if (ret == 0 && p->at_guest)
		exec->request = attach_bytes(lane, p->number, p->have);
	if (exec->request.p)
		wait_to_send(exec, s);
	return ret < 0 ? ret : exec->request.error;
}

int exec_copy(struct sandbox *s, const struct exec_point *first_point)
{
	int ret = 0;

	for (const struct exec_point *p = first_point; p && ret == 0; p = p->next) {
		struct failure f;
		struct exec_lane *lane = p->running ? lane_of(s, p->context, &f) : NULL;

		if (lane)
			ret = copy_point(lane, p);
	}
	return ret;
}

void exec_start_waiting(struct sandbox *s)
{
	EACH_LANE (lane, s) {
		start_next(lane);
		hang_up_if_due(lane);
	}
}

void exec_move(struct sandbox *from, struct sandbox *to, const struct failure *f)
{
	struct exec_lane *old = &exec_of(from)->main, *t = &exec_of(to)->main;

	if (running(t))
		fail(first(t), f->code, f->text);
	/* The calls of `from` come first. */
	exec_append_calls(old, t);
	exec_append_calls(t, old);
	lanes_move(from, to, f);
	const ssize_t n = (ssize_t)exec_of(from)->n_calls;
	count_calls(to, n);
	count_calls(from, -n);
	if (from->state == SBX_RUNNING)
		sandbox_step(to, SBX_EXEC);
}

void exec_append_calls(struct exec_lane *to, struct exec_lane *from)
{
	list_each_of (exec, struct exec, op.link, &from->calls)
		exec->lane = to;
	list_move_all(&to->calls, &from->calls);
}

void exec_move_link(struct sandbox *from, struct sandbox *to)
{
	struct guest_link *f = &exec_of(from)->main.guest, *t = &exec_of(to)->main.guest;

	guest_link_cancel_dial(f);
	main_lane_close(&exec_of(to)->main);
	guest_link_take(t, guest_link_release(f));
}

void exec_move_interrupts(struct sandbox *from, struct sandbox *to)
{
	list_move_all(&exec_of(to)->interrupts, &exec_of(from)->interrupts);
}

void exec_move_events(struct sandbox *from, struct sandbox *to, uint64_t seq, uint64_t seq_reserved)
{
	struct exec_sandbox *f = exec_of(from), *t = exec_of(to);

	/* Calls of `to` that have just failed used further numbers. */
	to->seq = max_u64(to->seq, seq);
	to->seq_reserved = seq_reserved;
	t->main.sending_bytes = f->main.sending_bytes;
	f->main.sending_bytes = 0;
	t->main.guest_busy = f->main.guest_busy;
	journal_remove(t->journal);
	t->journal = f->journal;
	f->journal = NULL;
	replay_fini(&t->replay);
	replay_move(&t->replay, &f->replay);
	journal_count(t->journal, t->output);
}

/* --- report --------------------------------------------------------------------------------- */

static void report_lane(const struct exec_lane *lane, struct report *r)
{
	unsigned shown = 0;

	if (lane->context[0])
		report_add(r, "  context %s: %s\n", lane->context,
			   lane->guest.agent  ? "connected"
			   : lane->guest.dial ? "being connected"
					      : "not connected");
	list_each_of (exec, const struct exec, op.link, &lane->calls) {
		bool runs = exec_lane_runs(lane) && !shown;

		if (shown++ == CALLS_SHOWN)
			return;
		report_add(r,
			   "  call %016llx: %s, requested %.1f s ago, time limit %u ms, %llu bytes "
			   "of output received%s%s%s\n",
			   (unsigned long long)exec->point.number, runs ? "at the guest" : "queued",
			   (double)(loop_now_ms(exec->op.service->loop) - exec->op.began_ms) / 1e3,
			   exec->point.timeout_ms, (unsigned long long)exec->point.have,
			   exec->attached
				   ? ", it began in another guest or under a previous instance"
				   : "",
			   exec->paused ? ", its client does not read" : "",
			   exec->op.abandoned ? ", its client is gone" : "");
	}
}

void exec_report(const struct sandbox *s, struct report *r)
{
	report_add(r, "  %zu calls\n", exec_of(s)->n_calls);
	EACH_LANE (lane, s)
		report_lane(lane, r);
}
