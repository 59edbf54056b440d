// SPDX-License-Identifier: Apache-2.0
/*
 * Drives the service's handle on one adopted VM process. The input chooses the incoming packets,
 * the owner's requests, the timers that fire and the warden's answers. This file provides the loop
 * and the warden. No callback may run twice or after a drop, and no descriptor may leak.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/message-fds.h"
#include "orchestrator/vm/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define expect(right) expect_at(right, #right, __LINE__)

static void expect_at(bool right, const char *what, int line)
{
	if (right)
		return;
	fprintf(stderr, "line %d: expected %s\n", line, what);
	abort();
}

/* --- the loop ------------------------------------------------------------------------------- */

#define OPS	     64
#define TIMERS	     64
#define WARDEN_CALLS 16

struct loop_op {
	bool used, cancelled, receives;
	struct msghdr *msg;
	size_t len;
	loop_fn *fn;
	void *arg;
};

static struct loop_op ops[OPS];
static struct loop_timer *timers[TIMERS + 1];

static struct loop_op *loop_op_new(struct loop_op init)
{
	for (int i = 0; i < OPS; i++)
		if (!ops[i].used) {
			ops[i] = init;
			ops[i].used = true;
			return &ops[i];
		}
	return NULL;
}

static void op_finish(struct loop_op *op, int result)
{
	op->used = false;
	op->fn(op->arg, op->cancelled ? -ECANCELED : result);
}

struct loop_op *loop_recvmsg(struct loop *l, int fd, struct msghdr *msg, loop_fn *fn, void *arg)
{
	return loop_op_new((struct loop_op){.receives = true, .msg = msg, .fn = fn, .arg = arg});
}

struct loop_op *loop_sendmsg(struct loop *l, int fd, const struct msghdr *msg, loop_fn *fn,
			     void *arg)
{
	return loop_op_new((struct loop_op){.len = msg->msg_iov[0].iov_len, .fn = fn, .arg = arg});
}

void loop_cancel(struct loop *l, struct loop_op *op)
{
	expect(op->used);
	op->cancelled = true;
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
	if (t->heap_index)
		timers[t->heap_index] = NULL;
	t->heap_index = 0;
}

uint64_t loop_now_ms(struct loop *l)
{
	return 1000;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ms)
{
	loop_timer_clear(l, t);
	for (size_t i = 1; i <= TIMERS; i++)
		if (!timers[i]) {
			timers[i] = t;
			t->heap_index = i;
			return;
		}
	abort();
}

static void fire_timer(uint8_t which)
{
	for (size_t i = 0; i < TIMERS; i++) {
		struct loop_timer *t = timers[1 + (which + i) % TIMERS];

		if (!t)
			continue;
		loop_timer_clear(NULL, t);
		t->fn(t->arg);
		return;
	}
}

/* --- the warden ----------------------------------------------------------------------------- */

static struct {
	warden_reply_fn *fn;
	void *arg;
} asked[WARDEN_CALLS]; /* answered in order */
static unsigned n_asked;
static uint64_t n_answered;

int warden_client_call(struct warden_client *w, const struct warden_msg *msg, warden_reply_fn *fn,
		       void *arg)
{
	expect(n_asked < WARDEN_CALLS);
	asked[n_asked].fn = fn;
	asked[n_asked].arg = arg;
	n_asked++;
	return 0;
}

uint64_t warden_client_answers(const struct warden_client *w)
{
	return n_answered;
}

static void warden_reply(int error, uint64_t value)
{
	if (!n_asked)
		return;
	warden_reply_fn *fn = asked[0].fn;
	n_answered++;
	void *arg = asked[0].arg;
	memmove(asked, asked + 1, --n_asked * sizeof(asked[0]));
	fn(arg, error, value, error ? "no" : "");
}

/* --- the owner ------------------------------------------------------------------------------ */

static int memory_fd = -1, empty_fd = -1;
static struct vmproc_host host;
static struct deferred_queue deferred;
static struct vmproc *vm;
static bool is_ready, is_dead, is_dropped, is_gone;
static unsigned requests, replies;

static void on_ready(void *arg)
{
	expect(!is_ready && !is_dead && !is_dropped);
	is_ready = true;
}

static void on_died(void *arg, const char *reason)
{
	expect(!is_dead && !is_dropped && reason[0]);
	is_dead = true;
}

static const struct vmproc_owner owner = {on_ready, on_died};

static void on_reply(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	bool *seen = arg;

	expect(!*seen && !is_dropped);
	expect(!error || text[0]);
	*seen = true;
	replies++;
}

