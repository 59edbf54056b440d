// SPDX-License-Identifier: Apache-2.0
/*
 * A small server for the tests of libh2o's defects. It is built once with the patched and once with
 * the unpatched library.
 *   server [CERT.pem KEY.pem]
 * It prints its ports, "HTTP RAW", and serves until it is killed:
 *   /N         N bytes at once, 65536 at most
 *   /stream    64 KiB in chunks of 1 KiB
 *   /hold      never answered, like a request in progress
 *   /check     the length of the request's body, and whether it counts up in 64-bit numbers from 0
 *   /shutdown  begins the library's graceful stop
 *   /raw       reads the data that connections to the RAW port have sent
 *   /step/R/M  answers, then moves the wall clock by R ms and the monotonic clock by M ms, both
 *              between two runs of the loop
 *   other      counters, "name value" per line
 */
#include <arpa/inet.h>
#include <errno.h>
#include <h2o.h>
#include <h2o/http1.h>
#include <h2o/http2.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "../moved_clock.h"

static h2o_globalconf_t config;
static h2o_context_t ctx;
static h2o_accept_ctx_t accept_ctx;
static h2o_socket_t *raw[16];
static size_t nraw;

static struct {
	uint64_t started;      /* requests to /hold */
	uint64_t accept_calls; /* how often the listener was reported readable */
	uint64_t raw_max;      /* maximum bytes of one read of a RAW connection */
	uint64_t raw_total;
	uint64_t handshakes_max; /* maximum ClientHellos answered in one run of the loop */
	uint64_t handshakes;	 /* in this run */
	uint64_t run_max_us;	 /* maximum CPU time of one run */
} count;

static h2o_req_t *stepping; /* the request to answer between two runs of the loop, or NULL */

struct stream {
	h2o_generator_t super;
	unsigned left;
	bool breaks; /* it is broken off after the last chunk */
	char chunk[1024];
};

static void on_proceed(h2o_generator_t *gen, h2o_req_t *req)
{
	struct stream *s = (struct stream *)gen;
	h2o_iovec_t buf = h2o_iovec_init(s->chunk, sizeof(s->chunk));

	if (!s->left) {
		h2o_send(req, NULL, 0, H2O_SEND_STATE_ERROR);
		return;
	}
	s->left--;
	h2o_send(req, &buf, 1,
		 s->left || s->breaks ? H2O_SEND_STATE_IN_PROGRESS : H2O_SEND_STATE_FINAL);
}

static void serve_stream(h2o_req_t *req, unsigned chunks, bool breaks)
{
	struct stream *s = h2o_mem_alloc_pool(&req->pool, sizeof(*s));

	*s = (struct stream){.super = {on_proceed, NULL}, .left = chunks, .breaks = breaks};
	memset(s->chunk, 's', sizeof(s->chunk));
	h2o_start_response(req, &s->super);
	on_proceed(&s->super, req);
}

static void serve_bytes(h2o_req_t *req, h2o_iovec_t body)
{
	static h2o_generator_t gen;

	req->res.content_length = body.len;
	h2o_start_response(req, &gen);
	h2o_send(req, &body, 1, H2O_SEND_STATE_FINAL);
}

static void serve_number(h2o_req_t *req, size_t n)
{
	static char body[65536];

	memset(body, 'b', sizeof(body));
	serve_bytes(req, h2o_iovec_init(body, n < sizeof(body) ? n : sizeof(body)));
}

static void serve_check(h2o_req_t *req)
{
	char *line = h2o_mem_alloc_pool(&req->pool, 64);
	uint64_t number, i = 0;
	int n;

	for (; (i + 1) * sizeof(number) <= req->entity.len; i++) {
		memcpy(&number, req->entity.base + i * sizeof(number), sizeof(number));
		if (number != i)
			break;
	}
	n = snprintf(line, 64, "%zu %s", req->entity.len,
		     i == req->entity.len / sizeof(number) ? "good" : "bad");
	serve_bytes(req, h2o_iovec_init(line, (size_t)n));
}

static void serve_counters(h2o_req_t *req)
{
	char *text = h2o_mem_alloc_pool(&req->pool, 256);
	int n = snprintf(text, 256,
			 "started %" PRIu64 "\naccept_calls %" PRIu64 "\nraw_max %" PRIu64
			 "\nraw_total %" PRIu64 "\nhandshakes_max %" PRIu64 "\nrun_max_us %" PRIu64
			 "\n",
			 count.started, count.accept_calls, count.raw_max, count.raw_total,
			 count.handshakes_max, count.run_max_us);

	serve_bytes(req, h2o_iovec_init(text, (size_t)n));
}

static void on_raw_read(h2o_socket_t *sock, const char *err)
{
	if (err) {
		h2o_socket_close(sock);
		return;
	}
	if (sock->bytes_read > count.raw_max)
		count.raw_max = sock->bytes_read;
	count.raw_total += sock->bytes_read;
	h2o_buffer_consume(&sock->input, sock->input->size);
}

