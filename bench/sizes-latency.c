// SPDX-License-Identifier: Apache-2.0
/*
 * Creates of 4 GB RAM and 16 GB of disk beside creates of the default size, over one keep-alive
 * connection, against a service whose pool holds warm sandboxes of the default size alone, or
 * (--pooled) one of the other size, too, as after it was asked for. Prints one JSON object.
 *
 *   sizes-latency --port 7071 --creates 10 [--pooled]
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/http.h"
#include "bench/stats.h"

#define DEFAULT "{}"
#define LARGE	"{\"ram_mib\":4096,\"rootfs_gb\":16}"

static struct answer answer;

/* What is timed starts from a pool that is full. */
static void wait_for_pool(int fd, double warms)
{
	do {
		usleep(20000);
		http_call(fd, "GET", "/metrics", "", &answer);
	} while (http_number(&answer, "\nramet_warm_ready ") < warms ||
		 http_number(&answer, "\nramet_shells_ready ") < 1);
}

static double time_create(int fd, const char *body)
{
	uint64_t began = bench_now_ns();
	char path[SANDBOX_PATH];

	http_call(fd, "POST", "/v1/sandboxes", body, &answer);
	double ms = MS(bench_now_ns() - began);
	http_sandbox_path(&answer, 0, path);
	http_call(fd, "DELETE", path, "", &answer);
	return ms;
}

static void time_creates(int fd, const char *body, unsigned runs, double warms, const char *name,
			 const char *before)
{
	struct samples s = {0};

	for (unsigned i = 0; i < runs; i++) {
		wait_for_pool(fd, warms);
		samples_add(&s, time_create(fd, body));
	}
	fputs(before, stdout);
	samples_print(&s, name, "ms", stdout);
	samples_free(&s);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"port", required_argument, NULL, 'p'},
		{"creates", required_argument, NULL, 'c'},
		{"wait", required_argument, NULL, 'w'},
		{"pooled", no_argument, NULL, 'o'},
		{0},
	};
	unsigned port = 7070, creates = 10, wait_s = 0;
	bool pooled = false;

	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (o) {
		case 'p':
			port = (unsigned)atoi(optarg);
			break;
		case 'c':
			creates = (unsigned)atoi(optarg);
			break;
		case 'w':
			wait_s = (unsigned)atoi(optarg);
			break;
		case 'o':
			pooled = true;
			break;
		default:
			return 2;
		}
	}
	int fd = http_connect((uint16_t)port, wait_s);
	time_create(fd, LARGE); /* its image is there from now on */
	if (pooled) {
		time_creates(fd, LARGE, creates, 2, "create_4g_16g_warm_ms", "{");
	} else {
		time_creates(fd, DEFAULT, creates, 1, "create_default_ms", "{");
		time_creates(fd, LARGE, creates, 1, "create_4g_16g_shell_ms", ", ");
	}
	puts("}");
	close(fd);
	return 0;
}
