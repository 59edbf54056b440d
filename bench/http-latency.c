// SPDX-License-Identifier: Apache-2.0
/*
 * Measures latencies of the running service as a client on the same host sees them, over one
 * keep-alive HTTP/1.1 connection: create from the pool, delete, and a bash call with one line.
 * Prints one JSON object. call-latency measures Python calls.
 *
 *   http-latency --port 7070 --runs 100 --creates 30
 *   http-latency --port 7071 --empty --creates 10    (a service without a pool)
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/http.h"
#include "bench/stats.h"

/* Waits until the pool has a warm sandbox of the default size. */
static void wait_for_pool(int fd, struct answer *a)
{
	do {
		http_call(fd, "GET", "/metrics", "", a);
	} while (http_number(a, "\nramet_warm_default_ready ") == 0);
}

static void time_creates(int fd, unsigned runs, bool from_pool, struct samples *out,
			 struct samples *deletes)
{
	static struct answer a;
	char path[SANDBOX_PATH];

	for (unsigned i = 0; i < runs; i++) {
		if (from_pool)
			wait_for_pool(fd, &a);
		uint64_t began = bench_now_ns();
		http_call(fd, "POST", "/v1/sandboxes", "{}", &a);
		samples_add(out, MS(bench_now_ns() - began));
		http_sandbox_path(&a, 0, path);
		began = bench_now_ns();
		http_call(fd, "DELETE", path, "", &a);
		samples_add(deletes, MS(bench_now_ns() - began));
	}
}

static void time_bash(int fd, const char *path, unsigned runs, struct samples *out)
{
	static const char body[] =
		"{\"code\":\"echo 1\",\"language\":\"bash\",\"output\":\"chunks\"}";
	static struct answer a;

	for (unsigned i = 0; i < runs + 5; i++) {
		uint64_t began = bench_now_ns();
		http_call(fd, "POST", path, body, &a);
		if (i >= 5) /* the first runs warm up the caches */
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
	struct samples s = {0}, deletes = {0};
	static struct answer a;
	char sandbox[SANDBOX_PATH], path[SANDBOX_PATH + 8];

	time_creates(fd, creates, true, &s, &deletes);
	print_figure(&s, "create_pool_ms", "{");
	print_figure(&deletes, "delete_ms", ", ");
	http_call(fd, "POST", "/v1/sandboxes", "{}", &a);
	http_sandbox_path(&a, 0, sandbox);
	snprintf(path, sizeof(path), "%s/exec", sandbox);
	time_bash(fd, path, runs, &s);
	print_figure(&s, "exec_bash_ms", ", ");
	http_call(fd, "DELETE", sandbox, "", &a);
	puts("}");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"port", required_argument, NULL, 'p'},	   {"runs", required_argument, NULL, 'r'},
		{"creates", required_argument, NULL, 'c'}, {"empty", no_argument, NULL, 'e'},
		{"wait", required_argument, NULL, 'w'},	   {0},
	};
	unsigned port = 7070, runs = 100, creates = 30, wait_s = 0;
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
	int fd = http_connect((uint16_t)port, wait_s);
	if (empty) {
		struct samples s = {0}, deletes = {0};
		time_creates(fd, creates, false, &s, &deletes);
		samples_free(&deletes);
		print_figure(&s, "create_empty_ms", "{");
		puts("}");
	} else {
		measure_all(fd, runs, creates);
	}
	close(fd);
	return 0;
}
