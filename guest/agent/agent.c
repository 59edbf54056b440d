// SPDX-License-Identifier: Apache-2.0
/*
 * One static binary: the kernel runs it as PID 1 (guest/init), which runs it again as the agent,
 * with the first argument "agent". The agent serves proto/agent.h until the guest is powered off.
 * Options:
 * --unix PATH (listens there instead of on vsock), --run-dir DIR (where it writes driver.py;
 * default /run/ramet), --grace-ms N (call_init; default 2000), --dry-run-system (logs changes to
 * the guest instead of making them).
 */
#include <errno.h>
#include <getopt.h>
#include <linux/vm_sockets.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/elements.h"
#include "base/fd.h"
#include "base/wire.h"
#include "guest/conn.h"
#include "guest/exec/context-request.h"
#include "guest/exec/contexts.h"
#include "guest/exec/interpreter.h"
#include "guest/files/files.h"
#include "guest/init/init.h"
#include "guest/ports/ports.h"
#include "guest/process/process.h"
#include "guest/system/system.h"
#include "guest/log-console.h"
#include "guest/oom.h"

#define GRACE_MS     2000
#define VSOCK_BUFFER (1u << 20)
/* The longest wait of the loop. A CPU without any timer stops its clock, which takes more exits
 * from the VM than a distant timer: three when it goes to sleep and two when it wakes. */
#define WAIT_MAX_MS 3600000

static struct {
	struct watch listener;
	const struct system_ops *sys;
	bool announced;
} agent;

static struct interpreter python; /* runs the calls of all AGENT_EXECs */

static struct list waiting = {&waiting, &waiting}; /* connections in CONN_WAITING */

static void pong(struct conn *c)
{
	uint8_t version[4];
	struct wire w = wire_on(version, sizeof(version));

	wire_put_u32(&w, AGENT_VERSION);
	conn_send(c, AGENT_PONG, version, sizeof(version));
	conn_become(c, CONN_IDLE);
}

/* Ends the operation of each connection in `state`, CONN_PING or CONN_RESEED; `e` is NULL after a
 * success. */
static void end_all(enum conn_state state, const struct err *e)
{
	list_each_of_safe (c, struct conn, node, &conn_all) {
		if (c->state != state)
			continue;
		if (e)
			conn_refuse(c, e);
		else if (state == CONN_PING)
			pong(c);
		else
			conn_done(c);
	}
}

static void on_idle(struct interpreter *in)
{
	if (!agent.announced)
		log_console("agent ready");
	agent.announced = true;
	end_all(CONN_PING, NULL);
}

static void on_reseeded(struct interpreter *in, const struct err *e)
{
	end_all(CONN_RESEED, e);
}

static void on_no_start(struct interpreter *in, const struct err *e)
{
	end_all(CONN_PING, e);
	end_all(CONN_RESEED, e);
}

static const struct interpreter_ops python_calls = {
	.on_idle = on_idle,
	.on_reseeded = on_reseeded,
	.on_no_start = on_no_start,
};

static int handle_reseed(struct conn *c, const struct frame *f, struct err *e)
{
	struct reseed_request r;
	int bad = reseed_parse(f, &r, e);

	if (bad)
		return bad;
	bad = reseed_apply(&r, agent.sys, e);
	explicit_bzero(r.entropy, sizeof(r.entropy));
	if (bad) {
		conn_refuse(c, e);
		return 0;
	}
	contexts_reseed(r.user_generators);
	interpreter_reseed(&python, r.user_generators);
	/* The answer waits until the interpreter has reseeded the user's generators, except during
	 * a call: then the interpreter reseeds only before the next call. If only OpenSSL's
	 * generator has to be reseeded, nobody waits. */
	if (!r.user_generators || call_is_active(&python))
		conn_done(c);
	else
		conn_become(c, CONN_RESEED);
	interpreter_serve(&python);
	return 0;
}

static int handle_files(struct conn *c, const struct frame *f, struct err *e)
{
	int bad = files_handle(c, f, e);

	if (c->state == CONN_WAITING)
		list_add_tail(&waiting, &c->turn);
	return bad;
}

