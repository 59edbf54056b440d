// SPDX-License-Identifier: Apache-2.0
/* The listener, its connections, and their TLS certificate. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/elements.h"
#include "base/fd.h"
#include "orchestrator/http/internal.h"

#define ACCEPTS_A_TURN	     16
#define FULL_LOG_INTERVAL_MS 60000

/* --- connections ---------------------------------------------------------------------------- */

static void accept_resume(struct http *h);

static void on_conn_close(void *data)
{
	struct conn *c = data;
	struct http *h = c->http;

	list_del(&c->link);
	h->counters.conns--;
	free(c);
	if (h->accept_paused && h->counters.conns < http_limits.connections)
		accept_resume(h);
}

static struct client peer_of(h2o_socket_t *sock)
{
	struct sockaddr_storage peer = {0};

	h2o_socket_getpeername(sock, (struct sockaddr *)&peer);
	return client_of((struct sockaddr *)&peer);
}

static bool is_admitted(struct http *h, const struct client *peer, bool local, bool from_peer)
{
	return (from_peer && h->peer_known(h->peer_arg, peer)) || limit_connection(h, peer, local);
}

static void conn_new(struct http *h, h2o_socket_t *sock, bool from_peer)
{
	struct client peer = peer_of(sock);
	bool local = (h->loopback && !from_peer) || client_is_loopback(&peer);

	if (!is_admitted(h, &peer, local, from_peer)) {
		h2o_socket_close(sock);
		return;
	}
	struct conn *c = must_alloc(sizeof(*c));
	c->http = h;
	c->sock = sock;
	c->peer = peer;
	c->local = local;
	c->from_peer = from_peer;
	c->began_ms = loop_now_ms(h->loop);
	c->proxied = from_peer || client_is_in(&peer, h->config->trusted_proxies);
	list_add_tail(&h->conns, &c->link);
	h->counters.conns++;
	h->counters.connections++;
	sock->on_close.cb = on_conn_close;
	sock->on_close.data = c;
	h2o_accept(from_peer ? &h->peer_accept : &h->accept, sock);
}

struct conn *conn_of(h2o_req_t *req)
{
	return req->conn->callbacks->get_socket(req->conn)->on_close.data;
}

struct conn *conn_began(h2o_req_t *req)
{
	struct conn *c = conn_of(req);

	c->requests++;
	return c;
}

void conn_ended(struct conn *c)
{
	struct http *h = c->http;

	list_del(&c->link);
	list_add_tail(&h->conns, &c->link);
	if (!--c->requests && h->accept_paused)
		conn_cut(c);
}

/* Shuts down the socket. h2o sees an error at its next read or write and closes the connection. */
void conn_cut(struct conn *c)
{
	c->cut = true;
	shutdown(h2o_socket_get_fd(c->sock), SHUT_RDWR);
}

bool conn_ends_apart(const struct conn *c)
{
	return c->from_peer || !c->sock->ssl;
}

void conn_count_reset(struct conn *c)
{
	uint64_t now = loop_now_ms(c->http->loop);
	char from[INET6_ADDRSTRLEN];

	if (now - c->resets_since_ms > RESETS_WINDOW_MS) {
		c->resets_since_ms = now;
		c->resets = 0;
	}
	if (++c->resets != RESETS_MAX)
		return;
	c->http->counters.resets_cut++;
	client_print(from, &c->peer);
	log_warn("closing a connection from %s, which reset %u requests within %u s", from,
		 RESETS_MAX, RESETS_WINDOW_MS / 1000);
	conn_cut(c);
}

/* --- the listener --------------------------------------------------------------------------- */

static void on_connect(h2o_socket_t *listener, const char *err);

static void accept_resume(struct http *h)
{
	h->accept_paused = false;
	if (h->listener)
		h2o_socket_read_start(h->listener, on_connect);
	if (h->peer_listener)
		h2o_socket_read_start(h->peer_listener, on_connect);
}

/* Stops accepting: new connections wait in the kernel's queue until there is room again. */
static void accept_pause(struct http *h)
{
	h->accept_paused = true;
	h2o_socket_read_stop(h->listener);
	if (h->peer_listener)
		h2o_socket_read_stop(h->peer_listener);
}

/* Closes idle connections to make room; on_conn_close then resumes accepting. Closes only a few at
 * a time, the least recently active first, since the newest are about to send a request. */
static void cut_idle(struct http *h)
{
	size_t left = 1 + http_limits.connections / 512;

	list_each_of (c, struct conn, link, &h->conns) {
		if (c->requests || c->cut)
			continue;
		conn_cut(c);
		if (!--left)
			return;
	}
}

