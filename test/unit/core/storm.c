// SPDX-License-Identifier: Apache-2.0
/*
 * Calls, clients that go away, deaths and faults in random order. Every call that was not abandoned
 * is answered exactly once, and the teardown finds nothing left. RAMET_TEST_SEED repeats a run.
 */
#include <stdlib.h>
#include <unistd.h>

#include "test/unit/core/world.h"

#define CALLS 400

static unsigned seed;

static unsigned below(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

/* What was asked and is to be answered. */
struct storm {
	struct world *w;
	struct made made[CALLS];
	struct run runs[CALLS];
	struct done dones[CALLS];
	struct forked forks[CALLS];
	char parents[CALLS][SANDBOX_ID_LEN + 1]; /* of forks */
	bool abandoned_made[CALLS], abandoned_run[CALLS], abandoned_fork[CALLS], asked_done[CALLS];
	unsigned n_made, n_runs, n_forks;
};

static const char *random_id(struct storm *s)
{
	static const char *const nobody = "sbx_00000000000000000000000000000000";

	for (int tries = 0; s->n_forks && tries < 5; tries++) {
		struct forked *k = &s->forks[below(s->n_forks)];

		if (k->done && k->ok)
			return k->ids[below(k->n)];
	}
	for (int tries = 0; s->n_made && tries < 20; tries++) {
		struct made *m = &s->made[below(s->n_made)];

		if (m->done && m->ok)
			return m->view.id;
	}
	return nobody;
}

static void create(struct storm *s)
{
	struct sandbox_spec spec = {.ram_mib = below(10) ? 0 : 192};

	world_create_start(s->w, &s->made[s->n_made++], &spec);
}

static void exec(struct storm *s)
{
	static const char *const scripts[] = {"out one\nerr two\nexit 1",
					      "big 200000",
					      "wait",
					      "hang-up",
					      "garbage",
					      "die",
					      "raw half"};

	world_exec_start(s->w, &s->runs[s->n_runs++], random_id(s), scripts[below(7)], below(2));
}

static void erase(struct storm *s)
{
	unsigned i = below(CALLS);

	if (s->asked_done[i])
		return;
	s->asked_done[i] = true;
	world_delete_start(s->w, &s->dones[i], random_id(s));
}

static void divide(struct storm *s)
{
	char *parent = s->parents[s->n_forks];

	snprintf(parent, sizeof(s->parents[0]), "%s", random_id(s));
	world_fork_start(s->w, &s->forks[s->n_forks++], parent, 1 + below(3), below(2));
}

static void unite(struct storm *s)
{
	unsigned i = below(CALLS), k = s->n_forks ? below(s->n_forks) : 0;

	if (s->asked_done[i])
		return;
	s->asked_done[i] = true;
	if (s->n_forks && s->forks[k].ok && below(4))
		world_merge_start(s->w, &s->dones[i], s->parents[k], s->forks[k].ids[0]);
	else
		world_merge_start(s->w, &s->dones[i], random_id(s), random_id(s));
}

static void abandon(struct storm *s)
{
	unsigned i = s->n_made ? below(s->n_made) : 0, j = s->n_runs ? below(s->n_runs) : 0;

	if (s->n_made && !s->made[i].done && !s->abandoned_made[i]) {
		s->abandoned_made[i] = true;
		core_abandon(s->made[i].call);
	}
	if (s->n_runs && !s->runs[j].over && !s->abandoned_run[j]) {
		s->abandoned_run[j] = true;
		core_abandon(s->runs[j].call);
	}
	unsigned l = s->n_forks ? below(s->n_forks) : 0;
	if (s->n_forks && !s->forks[l].done && !s->abandoned_fork[l]) {
		s->abandoned_fork[l] = true;
		core_abandon(s->forks[l].call);
	}
}

static void press(struct storm *s)
{
	unsigned j = s->n_runs ? below(s->n_runs) : 0;

	if (!s->n_runs || s->runs[j].over || s->abandoned_run[j])
		return;
	core_pause(s->runs[j].call);
	if (below(4))
		core_resume(s->runs[j].call);
}

static void resume_all(struct storm *s)
{
	for (unsigned i = 0; i < s->n_runs; i++)
		if (!s->runs[i].over && !s->abandoned_run[i])
			core_resume(s->runs[i].call);
}

static void trouble(struct storm *s)
{
	static const enum fakes_fault faults[] = {FAKES_FORK,	FAKES_FORK_LIE, FAKES_ATTACH,
						  FAKES_SPAWN,	FAKES_FILL,	FAKES_CONNECT,
						  FAKES_RESEED, FAKES_LIE,	FAKES_DIE_STEP};

	fakes_fault(s->w->fakes, faults[below(9)], 1 + (int)below(3));
	if (!below(4))
		fakes_kill(s->w->fakes, below(8));
}

static bool turn_over(void *arg)
{
	int *turns = arg;

	return (*turns)-- <= 0;
}

static bool all_answered(void *arg)
{
	struct storm *s = arg;

	fakes_go(s->w->fakes);
	resume_all(s);
	for (unsigned i = 0; i < s->n_made; i++)
		if (!s->made[i].done && !s->abandoned_made[i])
			return false;
	for (unsigned i = 0; i < s->n_runs; i++)
		if (!s->runs[i].over && !s->abandoned_run[i])
			return false;
	for (unsigned i = 0; i < s->n_forks; i++)
		if (!s->forks[i].done && !s->abandoned_fork[i])
			return false;
	for (unsigned i = 0; i < CALLS; i++)
		if (s->asked_done[i] && !s->dones[i].done)
			return false;
	return true;
}

typedef void op_fn(struct storm *s);

static void storm(void **state, op_fn *const ops[], unsigned n_ops, unsigned turns_max)
{
	struct storm *s = calloc(1, sizeof(*s));
	struct core_figures figures;

	s->w = *state;
	world_wait_ready(s->w);
	for (int i = 0; i < CALLS; i++) {
		int turns = (int)below(turns_max);

		ops[below(n_ops)](s);
		world_until(s->w, turn_over, &turns);
	}
	for (int fault = 0; fault < FAKES_NFAULTS; fault++)
		fakes_fault(s->w->fakes, (enum fakes_fault)fault, 0);
	world_until(s->w, all_answered, s);
	core_figures(s->w->core, &figures);
	print_message("%u creates, %u execs, %u forks, %u merges\n", (unsigned)figures.creates,
		      (unsigned)figures.execs, (unsigned)figures.forks, (unsigned)figures.merges);
	world_teardown(state);
	free(s);
}

static void test_storm(void **state)
{
	static op_fn *const ops[] = {create, exec,  exec,    exec,  exec,   divide,
				     unite,  erase, abandon, press, trouble};

	storm(state, ops, 11, 4);
}

/* More room and more time, so that most forks and merges get through. */
static void test_storm_of_families(void **state)
{
	static op_fn *const ops[] = {create, exec,  exec,    exec,  divide, divide,
				     unite,  unite, abandon, erase, trouble};
	struct world *w = *state;

	world_kill_core(w);
	w->config.max_vms = 48;
	world_start_core(w);
	storm(state, ops, 11, 60);
}

static int setup(void **state)
{
	return world_setup(state);
}

int main(void)
{
	const char *given = getenv("RAMET_TEST_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_storm, setup),
		cmocka_unit_test_setup(test_storm, setup),
		cmocka_unit_test_setup(test_storm, setup),
		cmocka_unit_test_setup(test_storm_of_families, setup),
		cmocka_unit_test_setup(test_storm_of_families, setup),
	};

	seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
	print_message("RAMET_TEST_SEED=%u\n", seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
