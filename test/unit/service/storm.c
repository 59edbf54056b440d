// SPDX-License-Identifier: Apache-2.0
/*
 * Calls, clients that disconnect, deaths of VMs and faults in random order. The service answers
 * every call that was not abandoned exactly once, and the teardown finds nothing left.
 * RAMET_TEST_SEED repeats a run.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "test/unit/service/world.h"

#define CALLS 400

static unsigned seed;

static unsigned below(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

/* An operation on files or processes. */
struct asked {
	bool done, abandoned;
	struct op *call;
};

/* The calls of a test and their answers. */
struct storm {
	struct world *w;
	struct made made[CALLS];
	struct run runs[CALLS];
	struct done dones[CALLS];
	struct forked forks[CALLS];
	char parents[CALLS][SANDBOX_ID_LEN + 1]; /* parent of each fork */
	bool abandoned_made[CALLS], abandoned_run[CALLS], abandoned_fork[CALLS], asked_done[CALLS];
	struct asked asked[CALLS];
	struct frozen frozen[CALLS];
	struct made resumed[CALLS];
	bool abandoned_frozen[CALLS], abandoned_resumed[CALLS];
	unsigned n_made, n_runs, n_forks, n_asked, n_frozen, n_resumed;
};

static const char *random_id(struct storm *s)
{
	static const char *const nobody = "sbx_00000000000000000000000000000000";

	for (int tries = 0; s->n_forks && tries < 5; tries++) {
		struct forked *k = &s->forks[below(s->n_forks)];

		if (k->done && k->ok)
			return k->ids[below(k->n)];
	}
	for (int tries = 0; s->n_resumed && tries < 5; tries++) {
		struct made *m = &s->resumed[below(s->n_resumed)];

		if (m->done && m->ok)
			return m->view.id;
	}
	for (int tries = 0; s->n_made && tries < 20; tries++) {
		struct made *m = &s->made[below(s->n_made)];

		if (m->done && m->ok)
			return m->view.id;
	}
	return nobody;
}

static void freeze_any(struct storm *s)
{
	world_freeze_start(s->w, &s->frozen[s->n_frozen++], random_id(s));
}

struct any_space {
	unsigned skip;
	char id[SANDBOX_ID_LEN + 1];
};

static void on_space(void *arg, const struct space_view *view)
{
	struct any_space *any = arg;

	if (!any->id[0] || any->skip-- > 0)
		memcpy(any->id, view->id, sizeof(any->id));
}

static void resume_any(struct storm *s)
{
	struct any_space any = {.skip = below(8)};

	world_spaces(s->w, TENANT, on_space, &any);
	if (any.id[0])
		world_resume_start(s->w, &s->resumed[s->n_resumed++], any.id, NULL);
}

