// SPDX-License-Identifier: Apache-2.0
/* Calls in a sandbox. They run one after the other, in order of arrival, over the connection to the
 * guest's agent. */
#include "orchestrator/exec/exec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/report.h"
#include "orchestrator/exec/internal.h"
#include "orchestrator/journal/bundle.h"
#include "orchestrator/sandbox/call.h"
#include "orchestrator/sandbox/tenant.h"

#define SEQ_RETRY   1000 /* events until the next try after a failed reservation */
#define QUEUE_MAX   1000
#define CALLS_SHOWN 10 /* in an inspection report */
/* Limit for the code of all queued calls. Queued calls stay when their clients disconnect. */
#define WAITING_BYTES_MAX (256u << 20)
#define SHORT_CODE	  (16u << 10) /* goes to an idle guest regardless of the limit */
/* Grace period on top of a call's time limit. The guest enforces the limit, and counts from the
 * start of the code. On a busy machine, the start of the interpreter before that, and the exit of a
 * killed interpreter, may take long. */
#define GRACE_MS	 120000
#define RESULT_TOO_LARGE "ramet: this result was dropped: the limit is 8 MiB"
#define RESULT_NO_MEMORY                                                                           \
	"ramet: this result was dropped: the service's memory for output is used up"
#define RESULT_UNSOUND "ramet: this result was dropped: it is malformed"
#define NOT_FORKED     "the call had not reached the guest before the fork: it runs only in the parent"

struct exec_call {
	struct core_call call;
	struct exec_sink sink;
	struct exec *exec;
};

struct exec {
	struct core_call *call;
	struct sandbox *sandbox; /* valid while the call is in its queue */
	struct tenant *owner;	 /* charged for `bytes`; NULL: none are charged */
	uint8_t *bytes;		 /* the encoded request, until it is sent */
	size_t len;
	bool started, paused;
	struct splitter out, err;
	bool results;		 /* its client takes results; others are dropped */
	struct splitter bundle;	 /* holds the result that is arriving */
	const char *bundle_lost; /* why that is dropped; NULL: it is not */
	enum event_type type;	 /* type of the event that the splitter is emitting */
	uint32_t timeout_ms;
	struct loop_timer limit;
	char *traceparent;
	struct event error; /* the failure as an event; also in the replay if the call was queued */
	uint64_t number;    /* random; identifies the call to the guest */
	uint64_t have;	    /* bytes of output received */
	/* The call began in the guest that this guest is a copy of, or under a previous instance of
	 * the service. */
	bool attached;
	bool inherited;	   /* the call began under a previous instance */
	bool cut;	   /* the splitter emitted an event for the current frame */
	uint64_t limit_ms; /* deadline, ms on the boot-time clock; 0: none */
};

static struct exec *exec_of_call(const struct core_call *call)
{
	return container_of(call, struct exec_call, call)->exec;
}

/* Adds `bytes` (negative: subtracts) to the counts of request bytes that are not sent yet. */
static void count_waiting(struct tenant *t, ssize_t bytes)
{
	exec_of_tenant(t)->waiting_bytes += (size_t)bytes;
	exec_of_core(t->core)->waiting_bytes += (size_t)bytes;
}

/* Charges the request to the tenant until it is sent completely. */
static void wait_to_send(struct exec *exec, struct sandbox *s)
{
	exec->owner = tenant_hold(s->owner);
	count_waiting(exec->owner, (ssize_t)exec->len);
}

static void exec_put_away(struct core_call *call)
{
	struct exec *exec = exec_of_call(call);

	if (!exec)
		return;
	container_of(call, struct exec_call, call)->exec = NULL;
	loop_timer_clear(exec->call->core->loop, &exec->limit);
	splitter_fini(&exec->out);
	splitter_fini(&exec->err);
	splitter_fini(&exec->bundle);
	if (exec->bytes)
		count_waiting(exec->owner, -(ssize_t)exec->len);
	tenant_put(exec->owner);
	free(exec->bytes);
	free(exec->traceparent);
	free(exec);
}

static struct core_call *first(struct sandbox *s)
{
	return list_empty(&exec_of(s)->calls)
		       ? NULL
		       : container_of(exec_of(s)->calls.next, struct core_call, link);
}

static struct core_call *running(struct sandbox *s)
{
	return s->state == SBX_RUNNING ? first(s) : NULL;
}

