// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/call.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/elements.h"
#include "base/wire.h"
#include "guest/oom.h"
#include "guest/session.h"

#define EXIT_TIMED_OUT 124

/* From an interrupt to the first nudge. */
#define NUDGE_MS      50
#define NODE_NUDGE_MS 250

int call_init(struct interpreter *in, unsigned grace_ms, struct err *e)
{
	list_init(&in->queue);
	in->grace_ms = grace_ms;
	return output_open(&in->call.output, e);
}

bool call_is_active(const struct interpreter *in)
{
	return in->call.state != CALL_NONE;
}

bool call_is_running(const struct interpreter *in)
{
	return in->call.state == CALL_CODE || in->call.state == CALL_RUNS;
}

void call_drop_backpressure(struct interpreter *in)
{
	if (!call_is_active(in) || in->call.client)
		return;
	output_drop_backpressure(&in->call.output);
	call_on_sent(in, NULL);
}

static void drop_backpressure_if_awaited(struct interpreter *in)
{
	if (!list_empty(&in->queue) || in->call.stop || in->ends)
		call_drop_backpressure(in);
}

void call_queue(struct interpreter *in, struct conn *c)
{
	list_add_tail(&in->queue, &c->turn);
	c->interpreter = in;
	conn_become(c, CONN_QUEUED);
	call_drop_backpressure(in);
}

__attribute__((format(printf, 2, 3))) static void note(struct interpreter *in, const char *format,
						       ...)
{
	size_t len = strlen(in->call.note);
	va_list args;

	va_start(args, format);
	vsnprintf(in->call.note + len, sizeof(in->call.note) - len, format, args);
	va_end(args);
}

static void start_running(struct interpreter *in)
{
	in->call.state = CALL_RUNS;
	in->used = true;
	in->call.began = loop_now_ms();
	if (in->call.timeout_ms)
		in->call.deadline = in->call.began + in->call.timeout_ms;
	output_begin(&in->call.output, 0);
	if (!in->call.client) {
		drop_backpressure_if_awaited(in);
		return;
	}
	conn_become(in->call.client, CONN_CALL);
	output_to(&in->call.output, in->call.client, 0);
}

/* Passes the frame in c->in to the driver; reads no other until the driver took it. */
static void pass_on(struct interpreter *in, struct conn *c, uint8_t type, const uint8_t *payload,
		    size_t len)
{
	/* The code starts once the driver has its last frame. */
	if (!in->call.code_left)
		output_drop_old(&in->call.output);
	if (type == AGENT_EXEC && in->call.code_left)
		driver_send_with_next(&in->driver, type, payload, len);
	else
		driver_send(&in->driver, type, payload, len);
	frame_reset(&c->in);
	if (driver_taken(&in->driver))
		call_on_driver_sent(in);
	else
		conn_hold(c, true);
}

static void note_loss(struct interpreter *in)
{
	note(in, "ramet: %s; its state is lost\n", in->lost.text);
	in->call.state_lost = true;
	in->lost.code = 0;
	in->reborn = false;
}

/* Ends a call that an agent before this one was running. */
static void end_lost(struct interpreter *in, const struct attach_request *r)
{
	output_drop_old(&in->call.output);
	memset(&in->call, 0, offsetof(struct call, output));
	in->call.state = CALL_DRAINS;
	in->call.number = r->call;
	in->call.attachable = true;
	in->call.exit_code = 128 + SIGKILL;
	note_loss(in);
	output_begin(&in->call.output, r->have);
	output_mark_end(&in->call.output);
}

void call_next(struct interpreter *in)
{
	struct conn *c = list_first_of(&in->queue, struct conn, turn);

	if (call_is_active(in) || !c)
		return;
	list_del(&c->turn);
	memset(&in->call, 0, offsetof(struct call, output));
	in->call.state = CALL_CODE;
	in->call.client = c;
	in->call.number = c->exec.call;
	in->call.attachable = true;
	in->call.code_left = c->exec.code_len;
	in->call.timeout_ms = c->exec.timeout_ms;
	in->call.oom_before = oom_kills();
	if (in->lost.code)
		note_loss(in);
	conn_become(c, CONN_CODE);
	const size_t at = AGENT_HEADER_SIZE + c->exec.at;
	pass_on(in, c, AGENT_EXEC, c->in.bytes + at, c->in.have - at);
	if (in->doomed && in->doomed == in->call.number)
		call_interrupt(in, in->doomed);
}

