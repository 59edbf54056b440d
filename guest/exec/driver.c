// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/list.h"
#include "base/wire.h"
#include "guest/cgroup.h"
#include "guest/child.h"
#include "guest/loop.h"
#include "guest/log-console.h"
#include "guest/session.h"

/* Descriptors of the Python process, out of the way of user code; driver.py knows them too. */
#define DRIVER_CTL_FD	 1000
#define DRIVER_STDOUT_FD 1001
#define DRIVER_STDERR_FD 1002 /* 1003: driver_pipes.progress */
#define DRIVER_STARTS_FD 1004
#define COMMANDS_FD	 1005 /* bash reads its commands here */
/* Node's descriptors. Node sets close-on-exec for descriptors below 16 when it starts, so programs
 * that user code starts do not get these. */
#define NODE_CTL_FD    3
#define NODE_STARTS_FD 4

/* Generated from the files of these names. */
extern const unsigned char driver_py[], imports_py[], preloads_py[], results_py[], charts_py[],
	syntax_py[], driver_bash[], driver_js[];
extern const unsigned long driver_py_len, imports_py_len, preloads_py_len, results_py_len,
	charts_py_len, syntax_py_len, driver_bash_len, driver_js_len;

/* The files of the drivers. The .py files are imported, so no module that users have may have one
 * of these names. */
static const struct script {
	const char *name;
	const unsigned char *text;
	const unsigned long *len;
} scripts[] = {
	{"ramet_imports.py", imports_py, &imports_py_len},
	{"ramet_preloads.py", preloads_py, &preloads_py_len},
	{"ramet_results.py", results_py, &results_py_len},
	{"ramet_charts.py", charts_py, &charts_py_len},
	{"ramet_syntax.py", syntax_py, &syntax_py_len},
	{"driver.py", driver_py, &driver_py_len},
	{"driver.bash", driver_bash, &driver_bash_len},
	{"driver.js", driver_js, &driver_js_len},
};

/* Indexed by enum agent_language. */
static struct program {
	const char *name, *file, *script_name;
	char script[PATH_MAX]; /* where driver_write_scripts put it */
} programs[] = {
	[AGENT_PYTHON] = {"Python", "python3", "driver.py", ""},
	[AGENT_BASH] = {"bash", "bash", "driver.bash", ""},
	[AGENT_JAVASCRIPT] = {"JavaScript", "node", "driver.js", ""},
};

static struct program *program_of(const struct driver *d)
{
	return &programs[d->language];
}

const char *driver_name(enum agent_language language)
{
	return programs[language].name;
}

int driver_find(enum agent_language language, struct err *e)
{
	const char *at = getenv("PATH"), *file = programs[language].file;
	char path[PATH_MAX];

	for (at = at ? at : "/usr/local/bin:/usr/bin:/bin"; *at; at += *at == ':') {
		size_t len = strcspn(at, ":");

		snprintf(path, sizeof(path), "%.*s/%s", (int)len, at, file);
		if (access(path, X_OK) == 0)
			return 0;
		at += len;
	}
	return err_say(e, ENOPKG, "%s is not installed in this sandbox: there is no program %s",
		       programs[language].name, file);
}

pid_t driver_pid(const struct driver *d)
{
	return d->state == DRIVER_DOWN ? 0 : d->pid;
}

bool driver_taken(const struct driver *d)
{
	return d->out_len == d->waits;
}

void driver_signal(struct driver *d, int sig)
{
	if (d->state == DRIVER_DOWN || d->dead)
		return;
	/* User code may have moved it to another process group. */
	if (kill(-d->pid, sig) < 0 || sig == SIGKILL)
		kill(d->pid, sig);
}

void driver_nudge(struct driver *d)
{
	if (d->state != DRIVER_DOWN && !d->dead)
		kill(d->pid, SIGURG);
}

void driver_kill_code(struct driver *d)
{
	if (d->language == AGENT_BASH && d->state != DRIVER_DOWN)
		session_kill_but_leader(d->pid);
	else
		driver_signal(d, SIGKILL);
}

