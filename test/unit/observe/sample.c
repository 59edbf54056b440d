// SPDX-License-Identifier: Apache-2.0
/* Samples of what VMs use. The fake VMs have the pid of this process, and report 1000 bytes of
 * disk layer, 2000 bytes received and 3000 sent. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "orchestrator/observe/state.h"
#include "orchestrator/sandbox/service.h"
#include "test/unit/service/world.h"

struct usage_answer {
	bool done, ok;
	struct usage_view view;
	struct usage_sample samples[USAGE_KEPT];
	struct failure failure;
	struct op *call;
};

static void on_usage(void *arg, const struct usage_view *view, const struct failure *f)
{
	struct usage_answer *a = arg;

	assert_true(!view != !f);
	a->done = true;
	a->ok = view != NULL;
	if (f) {
		a->failure = *f;
		return;
	}
	a->view = *view;
	memcpy(a->samples, view->samples, view->n * sizeof(a->samples[0]));
}

static void start(struct world *w, struct usage_answer *a, const char *id)
{
	const struct usage_query query = {.most = USAGE_KEPT};

	a->done = false;
	a->call = service_usage(w->service, TENANT, id, &query, on_usage, a);
	assert_false(a->done);
}

static const struct usage_answer *get(struct world *w, const char *id)
{
	static struct usage_answer a;

	start(w, &a, id);
	world_until_true(w, &a.done);
	return &a;
}

static struct sandbox *of_id(struct world *w, const char *id)
{
	struct sandbox *s = sandbox_of_any(w->service, id);

	assert_non_null(s);
	return s;
}

struct waiting {
	struct sandbox *s;
	unsigned n;
};

static bool has_samples(void *arg)
{
	const struct waiting *waiting = arg;

	return usage_of(waiting->s)->ring.n >= waiting->n;
}

static void wait_for_samples(struct world *w, const char *id, unsigned n)
{
	struct waiting waiting = {of_id(w, id), n};

	world_until(w, has_samples, &waiting);
}

static bool has_cpu(void *arg)
{
	const struct usage_ring *ring = &usage_of(arg)->ring;

	return ring->n && usage_ring_at(ring, ring->n - 1)->cpu != USAGE_CPU_NONE;
}

/* Makes a sandbox that is sampled every `step_ms`; 0: never. */
static void make(struct world *w, struct made *m, uint32_t step_ms)
{
	struct sandbox_spec spec = {0};

	sampler_stop(w->service);
	world_create(w, m, &spec);
	assert_true(m->ok);
	if (step_ms)
		sampler_start(w->service, step_ms);
}

static void check_numbers(const struct usage_sample *s)
{
	assert_int_equal(s->disk_bytes, 1000);
	assert_int_equal(s->net_in_bytes, 2000);
	assert_int_equal(s->net_out_bytes, 3000);
	assert_true(s->memory_bytes > 100000); /* this process */
	assert_true(llabs(realtime_ms() - s->at_ms) < 120000);
}

static void new_sandbox_has_numbers_but_no_samples(void **state)
{
	struct world *w = *state;
	struct made m;

	make(w, &m, 0);
	const struct usage_answer *a = get(w, m.view.id);
	assert_true(a->ok);
	check_numbers(&a->view.now);
	assert_int_equal(a->view.now.cpu, USAGE_CPU_NONE);
	assert_int_equal(a->view.n, 0);
	assert_int_equal(a->view.size.vcpus, m.view.config.size.vcpus);
	assert_int_equal(a->view.size.ram_mib, m.view.config.size.ram_mib);
	assert_int_equal(a->view.size.rootfs_gb, m.view.config.size.rootfs_gb);
}

static void samples_are_taken_at_each_step(void **state)
{
	struct world *w = *state;
	struct made m;

	make(w, &m, 1100);
	world_until(w, has_cpu, of_id(w, m.view.id));
	const struct usage_answer *a = get(w, m.view.id);
	assert_true(a->view.n >= 2);
	check_numbers(&a->samples[0]);
	assert_int_equal(a->samples[0].cpu, USAGE_CPU_NONE);
	assert_true(a->samples[1].at_ms > a->samples[0].at_ms);
	assert_true(a->samples[1].cpu_ms >= a->samples[0].cpu_ms);
	assert_int_not_equal(a->samples[a->view.n - 1].cpu, USAGE_CPU_NONE);
}

static void vm_that_does_not_answer_delays_nothing_for_long(void **state)
{
	struct world *w = *state;
	struct made m;

	make(w, &m, 0);
	check_numbers(&get(w, m.view.id)->view.now);
	fakes_fault(w->fakes, FAKES_STATS_WAIT, 1);
	check_numbers(&get(w, m.view.id)->view.now); /* the last numbers */
	check_numbers(&get(w, m.view.id)->view.now); /* without another request */
	assert_int_equal(fakes_waiting(w->fakes), 1);
	fakes_go(w->fakes);
	check_numbers(&get(w, m.view.id)->view.now);
}

