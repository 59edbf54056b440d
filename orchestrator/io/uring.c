// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/io/loop-internal.h"

/* Delay before a submission that the kernel refused is retried. */
#define REFUSED_MS 10
/* An operation that fails for lack of memory is retried after 1, 2, 4... ms: about 2 s in total. */
#define TRIES_MAX    16
#define PAUSE_MAX_MS 250

enum op_kind { OP_POLL, OP_RECV, OP_SEND, OP_RECVMSG, OP_SENDMSG };

struct loop_op {
	enum op_kind kind;
	bool cancelled;
	bool waiting;	  /* the SQE in flight is a poll for readiness, not the operation itself */
	bool with_kernel; /* its SQE is queued, and its completion has not arrived */
	unsigned tries;	  /* number of consecutive failures for lack of memory */
	int fd;
	unsigned poll_mask;
	union {
		char *buf;
		struct msghdr *msg;
	};
	size_t len, sent;
	loop_fn *fn;
	void *arg;
	struct list link; /* on one of the ring's lists */
	struct loop_timer pause;
	struct uring *ring;
	struct loop_op *next_unused;
};

/* Restricts the ring to the operations used here, because seccomp does not filter what a
 * ring does. */
static int restrict_ring(struct io_uring *ring)
{
	static const uint8_t allowed[] = {IORING_OP_POLL_ADD, IORING_OP_RECV,
					  IORING_OP_SEND,     IORING_OP_RECVMSG,
					  IORING_OP_SENDMSG,  IORING_OP_ASYNC_CANCEL};
	struct io_uring_restriction list[ARRAY_LEN(allowed)] = {0};

	for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
		list[i].opcode = IORING_RESTRICTION_SQE_OP;
		list[i].sqe_op = allowed[i];
	}
	/* Uses system calls: liburing 2.3 as a shared library lacks the two functions for it. */
	if (syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_RESTRICTIONS, list,
		    ARRAY_LEN(list)) < 0 ||
	    syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) <
		    0)
		return -errno;
	return 0;
}

int uring_init(struct uring *u, struct loop *l, struct err *e)
{
	/* Completions are processed when this thread enters the kernel anyway, not by an
	 * interrupt. */
	struct io_uring_params params = {.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CLAMP |
						  IORING_SETUP_R_DISABLED};

	memset(u, 0, sizeof(*u));
	u->loop = l;
	int ret = io_uring_queue_init_params(URING_ENTRIES, &u->ring, &params);
	if (ret < 0)
		return err_set(e, -ret, "set up io_uring");
	ret = restrict_ring(&u->ring);
	if (ret < 0) {
		io_uring_queue_exit(&u->ring);
		return err_set(e, -ret, "restrict io_uring");
	}
	return 0;
}

int uring_fd(const struct uring *u)
{
	return u->ring.ring_fd;
}

static unsigned readiness(const struct loop_op *op)
{
	return op->kind == OP_RECV || op->kind == OP_RECVMSG ? POLLIN : POLLOUT;
}

static void prepare(const struct loop_op *op, struct io_uring_sqe *sqe)
{
	if (op->waiting) {
		io_uring_prep_poll_add(sqe, op->fd, readiness(op));
		return;
	}
	switch (op->kind) {
	case OP_POLL:
		io_uring_prep_poll_add(sqe, op->fd, op->poll_mask);
		break;
	case OP_RECV:
		io_uring_prep_recv(sqe, op->fd, op->buf, op->len, 0);
		break;
	case OP_SEND:
		io_uring_prep_send(sqe, op->fd, op->buf + op->sent, op->len - op->sent,
				   MSG_NOSIGNAL | MSG_WAITALL);
		break;
	case OP_RECVMSG:
		io_uring_prep_recvmsg(sqe, op->fd, op->msg, MSG_CMSG_CLOEXEC);
		break;
	case OP_SENDMSG:
		io_uring_prep_sendmsg(sqe, op->fd, op->msg, MSG_NOSIGNAL);
		break;
	}
}

/* --- to the kernel -------------------------------------------------------------------------- */

/* Returns false when the submission queue is full. */
static bool queue_op(struct uring *u, struct loop_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (!sqe)
		return false;
	prepare(op, sqe);
	io_uring_sqe_set_data(sqe, op);
	op->with_kernel = true;
	return true;
}

/* This bit marks the completion of a cancel, as opposed to that of the operation. */
#define CANCEL_TAG 1u