/* Refuses a request that a newer service may send. */
static void refuse_unknown(struct conn *c, uint8_t type)
{
	struct err e;

	err_say(&e, ENOSYS,
		"its agent, which an older Ramet started, does not know requests of type %u", type);
	conn_refuse_unread(c, &e);
}

/* Handles a request. Returns 0, or -EPROTO when the connection has to be closed. */
static int handle(struct conn *c, const struct frame *f, struct err *e)
{
	bool bare = f->type == AGENT_PING || f->type == AGENT_HELLO;

	if (c->state == CONN_CODE)
		return call_code(c->interpreter, c, f, e);
	if (bare && f->len)
		return err_say(e, EPROTO, "a request of type %u must not have a payload", f->type);
	if (files_takes(f->type))
		return handle_files(c, f, e);
	if (process_takes(f->type))
		return process_handle(c, f, e);
	if (context_request_is(f->type))
		return contexts_handle(c, f, e);
	switch (f->type) {
	case AGENT_PING:
		conn_become(c, CONN_PING);
		call_drop_backpressure(&python);
		interpreter_serve(&python);
		return 0;
	case AGENT_EXEC:
	case AGENT_ATTACH:
	case AGENT_INTERRUPT:
		return interpreter_handle(&python, c, f, e);
	case AGENT_DIAL:
		return ports_handle(c, f, e);
	case AGENT_RESEED:
		return handle_reseed(c, f, e);
	case AGENT_HELLO:
		pong(c);
		return 0;
	case AGENT_CODE:
	case AGENT_DATA:
		return err_say(e, EPROTO, "a frame of type %u belongs to no request", f->type);
	default:
		refuse_unknown(c, f->type);
		return 0;
	}
}

static void on_frame(struct conn *c, const struct frame *f)
{
	struct err e;

	if (handle(c, f, &e) == 0)
		return;
	log_console("%s: connection closed", e.text);
	conn_drop(c);
}

/* Called when a worker has ended. Handles the waiting requests again, in order. */
static void retry_waiting(void)
{
	struct list then = {&then, &then};

	list_move_all(&then, &waiting);
	list_drain_of (c, struct conn, turn, &then) {
		struct frame f = frame_again(&c->in);

		list_del(&c->turn);
		on_frame(c, &f);
	}
}

static void on_sent(struct conn *c)
{
	if (c->state == CONN_ENDING)
		conn_drop(c);
	else if (c->state == CONN_LISTENS || c->state == CONN_LISTS)
		process_on_sent(c);
	else if (c->interpreter)
		call_on_sent(c->interpreter, c);
}

static bool ping_waits(void)
{
	list_each_of (c, const struct conn, node, &conn_all)
		if (c->state == CONN_PING)
			return true;
	return false;
}

static void on_conn_gone(struct conn *c, enum conn_state was)
{
	if (was == CONN_WORKER)
		files_on_gone(c);
	process_on_gone(c);
	if (c->interpreter)
		call_on_gone(c->interpreter, c);
	if (ping_waits())
		call_drop_backpressure(&python);
}

static const struct conn_ops conn_calls = {
	.on_frame = on_frame,
	.on_sent = on_sent,
	.on_gone = on_conn_gone,
};

static void on_accept(struct watch *w, uint32_t events)
{
	int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0)
		conn_new(fd);
}

static int bind_unix(int fd, const char *path, struct err *e)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(addr.sun_path))
		return err_say(e, ENAMETOOLONG, "--unix: %s: the limit is %zu bytes", path,
			       sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, path, strlen(path) + 1);
	unlink(path);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_set(e, errno, "bind %s", path);
	return 0;
}

/* Sets the buffer size of later connections, which inherit it. The kernel tells the host about free
 * room only when little is left, which costs two exits each time; a large buffer makes this rare.
 * Its memory is used only while a reader is slow. */
static int enlarge_buffers(int fd, struct err *e)
{
	const uint64_t size = VSOCK_BUFFER;

	if (setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &size, sizeof(size)) < 0 ||
	    setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, sizeof(size)) < 0)
		return err_set(e, errno, "set the size of vsock buffers");
	return 0;
}

