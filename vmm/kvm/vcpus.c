// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/vcpus.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/num.h"

/* Enough for the device models, which keep nothing big on the stack. */
#define STACK_BYTES (64u << 10)
#define KICK_SIGNAL SIGUSR1
#define LEAD_CPU_NS 50000000ull	  /* see vcpus_lead */
#define LEAD_MAX_NS 1000000000ull /* the same */

struct vcpu_thread {
	struct vcpus *all;
	pthread_t thread;
	pid_t tid;
	struct kvm_vcpu *cpu;
	/*
	 * Written by the vCPU's thread, read by the loop's thread: the number of KVM_RUN returns
	 * and, for the last one, the TSC, the reason (KVM_EXIT_*, or -errno) and the address that
	 * the guest accessed.
	 */
	uint64_t exits, exit_tsc, exit_addr;
	int64_t exit_reason;
	bool in_guest; /* the thread is in KVM_RUN, or about to be */
	unsigned index;
	bool parked;  /* the thread does not touch its vCPU */
	bool job_due; /* the thread has yet to do the job */
};

struct vcpus {
	const struct vcpus_ops *ops;
	void *arg;
	pid_t pid;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_cond_t quiesced; /* signalled when the last running thread has parked */
	unsigned running;	 /* threads that are not parked */
	unsigned busy;		 /* threads that are starting or have a job to do */
	bool run;		 /* what the threads have to do */
	bool held;		 /* stopped by vcpus_hold */
	bool lead;		 /* vCPU 0 runs alone */
	uint64_t lead_ns;	 /* latest end of the lead; 0: no thread waits yet */
	uint64_t lead_cpu_ns;	 /* CPU time of vCPU 0's thread at which the lead ends */
	struct err failed;	 /* the first failure of a start or a job */
	const struct vcpus_job *job;
	void *job_arg;
	uint64_t began_tsc, began_ns; /* for the rate of the TSC: see ns_since */
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

#define NOTE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

/*
 * Records the exit for vcpus_activity. The cost, a few stores and one read of the TSC, is small
 * compared to that of the exit.
 */
static void note_exit(struct vcpu_thread *t, int r)
{
	const struct kvm_run *run = t->cpu->run;

	NOTE(t->in_guest, false);
	NOTE(t->exits, t->exits + 1);
	NOTE(t->exit_tsc, __builtin_ia32_rdtsc());
	NOTE(t->exit_reason, r ? r : (int64_t)run->exit_reason);
	if (!r && run->exit_reason == KVM_EXIT_MMIO)
		NOTE(t->exit_addr, run->mmio.phys_addr);
	else if (!r && run->exit_reason == KVM_EXIT_IO)
		NOTE(t->exit_addr, run->io.port);
}

/*
 * Runs the vCPU until it has to stop. immediate_exit makes KVM complete the last exit and return,
 * so a vCPU never stops in the middle of an exit.
 */
static void run_until_stopped(struct vcpu_thread *t)
{
	struct vcpus *v = t->all;

	for (;;) {
		int r;

		NOTE(t->in_guest, true);
		r = kvm_vcpu_run(t->cpu);
		note_exit(t, r);
		if (r != -EINTR && r != -EAGAIN)
			v->ops->on_exit(v->arg, t->index, t->cpu->run, r);
		/*
		 * Checks for a stop after any failure, since KVM_RUN never returns EINTR for a VM
		 * that the kernel has abandoned.
		 */
		if (r && !shall_run(v))
			return;
	}
}

/* The caller holds the lock. */
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

/* The caller holds the lock, which is released during the job. */
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
	/* All other threads are done, so the last step runs alone. */
	if (v->busy == 1 && !v->failed.code)
		note_failure(v, v->job->last(v->job_arg, &e), &e);
	if (!--v->busy)
		pthread_cond_broadcast(&v->changed);
}

/* The caller holds the lock. */
static bool may_run(const struct vcpu_thread *t)
{
	const struct vcpus *v = t->all;

	return v->run && !v->busy && !v->failed.code && (!t->index || !v->lead);
}

static struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
				 .tv_nsec = (long)(ns % 1000000000)};
}

