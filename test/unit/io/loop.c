// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/message-fds.h"
#include "orchestrator/io/loop-internal.h"
#include "orchestrator/io/uring.h"

/* How many of the next calls the simulated kernel refuses. */
static struct {
	unsigned submissions;
	unsigned cancels; /* with -EACCES */
	unsigned cancels_sent;
} refuse;

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

/* Replaces each cancel to be refused by an operation that the ring does not allow. */
static void spoil_cancels(struct io_uring *ring)
{
	for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
		struct io_uring_sqe *sqe = &ring->sq.sqes[i & *ring->sq.kring_mask];

		if (sqe->opcode != IORING_OP_ASYNC_CANCEL)
			continue;
		refuse.cancels_sent++;
		if (!refuse.cancels)
			continue;
		refuse.cancels--;
		sqe->opcode = IORING_OP_OPENAT;
	}
}

int __wrap_io_uring_submit(struct io_uring *ring)
{
	if (refuse.submissions) {
		refuse.submissions--;
		return -EAGAIN;
	}
	spoil_cancels(ring);
	return __real_io_uring_submit(ring);
}

struct fixture {
	struct loop *loop;
	int pair[2];
	int calls, result;
	int wanted; /* calls after which the loop stops */
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e = {0};

	if (loop_new(&f->loop, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		return -1;
	}
	f->wanted = 1;
	memset(&refuse, 0, sizeof(refuse));
	*state = f;
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->pair);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	loop_free(f->loop);
	close_fd(&f->pair[0]);
	close_fd(&f->pair[1]);
	free(f);
	return 0;
}

static void on_call(void *arg, int result)
{
	struct fixture *f = arg;

	f->calls++;
	f->result = result;
	if (f->calls == f->wanted)
		loop_stop(f->loop);
}

/* A ring that could open files would bypass the seccomp filter. */
static void ring_refuses_operations_the_loop_does_not_use(void **state)
{
	struct fixture *f = *state;
	struct io_uring *ring = &f->loop->uring.ring;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;

	io_uring_prep_openat(sqe, AT_FDCWD, "/dev/null", O_RDONLY, 0);
	io_uring_sqe_set_data(sqe, NULL);
	assert_int_equal(io_uring_submit_and_wait(ring, 1), 1);
	assert_int_equal(io_uring_peek_cqe(ring, &cqe), 0);
	assert_int_equal(cqe->res, -EACCES);
	io_uring_cqe_seen(ring, cqe);
}

static void recv_waits_for_data(void **state)
{
	struct fixture *f = *state;
	char buf[8] = "";

	assert_non_null(loop_recv(f->loop, f->pair[0], buf, sizeof(buf), on_call, f));
	assert_int_equal(f->calls, 0);
	assert_int_equal(write(f->pair[1], "hello", 5), 5);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->result, 5);
	assert_string_equal(buf, "hello");
}

static void recv_on_nonblocking_socket_waits(void **state)
{
	struct fixture *f = *state;
	char buf[8] = "";

	fcntl(f->pair[0], F_SETFL, O_NONBLOCK);
	f->wanted = 2;
	assert_non_null(loop_recv(f->loop, f->pair[0], buf, sizeof(buf), on_call, f));
	/* The loop sends the data, so that there is none when the receive begins. */
	struct loop_op *op = loop_send(f->loop, f->pair[1], "hello", 5, on_call, f);
	assert_non_null(op);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->result, 5);
	assert_string_equal(buf, "hello");
}

static void *read_all(void *arg)
{
	int fd = *(int *)arg;
	size_t total = 0;
	char buf[4096];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		total += (size_t)n;
	return (void *)total;
}

static void send_much(struct fixture *f, size_t size)
{
	scoped_free char *big = calloc(1, size);
	pthread_t reader;
	void *total;

	assert_non_null(loop_send(f->loop, f->pair[0], big, size, on_call, f));
	pthread_create(&reader, NULL, read_all, &f->pair[1]);
	assert_int_equal(loop_run(f->loop), 0);
	close_fd(&f->pair[0]);
	pthread_join(reader, &total);
	assert_int_equal(f->result, size);
	assert_int_equal((size_t)total, size);
}

static void send_sends_all(void **state)
{
	send_much(*state, 8 << 20);
}

