// SPDX-License-Identifier: Apache-2.0
/* Requests to other hosts whose answers are small, and are used only once they are complete. */
#include <errno.h>
#include <string.h>

#include "orchestrator/peers/internal.h"

#define BODY_MAX (256u << 10) /* entries of lists can be long, see pages.c */

/* --- end ------------------------------------------------------------------------------------ */

static void release(struct peer_call *call, bool keep)
{
	struct op *link = call->link;

	call->link = NULL;
	loop_timer_clear(call->peers->loop, &call->limit);
	text_free(&call->ask);
	if (link && keep)
		peer_link_keep(link);
	if (link)
		op_abandon(link);
}

void peer_call_end(struct peer_call *call)
{
	if (!call->peers)
		return;
	release(call, false);
	text_free(&call->in);
	text_free(&call->body);
}

static void finish(struct peer_call *call, const struct failure *f)
{
	release(call, !f && call->answer.keeps && !call->answer.extra);
	call->done(call, f);
}

/* `why` continues "the answer of the host"; NULL: it closed the connection. */
static void fail(struct peer_call *call, const char *why)
{
	struct failure f;

	peer_failed(&f, call->host, why);
	finish(call, &f);
}

static void on_limit(void *arg)
{
	struct peer_call *call = arg;
	struct failure f;

	failure_set(&f, FAIL_HOST_UNREACHABLE, 1, "host %s does not answer", call->host);
	finish(call, &f);
}

/* --- the answer ----------------------------------------------------------------------------- */

static void add_body(struct peer_call *call, const void *data, size_t len)
{
	const size_t before = call->body.len;

	text_add(&call->body, data, len);
	const ssize_t got = len ? port_answer_body(&call->answer, call->body.p + before, len) : 0;
	if (got < 0 || before + (size_t)got > BODY_MAX) {
		fail(call, got < 0 ? "has a malformed body" : "has a body of more than 256 KiB");
		return;
	}
	call->body.len = before + (size_t)got;
	if (call->answer.over)
		finish(call, NULL);
}

static void on_data(void *arg, const uint8_t *data, size_t len)
{
	struct peer_call *call = arg;
	const size_t checked = call->in.len;
	const char *why;

	if (call->has_head) {
		add_body(call, data, len);
		return;
	}
	text_add(&call->in, data, len);
	const ssize_t took =
		port_answer_head(&call->answer, call->in.p, call->in.len, checked, false, &why);
	if (took < 0 || (took > 0 && call->answer.status < 200)) {
		fail(call, took < 0 ? why : "begins with a head that nobody asked for");
	} else if (took > 0) {
		call->has_head = true;
		add_body(call, call->in.p + took, call->in.len - (size_t)took);
	}
}

static void on_eof(void *arg)
{
	struct peer_call *call = arg;

	if (call->has_head && port_answer_ended(&call->answer))
		finish(call, NULL);
	else
		fail(call, NULL);
}

/* --- the connection ------------------------------------------------------------------------- */

static void on_connected(void *arg)
{
	struct peer_call *call = arg;

	call->connected = true;
	peer_link_send(call->link, call->ask.p, call->ask.len);
}

/* The connection ended by itself. */
static void on_ended(void *arg, const struct failure *f)
{
	struct peer_call *call = arg;

	call->link = NULL;
	if (f)
		finish(call, f);
	else
		fail(call, NULL);
}

static const struct port_sink sink = {on_connected, on_data, on_eof, NULL, on_ended};

void peer_call_start(struct peers *p, struct peer_call *call, struct service *c,
		     const struct peer_asked *asked, peer_call_fn *done, void *arg)
{
	peer_call_end(call);
	*call = (struct peer_call){.peers = p, .ask = asked->text, .done = done, .arg = arg};
	memcpy(call->host, asked->host->name, sizeof(call->host));
	call->limit = (struct loop_timer){.fn = on_limit, .arg = call};
	if (asked->limit_ms)
		loop_timer_set(p->loop, &call->limit, asked->limit_ms);
	call->link =
		peer_link_connect(p, c, asked->host, asked->what, asked->limit_ms, &sink, call);
}
