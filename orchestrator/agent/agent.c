// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/agent/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/elements.h"
#include "base/wire.h"

#define BUFFER_SIZE (AGENT_HEADER_SIZE + AGENT_PAYLOAD_MAX)
/* Maximum of events (frames, and lines of output in them) handed out in one turn of the loop. */
#define TURN_EVENTS 512

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
	struct list unsent; /* struct chunk; the first is in flight when send_op is set */
	/* Hands out frames that were read before a resume or are left over from a turn, or reports
	 * a failure. */
	struct loop_timer pull;
	bool paused, ended, closing;
	unsigned busy; /* nesting of callbacks; 0: may be freed */
	int broken;    /* -errno to report */
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
	list_drain_of (c, struct chunk, link, &a->unsent)
		chunk_free(c);
	close_fd(&a->fd);
	free(a);
}

static void report_end(struct agent *a, const char *reason)
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

/* Returns the length of the output up to the end of the last line that fits into the turn. */
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

/* Turns the rest of an output frame into a frame, whose header overwrites bytes already handed out.
 */
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

/* Hands out the next frame, or as much of its output as fits into the turn. Returns false when no
 * frame is complete, or after an invalid one. */
static bool hand_out_one(struct agent *a, unsigned *left)
{
	struct agent_frame frame;
	struct err e;
	ssize_t took = agent_frame_read(a->buf + a->start, a->end - a->start, &frame, &e);
	size_t rest = 0;

	if (took < 0)
		report_end(a, e.text);
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
 * Hands out whole frames until one is incomplete, or the reader pauses or frees the connection.
 * Yields to other connections in between when a guest sends many small frames or empty lines.
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

static void report_broken(struct agent *a)
{
	report_end(a, a->broken == -EPIPE ? "the guest's agent closed the connection"
					  : strerror(-a->broken));
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
		/* Frames received before the end are handed out before it is reported. */
		if (a->paused || loop_timer_is_set(&a->pull))
			return;
		a->busy++;
		report_broken(a);
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
	if (!a->paused && !loop_timer_is_set(&a->pull))
		report_broken(a);
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
	/* The buffer holds the largest frame, so there is room. */
	a->recv_op =
		loop_recv(a->loop, a->fd, a->buf + a->end, BUFFER_SIZE - a->end, on_received, a);
	if (!a->recv_op) {
		a->broken = -ENOMEM;
		loop_timer_set(a->loop, &a->pull, 0);
	}
}

struct agent *agent_new(struct loop *loop, int fd, const struct agent_events *events, void *arg)
{
	/* malloc, because the buffer's pages need not be touched before output arrives. */
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

static void report_sent(struct agent *a)
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
		report_sent(a);
	}
	/* The receiver reports a failed send as well, after the guest's last frames. */
}

void agent_send(struct agent *a, struct agent_bytes request)
{
	struct chunk *c = must_alloc(sizeof(*c));

	c->bytes = request.p;
	c->len = request.len;
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
	/* The guest sees the end even while an operation is in flight. */
	shutdown(a->fd, SHUT_RDWR);
	free_if_idle(a);
}
