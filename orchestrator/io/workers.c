// SPDX-License-Identifier: Apache-2.0
/* A pool of two threads for jobs that block. The threads and the loop share only the queues `todo`
 * and `finished`. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/list.h"
#include "orchestrator/io/loop-internal.h"

#define THREADS 2

struct job {
	struct list link;
	void (*work)(void *arg);
	void (*done)(void *arg);
	void *arg;
};

struct workers {
	pthread_mutex_t lock;
	sem_t wake; /* posted for each job, and for each thread when the pool is closing */
	struct list todo, finished;
	bool closing;
	int wake_fd;
	pthread_t threads[THREADS];
	size_t n_threads;
};

static struct job *take(struct list *from)
{
	if (list_empty(from))
		return NULL;
	struct job *job = container_of(from->next, struct job, link);
	list_del(&job->link);
	return job;
}

/*
 * Waits for the next job. Returns NULL when the thread must end. A semaphore is cheaper here than a
 * condition variable: after a condition wait, glibc takes the mutex for contended, and unlocking it
 * makes a needless system call.
 */
static struct job *next_job(struct workers *w)
{
	while (sem_wait(&w->wake) < 0) /* interrupted, such as by a debugger */
		;
	pthread_mutex_lock(&w->lock);
	struct job *job = take(&w->todo);
	pthread_mutex_unlock(&w->lock);
	return job;
}

static void *worker_main(void *arg)
{
	struct workers *w = arg;
	struct job *job;

	while ((job = next_job(w))) {
		job->work(job->arg);
		pthread_mutex_lock(&w->lock);
		list_add_tail(&w->finished, &job->link);
		/* The loop takes the lock as soon as it wakes: wake it after the unlock. */
		pthread_mutex_unlock(&w->lock);
		eventfd_write(w->wake_fd, 1);
	}
	return NULL;
}

static int start_threads(struct workers *w)
{
	sigset_t all, before;
	int ret = 0;

	/* Only the loop's thread handles signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!ret && w->n_threads < THREADS) {
		ret = pthread_create(&w->threads[w->n_threads], NULL, worker_main, w);
		w->n_threads += ret == 0;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return w->n_threads ? 0 : -ret;
}

int workers_new(struct workers **out, int wake_fd)
{
	struct workers *w = must_alloc(sizeof(*w));

	w->wake_fd = wake_fd;
	pthread_mutex_init(&w->lock, NULL);
	sem_init(&w->wake, 0, 0);
	int ret = start_threads(w);
	if (ret < 0) {
		workers_free(w);
		return ret;
	}
	*out = w;
	return 0;
}

void workers_free(struct workers *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->closing = true;
	pthread_mutex_unlock(&w->lock);
	for (size_t i = 0; i < w->n_threads; i++)
		sem_post(&w->wake);
	for (size_t i = 0; i < w->n_threads; i++)
		pthread_join(w->threads[i], NULL);
	workers_reap(w);
	sem_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

int workers_add(struct workers *w, void (*work)(void *arg), void (*done)(void *arg), void *arg)
{
	struct job *job = must_alloc(sizeof(*job));

	*job = (struct job){.work = work, .done = done, .arg = arg};
	pthread_mutex_lock(&w->lock);
	bool closing = w->closing;
	if (!closing)
		list_add_tail(&w->todo, &job->link);
	pthread_mutex_unlock(&w->lock);
	if (closing)
		free(job);
	else
		sem_post(&w->wake);
	return closing ? -ECANCELED : 0;
}

void workers_reap(struct workers *w)
{
	for (;;) {
		pthread_mutex_lock(&w->lock);
		struct job *job = take(&w->finished);
		pthread_mutex_unlock(&w->lock);
		if (!job)
			return;
		job->done(job->arg);
		free(job);
	}
}