static int bind_vsock(int fd, struct err *e)
{
	/* Listens on any CID, since a restored guest may have another one. */
	struct sockaddr_vm addr = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_ANY,
		.svm_port = AGENT_PORT,
	};

	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_set(e, errno, "bind vsock port %u", AGENT_PORT);
	return enlarge_buffers(fd, e);
}

static int open_listener(const char *unix_path, struct err *e)
{
	int family = unix_path ? AF_UNIX : AF_VSOCK;
	scoped_fd int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_set(e, errno, "create a %s socket", unix_path ? "Unix" : "vsock");
	int bad = unix_path ? bind_unix(fd, unix_path, e) : bind_vsock(fd, e);
	if (bad)
		return bad;
	agent.listener.on_event = on_accept;
	if (listen(fd, CONN_COUNT_MAX) < 0 || watch_add(&agent.listener, fd, EPOLLIN) < 0)
		return err_set(e, errno, "listen for connections");
	take_fd(&fd);
	return 0;
}

static pid_t python_pid(void)
{
	return driver_pid(&python.driver);
}

static int start(const char *unix_path, const char *run_dir, unsigned grace_ms, const char *died,
		 struct err *e)
{
	int bad = loop_init();

	if (bad)
		return err_set(e, -bad, "create the event loop");
	conn_init(&conn_calls);
	files_init(agent.sys, retry_waiting);
	process_init(python_pid, grace_ms);
	contexts_init(grace_ms, run_dir);
	bad = driver_write_scripts(run_dir, e);
	if (!bad)
		bad = interpreter_init(&python, AGENT_PYTHON, NULL, grace_ms, &python_calls, e);
	if (!bad && died) {
		interpreter_note_loss(&python, died);
		contexts_restore(died);
		process_note_loss(died);
	}
	if (!bad)
		bad = open_listener(unix_path, e);
	if (!bad)
		interpreter_serve(&python);
	return bad;
}

static void loop_for_ever(void)
{
	for (;;) {
		int timeout = call_timeout_ms(&python);

		timeout = loop_sooner(timeout, process_timeout_ms());
		timeout = loop_sooner(timeout, contexts_timeout_ms());
		loop_once(loop_sooner(timeout, WAIT_MAX_MS));
		call_on_time(&python);
		process_on_time();
		contexts_on_time();
		conn_reap();
	}
}

/* Returns an exit status if the start fails. */
static int agent_main(int argc, char **argv)
{
	static const struct option options[] = {
		{"unix", required_argument, NULL, 'u'},
		{"run-dir", required_argument, NULL, 'r'},
		{"grace-ms", required_argument, NULL, 'g'},
		{"oom-counter", required_argument, NULL, 'o'},
		{"died", required_argument, NULL, 'x'}, /* how the agent before this one ended */
		{"dry-run-system", no_argument, NULL, 'd'},
		{0},
	};
	const char *unix_path = NULL, *run_dir = "/run/ramet", *died = NULL;
	const char *oom_counter = NULL;
	unsigned grace_ms = GRACE_MS;
	struct err e;
	int opt;

	agent.sys = &system_real;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'u')
			unix_path = optarg;
		else if (opt == 'r')
			run_dir = optarg;
		else if (opt == 'g')
			grace_ms = (unsigned)strtoul(optarg, NULL, 10);
		else if (opt == 'o')
			oom_counter = optarg;
		else if (opt == 'x')
			died = optarg;
		else if (opt == 'd')
			agent.sys = &system_dry;
		else
			return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	oom_open(oom_counter);
	if (agent.sys->confirm_unique() < 0)
		log_console("agent: copies of this guest cannot report when they are unique");
	if (start(unix_path, run_dir, grace_ms, died, &e) < 0) {
		log_console("agent: %s", e.text);
		return 1;
	}
	loop_for_ever();
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "agent") == 0)
		return agent_main(argc - 1, argv + 1);
	if (getpid() == 1)
		return init_main();
	log_console(
		"usage: %s agent [--unix PATH] [--run-dir DIR] [--grace-ms N] [--dry-run-system]",
		argv[0]);
	return 2;
}
