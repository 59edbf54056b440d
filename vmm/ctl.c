// SPDX-License-Identifier: Apache-2.0
#include "vmm/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/message-fds.h"
#include "base/report.h"

/* One more than allowed, so that too many descriptors are detected. */
#define FDS_ROOM (CTL_FDS_MAX + 1)

struct ctl {
	const struct vm_config *cfg;
	struct event_loop *loop;
	struct vm *vm;
	struct event_watch *conn_watch;
	int conn;	     /* -1: none */
	uint32_t generation; /* counts connections: answers to an older connection are dropped */
	uint8_t instance[CTL_INSTANCE_LEN]; /* set by CTL_FILL; zeros before */
	bool ended;
	enum ctl_end_reason end_reason;
	char end_text[CTL_TEXT_MAX];
};

struct ctl_request {
	struct ctl_msg msg;
	size_t bytes;
	unsigned nfds;
	int fds[FDS_ROOM]; /* closed after the request, except those taken over */
};

/* A request that is answered later. */
struct waiter {
	struct ctl *ctl;
	uint32_t generation, seq;
};

/* --- Sending --- */

static void hang_up(struct ctl *c)
{
	event_watch_del(c->conn_watch);
	c->conn_watch = NULL;
	close_fd(&c->conn);
}

/*
 * Sends a message with descriptors, which the caller keeps. Returns false when there is no
 * connection, or when sending fails, which closes it.
 */