static void send_on_a_nonblocking_socket_sends_all(void **state)
{
	struct fixture *f = *state;

	fcntl(f->pair[0], F_SETFL, O_NONBLOCK);
	send_much(f, 8 << 20);
}

static void send_to_closed_peer_returns_epipe(void **state)
{
	struct fixture *f = *state;

	close_fd(&f->pair[1]);
	assert_non_null(loop_send(f->loop, f->pair[0], "x", 1, on_call, f));
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->result, -EPIPE);
}

static void cancel_ends_waiting_operation(void **state)
{
	struct fixture *f = *state;
	char buf[8];
	struct loop_op *op = loop_recv(f->loop, f->pair[0], buf, sizeof(buf), on_call, f);

	assert_non_null(op);
	loop_cancel(f->loop, op);
	loop_cancel(f->loop, op);
	assert_int_equal(f->calls, 0);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->result, -ECANCELED);
}

struct canceller {
	struct fixture *f;
	struct loop_op *op;
};

static void cancel_from_a_callback(void *arg, int result)
{
	struct canceller *c = arg;

	loop_cancel(c->f->loop, c->op);
}

static void cancel_ends_operation_on_nonblocking_fd(void **state)
{
	struct fixture *f = *state;
	char buf[8];

	fcntl(f->pair[0], F_SETFL, O_NONBLOCK);
	struct canceller c = {f, loop_recv(f->loop, f->pair[0], buf, sizeof(buf), on_call, f)};
	assert_non_null(loop_poll(f->loop, f->pair[1], POLLOUT, cancel_from_a_callback, &c));
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->result, -ECANCELED);
}

static void poll_sees_the_peer_leave(void **state)
{
	struct fixture *f = *state;

	assert_non_null(loop_poll(f->loop, f->pair[0], POLLRDHUP, on_call, f));
	close_fd(&f->pair[1]);
	assert_int_equal(loop_run(f->loop), 0);
	assert_true(f->result & POLLRDHUP);
}

static void messages_carry_descriptors(void **state)
{
	struct fixture *f = *state;
	char out = 'o', in = 0;
	MESSAGE_FDS_ROOM(c1, 1);
	MESSAGE_FDS_ROOM(c2, 1);
	struct iovec iov1 = {&out, 1}, iov2 = {&in, 1};
	struct msghdr m1 = {.msg_iov = &iov1, .msg_iovlen = 1};
	struct msghdr m2 = {.msg_iov = &iov2, .msg_iovlen = 1};
	int got;

	message_put_fds(&m1, c1, &f->pair[0], 1);
	message_want_fds(&m2, c2, 1);
	f->wanted = 2;
	assert_non_null(loop_recvmsg(f->loop, f->pair[1], &m2, on_call, f));
	assert_non_null(loop_sendmsg(f->loop, f->pair[0], &m1, on_call, f));
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(in, 'o');
	assert_int_equal(message_take_fds(&m2, &got), 1);
	assert_int_equal(fcntl(got, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(got);
}

static void more_operations_than_queue_entries_complete(void **state)
{
	struct fixture *f = *state;

	/* All complete at once: the completion queue (twice the entries) overflows. */
	f->wanted = 5000;
	for (int i = 0; i < f->wanted; i++)
		assert_non_null(loop_poll(f->loop, f->pair[0], POLLOUT, on_call, f));
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->calls, f->wanted);
}

static void free_cancels_operations_in_flight(void **state)
{
	struct fixture *f = *state;
	char buf[8];

	f->wanted = 0;
	assert_non_null(loop_recv(f->loop, f->pair[0], buf, sizeof(buf), on_call, f));
	loop_free(f->loop);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->result, -ECANCELED);
	struct err e;
	assert_int_equal(loop_new(&f->loop, &e), 0);
}

/* --- a kernel that is short of memory --- */

static void stop_loop(void *arg)
{
	loop_stop(arg);
}

/* Runs the loop until all wanted calls have come; fails after a minute. */
static void run_until_done(struct fixture *f)
{
	struct loop_timer limit = {.fn = stop_loop, .arg = f->loop};

	loop_timer_set(f->loop, &limit, 60000);
	assert_int_equal(loop_run(f->loop), 0);
	loop_timer_clear(f->loop, &limit);
	assert_int_equal(f->calls, f->wanted);
}

