// SPDX-License-Identifier: Apache-2.0
/*
 * Latencies of the running service as a client on the same host sees them, over one keep-alive
 * HTTP/1.1 connection: a plain echo (the floor of every call), create from the pool, exec of a
 * one-line program in Python and in bash. Prints one JSON object.
 *
 *   http-latency --port 7070 --runs 200 --creates 30
 *   http-latency --port 7071 --empty --creates 10    (a service without a pool)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/stats.h"

#define ANSWER_MAX 65536
#define MS(ns)	   ((double)(ns) / 1e6)

struct answer {
	char text[ANSWER_MAX]; /* head and body, NUL-terminated */
	size_t len;
	int status;
	const char *body;
};

static void die(const char *what)
{
	fprintf(stderr, "http-latency: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* -1 when nobody listens. */
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

/* True once the answer is whole: by Content-Length, by the last chunk, or for a bodyless status. */
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

/* Returns the status; ends the program when the connection breaks. */
static int exchange(int fd, const char *method, const char *path, const char *body,
		    struct answer *a)
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
	return a->status;
}

static void call(int fd, const char *method, const char *path, const char *body, struct answer *a)
{
	if (exchange(fd, method, path, body, a) >= 300) {
		fprintf(stderr, "http-latency: %s %s: %s\n", method, path, a->text);
		exit(1);
	}
}

/* Connects once the service is there and ready; a service that starts is given `wait_s`. */
static int connect_to(uint16_t port, unsigned wait_s)
{
	static struct answer a;
	uint64_t until = bench_now_ns() + wait_s * 1000000000ull;

	for (;;) {
		int fd = try_connect(port);
		if (fd >= 0 && exchange(fd, "GET", "/v1/healthz", "", &a) == 200)
			return fd;
		if (fd >= 0)
			close(fd);
		if (bench_now_ns() >= until)
			break;
		usleep(50000);
	}
	fprintf(stderr, "http-latency: no ready service on port %u\n", port);
	exit(1);
}

static void sandbox_path(const struct answer *a, char *path, size_t size)
{
	const char *id = strstr(a->body, "sbx_");

	if (!id) {
		fprintf(stderr, "http-latency: no sandbox id in %s\n", a->body);
		exit(1);
	}
	snprintf(path, size, "/v1/sandboxes/%.36s", id);
}

/* A warm sandbox is ready again when the service says so; what is timed must start from there. */
static void wait_for_pool(int fd, struct answer *a)
{
	const char *level;

	do {
		call(fd, "GET", "/metrics", "", a);
		level = strstr(a->body, "\nramet_warm_ready ");
	} while (level && atoi(level + strlen("\nramet_warm_ready ")) == 0);
}

static void time_creates(int fd, unsigned runs, bool from_pool, struct samples *out)
{
	static struct answer a;
	char path[64];

	for (unsigned i = 0; i < runs; i++) {
		if (from_pool)
			wait_for_pool(fd, &a);
		uint64_t began = bench_now_ns();
		call(fd, "POST", "/v1/sandboxes", "{}", &a);
		samples_add(out, MS(bench_now_ns() - began));
		sandbox_path(&a, path, sizeof(path));
		call(fd, "DELETE", path, "", &a);
	}
}

static void time_calls(int fd, const char *method, const char *path, const char *body,
		       unsigned runs, struct samples *out)
{
	static struct answer a;

	for (unsigned i = 0; i < runs + 5; i++) {
		uint64_t began = bench_now_ns();
		call(fd, method, path, body, &a);
		if (i >= 5) /* the first ones warm caches up */
			samples_add(out, MS(bench_now_ns() - began));
	}
}

static void print_figure(struct samples *s, const char *name, const char *before)
{
	fputs(before, stdout);
	samples_print(s, name, "ms", stdout);
	samples_free(s);
}

static void measure_all(int fd, unsigned runs, unsigned creates)
{
	struct samples s = {0};
	static struct answer a;
	char sandbox[64], path[80];

	time_calls(fd, "GET", "/v1/healthz", "", runs, &s);
	print_figure(&s, "http_echo_ms", "{");
	time_creates(fd, creates, true, &s);
	print_figure(&s, "create_pool_ms", ", ");
	call(fd, "POST", "/v1/sandboxes", "{}", &a);
	sandbox_path(&a, sandbox, sizeof(sandbox));
	snprintf(path, sizeof(path), "%s/exec", sandbox);
	time_calls(fd, "POST", path, "{\"code\":\"print(1)\",\"output\":\"chunks\"}", runs, &s);
	print_figure(&s, "exec_python_ms", ", ");
	time_calls(fd, "POST", path,
		   "{\"code\":\"echo 1\",\"language\":\"bash\",\"output\":\"chunks\"}",
		   runs / 4 + 1, &s);
	print_figure(&s, "exec_bash_ms", ", ");
	call(fd, "DELETE", sandbox, "", &a);
	puts("}");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"port", required_argument, NULL, 'p'},	   {"runs", required_argument, NULL, 'r'},
		{"creates", required_argument, NULL, 'c'}, {"empty", no_argument, NULL, 'e'},
		{"wait", required_argument, NULL, 'w'},	   {0},
	};
	unsigned port = 7070, runs = 200, creates = 30, wait_s = 0;
	bool empty = false;

	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (o) {
		case 'p':
			port = (unsigned)atoi(optarg);
			break;
		case 'r':
			runs = (unsigned)atoi(optarg);
			break;
		case 'c':
			creates = (unsigned)atoi(optarg);
			break;
		case 'e':
			empty = true;
			break;
		case 'w':
			wait_s = (unsigned)atoi(optarg);
			break;
		default:
			return 2;
		}
	}
	int fd = connect_to((uint16_t)port, wait_s);
	if (empty) {
		struct samples s = {0};
		time_creates(fd, creates, false, &s);
		print_figure(&s, "create_empty_ms", "{");
		puts("}");
	} else {
		measure_all(fd, runs, creates);
	}
	close(fd);
	return 0;
}
