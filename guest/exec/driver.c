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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/wire.h"
#include "guest/cgroup.h"
#include "guest/child.h"
#include "guest/loop.h"
#include "guest/log-console.h"

/* Descriptors of the Python process, out of the way of user code; driver.py knows them too. */
#define DRIVER_CTL_FD	 1000
#define DRIVER_STDOUT_FD 1001
#define DRIVER_STDERR_FD 1002 /* 1003: driver_pipes.progress, 1004: starts_write_end */

extern const unsigned char driver_py[]; /* generated from driver.py */
extern const unsigned long driver_py_len;

static struct {
	enum driver_state state;
	pid_t pid;
	bool dead;	   /* reaped: nothing can be sent, its last frames are read */
	struct watch ctl;  /* fd -1: none, or the driver closed its end */
	struct watch life; /* its pidfd */
	size_t out_pos, out_len;
	struct frame_in in;
	uint8_t out[2 * FRAME_MAX]; /* a queued frame, and the next */
	size_t waits;		    /* bytes of the queued frame */
} driver = {.ctl.fd = -1, .life.fd = -1};

/*
 * The driver writes one u32 per call to this pipe, as soon as SIGINT reaches the call's code: the
 * process group of bash, or 0 for Python. The pipe is read only when that matters, so it wakes
 * nobody while the code runs.
 */
static struct watch starts;
static int starts_write_end;

static struct driver_pipes pipes;
static const struct driver_ops *ops;
static char script[PATH_MAX];

enum driver_state driver_state(void)
{
	return driver.state;
}

pid_t driver_pid(void)
{
	return driver.state == DRIVER_DOWN ? 0 : driver.pid;
}

bool driver_taken(void)
{
	return driver.out_len == driver.waits;
}

void driver_signal(int sig)
{
	if (driver.state == DRIVER_DOWN)
		return;
	/* User code may have moved it to another process group. */
	if (kill(-driver.pid, sig) < 0 || sig == SIGKILL)
		kill(driver.pid, sig);
}

static void close_ctl(void)
{
	if (driver.ctl.fd < 0)
		return;
	watch_del(&driver.ctl);
	close_fd(&driver.ctl.fd);
}

static void forget_out(void)
{
	driver.out_pos = driver.out_len = driver.waits = 0;
}

static void flush_out(void)
{
	while (driver.out_pos < driver.out_len && driver.ctl.fd >= 0) {
		ssize_t n = send(driver.ctl.fd, driver.out + driver.out_pos,
				 driver.out_len - driver.out_pos, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			watch_set(&driver.ctl, EPOLLIN | EPOLLOUT);
			return;
		}
		if (n < 0)
			break; /* the pidfd reports its end */
		driver.out_pos += (size_t)n;
	}
	forget_out();
	if (driver.ctl.fd >= 0)
		watch_set(&driver.ctl, EPOLLIN);
}

/*
 * Wakes the driver on the agent's CPU, which is about to be idle: waking it on another one would
 * take an interrupt between the two, which costs several exits from the VM. It may move to any CPU
 * later.
 */
static void flush_here(void)
{
	cpu_set_t before, here;

	CPU_ZERO(&here);
	CPU_SET((size_t)sched_getcpu(), &here);
	bool moved = sched_getaffinity(driver.pid, sizeof(before), &before) == 0 &&
		     sched_setaffinity(driver.pid, sizeof(here), &here) == 0;
	flush_out();
	if (moved)
		sched_setaffinity(driver.pid, sizeof(before), &before);
}

static void put(uint8_t type, const void *payload, size_t len)
{
	uint8_t *to = driver.out + driver.out_len;

	driver.state = DRIVER_BUSY;
	frame_header(to, type, (uint32_t)len);
	if (len)
		memcpy(to + AGENT_HEADER_SIZE, payload, len);
	driver.out_len += AGENT_HEADER_SIZE + len;
}

void driver_send(uint8_t type, const void *payload, size_t len)
{
	put(type, payload, len);
	driver.waits = 0;
	flush_here();
}

void driver_send_with_next(uint8_t type, const void *payload, size_t len)
{
	put(type, payload, len);
	driver.waits = driver.out_len;
}