static void leave_queue(struct core_call *call)
{
	struct sandbox *s = exec_of_call(call)->sandbox;

	loop_timer_clear(call->core->loop, &exec_of_call(call)->limit);
	list_del(&call->link);
	exec_of(s)->n_calls--;
	stall_end(s);
	journal_over(exec_of(s)->journal);
	sandbox_step(s, SBX_EXEC_OVER);
	sandbox_touch(s);
	if (exec_of(s)->n_calls)
		sandbox_schedule(s);
}

/* --- state for the next instance of the service --------------------------------------------- */

/* Returns the call that runs, or that continues once the guest is reached again. Its buffers stay
 * owned by the call. */
static struct exec_point point_of(struct sandbox *s)
{
	struct core_call *call = first(s);

	if (!call || (s->state != SBX_RUNNING && !exec_of_call(call)->attached))
		return (struct exec_point){0};
	struct exec *exec = exec_of_call(call);
	return (struct exec_point){.running = true,
				   .number = exec->number,
				   .have = exec->have,
				   .results = exec->results,
				   .timeout_ms = exec->timeout_ms,
				   .limit_ms = exec->limit_ms,
				   .out = exec->out,
				   .err = exec->err,
				   .bundle = exec->bundle,
				   .traceparent = exec->traceparent};
}

void exec_keep_all(struct sandbox *s, size_t replay_most)
{
	const struct journal_state now = {.seq = exec_of(s)->seq,
					  .seq_reserved = exec_of(s)->seq_reserved,
					  .guest_busy = exec_of(s)->guest_busy,
					  .replay = exec_of(s)->replay,
					  .point = point_of(s)};

	journal_write(exec_of(s)->journal, &now, replay_most);
}

void exec_keep(struct sandbox *s)
{
	if (!journal_commit(exec_of(s)->journal, exec_of(s)->guest_busy))
		exec_keep_all(s, REPLAY_BYTES_MAX);
	output_trim(s->core);
}

/* --- events --------------------------------------------------------------------------------- */

static void notify_started(void *arg)
{
	struct core_call *call = arg;

	deferred_cancel(&call->deferred);
	exec_of_call(call)->started = true;
	if (!call->abandoned)
		container_of(call, struct exec_call, call)->sink.started(call->arg);
}

/* Returns the next event number. Numbers are reserved in the catalogue in blocks, so that none is
 * used twice after a crash. */
static uint64_t next_seq(struct sandbox *s)
{
	struct err e;

	if (++exec_of(s)->seq >= exec_of(s)->seq_reserved) {
		exec_of(s)->seq_reserved = exec_of(s)->seq + SEQ_BLOCK;
		if (store_sandbox_seq(s->core->store, s->id, exec_of(s)->seq_reserved, &e) < 0) {
			log_error("sandbox %s: event numbers can't be reserved in the catalogue: "
				  "%s",
				  s->id, e.text);
			exec_of(s)->seq_reserved = exec_of(s)->seq + SEQ_RETRY;
		}
		journal_seq(exec_of(s)->journal, exec_of(s)->seq, exec_of(s)->seq_reserved);
	}
	return exec_of(s)->seq;
}

static void record(struct exec *exec, struct event *ev)
{
	ev->seq = next_seq(exec->sandbox);
	ev->ts_ms = realtime_ms();
	replay_add(&exec_of(exec->sandbox)->replay, ev, exec->traceparent);
	journal_event(exec_of(exec->sandbox)->journal, ev, exec->traceparent);
	follow_news(exec->sandbox);
}

/* Records the failure as the last event of the call. */
static void exec_failed(struct core_call *call)
{
	struct exec *exec = exec_of_call(call);

	loop_timer_clear(call->core->loop, &exec->limit);
	exec->error = (struct event){.type = EVENT_ERROR,
				     .code = failure_code_name(call->failure.code),
				     .data = (const uint8_t *)call->failure.text,
				     .len = strlen(call->failure.text)};
	if (!exec->sandbox)
		return;
	record(exec, &exec->error);
	exec_keep(exec->sandbox);
}

static void emit(struct core_call *call, struct event *ev)
{
	struct exec *exec = exec_of_call(call);

	/* The reader of an earlier event of the same frame has ended the sandbox. */
	if (call->failed)
		return;
	record(exec, ev);
	if (!exec->started)
		notify_started(call);
	if (!call->abandoned)
		container_of(call, struct exec_call, call)->sink.event(call->arg, ev);
}

