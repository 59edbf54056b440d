// SPDX-License-Identifier: Apache-2.0
/*
 * Times forks of a tiny guest with half of its RAM resident, by the real ramet-vmm:
 *   pause_first_ms    pause of the vCPUs in the first fork of a VM
 *   pause_idle_ms     pause in later forks, of a guest that only polls for orders
 *   pause_writing_ms  the same, of a guest that writes to 4 MiB in a loop
 *   pause_dirty_D_ms  the same, of a guest that wrote D MiB since the previous fork
 *   fork_ms           from sending CTL_FORK to receiving the image; the guest is idle
 *   child_run_ms      from sending CTL_FILL to a ready blank VM until its vCPUs run
 *   child_ready_ms    the sum of fork_ms and child_run_ms of the same fork
 *   child_answer_ms   from sending CTL_FILL until the child has executed its first order, which
 *                     uses memory and disk
 *   child_*_runs_ms   the same for a parent whose layers have RUNS extents, as a sandbox's do
 *
 * usage: fork-native [--ram-mib M] [--vcpus V] [--runs N] RAMET-VMM WORKER [KVM-FLOOR]
 *
 * Prints JSON, with the figures of kvm-floor (same RAM, vCPUs and runs) if its path is given.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/turn.h"
#include "bench/stats.h"
#include "test/native/worker-client.h"

#define MIB	    (1ull << 20)
#define CHUNK	    (128 * MIB)
#define FIRST_RUNS  8 /* VMs whose first fork is measured */
#define CHILDREN    40
#define WRITING_MIB 4
#define RUNS	    200
#define RUN_BYTES   (2u << 12)
#define RUN_STEP    (64u << 12)

static const unsigned dirty_mib[] = {1, 7, 64};
#define DIRTIES (sizeof(dirty_mib) / sizeof(dirty_mib[0]))

static const char *worker_elf;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
	exit(EXIT_FAILURE);
}

static unsigned number(const char *name, const char *text, unsigned long max)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (*end || !v || v > max) {
		fprintf(stderr, "%s: %s takes a number from 1 to %lu\n",
			program_invocation_short_name, name, max);
		exit(EXIT_FAILURE);
	}
	return (unsigned)v;
}

/* Reads --ram-mib, --vcpus and --runs; returns the index of the first argument after them. */
static int read_options(int argc, char **argv, struct vmm_options *o, unsigned *runs)
{
	int i = 1;

	/* Scheduled with a short slice, as the service is. Its VMs must not inherit that. */
	sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &(struct sched_param){0});
	turn_soon();
	for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
		if (!strcmp(argv[i], "--ram-mib"))
			o->ram_mib = number("--ram-mib", argv[i + 1], 65536);
		else if (!strcmp(argv[i], "--vcpus"))
			o->vcpus = number("--vcpus", argv[i + 1], 32);
		else if (!strcmp(argv[i], "--runs"))
			*runs = number("--runs", argv[i + 1], 100000);
		else
			die("the options are --ram-mib, --vcpus and --runs");
	}
	return i;
}

/* Runs kvm-floor and prints its figures as the first members of a JSON object. */
static void print_floor(const char *exe, const struct vmm_options *o, unsigned runs)
{
	char command[512], text[4096];
	size_t len;
	FILE *p;

	/* kvm-floor puts all RAM in one slot, which must end at 3 GiB. */
	snprintf(command, sizeof(command), "%s --vcpus %u --ram-mib %u --runs %u", exe, o->vcpus,
		 o->ram_mib < 3072 ? o->ram_mib : 3072, runs);
	p = popen(command, "r");
	len = p ? fread(text, 1, sizeof(text) - 1, p) : 0;
	if (!p || pclose(p) || len < 3 || text[0] != '{')
		die("kvm-floor failed");
	text[len] = '\0';
	*strrchr(text, '}') = '\0';
	printf("%s, ", text + 1);
}

/* Returns the bytes of RAM that the guest may write to, above the worker's own. */
static uint64_t room(const struct vmm_options *o)
{
	uint64_t half = o->ram_mib * MIB / 2, all = o->ram_mib * MIB - WORKER_MEMORY;

	return half < all ? half : all;
}

static struct worker boot(const struct vmm_options *o)
{
	struct worker w;

	worker_boot(&w, o, worker_elf);
	/* In parts, each of which a busy machine completes within the timeout of an order. */
	for (uint64_t at = 0; at < room(o); at += CHUNK)
		worker_do(&w, WORKER_FILL, WORKER_MEMORY + at,
			  room(o) - at < CHUNK ? room(o) - at : CHUNK, 1);
	return w;
}