void driver_kill_session(struct driver *d)
{
	driver_signal(d, SIGKILL);
	if (d->state != DRIVER_DOWN)
		session_kill(d->pid);
}

static void close_ctl(struct driver *d)
{
	if (d->ctl.fd < 0)
		return;
	watch_close(&d->ctl);
	d->held = false;
}

/* While a frame is held, nothing is read. EPOLLET then reports a hang-up only once; the next change
 * of the events reports it again. */
static void watch_ctl(struct driver *d, uint32_t events)
{
	watch_set(&d->ctl, events | (d->held ? EPOLLET : EPOLLIN));
}

static void forget_out(struct driver *d)
{
	d->out_pos = d->out_len = d->waits = 0;
}

static void flush_out(struct driver *d)
{
	while (d->out_pos < d->out_len && d->ctl.fd >= 0) {
		ssize_t n =
			send(d->ctl.fd, d->out + d->out_pos, d->out_len - d->out_pos, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			watch_ctl(d, EPOLLOUT);
			return;
		}
		if (n < 0)
			break; /* the driver's pidfd reports its end */
		d->out_pos += (size_t)n;
	}
	forget_out(d);
	if (d->ctl.fd >= 0)
		watch_ctl(d, 0);
}

/*
 * Wakes the driver on the agent's CPU, which is about to be idle: waking it on another CPU would
 * take an interrupt from one CPU to the other, which costs several exits from the VM. It may move
 * to any CPU later.
 */
static void flush_here(struct driver *d)
{
	cpu_set_t before, here;

	CPU_ZERO(&here);
	CPU_SET((size_t)sched_getcpu(), &here);
	bool moved = sched_getaffinity(d->pid, sizeof(before), &before) == 0 &&
		     sched_setaffinity(d->pid, sizeof(here), &here) == 0;
	flush_out(d);
	if (moved)
		sched_setaffinity(d->pid, sizeof(before), &before);
}

static void put(struct driver *d, uint8_t type, const void *payload, size_t len)
{
	uint8_t *to = d->out + d->out_len;

	d->state = DRIVER_BUSY;
	frame_header(to, type, (uint32_t)len);
	if (len)
		memcpy(to + AGENT_HEADER_SIZE, payload, len);
	d->out_len += AGENT_HEADER_SIZE + len;
}

static bool feeds(const struct driver *d)
{
	return d->language == AGENT_BASH;
}

void driver_send(struct driver *d, uint8_t type, const void *payload, size_t len)
{
	if (feeds(d)) {
		d->state = DRIVER_BUSY;
		bash_feed_put(&d->feed, type, payload, len);
		return;
	}
	put(d, type, payload, len);
	d->waits = 0;
	flush_here(d);
}

void driver_send_with_next(struct driver *d, uint8_t type, const void *payload, size_t len)
{
	if (feeds(d)) {
		driver_send(d, type, payload, len);
		return;
	}
	put(d, type, payload, len);
	d->waits = d->out_len;
}

bool driver_started(struct driver *d, pid_t *bash_group)
{
	uint8_t said[4];
	struct wire w = wire_from(said, sizeof(said));

	if (read(d->starts.fd, said, sizeof(said)) != sizeof(said))
		return false;
	uint32_t value = wire_get_u32(&w);
	*bash_group = value > 1 && value <= INT_MAX ? (pid_t)value : 0;
	return true;
}

static void on_starts(struct watch *w, uint32_t events)
{
	struct driver *d = container_of(w, struct driver, starts);
	pid_t bash_group;

	watch_set(w, 0);
	if (driver_started(d, &bash_group))
		d->ops->on_started(d, bash_group);
}

void driver_await_start(struct driver *d)
{
	watch_set(&d->starts, EPOLLIN);
}

static void forget_starts(struct driver *d)
{
	static uint8_t said[1 << 16]; /* a whole pipe: user code may write to it too */

	watch_set(&d->starts, 0);
	if (read(d->starts.fd, said, sizeof(said)) < 0 && errno != EAGAIN)
		log_console("empty the pipe on which the driver reports starts: %s",
			    strerror(errno));
}

