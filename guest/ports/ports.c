// SPDX-License-Identifier: Apache-2.0
#include "guest/ports/ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/log-console.h"
#include "guest/send.h"

#define RELAYS_MAX   128 /* each has up to two buffers */
#define BUFFER_BYTES 65536u
#define ROUNDS	     4 /* buffers copied in one event, so that other connections get their turn */

/* One end of a relay. */
struct end {
	struct watch watch;
	bool watched;
	bool hung_up; /* an error or hang-up was reported; epoll would report it again and again */
};

/* One direction. */
struct pump {
	size_t start, len; /* unsent bytes: buf[start .. start + len) */
	bool eof;	   /* the source has ended */
	bool discards;	   /* the destination takes no more: the rest is read and dropped */
	bool over;	   /* the destination got everything and the end */
	uint8_t buf[BUFFER_BYTES];
};

struct relay {
	struct end host, server;
	uint16_t port;
	bool connected;
	bool tried_both; /* 127.0.0.1 and ::1 */
	int first_error; /* of the attempt at 127.0.0.1 */
	struct pump to_server, to_host;
};

static unsigned n_relays;

static void end_close(struct end *e)
{
	if (e->watched)
		watch_del(&e->watch);
	e->watched = false;
	close_fd(&e->watch.fd);
}

static void relay_free(struct relay *r)
{
	end_close(&r->host);
	end_close(&r->server);
	n_relays--;
	free(r);
}

/* --- copying -------------------------------------------------------------------------------- */

/* Returns false when the source has nothing to read now. */
static bool pump_read(struct pump *p, int from)
{
	ssize_t n = read(from, p->buf, sizeof(p->buf));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	p->start = 0;
	p->len = n > 0 ? (size_t)n : 0;
	p->eof = n <= 0;
	return true;
}

/* Returns false when the destination has no room now. */
static bool pump_write(struct pump *p, int to)
{
	ssize_t n = p->discards ? (ssize_t)p->len : send_some(to, p->buf + p->start, p->len);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0) {
		p->discards = true;
		n = (ssize_t)p->len;
	}
	p->start += (size_t)n;
	p->len -= (size_t)n;
	return true;
}

static void pump_run(struct pump *p, int from, int to)
{
	for (int i = 0; i < 2 * ROUNDS && !p->over; i++) {
		bool moved = true;

		if (p->len) {
			moved = pump_write(p, to);
		} else if (!p->eof) {
			moved = pump_read(p, from);
		} else {
			shutdown(to, SHUT_WR);
			p->over = true;
		}
		if (!moved)
			return;
	}
}

/* --- events --------------------------------------------------------------------------------- */

/* Watches the events. Returns false when that is not possible. */
static bool end_want(struct end *e, uint32_t events)
{
	if (!events && e->hung_up) {
		if (e->watched)
			watch_del(&e->watch);
		e->watched = false;
		return true;
	}
	if (e->watched) {
		watch_set(&e->watch, events);
		return true;
	}
	e->watched = watch_add(&e->watch, e->watch.fd, events) == 0;
	return e->watched;
}

static uint32_t wanted(const struct pump *in, const struct pump *out)
{
	return (!in->over && !in->eof && !in->len ? EPOLLIN : 0u) |
	       (!out->over && (out->len || out->eof) ? EPOLLOUT : 0u);
}

static void run_pumps(struct relay *r)
{
	pump_run(&r->to_server, r->host.watch.fd, r->server.watch.fd);
	pump_run(&r->to_host, r->server.watch.fd, r->host.watch.fd);
	/* After the server's end, what the host still sends is read and dropped: if the connection
	 * were closed with unread bytes, a reset could overtake the server's last bytes. */
	bool over = r->to_host.over && r->to_server.over;
	if (over || r->to_host.discards ||
	    !end_want(&r->host, wanted(&r->to_server, &r->to_host)) ||
	    !end_want(&r->server, wanted(&r->to_host, &r->to_server)))
		relay_free(r);
}

static void on_server(struct watch *w, uint32_t events)
{
	struct relay *r = container_of(w, struct relay, server.watch);

	if (events & (EPOLLHUP | EPOLLERR))
		r->server.hung_up = true;
	run_pumps(r);
}