static void on_full(struct http *h)
{
	uint64_t now = loop_now_ms(h->loop);

	if (!h->full_logged_ms || now - h->full_logged_ms > FULL_LOG_INTERVAL_MS) {
		h->full_logged_ms = now;
		log_warn("%zu connections are open: closing idle ones, new ones have to wait",
			 h->counters.conns);
	}
	accept_pause(h);
	cut_idle(h);
}

static void on_connect(h2o_socket_t *listener, const char *err)
{
	struct http *h = listener->data;

	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		if (h->counters.conns >= http_limits.connections) {
			if (i == 0) /* a connection certainly waits */
				on_full(h);
			return;
		}
		h2o_socket_t *sock = h2o_evloop_socket_accept(listener);
		if (!sock)
			return; /* no connection waits, or no descriptor is left: h2o will try again
				   later */
		conn_new(h, sock, listener == h->peer_listener);
	}
}

static int option(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value));
}

/* Sets options that connections inherit: a dead client machine is detected within two minutes. */
static int set_options(int fd)
{
	if (option(fd, SOL_SOCKET, SO_REUSEADDR, 1) || option(fd, SOL_SOCKET, SO_KEEPALIVE, 1) ||
	    option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60) ||
	    option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 15) || option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4))
		return -errno;
	return 0;
}

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	}
	const struct sockaddr_in6 *in6 = (const void *)sa;
	return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/* Refuses an address that other machines can reach if there are no keys, since everybody would have
 * full access, or no TLS, since anybody on the path could read the keys. */
static int check_exposure(const struct config *config, bool any_key, const struct sockaddr *sa,
			  struct err *e)
{
	if (is_loopback(sa) || strcmp(config->allow_open, "yes") == 0)
		return 0;
	if (!any_key)
		return err_say(
			e, EPERM,
			"listen_host %.40s can be reached from other machines, and there is no "
			"key: make one first (rametctl key create), or set listen_host to "
			"127.0.0.1, or allow_open = yes when the network keeps others out",
			config->listen_host);
	if (config->tls_cert[0])
		return 0;
	return err_say(
		e, EPERM,
		"listen_host %.40s can be reached from other machines, and keys would travel "
		"unprotected: set tls_cert and tls_key, or allow_open = yes when a proxy "
		"in front of it does TLS",
		config->listen_host);
}

/* Returns a listening socket, or -1 with errno set. */
static int open_socket(const struct sockaddr *sa, socklen_t len)
{
	scoped_fd int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || set_options(fd) < 0 || bind(fd, sa, len) < 0 || listen(fd, SOMAXCONN) < 0)
		return -1;
	return take_fd(&fd);
}

static h2o_socket_t *start(struct http *h, int fd)
{
	h2o_socket_t *listener =
		h2o_evloop_socket_create(loop_h2o(h->loop), fd, H2O_SOCKET_FLAG_DONT_READ);

	listener->data = h;
	h2o_socket_read_start(listener, on_connect);
	return listener;
}

static int bind_failed(const struct config *config, int errnum, struct err *e)
{
	if (errnum == EADDRINUSE)
		return err_say(e, errnum,
			       "port %u of %s is in use by another program: stop it, or choose "
			       "another listen_port",
			       config->listen_port, config->listen_host);
	return err_set(e, errnum, "listen on %s, port %u", config->listen_host,
		       config->listen_port);
}

static int open_listener(struct http *h, const struct addrinfo *ai, struct err *e)
{
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);
	int ret = check_exposure(h->config, keys_any(h->keys), ai->ai_addr, e);

	if (ret < 0)
		return ret;
	scoped_fd int fd = open_socket(ai->ai_addr, ai->ai_addrlen);
	if (fd < 0 || getsockname(fd, (struct sockaddr *)&bound, &len) < 0)
		return bind_failed(h->config, errno, e);
	h->port = h2o_socket_getport((struct sockaddr *)&bound);
	h->loopback = is_loopback(ai->ai_addr);
	h->listener = start(h, take_fd(&fd));
	return 0;
}

int http_listen_peers(struct http *h, const char *address, SSL_CTX *tls,
		      bool (*known)(void *arg, const struct client *from), void *arg, struct err *e)
{
	struct sockaddr_storage at;
	socklen_t len = address_port_parse(&at, address);
	int fd = open_socket((struct sockaddr *)&at, len);

	if (fd < 0)
		return err_set(e, errno, "listen on fleet_listen %s", address);
	h->peer_accept.ssl_ctx = tls;
	h->peer_known = known;
	h->peer_arg = arg;
	h->peer_listener = start(h, fd);
	return 0;
}

