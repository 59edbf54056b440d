// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/agent/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/wire.h"

#define BUFFER_SIZE (AGENT_HEADER_SIZE + AGENT_PAYLOAD_MAX)
#define TURN_EVENTS 512 /* frames, and lines of output in them, handed out in one turn */

struct chunk {
	struct list link;
	uint8_t *bytes;
	size_t len;
};

struct agent {
	struct loop *loop;
	int fd;
	const struct agent_events *events;
	void *arg;
	struct loop_op *recv_op, *send_op;
	struct list unsent; /* struct chunk; the first is under way when send_op is set */
	/* Hands out what was read before a resume or is left of a turn; a failure to be told. */
	struct loop_timer pull;
	bool paused, ended, closing;
	unsigned busy; /* in a callback: not to be freed */
	int broken;    /* -errno to be told */
	size_t start, end;
	uint8_t buf[BUFFER_SIZE];
};

static void chunk_free(struct chunk *c)
{
	list_del(&c->link);
	free(c->bytes);
	free(c);
}

static void free_if_idle(struct agent *a)
{
	if (!a->closing || a->recv_op || a->send_op || a->busy)
		return;
	while (!list_empty(&a->unsent))
		chunk_free(container_of(a->unsent.next, struct chunk, link));
	close_fd(&a->fd);
	free(a);
}

static void tell_end(struct agent *a, const char *reason)
{
	if (a->ended || a->closing)
		return;
	a->ended = true;
	loop_timer_clear(a->loop, &a->pull);
	a->events->ended(a->arg, reason);
}

static void receive(struct agent *a);

static bool may_hand_out(const struct agent *a)
{
	return !a->paused && !a->closing && !a->ended;
}

/* Bytes of output up to the end of as many lines as are left of the turn. */
static size_t lines_in_turn(const struct agent_frame *frame, unsigned *left)
{
	const uint8_t *at = frame->data, *end = at + frame->len;

	while (at < end && *left) {
		const uint8_t *line_end = memchr(at, '\n', (size_t)(end - at));

		if (!line_end)
			return frame->len;
		at = line_end + 1;
		--*left;
	}
	return (size_t)(at - frame->data);
}

/* The rest of an output frame becomes a frame of its own, its header over what was handed out. */
static void put_back(struct agent *a, const struct agent_frame *frame, size_t rest)
{
	struct wire w;

	a->start -= AGENT_HEADER_SIZE + rest;
	w = wire_on(a->buf + a->start, AGENT_HEADER_SIZE);
	wire_put_u32(&w, (uint32_t)rest);
	wire_put_u8(&w, (uint8_t)frame->type);
	wire_put_u8(&w, 0);
	wire_put_u16(&w, 0);
}

/* The next frame, or so much of it as the turn has room for. False: none is complete. */
static bool hand_out_one(struct agent *a, unsigned *left)
{
	struct agent_frame frame;
	struct err e;
	ssize_t took = agent_frame_read(a->buf + a->start, a->end - a->start, &frame, &e);
	size_t rest = 0;

	if (took < 0)
		tell_end(a, e.text);
	if (took <= 0)
		return false;
	a->start += (size_t)took;
	--*left;
	if (frame.type == AGENT_STDOUT || frame.type == AGENT_STDERR) {
		size_t now = lines_in_turn(&frame, left);

		rest = frame.len - now;
		frame.len = now;
	}
	if (frame.len || !rest)
		a->events->frame(a->arg, &frame);
	if (rest)
		put_back(a, &frame, rest);
	return true;
}

/*
 * Hands out whole frames until one is cut off, the reader pauses or frees the connection. A guest
 * that sends many small ones, or empty lines, leaves others their turns in between.
 */
static void hand_out(struct agent *a)
{
	unsigned left = TURN_EVENTS;

	while (may_hand_out(a) && left && hand_out_one(a, &left))
		;
	if (a->start == a->end)
		a->start = a->end = 0;
	if (!may_hand_out(a))
		return;
	if (left)
		receive(a);
	else
		loop_timer_set(a->loop, &a->pull, 0);
}

static void hand_out_safely(struct agent *a)
{
	a->busy++;
	hand_out(a);
	a->busy--;
	free_if_idle(a);
}