static void become_idle(struct driver *d)
{
	forget_starts(d);
	d->state = DRIVER_IDLE;
	if (!d->dead)
		d->ops->on_idle(d);
}

static int report_error(struct driver *d, struct wire *w)
{
	struct err e;
	size_t len;
	int code = (int)(wire_get_u32(w) & 0xfff);
	const uint8_t *text = wire_get_str(w, &len, AGENT_PAYLOAD_MAX);

	if (w->bad)
		return -EPROTO;
	err_say(&e, code, "%.*s", (int)(len < ERR_TEXT_MAX ? len : ERR_TEXT_MAX), text);
	d->ops->on_reseeded(d, &e);
	return 0;
}

/* Handles an answer. Returns 0, or -EPROTO for a frame that is not allowed now. */
static int handle_answer(struct driver *d, const struct frame *f)
{
	struct wire w = wire_from(f->payload, f->len);
	bool busy = d->state == DRIVER_BUSY;
	uint32_t value;

	switch (f->type) {
	case AGENT_PONG:
		if (d->state != DRIVER_STARTING || f->len)
			return -EPROTO;
		break;
	case AGENT_EXIT:
		value = wire_get_u32(&w);
		wire_get_u8(&w); /* only the agent knows whether state was lost */
		if (!busy || w.bad)
			return -EPROTO;
		d->ops->on_exit(d, (int32_t)value, f->payload + w.pos, f->len - w.pos);
		break;
	case AGENT_DONE:
		if (!busy)
			return -EPROTO;
		d->ops->on_reseeded(d, NULL);
		break;
	case AGENT_ERROR:
		if (!busy || report_error(d, &w))
			return -EPROTO;
		break;
	default:
		return -EPROTO;
	}
	become_idle(d);
	return 0;
}

/* Handles the frame in d->in, or keeps it there. Returns 0, or -EPROTO for a frame that is not
 * allowed now. */
static int handle(struct driver *d)
{
	const struct frame f = frame_again(&d->in);
	bool is_part = f.type == AGENT_BUNDLE || f.type == AGENT_RESULT || f.type == AGENT_FAULT;

	if (!is_part) {
		/* Reset first: the handler may send, and that may bring the next frame. */
		frame_reset(&d->in);
		return handle_answer(d, &f);
	}
	int taken = d->state == DRIVER_BUSY ? d->ops->on_part(d, &f) : -EPROTO;
	if (taken > 0)
		frame_reset(&d->in);
	d->held = taken == 0;
	return taken < 0 ? taken : 0;
}

static void kill_for_protocol(struct driver *d)
{
	log_console("the %s process broke the protocol and is killed", program_of(d)->name);
	driver_signal(d, SIGKILL);
	close_ctl(d);
}

/* Returns true when there may be more to read. */
static bool read_frame(struct driver *d)
{
	struct frame f;
	struct err e;
	int got;

	do {
		ssize_t n = read(d->ctl.fd, frame_end(&d->in), frame_room(&d->in));

		if (n < 0 && errno == EAGAIN)
			return false;
		if (n <= 0) { /* user code closed it or called exec(2); the process may live on */
			close_ctl(d);
			return false;
		}
		d->left -= d->dead ? (int)n : 0;
		got = frame_got(&d->in, (size_t)n, &f, &e);
	} while (!got);
	if (got > 0)
		got = handle(d);
	if (got < 0)
		kill_for_protocol(d);
	if (d->held)
		watch_ctl(d, 0);
	return d->ctl.fd >= 0 && !d->held;
}