static void on_chunk(void *arg, const uint8_t *data, size_t len, bool partial)
{
	struct core_call *call = arg;
	struct event ev = {
		.type = exec_of_call(call)->type, .partial = partial, .data = data, .len = len};

	exec_of_call(call)->cut = true;
	emit(call, &ev);
}

/* Records the progress of the call in the journal and commits all changes of one frame, its events
 * included. */
static void note_output(struct exec *exec, const struct splitter *s, size_t held_before)
{
	struct journal *j = exec_of(exec->sandbox)->journal;
	enum event_type what = s == &exec->out	 ? EVENT_STDOUT
			       : s == &exec->err ? EVENT_STDERR
						 : EVENT_RESULT;

	if (exec->cut && (s->len || held_before))
		journal_held(j, what, true, s->held, s->len);
	else if (!exec->cut && s->len > held_before)
		journal_held(j, what, false, s->held + held_before, s->len - held_before);
	journal_have(j, exec->have);
	exec_keep(exec->sandbox);
}

static void on_output(struct core_call *call, const struct agent_frame *frame)
{
	struct exec *exec = exec_of_call(call);
	bool is_err = frame->type == AGENT_STDERR;
	struct splitter *s = is_err ? &exec->err : &exec->out;
	size_t held = s->len;

	exec->have += frame->len;
	exec->type = is_err ? EVENT_STDERR : EVENT_STDOUT;
	exec->cut = false;
	s->tight = output_is_tight(s->account);
	if (splitter_feed(s, frame->data, frame->len, on_chunk, call) < 0)
		log_error("sandbox %s: part of a call's output is lost: no memory",
			  exec->sandbox->id);
	if (!call->failed && frame->len)
		note_output(exec, s, held);
}

/* --- results -------------------------------------------------------------------------------- */

/* Drops the bundle, in the journal too. */
static void lose_bundle(struct exec *exec, const char *reason)
{
	splitter_fini(&exec->bundle);
	exec->bundle_lost = reason;
	exec_keep_all(exec->sandbox, REPLAY_BYTES_MAX);
}

static void hold_bundle(struct exec *exec, const struct agent_frame *frame)
{
	struct splitter *s = &exec->bundle;

	if (s->len + frame->len > AGENT_BUNDLE_MAX)
		lose_bundle(exec, RESULT_TOO_LARGE);
	else if (output_is_tight(s->account) || splitter_hold(s, frame->data, frame->len) < 0)
		lose_bundle(exec, RESULT_NO_MEMORY);
}

static void on_bundle(struct core_call *call, const struct agent_frame *frame)
{
	struct exec *exec = exec_of_call(call);
	size_t held = exec->bundle.len;

	exec->have += frame->len;
	exec->cut = false;
	if (exec->results && !exec->bundle_lost)
		hold_bundle(exec, frame);
	note_output(exec, &exec->bundle, held);
}

static void emit_bundle(struct core_call *call, const struct agent_frame *frame)
{
	struct exec *exec = exec_of_call(call);
	uint8_t note[BUNDLE_NOTE_MAX];
	struct event ev = {.type = frame->type == AGENT_FAULT ? EVENT_FAULT : EVENT_RESULT,
			   .main = frame->type == AGENT_RESULT &&
				   frame->data[0] == AGENT_RESULT_MAIN,
			   .data = exec->bundle.held,
			   .len = exec->bundle.len};

	if (!exec->bundle_lost && !bundle_is_sound(ev.data, ev.len))
		exec->bundle_lost = RESULT_UNSOUND;
	if (exec->bundle_lost) {
		ev.type = EVENT_RESULT;
		ev.data = note;
		ev.len = bundle_note(note, exec->bundle_lost);
	}
	emit(call, &ev);
}

static void on_bundle_end(struct core_call *call, const struct agent_frame *frame)
{
	struct exec *exec = exec_of_call(call);
	bool dropped = frame->type == AGENT_RESULT && frame->data[0] == AGENT_RESULT_DROPPED;
	size_t held = exec->bundle.len;

	exec->have += frame->len;
	if (exec->results && !dropped)
		emit_bundle(call, frame);
	splitter_fini(&exec->bundle);
	exec->bundle_lost = NULL;
	exec->cut = true;
	if (!call->failed)
		note_output(exec, &exec->bundle, held);
}