static void refused_submission_is_retried(void **state)
{
	struct fixture *f = *state;

	refuse.submissions = 40;
	assert_non_null(loop_poll(f->loop, f->pair[0], POLLOUT, on_call, f));
	run_until_done(f);
	assert_int_equal(refuse.submissions, 0);
	assert_true(f->result & POLLOUT);
}

static void operations_wait_while_kernel_accepts_none(void **state)
{
	struct fixture *f = *state;

	f->wanted = 4 * URING_ENTRIES;
	refuse.submissions = 40;
	for (int i = 0; i < f->wanted; i++)
		assert_non_null(loop_poll(f->loop, f->pair[0], POLLOUT, on_call, f));
	assert_int_equal(f->calls, 0);
	run_until_done(f);
}

/* Some operations are in the kernel, some in the submission queue, some wait for room in it. */
static void operations_are_cancelled_in_every_queue(void **state)
{
	enum { N = 4 * URING_ENTRIES };
	struct fixture *f = *state;
	struct loop_op *ops[N];
	char buf[8];

	f->wanted = N;
	for (int i = 0; i < N; i++) {
		if (i == N / 2) {
			uring_submit(&f->loop->uring);
			refuse.submissions = 10;
		}
		ops[i] = loop_recv(f->loop, f->pair[0], buf, sizeof(buf), on_call, f);
		assert_non_null(ops[i]);
	}
	for (int i = 0; i < N; i++)
		loop_cancel(f->loop, ops[i]);
	assert_int_equal(f->calls, 0);
	run_until_done(f);
	assert_int_equal(f->result, -ECANCELED);
}

static void failed_cancel_is_retried(void **state)
{
	struct fixture *f = *state;
	char buf[8];

	refuse.cancels = 3;
	loop_cancel(f->loop, loop_recv(f->loop, f->pair[0], buf, sizeof(buf), on_call, f));
	run_until_done(f);
	assert_int_equal(f->result, -ECANCELED);
	assert_int_equal(refuse.cancels_sent, 4);
}

/* More control data than net.core.optmem_max fails with ENOBUFS. */
struct large {
	struct fixture *f;
	struct loop_timer timer;
	struct loop_op *op;
	struct iovec iov;
	struct msghdr msg;
	unsigned ticks;
};

static void send_large(struct fixture *f, struct large *l)
{
	static char control[64 << 20];
	static char byte = 'b';

	*l = (struct large){.f = f,
			    .iov = {&byte, 1},
			    .msg = {.msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control)}};
	l->msg.msg_iov = &l->iov;
	l->op = loop_sendmsg(f->loop, f->pair[0], &l->msg, on_call, f);
	assert_non_null(l->op);
}

static void on_tick(void *arg)
{
	struct large *l = arg;

	l->ticks++;
	loop_timer_set(l->f->loop, &l->timer, 1);
}

static void tick(struct large *l, void (*fn)(void *arg))
{
	l->timer = (struct loop_timer){.fn = fn, .arg = l};
	loop_timer_set(l->f->loop, &l->timer, 1);
}

static void lasting_lack_of_memory_becomes_an_error(void **state)
{
	struct fixture *f = *state;
	struct large l;

	send_large(f, &l);
	tick(&l, on_tick);
	run_until_done(f);
	loop_timer_clear(f->loop, &l.timer);
	assert_int_equal(f->result, -ENOBUFS);
	assert_true(l.ticks > 1); /* the loop was not blocked meanwhile */
}

static void heal(void *arg)
{
	struct large *l = arg;

	assert_int_equal(l->f->calls, 0);
	l->msg.msg_control = NULL;
	l->msg.msg_controllen = 0;
}

static void operation_without_memory_is_retried(void **state)
{
	struct fixture *f = *state;
	struct large l;
	char got;

	send_large(f, &l);
	tick(&l, heal);
	run_until_done(f);
	assert_int_equal(f->result, 1);
	assert_int_equal(read(f->pair[1], &got, 1), 1);
	assert_int_equal(got, 'b');
}

static void cancel_large(void *arg)
{
	struct large *l = arg;

	loop_cancel(l->f->loop, l->op);
	assert_int_equal(l->f->calls, 0);
}

static void cancel_ends_operation_that_waits_for_memory(void **state)
{
	struct fixture *f = *state;
	struct large l;

	send_large(f, &l);
	tick(&l, cancel_large);
	run_until_done(f);
	assert_int_equal(f->result, -ECANCELED);
}

