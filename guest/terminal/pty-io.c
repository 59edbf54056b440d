// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/num.h"
#include "base/wire.h"
#include "guest/terminal/pty-internal.h"

#define CHUNK_MAX (AGENT_PAYLOAD_MAX - 8) /* the offset takes 8 bytes of the payload */

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

void pty_send_exit(struct pty *p, struct conn *c)
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

/* Sends one frame from c->pty_offset on, or from the oldest byte in the ring if that is later. */
static void send_chunk(struct pty *p, struct conn *c)
{
	uint64_t first = p->total < AGENT_PTY_RING ? 0 : p->total - AGENT_PTY_RING;
	uint8_t *payload = conn_payload(c);
	struct wire w = wire_on(payload, AGENT_PAYLOAD_MAX);

	if (c->pty_offset < first)
		c->pty_offset = first;
	size_t len = min_u64(p->total - c->pty_offset, CHUNK_MAX);
	size_t at = c->pty_offset % AGENT_PTY_RING, part = min_u64(len, AGENT_PTY_RING - at);
	wire_put_u64(&w, c->pty_offset);
	wire_put_bytes(&w, p->ring + at, part);
	wire_put_bytes(&w, p->ring, len - part);
	c->pty_offset += len;
	conn_send_payload(c, AGENT_PTY_BYTES, w.pos);
}

void pty_send_empty(struct pty *p, struct conn *c)
{
	uint8_t payload[8];
	struct wire w = wire_on(payload, sizeof(payload));

	wire_put_u64(&w, p->total);
	conn_send(c, AGENT_PTY_BYTES, payload, w.pos);
}

void pty_feed(struct pty *p, struct conn *c)
{
	while (c->state == CONN_PTY_LISTENS && !c->out_len && c->pty_offset < p->total)
		send_chunk(p, c);
	if (c->state == CONN_PTY_LISTENS && p->state == PTY_ENDED && c->pty_offset == p->total)
		pty_send_exit(p, c);
}

/* A connection that is closed meanwhile leaves the list. */
void pty_feed_all(struct pty *p)
{
	list_each_safe (pos, &p->listeners)
		pty_feed(p, container_of(pos, struct conn, turn));
}

/* --- typing --------------------------------------------------------------------------------- */

static void refuse_input(struct conn *c)
{
	struct err e;

	err_say(&e, EPIPE, "the terminal's program has ended or closed it");
	pty_refuse(c, &e);
}

/* Types the rest of a connection's input. Returns 0, or -EAGAIN when the terminal is full. */
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

/* A closed terminal reports a hang-up until it is opened again: watch it edge-triggered. */
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
			refuse_input(c);
		else
			pty_done(c);
	}
	pty_watch_master(p);
}

void pty_end_typing(struct pty *p)
{
	while (!list_empty(&p->typists))
		refuse_input(container_of(p->typists.next, struct conn, turn));
}
