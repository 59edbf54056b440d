// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/vcpus.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"

/* Enough for the device models, which keep nothing big on the stack. */
#define STACK_BYTES (64u << 10)
#define KICK_SIGNAL SIGUSR1
#define LEAD_NS	    10000000ull

struct vcpu_thread {
	struct vcpus *all;
	pthread_t thread;
	struct kvm_vcpu *cpu;
	uint64_t exits; /* written by its thread, read by the loop's */
	unsigned index;
	bool started;
	bool job_due; /* it has the job still before it */
};

struct vcpus {
	const struct vcpus_ops *ops;
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_cond_t still; /* the last thread that ran is parked */
	unsigned running;     /* threads that are not parked */
	unsigned busy;	      /* threads that start, or have a job before them */
	bool run, quit;	      /* what the threads shall do */
	bool lead;	      /* vCPU 0 runs alone */
	uint64_t lead_ns;     /* until then at most; 0: it does not run yet */
	struct err failed;    /* the first failure of a start or a job */
	const struct vcpus_job *job;
	void *job_arg;
	unsigned count;
	struct vcpu_thread threads[];
};

static void on_kick(int signal)
{
}

static bool shall_run(struct vcpus *v)
{
	return __atomic_load_n(&v->run, __ATOMIC_ACQUIRE);
}

/* immediate_exit makes KVM finish a half-done exit and come back, so it is where a vCPU stops. */
static void run_until_told(struct vcpu_thread *t)
{
	struct vcpus *v = t->all;

	for (;;) {
		int r = kvm_vcpu_run(t->cpu);

		__atomic_store_n(&t->exits, t->exits + 1, __ATOMIC_RELAXED);
		if (r != -EINTR && r != -EAGAIN)
			v->ops->on_exit(v->arg, t->index, t->cpu->run, r);
		/* Any failure, for a VM that the kernel gave up never says EINTR again. */
		if (r && !shall_run(v))
			return;
	}
}

/* With the lock held. */
static void note_failure(struct vcpus *v, int r, const struct err *e)
{
	if (r && !v->failed.code)
		v->failed = *e;
}

