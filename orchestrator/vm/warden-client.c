// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/vm/warden-client.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/elements.h"
#include "base/log.h"

struct call {
	struct list link;
	struct warden_msg msg;
	warden_reply_fn *fn;
	void *arg;
};

struct warden_client {
	struct loop *loop;
	int fd;
	const struct warden_events *events;
	void *arg;
	struct list unsent, waiting; /* struct call */
	struct warden_msg out;	     /* in flight while send_op is set */
	uint32_t next_seq;
	uint64_t answers;
	struct loop_op *recv_op, *send_op;
	bool lost, closing;
	uint8_t in[sizeof(struct warden_msg) + 1];
};

static void free_if_idle(struct warden_client *w)
{
	if (!w->closing || w->recv_op || w->send_op)
		return;
	close_fd(&w->fd);
	free(w);
}

static void lose(struct warden_client *w, const char *reason)
{
	if (w->lost)
		return;
	w->lost = true;
	w->events->lost(w->arg, reason);
}

static void send_next(struct warden_client *w);

static void on_sent(void *arg, int result)
{
	struct warden_client *w = arg;

	w->send_op = NULL;
	if (w->closing) {
		free_if_idle(w);
		return;
	}
	if (result < 0)
		lose(w, strerror(-result));
	else
		send_next(w);
}

static void send_next(struct warden_client *w)
{
	if (w->lost || w->send_op || list_empty(&w->unsent))
		return;
	struct call *call = container_of(w->unsent.next, struct call, link);
	list_del(&call->link);
	list_add_tail(&w->waiting, &call->link);
	w->out = call->msg;
	w->send_op = loop_send(w->loop, w->fd, &w->out, sizeof(w->out), on_sent, w);
	if (!w->send_op)
		lose(w, "the event loop is ending");
}

static struct call *find_waiting(struct warden_client *w, uint32_t seq)
{
	list_each_of (call, struct call, link, &w->waiting)
		if (call->msg.seq == seq)
			return call;
	return NULL;
}

static void on_reply(struct warden_client *w, struct warden_msg *msg)
{
	struct call *call = find_waiting(w, msg->seq);

	if (!call) {
		log_warn("the warden replied to an unknown request (seq %u)", msg->seq);
		return;
	}
	list_del(&call->link);
	w->answers++;
	msg->reply.text[sizeof(msg->reply.text) - 1] = 0;
	const char *text = msg->reply.text;
	if (msg->reply.error && !text[0])
		text = strerror(-msg->reply.error);
	call->fn(call->arg, msg->reply.error, msg->reply.value, text);
	free(call);
}

static void on_message(struct warden_client *w, size_t len)
{
	struct warden_msg msg;

	if (len != sizeof(msg)) {
		lose(w, "it sent a message of an unexpected size");
		return;
	}
	memcpy(&msg, w->in, sizeof(msg));
	if (msg.version != WARDEN_VERSION)
		lose(w, "it is of another Ramet: its protocol has another version");
	else if (msg.type == WARDEN_REPLY)
		on_reply(w, &msg);
	else if (msg.type == WARDEN_EXITED)
		w->events->exited(w->arg, msg.slot, msg.exited.status);
	else
		lose(w, "it sent a message of an unknown type");
}

static void on_received(void *arg, int result);

static void receive(struct warden_client *w)
{
	w->recv_op = loop_recv(w->loop, w->fd, w->in, sizeof(w->in), on_received, w);
	if (!w->recv_op)
		lose(w, "the event loop is ending");
}

static void on_received(void *arg, int result)
{
	struct warden_client *w = arg;

	w->recv_op = NULL;
	if (w->closing) {
		free_if_idle(w);
		return;
	}
	if (w->lost) /* the VM that is waiting for the answer may already be freed */
		return;
	if (result <= 0) {
		lose(w, result ? strerror(-result) : "it ended");
		return;
	}
	on_message(w, (size_t)result);
	if (!w->lost && !w->closing)
		receive(w);
}

int warden_client_new(struct warden_client **out, struct loop *loop, int fd,
		      const struct warden_events *events, void *arg, struct err *e)
{
	struct warden_client *w = must_alloc(sizeof(*w));

	*w = (struct warden_client){
		.loop = loop, .fd = fd, .events = events, .arg = arg, .next_seq = 1};
	w->recv_op = loop_recv(loop, fd, w->in, sizeof(w->in), on_received, w);
	if (!w->recv_op) {
		free(w);
		return err_set(e, ENOMEM, "connect to the warden");
	}
	*out = w;
	return 0;
}

static void free_calls(struct list *calls)
{
	list_each_of_safe (call, struct call, link, calls)
		free(call);
	list_init(calls);
}

void warden_client_free(struct warden_client *w)
{
	if (!w)
		return;
	w->closing = true;
	free_calls(&w->unsent);
	free_calls(&w->waiting);
	if (w->recv_op)
		loop_cancel(w->loop, w->recv_op);
	if (w->send_op)
		loop_cancel(w->loop, w->send_op);
	free_if_idle(w);
}

uint64_t warden_client_answers(const struct warden_client *w)
{
	return w->answers;
}

int warden_client_call(struct warden_client *w, const struct warden_msg *msg, warden_reply_fn *fn,
		       void *arg)
{
	if (w->lost)
		return -EPIPE;
	struct call *call = must_alloc(sizeof(*call));

	call->msg = *msg;
	call->msg.version = WARDEN_VERSION;
	call->msg.seq = w->next_seq++;
	if (!w->next_seq)
		w->next_seq = 1;
	call->fn = fn;
	call->arg = arg;
	list_add_tail(&w->unsent, &call->link);
	send_next(w);
	return 0;
}