static void impossible_numbers_are_limited(void **state)
{
	struct world *w = *state;
	struct made m;

	make(w, &m, 0);
	fakes_fault(w->fakes, FAKES_STATS_LIE, 1);
	const struct usage_sample *now = &get(w, m.view.id)->view.now;
	assert_true(now->net_out_bytes == UINT64_C(1) << 53);
	assert_true(now->disk_bytes == UINT64_C(1) << 53);
}

static void end_of_the_sandbox_ends_the_call(void **state)
{
	struct world *w = *state;
	struct usage_answer a;
	struct made m;

	make(w, &m, 0);
	fakes_fault(w->fakes, FAKES_STATS_WAIT, 1);
	start(w, &a, m.view.id);
	struct done d;
	world_delete_start(w, &d, m.view.id);
	world_until_true(w, &a.done);
	assert_false(a.ok);
	fakes_go(w->fakes);
	world_until_true(w, &d.done);
	assert_int_equal(get(w, m.view.id)->failure.code, FAIL_NOT_FOUND);
}

static void abandoned_call_is_not_answered(void **state)
{
	struct world *w = *state;
	struct usage_answer a, b;
	struct made m;

	make(w, &m, 0);
	start(w, &a, m.view.id);
	start(w, &b, m.view.id);
	op_abandon(a.call);
	world_until_true(w, &b.done);
	assert_true(b.ok);
	assert_false(a.done);
}

/* The sandbox gets another VM, whose CPU time is not comparable. */
static void samples_continue_after_a_merge(void **state)
{
	struct world *w = *state;
	struct forked k;
	struct made m;
	struct done d;

	make(w, &m, 1100);
	world_fork(w, &k, m.view.id, 1);
	wait_for_samples(w, m.view.id, 1);
	wait_for_samples(w, k.ids[0], 1);
	unsigned before = usage_of(of_id(w, m.view.id))->ring.n;
	world_merge(w, &d, m.view.id, k.ids[0]);
	assert_false(d.failed);
	wait_for_samples(w, m.view.id, before + 1);
	const struct usage_answer *a = get(w, m.view.id);
	assert_true(a->ok);
	check_numbers(&a->view.now);
}

static void next_instance_starts_with_no_samples(void **state)
{
	struct world *w = *state;
	struct made m;

	make(w, &m, 50);
	wait_for_samples(w, m.view.id, 1);
	world_kill_service(w);
	world_start_service(w);
	sampler_stop(w->service);
	world_wait_ready(w);
	const struct usage_answer *a = get(w, m.view.id);
	assert_true(a->ok);
	assert_int_equal(a->view.n, 0);
	sampler_start(w->service, 50);
	wait_for_samples(w, m.view.id, 1);
}

/* Runs as a VM process: idle until the byte, then busy. */
static _Noreturn void be_idle_then_busy(int fd)
{
	char byte;

	if (read(fd, &byte, 1) == 1)
		for (;;)
			;
	_exit(0);
}

static bool lies(void *arg)
{
	return usage_of(arg)->found.disk_bytes != 1000;
}

/* Its last report is still right. The fake VM would lie if it were asked. */
static void vm_that_has_not_run_is_not_asked(void **state)
{
	struct world *w = *state;
	struct made m;
	int ends[2];

	make(w, &m, 0);
	struct sandbox *s = of_id(w, m.view.id);
	assert_int_equal(pipe(ends), 0);
	pid_t idle = fork();
	if (!idle)
		be_idle_then_busy(ends[0]);
	s->pid = (uint32_t)idle;
	sampler_start(w->service, 50);
	wait_for_samples(w, m.view.id, 1);
	fakes_fault(w->fakes, FAKES_STATS_LIE, 1);
	wait_for_samples(w, m.view.id, 4);
	check_numbers(usage_ring_at(&usage_of(s)->ring, 3));
	assert_int_equal(write(ends[1], "", 1), 1);
	world_until(w, lies, s);
	kill(idle, SIGKILL);
	waitpid(idle, NULL, 0);
	close(ends[0]);
	close(ends[1]);
}

/* Those in neighbouring slots have different turns. */
static void samples_of_sandboxes_are_spread(void **state)
{
	struct world *w = *state;
	struct made m[3];

	for (unsigned i = 0; i < 3; i++)
		make(w, &m[i], 0);
	sampler_start(w->service, 500);
	for (unsigned i = 0; i < 3; i++)
		wait_for_samples(w, m[i].view.id, 1);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(usage_of(of_id(w, m[i].view.id))->read_ms,
					     usage_of(of_id(w, m[j].view.id))->read_ms);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(new_sandbox_has_numbers_but_no_samples),
		WORLD_TEST(samples_are_taken_at_each_step),
		WORLD_TEST(vm_that_does_not_answer_delays_nothing_for_long),
		WORLD_TEST(impossible_numbers_are_limited),
		WORLD_TEST(end_of_the_sandbox_ends_the_call),
		WORLD_TEST(abandoned_call_is_not_answered),
		WORLD_TEST(samples_continue_after_a_merge),
		WORLD_TEST(next_instance_starts_with_no_samples),
		WORLD_TEST(vm_that_has_not_run_is_not_asked),
		WORLD_TEST(samples_of_sandboxes_are_spread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