static void on_ctl(struct watch *w, uint32_t events)
{
	struct driver *d = container_of(w, struct driver, ctl);

	if (events & EPOLLOUT) {
		flush_out(d);
		if (driver_taken(d))
			d->ops->on_sent(d);
	}
	if (d->ctl.fd >= 0 && !d->held && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		read_frame(d);
}

static void describe_end(const struct driver *d, struct err *e, int status)
{
	if (WIFSIGNALED(status))
		err_say(e, ECHILD, "the %s process was killed by signal %d (%s)",
			program_of(d)->name, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		err_say(e, ECHILD, "the %s process ended with exit code %d", program_of(d)->name,
			WEXITSTATUS(status));
}

/* Reads the frames that the driver sent before it died, then reports its end. A process that it
 * forked may go on sending. */
static void finish(struct driver *d)
{
	struct err e;

	while (d->ctl.fd >= 0 && !d->held && d->left > 0 && read_frame(d))
		;
	if (d->held)
		return;
	close_ctl(d);
	watch_close(&d->life);
	forget_out(d);
	if (feeds(d))
		bash_feed_stop(&d->feed);
	enum driver_state was = d->state;
	d->state = DRIVER_DOWN;
	describe_end(d, &e, d->status);
	d->ops->on_gone(d, was, d->status, &e);
}

static void on_life(struct watch *w, uint32_t events)
{
	struct driver *d = container_of(w, struct driver, life);

	/* The end of a traced process is reported to its tracer first. The pidfd signals again when
	 * the agent can reap the process. */
	if (d->dead || waitpid(d->pid, &d->status, WNOHANG) != d->pid)
		return;
	d->dead = true;
	if (d->ctl.fd >= 0 && ioctl(d->ctl.fd, FIONREAD, &d->left) < 0)
		d->left = 0;
	finish(d);
}

void driver_resume(struct driver *d)
{
	if (!d->held)
		return;
	d->held = false;
	if (handle(d) < 0)
		kill_for_protocol(d);
	if (d->ctl.fd >= 0)
		watch_ctl(d, d->out_len ? EPOLLOUT : 0);
	if (d->dead && !d->held)
		finish(d);
}

static int write_file(const char *dir, const struct script *script, struct err *e)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, script->name) >= sizeof(path))
		return err_say(e, ENAMETOOLONG, "%s: the path is too long", dir);
	scoped_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_set(e, errno, "open %s", path);
	return file_write(fd, 0, script->text, *script->len, e) < 0 ? err_context(e, "%s", path)
								    : 0;
}

static int open_starts(struct driver *d, struct err *e)
{
	int fds[2];

	/* The agent keeps both ends open, so the pipe never reports a hang-up. */
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(e, errno, "create a pipe");
	d->starts_write_end = fds[1];
	d->starts.on_event = on_starts;
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		return err_set(e, errno, "make a pipe non-blocking");
	int bad = watch_add(&d->starts, fds[0], 0);
	return bad ? err_set(e, -bad, "watch a pipe") : 0;
}

int driver_write_scripts(const char *dir, struct err *e)
{
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "create the folder %s", dir);
	for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
		int bad = write_file(dir, &scripts[i], e);
		if (bad)
			return bad;
	}
	for (size_t i = 0; i < ARRAY_LEN(programs); i++)
		snprintf(programs[i].script, sizeof(programs[i].script), "%s/%s", dir,
			 programs[i].script_name);
	return 0;
}

int driver_open(struct driver *d, enum agent_language language, const struct driver_launch *launch,
		const struct driver_pipes *pipes, const struct driver_ops *ops, struct err *e)
{
	d->language = language;
	d->launch = launch;
	d->pipes = *pipes;
	d->ops = ops;
	d->state = DRIVER_DOWN;
	d->ctl.on_event = on_ctl;
	d->life.on_event = on_life;
	d->ctl.fd = d->life.fd = d->starts.fd = d->starts_write_end = -1;
	int bad = open_starts(d, e);
	return bad || !feeds(d) ? bad : bash_feed_open(&d->feed, launch->dir, e);
}

void driver_close(struct driver *d)
{
	watch_close(&d->starts);
	close_fd(&d->starts_write_end);
	bash_feed_close(&d->feed);
}