static void on_forked(void *arg, int error, const char *text, struct vmproc_image *image)
{
	expect((error == 0) == (image != NULL));
	if (image)
		expect(image->nfds == 3 + image->memory_layers + image->layers);
	for (unsigned i = 0; image && i < image->nfds; i++)
		expect(image->fds[i] > 2);
	vmproc_image_put(image);
	on_reply(arg, error, text, NULL);
}

/* May run inside vmproc_drop, too. */
static void on_reported(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	bool *seen = arg;

	expect(!*seen && (reply || error));
	expect(!error || text[0]);
	*seen = true;
	replies++;
}

static void ask_for_report(int *fd, bool *seen)
{
	if (vmproc_ask_report(vm, take_fd(fd), on_reported, seen))
		return;
	*seen = true; /* one is already in flight */
	replies++;
}

static bool answered[256];

static void ask(uint8_t what)
{
	struct ctl_msg fill = {.fill = {.kind = CTL_RESTORE, .disk_bytes = 4096}};
	int fds[3] = {dup(2), dup(2), dup(2)};
	bool *seen = &answered[requests];

	if (is_dropped || requests == 40) {
		for (int i = 0; i < 3; i++)
			close_fd(&fds[i]);
		return;
	}
	requests++;
	switch (what >= 250 ? 6 : what % 6) {
	case 6:
		ask_for_report(&fds[0], seen);
		break;
	case 0:
		vmproc_fill(vm, &fill, fds, 3, on_reply, seen);
		break;
	case 1:
		vmproc_connect(vm, 5555, false, take_fd(&fds[0]), on_reply, seen);
		break;
	case 2:
		vmproc_ask(vm, CTL_PAUSE, on_reply, seen);
		break;
	case 3:
		vmproc_freeze(vm, take_fd(&fds[0]), on_forked, seen);
		break;
	case 4:
		vmproc_ask(vm, CTL_QUIT, on_reply, seen);
		break;
	case 5: {
		struct vmproc_request *r = vmproc_fork(vm, 1, take_fd(&fds[0]), on_forked, seen);

		if (what >= 240) {
			vmproc_request_cancel(r);
			*seen = true;
			replies++;
		}
		break;
	}
	}
	for (int i = 0; i < 3; i++)
		close_fd(&fds[i]);
}

static void on_gone(void *arg)
{
	expect(is_dropped && !is_gone);
	is_gone = true;
}

static void drop(void)
{
	if (is_dropped)
		return;
	is_dropped = true;
	vmproc_drop(vm, on_gone, NULL);
}

/* --- the input ------------------------------------------------------------------------------ */

struct input {
	const uint8_t *data;
	size_t size;
};

static uint8_t byte(struct input *in)
{
	if (!in->size)
		return 0;
	in->size--;
	return *in->data++;
}

/* Attaches `n` descriptors. If `sound`, the second one is a memory file of the right size, so that
 * a snapshot can be valid. */
static void attach(struct msghdr *hdr, unsigned n, bool sound)
{
	int fds[CTL_FDS_MAX];

	for (unsigned i = 0; i < n; i++)
		fds[i] = dup(sound ? (i == 1 ? memory_fd : empty_fd) : 0);
	message_put_fds(hdr, hdr->msg_control, fds, n);
}

static void deliver(struct loop_op *op, const struct ctl_msg *msg, size_t len, unsigned nfds,
		    bool sound)
{
	struct iovec *iov = op->msg->msg_iov;

	memcpy(iov->iov_base, msg, len < iov->iov_len ? len : iov->iov_len);
	if (op->cancelled) /* the kernel would not have read the packet */
		nfds = 0;
	if (nfds)
		attach(op->msg, nfds, sound);
	else
		op->msg->msg_controllen = 0;
	op_finish(op, (int)len);
}

/* Builds mostly valid packets: random ones would never pass the first check. */
static void packet(struct input *in)
{
	unsigned nfds = 0;
	struct ctl_msg msg = {.version = CTL_VERSION};
	uint8_t shape = byte(in);
	size_t len = sizeof(msg) + 1;

	msg.type = CTL_REPLY + shape % 4;
	msg.seq = byte(in) % 8;
	if (msg.type == CTL_HELLO) {
		msg.hello.state = byte(in) % 5;
		msg.hello.vcpus = 1 + (shape >> 7);
		msg.hello.ram_mib = 128;
		msg.version -= byte(in) % 2;
		msg.hello.instance[0] = byte(in);
	} else {
		msg.reply.error = -(int)(byte(in) % 4) * 11;
		memset(msg.reply.text, byte(in), sizeof(msg.reply.text));
	}
	if (msg.type == CTL_REPLY && shape & 8) {
		msg.reply.fork.memory_layers = byte(in) % (CTL_MEMORY_MAX + 2);
		msg.reply.fork.layers = byte(in) % (CTL_LAYERS_MAX + 2);
		msg.reply.fork.disk_bytes = 4096 * byte(in);
		msg.reply.fork.copied_bytes = (uint64_t)shape << 21;
		nfds = 3 + msg.reply.fork.memory_layers + msg.reply.fork.layers;
		msg.nfds = nfds;
	}
	if (shape & 0x10)
		msg.nfds = byte(in);
	if (shape & 0x20)
		((uint8_t *)&msg)[byte(in)] = byte(in);
	len = shape & 0x40 ? byte(in) : sizeof(msg);
	for (int i = 0; i < OPS; i++)
		if (ops[i].used && ops[i].receives) {
			deliver(&ops[i], &msg, len, nfds, !(shape & 0x80));
			return;
		}
}