static void report_start(struct vcpus *v, int r, const struct err *e)
{
	pthread_mutex_lock(&v->lock);
	note_failure(v, r, e);
	if (!--v->busy)
		pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

/* With the lock held, which is let go meanwhile. */
static void do_job(struct vcpu_thread *t)
{
	struct vcpus *v = t->all;
	struct err e = {0};
	int r;

	t->job_due = false;
	pthread_mutex_unlock(&v->lock);
	r = v->job->each(v->job_arg, t->index, &e);
	pthread_mutex_lock(&v->lock);
	note_failure(v, r, &e);
	/* With all others done, the last step has nobody beside it. */
	if (v->busy == 1 && !v->failed.code)
		note_failure(v, v->job->last(v->job_arg, &e), &e);
	if (!--v->busy)
		pthread_cond_broadcast(&v->changed);
}

/* With the lock held. */
static bool may_run(const struct vcpu_thread *t)
{
	const struct vcpus *v = t->all;

	return v->run && !v->busy && !v->failed.code && (!t->index || !v->lead);
}

/* With the lock held, which is let go meanwhile. */
static void await_change(struct vcpus *v)
{
	struct timespec until;

	if (!v->lead || !v->run || v->busy) {
		pthread_cond_wait(&v->changed, &v->lock);
		return;
	}
	if (!v->lead_ns)
		v->lead_ns = now_ns() + LEAD_NS;
	until = (struct timespec){.tv_sec = (time_t)(v->lead_ns / 1000000000),
				  .tv_nsec = (long)(v->lead_ns % 1000000000)};
	if (pthread_cond_timedwait(&v->changed, &v->lock, &until) == ETIMEDOUT) {
		v->lead = false;
		pthread_cond_broadcast(&v->changed);
	}
}

/* False when the thread shall end. */
static bool park(struct vcpu_thread *t)
{
	struct vcpus *v = t->all;
	bool quit;

	pthread_mutex_lock(&v->lock);
	while (!v->quit && (t->job_due || !may_run(t))) {
		if (t->job_due)
			do_job(t);
		else
			await_change(v);
	}
	quit = v->quit;
	v->running += !quit;
	pthread_mutex_unlock(&v->lock);
	return !quit;
}

static void stands_still(struct vcpus *v)
{
	bool last;

	pthread_mutex_lock(&v->lock);
	last = !--v->running;
	pthread_mutex_unlock(&v->lock);
	/* With the lock held, who wakes would wait for it at once. */
	if (last)
		pthread_cond_signal(&v->still);
}

static void *thread_main(void *arg)
{
	struct vcpu_thread *t = arg;
	struct vcpus *v = t->all;
	struct err e = {0};

	report_start(v, v->ops->on_start ? v->ops->on_start(v->arg, &e) : 0, &e);
	for (bool first = true; park(t); first = false) {
		if (first)
			v->ops->on_first_run(v->arg, t->index);
		run_until_told(t);
		stands_still(v);
	}
	return NULL;
}

static int start_threads(struct vcpus *v, struct err *e)
{
	pthread_attr_t attr;
	int r = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_mutex_lock(&v->lock);
	for (unsigned i = 0; !r && i < v->count; i++) {
		r = pthread_create(&v->threads[i].thread, &attr, thread_main, &v->threads[i]);
		v->threads[i].started = !r;
		v->busy += !r;
	}
	pthread_mutex_unlock(&v->lock);
	pthread_attr_destroy(&attr);
	return r ? err_set(e, r, "start a vCPU thread") : 0;
}

static int wait_all_done(struct vcpus *v, struct err *e)
{
	int r;

	pthread_mutex_lock(&v->lock);
	while (v->busy)
		pthread_cond_wait(&v->changed, &v->lock);
	r = v->failed.code;
	if (r && e)
		*e = v->failed;
	pthread_mutex_unlock(&v->lock);
	return r;
}

int vcpus_new(struct vcpus **out, struct kvm_vm *vm, const struct vcpus_ops *ops, void *arg,
	      struct err *e)
{
	struct sigaction kick = {.sa_handler = on_kick};
	struct vcpus *v = calloc(1, sizeof(*v) + vm->nvcpus * sizeof(v->threads[0]));
	pthread_condattr_t monotonic;
	int r;

	if (!v)
		return err_set(e, ENOMEM, "make the vCPU threads");
	v->ops = ops;
	v->arg = arg;
	v->count = vm->nvcpus;
	pthread_mutex_init(&v->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&v->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_cond_init(&v->still, NULL);
	/* Without SA_RESTART: the signal's only use is to make KVM_RUN return. */
	sigaction(KICK_SIGNAL, &kick, NULL);
	for (unsigned i = 0; i < v->count; i++) {
		v->threads[i].all = v;
		v->threads[i].index = i;
		v->threads[i].cpu = &vm->vcpu[i];
	}
	r = start_threads(v, e);
	if (!r)
		r = wait_all_done(v, e);
	if (r) {
		vcpus_free(v);
		return r;
	}
	*out = v;
	return 0;
}

/* With the lock held. immediate_exit covers a thread that is just about to enter the guest. */
static void tell_to_stop(struct vcpus *v)
{
	__atomic_store_n(&v->run, false, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < v->count; i++) {
		__atomic_store_n(&v->threads[i].cpu->run->immediate_exit, 1, __ATOMIC_RELEASE);
		if (v->running)
			pthread_kill(v->threads[i].thread, KICK_SIGNAL);
	}
}

void vcpus_free(struct vcpus *v)
{
	if (!v)
		return;
	vcpus_pause(v);
	pthread_mutex_lock(&v->lock);
	v->quit = true;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
	for (unsigned i = 0; i < v->count; i++)
		if (v->threads[i].started)
			pthread_join(v->threads[i].thread, NULL);
	pthread_cond_destroy(&v->changed);
	pthread_cond_destroy(&v->still);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

void vcpus_prepare(struct vcpus *v, const struct vcpus_job *job, void *arg)
{
	pthread_mutex_lock(&v->lock);
	v->job = job;
	v->job_arg = arg;
	v->busy = v->count;
	for (unsigned i = 0; i < v->count; i++)
		v->threads[i].job_due = true;
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

int vcpus_prepared(struct vcpus *v, struct err *e)
{
	return wait_all_done(v, e);
}

void vcpus_lead(struct vcpus *v)
{
	pthread_mutex_lock(&v->lock);
	v->lead = true;
	v->lead_ns = 0;
	pthread_mutex_unlock(&v->lock);
}

void vcpus_follow(struct vcpus *v)
{
	pthread_mutex_lock(&v->lock);
	v->lead = false;
	pthread_mutex_unlock(&v->lock);
	pthread_cond_broadcast(&v->changed);
}

void vcpus_run(struct vcpus *v)
{
	pthread_mutex_lock(&v->lock);
	for (unsigned i = 0; i < v->count; i++)
		__atomic_store_n(&v->threads[i].cpu->run->immediate_exit, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&v->run, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&v->lock);
	pthread_cond_broadcast(&v->changed);
}

void vcpus_pause(struct vcpus *v)
{
	pthread_mutex_lock(&v->lock);
	tell_to_stop(v);
	while (v->running)
		pthread_cond_wait(&v->still, &v->lock);
	pthread_mutex_unlock(&v->lock);
}

void vcpus_halt(struct vcpus *v)
{
	pthread_mutex_lock(&v->lock);
	tell_to_stop(v);
	pthread_mutex_unlock(&v->lock);
}

uint64_t vcpus_exits(const struct vcpus *v)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < v->count; i++)
		sum += __atomic_load_n(&v->threads[i].exits, __ATOMIC_RELAXED);
	return sum;
}
