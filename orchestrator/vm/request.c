// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/message-fds.h"
#include "base/num.h"
#include "base/random.h"
#include "base/report.h"
#include "base/version.h"
#include "orchestrator/vm/internal.h"

struct request_kind {
	enum ctl_type type;
	const char *name; /* in reports */
	enum vmproc_event start, done;
	bool keeps_state; /* a failure leaves the VM's state unchanged */
	uint32_t timeout_ms;
};

/* The timeouts allow for a host that stalls for a while: when a VM process neither answers nor
 * makes progress for so long, its VM is ended, and with it a tenant's work. */
static const struct request_kind kinds[] = {
	[CTL_FILL] = {CTL_FILL, "fill", VM_FILL, VM_FILLED, false, 60000},
	[CTL_CONNECT] = {CTL_CONNECT, "connect", VM_CONNECT, VM_CONNECT, true, 60000},
	[CTL_PAUSE] = {CTL_PAUSE, "pause", VM_PAUSE, VM_PAUSE_DONE, false, 60000},
	[CTL_RUN] = {CTL_RUN, "run", VM_RUN, VM_RUNS, false, 60000},
	[CTL_RECORD] = {CTL_RECORD, "record", VM_RECORD, VM_RECORD, true, 60000},
	[CTL_QUIT] = {CTL_QUIT, "quit", VM_QUIT, VM_QUIT_DONE, false, 10000},
	[CTL_STATS] = {CTL_STATS, "stats", VM_INSPECT, VM_INSPECT, true, 0},
	[CTL_INSPECT] = {CTL_INSPECT, "report", VM_INSPECT, VM_INSPECT, true, 0},
	[CTL_FORK] = {CTL_FORK, "image", VM_FORK, VM_FORK, true, 60000},
};
static const struct request_kind freeze_kind = {CTL_FORK,  "image", VM_FREEZE,
						VM_FROZEN, true,    60000};

struct vmproc_request {
	struct vmproc *vm;
	struct list link; /* on vm->requests */
	const struct request_kind *kind;
	bool cancelled;
	bool waits; /* until another CTL_FORK is answered: the VM process takes one at a time */
	bool asks;  /* not sent until the warden has measured the VM's memory */
	vmproc_reply_fn *fn;
	vmproc_fork_fn *fork_fn; /* instead of `fn`, for a CTL_FORK */
	void *arg;
	struct loop_timer timer;
	struct vmproc_progress progress; /* while the answer is awaited */
	struct deferred deferred;	 /* reports a refusal */
	int refused;
	bool over;	   /* answered or forgotten */
	uint64_t began_ms; /* on the loop's clock; 0: not sent yet */
	bool sending;
	struct ctl_msg msg;
	struct vmproc_image *image; /* owns the first descriptors in `fds` */
	int fds[CTL_FDS_MAX];
	struct iovec iov;
	struct msghdr hdr;
	MESSAGE_FDS_ROOM(control, CTL_FDS_MAX);
};

/* --- checks --------------------------------------------------------------------------------- */

int ctl_check(const void *packet, size_t len, unsigned nfds, struct ctl_msg *out, struct err *e)
{
	memset(out, 0, sizeof(*out));
	memcpy(out, packet, min_u64(len, sizeof(*out)));
	/* Other versions may have messages of another size. */
	if (len >= sizeof(out->version) &&
	    version_check("the control protocol of the VM process", out->version,
			  CTL_VERSION_OLDEST, CTL_VERSION, e) < 0)
		return -ENOTSUP;
	if (len != sizeof(*out))
		return err_say(e, EPROTO,
			       "the VM process sent a message of %zu bytes, expected %zu", len,
			       sizeof(*out));
	if (out->nfds != nfds)
		return err_say(e, EPROTO, "the VM process sent %u descriptors, but announced %u",
			       nfds, out->nfds);
	if (nfds && out->type != CTL_REPLY)
		return err_say(e, EPROTO,
			       "the VM process sent descriptors that were not requested");
	switch (out->type) {
	case CTL_REPLY:
		out->reply.text[sizeof(out->reply.text) - 1] = 0;
		report_clean(out->reply.text);
		if (out->reply.error > 0 || out->reply.error < -4095)
			return err_say(e, EPROTO,
				       "the VM process replied with the invalid error %d",
				       out->reply.error);
		return 0;
	case CTL_HELLO:
		return 0;
	case CTL_ENDED:
		out->ended.text[sizeof(out->ended.text) - 1] = 0;
		report_clean(out->ended.text);
		return 0;
	}
	return err_say(e, EPROTO, "the VM process sent a message of the unknown type %u",
		       out->type);
}