/* The driver took a frame: continues with the next frame of code, or starts the run. */
void call_on_driver_sent(struct interpreter *in)
{
	if (in->call.state != CALL_CODE)
		return;
	if (in->call.code_left && in->call.client) {
		conn_hold(in->call.client, false);
		return;
	}
	if (in->call.code_left) {
		/* The client left before all of the code arrived: an empty frame reports this to
		 * the driver. */
		in->call.code_left = 0;
		in->call.attachable = false;
		driver_send(&in->driver, AGENT_CODE, NULL, 0);
	}
	start_running(in);
}

int call_code(struct interpreter *in, struct conn *c, const struct frame *f, struct err *e)
{
	if (f->type != AGENT_CODE || !f->len || f->len > in->call.code_left)
		return err_say(e, EPROTO,
			       "a frame of type %u with %u bytes came in the code of a call, of "
			       "which %u bytes are missing",
			       f->type, f->len, in->call.code_left);
	in->call.code_left -= f->len;
	pass_on(in, c, AGENT_CODE, f->payload, f->len);
	return 0;
}

void call_on_gone(struct interpreter *in, struct conn *c)
{
	if (in->call.client != c)
		return;
	in->call.client = NULL;
	output_to(&in->call.output, NULL, 0);
	if (in->call.state == CALL_CODE && driver_taken(&in->driver))
		call_on_driver_sent(in);
	else
		call_on_sent(in, NULL);
	drop_backpressure_if_awaited(in);
}

int call_attach(struct interpreter *in, struct conn *c, const struct attach_request *r,
		struct err *e)
{
	/* The host may have closed the old connection, though no event has reported this yet. */
	if (in->call.client && conn_is_broken(in->call.client))
		conn_drop(in->call.client);
	if (in->reborn && in->call.state == CALL_NONE)
		end_lost(in, r);
	if (!in->call.attachable || in->call.number != r->call || in->call.code_left)
		return err_say(e, ENOENT, "the call is not the last one that was started here");
	if (in->call.client)
		return err_say(e, EBUSY, "the call still has a connection");
	/* Until the call's code has arrived, the ring holds the output of the previous call. */
	bool has_output =
		in->call.state == CALL_CODE ? !r->have : output_keeps(&in->call.output, r->have);
	if (!has_output)
		return err_say(e, ERANGE, "the call's output from byte %llu on is no longer kept",
			       (unsigned long long)r->have);
	if (in->call.state == CALL_NONE)
		in->call.state = CALL_DRAINS;
	in->call.client = c;
	c->interpreter = in;
	in->call.cut_short = false;
	conn_become(c, CONN_CALL);
	if (in->call.state != CALL_CODE)
		output_to(&in->call.output, c, r->have);
	call_on_sent(in, c);
	return 0;
}

static void kill_code(struct interpreter *in)
{
	if (in->call.bash_group)
		kill(-in->call.bash_group, SIGKILL);
	else
		driver_kill_code(&in->driver);
}

/* Where code begins and where its first `await` waits, Node changes its handlers: a SIGINT then is
 * lost, ends the next call, or kills Node. So Node gets a frame, which it reads while code awaits,
 * and SIGINT only if the call continues. */
static void interrupt_node(struct interpreter *in)
{
	if (driver_taken(&in->driver))
		driver_send(&in->driver, AGENT_INTERRUPT, NULL, 0);
	if (!in->call.nudge)
		in->call.nudge = loop_now_ms() + NODE_NUDGE_MS;
}

static void interrupt_code(struct interpreter *in)
{
	if (in->call.bash_group) {
		kill(-in->call.bash_group, SIGINT);
		return;
	}
	if (in->driver.language == AGENT_JAVASCRIPT) {
		interrupt_node(in);
		return;
	}
	driver_signal(&in->driver, SIGINT);
	if (in->driver.language != AGENT_PYTHON)
		return;
	in->call.nudge_ms = NUDGE_MS;
	in->call.nudge = loop_now_ms() + NUDGE_MS;
}

static void look_for_start(struct interpreter *in)
{
	if (in->call.state == CALL_RUNS && !in->call.started)
		in->call.started = driver_started(&in->driver, &in->call.bash_group);
}

/* Interrupts the code of the call that runs or is about to. */
static void interrupt_call(struct interpreter *in)
{
	look_for_start(in);
	if (in->call.started)
		interrupt_code(in);
	else
		driver_await_start(&in->driver);
	call_drop_backpressure(in);
}

void call_interrupt(struct interpreter *in, uint64_t number)
{
	if (number && in->call.number != number)
		/* If that call ended long ago, nothing happens: numbers are not used twice. */
		in->doomed = number;
	else if (call_is_running(in))
		interrupt_call(in);
}