/* --- unfinished lines ----------------------------------------------------------------------- */

static void cut_line(struct exec *exec, bool is_err)
{
	struct splitter *s = is_err ? &exec->err : &exec->out;
	size_t held = s->len;

	if (held <= LINE_TIGHT_BYTES || exec->call->failed)
		return;
	exec->type = is_err ? EVENT_STDERR : EVENT_STDOUT;
	exec->cut = false;
	splitter_cut(s, on_chunk, exec->call);
	if (!exec->call->failed)
		note_output(exec, s, held);
}

static void cut_bundle(struct exec *exec)
{
	if (exec->bundle.len > LINE_TIGHT_BYTES)
		lose_bundle(exec, RESULT_NO_MEMORY);
}

bool exec_has_long_line(struct sandbox *s)
{
	const struct core_call *call = running(s);

	return call && (exec_of_call(call)->out.len > LINE_TIGHT_BYTES ||
			exec_of_call(call)->err.len > LINE_TIGHT_BYTES ||
			exec_of_call(call)->bundle.len > LINE_TIGHT_BYTES);
}

void exec_cut_lines(struct sandbox *s)
{
	struct core_call *call = running(s);

	if (!call)
		return;
	struct exec *exec = exec_of_call(call);
	cut_bundle(exec);
	cut_line(exec, false);
	/* The reader of the event may have ended the call. */
	if (running(s) == call)
		cut_line(exec, true);
}

static void on_exit_code(struct core_call *call, int code)
{
	struct exec *exec = exec_of_call(call);
	struct event ev = {.type = EVENT_EXIT, .exit_code = code};

	exec->type = EVENT_STDOUT;
	splitter_end(&exec->out, on_chunk, call);
	exec->type = EVENT_STDERR;
	splitter_end(&exec->err, on_chunk, call);
	splitter_fini(&exec->bundle); /* of a result that was not completed */
	if (call->failed)	      /* a reader ended the sandbox: that is reported instead */
		return;
	struct sandbox *s = exec->sandbox; /* read it now: a merge may have moved the call */
	/* Leave the queue before the last event: its reader may end the sandbox or add a call. */
	exec_of(s)->guest_busy = false;
	leave_queue(call);
	exec_hold(s, exec_of(s)->held);
	/* The priority boost of a new VM ends with its first call. */
	vmproc_set_priority(s->vm, WARDEN_NORMAL);
	emit(call, &ev);
	exec_keep(s);
	call_free(call);
}

void exec_hold(struct sandbox *s, bool held)
{
	struct core_call *call = running(s);

	exec_of(s)->held = held;
	guest_link_pause(&s->guest, held || (call && exec_of_call(call)->paused));
}

static void fail(struct core_call *call, enum failure_code code, const char *text)
{
	struct failure f;

	failure_set(&f, code, 0, "%s", text);
	leave_queue(call);
	call_finish(call, &f);
}

static void on_error(struct core_call *call, const struct agent_frame *frame)
{
	struct sandbox *s = exec_of_call(call)->sandbox;
	char text[ERR_TEXT_MAX];

	if (exec_of_call(call)->inherited && frame->errnum == ENOENT) {
		fail(call, FAIL_AGENT_LOST,
		     "the service stopped before the guest had received the whole call: it did not "
		     "run");
	} else if (exec_of_call(call)->attached && frame->errnum == ENOENT) {
		fail(call, FAIL_NOT_FORKED, NOT_FORKED);
	} else {
		snprintf(text, sizeof(text), "the guest's agent refused the call: %.*s",
			 (int)(frame->len && frame->len < 160 ? frame->len : 160),
			 frame->len ? (const char *)frame->data : "it gave no reason");
		/* An attached call may still be running. */
		exec_of(s)->guest_busy = exec_of(s)->guest_busy || exec_of_call(call)->attached;
		fail(call, FAIL_AGENT_ERROR, text);
	}
}

void exec_agent_frame(struct sandbox *s, const struct agent_frame *frame)
{
	struct core_call *call = running(s);

	stall_heard(s);
	if (call && (frame->type == AGENT_STDOUT || frame->type == AGENT_STDERR)) {
		on_output(call, frame);
	} else if (call && frame->type == AGENT_BUNDLE) {
		on_bundle(call, frame);
	} else if (call && (frame->type == AGENT_RESULT || frame->type == AGENT_FAULT)) {
		on_bundle_end(call, frame);
	} else if (call && frame->type == AGENT_EXIT) {
		on_exit_code(call, frame->exit_code);
	} else if (call && frame->type == AGENT_ERROR) {
		on_error(call, frame);
	} else {
		sandbox_lose_agent(s, "it sent a frame that is not expected here");
	}
}