static bool send_with(struct ctl *c, struct ctl_msg *m, const int *fds, unsigned nfds)
{
	MESSAGE_FDS_ROOM(control, CTL_FDS_MAX);
	struct iovec iov = {.iov_base = m, .iov_len = sizeof(*m)};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	m->version = CTL_VERSION;
	m->nfds = nfds;
	message_put_fds(&h, control, fds, nfds);
	if (c->conn < 0)
		return false;
	if (sendmsg(c->conn, &h, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
		return true;
	log_warn("can't send on the control connection: %s", strerror(errno));
	hang_up(c);
	return false;
}

static void send_msg(struct ctl *c, struct ctl_msg *m)
{
	send_with(c, m, NULL, 0);
}

static void set_text(char out[CTL_TEXT_MAX], const char *text)
{
	size_t len = strnlen(text, CTL_TEXT_MAX - 1);

	memcpy(out, text, len);
	out[len] = '\0';
}

/* Answers request `seq`. After a success, `e` is NULL or has no code. */
static void reply(struct ctl *c, uint32_t seq, const struct err *e)
{
	struct ctl_msg m = {.type = CTL_REPLY, .seq = seq};

	if (e && e->code) {
		m.reply.error = e->code;
		set_text(m.reply.text, e->text);
	}
	send_msg(c, &m);
}

static void send_hello(struct ctl *c)
{
	struct ctl_msg m = {.type = CTL_HELLO};

	m.hello.state = vm_state(c->vm);
	m.hello.vcpus = c->cfg->vcpus;
	m.hello.ram_mib = vm_ram_mib(c->vm);
	m.hello.pid = (uint32_t)getpid();
	memcpy(m.hello.instance, c->instance, sizeof(m.hello.instance));
	send_msg(c, &m);
}

static void send_ended(struct ctl *c)
{
	struct ctl_msg m = {.type = CTL_ENDED};

	m.ended.reason = c->end_reason;
	memcpy(m.ended.text, c->end_text, sizeof(m.ended.text));
	send_msg(c, &m);
}

static void on_guest_ended(void *arg, enum ctl_end_reason reason, const char *text)
{
	struct ctl *c = arg;

	c->ended = true;
	c->end_reason = reason;
	set_text(c->end_text, text);
	send_ended(c);
}

/* --- Deferred answers --- */

static struct waiter *waiter_new(struct ctl *c, uint32_t seq, struct err *e)
{
	struct waiter *w = malloc(sizeof(*w));

	if (!w) {
		err_set(e, ENOMEM, "allocate a deferred answer");
		return NULL;
	}
	*w = (struct waiter){.ctl = c, .generation = c->generation, .seq = seq};
	return w;
}

static void answer(struct waiter *w, const struct err *e)
{
	if (w->generation == w->ctl->generation)
		reply(w->ctl, w->seq, e);
	free(w);
}

/*
 * Returns 1 if the request has started: `w` then waits for the answer. Otherwise frees `w` and
 * returns the error `started`.
 */
static int await_answer(struct waiter *w, int started)
{
	if (!started)
		return 1;
	free(w);
	return started;
}

static void on_paused(void *arg, int result)
{
	struct err e = {0};

	if (result)
		err_set(&e, -result, "the guest ended before it was paused");
	answer(arg, &e);
}

static void on_connected(void *arg, int result)
{
	struct err e = {0};

	if (result)
		err_set(&e, -result, "connect to the guest");
	answer(arg, &e);
}

/*
 * Resumes the VM: the connection that requested the pause is gone, and a newer one does not know of
 * it.
 */
static void run_unasked(struct vm *vm)
{
	struct err e = {0};

	log_info("the connection that requested a snapshot is gone: resuming the paused VM");
	if (vm_run(vm, &e))
		log_error("%s", e.text);
}

static void on_forked(void *arg, const struct vm_snapshot *snapshot, const struct err *e)
{
	struct waiter *w = arg;
	struct ctl_msg m = {.type = CTL_REPLY, .seq = w->seq};

	if (!snapshot) {
		log_warn("fork: %s", e->text);
		answer(w, e);
		return;
	}
	m.reply.fork.pause_ns = snapshot->pause_ns;
	m.reply.fork.copied_bytes = snapshot->copied_bytes;
	m.reply.fork.disk_bytes = snapshot->disk_bytes;
	m.reply.fork.memory_layers = snapshot->memory_layers;
	m.reply.fork.layers = snapshot->layers;
	bool delivered = w->generation == w->ctl->generation &&
			 send_with(w->ctl, &m, snapshot->fds, snapshot->nfds);
	if (!delivered && vm_state(w->ctl->vm) == CTL_PAUSED)
		run_unasked(w->ctl->vm);
	free(w);
}

/* --- Requests: each returns 0 or -errno (to be answered), or 1 (answered, or deferred) --- */

static int do_fill(struct ctl *c, struct ctl_request *r, struct err *e)
{
	const struct ctl_msg *m = &r->msg;
	bool boot = m->fill.kind == CTL_BOOT;
	unsigned first = boot ? 1 + m->fill.has_initrd : 2 + m->fill.memory_layers;
	const struct vm_memory memory = {
		.ram_mib = m->fill.ram_mib, .fds = &r->fds[1], .nlayers = m->fill.memory_layers};
	struct vm_disk disk = {
		.base = &r->fds[first],
		.layers = &r->fds[first + 1],
		.nlayers = m->fill.layers,
		.writable = &r->fds[first + 1 + m->fill.layers],
		.bytes = m->fill.disk_bytes,
	};

	struct ctl_msg answer = {.type = CTL_REPLY, .seq = m->seq};
	int res;

	if (boot)
		res = vm_boot(c->vm, m->fill.ram_mib, r->fds[0],
			      m->fill.has_initrd ? r->fds[1] : -1, m->fill.cmdline, &disk, e);
	else
		res = vm_restore(c->vm, r->fds[0], &memory, &disk, e);
	if (res)
		return res;
	memcpy(c->instance, m->fill.instance, sizeof(c->instance));
	answer.reply.fill.running_ns = vm_running_since(c->vm);
	send_msg(c, &answer);
	vm_started(c->vm);
	return 1;
}

static int check_stream(int fd, struct err *e)
{
	int type = 0;
	socklen_t len = sizeof(type);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM)
		return err_say(e, EPROTO, "CTL_CONNECT needs a stream socket");
	return 0;
}

static int do_connect(struct ctl *c, struct ctl_request *r, struct err *e)
{
	int res = check_stream(r->fds[0], e);
	struct waiter *w = res ? NULL : waiter_new(c, r->msg.seq, e);

	if (!w)
		return e->code;
	return await_answer(w, vm_connect(c->vm, &r->msg, &r->fds[0], on_connected, w, e));
}

static int do_pause(struct ctl *c, struct ctl_request *r, struct err *e)
{
	struct waiter *w = waiter_new(c, r->msg.seq, e);

	return w ? await_answer(w, vm_pause(c->vm, on_paused, w, e)) : e->code;
}

static int do_run(struct ctl *c, struct ctl_request *r, struct err *e)
{
	return vm_run(c->vm, e);
}

static int do_fork(struct ctl *c, struct ctl_request *r, struct err *e)
{
	struct waiter *w = waiter_new(c, r->msg.seq, e);
	const struct vm_fork_how how = {.children = r->msg.fork.children,
					.stay_paused = r->msg.fork.stay_paused};

	return w ? await_answer(w, vm_fork(c->vm, &how, &r->fds[0], on_forked, w, e)) : e->code;
}

static int do_record(struct ctl *c, struct ctl_request *r, struct err *e)
{
	return vm_record(c->vm, e);
}

static int do_stats(struct ctl *c, struct ctl_request *r, struct err *e)
{
	struct ctl_msg m = {.type = CTL_REPLY, .seq = r->msg.seq};

	vm_stats(c->vm, &m);
	send_msg(c, &m);
	return 1;
}

static int do_inspect(struct ctl *c, struct ctl_request *r, struct err *e)
{
	scoped_free char *text = malloc(CTL_REPORT_MAX);
	struct report report;

	if (!text)
		return err_set(e, ENOMEM, "allocate the report");
	report = report_on(text, CTL_REPORT_MAX);
	vm_inspect(c->vm, &report);
	ssize_t n = pwrite(r->fds[0], text, report.len, 0);
	if (n != (ssize_t)report.len)
		return err_set(e, n < 0 ? errno : ENOSPC, "write the report");
	return 0;
}

static int do_quit(struct ctl *c, struct ctl_request *r, struct err *e)
{
	event_loop_stop(c->loop);
	return 0;
}

static int (*const handlers[])(struct ctl *, struct ctl_request *, struct err *) = {
	[CTL_FILL] = do_fill, [CTL_CONNECT] = do_connect, [CTL_PAUSE] = do_pause,
	[CTL_RUN] = do_run,   [CTL_STATS] = do_stats,	  [CTL_QUIT] = do_quit,
	[CTL_FORK] = do_fork, [CTL_INSPECT] = do_inspect, [CTL_RECORD] = do_record,
};

static void serve(struct ctl *c, struct ctl_request *r)
{
	uint32_t seq = r->bytes >= offsetof(struct ctl_msg, nfds) ? r->msg.seq : 0;
	struct err e = {0};
	int res = ctl_check_request(&r->msg, r->bytes, r->nfds, &e);

	if (!res)
		res = handlers[r->msg.type](c, r, &e);
	if (res < 0)
		log_warn("request of type %u: %s", r->bytes >= 8 ? r->msg.type : 0, e.text);
	if (res <= 0)
		reply(c, seq, &e);
}

/* --- Receiving --- */

static ssize_t receive(int fd, struct ctl_request *r)
{
	MESSAGE_FDS_ROOM(control, FDS_ROOM);
	struct iovec iov = {.iov_base = &r->msg, .iov_len = sizeof(r->msg)};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	message_want_fds(&h, control, FDS_ROOM);
	ssize_t n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return n;
	r->nfds = message_take_fds(&h, r->fds);
	/* A truncated message gets a length that no message has, so that the check refuses it. */
	r->bytes = h.msg_flags & MSG_TRUNC ? sizeof(r->msg) + 1 : (size_t)n;
	return n;
}

static void on_readable(void *arg, uint32_t events)
{
	struct ctl *c = arg;
	struct ctl_request r = {.nfds = 0};
	ssize_t n = receive(c->conn, &r);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		hang_up(c);
	else
		serve(c, &r);
	for (unsigned i = 0; i < r.nfds; i++)
		close_fd(&r.fds[i]);
}

static void on_connection(void *arg, uint32_t events)
{
	struct ctl *c = arg;
	struct err e = {0};
	int fd = accept4(c->cfg->ctl_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	hang_up(c);
	c->conn = fd;
	c->generation++;
	if (event_watch_add(c->loop, fd, EPOLLIN, on_readable, c, &c->conn_watch, &e)) {
		log_error("can't serve the control connection: %s", e.text);
		hang_up(c);
		return;
	}
	send_hello(c);
	if (c->ended)
		send_ended(c);
}

int ctl_serve(const struct vm_config *cfg, struct event_loop *loop, struct vm *vm, struct err *e)
{
	struct ctl *c = calloc(1, sizeof(*c));
	struct event_watch *listen;
	int r;

	if (!c)
		return err_set(e, ENOMEM, "serve the control socket");
	*c = (struct ctl){.cfg = cfg, .loop = loop, .vm = vm, .conn = -1};
	r = event_watch_add(loop, cfg->ctl_fd, EPOLLIN, on_connection, c, &listen, e);
	if (!r)
		vm_on_ended(vm, on_guest_ended, c);
	return r;
}
