// SPDX-License-Identifier: Apache-2.0
/* Jobs in steps: their ends, cancelled at each point, and without a worker thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "orchestrator/io/step-job.h"

int __real_loop_work(struct loop *l, enum loop_pool pool, void (*work)(void *arg),
		     void (*done)(void *arg), void *arg);
int __wrap_loop_work(struct loop *l, enum loop_pool pool, void (*work)(void *arg),
		     void (*done)(void *arg), void *arg);

struct fixture {
	struct loop *loop;
	struct job *job;
	int last;	  /* the last step's result */
	unsigned n_steps; /* until the last one */
	unsigned again;	  /* how often `done` wants another step */
	unsigned steps, undone, done, freed;
	int ret, code; /* as `done` saw them */
	sem_t entered, leave;
};

struct job {
	struct step_job job;
	struct fixture *f;
	pthread_t owner;
};

static unsigned accepted; /* calls of loop_work before all others fail */

int __wrap_loop_work(struct loop *l, enum loop_pool pool, void (*work)(void *arg),
		     void (*done)(void *arg), void *arg)
{
	return accepted-- ? __real_loop_work(l, pool, work, done, arg) : -ENOMEM;
}

static int step(void *arg)
{
	struct job *job = arg;
	struct fixture *f = job->f;

	assert_false(pthread_equal(job->owner, pthread_self()));
	f->steps++;
	sem_post(&f->entered);
	sem_wait(&f->leave);
	if (f->steps < f->n_steps)
		return 0;
	return f->last < 0 ? err_say(&job->job.err, -f->last, "it failed") : f->last;
}

static void undo(void *arg)
{
	struct job *job = arg;

	assert_false(pthread_equal(job->owner, pthread_self()));
	job->f->undone++;
}

static void done(void *owner, void *arg)
{
	struct fixture *f = owner;
	struct job *job = arg;

	assert_true(pthread_equal(job->owner, pthread_self()));
	assert_ptr_equal(job, f->job);
	f->done++;
	f->ret = job->job.ret;
	if (f->again && f->again--)
		job->job.ret = 0;
	f->code = job->job.err.code;
}

static void free_job(void *arg)
{
	struct job *job = arg;

	job->f->freed++;
	loop_stop(job->f->loop);
	free(job);
}

static void start(struct fixture *f, unsigned n_steps, int last)
{
	static const struct step_job_ops ops = {LOOP_BULK, step, undo, done, free_job};

	f->n_steps = n_steps;
	f->last = last;
	f->job = calloc(1, sizeof(*f->job));
	f->job->f = f;
	f->job->owner = pthread_self();
	step_job_start(f->loop, f->job, &ops, f);
	assert_int_equal(f->done, 0);
}

static void let(struct fixture *f, unsigned steps)
{
	while (steps--)
		sem_post(&f->leave);
}

static void expect(const struct fixture *f, unsigned steps, unsigned undone, unsigned done_calls)
{
	assert_int_equal(f->steps, steps);
	assert_int_equal(f->undone, undone);
	assert_int_equal(f->done, done_calls);
	assert_int_equal(f->freed, 1);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e;

	accepted = 100;
	sem_init(&f->entered, 0, 0);
	sem_init(&f->leave, 0, 0);
	*state = f;
	return loop_new(&f->loop, &e);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	loop_free(f->loop);
	free(f);
	return 0;
}

static void test_steps_follow_until_the_end(void **state)
{
	struct fixture *f = *state;

	start(f, 3, 1);
	let(f, 3);
	loop_run(f->loop);
	expect(f, 3, 0, 1);
	assert_int_equal(f->ret, 1);
}

static void test_done_wants_another_step(void **state)
{
	struct fixture *f = *state;

	f->again = 1;
	start(f, 2, 1);
	let(f, 3);
	loop_run(f->loop);
	expect(f, 3, 0, 2);
	assert_int_equal(f->ret, 1);
}

static void test_done_hears_that_another_step_is_impossible(void **state)
{
	struct fixture *f = *state;

	accepted = 1;
	f->again = 1;
	start(f, 1, 1);
	let(f, 1);
	loop_run(f->loop);
	expect(f, 1, 0, 2);
	assert_int_equal(f->ret, -ENOMEM);
}

static void test_failed_step_is_the_last_one(void **state)
{
	struct fixture *f = *state;

	start(f, 2, -EIO);
	let(f, 2);
	loop_run(f->loop);
	expect(f, 2, 0, 1);
	assert_int_equal(f->ret, -EIO);
	assert_int_equal(f->code, -EIO);
}

static void test_job_cancelled_in_a_step_is_undone(void **state)
{
	struct fixture *f = *state;

	start(f, 3, 1);
	sem_wait(&f->entered);
	step_job_cancel(f->job);
	let(f, 1);
	loop_run(f->loop);
	expect(f, 1, 1, 0);
}

/* The owner cancels before it has heard that the work is complete. */
static void test_complete_job_is_undone_too(void **state)
{
	struct fixture *f = *state;

	start(f, 1, 1);
	sem_wait(&f->entered);
	let(f, 1);
	step_job_cancel(f->job);
	loop_run(f->loop);
	expect(f, 1, 1, 0);
}

static void test_cancelled_job_that_fails_is_only_freed(void **state)
{
	struct fixture *f = *state;

	start(f, 1, -EIO);
	sem_wait(&f->entered);
	step_job_cancel(f->job);
	let(f, 1);
	loop_run(f->loop);
	expect(f, 1, 0, 0);
}

static void test_without_a_worker_the_job_fails_later(void **state)
{
	struct fixture *f = *state;

	accepted = 0;
	start(f, 1, 1);
	loop_run(f->loop);
	expect(f, 0, 0, 1);
	assert_int_equal(f->ret, -ENOMEM);
}

static void test_without_a_worker_for_the_second_step_the_job_fails(void **state)
{
	struct fixture *f = *state;

	accepted = 1;
	start(f, 2, 1);
	let(f, 1);
	loop_run(f->loop);
	expect(f, 1, 0, 1);
	assert_int_equal(f->ret, -ENOMEM);
}

static void test_cancel_frees_a_job_that_never_began(void **state)
{
	struct fixture *f = *state;

	accepted = 0;
	start(f, 1, 1);
	step_job_cancel(f->job);
	expect(f, 0, 0, 0);
	step_job_cancel(NULL);
}

static void test_job_ends_with_its_loop(void **state)
{
	struct fixture *f = *state;
	struct err e;

	start(f, 5, 1);
	sem_wait(&f->entered);
	step_job_cancel(f->job);
	let(f, 1);
	loop_free(f->loop);
	assert_int_equal(f->freed, 1);
	assert_int_equal(f->done, 0);
	assert_int_equal(loop_new(&f->loop, &e), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_steps_follow_until_the_end),
		T(test_done_wants_another_step),
		T(test_done_hears_that_another_step_is_impossible),
		T(test_failed_step_is_the_last_one),
		T(test_job_cancelled_in_a_step_is_undone),
		T(test_complete_job_is_undone_too),
		T(test_cancelled_job_that_fails_is_only_freed),
		T(test_without_a_worker_the_job_fails_later),
		T(test_without_a_worker_for_the_second_step_the_job_fails),
		T(test_cancel_frees_a_job_that_never_began),
		T(test_job_ends_with_its_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
