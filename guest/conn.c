// SPDX-License-Identifier: Apache-2.0
#include "guest/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/elements.h"
#include "base/wire.h"
#include "guest/log-console.h"
#include "guest/send.h"

struct list conn_all = {&conn_all, &conn_all};
static struct list conn_dead = {&conn_dead, &conn_dead};
static unsigned conn_count;
static const struct conn_ops *ops;

void conn_init(const struct conn_ops *the_ops)
{
	ops = the_ops;
}

/* Removes from the socket the byte that read_some has only peeked at, if there is one. */
static void take_seen(struct conn *c)
{
	uint8_t byte;

	if (c->seen && read(c->watch.fd, &byte, 1) == 1)
		c->seen = false;
}

/* Takes the connection out of the agent, without closing its socket. */
static void leave(struct conn *c)
{
	enum conn_state was = c->state;

	take_seen(c);
	c->state = CONN_GONE;
	watch_del(&c->watch);
	list_del(&c->node);
	list_del(&c->turn);
	list_add_tail(&conn_dead, &c->node);
	conn_count--;
	ops->on_gone(c, was);
}

void conn_drop(struct conn *c)
{
	if (c->state == CONN_GONE)
		return;
	leave(c);
	close(c->watch.fd);
}

int conn_detach(struct conn *c)
{
	leave(c);
	return c->watch.fd;
}

void conn_reap(void)
{
	list_drain_of (c, struct conn, node, &conn_dead) {
		list_del(&c->node);
		free(c);
	}
}

static bool reads_frames(const struct conn *c)
{
	return c->state == CONN_IDLE || c->state == CONN_CODE;
}

/* Bytes in the middle of an operation break the protocol; end of file means the client left. */
static void read_unexpected(struct conn *c)
{
	uint8_t bytes[2];
	ssize_t n = recv(c->watch.fd, bytes, sizeof(bytes), MSG_PEEK);

	if ((n < 0 && errno == EAGAIN) || (n == 1 && c->seen))
		return;
	if (n > 0)
		log_console(
			"a frame arrived before the last operation had ended: connection closed");
	conn_drop(c);
}

/*
 * Reads bytes of a frame. Peeks at the last byte of code instead of taking it; the byte is taken
 * with the next read, or when the call has ended. The kernel tells the host about free room as soon
 * as a whole packet was taken, which costs an exit from the VM. In the middle of a call that would
 * be an additional exit; at its end, the answer needs one anyway.
 */
static ssize_t read_some(struct conn *c)
{
	uint8_t *to = frame_end(&c->in);
	size_t room = frame_room(&c->in);

	take_seen(c);
	if (c->state != CONN_CODE || c->in.have < AGENT_HEADER_SIZE)
		return read(c->watch.fd, to, room);
	if (room > 1)
		return read(c->watch.fd, to, room - 1);
	ssize_t n = recv(c->watch.fd, to, 1, MSG_PEEK);
	c->seen = n == 1;
	return n;
}

/* Returns true when a whole frame arrived and was handled. */
static bool read_frame(struct conn *c)
{
	struct frame f;
	struct err e;
	int got;

	do {
		ssize_t n = read_some(c);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return false;
		if (n <= 0) {
			conn_drop(c);
			return false;
		}
		got = frame_got(&c->in, (size_t)n, &f, &e);
	} while (!got);
	if (got < 0) {
		log_console("%s: connection closed", e.text);
		conn_drop(c);
		return false;
	}
	ops->on_frame(c, &f);
	return true;
}

/* The code of a call follows its request at once: both are read in one event. */
static void read_frames(struct conn *c)
{
	bool was_idle = c->state == CONN_IDLE;

	if (read_frame(c) && was_idle && c->state == CONN_CODE && !c->held)
		read_frame(c);
}

static void flush_out(struct conn *c)
{
	while (c->out_pos < c->out_len) {
		ssize_t n = send_some(c->watch.fd, c->out + c->out_pos, c->out_len - c->out_pos);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			conn_drop(c);
			return;
		}
		c->out_pos += (size_t)n;
	}
	if (c->out_pos == c->out_len)
		c->out_pos = c->out_len = 0;
	watch_set(&c->watch, (c->watch.events & ~(uint32_t)EPOLLOUT) | (c->out_len ? EPOLLOUT : 0));
}

static void on_event(struct watch *w, uint32_t events)
{
	struct conn *c = container_of(w, struct conn, watch);

	/* After a hang-up, reads what is left first: the read that finds the end of file drops the
	 * connection. */
	if ((events & (EPOLLERR | EPOLLRDHUP)) || ((events & EPOLLHUP) && !(events & EPOLLIN))) {
		conn_drop(c);
		return;
	}
	if (events & EPOLLOUT) {
		flush_out(c);
		if (c->state != CONN_GONE && !c->out_len)
			ops->on_sent(c);
	}
	if (c->state == CONN_GONE || !(events & EPOLLIN))
		return;
	if (reads_frames(c))
		read_frames(c);
	else
		read_unexpected(c);
}

