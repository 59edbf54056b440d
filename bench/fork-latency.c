// SPDX-License-Identifier: Apache-2.0
/*
 * Times forks as a client on the same host sees them. For each number of children: the time until
 * the answer, until the first instruction of the last child (as the service reports it), and until
 * the last child has answered a call. Then the parent's pause while it is idle and while it writes
 * memory, later and first forks of a sandbox that has written a given number of megabytes, forks at
 * a given depth, and the number of children for which the host has room. Prints one JSON object.
 *
 *   fork-latency --port 7070 --pool 6 --runs 10 --children 1,2,5 --dirty 1,7 --depth 8
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/http.h"
#include "bench/stats.h"

#define LIST_MAX     16
#define DENSITY_LOT  8u
#define DENSITY_BODY "{\"n\":8}"
#define SAME_MS	     5000u

static struct answer answer;
static int fd;
static unsigned runs = 10;
static unsigned poll_ms = 200; /* of the pool's level */
/* Code that a sandbox runs before its pauses are measured. */
static const char *idle_code = "x=1";
static const char *writing_code = "import threading\\n"
				  "def f():\\n"
				  "  b=bytearray(16<<20)\\n"
				  "  while True:\\n"
				  "    b[::4096]=bytes([b[0]^1])*(len(b)//4096)\\n"
				  "threading.Thread(target=f,daemon=True).start()";
static unsigned pool; /* blank VMs and warm sandboxes that the service keeps */
static bool printed;

struct list_of {
	unsigned n, value[LIST_MAX];
};

static void call(const char *method, const char *path, const char *body)
{
	http_call(fd, method, path, body, &answer);
}

static void print_figure(struct samples *s, const char *unit, const char *format, unsigned number)
{
	char name[64];

	snprintf(name, sizeof(name), format, number);
	fputs(printed ? ", " : "{", stdout);
	printed = true;
	samples_print(s, name, unit, stdout);
	samples_free(s);
}

static void exec(const char *sandbox, const char *code)
{
	char path[SANDBOX_PATH + 8], body[1024];

	snprintf(path, sizeof(path), "%s/exec", sandbox);
	snprintf(body, sizeof(body), "{\"code\":\"%s\",\"output\":\"chunks\"}", code);
	call("POST", path, body);
	if (!strstr(answer.body, "\"type\":\"exit\",\"data\":0")) {
		fprintf(stderr, "bench: a call did not end well: %s\n", answer.body);
		exit(1);
	}
}

static void create_as(char sandbox[SANDBOX_PATH], const char *body, const char *code)
{
	call("POST", "/v1/sandboxes", body);
	http_sandbox_path(&answer, 0, sandbox);
	exec(sandbox, code);
}

static void create(char sandbox[SANDBOX_PATH], const char *code)
{
	create_as(sandbox, "{}", code);
}

static double level(const char *name)
{
	call("GET", "/metrics", "");
	return http_number(&answer, name);
}