static void move_fds(const struct driver *d, int ctl, int commands)
{
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const int from[] = {
		ctl, d->pipes.out, d->pipes.err, d->pipes.progress, d->starts_write_end, commands};
	const int last = commands < 0 ? COMMANDS_FD - 1 : COMMANDS_FD;

	for (int i = 0; i <= last - DRIVER_CTL_FD; i++)
		if (dup2(from[i], DRIVER_CTL_FD + i) < 0)
			_exit(126);
	/* fd 2 is the console until here, so that a failure above shows there. */
	if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(DRIVER_STDOUT_FD, 1) < 0 ||
	    dup2(DRIVER_STDERR_FD, 2) < 0)
		_exit(126);
	/* Only driver.py uses these. */
	if (d->language != AGENT_PYTHON)
		close_range(DRIVER_STDOUT_FD, DRIVER_STDERR_FD + 1, 0);
	if (d->language != AGENT_JAVASCRIPT)
		return;
	if (dup2(DRIVER_CTL_FD, NODE_CTL_FD) < 0 || dup2(DRIVER_STARTS_FD, NODE_STARTS_FD) < 0)
		_exit(126);
	close_range(DRIVER_CTL_FD, DRIVER_STARTS_FD, 0);
}

/* Sets the variables of the launch, whose fields are checked already. */
static void set_variables(const struct driver_launch *l)
{
	struct wire w = wire_from(l->env, l->env_len);

	for (uint32_t i = 0; i < l->env_count; i++) {
		size_t name_len, value_len;
		const uint8_t *name = wire_get_str(&w, &name_len, AGENT_PAYLOAD_MAX);
		const uint8_t *value = wire_get_str(&w, &value_len, AGENT_PAYLOAD_MAX);
		char *n = name ? strndup((const char *)name, name_len) : NULL;
		char *v = value ? strndup((const char *)value, value_len) : NULL;

		if (!n || !v || setenv(n, v, 1) < 0)
			_exit(126);
	}
}

__attribute__((noreturn)) static void child(const struct driver *d, int ctl, int commands,
					    pid_t parent)
{
	static char commands_path[] = "/proc/self/fd/1005";
	struct program *p = program_of(d);
	char *const python[] = {"python3", "-u", p->script, NULL};
	char *const bash[] = {"bash", "--noprofile", "--norc", commands_path, NULL};
	char *const node[] = {"node", "--expose-internals", p->script, NULL};
	char *const *argv = d->language == AGENT_PYTHON ? python
			    : d->language == AGENT_BASH ? bash
							: node;
	const char *home = getenv("HOME");

	child_begin(parent, "0");
	setsid();
	signal(SIGPIPE, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	move_fds(d, ctl, commands);
	bool in_folder = d->launch && d->launch->cwd[0] && chdir(d->launch->cwd) == 0;
	if (!in_folder && (!home || chdir(home) < 0) && chdir("/") < 0)
		_exit(126);
	if (d->launch)
		set_variables(d->launch);
	execvp(argv[0], argv);
	_exit(127);
}

int driver_start(struct driver *d, struct err *e)
{
	const char *name = program_of(d)->name;
	pid_t agent = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return err_set(e, errno, "start %s: socketpair", name);
	scoped_fd int ours = ends[0];
	scoped_fd int theirs = ends[1];
	if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
		return err_set(e, errno, "start %s: O_NONBLOCK", name);
	scoped_fd int commands =
		feeds(d) ? bash_feed_start(&d->feed, program_of(d)->script, e) : -1;
	if (feeds(d) && commands < 0)
		return commands;
	pid_t pid = cgroup_fork_user();
	if (pid < 0)
		return err_set(e, errno, "start %s: fork", name);
	if (pid == 0)
		child(d, theirs, commands, agent);
	scoped_fd int life = (int)syscall(SYS_pidfd_open, pid, 0);
	if (life < 0 || watch_add(&d->life, life, EPOLLIN | EPOLLET) < 0 ||
	    watch_add(&d->ctl, ours, EPOLLIN) < 0) {
		int saved = errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		d->life.fd = d->ctl.fd = -1;
		return err_set(e, saved, "start %s: watch it", name);
	}
	take_fd(&life);
	take_fd(&ours);
	d->pid = pid;
	d->dead = d->held = false;
	d->state = DRIVER_STARTING;
	forget_starts(d);
	frame_reset(&d->in);
	return 0;
}
