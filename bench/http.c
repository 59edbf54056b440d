// SPDX-License-Identifier: Apache-2.0
#include "bench/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/stats.h"

#define OPEN_MAX 1024
#define ID_LEN	 36

/* Sandboxes that were created and not yet deleted. They are deleted when the program exits. */
static struct {
	char ids[OPEN_MAX][ID_LEN + 1];
	unsigned n;
	uint16_t port;
	bool ends; /* the program does */
} left;

static void die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	if (left.ends)
		_exit(1);
	exit(1);
}

/* Returns a connected socket, or -1 if nothing listens on the port. */
static int try_connect(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		die("socket");
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* Returns true once the answer is complete: by Content-Length, by the last chunk, or because its
 * status has no body. */
static bool is_whole(struct answer *a)
{
	char *end = strstr(a->text, "\r\n\r\n");

	if (!end)
		return false;
	a->status = atoi(a->text + strlen("HTTP/1.1 "));
	a->body = end + 4;
	const char *length = strcasestr(a->text, "content-length:");
	if (length && length < end)
		return a->len - (size_t)(a->body - a->text) >= strtoul(length + 15, NULL, 10);
	const char *chunked = strcasestr(a->text, "transfer-encoding: chunked");
	if (chunked && chunked < end)
		return a->len >= 5 && !memcmp(a->text + a->len - 5, "0\r\n\r\n", 5);
	return true;
}

/* Records the sandboxes that a successful request has created or deleted. */
static void note(const char *method, const char *path, const char *body)
{
	bool made = strcmp(path, "/v1/sandboxes") == 0 || strstr(path, "/fork");

	if (strcmp(method, "DELETE") == 0) {
		for (unsigned i = 0; i < left.n; i++)
			if (strstr(path, left.ids[i])) {
				memcpy(left.ids[i], left.ids[--left.n], sizeof(left.ids[i]));
				return;
			}
	}
	for (const char *id = strstr(body, "sbx_");
	     made && strcmp(method, "POST") == 0 && id && left.n < OPEN_MAX;
	     id = strstr(id + 1, "sbx_"))
		snprintf(left.ids[left.n++], sizeof(left.ids[0]), "%.*s", ID_LEN, id);
}

int http_ask(int fd, const char *method, const char *path, const char *body, struct answer *a)
{
	char request[2048];
	int n = snprintf(request, sizeof(request),
			 "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
			 "Content-Length: %zu\r\n\r\n%s",
			 method, path, strlen(body), body);

	if (write(fd, request, (size_t)n) != n)
		die("send");
	a->len = 0;
	do {
		ssize_t got = read(fd, a->text + a->len, sizeof(a->text) - 1 - a->len);
		if (got <= 0)
			die("the service closed the connection");
		a->len += (size_t)got;
		a->text[a->len] = 0;
	} while (!is_whole(a));
	if (a->status < 300)
		note(method, path, a->body);
	return a->status;
}

static void delete_left(void)
{
	static struct answer a;
	char path[SANDBOX_PATH];

	left.ends = true;
	while (left.n) {
		int fd = try_connect(left.port);

		if (fd < 0)
			return;
		snprintf(path, sizeof(path), "/v1/sandboxes/%s", left.ids[--left.n]);
		http_ask(fd, "DELETE", path, "", &a);
		close(fd);
	}
}

void http_call(int fd, const char *method, const char *path, const char *body, struct answer *a)
{
	if (http_ask(fd, method, path, body, a) >= 300) {
		fprintf(stderr, "bench: %s %s: %s\n", method, path, a->text);
		exit(1);
	}
}

/* Returns a connection once the service is ready. Ends the program after `wait_s`. */
int http_connect(uint16_t port, unsigned wait_s)
{
	static struct answer a;
	uint64_t until = bench_now_ns() + wait_s * 1000000000ull;

	left.port = port;
	atexit(delete_left);
	for (;;) {
		int fd = try_connect(port);
		if (fd >= 0 && http_ask(fd, "GET", "/v1/healthz", "", &a) == 200)
			return fd;
		if (fd >= 0)
			close(fd);
		if (bench_now_ns() >= until)
			break;
		usleep(50000);
	}
	fprintf(stderr, "bench: no ready service on port %u\n", port);
	exit(1);
}

void http_sandbox_path(const struct answer *a, unsigned nth, char path[SANDBOX_PATH])
{
	const char *id = strstr(a->body, "sbx_");

	for (; id && nth; nth--)
		id = strstr(id + 1, "sbx_");
	if (!id) {
		fprintf(stderr, "bench: no sandbox id in %s\n", a->body);
		exit(1);
	}
	snprintf(path, SANDBOX_PATH, "/v1/sandboxes/%.36s", id);
}

double http_number(const struct answer *a, const char *name)
{
	const char *at = strstr(a->body, name);

	if (!at) {
		fprintf(stderr, "bench: no %s in %s\n", name, a->body);
		exit(1);
	}
	at += strlen(name);
	return strtod(at + strspn(at, "\": "), NULL);
}