static void stop_large(void *arg)
{
	stop_loop(((struct large *)arg)->f->loop);
}

static void free_ends_operation_that_waits_for_memory(void **state)
{
	struct fixture *f = *state;
	struct large l;
	struct err e;

	send_large(f, &l);
	tick(&l, stop_large);
	assert_int_equal(loop_run(f->loop), 0);
	f->wanted = 0;
	loop_free(f->loop);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->result, -ECANCELED);
	assert_int_equal(loop_new(&f->loop, &e), 0);
}

/* --- timers --- */

struct fired {
	struct loop *loop;
	struct loop_timer timer;
	int id, *order, *count, stop_at;
};

static void on_fire(void *arg)
{
	struct fired *t = arg;

	t->order[(*t->count)++] = t->id;
	if (*t->count == t->stop_at)
		loop_stop(t->loop);
}

static void timers_fire_in_order(void **state)
{
	struct fixture *f = *state;
	static const unsigned after[] = {30, 1, 20, 0, 10, 25, 5, 15};
	static const int expected[] = {3, 1, 6, 4, 7, 2, 0};
	struct fired t[8] = {0};
	int order[8], count = 0;

	for (int i = 0; i < 8; i++) {
		t[i] = (struct fired){f->loop, {0}, i, order, &count, 7};
		t[i].timer.fn = on_fire;
		t[i].timer.arg = &t[i];
		loop_timer_set(f->loop, &t[i].timer, 1000 + i);
	}
	for (int i = 0; i < 8; i++)
		loop_timer_set(f->loop, &t[i].timer, after[i]); /* moved */
	loop_timer_clear(f->loop, &t[5].timer);
	loop_timer_clear(f->loop, &t[5].timer);
	uint64_t start = loop_now_ms(f->loop);
	assert_int_equal(loop_run(f->loop), 0);
	assert_true(loop_now_ms(f->loop) - start >= 30);
	assert_int_equal(count, 7);
	assert_memory_equal(order, expected, sizeof(expected));
}

static void many_timers_keep_heap_order(void **state)
{
	enum { N = 2000 };
	struct fixture *f = *state;
	struct fired *t = calloc(N, sizeof(*t));
	int *order = calloc(N, sizeof(*order)), count = 0, cleared = 0;

	srand(7);
	for (int i = 0; i < N; i++) {
		t[i] = (struct fired){f->loop, {0}, i, order, &count, 0};
		t[i].timer.fn = on_fire;
		t[i].timer.arg = &t[i];
		loop_timer_set(f->loop, &t[i].timer, (unsigned)rand() % 50);
	}
	for (int i = 0; i < N; i += 3, cleared++)
		loop_timer_clear(f->loop, &t[i].timer);
	for (int i = 0; i < N; i++)
		t[i].stop_at = N - cleared;
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(count, N - cleared);
	for (int i = 1; i < count; i++)
		assert_true(t[order[i - 1]].timer.due_ms <= t[order[i]].timer.due_ms);
	free(t);
	free(order);
}

/* Each sandbox has timers for its idle timeout and lifetime, which most requests move. The time to
 * move one is printed, not checked. */
static void ten_thousand_timers_are_moved(void **state)
{
	enum { N = 10000, MOVES = 20 };
	struct fixture *f = *state;
	struct loop_timer *t = calloc(N, sizeof(*t));
	struct timespec before, after;

	for (int i = 0; i < N; i++)
		loop_timer_set(f->loop, &t[i], 3600000 + (unsigned)i);
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (int i = 0; i < N * MOVES; i++)
		loop_timer_set(f->loop, &t[i % N], 3700000);
	clock_gettime(CLOCK_MONOTONIC, &after);
	double ns = (double)(after.tv_sec - before.tv_sec) * 1e9 +
		    (double)(after.tv_nsec - before.tv_nsec);
	print_message("%d timers: %.0f ns to move one\n", N, ns / (N * MOVES));
	for (int i = 0; i < N; i++) {
		assert_true(t[i].heap_index > 0 && t[i].heap_index <= N);
		loop_timer_clear(f->loop, &t[i]);
		assert_int_equal(t[i].heap_index, 0);
	}
	free(t);
}

struct again {
	struct loop *loop;
	struct loop_timer timer;
	int turns;
};