static void finish_sends(int result)
{
	for (int i = 0; i < OPS; i++)
		if (ops[i].used && !ops[i].receives)
			op_finish(&ops[i], result < 0 ? result : (int)ops[i].len);
}

static void one_thing(struct input *in)
{
	switch (byte(in) % 12) {
	case 0:
	case 1:
	case 2:
	case 3:
		packet(in);
		break;
	case 4:
	case 5:
		ask(byte(in));
		break;
	case 6:
		fire_timer(byte(in));
		break;
	case 7:
		finish_sends(byte(in) ? 1 : -EPIPE);
		break;
	case 8:
		warden_reply(byte(in) % 4 ? 0 : -EPERM, (uint64_t)byte(in) << 23);
		break;
	case 9:
		vmproc_host_exited(&host, byte(in) % 2, byte(in));
		break;
	case 10:
		drop();
		break;
	case 11:
		if (deferred.timer.heap_index) {
			loop_timer_clear(NULL, &deferred.timer);
			deferred.timer.fn(deferred.timer.arg);
		}
		break;
	}
}

/* --- start and end -------------------------------------------------------------------------- */

static char run_dir[64];
static int listener = -1, first_free_fd;

static void ignore(void *arg)
{
}

static void set_up(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char path[96];

	log_init("fuzz", LOG_ERROR + 1);
	memory_fd = memfd_create("memory", MFD_CLOEXEC);
	empty_fd = memfd_create("empty", MFD_CLOEXEC);
	expect(ftruncate(memory_fd, 128 << 20) == 0 && empty_fd >= 0);
	snprintf(run_dir, sizeof(run_dir), "/tmp/ramet-fuzz-XXXXXX");
	expect(mkdtemp(run_dir) != NULL);
	snprintf(path, sizeof(path), "%s/vm", run_dir);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/vm/0", run_dir);
	mkdir(path, 0700);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/ctl.sock", path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	expect(bind(listener, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	expect(listen(listener, 16) == 0);
}

static void start(uint8_t how)
{
	const struct vmproc_spec spec = {.vcpus = 1, .ram_mib = 128, .memory_max = 1ull << 30};

	deferred_queue_init(&deferred, NULL);
	host = (struct vmproc_host){.deferred = &deferred,
				    .run_dir = run_dir,
				    .want_slot = ignore,
				    .slot_free = ignore};
	/* Between inputs the fuzzer may open descriptors, such as those to a symbolizer. */
	first_free_fd = dup(empty_fd);
	close(first_free_fd);
	vmproc_host_init(&host, 1);
	is_ready = is_dead = is_dropped = is_gone = false;
	requests = replies = 0;
	memset(answered, 0, sizeof(answered));
	if (how & 1) {
		const struct vmproc_id id = {.instance = {how & 4}};

		vm = vmproc_adopt(&host, &id, &spec, &owner, NULL);
	} else {
		vm = vmproc_spawn(&host, &spec, &owner, NULL);
		if (how & 2)
			warden_reply(0, 1234);
	}
}

static void end(void)
{
	int fd;

	drop();
	for (int i = 0; !is_gone && i < 1000; i++) {
		warden_reply(0, 0);
		fire_timer((uint8_t)i);
	}
	expect(is_gone);
	for (int i = 0; i < OPS; i++)
		if (ops[i].used)
			op_finish(&ops[i], 0);
	expect(host.in_use == 0);
	vmproc_host_fini(&host);
	deferred_queue_fini(&deferred);
	for (size_t i = 1; i <= TIMERS; i++)
		expect(!timers[i]);
	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		close(fd);
	fd = dup(empty_fd);
	expect(fd == first_free_fd); /* no descriptor is leaked */
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (listener < 0)
		set_up();
	start(byte(&in));
	while (in.size)
		one_thing(&in);
	end();
	return 0;
}
