// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/interpreter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "guest/log-console.h"

static void refuse(struct interpreter *in, const struct err *e)
{
	call_refuse_all(in, e);
	in->ops->on_no_start(in, e);
}

static int start(struct interpreter *in, struct err *e)
{
	output_drop_old(&in->call.output);
	output_forget_dropped(&in->call.output);
	return driver_start(&in->driver, e);
}

/* Describes why the process ended while it started, with what it printed last. */
static void explain(struct interpreter *in, struct err *e)
{
	char said[160];

	output_drop_old(&in->call.output);
	output_last_dropped(&in->call.output, said, sizeof(said));
	err_context(e, "%s did not start", driver_name(in->driver.language));
	if (!said[0])
		return;
	size_t len = strlen(e->text);
	snprintf(e->text + len, sizeof(e->text) - len, ": %s", said);
}

void interpreter_serve(struct interpreter *in)
{
	struct err e;

	if (in->ends || in->restarts)
		return;
	if (in->driver.state == DRIVER_DOWN && start(in, &e) < 0)
		refuse(in, &e);
	if (in->driver.state != DRIVER_IDLE || call_is_active(in))
		return;
	if (in->reseed_due) {
		in->reseed_due = false;
		in->reseeding = true;
		driver_send(&in->driver, AGENT_RESEED, &in->reseed_users, 1);
		in->reseed_users = 0;
		return;
	}
	in->ops->on_idle(in);
	call_next(in);
}

/* --- requests ------------------------------------------------------------------------------- */

static int exec(struct interpreter *in, struct conn *c, const struct frame *f, struct err *e)
{
	int bad = exec_parse(f, &c->exec, e);

	if (bad)
		return bad;
	c->exec.at = (size_t)(f->payload - c->in.bytes) - AGENT_HEADER_SIZE;
	/* In a context, the host learns at once that the call is queued. */
	if (c->exec.at)
		conn_send(c, AGENT_DONE, NULL, 0);
	if (c->state == CONN_GONE)
		return 0;
	call_queue(in, c);
	interpreter_serve(in);
	return 0;
}

static int attach(struct interpreter *in, struct conn *c, const struct frame *f, struct err *e)
{
	struct attach_request r;
	int bad = attach_parse(f, &r, e);

	if (!bad && call_attach(in, c, &r, e) < 0)
		conn_refuse(c, e);
	return bad;
}

static int interrupt(struct interpreter *in, struct conn *c, const struct frame *f, struct err *e)
{
	uint64_t call;
	int bad = interrupt_parse(f, &call, e);

	if (bad)
		return bad;
	call_interrupt(in, call);
	conn_done(c);
	return 0;
}

int interpreter_handle(struct interpreter *in, struct conn *c, const struct frame *f, struct err *e)
{
	if (f->type == AGENT_EXEC)
		return exec(in, c, f, e);
	if (f->type == AGENT_ATTACH)
		return attach(in, c, f, e);
	return interrupt(in, c, f, e);
}

/* --- what comes between calls --------------------------------------------------------------- */

void interpreter_note_loss(struct interpreter *in, const char *how)
{
	err_say(&in->lost, ECHILD, "%s, and the %s process with it", how,
		driver_name(in->driver.language));
	in->reborn = true;
}

void interpreter_reseed(struct interpreter *in, bool user_generators)
{
	in->reseed_due = true;
	in->reseed_users |= user_generators;
}

void interpreter_restart(struct interpreter *in)
{
	if (in->driver.state == DRIVER_DOWN) {
		interpreter_serve(in);
		return;
	}
	in->restarts = true;
	if (!call_is_running(in)) {
		in->used = false; /* a requested loss of its state is not reported */
		in->lost.code = 0;
		in->reborn = false;
	}
	driver_kill_session(&in->driver);
}

void interpreter_end(struct interpreter *in, const struct err *gone)
{
	in->ends = true;
	driver_kill_session(&in->driver);
	call_refuse_all(in, gone);
	call_drop_backpressure(in);
}

bool interpreter_is_gone(const struct interpreter *in)
{
	return in->ends && in->driver.state == DRIVER_DOWN && !call_is_active(in);
}

/* --- events of the driver ------------------------------------------------------------------- */

static void on_idle(struct driver *d)
{
	interpreter_serve(interpreter_of(d));
}

static void on_sent(struct driver *d)
{
	call_on_driver_sent(interpreter_of(d));
}

static void on_reseeded(struct driver *d, const struct err *e)
{
	struct interpreter *in = interpreter_of(d);

	if (!in->reseeding)
		return;
	in->reseeding = false;
	if (e)
		log_console("%s", e->text);
	in->ops->on_reseeded(in, e);
}

static void on_gone(struct driver *d, enum driver_state was, int status, const struct err *how)
{
	struct interpreter *in = interpreter_of(d);
	struct err e = *how;

	log_console("%s", how->text);
	call_on_driver_gone(in, status, how);
	if (in->reseeding)
		in->reseed_due = true;
	in->reseeding = false;
	if (in->ends)
		return;
	if (in->restarts || was != DRIVER_STARTING) {
		in->restarts = false;
		interpreter_serve(in);
		return;
	}
	/* Does not restart the driver now, since it would probably fail again: the next request
	 * does. */
	explain(in, &e);
	refuse(in, &e);
}

static const struct driver_ops driver_calls = {
	.on_idle = on_idle,
	.on_sent = on_sent,
	.on_started = call_on_started,
	.on_exit = call_on_exit,
	.on_part = call_on_part,
	.on_reseeded = on_reseeded,
	.on_gone = on_gone,
};

int interpreter_init(struct interpreter *in, enum agent_language language,
		     const struct driver_launch *launch, unsigned grace_ms,
		     const struct interpreter_ops *ops, struct err *e)
{
	in->ops = ops;
	in->on_free = interpreter_serve;
	int bad = call_init(in, grace_ms, e);
	const struct driver_pipes pipes = output_driver_pipes(&in->call.output);
	int worse = driver_open(&in->driver, language, launch, &pipes, &driver_calls, e);
	return bad ? bad : worse;
}

void interpreter_fini(struct interpreter *in)
{
	driver_close(&in->driver);
	output_close(&in->call.output);
}
