// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/num.h"
#include "base/wire.h"
#include "guest/pty-internal.h"

#define PIECE_MAX (AGENT_PAYLOAD_MAX - 8) /* beside its place */

void pty_done(struct conn *c)
{
	c->pty = NULL;
	list_del(&c->turn);
	conn_send(c, AGENT_DONE, NULL, 0);
	conn_become(c, CONN_IDLE);
}

void pty_refuse(struct conn *c, const struct err *e)
{
	c->pty = NULL;
	list_del(&c->turn);
	conn_send_error(c, e);
	conn_become(c, CONN_IDLE);
}

/* --- listeners ------------------------------------------------------------------------------ */

void pty_tell_exit(struct pty *p, struct conn *c)
{
	uint8_t payload[8];
	struct wire w = wire_on(payload, sizeof(payload));

	wire_put_u32(&w, (uint32_t)p->exit_code);
	wire_put_u8(&w, 0);
	c->pty = NULL;
	list_del(&c->turn);
	conn_send(c, AGENT_EXIT, payload, w.pos);
	conn_become(c, CONN_IDLE);
}

/* One frame from c->place on. What the ring does not hold any more is left out. */
static void send_piece(struct pty *p, struct conn *c)
{
	uint64_t first = p->total < AGENT_PTY_RING ? 0 : p->total - AGENT_PTY_RING;
	uint8_t *payload = conn_payload(c);
	struct wire w = wire_on(payload, AGENT_PAYLOAD_MAX);

	if (c->place < first)
		c->place = first;
	size_t len = min_u64(p->total - c->place, PIECE_MAX);
	size_t at = c->place % AGENT_PTY_RING, part = min_u64(len, AGENT_PTY_RING - at);
	wire_put_u64(&w, c->place);
	wire_put_bytes(&w, p->ring + at, part);
	wire_put_bytes(&w, p->ring, len - part);
	c->place += len;
	conn_send_payload(c, AGENT_PTY_BYTES, w.pos);
}

void pty_tell_silence(struct pty *p, struct conn *c)
{
	uint8_t payload[8];
	struct wire w = wire_on(payload, sizeof(payload));

	wire_put_u64(&w, p->total);
	conn_send(c, AGENT_PTY_BYTES, payload, w.pos);
}

/* Sends what the connection takes. */
void pty_feed(struct pty *p, struct conn *c)
{
	while (c->op == CONN_PTY_LISTENS && !c->out_len && c->place < p->total)
		send_piece(p, c);
	if (c->op == CONN_PTY_LISTENS && p->state == PTY_ENDED && c->place == p->total)
		pty_tell_exit(p, c);
}

/* A connection that is lost meanwhile leaves the list. */
void pty_feed_all(struct pty *p)
{
	list_each_safe (pos, &p->listeners)
		pty_feed(p, container_of(pos, struct conn, turn));
}

/* --- typing --------------------------------------------------------------------------------- */

static void nobody_reads(struct conn *c)
{
	struct err e;

	err_say(&e, EPIPE, "the terminal's program has ended or closed it");
	pty_refuse(c, &e);
}

/* Types what the first in the line has left. 0, or -EAGAIN when the terminal takes no more now. */
static int type_some(struct pty *p, struct conn *c)
{
	struct frame f = frame_again(&c->in);

	while (c->typed < f.len) {
		ssize_t n = write(p->master.fd, f.payload + c->typed, f.len - c->typed);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EAGAIN;
		c->typed += (size_t)n;
	}
	return 0;
}

/* A closed terminal is hung up until it is opened again: only what is new is told of it. */
void pty_watch_master(struct pty *p)
{
	uint32_t events = EPOLLIN;

	if (!list_empty(&p->typists))
		events |= EPOLLOUT;
	if (p->closed)
		events |= EPOLLET;
	watch_set(&p->master, events);
}

void pty_type_all(struct pty *p)
{
	while (!list_empty(&p->typists)) {
		struct conn *c = container_of(p->typists.next, struct conn, turn);
		int bad = type_some(p, c);

		if (bad == -EAGAIN)
			break;
		if (bad)
			nobody_reads(c);
		else
			pty_done(c);
	}
	pty_watch_master(p);
}

void pty_end_typing(struct pty *p)
{
	while (!list_empty(&p->typists))
		nobody_reads(container_of(p->typists.next, struct conn, turn));
}
