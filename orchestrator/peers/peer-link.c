// SPDX-License-Identifier: Apache-2.0
/*
 * Connections to other hosts. The host may be hostile or hang: it has CONNECT_MS, twice, to accept
 * a connection and HANDSHAKE_MS to prove who it is. After that it may be silent as long as the
 * request runs, but its machine must confirm what was sent.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "orchestrator/peers/internal.h"
#include "orchestrator/sandbox/op.h"

#define CONNECT_MS     250
#define ATTEMPTS       2
#define HANDSHAKE_MS   5000
#define UNCONFIRMED_MS 15000 /* a peer whose machine confirms nothing for so long is gone */
#define KEEPALIVE_S    5

struct link_op {
	struct op op;
	struct link *link; /* NULL after put_away */
};

struct link {
	struct op *op; /* NULL after put_away */
	struct peers *peers;
	struct loop *loop;
	struct port_sink sink;
	struct fleet_host host;
	char id[SANDBOX_ID_LEN + 1]; /* the id that the request is for */
	h2o_socket_t *sock;	     /* NULL: none */
	enum { DIALING, PROVING, OPEN } state;
	unsigned attempts;
	struct loop_timer deadline;
	struct text queued;
	bool writing;
	bool takes_no_more; /* a write has failed; the host may still answer */
	bool paused;
	bool safe;	   /* what was sent may be sent again */
	bool reused;	   /* the connection served another request before */
	struct text again; /* what was sent, as long as it may have to be sent again */
	bool answered;	   /* some bytes have arrived */
	/* `eof`: no more bytes come from the host; `ending`: none follow for the host. */
	bool eof, ending, keep;
	unsigned busy; /* nesting of callbacks; 0: may be freed */
};

static struct link *link_of(const struct op *op)
{
	return container_of(op, struct link_op, op)->link;
}

static void dial(struct link *k);

/* --- end ------------------------------------------------------------------------------------ */

static void free_if_idle(struct link *k)
{
	if (k->op || k->busy)
		return;
	text_free(&k->queued);
	text_free(&k->again);
	free(k);
}

static void close_link(struct link *k)
{
	loop_timer_clear(k->loop, &k->deadline);
	if (k->sock && k->keep && !k->eof && !k->writing)
		peer_idle_put(k->peers, &k->host, k->sock);
	else if (k->sock)
		h2o_socket_close(k->sock);
	k->sock = NULL;
}

static void put_away(struct op *op)
{
	struct link *k = link_of(op);

	if (!k)
		return;
	container_of(op, struct link_op, op)->link = NULL;
	close_link(k);
	k->op = NULL;
	free_if_idle(k);
}

static void finished(struct op *op)
{
	close_link(link_of(op));
}

/* Returns whether the operation has not ended. */
static bool is_live(const struct link *k)
{
	return k->op && (k->sock || loop_timer_is_set(&k->deadline));
}

static void abandon(struct op *op)
{
	op->abandoned = true;
	if (is_live(link_of(op)))
		op_free(op);
}

static void fail_dial(struct link *k, const char *reason)
{
	const struct fleet_host *host = &k->host;
	const int64_t now = realtime_ms() / 1000;
	struct failure f;

	if (!fleet_is_lost(host, now))
		failure_set(&f, FAIL_HOST_UNREACHABLE, 1,
			    "host %s, which has %s, cannot be reached (%s): try again", host->name,
			    k->id, reason);
	else
		failure_set(
			&f, FAIL_HOST_LOST, 0,
			"host %s, which has %s, has been gone for %lld minutes and counts as lost: "
			"make a new sandbox. This one can be used again only if the host comes "
			"back",
			host->name, k->id, (long long)(now - host->gone) / 60);
	op_finish(k->op, &f);
}

/* Dials anew because an idle connection was closed before the request arrived, or may have been.
 * Returns false if the request must not be sent twice. */
static bool begin_anew(struct link *k)
{
	if (!k->reused || !k->safe || k->answered)
		return false;
	h2o_socket_close(k->sock);
	k->reused = k->writing = k->takes_no_more = false;
	k->state = DIALING;
	dial(k);
	return true;
}