static double memory_available_kib(void)
{
	char line[128];
	double kib = 0;
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %lf", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* Waits until the pool is full, or has stopped growing because the host is full. Nothing is being
 * prepared then that would disturb the measurement. */
static void wait_for_pool(void)
{
	unsigned now = 0, same = 0;

	while (now < pool && same * poll_ms < SAME_MS) {
		unsigned before = now;

		usleep(poll_ms * 1000);
		now = (unsigned)(level("\nramet_blank_vms_ready ") + level("\nramet_warm_ready "));
		same = now == before ? same + 1 : 0;
	}
}

struct forked {
	double answer_ms, ready_ms, pause_ms, copied_kib;
	unsigned n;
	char (*children)[SANDBOX_PATH];
};

static void fork_of(const char *parent, unsigned n, struct forked *f)
{
	char path[SANDBOX_PATH + 8], body[32];
	uint64_t began;

	snprintf(path, sizeof(path), "%s/fork", parent);
	snprintf(body, sizeof(body), "{\"n\":%u}", n);
	wait_for_pool();
	began = bench_now_ns();
	call("POST", path, body);
	f->answer_ms = MS(bench_now_ns() - began);
	f->ready_ms = http_number(&answer, "\"ready_us\"") / 1e3;
	f->pause_ms = http_number(&answer, "\"pause_us\"") / 1e3;
	f->copied_kib = http_number(&answer, "\"copied_bytes\"") / 1024;
	f->n = n;
	f->children = calloc(n, sizeof(*f->children));
	if (!f->children)
		abort();
	for (unsigned i = 0; i < n; i++)
		http_sandbox_path(&answer, i, f->children[i]);
}

static void drop(struct forked *f)
{
	for (unsigned i = 0; i < f->n; i++)
		call("DELETE", f->children[i], "");
	free(f->children);
}

static double private_kib(const char *sandbox)
{
	call("GET", sandbox, "");
	return http_number(&answer, "\"memory_private_bytes\"") / 1024;
}

/* Returns the number of runs, which is lower for a measurement that takes long. */
static unsigned runs_of(bool is_long)
{
	return is_long && runs > 4 ? runs / 4 : runs;
}

static struct samples any_private; /* for all numbers of children */

/* Measures first forks: each run creates a new parent. */
static void measure_children(unsigned n)
{
	struct samples total = {0}, ready = {0}, usable = {0}, private = {0}, copied = {0};
	char parent[SANDBOX_PATH];

	for (unsigned i = 0; i < runs_of(n > 10); i++) {
		struct forked f;
		uint64_t began;

		create(parent, "x=1");
		fork_of(parent, n, &f);
		samples_add(&private, private_kib(f.children[0]));
		samples_add(&any_private, private.v[i]);
		began = bench_now_ns();
		exec(f.children[n - 1], "print(x)");
		samples_add(&usable, f.answer_ms + MS(bench_now_ns() - began));
		samples_add(&total, f.answer_ms);
		samples_add(&ready, f.ready_ms);
		samples_add(&copied, f.copied_kib);
		drop(&f);
		call("DELETE", parent, "");
	}
	print_figure(&ready, "ms", "child_ready_n%u_ms", n);
	print_figure(&total, "ms", "fork_answer_n%u_ms", n);
	print_figure(&usable, "ms", "child_usable_n%u_ms", n);
	print_figure(&private, "KiB", "private_kib_per_child_n%u", n);
	print_figure(&copied, "KiB", "copied_kib_n%u", n);
}

/* Measures forks of one parent; the names say what `code` does meanwhile. */
static void measure_pause(const char *pause_name, const char *answer_name, const char *code,
			  unsigned forks)
{
	struct samples pause = {0}, answered = {0};
	char parent[SANDBOX_PATH];

	create(parent, code);
	for (unsigned i = 0; i < forks; i++) {
		struct forked f;

		fork_of(parent, 1, &f);
		samples_add(&pause, f.pause_ms);
		samples_add(&answered, f.answer_ms);
		drop(&f);
	}
	call("DELETE", parent, "");
	print_figure(&pause, "ms", pause_name, 0);
	print_figure(&answered, "ms", answer_name, 0);
}

static void measure_dirty(unsigned mb)
{
	struct samples pause = {0}, ready = {0};
	char parent[SANDBOX_PATH], code[256];

	snprintf(code, sizeof(code), "b=bytearray(%u<<20)", mb);
	create(parent, code);
	for (unsigned i = 0; i < runs_of(mb > 7); i++) {
		struct forked f;

		exec(parent, "b[::4096]=bytes([b[0]^1])*(len(b)//4096)");
		fork_of(parent, 1, &f);
		samples_add(&pause, f.pause_ms);
		samples_add(&ready, f.ready_ms);
		drop(&f);
	}
	call("DELETE", parent, "");
	print_figure(&pause, "ms", "parent_pause_dirty_%umb_ms", mb);
	print_figure(&ready, "ms", "child_ready_dirty_%umb_ms", mb);
}

/* Measures first forks of a sandbox that wrote `mb` MiB before, half of its RAM. */
static void measure_touched(unsigned mb)
{
	struct samples pause = {0}, ready = {0};
	char parent[SANDBOX_PATH], body[32], code[256];

	snprintf(body, sizeof(body), "{\"ram_mib\":%u}", 2 * mb);
	snprintf(code, sizeof(code), "b=bytearray(%u<<20)\\nb[::4096]=bytes([1])*(len(b)//4096)",
		 mb);
	for (unsigned i = 0; i < runs_of(mb > 7); i++) {
		struct forked f;

		create_as(parent, body, code);
		fork_of(parent, 1, &f);
		samples_add(&pause, f.pause_ms);
		samples_add(&ready, f.ready_ms);
		drop(&f);
		call("DELETE", parent, "");
	}
	print_figure(&pause, "ms", "parent_pause_touched_%umb_ms", mb);
	print_figure(&ready, "ms", "child_ready_touched_%umb_ms", mb);
}

/* Builds a chain in which each sandbox is a fork of the previous one; times the last fork. */
static void measure_depth(unsigned depth)
{
	struct samples ready = {0}, pause = {0};
	char at[SANDBOX_PATH];

	create(at, "x=1");
	for (unsigned i = 0; i < depth + runs; i++) {
		struct forked f;

		fork_of(at, 1, &f);
		if (i >= depth) {
			samples_add(&ready, f.ready_ms);
			samples_add(&pause, f.pause_ms);
		}
		call("DELETE", at, "");
		memcpy(at, f.children[0], sizeof(at));
		exec(at, "x+=1");
		free(f.children);
	}
	call("DELETE", at, "");
	print_figure(&ready, "ms", "child_ready_depth_%u_ms", depth);
	print_figure(&pause, "ms", "parent_pause_depth_%u_ms", depth);
}

/*
 * Forks a sandbox, DENSITY_LOT children at a time, until the service answers that the host has no
 * room for more, or there are `most` children. The host memory per child includes its VM process,
 * its jail and the kernel's part.
 */
static void measure_density(unsigned most)
{
	char parent[SANDBOX_PATH], path[SANDBOX_PATH + 8], (*children)[SANDBOX_PATH];
	struct samples living = {0}, kib = {0};
	unsigned n = 0;
	double before;

	children = calloc(most + DENSITY_LOT, sizeof(*children));
	if (!children)
		abort();
	create(parent, "x=1");
	wait_for_pool();
	before = memory_available_kib();
	snprintf(path, sizeof(path), "%s/fork", parent);
	while (n < most) {
		if (http_ask(fd, "POST", path, DENSITY_BODY, &answer) >= 300)
			break;
		for (unsigned i = 0; i < DENSITY_LOT; i++)
			http_sandbox_path(&answer, i, children[n++]);
		exec(children[n - 1], "x+=1");
		wait_for_pool();
	}
	if (n < most && !strstr(answer.body, "no_capacity")) {
		fprintf(stderr, "bench: %s: %s\n", path, answer.text);
		exit(1);
	}
	/* All children, also the first ones, still answer. */
	for (unsigned i = 0; i < n; i++)
		exec(children[i], "print(x)");
	samples_add(&living, n);
	samples_add(&kib, n ? (before - memory_available_kib()) / n : 0);
	for (unsigned i = 0; i < n; i++)
		call("DELETE", children[i], "");
	call("DELETE", parent, "");
	free(children);
	print_figure(&living, "children", "density_children", 0);
	print_figure(&kib, "KiB", "density_kib_per_child", 0);
}

static struct list_of numbers(const char *text)
{
	struct list_of l = {0};

	for (char *at = strdup(text), *part; (part = strsep(&at, ","));)
		if (*part && l.n < LIST_MAX)
			l.value[l.n++] = (unsigned)strtoul(part, NULL, 10);
	return l;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"port", required_argument, NULL, 'p'},
		{"runs", required_argument, NULL, 'r'},
		{"children", required_argument, NULL, 'c'},
		{"dirty", required_argument, NULL, 'd'},
		{"touched", required_argument, NULL, 't'},
		{"depth", required_argument, NULL, 'D'},
		{"pauses", required_argument, NULL, 'P'},
		{"density", required_argument, NULL, 'n'},
		{"pool", required_argument, NULL, 'o'},
		{"wait", required_argument, NULL, 'w'},
		{"poll-ms", required_argument, NULL, 'm'},
		{"idle-code", required_argument, NULL, 'i'},
		{"writing-code", required_argument, NULL, 'W'},
		{0},
	};
	struct list_of children = {0}, dirty = {0}, touched = {0}, depth = {0};
	unsigned port = 7070, wait_s = 0, pauses = 0, density = 0;

	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (o) {
		case 'p':
			port = (unsigned)atoi(optarg);
			break;
		case 'r':
			runs = (unsigned)atoi(optarg);
			break;
		case 'c':
			children = numbers(optarg);
			break;
		case 'd':
			dirty = numbers(optarg);
			break;
		case 't':
			touched = numbers(optarg);
			break;
		case 'D':
			depth = numbers(optarg);
			break;
		case 'P':
			pauses = (unsigned)atoi(optarg);
			break;
		case 'n':
			density = (unsigned)atoi(optarg);
			break;
		case 'o':
			pool = (unsigned)atoi(optarg);
			break;
		case 'w':
			wait_s = (unsigned)atoi(optarg);
			break;
		case 'm':
			poll_ms = (unsigned)atoi(optarg);
			break;
		case 'i':
			idle_code = optarg;
			break;
		case 'W':
			writing_code = optarg;
			break;
		default:
			return 2;
		}
	}
	fd = http_connect((uint16_t)port, wait_s);
	for (unsigned i = 0; i < children.n; i++)
		measure_children(children.value[i]);
	if (children.n)
		print_figure(&any_private, "KiB", "private_kib_per_child", 0);
	if (pauses) {
		measure_pause("parent_pause_idle_ms", "fork_answer_idle_ms", idle_code, pauses);
		measure_pause("parent_pause_writing_ms", "fork_answer_writing_ms", writing_code,
			      pauses);
	}
	for (unsigned i = 0; i < dirty.n; i++)
		measure_dirty(dirty.value[i]);
	for (unsigned i = 0; i < touched.n; i++)
		measure_touched(touched.value[i]);
	for (unsigned i = 0; i < depth.n; i++)
		measure_depth(depth.value[i]);
	if (density)
		measure_density(density);
	puts(printed ? "}" : "{}");
	return 0;
}
