// SPDX-License-Identifier: Apache-2.0
/*
 * Connections of clients that have changed their protocol: WebSocket, or any over TCP. Bytes are
 * copied between the client's socket and the connection to the server, at most some 64 KiB in each
 * direction at a time. Each direction ends on its own.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "orchestrator/ports/relay.h"
#include "orchestrator/store/keys.h"

struct port_tunnel {
	struct list link; /* in http_upgraded */
	struct loop *loop;
	struct conn *conn;		/* of the client; counts the tunnel as a request */
	h2o_socket_t *sock;		/* NULL until h2o hands it over, and once it is closed */
	struct op *op;			/* NULL once the connection to the server has ended */
	const struct relay_link *relay; /* of `op` */
	const struct key *key;		/* NULL: none was used */
	struct text out, sending;	/* for the client */
	bool writing;
	bool client_eof, server_eof; /* no more bytes from this side */
	/* The client was notified that the server's direction has ended. */
	bool shut;
	bool apart; /* each direction of the client's connection can end on its own */
	bool closing;
	uint64_t ended_ms; /* when the connection to the server ended */
};

static void tunnel_free(struct port_tunnel *t)
{
	list_del(&t->link);
	text_free(&t->out);
	text_free(&t->sending);
	free(t);
}

/* Closes both connections, the client's after a write in flight. */
static void tunnel_close(struct port_tunnel *t)
{
	if (t->op)
		op_abandon(t->op);
	t->op = NULL;
	t->closing = true;
	if (t->writing) {
		shutdown(h2o_socket_get_fd(t->sock), SHUT_RDWR);
		return;
	}
	if (t->sock) {
		conn_ended(t->conn);
		h2o_socket_close(t->sock);
	}
	tunnel_free(t);
}

/* Closes a tunnel whose socket h2o has not handed over yet: h2o hands it over once the answer is
 * written. */
static void close_early(struct port_tunnel *t)
{
	t->closing = true;
	conn_cut(t->conn);
}

/* --- to the client -------------------------------------------------------------------------- */

static void flush(struct port_tunnel *t);

static void on_written(h2o_socket_t *sock, const char *err)
{
	struct port_tunnel *t = sock->data;

	t->writing = false;
	t->sending.len = 0;
	if (err || t->closing) {
		tunnel_close(t);
		return;
	}
	if (t->op)
		op_resume(t->op);
	flush(t);
}

/* Passes on the server's end. */
static void end_output(struct port_tunnel *t)
{
	if (t->shut)
		return;
	t->shut = true;
	if (!t->apart || !t->op)
		tunnel_close(t);
	else
		shutdown(h2o_socket_get_fd(t->sock), SHUT_WR);
}

static void flush(struct port_tunnel *t)
{
	struct text empty = t->sending;

	if (t->writing || !t->sock)
		return;
	if (!t->out.len) {
		if (t->server_eof)
			end_output(t);
		return;
	}
	t->sending = t->out;
	t->out = empty;
	t->writing = true;
	h2o_iovec_t buf = {t->sending.p, t->sending.len};
	h2o_socket_write(t->sock, &buf, 1, on_written);
}

static void on_data(void *arg, const uint8_t *data, size_t len)
{
	struct port_tunnel *t = arg;

	text_add(&t->out, data, len);
	op_pause(t->op);
	flush(t);
}

static void on_eof(void *arg)
{
	struct port_tunnel *t = arg;

	t->server_eof = true;
	flush(t);
}

static void on_ended(void *arg, const struct failure *f)
{
	struct port_tunnel *t = arg;

	t->op = NULL;
	t->server_eof = true;
	t->ended_ms = loop_now_ms(t->loop);
	if (!t->sock)
		close_early(t);
	else if (f || t->shut)
		tunnel_close(t);
	else
		flush(t);
}

/* --- from the client ------------------------------------------------------------------------ */

static void on_read(h2o_socket_t *sock, const char *err)
{
	struct port_tunnel *t = sock->data;
	h2o_buffer_t *in = sock->input;

	if (in->size && t->op && t->relay->send(t->op, in->bytes, in->size))
		h2o_socket_read_stop(sock); /* until it is sent */
	h2o_buffer_consume(&sock->input, in->size);
	if (!err)
		return;
	t->client_eof = true;
	h2o_socket_read_stop(sock);
	/* The connection to the server ends once the server has taken what was sent. */
	if (t->op)
		t->relay->end(t->op);
	else
		tunnel_close(t);
}

static void on_sent(void *arg)
{
	struct port_tunnel *t = arg;

	if (t->sock && !t->client_eof)
		h2o_socket_read_start(t->sock, on_read);
}

/* --- start and end -------------------------------------------------------------------------- */

static const struct port_sink sink = {
	.data = on_data, .eof = on_eof, .sent = on_sent, .ended = on_ended};

/* h2o has sent the answer and hands over the socket; NULL: that failed. */
static void on_upgraded(void *arg, h2o_socket_t *sock, size_t head_len)
{
	struct port_tunnel *t = arg;

	t->sock = sock;
	t->apart = sock && conn_ends_apart(t->conn);
	if (!sock || t->closing) {
		tunnel_close(t);
		return;
	}
	sock->data = t;
	h2o_buffer_consume(&sock->input, head_len);
	op_resume(t->op);
	h2o_socket_read_start(sock, on_read);
	if (sock->input->size)
		on_read(sock, NULL);
	flush(t);
}

void port_tunnel_begin(struct request *r, const struct relay_link *link, const void *first,
		       size_t len)
{
	struct port_tunnel *t = must_alloc(sizeof(*t));

	t->op = r->op;
	t->relay = link;
	t->key = r->key;
	t->loop = r->loop;
	list_add_tail(http_upgraded(r->http), &t->link);
	text_add(&t->out, first, len);
	t->relay->redirect(t->op, &sink, t);
	op_pause(t->op);
	request_upgrade(r, &t->conn, on_upgraded, t);
}

/* Returns whether the client does not read the last bytes of a server whose connection has ended.
 * Before that end, the idle timeout of the connection applies. */
static bool is_stalled(const struct port_tunnel *t)
{
	return !t->op && loop_now_ms(t->loop) - t->ended_ms >= http_limits.write_ms;
}

void port_tunnels_cut(struct http *h, bool all)
{
	list_each_of_safe (t, struct port_tunnel, link, http_upgraded(h)) {
		if (!all && (!t->key || key_is_good(t->key)) && !is_stalled(t))
			continue;
		if (t->sock)
			tunnel_close(t);
		else
			close_early(t);
	}
}