/* --- requests ------------------------------------------------------------------------------- */

static void close_fds(struct vmproc_request *r)
{
	for (unsigned i = r->image ? r->image->nfds : 0; i < r->msg.nfds; i++)
		close_fd(&r->fds[i]);
	vmproc_image_put(r->image);
	r->image = NULL;
	r->msg.nfds = 0;
}

/* Takes the request off the list; frees it when its send has completed as well. */
static void request_end(struct vmproc_request *r)
{
	list_del(&r->link);
	deferred_cancel(&r->deferred);
	loop_timer_clear(r->vm->host->loop, &r->timer);
	r->over = true;
	if (r->sending)
		return;
	close_fds(r);
	free(r);
}

static void request_answer(struct vmproc_request *r, int error, const char *text,
			   const struct ctl_msg *reply, struct vmproc_image *image)
{
	vmproc_reply_fn *fn = r->fn;
	vmproc_fork_fn *fork_fn = r->fork_fn;
	void *arg = r->arg;
	bool cancelled = r->cancelled;

	request_end(r);
	if (cancelled)
		vmproc_image_put(image);
	else if (fork_fn)
		fork_fn(arg, error, text, image);
	else
		fn(arg, error, text, reply);
}

void vmproc_request_cancel(struct vmproc_request *r)
{
	r->cancelled = true;
}

void vmproc_fail_requests(struct vmproc *vm)
{
	/* Takes one request at a time: a callback may drop the VM and thus the other requests. */
	list_drain_of (r, struct vmproc_request, link, &vm->requests)
		request_answer(r, -ECONNRESET, vm->reason, NULL, NULL);
}

void vmproc_forget_requests(struct vmproc *vm)
{
	list_drain_of (r, struct vmproc_request, link, &vm->requests) {
		if (r->kind->type == CTL_INSPECT)
			request_answer(r, -ECANCELED, "the VM was ended meanwhile", NULL, NULL);
		else
			request_end(r);
	}
}

static void on_request_timeout(void *arg)
{
	struct vmproc_request *r = arg;

	if (vmproc_progressed(&r->progress, r->vm->id.pid, VM_GUEST_WORKS))
		loop_timer_set(r->vm->host->loop, &r->timer, r->kind->timeout_ms);
	else
		vmproc_fail(r->vm, "the VM process did not answer and made no progress for %u s",
			    r->kind->timeout_ms / 1000);
}

static void start_next_fork(struct vmproc *vm);

/* Answers a request whose failure leaves the VM's state unchanged. */
static void refuse(struct vmproc_request *r, int error, const char *text,
		   const struct ctl_msg *reply)
{
	struct vmproc *vm = r->vm;

	if (r->kind->done == VM_FROZEN)
		vmproc_try_step(vm, VM_FREEZE_FAILED); /* unless the VM failed meanwhile */
	if (r->fork_fn)
		start_next_fork(vm);
	request_answer(r, error, text, reply, NULL);
}

/* Handles a failed send. A packet is sent whole or not at all, so the VM process has not received
 * the request. */
static void on_unsent(struct vmproc_request *r, int error)
{
	if (r->kind->keeps_state && (error == -ENOMEM || error == -ENOBUFS))
		refuse(r, error, "the host has no memory for a request to the VM process", NULL);
	else
		vmproc_fail(r->vm, "cannot send to the VM process: %s", strerror(-error));
}

static void on_request_sent(void *arg, int result)
{
	struct vmproc_request *r = arg;
	struct vmproc *vm = r->vm;

	r->sending = false;
	close_fds(r);
	if (r->over)
		free(r);
	else if (result < 0)
		on_unsent(r, result);
	vm->sends--; /* only now may the VM be freed */
	vmproc_free_if_idle(vm);
}

