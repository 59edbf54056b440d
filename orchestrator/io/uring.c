// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/io/uring.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/io/loop-internal.h"

enum op_kind { OP_POLL, OP_RECV, OP_SEND, OP_RECVMSG, OP_SENDMSG, OP_FSYNC };

struct loop_op {
	enum op_kind kind;
	bool cancelled;
	bool waiting; /* the SQE under way is a poll for readiness, not the operation itself */
	int fd;
	unsigned poll_mask;
	union {
		char *buf;
		struct msghdr *msg;
	};
	size_t len, sent;
	loop_fn *fn;
	void *arg;
	struct list cancel_link;
	struct loop_op *next_unused;
};

/* What a ring does passes no seccomp filter: it gets a list of its own. */
static int restrict_ring(struct io_uring *ring)
{
	static const uint8_t allowed[] = {IORING_OP_POLL_ADD,	 IORING_OP_RECV,    IORING_OP_SEND,
					  IORING_OP_RECVMSG,	 IORING_OP_SENDMSG, IORING_OP_FSYNC,
					  IORING_OP_ASYNC_CANCEL};
	struct io_uring_restriction list[ARRAY_LEN(allowed)] = {0};

	for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
		list[i].opcode = IORING_RESTRICTION_SQE_OP;
		list[i].sqe_op = allowed[i];
	}
	/* By the system call: liburing 2.3 as a shared library lacks its two functions for it. */
	if (syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_RESTRICTIONS, list,
		    ARRAY_LEN(list)) < 0 ||
	    syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) <
		    0)
		return -errno;
	return 0;
}

int uring_init(struct uring *u, struct err *e)
{
	/* Completions are run when this thread enters the kernel anyway, not by an interrupt. */
	struct io_uring_params params = {.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CLAMP |
						  IORING_SETUP_R_DISABLED};

	memset(u, 0, sizeof(*u));
	list_init(&u->cancels);
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

bool uring_queued(const struct uring *u)
{
	return io_uring_sq_ready(&u->ring) || !list_empty(&u->cancels);
}

void uring_submit(struct uring *u)
{
	list_each_safe (pos, &u->cancels) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

		if (!sqe)
			break;
		list_del(pos);
		io_uring_prep_cancel(sqe, container_of(pos, struct loop_op, cancel_link), 0);
		io_uring_sqe_set_data(sqe, NULL);
	}
	if (!io_uring_sq_ready(&u->ring))
		return;
	int ret = io_uring_submit(&u->ring);
	/* Short of memory: what is queued stays queued and goes with the next turn. */
	if (ret < 0 && ret != -EAGAIN && ret != -EBUSY && ret != -EINTR)
		log_error("io_uring submit: %s", strerror(-ret));
}

static struct io_uring_sqe *sqe_get(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (sqe)
		return sqe;
	uring_submit(u);
	return io_uring_get_sqe(&u->ring);
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
	case OP_FSYNC:
		io_uring_prep_fsync(sqe, op->fd, 0);
		break;
	}
}

static bool op_queue(struct uring *u, struct loop_op *op)
{
	struct io_uring_sqe *sqe = sqe_get(u);

	if (!sqe)
		return false;
	prepare(op, sqe);
	io_uring_sqe_set_data(sqe, op);
	return true;
}

static struct loop_op *op_new(struct uring *u)
{
	struct loop_op *op = u->unused;

	if (op)
		u->unused = op->next_unused;
	else
		op = malloc(sizeof(*op));
	return op;
}

static void op_free(struct uring *u, struct loop_op *op)
{
	op->next_unused = u->unused;
	u->unused = op;
}

static struct loop_op *op_start(struct loop *l, struct loop_op init)
{
	struct uring *u = loop_uring(l);
	struct loop_op *op = u->closing ? NULL : op_new(u);

	if (!op)
		return NULL;
	*op = init;
	list_init(&op->cancel_link);
	if (!op_queue(u, op)) {
		op_free(u, op);
		return NULL;
	}
	u->in_flight++;
	return op;
}

/*
 * Whether the operation has to be queued once more: after a short send, and around the wait for a
 * descriptor that is O_NONBLOCK, for which the kernel says EAGAIN instead of waiting. Else *result
 * is what the caller gets.
 */
static bool unfinished(struct loop_op *op, int *result)
{
	if (op->kind == OP_POLL || op->kind == OP_FSYNC)
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

static void op_complete(struct uring *u, struct loop_op *op, int result)
{
	if (unfinished(op, &result)) {
		/* A cancel that came between the two found nothing to cancel in the kernel. */
		if (!op->cancelled && op_queue(u, op))
			return;
		result = op->cancelled ? -ECANCELED : -ENOMEM;
	}
	list_del(&op->cancel_link);
	u->in_flight--;
	loop_fn *fn = op->fn;
	void *arg = op->arg;
	op_free(u, op);
	fn(arg, result);
}

bool uring_reap(struct uring *u)
{
	struct io_uring_cqe *cqe;
	int n = 0;

	/* peek also fetches what overflowed the completion queue. */
	for (; n < URING_ENTRIES && io_uring_peek_cqe(&u->ring, &cqe) == 0; n++) {
		struct loop_op *op = io_uring_cqe_get_data(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		if (op)
			op_complete(u, op, result);
	}
	return n > 0;
}

static void cancel_all(struct uring *u)
{
	struct io_uring_sqe *sqe = sqe_get(u);

	if (!sqe)
		return;
	io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
	io_uring_sqe_set_data(sqe, NULL);
	uring_submit(u);
}

void uring_fini(struct uring *u)
{
	u->closing = true;
	while (u->in_flight) {
		struct io_uring_cqe *cqe;

		cancel_all(u);
		io_uring_wait_cqe(&u->ring, &cqe);
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
	struct uring *u = loop_uring(l);

	if (op->cancelled)
		return;
	op->cancelled = true;
	list_add_tail(&u->cancels, &op->cancel_link);
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

struct loop_op *loop_fsync(struct loop *l, int fd, loop_fn *fn, void *arg)
{
	return op_start(l, (struct loop_op){.kind = OP_FSYNC, .fd = fd, .fn = fn, .arg = arg});
}