static bool queue_cancel(struct uring *u, struct loop_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (!sqe)
		return false;
	io_uring_prep_cancel(sqe, op, 0);
	io_uring_sqe_set_data64(sqe, (uintptr_t)op | CANCEL_TAG);
	return true;
}

static void queue_all(struct uring *u, struct list *from,
		      bool (*queue)(struct uring *u, struct loop_op *op))
{
	list_each_safe (pos, from) {
		if (!queue(u, container_of(pos, struct loop_op, link)))
			return;
		list_del(pos);
	}
}

/* Returns false when the kernel accepted no operation. */
static bool submit_queued(struct uring *u)
{
	int ret = io_uring_submit(&u->ring);

	if (ret < 0 && ret != -EINTR && !u->refused)
		log_warn("io_uring accepts no operation: %s; will submit again", strerror(-ret));
	u->refused = ret <= 0;
	return ret > 0;
}

void uring_submit(struct uring *u)
{
	do {
		queue_all(u, &u->cancels, queue_cancel);
		queue_all(u, &u->backlog, queue_op);
	} while (io_uring_sq_ready(&u->ring) && submit_queued(u));
}

int32_t uring_wait_ms(const struct uring *u)
{
	if (!list_empty(&u->ended))
		return 0;
	if (!io_uring_sq_ready(&u->ring) && list_empty(&u->cancels) && list_empty(&u->backlog))
		return INT32_MAX;
	return u->refused ? REFUSED_MS : 0;
}

/* Queues the operation for the next submission, after those that wait already. */
static void op_queue(struct uring *u, struct loop_op *op)
{
	if (!list_empty(&u->backlog) || !queue_op(u, op))
		list_add_tail(&u->backlog, &op->link);
}

static void on_pause_over(void *arg)
{
	struct loop_op *op = arg;

	list_del(&op->link);
	op_queue(op->ring, op);
}

static void op_pause(struct uring *u, struct loop_op *op)
{
	uint64_t ms = op->tries < 8 ? UINT64_C(1) << op->tries : PAUSE_MAX_MS;

	op->tries++;
	loop_timer_start(u->loop, &op->pause, on_pause_over, op, ms);
	list_add_tail(&u->paused, &op->link);
}

/* --- operations ----------------------------------------------------------------------------- */

static struct loop_op *op_new(struct uring *u)
{
	struct loop_op *op = u->unused;

	if (op)
		u->unused = op->next_unused;
	else
		op = must_alloc(sizeof(*op));
	return op;
}

static void op_free(struct uring *u, struct loop_op *op)
{
	op->next_unused = u->unused;
	u->unused = op;
}

static struct loop_op *op_start(struct loop *l, struct loop_op init)
{
	struct uring *u = &l->uring;
	struct loop_op *op = u->closing ? NULL : op_new(u);

	if (!op)
		return NULL;
	*op = init;
	op->ring = u;
	op_queue(u, op);
	u->in_flight++;
	return op;
}

/*
 * Returns whether the operation must be queued again: after a short send, and after EAGAIN, which
 * the kernel returns for an O_NONBLOCK descriptor instead of waiting. In that case a poll is queued
 * first, then the operation. If not, *result is the result for the callback.
 */
static bool unfinished(struct loop_op *op, int *result)
{
	if (op->kind == OP_POLL)
		return false;
	if (op->waiting) {
		op->waiting = false;
		return *result >= 0;
	}
	if (*result == -EAGAIN) {
		op->waiting = true;
		return true;
	}
	if (op->kind != OP_SEND || *result <= 0)
		return false;
	op->sent += (size_t)*result;
	*result = (int)op->sent;
	return op->sent < op->len;
}

static void op_end(struct uring *u, struct loop_op *op, int result)
{
	list_del(&op->link);
	u->in_flight--;
	loop_fn *fn = op->fn;
	void *arg = op->arg;
	op_free(u, op);
	fn(arg, result);
}

/* Checks `cancelled`, because a cancel between two steps found nothing to cancel in the kernel. */
static void op_complete(struct uring *u, struct loop_op *op, int result)
{
	op->with_kernel = false;
	if ((result == -ENOMEM || result == -ENOBUFS) && op->tries < TRIES_MAX) {
		if (!op->cancelled && !u->closing) {
			op_pause(u, op);
			return;
		}
		result = -ECANCELED;
	} else if (unfinished(op, &result)) {
		op->tries = 0;
		if (!op->cancelled) {
			op_queue(u, op);
			return;
		}
		result = -ECANCELED;
	}
	op_end(u, op, result);
}

