// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the work of the service's loop that accompanies a call: counting it for /metrics, a line
 * of the audit log (which events of the lifecycle have, but an exec does not), and moving a
 * sandbox's timer with few and with 10,000 other timers. Each sample is the mean of many runs.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/stats.h"
#include "orchestrator/events/line.h"
#include "orchestrator/http/internal.h"

#define EACH   1000
#define TIMERS 10000

static void fail(const char *what)
{
	fprintf(stderr, "loop-cost: %s\n", what);
	exit(1);
}

/* Prints the time of `fn` in us, after `sep`. */
static void measure(const char *sep, const char *name, unsigned runs, void (*fn)(void *), void *arg)
{
	struct samples s = {0};

	for (unsigned run = 0; run < runs; run++) {
		uint64_t began = bench_now_ns();
		for (unsigned i = 0; i < EACH; i++)
			fn(arg);
		samples_add(&s, (double)(bench_now_ns() - began) / EACH / 1e3);
	}
	fputs(sep, stdout);
	samples_print(&s, name, "us", stdout);
	samples_free(&s);
}

static void count_exec(void *arg)
{
	metrics_time(arg, TIMED_EXEC, 10500);
}

static void make_line(void *arg)
{
	audit_line_new(arg, 1,
		       &(struct audit_event){.name = "sandbox.created",
					     .at_ms = 1700000000000,
					     .tenant = "key_0123456789abcdef",
					     .sandbox = "sbx_0123456789abcdef",
					     .template = "python"});
}

struct sandboxes {
	struct loop *loop;
	struct loop_timer timers[TIMERS];
};

/* Moves the first timer behind or before all others, as if its sandbox had been used. */
static void idle_anew(void *arg)
{
	struct sandboxes *all = arg;
	bool was_first = all->timers[0].heap_index == 1;

	loop_timer_set(all->loop, &all->timers[0], was_first ? 1800000 : 0);
}

static void never(void *arg)
{
	(void)arg;
}

static void arm(struct sandboxes *all, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		all->timers[i].fn = never;
		loop_timer_set(all->loop, &all->timers[i], 300000 + i * 97 % 1500000);
	}
}

int main(int argc, char **argv)
{
	struct http *http = calloc(1, sizeof(*http));
	struct sandboxes *all = calloc(1, sizeof(*all));
	unsigned runs = argc == 3 && !strcmp(argv[1], "--runs") ? (unsigned)atoi(argv[2]) : 0;
	char line[AUDIT_LINE_MAX];
	struct err e = {0};

	if (!runs)
		fail("usage: loop-cost --runs N");
	if (!http || !all || loop_new(&all->loop, &e))
		fail(e.text[0] ? e.text : "no memory");
	fputs("{", stdout);
	measure("", "exec_counted_us", runs, count_exec, http);
	measure(", ", "audit_line_us", runs, make_line, line);
	arm(all, 0, 10);
	measure(", ", "timer_of_10_us", runs, idle_anew, all);
	arm(all, 10, TIMERS);
	measure(", ", "timer_of_10000_us", runs, idle_anew, all);
	puts("}");
	return 0;
}