static void create(struct storm *s)
{
	struct sandbox_spec spec = {.config.size.ram_mib = below(10) ? 0 : 192};

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

static void on_asked(void *arg, const struct failure *f)
{
	struct asked *a = arg;

	assert_false(a->done || a->abandoned);
	a->done = true;
}

static void on_exited(void *arg, const struct process_exit *exit)
{
	on_asked(arg, NULL);
}

static void on_read(void *arg, const struct process_output *out, const struct failure *f)
{
	on_asked(arg, f);
}

static void on_found(void *arg)
{
	assert_false(((struct asked *)arg)->done || ((struct asked *)arg)->abandoned);
}

static void on_file(void *arg, const struct file_view *f)
{
	on_found(arg);
}

static void on_bytes(void *arg, const void *data, size_t len)
{
	on_found(arg);
}

static void on_process(void *arg, const struct process_view *p)
{
	on_found(arg);
}

static void on_output(void *arg, unsigned stream, uint64_t place, const void *data, size_t len)
{
	on_found(arg);
}

static void file_or_process(struct storm *s)
{
	static const struct file_sink files = {
		.file = on_file, .bytes = on_bytes, .ended = on_asked};
	static const struct process_sink listener = {on_process, on_output, on_exited, on_asked};
	static const struct process_list_sink described = {on_process, on_asked};
	static const char *const paths[] = {"/x",	"/wait",    "/size/300000", "/size/5",
					    "/many/99", "/hang-up", "/garbage",	    "/errno/28"};
	static const struct file_range all = {.length = UINT64_MAX};
	static const char *const argv[] = {"/wait", NULL};
	static const struct process_spec spec = {.argv = argv, .label = ""};
	static const struct process_read read = {.max_bytes = 9, .timeout_ms = 5};
	static uint8_t data[300000];
	const char *id = random_id(s), *path = paths[below(8)];
	const struct agent_file_request put = {.type = AGENT_PUT, .path = path};
	const struct file_data part = {.p = data, .len = below(sizeof(data))};
	const struct file_list list = {.path = path, .depth = 1 + below(2), .after = ""};
	struct service *c = s->w->service;
	char process[CORE_ID_LEN + 1];
	struct asked *a = &s->asked[s->n_asked++];

	snprintf(process, sizeof(process), "prc_%c%031d", "0789"[below(4)], 0);
	switch (below(7)) {
	case 0:
		a->call = service_file_do(c, TENANT, id, &put, &part, on_asked, a);
		break;
	case 1:
		a->call = service_file_get(c, TENANT, id, path, &all, &files, a);
		break;
	case 2:
		a->call = service_file_list(c, TENANT, id, &list, &files, a);
		break;
	case 3:
		a->call = service_process_start(c, TENANT, id, &spec, &described, a);
		break;
	case 4:
		a->call = service_process_attach(c, TENANT, id, process, 0, &listener, a);
		break;
	case 5:
		a->call = service_process_read(c, TENANT, id, process, &read, on_read, a);
		break;
	default:
		a->call =
			service_process_input(c, TENANT, id, process, data, part.len, on_asked, a);
	}
	assert_false(a->done);
}

static void delete (struct storm *s)
{
	unsigned i = below(CALLS);

	if (s->asked_done[i])
		return;
	s->asked_done[i] = true;
	world_delete_start(s->w, &s->dones[i], random_id(s));
}

static void fork_any(struct storm *s)
{
	char *parent = s->parents[s->n_forks];

	snprintf(parent, sizeof(s->parents[0]), "%s", random_id(s));
	world_fork_start(s->w, &s->forks[s->n_forks++], parent, 1 + below(3), below(2));
}

static void merge_any(struct storm *s)
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
		op_abandon(s->made[i].call);
	}
	if (s->n_runs && !s->runs[j].over && !s->abandoned_run[j]) {
		s->abandoned_run[j] = true;
		op_abandon(s->runs[j].call);
	}
	unsigned m = s->n_asked ? below(s->n_asked) : 0;
	if (s->n_asked && !s->asked[m].done && !s->asked[m].abandoned) {
		s->asked[m].abandoned = true;
		op_abandon(s->asked[m].call);
	}
	unsigned l = s->n_forks ? below(s->n_forks) : 0;
	if (s->n_forks && !s->forks[l].done && !s->abandoned_fork[l]) {
		s->abandoned_fork[l] = true;
		op_abandon(s->forks[l].call);
	}
}

/* A resume that is abandoned leaves its Space, whatever it has done. */
static void abandon_snapshots(struct storm *s)
{
	unsigned i = s->n_frozen ? below(s->n_frozen) : 0,
		 j = s->n_resumed ? below(s->n_resumed) : 0;

	if (s->n_frozen && !s->frozen[i].done && !s->abandoned_frozen[i]) {
		s->abandoned_frozen[i] = true;
		op_abandon(s->frozen[i].call);
	}
	if (s->n_resumed && !s->resumed[j].done && !s->abandoned_resumed[j]) {
		s->abandoned_resumed[j] = true;
		uint64_t before = world_metric(s->w, "spaces");
		op_abandon(s->resumed[j].call);
		assert_int_equal(world_metric(s->w, "spaces"), before);
	}
}