bool driver_started(pid_t *bash_group)
{
	uint8_t said[4];
	struct wire w = wire_from(said, sizeof(said));

	if (read(starts.fd, said, sizeof(said)) != sizeof(said))
		return false;
	uint32_t value = wire_get_u32(&w);
	*bash_group = value > 1 && value <= INT_MAX ? (pid_t)value : 0;
	return true;
}

static void on_starts(struct watch *w, uint32_t events)
{
	pid_t bash_group;

	watch_set(w, 0);
	if (driver_started(&bash_group))
		ops->on_started(bash_group);
}

void driver_await_start(void)
{
	watch_set(&starts, EPOLLIN);
}

static void forget_starts(void)
{
	static uint8_t said[1 << 16]; /* a whole pipe: user code may write to it too */

	watch_set(&starts, 0);
	if (read(starts.fd, said, sizeof(said)) < 0 && errno != EAGAIN)
		log_console("empty the pipe on which the driver reports starts: %s",
			    strerror(errno));
}

static void become_idle(void)
{
	forget_starts();
	driver.state = DRIVER_IDLE;
	if (!driver.dead)
		ops->on_idle();
}

static int report_error(struct wire *w)
{
	struct err e;
	size_t len;
	int code = (int)(wire_get_u32(w) & 0xfff);
	const uint8_t *text = wire_get_str(w, &len, AGENT_PAYLOAD_MAX);

	if (w->bad)
		return -EPROTO;
	err_say(&e, code, "%.*s", (int)(len < ERR_TEXT_MAX ? len : ERR_TEXT_MAX), text);
	ops->on_reseeded(&e);
	return 0;
}

/* Handles a frame. Returns 0, or -EPROTO for a frame that is not allowed now. */
static int handle(const struct frame *f)
{
	struct wire w = wire_from(f->payload, f->len);
	bool busy = driver.state == DRIVER_BUSY;
	uint32_t value;

	switch (f->type) {
	case AGENT_PONG:
		if (driver.state != DRIVER_STARTING || f->len)
			return -EPROTO;
		break;
	case AGENT_EXIT:
		value = wire_get_u32(&w);
		wire_get_u8(&w); /* state lost: only the agent can know */
		if (!busy || w.bad)
			return -EPROTO;
		ops->on_exit((int32_t)value, f->payload + w.pos, f->len - w.pos);
		break;
	case AGENT_DONE:
		if (!busy)
			return -EPROTO;
		ops->on_reseeded(NULL);
		break;
	case AGENT_ERROR:
		if (!busy || report_error(&w))
			return -EPROTO;
		break;
	default:
		return -EPROTO;
	}
	become_idle();
	return 0;
}

/* Returns true when there may be more to read. */
static bool read_frame(void)
{
	struct frame f;
	struct err e;
	int got;

	do {
		ssize_t n = read(driver.ctl.fd, frame_end(&driver.in), frame_room(&driver.in));

		if (n < 0 && errno == EAGAIN)
			return false;
		if (n <= 0) { /* user code closed it or called exec(2); the process may live on */
			close_ctl();
			return false;
		}
		got = frame_got(&driver.in, (size_t)n, &f, &e);
	} while (!got);
	if (got > 0) {
		/* Reset first: the handler may send, and that may bring the next frame. */
		frame_reset(&driver.in);
		got = handle(&f);
	}
	if (got < 0) {
		log_console("the Python process broke the protocol and is killed");
		driver_signal(SIGKILL);
		close_ctl();
	}
	return driver.ctl.fd >= 0;
}

