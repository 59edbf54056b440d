// SPDX-License-Identifier: Apache-2.0
#include "guest/process/process-start.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/cgroup.h"
#include "guest/child.h"

#define REPORT_FD  3
#define GROUPS_MAX 256
#define PIPE_SIZE  (256 << 10)

/* What the child's stdin, stdout and stderr become; -1: none. */
struct ends {
	int master; /* of a terminal, for all three */
	int fd[3];
};

/* --- in the child --------------------------------------------------------------------------- */

__attribute__((noreturn)) static void report(const struct err *e)
{
	/* One write, which a pipe takes whole. */
	(void)!write(REPORT_FD, e, sizeof(*e));
	_exit(126);
}

__attribute__((noreturn)) static void give_up(const char *format, const char *what)
{
	struct err e = {0};

	err_set(&e, errno, format, what);
	report(&e);
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

static void take_pipes(const struct ends *ends)
{
	int in = ends->fd[0] >= 0 ? ends->fd[0] : open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (in < 0 || setsid() < 0 || dup2(in, 0) < 0 || dup2(ends->fd[1], 1) < 0 ||
	    dup2(ends->fd[2], 2) < 0)
		give_up("%s", "take the pipes");
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

static void set_variable(const char *name, const char *value)
{
	if (setenv(name, value, 1) < 0)
		give_up("set the variable \"%.60s\"", name);
}

static void set_variables(const struct process_request *r, const struct frame *f)
{
	struct wire w = wire_from(f->payload, f->len);

	if (r->flags & AGENT_PROC_TTY)
		set_variable("TERM", "xterm-256color");
	w.pos = r->variables;
	for (uint32_t i = 0; i < r->env; i++) {
		char *name = get_string(&w), *value = get_string(&w);

		set_variable(name, value);
	}
}

/* Finds a user in /etc/passwd by name or else by uid. A static program cannot use getpwnam, which
 * loads modules. */
static const struct passwd *find_user(const char *user)
{
	FILE *file = fopen("/etc/passwd", "re");
	char *end;
	unsigned long uid = strtoul(user, &end, 10);
	bool number = *user >= '0' && *user <= '9' && !*end;

	for (int by_uid = 0; file && by_uid <= number; by_uid++) {
		rewind(file);
		for (const struct passwd *p; (p = fgetpwent(file));)
			if (by_uid ? p->pw_uid == uid : strcmp(p->pw_name, user) == 0)
				return p;
	}
	struct err e = {0};
	err_say(&e, ENOENT, "there is no user \"%s\" in the sandbox", user);
	report(&e);
}

static bool is_member(const struct group *g, const char *user)
{
	for (char **name = g->gr_mem; *name; name++)
		if (strcmp(*name, user) == 0)
			return true;
	return false;
}

static int find_groups(const struct passwd *user, gid_t groups[static GROUPS_MAX])
{
	FILE *file = fopen("/etc/group", "re");
	int n = 0;

	groups[n++] = user->pw_gid;
	for (const struct group *g; file && n < GROUPS_MAX && (g = fgetgrent(file));)
		if (g->gr_gid != user->pw_gid && is_member(g, user->pw_name))
			groups[n++] = g->gr_gid;
	return n;
}

/* Makes the user the owner of the program's streams: a program may open them again, for example as
 * /dev/stdout. */
static void give_streams(const struct process_request *r, const struct passwd *user)
{
	bool own_stdin = r->flags & (AGENT_PROC_TTY | AGENT_PROC_STDIN);

	for (int fd = own_stdin ? 0 : 1; fd < 3; fd++)
		(void)!fchown(fd, user->pw_uid, (gid_t)-1);
}

static void become_user(const struct process_request *r)
{
	const struct passwd *user = find_user(r->user);
	gid_t groups[GROUPS_MAX];
	pid_t parent = getppid();
	int n = find_groups(user, groups);

	give_streams(r, user);
	/* Tests outside of a guest run as a user who may become nobody else. */
	if (geteuid() == 0 && setgroups((size_t)n, groups) < 0)
		give_up("set the groups of user \"%.64s\"", r->user);
	if (setgid(user->pw_gid) < 0 || setuid(user->pw_uid) < 0)
		give_up("become user \"%.64s\"", r->user);
	/* The kernel has cleared what child_begin set. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(126);
	set_variable("HOME", user->pw_dir);
	set_variable("USER", user->pw_name);
	set_variable("LOGNAME", user->pw_name);
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

static char **get_args(const struct process_request *r, const struct frame *f)
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

/* A program that cannot be run fails as it does in bash, unless it must run. */
__attribute__((noreturn)) static void not_run(const struct process_request *r, const char *program)
{
	int error = errno;

	if (r->flags & AGENT_PROC_MUST_RUN)
		give_up("start %.100s", program);
	dprintf(2, "%.4096s: %s\n", program, strerror(error));
	_exit(error == ENOENT ? 127 : 126);
}

__attribute__((noreturn)) static void child(const struct process_request *r, const struct frame *f,
					    pid_t cwd_owner, const struct ends *ends)
{
	if (ends->master >= 0)
		take_terminal(ends->master);
	else
		take_pipes(ends);
	if (close_range(REPORT_FD + 1, ~0u, 0) < 0)
		give_up("%s", "close descriptors");
	signal(SIGPIPE, SIG_DFL);
	if (r->user[0])
		become_user(r);
	enter_folder(r->cwd, r->user[0] ? 0 : cwd_owner);
	set_variables(r, f);
	char **argv = get_args(r, f);
	execvp(argv[0], argv);
	not_run(r, argv[0]);
}

/* Copies a descriptor to a high number: it may be one of those that the child is about to replace.
 * The copy is closed on exec. */
static void move_up(int *fd)
{
	if (*fd < 0)
		return;
	*fd = fcntl(*fd, F_DUPFD_CLOEXEC, 64);
	if (*fd < 0)
		_exit(126);
}

static void begin(pid_t agent, int report_fd, struct ends *ends)
{
	child_begin(agent, "0");
	move_up(&ends->master);
	for (int i = 0; i < 3; i++)
		move_up(&ends->fd[i]);
	if (report_fd != REPORT_FD && dup3(report_fd, REPORT_FD, O_CLOEXEC) < 0)
		_exit(126);
}

/* --- in the agent --------------------------------------------------------------------------- */

static int open_master(const struct process_request *r, struct err *e)
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

/* Opens the pipe for fd number `i`: `ours` is non-blocking. */
static int open_pipe(int i, int *ours, int *theirs, struct err *e)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(e, errno, "start a process: pipe");
	*ours = fds[i == 0];
	*theirs = fds[i != 0];
	fcntl(*ours, F_SETFL, O_NONBLOCK);
	fcntl(*ours, F_SETPIPE_SZ, PIPE_SIZE);
	return 0;
}

static int open_streams(const struct process_request *r, int ours[static 3], struct ends *theirs,
			struct err *e)
{
	int bad = 0;

	if (r->flags & AGENT_PROC_TTY) {
		ours[1] = open_master(r, e);
		theirs->master = ours[1];
		return ours[1] < 0 ? ours[1] : 0;
	}
	for (int i = r->flags & AGENT_PROC_STDIN ? 0 : 1; i < 3 && !bad; i++)
		bad = open_pipe(i, &ours[i], &theirs->fd[i], e);
	return bad;
}

static void close_three(int (*fds)[3])
{
	for (int i = 0; i < 3; i++)
		close_fd(&(*fds)[i]);
}

static void close_ends(struct ends *ends)
{
	close_three(&ends->fd);
}

int process_start(const struct process_request *r, const struct frame *f, pid_t cwd_owner,
		  struct process_started *out, struct err *e)
{
	__attribute__((cleanup(close_three))) int ours[3] = {-1, -1, -1};
	__attribute__((cleanup(close_ends))) struct ends theirs = {-1, {-1, -1, -1}};
	pid_t agent = getpid();
	int pair[2], bad = open_streams(r, ours, &theirs, e);

	if (bad)
		return bad;
	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_set(e, errno, "start a process: pipe");
	scoped_fd int report = pair[0];
	scoped_fd int their_report = pair[1];
	pid_t pid = cgroup_fork_user();
	if (pid < 0)
		return err_set(e, errno, "start a process: fork");
	if (pid == 0) {
		begin(agent, their_report, &theirs);
		child(r, f, cwd_owner, &theirs);
	}
	*out = (struct process_started){.pid = pid, .report = take_fd(&report)};
	for (int i = 0; i < 3; i++)
		out->fd[i] = take_fd(&ours[i]);
	return 0;
}

int process_start_result(int report, struct err *e)
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
