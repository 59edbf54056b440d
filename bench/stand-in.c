// SPDX-License-Identifier: Apache-2.0
#include "bench/stand-in.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/wire.h"
#include "proto/agent.h"
#include "proto/ctl.h"
#include "proto/warden.h"

#define REQUEST_MAX 65536

struct vmproc;

/* A descriptor that epoll watches. */
struct source {
	struct list link; /* for the connection of an agent: member of vm->agents */
	int fd;		  /* -1: none */
	void (*fn)(struct source *s);
	struct vmproc *vm;
	uint32_t code_left; /* of a call that is being received */
	bool prints;
};

struct vmproc {
	uint32_t slot, vcpus, ram_mib, state;
	uint8_t instance[CTL_INSTANCE_LEN];
	struct source listener, ctl;
	struct list agents;
};

static struct stand_in {
	const char *run_dir;
	int epoll;
	pid_t pid;
	struct source warden;
	struct vmproc *vms[WARDEN_SLOTS_MAX];
} self;

static void fail(const char *what)
{
	fprintf(stderr, "stand-in: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void watch(struct source *s, int fd, void (*fn)(struct source *s), struct vmproc *vm)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = s};

	s->fd = fd;
	s->fn = fn;
	s->vm = vm;
	if (fd < 0 || epoll_ctl(self.epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		fail("watch a descriptor of a stand-in");
}

/* --- agents ----------------------------------------------------------------------------------- */

static void agent_drop(struct source *s)
{
	list_del(&s->link);
	close_fd(&s->fd);
	free(s);
}

static void put_frame(struct wire *w, uint8_t type, const void *body, uint32_t len)
{
	wire_put_u32(w, len);
	wire_put_u32(w, type);
	wire_put_bytes(w, body, len);
}

static void send_frames(const struct source *s, const struct wire *w)
{
	if (send(s->fd, w->p, w->pos, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		fail("send to the service");
}

/* Calls that check whether a guest is up print nothing; they are recognized by their code. */
static void answer_call(const struct source *s)
{
	uint8_t out[64];
	struct wire w = wire_on(out, sizeof(out));

	if (s->prints)
		put_frame(&w, AGENT_STDOUT, "x\n", 2);
	put_frame(&w, AGENT_EXIT, "\0\0\0\0\0", 5);
	send_frames(s, &w);
}

static void answer_request(const struct source *s, uint8_t type)
{
	static const uint8_t version[4] = {AGENT_VERSION};
	uint8_t out[64];
	struct wire w = wire_on(out, sizeof(out));

	if (type == AGENT_PING)
		put_frame(&w, AGENT_PONG, version, sizeof(version));
	else
		put_frame(&w, AGENT_DONE, NULL, 0);
	send_frames(s, &w);
}

static void take_frame(struct source *s, uint8_t type, const uint8_t *body, uint32_t len)
{
	struct wire w = wire_from(body, len);

	if (type == AGENT_EXEC) {
		wire_get_u8(&w);
		wire_get_u8(&w);
		wire_get_u32(&w);
		s->code_left = wire_get_u32(&w);
		s->prints = false;
	} else if (type == AGENT_CODE) {
		s->code_left -= len;
		s->prints = len > 4 && !memcmp(body, "out ", 4);
	} else {
		answer_request(s, type);
		return;
	}
	if (!s->code_left)
		answer_call(s);
}

/* The service sends each request with one short write, which arrives as a whole. */
static void on_agent(struct source *s)
{
	uint8_t in[REQUEST_MAX];
	ssize_t n = recv(s->fd, in, sizeof(in), 0);

	if (n <= 0) {
		agent_drop(s);
		return;
	}
	for (size_t at = 0; at < (size_t)n;) {
		struct wire w = wire_from(in + at, (size_t)n - at);
		uint32_t len = wire_get_u32(&w);

		if (wire_left(&w) < 4 || wire_left(&w) - 4 < len)
			fail("a frame came in parts");
		take_frame(s, in[at + 4], in + at + AGENT_HEADER_SIZE, len);
		at += AGENT_HEADER_SIZE + len;
	}
}

/* --- VMs -------------------------------------------------------------------------------------- */

static void vm_send(struct vmproc *vm, struct ctl_msg *msg)
{
	msg->version = CTL_VERSION;
	send(vm->ctl.fd, msg, sizeof(*msg), MSG_NOSIGNAL);
}

static void fill(struct vmproc *vm, const struct ctl_msg *msg)
{
	vm->state = CTL_RUNNING;
	vm->ram_mib = msg->fill.ram_mib;
	memcpy(vm->instance, msg->fill.instance, sizeof(vm->instance));
}

static void connect_agent(struct vmproc *vm, int *fd)
{
	struct source *s = calloc(1, sizeof(*s));

	if (!s)
		fail("no memory");
	list_add_tail(&vm->agents, &s->link);
	watch(s, take_fd(fd), on_agent, vm);
}

/* Returns 0 or -errno. */
static int serve_ctl(struct vmproc *vm, const struct ctl_msg *msg, int fds[CTL_FDS_MAX])
{
	switch (msg->type) {
	case CTL_FILL:
		fill(vm, msg);
		return 0;
	case CTL_CONNECT:
		connect_agent(vm, &fds[0]);
		return 0;
	case CTL_PAUSE:
	case CTL_RUN:
	case CTL_STATS:
	case CTL_QUIT:
		return 0;
	case CTL_RECORD:
		return -ENOTSUP;
	}
	return -EPROTO;
}

static ssize_t receive(int fd, struct ctl_msg *msg, int fds[CTL_FDS_MAX])
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * CTL_FDS_MAX)];
	struct iovec iov = {msg, sizeof(*msg)};
	struct msghdr hdr = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &hdr, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&hdr) : NULL;

	memset(fds, -1, sizeof(int) * CTL_FDS_MAX);
	if (c)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n;
}

#define SNAPSHOT_FDS 4 /* state, memory, disk base, disk layer */

/* Answers with the snapshot of a VM that booted. */
static void answer_fork(struct vmproc *vm, uint32_t seq)
{
	struct ctl_msg msg = {.version = CTL_VERSION,
			      .type = CTL_REPLY,
			      .seq = seq,
			      .nfds = SNAPSHOT_FDS,
			      .reply.fork = {.disk_bytes = 1u << 30, .layers = 1}};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * SNAPSHOT_FDS)] = {0};
	struct iovec iov = {&msg, sizeof(msg)};
	struct msghdr hdr = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&hdr);
	int fds[SNAPSHOT_FDS];

	for (unsigned i = 0; i < SNAPSHOT_FDS; i++) {
		fds[i] = memfd_create("snapshot", MFD_CLOEXEC);
		if (fds[i] < 0)
			fail("memfd_create");
	}
	if (pwrite(fds[0], "a state", 7, 0) != 7 || ftruncate(fds[1], (off_t)vm->ram_mib << 20) < 0)
		fail("make a snapshot");
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	sendmsg(vm->ctl.fd, &hdr, MSG_NOSIGNAL);
	for (unsigned i = 0; i < SNAPSHOT_FDS; i++)
		close_fd(&fds[i]);
}