static void on_again(void *arg)
{
	struct again *a = arg;

	if (a->turns++ < 100)
		loop_timer_set(a->loop, &a->timer, 0);
}

static void timer_that_sets_itself_does_not_delay_others(void **state)
{
	struct fixture *f = *state;
	struct again a = {.loop = f->loop};

	a.timer.fn = on_again;
	a.timer.arg = &a;
	loop_timer_set(f->loop, &a.timer, 0);
	loop_poll(f->loop, f->pair[0], POLLOUT, on_call, f);
	assert_int_equal(loop_run(f->loop), 0);
	assert_int_equal(f->calls, 1);
	loop_timer_clear(f->loop, &a.timer);
}

/* --- a peer that always has data --- */

struct flood {
	struct fixture *f;
	char buf[64];
	int chunks;
};

static void on_flood(void *arg, int result)
{
	struct flood *fl = arg;

	if (result == -ECANCELED || !fl->f)
		return;
	fl->chunks++;
	if (write(fl->f->pair[1], "x", 1) == 1)
		loop_recv(fl->f->loop, fl->f->pair[0], fl->buf, sizeof(fl->buf), on_flood, fl);
}

static void stop_on_fire(void *arg)
{
	struct flood *fl = arg;

	loop_stop(fl->f->loop);
}

static void flood_does_not_delay_timers(void **state)
{
	struct fixture *f = *state;
	struct flood fl = {.f = f};
	struct loop_timer t = {.fn = stop_on_fire, .arg = &fl};

	assert_int_equal(write(f->pair[1], "x", 1), 1);
	loop_recv(f->loop, f->pair[0], fl.buf, sizeof(fl.buf), on_flood, &fl);
	loop_timer_set(f->loop, &t, 5);
	assert_int_equal(loop_run(f->loop), 0); /* the timer stops the loop */
	assert_true(fl.chunks > 0);
	fl.f = NULL;
	loop_free(f->loop); /* before fl.buf goes out of scope */
	struct err e;
	assert_int_equal(loop_new(&f->loop, &e), 0);
}

/* --- workers and stopping --- */

static void wait_for_byte(void *arg)
{
	struct fixture *f = arg;
	char byte;

	assert_int_equal(read(f->pair[1], &byte, 1), 1);
}

static void do_nothing(void *arg)
{
}

static void count_done(void *arg)
{
	on_call(arg, 0);
}

/* Blocks both threads of a pool. Only jobs queued behind them wait; other pools continue. */
static void blocked_pool_does_not_delay_others(void **state)
{
	struct fixture *f = *state;
	static const enum loop_pool others[][2] = {
		[LOOP_CPU] = {LOOP_DISK, LOOP_BULK},
		[LOOP_DISK] = {LOOP_CPU, LOOP_BULK},
		[LOOP_BULK] = {LOOP_CPU, LOOP_DISK},
	};

	for (enum loop_pool stuck = 0; stuck < LOOP_NPOOLS; stuck++) {
		f->calls = 0;
		f->wanted = 2;
		for (int i = 0; i < 3; i++)
			assert_int_equal(loop_work(f->loop, stuck, wait_for_byte, count_done, f),
					 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(
				loop_work(f->loop, others[stuck][i], do_nothing, count_done, f), 0);
		assert_int_equal(loop_run(f->loop), 0);
		assert_int_equal(f->calls, 2);
		f->wanted = 5;
		assert_int_equal(write(f->pair[0], "abc", 3), 3);
		assert_int_equal(loop_run(f->loop), 0);
	}
}

struct job {
	struct fixture *f;
	pthread_t worked_on, done_on;
	int *left;
};

static void job_work(void *arg)
{
	((struct job *)arg)->worked_on = pthread_self();
}

static void job_done(void *arg)
{
	struct job *j = arg;

	j->done_on = pthread_self();
	if (--*j->left == 0)
		loop_stop(j->f->loop);
}

static void work_runs_on_a_worker_and_done_on_the_loop(void **state)
{
	struct fixture *f = *state;
	struct job jobs[50];
	int left = 50;

	for (int i = 0; i < 50; i++) {
		jobs[i] = (struct job){.f = f, .left = &left};
		assert_int_equal(loop_work(f->loop, LOOP_CPU, job_work, job_done, &jobs[i]), 0);
	}
	assert_int_equal(left, 50);
	assert_int_equal(loop_run(f->loop), 0);
	for (int i = 0; i < 50; i++) {
		assert_true(pthread_equal(jobs[i].done_on, pthread_self()));
		assert_false(pthread_equal(jobs[i].worked_on, pthread_self()));
	}
}

static void free_ends_queued_work(void **state)
{
	struct fixture *f = *state;
	struct job jobs[20];
	int left = 21; /* never 0: nothing stops the loop */

	for (int i = 0; i < 20; i++) {
		jobs[i] = (struct job){.f = f, .left = &left};
		assert_int_equal(loop_work(f->loop, LOOP_CPU, job_work, job_done, &jobs[i]), 0);
	}
	loop_free(f->loop);
	assert_int_equal(left, 1);
	struct err e;
	assert_int_equal(loop_new(&f->loop, &e), 0);
}

static struct loop *signalled_loop;

static void on_signal(int sig)
{
	loop_stop(signalled_loop);
}

static void *raise_later(void *arg)
{
	kill(getpid(), SIGUSR1);
	return NULL;
}

static void stop_from_a_signal_handler(void **state)
{
	struct fixture *f = *state;
	struct sigaction sa = {.sa_handler = on_signal};
	pthread_t t;

	signalled_loop = f->loop;
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&t, NULL, raise_later, NULL);
	assert_int_equal(loop_run(f->loop), 0);
	pthread_join(t, NULL);
}