/* --- bytes of the host ---------------------------------------------------------------------- */

static void on_read(h2o_socket_t *sock, const char *err)
{
	struct link *k = sock->data;
	struct text bytes = {0};

	if (err && !sock->input->size && begin_anew(k))
		return;
	k->busy++;
	k->eof = err != NULL;
	k->answered = true;
	text_free(&k->again);
	/* The callee may close the socket. */
	text_add(&bytes, sock->input->bytes, sock->input->size);
	h2o_buffer_consume(&sock->input, sock->input->size);
	if (bytes.len)
		k->sink.data(k->op->arg, (uint8_t *)bytes.p, bytes.len);
	text_free(&bytes);
	if (err && is_live(k) && k->sink.eof)
		k->sink.eof(k->op->arg);
	/* The host may end its direction only: see end_output in port-tunnel.c. */
	if (err && is_live(k) && err == h2o_socket_error_closed && !k->ending)
		h2o_socket_read_stop(k->sock);
	else if (err && is_live(k))
		op_finish(k->op, NULL);
	k->busy--;
	free_if_idle(k);
}

static void receive(struct link *k)
{
	if (k->state != OPEN || !k->sock || k->eof)
		return;
	if (k->paused)
		h2o_socket_read_stop(k->sock);
	else
		h2o_socket_read_start(k->sock, on_read);
}

static void set_paused(struct op *op, bool paused)
{
	struct link *k = link_of(op);

	k->paused = paused;
	receive(k);
}

/* --- bytes for the host --------------------------------------------------------------------- */

static void write_next(struct link *k);

static void on_written(h2o_socket_t *sock, const char *err)
{
	struct link *k = sock->data;

	k->writing = false;
	if (err && begin_anew(k))
		return;
	if (err)
		k->takes_no_more = true;
	if (k->eof && k->takes_no_more)
		k->ending = true;
	write_next(k);
	if (k->writing || !k->sink.sent || !is_live(k) || k->ending)
		return;
	k->busy++;
	k->sink.sent(k->op->arg);
	k->busy--;
	free_if_idle(k);
}

/* Tells the host that no more bytes follow. Closes the TCP direction instead of sending TLS's
 * close_notify, which h2o does not offer. */
static void end_direction(struct link *k)
{
	if (!k->ending)
		return;
	if (k->eof || k->takes_no_more)
		op_finish(k->op, NULL);
	else
		shutdown(h2o_socket_get_fd(k->sock), SHUT_WR);
}

static void write_next(struct link *k)
{
	if (k->takes_no_more)
		k->queued.len = 0;
	if (k->writing || !k->sock)
		return;
	if (!k->queued.len) {
		end_direction(k);
		return;
	}
	h2o_iovec_t buf = {k->queued.p, k->queued.len};
	k->writing = true;
	/* The bytes are encrypted at once, so that the buffer is free afterwards. */
	h2o_socket_write(k->sock, &buf, 1, on_written);
	k->queued.len = 0;
}

bool peer_link_send(struct op *op, const void *data, size_t len)
{
	struct link *k = link_of(op);

	if (!k->sock || k->takes_no_more || k->ending)
		return false;
	if (k->reused && k->safe && !k->answered)
		text_add(&k->again, data, len);
	text_add(&k->queued, data, len);
	write_next(k);
	return true;
}

void peer_link_end(struct op *op)
{
	struct link *k = link_of(op);

	k->ending = true;
	write_next(k);
}

void peer_link_keep(struct op *op)
{
	link_of(op)->keep = true;
}

void peer_link_redirect(struct op *op, const struct port_sink *sink, void *arg)
{
	link_of(op)->sink = *sink;
	op->done_fn = sink->ended;
	op->arg = arg;
}

/* --- start ---------------------------------------------------------------------------------- */