static void on_received(void *arg, int result)
{
	struct agent *a = arg;

	a->recv_op = NULL;
	if (a->closing) {
		free_if_idle(a);
		return;
	}
	if (result <= 0) {
		a->broken = result ? result : -EPIPE;
		/* What came before the end is told before it, as soon as it may. */
		if (a->paused || a->pull.heap_index)
			return;
		a->busy++;
		tell_end(a, result ? strerror(-result) : "the guest's agent closed the connection");
		a->busy--;
		free_if_idle(a);
		return;
	}
	a->end += (size_t)result;
	hand_out_safely(a);
}

static void pull(void *arg)
{
	struct agent *a = arg;

	if (!a->broken) {
		hand_out_safely(a);
		return;
	}
	a->busy++;
	hand_out(a);
	if (!a->paused && !a->pull.heap_index)
		tell_end(a, "the guest's agent closed the connection");
	a->busy--;
	free_if_idle(a);
}

static void receive(struct agent *a)
{
	if (a->recv_op || a->broken)
		return;
	if (a->start) {
		memmove(a->buf, a->buf + a->start, a->end - a->start);
		a->end -= a->start;
		a->start = 0;
	}
	/* A frame always fits, so there is room. */
	a->recv_op =
		loop_recv(a->loop, a->fd, a->buf + a->end, BUFFER_SIZE - a->end, on_received, a);
	if (!a->recv_op) {
		a->broken = -ENOMEM;
		loop_timer_set(a->loop, &a->pull, 0);
	}
}

struct agent *agent_new(struct loop *loop, int fd, const struct agent_events *events, void *arg)
{
	/* The buffer's pages are first touched when output comes. */
	struct agent *a = malloc(sizeof(*a));

	if (!a) {
		close(fd);
		return NULL;
	}
	memset(a, 0, offsetof(struct agent, buf));
	a->loop = loop;
	a->fd = fd;
	a->events = events;
	a->arg = arg;
	a->pull = (struct loop_timer){.fn = pull, .arg = a};
	list_init(&a->unsent);
	receive(a);
	return a;
}

void agent_set_events(struct agent *a, const struct agent_events *events, void *arg)
{
	a->events = events;
	a->arg = arg;
}

static void on_sent(void *arg, int result);

static void send_next(struct agent *a)
{
	if (a->send_op || a->broken || list_empty(&a->unsent))
		return;
	struct chunk *c = container_of(a->unsent.next, struct chunk, link);
	a->send_op = loop_send(a->loop, a->fd, c->bytes, c->len, on_sent, a);
	if (!a->send_op) {
		a->broken = -ENOMEM;
		loop_timer_set(a->loop, &a->pull, 0);
	}
}

static void tell_sent(struct agent *a)
{
	if (!list_empty(&a->unsent) || a->ended || !a->events->sent)
		return;
	a->busy++;
	a->events->sent(a->arg);
	a->busy--;
	free_if_idle(a);
}

static void on_sent(void *arg, int result)
{
	struct agent *a = arg;

	a->send_op = NULL;
	chunk_free(container_of(a->unsent.next, struct chunk, link));
	if (a->closing) {
		free_if_idle(a);
	} else if (result >= 0) {
		send_next(a);
		tell_sent(a);
	}
	/* A failed send is seen by the receiver as well, after what the guest still said. */
}

void agent_send(struct agent *a, uint8_t *bytes, size_t len)
{
	struct chunk *c = must_alloc(sizeof(*c));

	c->bytes = bytes;
	c->len = len;
	list_add_tail(&a->unsent, &c->link);
	send_next(a);
}

bool agent_is_sending(const struct agent *a)
{
	return !list_empty(&a->unsent);
}

void agent_pause(struct agent *a)
{
	a->paused = true;
}

void agent_resume(struct agent *a)
{
	if (!a->paused)
		return;
	a->paused = false;
	loop_timer_set(a->loop, &a->pull, 0);
}

void agent_free(struct agent *a)
{
	if (!a)
		return;
	a->closing = true;
	loop_timer_clear(a->loop, &a->pull);
	if (a->recv_op)
		loop_cancel(a->loop, a->recv_op);
	if (a->send_op)
		loop_cancel(a->loop, a->send_op);
	/* The guest sees the end even while an operation is under way. */
	shutdown(a->fd, SHUT_RDWR);
	free_if_idle(a);
}