static void stop_before_run_is_not_lost(void **state)
{
	struct fixture *f = *state;

	loop_stop(f->loop);
	assert_int_equal(loop_run(f->loop), 0);
}

static void count_turn(void *arg)
{
	++*(int *)arg;
}

static void before_sleep_is_called_each_turn(void **state)
{
	struct fixture *f = *state;
	int turns = 0;

	loop_before_sleep(f->loop, count_turn, &turns);
	loop_poll(f->loop, f->pair[0], POLLOUT, on_call, f);
	assert_int_equal(loop_run(f->loop), 0);
	assert_true(turns > 0);
}

static void on_written(h2o_socket_t *sock, const char *err)
{
	fail();
}

/* Of h2o's; the write is done, and its callback due. */
static void free_lets_go_of_sockets_closed_before_their_callback(void **state)
{
	struct fixture *f = *state;
	h2o_iovec_t text = h2o_iovec_init(H2O_STRLIT("text"));
	h2o_socket_t *sock = h2o_evloop_socket_create(loop_h2o(f->loop), f->pair[0], 0);

	f->pair[0] = -1; /* the socket's */
	h2o_socket_write(sock, &text, 1, on_written);
	h2o_socket_close(sock);
	loop_free(f->loop);
	f->loop = NULL;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(recv_waits_for_data),
		T(recv_on_nonblocking_socket_waits),
		T(send_sends_all),
		T(send_on_a_nonblocking_socket_sends_all),
		T(send_to_closed_peer_returns_epipe),
		T(cancel_ends_waiting_operation),
		T(cancel_ends_operation_on_nonblocking_fd),
		T(poll_sees_the_peer_leave),
		T(messages_carry_descriptors),
		T(more_operations_than_queue_entries_complete),
		T(free_cancels_operations_in_flight),
		T(free_lets_go_of_sockets_closed_before_their_callback),
		T(refused_submission_is_retried),
		T(operations_wait_while_kernel_accepts_none),
		T(operations_are_cancelled_in_every_queue),
		T(failed_cancel_is_retried),
		T(lasting_lack_of_memory_becomes_an_error),
		T(operation_without_memory_is_retried),
		T(cancel_ends_operation_that_waits_for_memory),
		T(free_ends_operation_that_waits_for_memory),
		T(timers_fire_in_order),
		T(many_timers_keep_heap_order),
		T(ten_thousand_timers_are_moved),
		T(timer_that_sets_itself_does_not_delay_others),
		T(flood_does_not_delay_timers),
		T(blocked_pool_does_not_delay_others),
		T(work_runs_on_a_worker_and_done_on_the_loop),
		T(free_ends_queued_work),
		T(stop_from_a_signal_handler),
		T(stop_before_run_is_not_lost),
		T(before_sleep_is_called_each_turn),
		T(ring_refuses_operations_the_loop_does_not_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