/* Sends the interrupt that was requested before the code had started. */
void call_on_started(struct driver *d, pid_t bash_group)
{
	struct interpreter *in = interpreter_of(d);

	if (in->call.state != CALL_RUNS || in->call.started)
		return;
	in->call.started = true;
	in->call.bash_group = bash_group;
	interrupt_code(in);
}

static int64_t ran_ms(const struct interpreter *in)
{
	return in->call.state == CALL_RUNS ? loop_now_ms() - in->call.began : 0;
}

/* Returns the milliseconds until `when`, at most an hour; -1 if no call runs or `when` is not
 * set. */
static int left_ms(const struct interpreter *in, int64_t when)
{
	if (in->call.state != CALL_RUNS || !when)
		return -1;
	int64_t left = when - loop_now_ms();
	return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left;
}

/* Python may miss an interrupt, see driver_nudge. It is unknown whether it did, so nudges
 * continue, ever more rarely, until the call ends. */
static void nudge_if_due(struct interpreter *in)
{
	if (left_ms(in, in->call.nudge) != 0)
		return;
	if (in->driver.language == AGENT_JAVASCRIPT) {
		in->call.nudge = 0;
		driver_signal(&in->driver, SIGINT);
		return;
	}
	driver_nudge(&in->driver);
	in->call.nudge_ms *= 2;
	in->call.nudge = loop_now_ms() + in->call.nudge_ms;
}

static void enforce_limit(struct interpreter *in)
{
	if (left_ms(in, in->call.deadline) != 0)
		return;
	look_for_start(in);
	if (in->call.stop < STOP_KILL_DRIVER)
		in->call.stop++;
	/* After SIGKILL to bash, the driver reports the end of bash. It has ten times the grace for
	 * this, since the Python process is killed only if the driver hangs. */
	in->call.deadline +=
		in->call.stop == STOP_KILL_CODE ? 10 * (int64_t)in->grace_ms : in->grace_ms;
	if (in->call.stop == STOP_SIGINT)
		interrupt_call(in);
	else if (in->call.stop == STOP_KILL_CODE)
		kill_code(in);
	else
		driver_signal(&in->driver, SIGKILL);
	drop_backpressure_if_awaited(in);
}

int call_timeout_ms(const struct interpreter *in)
{
	int due = loop_sooner(left_ms(in, in->call.deadline), left_ms(in, in->call.nudge));

	return loop_sooner(due, output_timeout_ms(&in->call.output));
}

void call_on_time(struct interpreter *in)
{
	enforce_limit(in);
	nudge_if_due(in);
	output_on_time(&in->call.output, ran_ms(in));
}

static void note_limit(struct interpreter *in, bool killed)
{
	note(in, "ramet: stopped at the time limit of %u.%03u s", in->call.timeout_ms / 1000,
	     in->call.timeout_ms % 1000);
	if (killed)
		note(in, ", and had to be killed: the %s state is lost",
		     driver_name(in->driver.language));
	note(in, "\n");
}

static void send_exit(struct interpreter *in, struct conn *c)
{
	uint8_t payload[8];
	struct wire w = wire_on(payload, sizeof(payload));

	wire_put_u32(&w, (uint32_t)in->call.exit_code);
	wire_put_u8(&w, in->call.state_lost);
	conn_send(c, AGENT_EXIT, payload, w.pos);
	conn_become(c, in->call.cut_short ? CONN_ENDING : CONN_IDLE);
}

/* The pipes are drained: the texts of the driver and of the agent are the call's last output. */
static void add_note(struct interpreter *in)
{
	size_t len = strlen(in->call.note);

	if (in->call.noted)
		return;
	in->call.noted = true;
	memcpy(in->call.last_text + in->call.last_len, in->call.note, len);
	output_add(&in->call.output, in->call.last_text, in->call.last_len + len);
}

/* Advances the call to its end as far as its client takes output; without a client, as far as the
 * ring may be filled. */
void call_on_sent(struct interpreter *in, struct conn *c)
{
	if (c != in->call.client)
		return;
	if (in->call.state == CALL_RUNS) {
		output_resume(&in->call.output);
		driver_resume(&in->driver); /* may end the call */
		return;
	}
	if (in->call.state != CALL_DRAINS)
		return;
	output_resume(&in->call.output);
	/* If the client is lost while the rest is sent, the call ends: its state changes. */
	if (!output_drain(&in->call.output) || in->call.state != CALL_DRAINS)
		return;
	add_note(in);
	if (in->call.state != CALL_DRAINS || !output_is_sent(&in->call.output))
		return;
	struct conn *client = in->call.client;
	in->call.state = CALL_NONE;
	in->call.client = NULL;
	output_end(&in->call.output);
	if (client)
		send_exit(in, client);
	in->on_free(in);
}