struct conn *conn_new(int fd)
{
	struct conn *c = conn_count < CONN_COUNT_MAX ? malloc(sizeof(*c)) : NULL;

	if (!c) {
		log_console("connection refused: %u connections are open", conn_count);
		close(fd);
		return NULL;
	}
	/* Leaves out the buffers, whose pages are allocated at first use. */
	memset(c, 0, offsetof(struct conn, in));
	frame_reset(&c->in);
	c->watch.on_event = on_event;
	if (watch_add(&c->watch, fd, EPOLLIN) < 0) {
		close(fd);
		free(c);
		return NULL;
	}
	list_init(&c->turn);
	list_add_tail(&conn_all, &c->node);
	conn_count++;
	return c;
}

void conn_become(struct conn *c, enum conn_state state)
{
	conn_hold(c, false);
	if (c->state == CONN_GONE)
		return;
	c->state = state;
	if (state == CONN_IDLE) {
		take_seen(c);
		frame_reset(&c->in);
	}
	/* A queued client's code and the data of a file wait in the socket and use no memory here.
	 * In CONN_WORKER, the next request may arrive before the worker has ended. */
	bool reads = state != CONN_QUEUED && state != CONN_WAITING && state != CONN_WORKER &&
		     state != CONN_ENDING;
	/* Edge-triggered while a call runs, since read_some may have left a byte in the socket. */
	uint32_t in = state == CONN_CALL ? EPOLLIN | EPOLLRDHUP | EPOLLET : reads ? EPOLLIN : 0;
	watch_set(&c->watch, (c->watch.events & EPOLLOUT) | in);
	if (state == CONN_ENDING && !c->out_len)
		conn_drop(c);
}

void conn_hold(struct conn *c, bool held)
{
	if (c->state == CONN_GONE || c->held == held)
		return;
	c->held = held;
	/* While the connection is held, its socket is not watched at all. Otherwise, if the client
	 * hung up, the kernel would report that again and again until all of its code is read. */
	if (held)
		watch_del(&c->watch);
	else if (watch_add(&c->watch, c->watch.fd, c->watch.events) < 0)
		conn_drop(c);
}

void conn_hand_over(struct conn *c)
{
	c->out_pos = c->out_len = 0;
	watch_set(&c->watch, c->watch.events & ~(uint32_t)EPOLLOUT);
}

bool conn_is_broken(const struct conn *c)
{
	struct pollfd p = {.fd = c->watch.fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP | POLLRDHUP));
}

uint8_t *conn_payload(struct conn *c)
{
	return c->out + c->out_len + AGENT_HEADER_SIZE;
}

void conn_send_payload(struct conn *c, uint8_t type, size_t len)
{
	if (c->state == CONN_GONE)
		return;
	frame_header(c->out + c->out_len, type, (uint32_t)len);
	c->out_len += AGENT_HEADER_SIZE + len;
	if (!c->corked)
		flush_out(c);
}

void conn_cork(struct conn *c)
{
	c->corked = true;
}

void conn_uncork(struct conn *c)
{
	c->corked = false;
	if (c->state == CONN_GONE || !c->out_len)
		return;
	flush_out(c);
	if (c->state == CONN_ENDING && !c->out_len)
		conn_drop(c);
}

void conn_send(struct conn *c, uint8_t type, const void *payload, size_t len)
{
	if (c->state == CONN_GONE)
		return;
	if (CONN_OUT_MAX - c->out_len < AGENT_HEADER_SIZE + len) {
		conn_drop(c);
		return;
	}
	if (len)
		memcpy(conn_payload(c), payload, len);
	conn_send_payload(c, type, len);
}

static void send_error(struct conn *c, const struct err *e)
{
	uint8_t payload[ERR_TEXT_MAX + 16];
	struct wire w = wire_on(payload, sizeof(payload));

	wire_put_u32(&w, (uint32_t)-e->code);
	wire_put_str(&w, e->text, strlen(e->text));
	conn_send(c, AGENT_ERROR, payload, w.pos);
}

void conn_done(struct conn *c)
{
	conn_send(c, AGENT_DONE, NULL, 0);
	conn_become(c, CONN_IDLE);
}

void conn_refuse(struct conn *c, const struct err *e)
{
	send_error(c, e);
	conn_become(c, CONN_IDLE);
}

void conn_refuse_unread(struct conn *c, const struct err *e)
{
	send_error(c, e);
	conn_become(c, CONN_ENDING);
}