static void fill_header(struct vmproc_request *r)
{
	r->iov = (struct iovec){.iov_base = &r->msg, .iov_len = sizeof(r->msg)};
	r->hdr = (struct msghdr){.msg_iov = &r->iov, .msg_iovlen = 1};
	message_put_fds(&r->hdr, r->control, r->fds, r->msg.nfds);
}

static void report_refusal(void *arg)
{
	struct vmproc_request *r = arg;

	request_answer(r, r->refused,
		       r->vm->reason[0] ? r->vm->reason
					: "the VM's current state does not allow this request",
		       NULL, NULL);
}

static void start(struct vmproc_request *r)
{
	struct vmproc *vm = r->vm;

	if (!vmproc_try_step(vm, r->kind->start)) {
		r->refused = -EBADFD;
		deferred_run(vm->host->deferred, &r->deferred, report_refusal, r);
		return;
	}
	r->msg.seq = vm->next_seq++;
	if (!vm->next_seq)
		vm->next_seq = 1;
	fill_header(r);
	r->began_ms = loop_now_ms(vm->host->loop);
	r->timer = (struct loop_timer){.fn = on_request_timeout, .arg = r};
	if (r->kind->timeout_ms)
		loop_timer_set(vm->host->loop, &r->timer,
			       vmproc_progress_begin(&r->progress, r->kind->timeout_ms));
	r->sending = loop_sendmsg(vm->host->loop, vm->fd, &r->hdr, on_request_sent, r) != NULL;
	vm->sends += r->sending; /* NULL: the loop is ending */
}

/* Returns a request that sends the descriptors of `image`, which the image keeps, and then `fds`,
 * which it takes over. */
static struct vmproc_request *request_new(struct vmproc *vm, const struct request_kind *kind,
					  const struct ctl_msg *body, struct vmproc_image *image,
					  int *fds, unsigned nfds, void *arg)
{
	struct vmproc_request *r = must_alloc(sizeof(*r));
	unsigned borrowed = image ? image->nfds : 0;

	r->vm = vm;
	r->kind = kind;
	r->arg = arg;
	if (body)
		r->msg = *body;
	r->msg.version = CTL_VERSION;
	r->msg.type = kind->type;
	r->msg.nfds = borrowed + nfds;
	if (image)
		r->image = vmproc_image_get(image);
	for (unsigned i = 0; i < borrowed; i++)
		r->fds[i] = image->fds[i];
	for (unsigned i = 0; i < nfds; i++)
		r->fds[borrowed + i] = take_fd(&fds[i]);
	list_add_tail(&vm->requests, &r->link);
	return r;
}

static struct vmproc_request *request(struct vmproc *vm, enum ctl_type type,
				      const struct ctl_msg *body, struct vmproc_image *image,
				      int *fds, unsigned nfds, vmproc_reply_fn *fn, void *arg)
{
	struct vmproc_request *r = request_new(vm, &kinds[type], body, image, fds, nfds, arg);

	r->fn = fn;
	start(r);
	return r;
}

static void name_instance(struct vmproc *vm, struct ctl_msg *fill)
{
	random_bytes(vm->id.instance, sizeof(vm->id.instance));
	memcpy(fill->fill.instance, vm->id.instance, sizeof(fill->fill.instance));
}

struct vmproc_request *vmproc_fill(struct vmproc *vm, const struct ctl_msg *fill, int *fds,
				   unsigned nfds, vmproc_reply_fn *fn, void *arg)
{
	struct ctl_msg msg = *fill;

	msg.fill.ram_mib = vm->spec.ram_mib;
	name_instance(vm, &msg);
	return request(vm, CTL_FILL, &msg, NULL, fds, nfds, fn, arg);
}

struct vmproc_request *vmproc_connect(struct vmproc *vm, uint32_t port, bool vital, int fd,
				      vmproc_reply_fn *fn, void *arg)
{
	struct ctl_msg msg = {.connect = {.port = port, .vital = vital}};

	return request(vm, CTL_CONNECT, &msg, NULL, &fd, 1, fn, arg);
}

