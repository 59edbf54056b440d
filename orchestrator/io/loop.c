// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/io/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/io/loop-internal.h"

void *loop_h2o(struct loop *l)
{
	return l->h2o;
}

/* Does nothing: loop_run takes the completions at the start of each turn. */
static void on_ring(h2o_socket_t *sock, const char *err)
{
}

static void on_wake(h2o_socket_t *sock, const char *err)
{
	struct loop *l = sock->data;
	eventfd_t ignored;

	eventfd_read(l->wake_fd, &ignored);
	for (int i = 0; i < LOOP_NPOOLS; i++)
		if (l->pools[i])
			workers_reap(l->pools[i]);
}

/* Calls `cb` when `fd` is readable. The socket takes ownership of `fd`. */
static h2o_socket_t *watch(struct loop *l, int fd, h2o_socket_cb cb)
{
	h2o_socket_t *sock = h2o_evloop_socket_create(l->h2o, fd, H2O_SOCKET_FLAG_DONT_READ);

	sock->data = l;
	h2o_socket_read_start(sock, cb);
	return sock;
}

static int open_fds(struct loop *l, struct err *e)
{
	scoped_fd int ring_fd = fcntl(uring_fd(&l->uring), F_DUPFD_CLOEXEC, 3);

	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ring_fd < 0 || l->wake_fd < 0) {
		close_fd(&l->wake_fd);
		return err_set(e, errno, "open the loop's descriptors");
	}
	l->h2o = h2o_evloop_create();
	l->ring_sock = watch(l, take_fd(&ring_fd), on_ring);
	l->wake_sock = watch(l, l->wake_fd, on_wake);
	return 0;
}

int loop_new(struct loop **out, struct err *e)
{
	struct loop *l = must_alloc(sizeof(*l));
	int ret = uring_init(&l->uring, l, e);

	if (ret == 0) {
		ret = open_fds(l, e);
		if (ret < 0)
			uring_fini(&l->uring);
	}
	if (ret == 0)
		*out = l;
	else
		free(l);
	return ret;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	for (int i = 0; i < LOOP_NPOOLS; i++)
		workers_free(l->pools[i]);
	uring_fini(&l->uring);
	h2o_socket_close(l->ring_sock);
	h2o_socket_close(l->wake_sock);
	/* Lets go of sockets that were closed when their callback was due: h2o would close them
	 * again. */
	h2o_timeout__do_post_callback(l->h2o);
	h2o_evloop_destroy(l->h2o);
	timers_fini(&l->timers);
	free(l);
}

/* Sends the gathered output, then runs the h2o callbacks that this made due: h2o_evloop_run would
 * sleep before it runs them. A second round sends what those callbacks gathered, such as the log
 * line of a request. */
static void flush(struct loop *l)
{
	for (int i = 0; i < 2; i++) {
		if (l->before_sleep)
			l->before_sleep(l->before_sleep_arg);
		h2o_timeout__do_post_callback(l->h2o);
	}
}

/*
 * Handles operations that complete at once before the loop sleeps, so that an answer from a local
 * peer does not cost a turn. The number of rounds is bounded, so that a peer that always has data
 * cannot delay others forever; remaining completions make the ring's descriptor readable.
 */
static void turn_ring(struct loop *l)
{
	for (int round = 0; round < 8; round++) {
		uring_submit(&l->uring);
		bool any = uring_reap(&l->uring);
		flush(l);
		if (!any && uring_wait_ms(&l->uring))
			return;
	}
	uring_submit(&l->uring);
}

static int32_t wait_ms(struct loop *l)
{
	int32_t ring = uring_wait_ms(&l->uring);
	int32_t timers = l->timers.count ? timers_wait_ms(&l->timers, loop_now_ms(l)) : INT32_MAX;

	return ring < timers ? ring : timers;
}

int loop_run(struct loop *l)
{
	while (!atomic_load(&l->stop)) {
		turn_ring(l);
		if (h2o_evloop_run(l->h2o, wait_ms(l)) != 0 && errno != EINTR)
			return -errno;
		if (l->timers.count)
			timers_run(&l->timers, loop_now_ms(l));
	}
	atomic_store(&l->stop, false);
	return 0;
}

void loop_stop(struct loop *l)
{
	int saved = errno;

	atomic_store(&l->stop, true);
	eventfd_write(l->wake_fd, 1);
	errno = saved;
}

void loop_before_sleep(struct loop *l, void (*fn)(void *arg), void *arg)
{
	l->before_sleep = fn;
	l->before_sleep_arg = arg;
}

int loop_work(struct loop *l, enum loop_pool pool, void (*work)(void *arg), void (*done)(void *arg),
	      void *arg)
{
	if (!l->pools[pool]) {
		int ret = workers_new(&l->pools[pool], l->wake_fd);

		if (ret < 0)
			return ret;
	}
	return workers_add(l->pools[pool], work, done, arg);
}
