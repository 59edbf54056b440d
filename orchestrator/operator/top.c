// SPDX-License-Identifier: Apache-2.0
/*
 * The service lists the VM processes; their usage is read here from /proc, so that watching costs
 * the service almost nothing. Rates are differences between two samples.
 */
#include "orchestrator/operator/top.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/text-file.h"
#include "base/meminfo.h"
#include "orchestrator/operator/fleet.h"
#include "proto/net.h"

#define SAMPLE_S 1
#define ROWS_MAX 16384
#define CLEAR	 "\033[H\033[2J"

struct usage {
	uint64_t cpu_ms, private_bytes, shared_bytes;
	uint64_t sent_bytes, received_bytes; /* by the guest */
};

struct row {
	char id[40], state[16], tenant[32], template[32];
	unsigned pid;
	struct usage now, rate; /* rate: change per second */
};

struct sample {
	struct row *rows;
	size_t n;
	uint64_t at_ns;
	uint64_t host_busy, host_ticks;
	struct meminfo memory;
};

/* --- /proc ---------------------------------------------------------------------------------- */

static void read_cpu(unsigned pid, struct usage *u)
{
	struct proc_stat stat;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	if (proc_stat_read(path, &stat))
		u->cpu_ms = stat.user_ms + stat.system_ms;
}

/* Reads the network counters. The tap receives the bytes that the guest sends. */
static void read_network(unsigned pid, struct usage *u)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/%u/net/dev", pid);
	text_file_read(AT_FDCWD, path, text, sizeof(text));
	const char *line = strstr(text, NET_TAP ":");
	if (line)
		sscanf(line + strlen(NET_TAP ":"),
		       "%" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &u->sent_bytes,
		       &u->received_bytes);
}

static void read_host(struct sample *sample)
{
	uint64_t ticks[8] = {0};
	char text[4096];

	text_file_read(AT_FDCWD, "/proc/stat", text, sizeof(text));
	sscanf(text,
	       "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
	       " %" SCNu64 " %" SCNu64,
	       &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6],
	       &ticks[7]);
	for (size_t i = 0; i < ARRAY_LEN(ticks); i++) {
		sample->host_ticks += ticks[i];
		sample->host_busy += i == 3 || i == 4 ? 0 : ticks[i]; /* idle, waiting for disks */
	}
	meminfo_read("/proc/meminfo", &sample->memory);
}

/* --- one sample ----------------------------------------------------------------------------- */

static bool read_row(char *line, struct row *row)
{
	char *at = line, *fields[5];

	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		if (!(fields[i] = strsep(&at, "\t")))
			return false;
	snprintf(row->id, sizeof(row->id), "%s", fields[0]);
	row->pid = (unsigned)strtoul(fields[1], NULL, 10);
	snprintf(row->state, sizeof(row->state), "%s", fields[2]);
	snprintf(row->tenant, sizeof(row->tenant), "%s", fields[3]);
	snprintf(row->template, sizeof(row->template), "%s", fields[4]);
	if (row->pid) {
		read_cpu(row->pid, &row->now);
		proc_memory_read(row->pid, &row->now.private_bytes, &row->now.shared_bytes);
		read_network(row->pid, &row->now);
	}
	return true;
}

static int take_sample(struct sample *sample, const struct config *config, struct err *e)
{
	scoped_free char *text = service_says(config, "processes", e);
	char *at = text, *line;

	*sample = (struct sample){.at_ns = now_ns()};
	if (!text)
		return e->code;
	sample->rows = calloc(ROWS_MAX, sizeof(*sample->rows));
	if (!sample->rows)
		return err_set(e, ENOMEM, "make a table");
	while ((line = strsep(&at, "\n")) && sample->n < ROWS_MAX)
		sample->n += read_row(line, &sample->rows[sample->n]);
	read_host(sample);
	return 0;
}

static uint64_t rate(uint64_t now, uint64_t before, uint64_t ns)
{
	return now > before && ns ? (uint64_t)((double)(now - before) * 1e9 / (double)ns) : 0;
}