/* Queues a failed cancel again. The operation may have ended meanwhile and `op` have been
 * reused. */
static void cancel_complete(struct uring *u, struct loop_op *op, int result)
{
	if (result >= 0 || result == -ENOENT || result == -EALREADY)
		return;
	if (op->cancelled && op->with_kernel && list_empty(&op->link))
		list_add_tail(&u->cancels, &op->link);
}

bool uring_reap(struct uring *u)
{
	bool any = !list_empty(&u->ended);
	struct io_uring_cqe *cqe;
	int n = 0;

	while (!list_empty(&u->ended))
		op_end(u, container_of(u->ended.next, struct loop_op, link), -ECANCELED);
	/* peek also fetches completions that overflowed the queue. */
	for (; n < URING_ENTRIES && io_uring_peek_cqe(&u->ring, &cqe) == 0; n++) {
		uint64_t data = io_uring_cqe_get_data64(cqe);
		struct loop_op *op = (struct loop_op *)(uintptr_t)(data & ~(uint64_t)CANCEL_TAG);
		int result = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		if (op && data & CANCEL_TAG)
			cancel_complete(u, op, result);
		else if (op)
			op_complete(u, op, result);
	}
	return any || n > 0;
}

static void cancel_held(struct uring *u, struct list *held)
{
	list_drain_of (op, struct loop_op, link, held) {
		loop_timer_clear(u->loop, &op->pause);
		list_del(&op->link);
		list_add_tail(&u->ended, &op->link);
	}
}

static void cancel_all(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	cancel_held(u, &u->backlog);
	cancel_held(u, &u->paused);
	if (sqe) {
		io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
		io_uring_sqe_set_data(sqe, NULL);
	}
	io_uring_submit(&u->ring); /* if refused, uring_fini's next round submits it */
}

void uring_fini(struct uring *u)
{
	u->closing = true;
	while (u->in_flight) {
		struct __kernel_timespec soon = {.tv_nsec = 10000000};
		struct io_uring_cqe *cqe;

		cancel_all(u);
		if (list_empty(&u->ended))
			io_uring_wait_cqe_timeout(&u->ring, &cqe, &soon);
		uring_reap(u);
	}
	io_uring_queue_exit(&u->ring);
	while (u->unused) {
		struct loop_op *op = u->unused;

		u->unused = op->next_unused;
		free(op);
	}
}

void loop_cancel(struct loop *l, struct loop_op *op)
{
	struct uring *u = &l->uring;

	if (op->cancelled)
		return;
	op->cancelled = true;
	if (op->with_kernel) {
		list_add_tail(&u->cancels, &op->link);
		return;
	}
	loop_timer_clear(l, &op->pause);
	list_del(&op->link);
	list_add_tail(&u->ended, &op->link);
}

struct loop_op *loop_poll(struct loop *l, int fd, unsigned poll_mask, loop_fn *fn, void *arg)
{
	return op_start(
		l,
		(struct loop_op){
			.kind = OP_POLL, .fd = fd, .poll_mask = poll_mask, .fn = fn, .arg = arg});
}

struct loop_op *loop_recv(struct loop *l, int fd, void *buf, size_t len, loop_fn *fn, void *arg)
{
	return op_start(
		l,
		(struct loop_op){
			.kind = OP_RECV, .fd = fd, .buf = buf, .len = len, .fn = fn, .arg = arg});
}

struct loop_op *loop_send(struct loop *l, int fd, const void *buf, size_t len, loop_fn *fn,
			  void *arg)
{
	if (len > INT_MAX) /* the result would not fit */
		return NULL;
	return op_start(l, (struct loop_op){.kind = OP_SEND,
					    .fd = fd,
					    .buf = (char *)(uintptr_t)buf,
					    .len = len,
					    .fn = fn,
					    .arg = arg});
}

struct loop_op *loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn, void *arg)
{
	return op_start(l, (struct loop_op){
				   .kind = OP_RECVMSG, .fd = fd, .msg = msg, .fn = fn, .arg = arg});
}

struct loop_op *loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
			     void *arg)
{
	return op_start(l, (struct loop_op){.kind = OP_SENDMSG,
					    .fd = fd,
					    .msg = (struct msghdr *)(uintptr_t)msg,
					    .fn = fn,
					    .arg = arg});
}