struct vmproc_request *vmproc_ask(struct vmproc *vm, enum ctl_type type, vmproc_reply_fn *fn,
				  void *arg)
{
	return request(vm, type, NULL, NULL, NULL, 0, fn, arg);
}

struct vmproc_request *vmproc_ask_report(struct vmproc *vm, int fd, vmproc_reply_fn *fn, void *arg)
{
	list_each (pos, &vm->requests) {
		if (container_of(pos, struct vmproc_request, link)->kind->type != CTL_INSPECT)
			continue;
		close_fd(&fd);
		return NULL;
	}
	return request(vm, CTL_INSPECT, NULL, NULL, &fd, 1, fn, arg);
}

void vmproc_report_requests(const struct vmproc *vm, struct report *r)
{
	uint64_t now_ms = loop_now_ms(vm->host->loop);

	list_each_of (each, const struct vmproc_request, link, &vm->requests) {
		report_add(r, "  request for %s: ", each->kind->name);
		if (each->began_ms)
			report_add(r, "not answered for %.1f s%s\n",
				   (double)(now_ms - each->began_ms) / 1e3,
				   each->sending ? ", and not sent yet" : "");
		else
			report_add(r, "%s\n",
				   each->waits	? "waits for another snapshot"
				   : each->asks ? "asks the warden for its memory use"
						: "refused");
	}
}

/* --- snapshots ------------------------------------------------------------------------------ */

/* How often a page is copied at most. Each merge of its layer into a larger one copies it again,
 * with the gaps between pages: up to six times in simulations of parents that keep all their
 * children. */
#define COPIES_MOST 8

/*
 * Returns whether the memory limit has room for a snapshot. It may cost the VM's cgroup all of RAM,
 * because the guest may rewrite every page while children keep the old ones. Merging layers of a VM
 * that runs on may cost the same again: that is the usual amount, not the maximum that a guest
 * could cause.
 */
static bool has_room(const struct vmproc_request *r, uint64_t charged)
{
	const struct vmproc_spec *spec = &r->vm->spec;
	unsigned parts = r->msg.fork.stay_paused ? 1 : 2;

	return charged + parts * ((uint64_t)spec->ram_mib << 20) <= spec->memory_max;
}

static void refuse_image(struct vmproc_request *r, uint64_t charged)
{
	struct vmproc *vm = r->vm;
	char text[ERR_TEXT_MAX];

	snprintf(text, sizeof(text),
		 "its memory and the memory it shares with children of earlier forks take %llu of"
		 " %llu MiB, too much for another snapshot: end some of those children first",
		 (unsigned long long)charged >> 20, (unsigned long long)vm->spec.memory_max >> 20);
	start_next_fork(vm);
	request_answer(r, -E2BIG, text, NULL, NULL);
}

static struct vmproc_request *find_asking(struct vmproc *vm)
{
	list_each_of (r, struct vmproc_request, link, &vm->requests)
		if (r->asks)
			return r;
	return NULL;
}

/* The warden answers in order, so the VM still exists; the request may be gone. If the measurement
 * failed, the request continues as if there were room. If there is none, the VM dies, which is
 * reported. */
static void on_charged(void *arg, int error, uint64_t charged, const char *text)
{
	struct vmproc *vm = arg;
	struct vmproc_request *r = find_asking(vm);

	if (error && error != -ENOTSUP)
		log_warn("slot %u: cannot measure the VM's memory: %s", vm->id.slot, text);
	vm->charged_most = error ? 0 : charged;
	if (!r)
		return;
	r->asks = false;
	if (r->cancelled) {
		request_end(r);
		start_next_fork(vm);
	} else if (!error && !has_room(r, charged)) {
		refuse_image(r, charged);
	} else {
		start(r);
	}
}

/* Starts a snapshot. If the VM may be near its memory limit, as few VMs are, first asks the warden
 * how much memory it uses. */