static void on_ctl(struct watch *w, uint32_t events)
{
	if (events & EPOLLOUT) {
		flush_out();
		if (driver_taken())
			ops->on_sent();
	}
	if (driver.ctl.fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		read_frame();
}

static void describe_end(struct err *e, int status)
{
	if (WIFSIGNALED(status))
		err_say(e, ECHILD, "the Python process was killed by signal %d (%s)",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		err_say(e, ECHILD, "the Python process ended with exit code %d",
			WEXITSTATUS(status));
}

static void on_life(struct watch *w, uint32_t events)
{
	struct err e;
	int status;

	/* The end of a traced process is reported to its tracer first. The pidfd signals again when
	 * the agent can reap the process. */
	if (waitpid(driver.pid, &status, WNOHANG) != driver.pid)
		return;
	/* Reads answers that the driver sent before it died. */
	driver.dead = true;
	while (driver.ctl.fd >= 0 && read_frame())
		;
	close_ctl();
	watch_del(&driver.life);
	close_fd(&driver.life.fd);
	forget_out();
	enum driver_state was = driver.state;
	driver.state = DRIVER_DOWN;
	describe_end(&e, status);
	ops->on_gone(was, status, &e);
}

static int write_script(struct err *e)
{
	scoped_fd int fd = open(script, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return err_set(e, errno, "open %s", script);
	size_t done = 0;
	while (done < driver_py_len) {
		ssize_t n = write(fd, driver_py + done, driver_py_len - done);
		if (n < 0)
			return err_set(e, errno, "write %s", script);
		done += (size_t)n;
	}
	return 0;
}

static int open_starts(struct err *e)
{
	int fds[2];

	/* The agent keeps both ends open, so the pipe never reports a hang-up. */
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(e, errno, "create a pipe");
	starts_write_end = fds[1];
	starts.on_event = on_starts;
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		return err_set(e, errno, "make a pipe non-blocking");
	int bad = watch_add(&starts, fds[0], 0);
	return bad ? err_set(e, -bad, "watch a pipe") : 0;
}

int driver_init(const char *dir, const struct driver_pipes *the_pipes,
		const struct driver_ops *the_ops, struct err *e)
{
	pipes = *the_pipes;
	ops = the_ops;
	driver.ctl.on_event = on_ctl;
	driver.life.on_event = on_life;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return err_set(e, errno, "create the folder %s", dir);
	if ((size_t)snprintf(script, sizeof(script), "%s/driver.py", dir) >= sizeof(script))
		return err_say(e, ENAMETOOLONG, "%s: the path is too long", dir);
	int bad = open_starts(e);
	return bad ? bad : write_script(e);
}

static void move_fds(int ctl)
{
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const int from[] = {ctl, pipes.out, pipes.err, pipes.progress, starts_write_end};

	for (int i = 0; i < (int)ARRAY_LEN(from); i++)
		if (dup2(from[i], DRIVER_CTL_FD + i) < 0)
			_exit(126);
	/* fd 2 is the console until here, so that a failure above shows there. */
	if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(DRIVER_STDOUT_FD, 1) < 0 ||
	    dup2(DRIVER_STDERR_FD, 2) < 0)
		_exit(126);
}

__attribute__((noreturn)) static void child(int ctl, pid_t parent)
{
	char *const argv[] = {"python3", "-u", script, NULL};
	const char *home = getenv("HOME");

	child_begin(parent, "0");
	cgroup_enter_user();
	setsid();
	signal(SIGPIPE, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	move_fds(ctl);
	if ((!home || chdir(home) < 0) && chdir("/") < 0)
		_exit(126);
	execvp(argv[0], argv);
	_exit(127);
}

int driver_start(struct err *e)
{
	pid_t agent = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return err_set(e, errno, "start Python: socketpair");
	scoped_fd int ours = ends[0];
	scoped_fd int theirs = ends[1];
	if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
		return err_set(e, errno, "start Python: O_NONBLOCK");
	pid_t pid = fork();
	if (pid < 0)
		return err_set(e, errno, "start Python: fork");
	if (pid == 0)
		child(theirs, agent);
	scoped_fd int life = (int)syscall(SYS_pidfd_open, pid, 0);
	if (life < 0 || watch_add(&driver.life, life, EPOLLIN | EPOLLET) < 0 ||
	    watch_add(&driver.ctl, ours, EPOLLIN) < 0) {
		int saved = errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		driver.life.fd = driver.ctl.fd = -1;
		return err_set(e, saved, "start Python: watch it");
	}
	take_fd(&life);
	take_fd(&ours);
	driver.pid = pid;
	driver.dead = false;
	driver.state = DRIVER_STARTING;
	forget_starts();
	frame_reset(&driver.in);
	return 0;
}