static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
	h2o_iovec_t path = req->path;

	req->res.status = 200;
	if (h2o_strtosize(path.base + 1, path.len - 1) != SIZE_MAX) {
		serve_number(req, h2o_strtosize(path.base + 1, path.len - 1));
	} else if (h2o_memis(path.base, path.len, H2O_STRLIT("/stream"))) {
		serve_stream(req, 64, false);
	} else if (h2o_memis(path.base, path.len, H2O_STRLIT("/broken"))) {
		serve_stream(req, 2, true);
	} else if (h2o_memis(path.base, path.len, H2O_STRLIT("/hold"))) {
		count.started++;
	} else if (h2o_memis(path.base, path.len, H2O_STRLIT("/check"))) {
		serve_check(req);
	} else if (path.len > 6 && memcmp(path.base, "/step/", 6) == 0) {
		stepping = req;
	} else {
		if (h2o_memis(path.base, path.len, H2O_STRLIT("/shutdown")))
			h2o_context_request_shutdown(&ctx);
		if (h2o_memis(path.base, path.len, H2O_STRLIT("/raw")))
			while (nraw)
				h2o_socket_read_start(raw[--nraw], on_raw_read);
		serve_counters(req);
	}
	return 0;
}

static void on_accept(h2o_socket_t *listener, const char *err)
{
	h2o_socket_t *sock;

	count.accept_calls++;
	if (!err && (sock = h2o_evloop_socket_accept(listener)))
		h2o_accept(&accept_ctx, sock);
}

static void on_raw_accept(h2o_socket_t *listener, const char *err)
{
	h2o_socket_t *sock;

	if (err || !(sock = h2o_evloop_socket_accept(listener)))
		return;
	if (nraw == sizeof(raw) / sizeof(raw[0]))
		h2o_socket_close(sock);
	else
		raw[nraw++] = sock;
}

static void die(const char *what)
{
	fprintf(stderr, "server: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Listens with fixed buffer sizes, so that it is known when a peer's reads or writes block. Returns
 * the port. */
static int listen_on_loopback(int sndbuf, int rcvbuf, h2o_socket_cb cb)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf)) ||
	    bind(fd, (struct sockaddr *)&sin, len) || listen(fd, 512) ||
	    getsockname(fd, (struct sockaddr *)&sin, &len))
		die("listen");
	h2o_socket_read_start(h2o_evloop_socket_create(ctx.loop, fd, H2O_SOCKET_FLAG_DONT_READ),
			      cb);
	return ntohs(sin.sin_port);
}

/* Called once in each handshake, when its ClientHello is answered. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
		   const unsigned char *in, unsigned in_len, void *arg)
{
	static const unsigned char h2[] = {2, 'h', '2'};

	count.handshakes++;
	return SSL_select_next_proto((unsigned char **)out, out_len, h2, sizeof(h2), in, in_len) ==
			       OPENSSL_NPN_NEGOTIATED
		       ? SSL_TLSEXT_ERR_OK
		       : SSL_TLSEXT_ERR_NOACK;
}

static SSL_CTX *tls_context(const char *cert, const char *key)
{
	SSL_CTX *ssl = SSL_CTX_new(TLS_server_method());

	if (!ssl || SSL_CTX_use_certificate_file(ssl, cert, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM) != 1)
		die("certificate");
	SSL_CTX_set_alpn_select_cb(ssl, on_alpn, NULL);
	return ssl;
}

static void count_run(void)
{
	static uint64_t before_us;
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	uint64_t now_us = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
	if (before_us && now_us - before_us > count.run_max_us)
		count.run_max_us = now_us - before_us;
	before_us = now_us;
}

static void between_runs(void)
{
	long long real_ms, monotonic_ms;
	h2o_req_t *req = stepping;

	count_run();
	if (count.handshakes > count.handshakes_max)
		count.handshakes_max = count.handshakes;
	count.handshakes = 0;
	stepping = NULL;
	if (!req)
		return;
	if (sscanf(req->path.base, "/step/%lld/%lld", &real_ms, &monotonic_ms) != 2)
		die("step");
	serve_counters(req);
	not_moved.real_ms += real_ms;
	not_moved.monotonic_ms += monotonic_ms;
}

int main(int argc, char **argv)
{
	h2o_hostconf_t *host;
	h2o_handler_t *handler;
	int http, raw_port;

	signal(SIGPIPE, SIG_IGN);
	h2o_config_init(&config);
#ifdef H2O_DEFAULT_MAX_TOTAL_REQUEST_ENTITY_SIZE
	config.max_total_request_entity_size = 32 << 20;
#endif
	host = h2o_config_register_host(&config, h2o_iovec_init(H2O_STRLIT("default")), 65535);
	handler = h2o_create_handler(h2o_config_register_path(host, "/", 0), sizeof(*handler));
	handler->on_req = on_request;
	h2o_context_init(&ctx, h2o_evloop_create(), &config);
	accept_ctx.ctx = &ctx;
	accept_ctx.hosts = config.hosts;
	if (argc == 3)
		accept_ctx.ssl_ctx = tls_context(argv[1], argv[2]);

	http = listen_on_loopback(32 << 10, 256 << 10, on_accept);
	raw_port = listen_on_loopback(32 << 10, 4 << 20, on_raw_accept);
	printf("%d %d\n", http, raw_port);
	fflush(stdout);
	while (h2o_evloop_run(ctx.loop, INT32_MAX) == 0 || errno == EINTR)
		between_runs();
	die("loop");
}