void exec_agent_reached(struct sandbox *s)
{
	struct core_call *call = running(s);

	exec_hold(s, exec_of(s)->held);
	if (call)
		fail(call, FAIL_AGENT_LOST,
		     "the connection to the guest's agent broke during the call");
}

/* --- start ---------------------------------------------------------------------------------- */

static void on_limit(void *arg)
{
	struct core_call *call = arg;
	struct exec *exec = exec_of_call(call);

	/* The exit frame may have arrived and be unread, because the client is slow. */
	if (exec->paused && !call->abandoned)
		loop_timer_set(call->core->loop, &exec->limit, GRACE_MS);
	else
		sandbox_lose_agent(exec->sandbox, "it did not end a call after its time limit");
}

static void set_limit(struct exec *exec)
{
	uint64_t now = boottime_ms();

	loop_timer_set(exec->call->core->loop, &exec->limit,
		       exec->limit_ms > now ? exec->limit_ms - now : GRACE_MS);
}

/* Starts the time limit. A call inherited from a previous instance keeps its remaining time. */
static void start_limit(struct core_call *call)
{
	struct exec *exec = exec_of_call(call);

	exec->limit = (struct loop_timer){.fn = on_limit, .arg = call};
	if (!exec->timeout_ms || exec_of(exec->sandbox)->guest_busy)
		return;
	if (!exec->limit_ms)
		exec->limit_ms = boottime_ms() + exec->timeout_ms + GRACE_MS;
	set_limit(exec);
}

void exec_set_timer(struct sandbox *s)
{
	struct core_call *call = running(s);

	if (call && loop_timer_is_set(&exec_of_call(call)->limit))
		set_limit(exec_of_call(call));
}

void exec_agent_dropped(struct sandbox *s)
{
	count_waiting(s->owner, -(ssize_t)exec_of(s)->sending_bytes);
	exec_of(s)->sending_bytes = 0;
}

static void exec_next(struct sandbox *s)
{
	struct core_call *call = first(s);

	/* The previous request may still be sending: a guest can end a call before it has read all
	 * its code. */
	if (!call || !s->guest.agent || agent_is_sending(s->guest.agent) ||
	    !sandbox_step(s, SBX_EXEC))
		return;
	struct exec *exec = exec_of_call(call);
	exec_of_core(s->core)->execs += !exec->attached;
	guest_link_send(&s->guest, 0, exec->bytes, exec->len);
	exec->bytes = NULL;
	exec_of(s)->sending_bytes = exec->len;
	exec_hold(s, exec_of(s)->held);
	start_limit(call);
	stall_begin(s);
	if (exec->attached)
		return;
	const struct exec_point point = point_of(s);
	journal_call(exec_of(s)->journal, &point);
	exec_keep(s);
}

static bool encode(struct exec *exec, struct sandbox *s, const struct exec_spec *spec,
		   struct failure *f)
{
	const struct agent_exec request = {
		.language = spec->bash ? AGENT_BASH : AGENT_PYTHON,
		.timeout_ms = spec->timeout_ms,
		.call = exec->number,
		.code = spec->code,
		.code_len = spec->code_len,
		.cwd = spec->cwd,
		.env = {s->env_list, spec->env},
		.results = spec->results && !spec->bash,
	};
	int ret = agent_exec_bytes(&request, &exec->bytes, &exec->len);

	if (ret == -ENOMEM)
		failure_set(f, FAIL_NO_MEMORY, 5, "the service has no memory for the request");
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
	size_t total = exec_of_core(s->core)->waiting_bytes;

	return total < WAITING_BYTES_MAX / 2 ||
	       tenant_share(s->core, total, exec_of_tenant(s->owner)->waiting_bytes,
			    WAITING_BYTES_MAX);
}

static bool goes_at_once(const struct sandbox *s)
{
	return s->state == SBX_READY && list_empty(&exec_of(s)->calls) && s->guest.agent &&
	       !agent_is_sending(s->guest.agent);
}