/* Begins to use the connection. */
static void open_link(struct link *k)
{
	loop_timer_clear(k->loop, &k->deadline);
	k->state = OPEN;
	k->busy++;
	if (k->again.len) {
		text_add(&k->queued, k->again.p, k->again.len);
		text_free(&k->again);
		write_next(k);
	} else {
		k->sink.connected(k->op->arg);
	}
	receive(k);
	if (k->sock && k->sock->input->size)
		on_read(k->sock, NULL);
	k->busy--;
	free_if_idle(k);
}

static void on_proven(h2o_socket_t *sock, const char *err)
{
	struct link *k = sock->data;

	if (err) {
		peer_tls_failed(k->peers, &k->host, err);
		fail_dial(k, "its certificate is refused, or it refuses this host's");
		return;
	}
	open_link(k);
}

static void set_option(int fd, int level, int name, int value)
{
	/* If this fails, a dead host is noticed later. */
	setsockopt(fd, level, name, &value, sizeof(value));
}

static void set_options(h2o_socket_t *sock)
{
	int fd = h2o_socket_get_fd(sock);

	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, UNCONFIRMED_MS / 1000 / KEEPALIVE_S);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, UNCONFIRMED_MS);
}

static void on_connected(h2o_socket_t *sock, const char *err)
{
	struct link *k = sock->data;

	if (err) {
		h2o_socket_close(sock);
		k->sock = NULL; /* on_deadline tries again */
		return;
	}
	set_options(sock);
	k->state = PROVING;
	loop_timer_set(k->loop, &k->deadline, HANDSHAKE_MS);
	h2o_socket_ssl_handshake(sock, k->peers->client, k->host.name, on_proven);
}

static void dial(struct link *k)
{
	k->attempts++;
	k->sock = h2o_socket_connect(loop_h2o(k->loop), (struct sockaddr *)&k->host.at,
				     k->host.at_len, on_connected);
	if (k->sock)
		k->sock->data = k;
	loop_timer_set(k->loop, &k->deadline, CONNECT_MS);
}

/* Returns whether the connection is made; this host may be too busy to have noticed. */
static bool is_connected(const struct link *k)
{
	struct pollfd fd = {.events = POLLOUT};

	if (!k->sock)
		return false;
	fd.fd = h2o_socket_get_fd(k->sock);
	return poll(&fd, 1, 0) == 1 && !(fd.revents & (POLLERR | POLLHUP));
}

static void on_deadline(void *arg)
{
	struct link *k = arg;

	if (k->reused && k->state == DIALING) {
		open_link(k);
		return;
	}
	if (k->state == PROVING) {
		fail_dial(k, "it does not finish the TLS handshake");
		return;
	}
	if (is_connected(k)) {
		loop_timer_set(k->loop, &k->deadline, CONNECT_MS);
		return;
	}
	if (k->sock)
		h2o_socket_close(k->sock);
	k->sock = NULL;
	if (k->attempts < ATTEMPTS)
		dial(k);
	else
		fail_dial(k, "it does not accept connections");
}

static const struct op_methods link_ops = {
	.size = sizeof(struct link_op),
	.passive = true,
	.put_away = put_away,
	.finished = finished,
	.abandon = abandon,
	.set_paused = set_paused,
};

struct op *peer_link_connect(struct peers *p, struct service *c, const struct fleet_host *host,
			     const char *id, bool safe, const struct port_sink *sink, void *arg)
{
	struct op *op = op_new(c, &link_ops, arg);
	struct link *k = must_alloc(sizeof(*k));

	container_of(op, struct link_op, op)->link = k;
	k->op = op;
	k->peers = p;
	k->loop = p->loop;
	k->sink = *sink;
	op->done_fn = sink->ended;
	k->host = *host;
	snprintf(k->id, sizeof(k->id), "%s", id);
	k->deadline = (struct loop_timer){.fn = on_deadline, .arg = k};
	k->safe = safe;
	k->sock = peer_idle_take(p, host);
	if (!k->sock) {
		dial(k);
		return op;
	}
	k->reused = true;
	k->sock->data = k;
	loop_timer_set(k->loop, &k->deadline, 0); /* nothing is reported from here */
	return op;
}