static void on_host(struct watch *w, uint32_t events)
{
	struct relay *r = container_of(w, struct relay, host.watch);
	bool hung_up = events & (EPOLLHUP | EPOLLERR);

	/* The host closed the connection, or the guest is a copy whose connections were reset.
	 * After the end of the other direction, a hang-up only means that the host has sent
	 * everything. */
	if (hung_up && (!r->connected || !r->to_host.over || (events & EPOLLERR))) {
		relay_free(r);
		return;
	}
	if (hung_up)
		r->host.hung_up = true;
	if (r->connected)
		run_pumps(r);
}

/* --- the connection to the server ----------------------------------------------------------- */

/* Puts the answer in front of the server's bytes. */
static void answer(struct relay *r, uint8_t type, size_t len)
{
	frame_header(r->to_host.buf, type, (uint32_t)len);
	r->to_host.len = AGENT_HEADER_SIZE + len;
	r->connected = true;
	run_pumps(r);
}

static void refuse(struct relay *r, int error)
{
	struct wire w = wire_on(r->to_host.buf + AGENT_HEADER_SIZE, ERR_TEXT_MAX + 16);
	struct err e;

	if (error == ECONNREFUSED)
		err_say(&e, error, "nothing listens on port %u in the sandbox", r->port);
	else
		err_set(&e, error, "connect to port %u", r->port);
	wire_put_u32(&w, (uint32_t)error);
	wire_put_str(&w, e.text, strlen(e.text));
	r->to_host.eof = true;
	r->to_server.over = true;
	r->server.hung_up = true; /* there is nothing to watch */
	answer(r, AGENT_ERROR, w.pos);
}

static int open_socket(int family, uint16_t port)
{
	const struct sockaddr_in in = {.sin_family = AF_INET,
				       .sin_port = htons(port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
					 .sin6_port = htons(port),
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	bool v4 = family == AF_INET;
	int on = 1;
	scoped_fd int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, v4 ? (const void *)&in : (const void *)&in6,
		    v4 ? sizeof(in) : sizeof(in6)) < 0 &&
	    errno != EINPROGRESS)
		return -errno;
	return take_fd(&fd);
}

static void on_connecting(struct watch *w, uint32_t events);

static int dial(struct relay *r, int family)
{
	int fd = open_socket(family, r->port);

	if (fd < 0)
		return fd;
	r->server.watch.fd = fd;
	r->server.watch.on_event = on_connecting;
	return end_want(&r->server, EPOLLOUT) ? 0 : -ENOMEM;
}

/* Continues at ::1 after a failure at 127.0.0.1. The error of the first attempt is reported: the
 * second one may fail because the guest has no IPv6. */
static void try_next(struct relay *r, int error)
{
	end_close(&r->server);
	if (r->tried_both) {
		refuse(r, r->first_error);
		return;
	}
	r->tried_both = true;
	r->first_error = error;
	if (dial(r, AF_INET6) < 0)
		try_next(r, error);
}

static void on_connecting(struct watch *w, uint32_t events)
{
	struct relay *r = container_of(w, struct relay, server.watch);
	socklen_t len = sizeof(int);
	int error = 0;

	if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error) {
		try_next(r, error);
		return;
	}
	w->on_event = on_server;
	answer(r, AGENT_DONE, 0);
}

/* Connects to the port, answers AGENT_DONE or AGENT_ERROR on `host`, and copies bytes until both
 * directions have ended. Takes ownership of `host`, a connection on which no bytes are pending. */
static void relay_start(int host, uint16_t port)
{
	struct relay *r =
		calloc(1, sizeof(*r)); /* pages of the buffers are allocated at first use */

	if (!r) {
		log_console("no memory for a connection to port %u", port);
		close(host);
		return;
	}
	n_relays++;
	r->port = port;
	r->host.watch = (struct watch){.fd = host, .on_event = on_host};
	r->server.watch.fd = -1;
	if (!end_want(&r->host, 0)) {
		relay_free(r);
		return;
	}
	int bad = dial(r, AF_INET);
	if (bad)
		try_next(r, -bad);
}

int ports_handle(struct conn *c, const struct frame *f, struct err *e)
{
	uint16_t port;
	int bad = dial_parse(f, &port, e);

	if (bad)
		return bad;
	if (c->out_len)
		return err_say(e, EPROTO, "dial: the last answer was not read yet");
	if (n_relays >= RELAYS_MAX) {
		err_say(e, EAGAIN, "%u connections to ports of this sandbox are open already",
			RELAYS_MAX);
		conn_refuse_unread(c, e);
		return 0;
	}
	relay_start(conn_detach(c), port);
	return 0;
}