/* Returns the CPU time of vCPU 0's thread, the guest's included; UINT64_MAX if it can't be read. */
static uint64_t leader_cpu_ns(const struct vcpus *v)
{
	struct timespec used;
	clockid_t clock;

	if (pthread_getcpuclockid(v->threads[0].thread, &clock) || clock_gettime(clock, &used))
		return UINT64_MAX;
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* Returns how long to wait until the lead may be over; 0: it is over. */
static uint64_t lead_left_ns(struct vcpus *v)
{
	const uint64_t now = now_ns(), used = leader_cpu_ns(v);

	if (!v->lead_ns) {
		v->lead_ns = now + LEAD_MAX_NS;
		v->lead_cpu_ns = used + LEAD_CPU_NS;
	}
	if (now >= v->lead_ns || used >= v->lead_cpu_ns)
		return 0;
	return min_u64(v->lead_ns - now, v->lead_cpu_ns - used);
}

/* Waits for a change, or for the end of the lead. The caller holds the lock, which is released
 * while waiting. The first call sets the end of the lead. */
static void await_change(struct vcpus *v)
{
	if (!v->lead || !v->run || v->busy) {
		pthread_cond_wait(&v->changed, &v->lock);
		return;
	}
	const uint64_t left = lead_left_ns(v);
	if (left) {
		const struct timespec until = to_timespec(now_ns() + left);

		pthread_cond_timedwait(&v->changed, &v->lock, &until);
		return;
	}
	v->lead = false;
	pthread_cond_broadcast(&v->changed);
}

static void park(struct vcpu_thread *t)
{
	struct vcpus *v = t->all;

	pthread_mutex_lock(&v->lock);
	t->parked = true;
	while (t->job_due || !may_run(t)) {
		if (t->job_due)
			do_job(t);
		else
			await_change(v);
	}
	v->running++;
	t->parked = false;
	pthread_mutex_unlock(&v->lock);
}

static void note_parked(struct vcpu_thread *t)
{
	struct vcpus *v = t->all;
	bool last;

	pthread_mutex_lock(&v->lock);
	t->parked = true;
	last = !--v->running;
	pthread_mutex_unlock(&v->lock);
	/* Signal without the lock, or the woken thread would block on it at once. */
	if (last)
		pthread_cond_signal(&v->quiesced);
}

/* Names the thread for tools like ps and top. */
static void set_name(const struct vcpu_thread *t)
{
	char name[16];

	snprintf(name, sizeof(name), "vcpu %u", t->index);
	pthread_setname_np(pthread_self(), name);
}

__attribute__((noreturn)) static void *thread_main(void *arg)
{
	struct vcpu_thread *t = arg;
	struct vcpus *v = t->all;
	struct err e = {0};

	t->tid = gettid(); /* before report_start, for which vcpus_new waits */
	set_name(t);
	report_start(v, v->ops->on_start ? v->ops->on_start(v->arg, &e) : 0, &e);
	park(t);
	v->ops->on_first_run(v->arg, t->index);
	for (;;) {
		run_until_stopped(t);
		note_parked(t);
		park(t);
	}
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
	v->pid = getpid();
	pthread_mutex_init(&v->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&v->changed, &monotonic);
	pthread_cond_init(&v->quiesced, &monotonic);
	pthread_condattr_destroy(&monotonic);
	v->began_tsc = __builtin_ia32_rdtsc();
	v->began_ns = now_ns();
	/* Without SA_RESTART: the signal only serves to make KVM_RUN return. */
	sigaction(KICK_SIGNAL, &kick, NULL);
	for (unsigned i = 0; i < v->count; i++) {
		v->threads[i].all = v;
		v->threads[i].index = i;
		v->threads[i].cpu = &vm->vcpu[i];
		v->threads[i].parked = true;
	}
	r = start_threads(v, e);
	if (!r)
		r = wait_all_done(v, e);
	if (!r)
		*out = v;
	return r;
}

/* Makes KVM_RUN return. Not pthread_kill: it makes four system calls, which lengthen the pause. */
static void kick(const struct vcpu_thread *t)
{
	syscall(SYS_tgkill, t->all->pid, t->tid, KICK_SIGNAL);
}

/*
 * The caller holds the lock. immediate_exit stops a thread that is about to enter the guest, which
 * the signal alone would miss.
 */
static void request_stop(struct vcpus *v)
{
	__atomic_store_n(&v->run, false, __ATOMIC_RELEASE);
	v->held = false;
	for (unsigned i = 0; i < v->count; i++) {
		__atomic_store_n(&v->threads[i].cpu->run->immediate_exit, 1, __ATOMIC_RELEASE);
		if (v->running)
			kick(&v->threads[i]);
	}
}

void vcpus_prepare(struct vcpus *v, const struct vcpus_job *job, void *arg)
{
	pthread_mutex_lock(&v->lock);
	v->job = job;
	v->job_arg = arg;
	v->busy = v->count;
	for (unsigned i = 0; i < v->count; i++)
		v->threads[i].job_due = true;
	pthread_mutex_unlock(&v->lock);
	pthread_cond_broadcast(&v->changed);
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

/* The caller holds the lock, and wakes the threads once it has released it. */
static void request_run(struct vcpus *v)
{
	for (unsigned i = 0; i < v->count; i++)
		__atomic_store_n(&v->threads[i].cpu->run->immediate_exit, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&v->run, true, __ATOMIC_RELEASE);
}

void vcpus_run(struct vcpus *v)
{
	pthread_mutex_lock(&v->lock);
	request_run(v);
	pthread_mutex_unlock(&v->lock);
	pthread_cond_broadcast(&v->changed);
}

void vcpus_pause(struct vcpus *v)
{
	pthread_mutex_lock(&v->lock);
	request_stop(v);
	while (v->running)
		pthread_cond_wait(&v->quiesced, &v->lock);
	pthread_mutex_unlock(&v->lock);
}

void vcpus_halt(struct vcpus *v)
{
	pthread_mutex_lock(&v->lock);
	request_stop(v);
	pthread_mutex_unlock(&v->lock);
}

void vcpus_hold(struct vcpus *v, unsigned ms)
{
	const struct timespec until = to_timespec(now_ns() + ms * 1000000ull);
	int r = 0;

	pthread_mutex_lock(&v->lock);
	if (v->run) {
		request_stop(v);
		v->held = true;
	}
	while (v->running && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&v->quiesced, &v->lock, &until);
	pthread_mutex_unlock(&v->lock);
}

void vcpus_unhold(struct vcpus *v)
{
	pthread_mutex_lock(&v->lock);
	if (v->held)
		request_run(v);
	v->held = false;
	pthread_mutex_unlock(&v->lock);
	pthread_cond_broadcast(&v->changed);
}

#define NOTED(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/*
 * Returns the nanoseconds since the TSC had the value `tsc`. Derives the rate of the TSC from how
 * far the TSC and the clock have advanced since the start.
 */
static uint64_t ns_since(const struct vcpus *v, uint64_t tsc)
{
	uint64_t now = __builtin_ia32_rdtsc(), ns = now_ns() - v->began_ns;

	if (now <= tsc || now <= v->began_tsc)
		return 0;
	return (uint64_t)((double)(now - tsc) / (double)(now - v->began_tsc) * (double)ns);
}

struct vcpu_activity vcpus_activity(struct vcpus *v, unsigned i)
{
	const struct vcpu_thread *t = &v->threads[i];
	struct vcpu_activity a = {.in_guest = NOTED(t->in_guest),
				  .exits = NOTED(t->exits),
				  .exit_reason = NOTED(t->exit_reason),
				  .exit_addr = NOTED(t->exit_addr)};

	a.exit_ns = a.exits ? ns_since(v, NOTED(t->exit_tsc)) : 0;
	pthread_mutex_lock(&v->lock);
	a.parked = t->parked;
	pthread_mutex_unlock(&v->lock);
	return a;
}

uint64_t vcpus_exits(const struct vcpus *v)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < v->count; i++)
		sum += __atomic_load_n(&v->threads[i].exits, __ATOMIC_RELAXED);
	return sum;
}