static int find_address(const struct config *config, struct addrinfo **out, struct err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
	char port[16];

	snprintf(port, sizeof(port), "%u", config->listen_port);
	int ret = getaddrinfo(config->listen_host, port, &hints, out);
	return ret ? err_say(e, EINVAL, "listen_host %s: %s", config->listen_host,
			     gai_strerror(ret))
		   : 0;
}

static int load_tls(SSL_CTX **out, const struct config *config, struct err *e);

int listen_start(struct http *h, struct err *e)
{
	struct addrinfo *ai;
	int ret = load_tls(&h->accept.ssl_ctx, h->config, e);

	if (ret == 0)
		ret = find_address(h->config, &ai, e);
	if (ret < 0)
		return ret;
	ret = open_listener(h, ai, e);
	freeaddrinfo(ai);
	return ret;
}

int http_check_exposure(const struct config *config, bool any_key, struct err *e)
{
	struct addrinfo *ai;
	int ret = find_address(config, &ai, e);

	if (ret < 0)
		return ret;
	ret = check_exposure(config, any_key, ai->ai_addr, e);
	freeaddrinfo(ai);
	return ret;
}

void listen_stop(struct http *h)
{
	if (h->listener)
		h2o_socket_close(h->listener);
	if (h->peer_listener)
		h2o_socket_close(h->peer_listener);
	h->listener = h->peer_listener = NULL;
}

/* --- TLS ------------------------------------------------------------------------------------ */

int http_tls_failed(struct err *e, const char *what, const char *file)
{
	char text[128] = "unknown error";
	unsigned long first = ERR_peek_error(), code = ERR_peek_last_error();

	if (ERR_SYSTEM_ERROR(first))
		snprintf(text, sizeof(text), "%s", strerror(ERR_GET_REASON(first)));
	else if (code)
		ERR_error_string_n(code, text, sizeof(text));
	ERR_clear_error();
	return err_say(e, EINVAL, "%s %s: %s", what, file, text);
}

#define USE_HTTPS "{\"error\":\"this port speaks TLS: use https\",\"code\":\"bad_request\"}"
_Static_assert(sizeof(USE_HTTPS) - 1 == 64, "the content-length");

/* OpenSSL calls this after each step of a handshake. If the first bytes are plain HTTP, which only
 * OpenSSL detects, sends an answer before h2o closes the connection. */
static void on_handshake_step(const SSL *ssl, int where, int ret)
{
	static const char answer[] = "HTTP/1.1 400 Bad Request\r\n"
				     "content-type: application/json\r\n"
				     "connection: close\r\ncontent-length: 64\r\n\r\n" USE_HTTPS;

	if (where == SSL_CB_ACCEPT_EXIT && ret <= 0 &&
	    ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_HTTP_REQUEST) {
		/* h2o's BIO holds the socket, to which nothing was written yet. */
		h2o_socket_t *sock = BIO_get_data(SSL_get_rbio(ssl));

		send(h2o_socket_get_fd(sock), answer, sizeof(answer) - 1,
		     MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

/* Sets *out if TLS is configured. */
static int load_tls(SSL_CTX **out, const struct config *config, struct err *e)
{
	if (!config->tls_cert[0])
		return 0;
	SSL_CTX *ctx = *out = SSL_CTX_new(TLS_server_method());
	if (!ctx)
		return http_tls_failed(e, "set up", "TLS");
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	if (SSL_CTX_use_certificate_chain_file(ctx, config->tls_cert) != 1)
		return http_tls_failed(e, "read the certificates in tls_cert", config->tls_cert);
	if (SSL_CTX_use_PrivateKey_file(ctx, config->tls_key, SSL_FILETYPE_PEM) != 1)
		return http_tls_failed(e, "read the key in tls_key", config->tls_key);
	if (SSL_CTX_check_private_key(ctx) != 1)
		return http_tls_failed(e, "the key does not belong to the certificate: tls_key",
				       config->tls_key);
	h2o_ssl_register_alpn_protocols(ctx, h2o_alpn_protocols);
	SSL_CTX_set_info_callback(ctx, on_handshake_step);
	return 0;
}

int http_check_tls(const struct config *config, struct err *e)
{
	SSL_CTX *ctx = NULL;
	int ret = load_tls(&ctx, config, e);

	SSL_CTX_free(ctx);
	return ret;
}
