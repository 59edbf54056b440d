// SPDX-License-Identifier: Apache-2.0
/*
 * Creates of many sizes over one keep-alive connection, against a service that was started with
 * --sizes=auto and no images yet, or some: first it is waited until all is prepared, and told what
 * that took. With --shell: of one prepared size, and with a disk that is not, against a service
 * whose pool has warm sandboxes of the default size alone. Prints one JSON object.
 *
 *   sizes-latency --port 7071 --creates 10 [--shell]
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

#define SETTLED_S 10
#define GROUPS	  "/sys/fs/cgroup/ramet-bench/ramet/vm-*/memory.stat"

struct create {
	const char *name, *body;
};

static const struct create creates[] = {
	{"create_default_ms", "{}"},
	{"create_4g_16g_ms", "{\"ram_mib\":4096,\"rootfs_gb\":16}"},
	{"create_4g_20g_ms", "{\"ram_mib\":4096,\"rootfs_gb\":20}"},
	{"create_4g_64g_ms", "{\"ram_mib\":4096,\"rootfs_gb\":64}"},
	{"create_1_vcpu_300g_ms", "{\"vcpus\":1,\"rootfs_gb\":300}"},
	{"create_128m_ms", "{\"ram_mib\":128}"},
	{"create_700m_ms", "{\"ram_mib\":700}"},
	{"create_3000m_ms", "{\"ram_mib\":3000}"},
	{"create_most_ram_ms", "{\"ram_mib\":65536}"},
	{"create_1_vcpu_ms", "{\"vcpus\":1}"},
	{"create_40g_disk_ms", "{\"rootfs_gb\":40}"},
};

static const struct create second = {"create_4g_16g_second_ms",
				     "{\"ram_mib\":4096,\"rootfs_gb\":16}"};

static const struct create in_a_shell[] = {
	{"create_4g_16g_shell_ms", "{\"ram_mib\":4096,\"rootfs_gb\":16}"},
	{"create_4g_20g_grown_ms", "{\"ram_mib\":4096,\"rootfs_gb\":20}"},
	{"create_4g_1024g_grown_ms", "{\"ram_mib\":4096,\"rootfs_gb\":1024}"},
};

static struct answer answer;

static double level(int fd, const char *name)
{
	http_call(fd, "GET", "/metrics", "", &answer);
	return http_number(&answer, name);
}

/* What is timed starts from a pool that is full. */
static void wait_for_pool(int fd, double warms)
{
	do
		usleep(20000);
	while (level(fd, "\nramet_warm_ready ") < warms ||
	       http_number(&answer, "\nramet_shells_ready ") < 1);
}

/* Its time in ms; and the path of what it made. */
static double create(int fd, const char *body, char path[SANDBOX_PATH])
{
	uint64_t began = bench_now_ns();

	http_call(fd, "POST", "/v1/sandboxes", body, &answer);
	double ms = MS(bench_now_ns() - began);
	http_sandbox_path(&answer, 0, path);
	return ms;
}

/* Of the first; or of a second one, right after it. */
static double time_create(int fd, const struct create *what, bool again)
{
	char first[SANDBOX_PATH], path[SANDBOX_PATH];

	if (again)
		create(fd, what->body, first);
	double ms = create(fd, what->body, path);
	http_call(fd, "DELETE", path, "", &answer);
	if (again)
		http_call(fd, "DELETE", first, "", &answer);
	return ms;
}

static void time_creates(int fd, const struct create *what, unsigned runs, double warms, bool again)
{
	struct samples s = {0};

	for (unsigned i = 0; i < runs; i++) {
		wait_for_pool(fd, warms);
		samples_add(&s, time_create(fd, what, again));
	}
	samples_print(&s, what->name, "ms", stdout);
	samples_free(&s);
}

/* As a list, all of them. */
static void time_all(int fd, const struct create *all, size_t n, unsigned runs, double warms)
{
	for (size_t i = 0; i < n; i++) {
		fputs(i ? ", " : "", stdout);
		time_creates(fd, &all[i], runs, warms, false);
	}
}

/* --- what preparing costs --------------------------------------------------------------------- */

static void print_one(double value, const char *name, const char *unit)
{
	struct samples s = {0};

	samples_add(&s, value);
	samples_print(&s, name, unit, stdout);
	fputs(", ", stdout);
	samples_free(&s);
}

/* All that is prepared is there: nothing has been made for a while. Returns how many are warm. */
static double settle(int fd)
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
	} while (now - changed < SETTLED_S * 1000000000ull);
	if (boots > at_first)
		print_one(MS(changed - began) / 1e3 / (boots - at_first), "prepare_size_s", "s");
	return warms;
}

/* Of its own and of the kernel for it, in bytes. */
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
	fputs(", ", stdout);
	samples_free(&s);
	globfree(&groups);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"port", required_argument, NULL, 'p'},
		{"creates", required_argument, NULL, 'c'},
		{"wait", required_argument, NULL, 'w'},
		{"shell", no_argument, NULL, 's'},
		{0},
	};
	unsigned port = 7070, runs = 10, wait_s = 0;
	bool shell = false;

	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (o) {
		case 'p':
			port = (unsigned)atoi(optarg);
			break;
		case 'c':
			runs = (unsigned)atoi(optarg);
			break;
		case 'w':
			wait_s = (unsigned)atoi(optarg);
			break;
		case 's':
			shell = true;
			break;
		default:
			return 2;
		}
	}
	int fd = http_connect((uint16_t)port, wait_s);
	fputs("{", stdout);
	double warms = settle(fd);
	if (shell) {
		time_all(fd, in_a_shell, sizeof(in_a_shell) / sizeof(in_a_shell[0]), runs, warms);
	} else {
		print_memory();
		time_all(fd, creates, sizeof(creates) / sizeof(creates[0]), runs, warms);
		fputs(", ", stdout);
		time_creates(fd, &second, runs, warms, true);
	}
	puts("}");
	close(fd);
	return 0;
}