static void pause_any(struct storm *s)
{
	unsigned j = s->n_runs ? below(s->n_runs) : 0, m = s->n_asked ? below(s->n_asked) : 0;

	if (s->n_asked && !s->asked[m].done && !s->asked[m].abandoned) {
		op_pause(s->asked[m].call);
		if (below(4))
			op_resume(s->asked[m].call);
	}
	if (!s->n_runs || s->runs[j].over || s->abandoned_run[j])
		return;
	op_pause(s->runs[j].call);
	if (below(4))
		op_resume(s->runs[j].call);
}

static void resume_all(struct storm *s)
{
	for (unsigned i = 0; i < s->n_runs; i++)
		if (!s->runs[i].over && !s->abandoned_run[i])
			op_resume(s->runs[i].call);
	for (unsigned i = 0; i < s->n_asked; i++)
		if (!s->asked[i].done && !s->asked[i].abandoned)
			op_resume(s->asked[i].call);
}

static void fault_any(struct storm *s)
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
	for (unsigned i = 0; i < s->n_asked; i++)
		if (!s->asked[i].done && !s->asked[i].abandoned)
			return false;
	for (unsigned i = 0; i < s->n_frozen; i++)
		if (!s->frozen[i].done && !s->abandoned_frozen[i])
			return false;
	for (unsigned i = 0; i < s->n_resumed; i++)
		if (!s->resumed[i].done && !s->abandoned_resumed[i])
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
	static const char *const counted[] = {"creates_total",	  "execs_total",    "forks_total",
					      "merges_total",	  "freezes_total",  "resumes_total",
					      "file_calls_total", "processes_total"};
	for (size_t i = 0; i < ARRAY_LEN(counted); i++)
		print_message("%s: %u\n", counted[i], (unsigned)world_metric(s->w, counted[i]));
	assert_int_equal(world_metric(s->w, "listeners"), 0);
	world_teardown(state);
	free(s);
}

static void test_random_calls(void **state)
{
	static op_fn *const ops[] = {
		create,		 exec,	 exec,	  exec,	     fork_any, merge_any, file_or_process,
		file_or_process, delete, abandon, pause_any, fault_any};

	storm(state, ops, 12, 4);
}

/* More VMs and more loop turns, so that most forks and merges succeed. */
static void test_random_forks_and_merges(void **state)
{
	static op_fn *const ops[] = {create,	      exec,	exec,	   file_or_process,
				     fork_any,	      fork_any, merge_any, merge_any,
				     file_or_process, abandon,	delete,	   fault_any};
	struct world *w = *state;

	world_kill_service(w);
	w->config.max_vms = 48;
	world_start_service(w);
	storm(state, ops, 12, 60);
}

/* Freezes and resumes, whose clients leave at any moment. */
static void test_random_freezes_and_resumes(void **state)
{
	static op_fn *const ops[] = {create,
				     exec,
				     exec,
				     file_or_process,
				     fork_any,
				     freeze_any,
				     freeze_any,
				     resume_any,
				     resume_any,
				     resume_any,
				     abandon,
				     abandon_snapshots,
				     abandon_snapshots,
				     delete};
	struct world *w = *state;

	world_kill_service(w);
	w->config.max_vms = 48;
	world_start_service(w);
	storm(state, ops, ARRAY_LEN(ops), 60);
}

static int setup(void **state)
{
	return world_setup(state);
}

int main(void)
{
	const char *given = getenv("RAMET_TEST_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_random_calls, setup),
		cmocka_unit_test_setup(test_random_calls, setup),
		cmocka_unit_test_setup(test_random_calls, setup),
		cmocka_unit_test_setup(test_random_forks_and_merges, setup),
		cmocka_unit_test_setup(test_random_forks_and_merges, setup),
		cmocka_unit_test_setup(test_random_freezes_and_resumes, setup),
		cmocka_unit_test_setup(test_random_freezes_and_resumes, setup),
	};

	seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
	print_message("RAMET_TEST_SEED=%u\n", seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