static void on_ctl(struct source *s)
{
	struct ctl_msg msg, reply = {.type = CTL_REPLY};
	int fds[CTL_FDS_MAX];
	ssize_t n = receive(s->fd, &msg, fds);

	if (n == sizeof(msg) && msg.type == CTL_FORK) {
		answer_fork(s->vm, msg.seq);
	} else if (n == sizeof(msg)) {
		reply.seq = msg.seq;
		reply.reply.error = serve_ctl(s->vm, &msg, fds);
		vm_send(s->vm, &reply);
	} else { /* the service has disconnected; the VM continues */
		close_fd(&s->fd);
	}
	for (unsigned i = 0; i < CTL_FDS_MAX && n > 0; i++)
		close_fd(&fds[i]);
}

static void on_connection(struct source *s)
{
	struct vmproc *vm = s->vm;
	struct ctl_msg hello = {
		.type = CTL_HELLO,
		.hello = {.state = vm->state, .vcpus = vm->vcpus, .ram_mib = vm->ram_mib}};

	memcpy(hello.hello.instance, vm->instance, sizeof(vm->instance));
	close_fd(&vm->ctl.fd);
	watch(&vm->ctl, accept4(s->fd, NULL, NULL, SOCK_CLOEXEC), on_ctl, vm);
	vm_send(vm, &hello);
}

static void vm_dir(uint32_t slot, struct sockaddr_un *addr, const char *file)
{
	*addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(addr->sun_path, sizeof(addr->sun_path), "%s/vm/%u%s", self.run_dir, slot, file);
}

static void vm_start(const struct warden_msg *msg)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct vmproc *vm = calloc(1, sizeof(*vm));
	struct sockaddr_un addr;

	if (!vm)
		fail("no memory");
	vm->slot = msg->slot;
	vm->vcpus = msg->spawn.vcpus;
	vm->ram_mib = msg->spawn.ram_mib;
	vm->state = CTL_BLANK;
	vm->ctl.fd = -1;
	list_init(&vm->agents);
	vm_dir(vm->slot, &addr, "");
	mkdir(addr.sun_path, 0700);
	vm_dir(vm->slot, &addr, "/ctl.sock");
	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 4) < 0)
		fail("listen on the control socket of a stand-in");
	watch(&vm->listener, fd, on_connection, vm);
	self.vms[vm->slot] = vm;
}

static void vm_end(struct vmproc *vm)
{
	struct sockaddr_un addr;

	if (!vm)
		return;
	self.vms[vm->slot] = NULL;
	while (!list_empty(&vm->agents))
		agent_drop(container_of(vm->agents.next, struct source, link));
	close_fd(&vm->ctl.fd);
	close_fd(&vm->listener.fd);
	vm_dir(vm->slot, &addr, "/ctl.sock");
	unlink(addr.sun_path);
	vm_dir(vm->slot, &addr, "");
	rmdir(addr.sun_path);
	free(vm);
}

/* --- the warden ------------------------------------------------------------------------------- */

static void on_warden(struct source *s)
{
	struct warden_msg msg, reply = {.version = WARDEN_VERSION, .type = WARDEN_REPLY};

	if (recv(s->fd, &msg, sizeof(msg), 0) != sizeof(msg) || msg.slot >= WARDEN_SLOTS_MAX)
		_exit(0);
	reply.seq = msg.seq;
	reply.slot = msg.slot;
	if (msg.type == WARDEN_SPAWN) {
		vm_start(&msg);
		reply.reply.value = (uint64_t)self.pid;
	} else if (msg.type == WARDEN_RELEASE) {
		vm_end(self.vms[msg.slot]);
	}
	send(s->fd, &reply, sizeof(reply), MSG_NOSIGNAL);
}

void stand_in_serve(const char *run_dir, int warden, pid_t pid)
{
	struct epoll_event ev;

	self.run_dir = run_dir;
	self.pid = pid;
	self.epoll = epoll_create1(EPOLL_CLOEXEC);
	watch(&self.warden, warden, on_warden, NULL);
	/* Takes one event at a time, since its handler may free the source of the next one. */
	while (epoll_wait(self.epoll, &ev, 1, -1) >= 0 || errno == EINTR)
		((struct source *)ev.data.ptr)->fn(ev.data.ptr);
}