/* Returns the row of the same VM in the previous sample, or NULL. Searches from `near`, the row's
 * present index. */
static const struct row *row_before(const struct sample *before, const struct row *row, size_t near)
{
	for (size_t i = 0; i < before->n; i++) {
		const struct row *each = &before->rows[(near + i) % before->n];

		if (each->pid == row->pid && strcmp(each->id, row->id) == 0)
			return each;
	}
	return NULL;
}

static void compare(struct sample *now, const struct sample *before)
{
	uint64_t ns = now->at_ns - before->at_ns;

	for (size_t i = 0; i < now->n; i++) {
		struct row *row = &now->rows[i];
		const struct row *old = row_before(before, row, i);

		if (!old)
			continue;
		row->rate.cpu_ms = rate(row->now.cpu_ms, old->now.cpu_ms, ns);
		row->rate.sent_bytes = rate(row->now.sent_bytes, old->now.sent_bytes, ns);
		row->rate.received_bytes =
			rate(row->now.received_bytes, old->now.received_bytes, ns);
	}
}

/* --- the table ------------------------------------------------------------------------------ */

static int by_use(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->rate.cpu_ms != y->rate.cpu_ms)
		return x->rate.cpu_ms < y->rate.cpu_ms ? 1 : -1;
	if (x->now.private_bytes != y->now.private_bytes)
		return x->now.private_bytes < y->now.private_bytes ? 1 : -1;
	return strcmp(x->id, y->id);
}

static void draw_host(const struct sample *now, const struct sample *before)
{
	uint64_t ticks = now->host_ticks - before->host_ticks, own = 0, shared = 0;

	for (size_t i = 0; i < now->n; i++) {
		own += now->rows[i].now.private_bytes;
		shared += now->rows[i].now.shared_bytes;
	}
	printf("%zu sandboxes, %" PRIu64 " MiB private, %" PRIu64 " MiB shared (snapshots)\n"
	       "host: CPU %.0f %%, memory %" PRIu64 " of %" PRIu64 " MiB available\n\n",
	       now->n, own >> 20, shared >> 20,
	       ticks ? 100.0 * (double)(now->host_busy - before->host_busy) / (double)ticks : 0.0,
	       now->memory.available >> 20, now->memory.total >> 20);
}

static void draw(struct sample *now, const struct sample *before, bool screen)
{
	compare(now, before);
	if (screen)
		fputs(CLEAR, stdout);
	draw_host(now, before);
	printf("%-36s  %-7s  %-12s  %-12s  %6s  %10s  %10s  %10s  %10s\n", "ID", "STATE", "TENANT",
	       "TEMPLATE", "CPU %", "PRIV. MiB", "SHARED MiB", "OUT KiB/s", "IN KiB/s");
	if (now->n)
		qsort(now->rows, now->n, sizeof(*now->rows), by_use);
	for (size_t i = 0; i < now->n; i++) {
		const struct row *r = &now->rows[i];

		printf("%-36s  %-7s  %-12s  %-12s  %6.1f  %10.1f  %10.1f  %10.1f  %10.1f\n", r->id,
		       r->state, r->tenant, r->template, (double)r->rate.cpu_ms / 10,
		       (double)r->now.private_bytes / (1 << 20),
		       (double)r->now.shared_bytes / (1 << 20), (double)r->rate.sent_bytes / 1024,
		       (double)r->rate.received_bytes / 1024);
	}
	fflush(stdout);
}

int top_run(const struct config *config, bool once)
{
	struct sample before, now;
	bool screen = !once && isatty(STDOUT_FILENO);
	struct err e;

	int r = take_sample(&before, config, &e);
	while (r == 0) {
		nanosleep(&(struct timespec){.tv_sec = SAMPLE_S}, NULL);
		r = take_sample(&now, config, &e);
		if (r < 0)
			break;
		draw(&now, &before, screen);
		free(before.rows);
		before = now;
		if (once || ferror(stdout))
			break;
		if (!screen)
			putchar('\n');
	}
	free(before.rows);
	if (r < 0)
		fprintf(stderr, "rametctl: %s\n", e.text);
	return r < 0;
}