static void start_image(struct vmproc_request *r)
{
	struct vmproc *vm = r->vm;
	const struct warden_msg msg = {.type = WARDEN_CHARGED, .slot = vm->id.slot};
	uint64_t ram = (uint64_t)vm->spec.ram_mib << 20;

	r->asks = !has_room(r, vm->charged_most + ram) &&
		  warden_client_call(vm->host->warden, &msg, on_charged, vm) == 0;
	if (!r->asks)
		start(r);
}

static struct vmproc_request *fork_request(struct vmproc *vm, const struct request_kind *kind,
					   const struct ctl_msg *msg, int writable,
					   vmproc_fork_fn *fn, void *arg)
{
	struct vmproc_request *r = request_new(vm, kind, msg, NULL, &writable, 1, arg);

	r->fork_fn = fn;
	list_each_of (each, struct vmproc_request, link, &vm->requests)
		r->waits = r->waits || (each != r && each->fork_fn && !each->refused);
	if (!r->waits)
		start_image(r);
	return r;
}

struct vmproc_request *vmproc_fork(struct vmproc *vm, unsigned children, int writable,
				   vmproc_fork_fn *fn, void *arg)
{
	const struct ctl_msg msg = {.fork = {.children = children}};

	return fork_request(vm, &kinds[CTL_FORK], &msg, writable, fn, arg);
}

struct vmproc_request *vmproc_freeze(struct vmproc *vm, int writable, vmproc_fork_fn *fn, void *arg)
{
	const struct ctl_msg msg = {.fork = {.children = 1, .stay_paused = 1}};

	return fork_request(vm, &freeze_kind, &msg, writable, fn, arg);
}

/* Starts the next waiting snapshot, since the VM process takes one at a time. */
static void start_next_fork(struct vmproc *vm)
{
	list_each_of_safe (r, struct vmproc_request, link, &vm->requests) {
		if (!r->waits)
			continue;
		if (r->cancelled) {
			request_end(r);
			continue;
		}
		r->waits = false;
		start_image(r);
		return;
	}
}

struct vmproc_request *vmproc_fill_image(struct vmproc *vm, struct vmproc_image *image,
					 int writable, vmproc_reply_fn *fn, void *arg)
{
	struct ctl_msg fill = {.fill = {.kind = CTL_RESTORE,
					.ram_mib = vm->spec.ram_mib,
					.layers = image->layers,
					.memory_layers = image->memory_layers,
					.disk_bytes = image->disk_bytes}};
	name_instance(vm, &fill);
	return request(vm, CTL_FILL, &fill, image, &writable, 1, fn, arg);
}

/* --- the socket ----------------------------------------------------------------------------- */

int vmproc_open_socket(struct vmproc *vm, struct err *e)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int used = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/vm/%u/ctl.sock",
			    vm->host->run_dir, vm->id.slot);

	if (used >= (int)sizeof(addr.sun_path))
		return err_say(e, ENAMETOOLONG,
			       "run_dir %s is too long for a socket path: use a shorter one",
			       vm->host->run_dir);
	scoped_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(e, errno, "create a control socket");
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_set(e, errno, "connect to the VM process at %s", addr.sun_path);
	if (fcntl(fd, F_SETFL, 0) < 0) /* blocking, so that the ring waits in the kernel */
		return err_set(e, errno, "set the flags of the control socket");
	vm->fd = take_fd(&fd);
	return 0;
}

void vmproc_close_socket(struct vmproc *vm)
{
	if (vm->recv_op)
		loop_cancel(vm->host->loop, vm->recv_op);
	else if (!vm->sends)
		close_fd(&vm->fd);
	if (vm->fd >= 0)
		shutdown(vm->fd, SHUT_RDWR); /* also ends a send that waits for buffer space */
}

/* Descriptors received with a packet. Consumers take theirs; the rest are closed. */
struct received {
	unsigned n;
	bool cut; /* there were more than CTL_FDS_MAX */
	int fds[CTL_FDS_MAX];
};

static struct vmproc_request *find_request(struct vmproc *vm, uint32_t seq)
{
	list_each_of (r, struct vmproc_request, link, &vm->requests)
		if (r->msg.seq == seq && seq)
			return r;
	return NULL;
}