static void end_call(struct interpreter *in, int32_t code)
{
	in->call.exit_code = code;
	in->call.state = CALL_DRAINS;
	output_mark_end(&in->call.output);
	struct conn *client = in->call.client;
	if (client)
		conn_cork(client);
	call_on_sent(in, client);
	if (!client)
		return;
	conn_uncork(client);
	/* Continues if the output and the end did not fit into the buffer together, or if another
	 * client has attached. */
	if (in->call.state == CALL_DRAINS)
		call_on_sent(in, in->call.client);
}

static bool is_end(const struct frame *f)
{
	if (f->len != 1)
		return false;
	return f->type == AGENT_RESULT ? f->payload[0] <= AGENT_RESULT_DROPPED
				       : f->type == AGENT_FAULT && f->payload[0] == 0;
}

/* Adds a part of a result to the call's output; see on_part in driver.h. */
int call_on_part(struct driver *d, const struct frame *f)
{
	const uint8_t fault = OUTPUT_FAULT;
	struct call *call = &interpreter_of(d)->call;
	bool ends = f->type != AGENT_BUNDLE;

	if (ends ? !is_end(f) : !f->len || f->len > AGENT_BUNDLE_MAX - call->bundle_len)
		return -EPROTO;
	/* An interrupted driver may drop a bundle that it has ended already. */
	bool is_empty = ends && !call->bundle_len;
	if (is_empty && (f->type == AGENT_FAULT || f->payload[0] != AGENT_RESULT_DROPPED))
		return -EPROTO;
	if (call->state != CALL_RUNS || is_empty) {
		if (ends)
			output_drop_result(&call->output);
	} else if (!output_add_part(&call->output, ends ? OUTPUT_BUNDLE_END : OUTPUT_BUNDLE,
				    f->type == AGENT_FAULT ? &fault : f->payload, f->len)) {
		return 0;
	}
	call->bundle_len = ends ? 0 : call->bundle_len + f->len;
	return 1;
}

static bool ran_out_of_memory(const struct interpreter *in)
{
	return oom_kills() > in->call.oom_before;
}

/* Adds a note to a failed call during which the kernel killed a program for lack of memory. */
static void note_memory(struct interpreter *in)
{
	if (ran_out_of_memory(in))
		note(in, "ramet: out of memory: the kernel killed processes during this call\n");
}

void call_on_exit(struct driver *d, int32_t code, const uint8_t *last, size_t last_len)
{
	struct interpreter *in = interpreter_of(d);

	if (in->call.state != CALL_RUNS)
		return;
	memcpy(in->call.last_text, last, last_len);
	in->call.last_len = last_len;
	/* Background processes of bash ignore SIGINT and would continue to use the CPU. */
	if (in->call.stop && in->call.bash_group)
		session_kill(in->call.bash_group);
	if (in->call.stop)
		note_limit(in, false);
	else if (code)
		note_memory(in);
	end_call(in, in->call.stop ? EXIT_TIMED_OUT : code);
}

void call_on_driver_gone(struct interpreter *in, int status, const struct err *how)
{
	int32_t code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	const bool oom =
		WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && ran_out_of_memory(in);
	struct err e;

	err_say(&e, ECHILD, "%s%s", how->text, oom ? ": out of memory" : "");
	if (!call_is_running(in)) {
		if (in->used)
			in->lost = e;
		in->used = false;
		return;
	}
	in->used = false;
	in->call.state_lost = true;
	look_for_start(in);
	/* The call is over, and nobody else would end its bash. */
	if (in->call.bash_group)
		session_kill(in->call.bash_group);
	if (in->call.stop)
		note_limit(in, true);
	else
		note(in, "ramet: %s; its state is lost\n", e.text);
	/* The rest of the call's code may still arrive, but is not read. */
	in->call.cut_short = in->call.state == CALL_CODE;
	end_call(in, in->call.stop ? EXIT_TIMED_OUT : code);
}

void call_refuse_all(struct interpreter *in, const struct err *e)
{
	list_drain_of (c, struct conn, turn, &in->queue) {
		list_del(&c->turn);
		conn_refuse_unread(c, e);
	}
}
