// SPDX-License-Identifier: Apache-2.0
#include "guest/terminal/pty-start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/cgroup.h"
#include "guest/child.h"

#define REPORT_FD 3

/* --- in the child --------------------------------------------------------------------------- */

/* Reports the error in one write, which a pipe takes whole. */
__attribute__((noreturn)) static void give_up(const char *format, const char *what)
{
	struct err e = {0};

	err_set(&e, errno, format, what);
	(void)!write(REPORT_FD, &e, sizeof(e));
	_exit(126);
}

static void take_terminal(int master)
{
	struct termios t;
	int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);

	if (slave < 0 || setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		give_up("%s", "take the terminal");
	if (tcgetattr(slave, &t) == 0) {
		t.c_iflag |= IUTF8;
		tcsetattr(slave, TCSANOW, &t);
	}
	for (int fd = 0; fd < 3; fd++)
		if (dup2(slave, fd) < 0)
			give_up("%s", "take the terminal");
}

static char *get_string(struct wire *w)
{
	size_t len;
	const uint8_t *text = wire_get_str(w, &len, AGENT_PAYLOAD_MAX);
	char *copy = text ? strndup((const char *)text, len) : NULL;

	if (!copy)
		give_up("%s", "no memory");
	return copy;
}

static void set_variables(const struct pty_request *r, const struct frame *f)
{
	struct wire w = wire_from(f->payload, f->len);

	if (setenv("TERM", "xterm-256color", 1) < 0)
		give_up("%s", "no memory");
	w.pos = r->variables;
	for (uint32_t i = 0; i < r->env; i++) {
		char *name = get_string(&w), *value = get_string(&w);

		if (setenv(name, value, 1) < 0)
			give_up("set the variable \"%.60s\"", name);
	}
}

static void enter_folder(const char *cwd, pid_t cwd_owner)
{
	const char *home = getenv("HOME");
	char link[32];

	snprintf(link, sizeof(link), "/proc/%d/cwd", (int)cwd_owner);
	if ((!cwd_owner || chdir(link) < 0) && (!home || chdir(home) < 0) && chdir("/") < 0)
		give_up("enter the folder %s", "/");
	if (cwd[0] && chdir(cwd) < 0)
		give_up("enter the folder %.100s", cwd);
}

static char **get_args(const struct pty_request *r, const struct frame *f)
{
	struct wire w = wire_from(f->payload, f->len);
	char **argv = calloc(r->argc + 1, sizeof(*argv));

	if (!argv || !r->argc)
		give_up("%s", "no memory");
	w.pos = r->args;
	for (uint32_t i = 0; i < r->argc; i++)
		argv[i] = get_string(&w);
	return argv;
}

__attribute__((noreturn)) static void child(const struct pty_request *r, const struct frame *f,
					    pid_t cwd_owner, int master)
{
	take_terminal(master);
	if (close_range(REPORT_FD + 1, ~0u, 0) < 0)
		give_up("%s", "close descriptors");
	signal(SIGPIPE, SIG_DFL);
	enter_folder(r->cwd, cwd_owner);
	set_variables(r, f);
	char **argv = get_args(r, f);
	execvp(argv[0], argv);
	give_up("start %.100s", argv[0]);
}

/* --- in the agent --------------------------------------------------------------------------- */

static int open_master(const struct pty_request *r, struct err *e)
{
	const struct winsize size = {.ws_row = r->rows, .ws_col = r->cols};
	int unlocked = 0;
	scoped_fd int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return err_set(e, errno, "open a terminal");
	if (ioctl(fd, TIOCSPTLCK, &unlocked) < 0 || ioctl(fd, TIOCSWINSZ, &size) < 0)
		return err_set(e, errno, "set up a terminal");
	return take_fd(&fd);
}

int pty_start(const struct pty_request *r, const struct frame *f, pid_t cwd_owner,
	      struct pty_started *out, struct err *e)
{
	pid_t agent = getpid();
	int ends[2];
	scoped_fd int master = open_master(r, e);

	if (master < 0)
		return master;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_set(e, errno, "start a terminal: pipe");
	scoped_fd int report = ends[0];
	scoped_fd int theirs = ends[1];
	pid_t pid = fork();
	if (pid < 0)
		return err_set(e, errno, "start a terminal: fork");
	if (pid == 0) {
		child_begin(agent, "0");
		cgroup_enter_user();
		/* The master may be REPORT_FD itself, so it is copied to a higher number. The copy
		 * is closed on exec. */
		int copy = fcntl(master, F_DUPFD_CLOEXEC, 64);
		if (copy < 0 || (theirs != REPORT_FD && dup3(theirs, REPORT_FD, O_CLOEXEC) < 0))
			_exit(126);
		child(r, f, cwd_owner, copy);
	}
	*out = (struct pty_started){
		.pid = pid, .master = take_fd(&master), .report = take_fd(&report)};
	return 0;
}

int pty_start_result(int report, struct err *e)
{
	ssize_t n = read(report, e, sizeof(*e));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : err_set(e, errno, "start");
	if (n == 0)
		return 1;
	if (n != sizeof(*e) || e->code >= 0 || !memchr(e->text, 0, sizeof(e->text)))
		return err_say(e, EIO, "the process ended before it ran the program");
	return e->code;
}
