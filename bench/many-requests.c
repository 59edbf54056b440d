// SPDX-License-Identifier: Apache-2.0
/*
 * Sends one request to each path that it reads from its standard input, one in a line, by C clients
 * at once, for `bench thousand`. Prints how long each took, in the order of the paths, and all of
 * them together: {"ms": [...], "took_s": ...}.
 *
 *   many-requests --clients C [--wait] METHOD SUFFIX [BODY] <PATHS
 *
 * SUFFIX follows each path. With --wait, a request that is refused is repeated until it succeeds,
 * as after a restart of the service. Nothing is deleted at the end.
 */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/http.h"
#include "bench/stats.h"

#define PATHS_MAX   65536
#define CLIENTS_MAX 64
#define WAIT_S	    120
#define AGAIN_US    5000

static char paths[PATHS_MAX][2 * SANDBOX_PATH];
static unsigned n_paths, n_clients = 1;
static const char *method, *body = "";
static uint16_t port = 7070;
static bool waits;

static struct shared {
	unsigned next;	/* path that no client has taken yet */
	unsigned ready; /* clients that are connected */
	double ms[PATHS_MAX];
} * shared;

static void die(const char *what)
{
	fprintf(stderr, "many-requests: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void read_paths(const char *suffix)
{
	char line[SANDBOX_PATH];

	while (n_paths < PATHS_MAX && fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		snprintf(paths[n_paths++], sizeof(paths[0]), "%s%s", line, suffix);
	}
}

static void send_request(int fd, const char *path)
{
	static struct answer answer;

	while (waits && http_ask(fd, method, path, body, &answer) >= 300)
		usleep(AGAIN_US);
	if (!waits)
		http_call(fd, method, path, body, &answer);
	if (strstr(path, "/exec") && !strstr(answer.body, "\"exit\",\"data\":0")) {
		fprintf(stderr, "many-requests: %s: %s\n", path, answer.body);
		exit(1);
	}
}

/* Ends without the exit handlers: one of them deletes what a client has created. */
static _Noreturn void be_client(void)
{
	int fd = http_connect(port, WAIT_S);

	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_RELEASE);
	while (!waits && __atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE) < n_clients)
		usleep(100);
	for (;;) {
		unsigned i = __atomic_fetch_add(&shared->next, 1, __ATOMIC_RELAXED);

		if (i >= n_paths)
			_exit(0);
		uint64_t began = bench_now_ns();
		send_request(fd, paths[i]);
		shared->ms[i] = MS(bench_now_ns() - began);
	}
}

static void run_clients(void)
{
	pid_t pids[CLIENTS_MAX];
	int status = 0;

	for (unsigned i = 0; i < n_clients; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			die("fork");
		if (!pids[i])
			be_client();
	}
	for (unsigned i = 0; i < n_clients; i++)
		if (waitpid(pids[i], &status, 0) < 0 || status)
			exit(1); /* the client has said why */
}

static void print_times(double took_s)
{
	printf("{\"took_s\": %.4f, \"ms\": [", took_s);
	for (unsigned i = 0; i < n_paths; i++)
		printf("%s%.4f", i ? ", " : "", shared->ms[i]);
	puts("]}");
}

static bool read_options(int argc, char **argv)
{
	static const struct option options[] = {{"port", required_argument, NULL, 'p'},
						{"clients", required_argument, NULL, 'c'},
						{"wait", no_argument, NULL, 'w'},
						{0}};

	for (int o; (o = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
		if (o == 'p')
			port = (uint16_t)atoi(optarg);
		else if (o == 'c')
			n_clients = (unsigned)atoi(optarg);
		else if (o == 'w')
			waits = true;
		else
			return false;
	}
	return n_clients && n_clients <= CLIENTS_MAX && argc - optind >= 2;
}

int main(int argc, char **argv)
{
	if (!read_options(argc, argv)) {
		fprintf(stderr, "usage: many-requests --clients C [--wait] METHOD SUFFIX [BODY]\n");
		return 2;
	}
	method = argv[optind];
	body = argc - optind > 2 ? argv[optind + 2] : "";
	read_paths(argv[optind + 1]);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		die("shared memory");
	uint64_t began = bench_now_ns();
	run_clients();
	print_times(MS(bench_now_ns() - began) / 1e3);
	return 0;
}