/* Forks, discards the image, and returns the pause of the vCPUs in ms. */
static double pause_of(struct worker *w)
{
	struct vmm_snapshot img;
	struct ctl_msg m;

	worker_image(w, &img, &m);
	vmm_snapshot_close(&img);
	return (double)m.reply.fork.pause_ns / 1e6;
}

static void print(struct samples *s, const char *name)
{
	samples_print(s, name, "ms", stdout);
	printf(", ");
	fflush(stdout);
	samples_free(s);
}

static void first_forks(const struct vmm_options *o)
{
	struct samples pause = {0};

	for (unsigned i = 0; i < FIRST_RUNS; i++) {
		struct worker w = boot(o);

		samples_add(&pause, pause_of(&w));
		worker_stop(&w);
	}
	print(&pause, "pause_first_ms");
}

static void later_forks(struct worker *w, const char *name, uint64_t dirty, unsigned runs)
{
	struct samples pause = {0};

	for (unsigned i = 0; i < runs; i++) {
		/* Waits for an answer of the guest, which shows that it runs again after the
		 * previous fork. */
		worker_do(w, dirty ? WORKER_FILL : WORKER_COUNT, WORKER_MEMORY, dirty, i);
		samples_add(&pause, pause_of(w));
	}
	print(&pause, name);
}

static void dirty_forks(struct worker *w, const struct vmm_options *o, unsigned runs)
{
	for (unsigned i = 0; i < DIRTIES; i++) {
		char name[32];

		if (dirty_mib[i] * MIB > room(o))
			continue;
		snprintf(name, sizeof(name), "pause_dirty_%u_ms", dirty_mib[i]);
		later_forks(w, name, dirty_mib[i] * MIB, runs < 40 ? runs : 40);
	}
}

/* `what` becomes a part of the figures' names. */
static void children(struct worker *w, const struct vmm_options *o, const char *what)
{
	char name[4][40];

	struct samples fork_ms = {0}, run = {0}, ready = {0}, answer = {0};

	for (unsigned i = 0; i < CHILDREN; i++) {
		struct worker child;
		struct vmm_snapshot img;
		struct ctl_msg m;
		uint64_t start;
		double forked, ran;

		worker_blank(&child, o);
		start = bench_now_ns();
		worker_image(w, &img, &m);
		forked = bench_ms_since(start);
		samples_add(&fork_ms, forked);
		/* Not timed: only the benchmark gives a child a first order on its disk. */
		worker_prepare(&child, w, WORKER_COUNT);
		start = bench_now_ns();
		worker_restore(&child, w, &img);
		ran = bench_ms_since(start);
		samples_add(&run, ran);
		samples_add(&ready, forked + ran);
		worker_wait(&child);
		samples_add(&answer, bench_ms_since(start));
		worker_stop(&child);
		vmm_snapshot_close(&img);
	}
	snprintf(name[0], sizeof(name[0]), "fork%s_ms", what);
	snprintf(name[1], sizeof(name[1]), "child_run%s_ms", what);
	snprintf(name[2], sizeof(name[2]), "child_ready%s_ms", what);
	snprintf(name[3], sizeof(name[3]), "child_answer%s_ms", what);
	print(&fork_ms, name[0]);
	print(&run, name[1]);
	print(&ready, name[2]);
	print(&answer, name[3]);
}

static void scattered_children(struct worker *w, const struct vmm_options *o)
{
	for (unsigned i = 0; i < RUNS; i++)
		worker_do(w, WORKER_FILL, WORKER_MEMORY + (uint64_t)i * RUN_STEP, RUN_BYTES, i);
	children(w, o, "_runs");
}

static void measure(const struct vmm_options *o, unsigned runs)
{
	struct worker w = boot(o);

	pause_of(&w);
	later_forks(&w, "pause_idle_ms", 0, runs);
	worker_do(&w, WORKER_HAMMER, WORKER_MEMORY, WRITING_MIB * MIB, 0);
	later_forks(&w, "pause_writing_ms", 0, runs);
	worker_do(&w, WORKER_HAMMER, 0, 0, 0);
	children(&w, o, "");
	scattered_children(&w, o);
	dirty_forks(&w, o, runs);
	worker_stop(&w);
	first_forks(o);
}

int main(int argc, char **argv)
{
	struct vmm_options o = {.vcpus = 1, .ram_mib = 256, .debug_serial = true};
	unsigned runs = 300;
	int i = read_options(argc, argv, &o, &runs);

	if (i + 1 >= argc)
		die("the paths of ramet-vmm and of the worker are missing");
	o.exe = argv[i];
	worker_elf = argv[i + 1];
	printf("{");
	if (i + 2 < argc)
		print_floor(argv[i + 2], &o, CHILDREN);
	measure(&o, runs);
	printf("\"ram_mib\": %u}\n", o.ram_mib);
	return EXIT_SUCCESS;
}
