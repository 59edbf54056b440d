// SPDX-License-Identifier: Apache-2.0
/*
 * Times creates of many sizes over one keep-alive connection, against a service whose settings say
 * which sizes it prepares. Prints one JSON object with the figures of one mode:
 *
 *   warm    creates of prepared sizes, each from the pool
 *   blank   the same from blank VMs: the pool has warm sandboxes of the default size only
 *   first   creates of sizes that were never requested before
 *   during  create, first call and fork while images are being prepared, and after that
 *
 *   sizes-latency --port 7071 --runs 10 --mode warm
 */
#include <getopt.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/http.h"
#include "bench/stats.h"

#define PREPARED_S 10
#define FILLED_S   6
#define GROUPS	   "/sys/fs/cgroup/ramet-bench/ramet/vm-*/memory.stat"

#define BUSY_MS 1500 /* time that a build has run before the measurement starts */

struct create {
	const char *name, *body;
};

static const struct create prepared[] = {
	{"default_ms", "{}"},
	{"other_ram_ms", "{\"ram_mib\":2048}"},
	{"other_vcpus_ms", "{\"vcpus\":1}"},
	{"larger_disk_ms", "{\"rootfs_gb\":64}"},
	{"all_other_ms", "{\"ram_mib\":2048,\"vcpus\":1,\"rootfs_gb\":64}"},
};

static struct answer answer;

static double level(int fd, const char *name)
{
	http_call(fd, "GET", "/metrics", "", &answer);
	return http_number(&answer, name);
}

/* Waits until the pool has `warms` warm sandboxes, of which one has the default size. */
static void wait_for_pool(int fd, double warms)
{
	do
		usleep(20000);
	while (level(fd, "\nramet_warm_ready ") < warms ||
	       http_number(&answer, "\nramet_warm_default_ready ") < 1 ||
	       http_number(&answer, "\nramet_blank_vms_ready ") < 1);
}

/* Waits until the pool stops growing; returns the number of its warm sandboxes. */
static double fill_pool(int fd)
{
	double warms = -1;

	for (unsigned same = 0; same < FILLED_S; same++) {
		double now = level(fd, "\nramet_warm_ready ");

		if (now != warms)
			same = 0;
		warms = now;
		sleep(1);
	}
	return warms;
}

/* Creates a sandbox and sets its path; returns the time in ms. */
static double create(int fd, const char *body, char path[SANDBOX_PATH])
{
	uint64_t began = bench_now_ns();

	http_call(fd, "POST", "/v1/sandboxes", body, &answer);
	double ms = MS(bench_now_ns() - began);
	http_sandbox_path(&answer, 0, path);
	return ms;
}

static double time_create(int fd, const char *body)
{
	char path[SANDBOX_PATH];
	double ms = create(fd, body, path);

	http_call(fd, "DELETE", path, "", &answer);
	return ms;
}

/* The first create of each size is not counted, since it makes the pool prepare the size. */
static void time_prepared(int fd, const char *prefix, unsigned runs)
{
	for (size_t i = 0; i < sizeof(prepared) / sizeof(prepared[0]); i++) {
		struct samples s = {0};
		char name[64];

		time_create(fd, prepared[i].body);
		double warms = fill_pool(fd);
		for (unsigned n = 0; n < runs; n++) {
			wait_for_pool(fd, warms);
			samples_add(&s, time_create(fd, prepared[i].body));
		}
		snprintf(name, sizeof(name), "create_%s_%s", prefix, prepared[i].name);
		fputs(i ? ", " : "", stdout);
		samples_print(&s, name, "ms", stdout);
		samples_free(&s);
	}
}

/* Each create requests another RAM size, which has no image yet. */
static void time_first(int fd, unsigned runs)
{
	struct samples s = {0};
	char body[64];

	for (unsigned i = 0; i < runs; i++) {
		snprintf(body, sizeof(body), "{\"ram_mib\":%u}", 576 + 64 * i);
		wait_for_pool(fd, 1);
		samples_add(&s, time_create(fd, body));
	}
	samples_print(&s, "create_first_other_ram_ms", "ms", stdout);
	samples_free(&s);
}

/* --- the cost of preparation ------------------------------------------------------------------ */

static void print_one(double value, const char *name, const char *unit)
{
	struct samples s = {0};

	samples_add(&s, value);
	samples_print(&s, name, unit, stdout);
	fputs(", ", stdout);
	samples_free(&s);
}

/* Waits until all images are prepared: nothing has been built for a while. */
static void wait_until_prepared(int fd)
{
	uint64_t began = bench_now_ns(), changed = began, now;
	double boots = level(fd, "\nramet_template_boots_total "), at_first = boots, warms = 0;

	do {
		sleep(1);
		now = bench_now_ns();
		double warm = level(fd, "\nramet_warm_ready ");
		double made = http_number(&answer, "\nramet_template_boots_total ");
		if (warm != warms || made != boots ||
		    http_number(&answer, "\nramet_templates_building ") > 0)
			changed = now;
		warms = warm;
		boots = made;
	} while (now - changed < PREPARED_S * 1000000000ull);
	if (boots > at_first)
		print_one(MS(changed - began) / 1e3 / (boots - at_first), "prepare_size_s", "s");
}