static bool may_wait(const struct sandbox *s, const struct exec_spec *spec, struct failure *f)
{
	const size_t waiting = exec_of_core(s->core)->waiting_bytes;

	if (exec_of(s)->n_calls >= QUEUE_MAX)
		failure_set(f, FAIL_QUEUE_FULL, 1,
			    "%d calls are queued in this sandbox already, which is the limit",
			    QUEUE_MAX);
	else if (spec->code_len <= SHORT_CODE && goes_at_once(s))
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

static void exec_set_paused(struct core_call *call, bool paused)
{
	struct exec *exec = exec_of_call(call);

	if (call->failed || exec->paused == paused || (paused && call->abandoned))
		return;
	exec->paused = paused;
	exec_hold(exec->sandbox, exec_of(exec->sandbox)->held);
}

/* Lets the call continue without a reader. It is freed at its end or after its failure. */
static void exec_abandon(struct core_call *call)
{
	call->abandoned = true;
	exec_set_paused(call, false);
}

static void exec_notify(struct core_call *call)
{
	if (!call->abandoned)
		container_of(call, struct exec_call, call)
			->sink.failed(call->arg, &call->failure, &exec_of_call(call)->error);
}

static const struct call_ops exec_ops = {
	.size = sizeof(struct exec_call),
	.put_away = exec_put_away,
	.finished = exec_failed,
	.notify = exec_notify,
	.abandon = exec_abandon,
	.set_paused = exec_set_paused,
};

struct core_call *core_exec(struct core *c, const char *tenant, const char *id,
			    const struct exec_spec *spec, const struct exec_sink *sink, void *arg)
{
	struct core_call *call = call_new(c, &exec_ops, arg);
	struct exec *exec = must_alloc(sizeof(*exec));
	struct failure f;

	container_of(call, struct exec_call, call)->sink = *sink;
	container_of(call, struct exec_call, call)->exec = exec;
	exec->call = call;
	exec->out.chunks = exec->err.chunks = spec->chunks;
	exec->results = spec->results && !spec->bash;
	exec->timeout_ms = spec->timeout_ms;
	random_bytes(&exec->number, sizeof(exec->number));
	struct sandbox *s = sandbox_find(c, tenant, id, &f);
	if (!s || !may_wait(s, spec, &f) || !encode(exec, s, spec, &f)) {
		call_finish(call, &f);
		return call;
	}
	wait_to_send(exec, s);
	exec->sandbox = s;
	exec->out.account = exec->err.account = exec->bundle.account = exec_of(s)->output;
	if (spec->traceparent)
		exec->traceparent = strdup(spec->traceparent);
	list_add_tail(&exec_of(s)->calls, &call->link);
	exec_of(s)->n_calls++;
	sandbox_touch(s);
	deferred_run(&c->deferred, &call->deferred, notify_started, call);
	sandbox_schedule(s);
	return call;
}

/* --- copies --------------------------------------------------------------------------------- */

int exec_note(struct sandbox *s, struct exec_point *out)
{
	struct core_call *call = running(s);

	*out = (struct exec_point){.running = call != NULL};
	if (!call)
		return 0;
	struct exec *exec = exec_of_call(call);
	out->at_guest = !s->guest.agent || !agent_is_sending(s->guest.agent);
	out->out.account = out->err.account = out->bundle.account = exec_of(s)->output;
	out->number = exec->number;
	out->have = exec->have;
	out->results = exec->results;
	out->timeout_ms = exec->timeout_ms;
	if (exec->traceparent)
		out->traceparent = strdup(exec->traceparent);
	int ret = splitter_copy(&out->out, &exec->out);
	if (ret == 0)
		ret = splitter_copy(&out->err, &exec->err);
	return ret < 0 ? ret : splitter_copy(&out->bundle, &exec->bundle);
}

int exec_copy(struct sandbox *s, const struct exec_point *p)
{
	if (!p->running)
		return 0;
	struct core_call *call = call_new(s->core, &exec_ops, NULL);
	struct exec *exec = must_alloc(sizeof(*exec));

	call->abandoned = true;
	container_of(call, struct exec_call, call)->exec = exec;
	exec->call = call;
	exec->sandbox = s;
	exec->started = exec->attached = true;
	exec->number = p->number;
	exec->have = p->have;
	exec->results = p->results;
	exec->timeout_ms = p->timeout_ms;
	exec->limit_ms = p->limit_ms;
	exec->inherited = p->inherited;
	if (p->traceparent)
		exec->traceparent = strdup(p->traceparent);
	list_add_tail(&exec_of(s)->calls, &call->link);
	exec_of(s)->n_calls++;
	exec->out.account = exec->err.account = exec->bundle.account = exec_of(s)->output;
	int ret = splitter_copy(&exec->out, &p->out);
	if (ret == 0)
		ret = splitter_copy(&exec->err, &p->err);
	if (ret == 0)
		ret = splitter_copy(&exec->bundle, &p->bundle);
	if (ret == 0 && p->at_guest)
		ret = agent_attach_bytes(p->number, p->have, &exec->bytes, &exec->len);
	if (exec->bytes)
		wait_to_send(exec, s);
	return ret;
}

/* Fails a copied call that the guest had not received when it was copied, then starts the next. */
void exec_start_waiting(struct sandbox *s)
{
	struct core_call *call = s->state == SBX_READY ? first(s) : NULL;

	if (call && !exec_of_call(call)->bytes)
		fail(call, FAIL_NOT_FORKED, NOT_FORKED);
	exec_next(s);
}

void exec_move(struct sandbox *from, struct sandbox *to)
{
	struct core_call *call = running(to);
	struct list all;

	if (call)
		fail(call, FAIL_MERGED_DURING_CALL,
		     "another sandbox was merged into this one during the call");
	list_each (pos, &exec_of(from)->calls)
		exec_of_call(container_of(pos, struct core_call, link))->sandbox = to;
	list_init(&all);
	list_move_all(&all, &exec_of(from)->calls);
	list_move_all(&all, &exec_of(to)->calls);
	list_move_all(&exec_of(to)->calls, &all);
	exec_of(to)->n_calls += exec_of(from)->n_calls;
	exec_of(from)->n_calls = 0;
	if (from->state == SBX_RUNNING)
		sandbox_step(to, SBX_EXEC);
}

void exec_move_interrupts(struct sandbox *from, struct sandbox *to)
{
	list_move_all(&exec_of(to)->interrupts, &exec_of(from)->interrupts);
}

uint64_t exec_seq_of(const struct sandbox *one, const struct sandbox *other)
{
	const uint64_t a = exec_of(one)->seq, b = exec_of(other)->seq;

	return a > b ? a : b;
}

void exec_move_events(struct sandbox *from, struct sandbox *to, uint64_t seq, uint64_t seq_reserved)
{
	struct exec_sandbox *f = exec_of(from), *t = exec_of(to);

	t->seq = seq;
	t->seq_reserved = seq_reserved;
	t->sending_bytes = f->sending_bytes;
	f->sending_bytes = 0;
	t->guest_busy = f->guest_busy;
	journal_remove(t->journal);
	t->journal = f->journal;
	f->journal = NULL;
	replay_fini(&t->replay);
	replay_move(&t->replay, &f->replay);
	journal_count(t->journal, t->output);
}

/* --- report --------------------------------------------------------------------------------- */

void exec_report(const struct sandbox *s, struct report *r)
{
	unsigned shown = 0;

	report_add(r, "  %zu calls\n", exec_of(s)->n_calls);
	list_each (pos, &exec_of(s)->calls) {
		const struct core_call *call = container_of(pos, struct core_call, link);
		const struct exec *exec = exec_of_call(call);
		bool runs = s->state == SBX_RUNNING && !shown;

		if (shown++ == CALLS_SHOWN)
			return;
		report_add(r,
			   "  call %016llx: %s, requested %.1f s ago, time limit %u ms, %llu bytes "
			   "of output received%s%s%s\n",
			   (unsigned long long)exec->number, runs ? "at the guest" : "queued",
			   (double)(loop_now_ms(call->core->loop) - call->began_ms) / 1e3,
			   exec->timeout_ms, (unsigned long long)exec->have,
			   exec->attached
				   ? ", it began in another guest or under a previous instance"
				   : "",
			   exec->paused ? ", its client does not read" : "",
			   call->abandoned ? ", its client is gone" : "");
	}
}

/* --- sandbox hooks -------------------------------------------------------------------------- */

void exec_agent_sent(struct sandbox *s)
{
	exec_agent_dropped(s);
	/* A guest can end a call before it has received all of it. */
	if (s->state == SBX_READY)
		sandbox_schedule(s);
}