static void on_reply(struct vmproc *vm, const struct ctl_msg *msg, struct received *got)
{
	struct vmproc_request *r = find_request(vm, msg->seq);
	bool forked = r && r->fork_fn && !msg->reply.error;
	struct vmproc_image *image = NULL;
	struct err e;

	if (!r) {
		vmproc_fail(vm, "the VM process replied to the unknown request %u", msg->seq);
		return;
	}
	if (forked)
		image = vmproc_image_new(msg, got->fds, got->n, vm->spec.ram_mib, &e);
	else if (got->n)
		err_say(&e, EPROTO, "the VM process sent descriptors that were not requested");
	if (forked ? !image : got->n) {
		vmproc_fail(vm, "%s", e.text);
		return;
	}
	if (image)
		vm->charged_most += COPIES_MOST * min_u64(image->copied_bytes, vm->spec.memory_max);
	int error = msg->reply.error;
	const char *text = error && !msg->reply.text[0] ? strerror(-error) : msg->reply.text;
	if (error && r->kind->keeps_state) {
		refuse(r, error, text, msg);
		return;
	}
	/* The step may be illegal by now: a CTL_CONNECT may be answered during a freeze, and any
	 * request after the VM failed. */
	if (error)
		vmproc_fail(vm, "%s", text);
	else
		vmproc_try_step(vm, r->kind->done);
	if (r->fork_fn)
		start_next_fork(vm);
	request_answer(r, error, text, msg, image);
}

static void on_ended(struct vmproc *vm, const char *text)
{
	vm->voice = VM_GUEST;
	vmproc_fail(vm, "the guest ended: %s", text[0] ? text : "no reason given");
}

static void on_packet(struct vmproc *vm, size_t len, struct received *got)
{
	struct ctl_msg msg;
	struct err e;

	if (got->cut)
		vmproc_fail(vm, "the VM process sent more than %u descriptors", CTL_FDS_MAX);
	else if (ctl_check(vm->in, len, got->n, &msg, &e) < 0)
		vmproc_fail(vm, "%s", e.text);
	else if (msg.type == CTL_REPLY)
		on_reply(vm, &msg, got);
	else if (msg.type == CTL_HELLO)
		vmproc_on_hello(vm, &msg);
	else
		on_ended(vm, msg.ended.text);
}

static void on_received(void *arg, int result)
{
	struct vmproc *vm = arg;
	struct received got = {0};

	vm->recv_op = NULL;
	if (result >= 0) {
		got.n = message_take_fds(&vm->in_hdr, got.fds);
		got.cut = vm->in_hdr.msg_flags & MSG_CTRUNC;
	}
	bool unwanted = vm->state == VM_RELEASING || vm->free_me;
	/* Without memory the packet stays in the socket, so nothing is lost, and requests have
	 * timeouts of their own. The ring has retried for a while before it reports this. */
	bool no_memory = result == -ENOMEM || result == -ENOBUFS;
	if (no_memory && !unwanted)
		log_warn("slot %u: the host has no memory to receive from the VM process",
			 vm->id.slot);
	else if (result <= 0 && !unwanted)
		vmproc_fail(vm, "the VM process is gone%s%s", result ? ": " : "",
			    result ? strerror(-result) : "");
	else if (!unwanted)
		on_packet(vm, (size_t)result, &got);
	for (unsigned i = 0; i < got.n; i++)
		close_fd(&got.fds[i]);
	if (unwanted)
		vmproc_free_if_idle(vm);
	else if (vm->state != VM_BROKEN && vm->state != VM_RELEASING)
		vmproc_receive(vm);
}

void vmproc_receive(struct vmproc *vm)
{
	vm->in_iov = (struct iovec){.iov_base = vm->in, .iov_len = sizeof(vm->in)};
	vm->in_hdr = (struct msghdr){.msg_iov = &vm->in_iov, .msg_iovlen = 1};
	message_want_fds(&vm->in_hdr, vm->in_control, CTL_FDS_MAX);
	vm->recv_op = loop_recvmsg(vm->host->loop, vm->fd, &vm->in_hdr, on_received, vm);
}