/* Returns the memory of a cgroup in bytes, the kernel's part included. */
static double group_memory(const char *path)
{
	double bytes = 0, value;
	char name[64];
	FILE *f = fopen(path, "r");

	while (f && fscanf(f, "%63s %lf", name, &value) == 2)
		if (strcmp(name, "anon") == 0 || strcmp(name, "kernel") == 0)
			bytes += value;
	if (f)
		fclose(f);
	return bytes;
}

static void print_memory(void)
{
	struct samples s = {0};
	glob_t groups;

	if (glob(GROUPS, 0, NULL, &groups) != 0) {
		fprintf(stderr, "bench: there is no " GROUPS "\n");
		exit(1);
	}
	for (size_t i = 0; i < groups.gl_pathc; i++)
		samples_add(&s, group_memory(groups.gl_pathv[i]) / (1 << 20));
	samples_print(&s, "memory_of_one_in_the_pool_mib", "MiB", stdout);
	samples_free(&s);
	globfree(&groups);
}

/* --- during the preparation ------------------------------------------------------------------- */

struct rounds {
	struct samples create, call, fork;
};

static double timed_call(int fd, const char *sandbox, const char *what, const char *body)
{
	char path[SANDBOX_PATH + 16];
	uint64_t began = bench_now_ns();

	snprintf(path, sizeof(path), "%s/%s", sandbox, what);
	http_call(fd, "POST", path, body, &answer);
	return MS(bench_now_ns() - began);
}

static void time_round(int fd, struct rounds *r)
{
	char parent[SANDBOX_PATH], child[SANDBOX_PATH];

	samples_add(&r->create, create(fd, "{}", parent));
	samples_add(&r->call, timed_call(fd, parent, "exec", "{\"code\":\"x = 1\"}"));
	samples_add(&r->fork, timed_call(fd, parent, "fork", "{\"n\":1}"));
	http_sandbox_path(&answer, 0, child);
	http_call(fd, "DELETE", child, "", &answer);
	http_call(fd, "DELETE", parent, "", &answer);
}

static void print_rounds(struct rounds *r, const char *when)
{
	struct samples *const all[] = {&r->create, &r->call, &r->fork};
	static const char *const names[] = {"create", "first_call", "fork"};
	char name[64];

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		snprintf(name, sizeof(name), "%s_%s_ms", names[i], when);
		samples_print(all[i], name, "ms", stdout);
		fputs(", ", stdout);
		samples_free(all[i]);
	}
}

/* Waits until a build runs; returns false if no more builds start. */
static bool wait_for_build(int fd)
{
	uint64_t began = bench_now_ns();

	while (level(fd, "\nramet_templates_building ") < 1) {
		if (bench_now_ns() - began > PREPARED_S * 1000000000ull)
			return false;
		usleep(50000);
	}
	usleep(BUSY_MS * 1000);
	return true;
}

static void time_during(int fd, unsigned runs)
{
	struct rounds during = {0}, after = {0};

	for (unsigned i = 0; i < runs && wait_for_build(fd); i++) {
		wait_for_pool(fd, 1);
		time_round(fd, &during);
	}
	wait_until_prepared(fd);
	for (unsigned i = 0; i < runs; i++) {
		wait_for_pool(fd, 1);
		usleep(BUSY_MS * 1000);
		time_round(fd, &after);
	}
	print_one((double)during.create.n, "rounds_during", "rounds");
	print_rounds(&during, "during");
	print_rounds(&after, "after");
}

static void run(int fd, const char *mode, unsigned runs)
{
	if (strcmp(mode, "during") == 0) {
		time_during(fd, runs);
		print_memory();
		return;
	}
	wait_until_prepared(fd);
	if (strcmp(mode, "first") == 0)
		time_first(fd, runs);
	else
		time_prepared(fd, mode, runs);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"port", required_argument, NULL, 'p'},
		{"runs", required_argument, NULL, 'r'},
		{"wait", required_argument, NULL, 'w'},
		{"mode", required_argument, NULL, 'm'},
		{0},
	};
	unsigned port = 7070, runs = 10, wait_s = 0;
	const char *mode = "warm";

	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (o) {
		case 'p':
			port = (unsigned)atoi(optarg);
			break;
		case 'r':
			runs = (unsigned)atoi(optarg);
			break;
		case 'w':
			wait_s = (unsigned)atoi(optarg);
			break;
		case 'm':
			mode = optarg;
			break;
		default:
			return 2;
		}
	}
	int fd = http_connect((uint16_t)port, wait_s);
	fputs("{", stdout);
	run(fd, mode, runs);
	puts("}");
	close(fd);
	return 0;
}
