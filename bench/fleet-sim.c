// SPDX-License-Identifier: Apache-2.0
/*
 * Simulates a fleet for a day with the service's own code for placement and limits, and prints what
 * became of the creates beside the goals. Cells share nothing, so one is simulated after the other.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/random.h"
#include "bench/fleet-cell.h"

static const char usage[] =
	"usage: fleet-sim [--cells N] [--hosts N] [--hours H] [--policy lands|better|place]\n"
	"                 [--no-limits] [--no-faults] [--seed N] [--json FILE] [--invariants]\n"
	"It ends with 3 if a goal was missed; with --invariants only for a limit that was "
	"passed.\n";

struct row {
	const char *name, *unit;
	double value, goal; /* goal: at most; below 0: there is none */
	bool invariant;
};

static int compare(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static void add(struct cell_figures *sum, const struct cell_figures *f)
{
	const uint64_t *from = &f->creates;
	uint64_t *to = &sum->creates;

	for (; to <= &sum->overdrawn; to++, from++)
		*to += *from;
	sum->most_over = max_u32(sum->most_over, f->most_over);
	sum->seconds += f->seconds;
	sum->mean_used += f->mean_used;
	sum->spread =
		realloc(sum->spread, (sum->n_spread + f->n_spread + 1) * sizeof(*sum->spread));
	if (!sum->spread)
		abort();
	memcpy(sum->spread + sum->n_spread, f->spread, f->n_spread * sizeof(*f->spread));
	sum->n_spread += f->n_spread;
	free(f->spread);
}

static double percent(uint64_t part, uint64_t of)
{
	return of ? 100.0 * (double)part / (double)of : 0;
}

static double spread_at(const struct cell_figures *f, double share)
{
	return f->n_spread ? (double)f->spread[(uint32_t)(share * (f->n_spread - 1))] : 0;
}

static size_t rows_of(struct cell_figures *f, uint32_t cells, struct row *r)
{
	const uint64_t ordinary = f->served - f->burst_served - f->tenant_served;
	size_t n = 0;

	if (f->n_spread)
		qsort(f->spread, f->n_spread, sizeof(*f->spread), compare);
	r[n++] = (struct row){"creates", "", (double)f->creates, -1, false};
	r[n++] = (struct row){"creates_per_s", "1/s", (double)f->creates / f->seconds * cells, -1,
			      false};
	r[n++] = (struct row){"occupancy", "%", 100 * f->mean_used / cells, -1, false};
	r[n++] = (struct row){"no_warm", "%",
			      percent(f->cold - f->burst_cold - f->tenant_cold, ordinary), 0.1,
			      false};
	r[n++] = (struct row){"no_warm_burst", "%", percent(f->burst_cold, f->burst_served), 2,
			      false};
	r[n++] = (struct row){"no_warm_burst_of_one_tenant", "%",
			      percent(f->tenant_cold, f->tenant_served), 2, false};
	r[n++] = (struct row){"refused_with_room", "%", percent(f->refused_room, f->creates), 0.01,
			      false};
	r[n++] = (struct row){"refused_no_room", "%", percent(f->refused_full, f->creates), -1,
			      false};
	r[n++] = (struct row){"refused_below_limit", "%", percent(f->refused_below, f->creates),
			      0.1, false};
	r[n++] = (struct row){"refused_near_limit", "%", percent(f->refused_near, f->creates), -1,
			      false};
	r[n++] = (struct row){"refused_keeper_away", "%", percent(f->refused_away, f->creates), -1,
			      false};
	r[n++] = (struct row){"refused_at_limit", "%", percent(f->refused_limit, f->creates), -1,
			      false};
	r[n++] = (struct row){"spread_median", "x", spread_at(f, 0.5), 1.3, false};
	r[n++] = (struct row){"spread_p99", "x", spread_at(f, 0.99), -1, false};
	r[n++] = (struct row){"hops_per_create", "", (double)f->hops / (double)f->creates, -1,
			      false};
	r[n++] = (struct row){"asks_per_create", "", (double)f->asks / (double)f->creates, -1,
			      false};
	r[n++] = (struct row){"forks", "", (double)f->forks, -1, false};
	r[n++] = (struct row){"forks_no_room", "%", percent(f->forks_no_room, f->forks), -1, false};
	r[n++] = (struct row){"forks_below_limit", "%", percent(f->forks_no_slot, f->forks), -1,
			      false};
	r[n++] =
		(struct row){"messages_per_cell", "1/s", (double)f->writes / f->seconds, -1, false};
	r[n++] = (struct row){"yields_per_cell", "1/s", (double)f->yields / f->seconds, -1, false};
	r[n++] = (struct row){"waits_for_slot", "%", percent(f->waits, f->creates), -1, false};
	r[n++] = (struct row){"lost_with_hosts", "", (double)f->lost, -1, false};
	r[n++] = (struct row){"overdrawn", "", (double)f->overdrawn, -1, false};
	r[n++] = (struct row){"most_above_limit", "%", f->most_over / 10.0, -1, false};
	r[n++] = (struct row){"above_limit_unexplained", "", (double)f->above_limit, 0, true};
	r[n++] = (struct row){"broken_invariants", "", (double)f->wrong, 0, true};
	return n;
}

/* Prints the figures; returns how many missed their goal, or of the invariants only. */
static int print(const struct row *rows, size_t n, bool invariants)
{
	int missed = 0;

	for (size_t i = 0; i < n; i++) {
		const struct row *r = &rows[i];

		printf("%-28s %12.*f %-4s", r->name, r->value >= 1000 ? 0 : 4, r->value, r->unit);
		if (r->goal >= 0)
			printf(" goal <= %g%s", r->goal, r->value > r->goal ? "  MISSED" : "");
		putchar('\n');
		missed += r->goal >= 0 && r->value > r->goal && (r->invariant || !invariants);
	}
	return missed;
}

static int write_json(const char *path, const struct row *rows, size_t n, uint64_t seed)
{
	FILE *out = fopen(path, "w");

	if (!out) {
		fprintf(stderr, "fleet-sim: %s: %s\n", path, strerror(errno));
		return -1;
	}
	fprintf(out, "{\"seed\": %" PRIu64, seed);
	for (size_t i = 0; i < n; i++) {
		fprintf(out, ",\n \"%s\": {\"value\": %.9g, \"unit\": \"%s\"", rows[i].name,
			rows[i].value, rows[i].unit);
		if (rows[i].goal >= 0)
			fprintf(out, ", \"goal\": %g", rows[i].goal);
		fputc('}', out);
	}
	fputs("}\n", out);
	if (fclose(out) == 0)
		return 0;
	fprintf(stderr, "fleet-sim: %s: %s\n", path, strerror(errno));
	return -1;
}

static int policy_of(const char *name)
{
	static const char *const names[] = {"lands", "better", "place"};

	for (int i = 0; i < 3; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

struct arguments {
	struct cell_options o;
	uint32_t cells;
	bool invariants;
	const char *json;
};

static bool parse(struct arguments *a, int argc, char **argv)
{
	static const struct option options[] = {
		{"cells", 1, NULL, 'c'},      {"hosts", 1, NULL, 'n'},
		{"hours", 1, NULL, 'h'},      {"policy", 1, NULL, 'p'},
		{"seed", 1, NULL, 's'},	      {"json", 1, NULL, 'j'},
		{"no-limits", 0, NULL, 'l'},  {"no-faults", 0, NULL, 'f'},
		{"invariants", 0, NULL, 'i'}, {NULL, 0, NULL, 0}};
	int policy = POLICY_PLACE;
	bool ok = true;

	for (int opt; (opt = getopt_long(argc, argv, "", options, NULL)) != -1;)
		switch (opt) {
		case 'c':
			ok = ok && number_parse(optarg, 1, 4096, &a->cells);
			break;
		case 'n':
			ok = ok && number_parse(optarg, 2, 4096, &a->o.hosts);
			break;
		case 'h':
			a->o.hours = strtod(optarg, NULL);
			break;
		case 'p':
			policy = policy_of(optarg);
			break;
		case 's':
			a->o.seed = strtoull(optarg, NULL, 10);
			break;
		case 'j':
			a->json = optarg;
			break;
		case 'l':
			a->o.limits = false;
			break;
		case 'f':
			a->o.faults = false;
			break;
		case 'i':
			a->invariants = true;
			break;
		default:
			return false;
		}
	a->o.policy = (enum policy)policy;
	a->o.tenants = max_u32(2 * a->o.hosts, 12);
	return ok && policy >= 0 && optind == argc && a->o.hours > 0 && a->o.hours <= 1000;
}

int main(int argc, char **argv)
{
	struct arguments a = {.o = {.hosts = 1000, .hours = 24, .limits = true, .faults = true},
			      .cells = 10};
	struct cell_figures sum = {0};
	struct row rows[32];

	random_bytes(&a.o.seed, sizeof(uint32_t));
	if (!parse(&a, argc, argv)) {
		fputs(usage, stderr);
		return 2;
	}
	const uint64_t seed = a.o.seed;
	printf("%u cells of %u hosts, %g hours, seed %" PRIu64 "\n", a.cells, a.o.hosts, a.o.hours,
	       seed);
	for (uint32_t i = 0; i < a.cells; i++) {
		struct cell_figures f;

		a.o.seed = seed + i;
		cell_run(&a.o, &f);
		add(&sum, &f);
	}
	const size_t n = rows_of(&sum, a.cells, rows);
	const int missed = print(rows, n, a.invariants);
	free(sum.spread);
	if (a.json && write_json(a.json, rows, n, seed) < 0)
		return 1;
	return missed ? 3 : 0;
}
