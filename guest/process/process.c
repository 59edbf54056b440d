// SPDX-License-Identifier: Apache-2.0
#include "guest/process/process.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/elements.h"
#include "base/fd.h"
#include "base/num.h"
#include "guest/process/process-internal.h"
#include "guest/process/process-start.h"
#include "guest/session.h"

#define LISTED_MAX 1024 /* maximum size of a frame in a list */

static struct list processes = {&processes, &processes}; /* oldest first */
static unsigned process_count;
static uint64_t last_number;
static pid_t (*cwd_owner)(void);
static unsigned grace_ms;
static const char *lost; /* how processes were lost with an agent before this one; or NULL */

void process_init(pid_t (*the_cwd_owner)(void), unsigned the_grace_ms)
{
	cwd_owner = the_cwd_owner;
	grace_ms = the_grace_ms;
}

void process_note_loss(const char *how)
{
	lost = how;
}

static struct process *find(const char *id)
{
	list_each_of (p, struct process, node, &processes)
		if (p->state != PROCESS_STARTS && strcmp(p->id, id) == 0)
			return p;
	return NULL;
}

/* --- lifetime ------------------------------------------------------------------------------- */

/* Returns whether a listener still has to receive all output. */
static bool is_followed(const struct process *p)
{
	list_each_of (c, const struct conn, turn, &p->listeners)
		if (c->holds)
			return true;
	return false;
}

/* Ends the operations of listeners that are too slow to have received everything. */
static void drop_listeners(struct process *p)
{
	list_drain_of (c, struct conn, turn, &p->listeners)
		process_send_exit(p, c);
}

/* Drops the output of the oldest ended processes, if there is too much of it. */
static void drop_old_output(void)
{
	uint64_t kept = 0;

	for (struct list *pos = processes.prev; pos != &processes; pos = pos->prev) {
		struct process *p = container_of(pos, struct process, node);
		if (p->state != PROCESS_ENDED)
			continue;
		kept += output_log_kept(&p->log);
		if (kept <= AGENT_PROC_KEPT || is_followed(p))
			continue;
		output_log_drop(&p->log);
		drop_listeners(p);
	}
}

/* Frees the pid of the program, which has exited. */
static void reap(struct process *p)
{
	waitpid(p->pid, NULL, 0);
	p->reaped = true;
}

static void end(struct process *p)
{
	process_drain(p);
	/* Pipes stay open as long as other processes have them open, too: without a reader, these
	 * would be killed by SIGPIPE when they print something. */
	if (p->tty)
		watch_close(&p->outs[0].watch);
	p->state = PROCESS_ENDED;
	p->ended_ms = realtime_ms();
	/* After a time limit, the rest of the session still has to get SIGKILL. Until then the
	 * program remains a zombie, so that no other session gets its id. */
	if (!p->timed_out || !p->due_ms) {
		p->due_ms = 0;
		reap(p);
	}
	process_end_input(p);
	process_feed_all(p);
	process_watch(p);
	drop_old_output();
}

static void on_life(struct watch *w, uint32_t events)
{
	struct process *p = container_of(w, struct process, life);
	siginfo_t info = {0};

	if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
		return;
	watch_close(&p->life);
	p->exited = true;
	p->signal = info.si_code == CLD_EXITED ? 0 : (uint8_t)info.si_status;
	p->exit_code = p->signal ? 128 + p->signal : info.si_status;
	/* In PROCESS_STARTS, the report of the start is not read yet. */
	if (p->state == PROCESS_RUNS)
		end(p);
}

/* Sends SIGKILL to the session, whose id is valid until the program is reaped. */
static void kill_session(struct process *p)
{
	if (p->reaped)
		return;
	session_kill(p->pid);
	p->due_ms = 0;
	if (p->state == PROCESS_ENDED)
		reap(p);
}

static void process_free(struct process *p)
{
	if (p->state == PROCESS_ENDED)
		kill_session(p);
	list_del(&p->node);
	process_count--;
	drop_listeners(p);
	watch_close(&p->report);
	watch_close(&p->life);
	watch_close(&p->input);
	for (int i = 0; i < LOG_STREAMS; i++)
		watch_close(&p->outs[i].watch);
	output_log_drop(&p->log);
	free(p);
}

/* --- the start ------------------------------------------------------------------------------ */

static void start_failed(struct process *p, const struct err *e)
{
	kill(p->pid, SIGKILL);
	reap(p);
	if (p->starter)
		process_refuse(p->starter, e);
	process_free(p);
}

/* Answers the connection that started the process. */
static void answer_start(struct process *p, struct conn *c)
{
	struct frame f = frame_again(&c->in);
	struct process_request r;
	struct err e;

	if (process_request_parse(&f, &r, &e) == 0 && r.flags & AGENT_PROC_FOLLOW) {
		c->output_offset = 0;
		c->holds = true;
		process_listen(p, c);
	} else {
		process_send(p, c);
		process_done(c);
	}
}

static void on_report(struct watch *w, uint32_t events)
{
	struct process *p = container_of(w, struct process, report);
	struct conn *c = p->starter;
	struct err e;
	int result = process_start_result(w->fd, &e);

	if (!result)
		return;
	watch_close(w);
	if (result < 0) {
		start_failed(p, &e);
		return;
	}
	p->state = PROCESS_RUNS;
	if (p->timeout_ms)
		p->due_ms = loop_now_ms() + p->timeout_ms;
	p->starter = NULL;
	if (c)
		answer_start(p, c);
	if (p->exited)
		end(p);
}

/* Makes room for one more process by removing the oldest ended one. */
static int make_room(struct err *e)
{
	if (process_count < AGENT_PROC_MAX)
		return 0;
	list_each_of (p, struct process, node, &processes) {
		if (p->state == PROCESS_ENDED) {
			process_free(p);
			return 0;
		}
	}
	return err_say(e, EAGAIN, "%d processes and terminals are running, the maximum",
		       AGENT_PROC_MAX);
}

static struct process *process_new(const struct process_request *r, struct err *e)
{
	struct process *p = calloc(1, sizeof(*p));

	if (!p) {
		err_say(e, ENOMEM, "no memory for a process");
		return NULL;
	}
	p->number = ++last_number;
	p->started_ms = realtime_ms();
	p->timeout_ms = r->timeout_ms;
	p->tty = r->flags & AGENT_PROC_TTY;
	p->had_stdin = r->flags & AGENT_PROC_STDIN;
	memcpy(p->id, r->id, sizeof(p->id));
	memcpy(p->label, r->label, sizeof(p->label));
	memcpy(p->user, r->user, sizeof(p->user));
	for (unsigned i = 0; i < LOG_STREAMS; i++)
		p->outs[i] = (struct process_out){
			.watch = {.fd = -1, .on_event = process_on_out}, .process = p, .stream = i};
	p->input = (struct watch){.fd = -1, .on_event = process_on_input};
	p->life = (struct watch){.fd = -1, .on_event = on_life};
	p->report = (struct watch){.fd = -1, .on_event = on_report};
	list_init(&p->listeners);
	list_init(&p->writers);
	list_add_tail(&processes, &p->node);
	process_count++;
	return p;
}

/* Hands *fd over to the watch; does nothing if there is none. */
static int hand_over(struct watch *w, int *fd, uint32_t events, struct err *e)
{
	if (*fd < 0)
		return 0;
	if (watch_add(w, *fd, events) < 0)
		return err_set(e, errno, "watch a process");
	*fd = -1;
	return 0;
}

static int watch_new(struct process *p, struct process_started *s, struct err *e)
{
	int life = (int)syscall(SYS_pidfd_open, s->pid, 0);
	uint32_t out_events = p->tty ? EPOLLIN : EPOLLIN | EPOLLET;
	int bad = life < 0 ? err_set(e, errno, "watch a process") : 0;

	p->pid = s->pid;
	if (!bad)
		bad = hand_over(&p->life, &life, EPOLLIN | EPOLLET, e);
	if (!bad)
		bad = hand_over(&p->input, &s->fd[0], 0, e);
	for (int i = 0; i < LOG_STREAMS && !bad; i++)
		bad = hand_over(&p->outs[i].watch, &s->fd[i + 1], out_events, e);
	if (!bad)
		bad = hand_over(&p->report, &s->report, EPOLLIN, e);
	close_fd(&life);
	close_fd(&s->report);
	for (int i = 0; i < 3; i++)
		close_fd(&s->fd[i]);
	return bad;
}

static int try_start(struct conn *c, const struct process_request *r, const struct frame *f,
		     struct err *e)
{
	struct process_started s;

	list_each_of (each, const struct process, node, &processes)
		if (strcmp(each->id, r->id) == 0)
			return err_say(e, EEXIST, "a process with this id already exists");
	int bad = make_room(e);
	if (bad)
		return bad;
	struct process *p = process_new(r, e);
	if (!p)
		return e->code;
	bad = process_start(r, f, cwd_owner(), &s, e);
	if (bad) {
		process_free(p);
		return bad;
	}
	bad = watch_new(p, &s, e);
	if (bad) {
		start_failed(p, e);
		return bad;
	}
	p->starter = c;
	c->process = p;
	conn_become(c, CONN_PROCESS_WAITS);
	return 0;
}

/* --- time limits ---------------------------------------------------------------------------- */

int process_timeout_ms(void)
{
	int64_t now = loop_now_ms(), first = INT64_MAX;

	list_each_of (p, const struct process, node, &processes)
		if (p->due_ms && p->due_ms < first)
			first = p->due_ms;
	if (first == INT64_MAX)
		return -1;
	return first <= now ? 0 : (int)min_u64((uint64_t)(first - now), INT32_MAX);
}

/* Takes the next step of a process's time limit. */
static void next_step(struct process *p, int64_t now)
{
	if (p->timed_out) {
		kill_session(p);
		return;
	}
	p->timed_out = true;
	session_signal(p->pid, SIGTERM);
	p->due_ms = now + grace_ms;
}

void process_on_time(void)
{
	int64_t now = loop_now_ms();

	list_each_of (p, struct process, node, &processes)
		if (p->due_ms && p->due_ms <= now)
			next_step(p, now);
}

/* --- lists ---------------------------------------------------------------------------------- */

/* Returns the first process after those that the connection has received. */
static struct process *next_listed(const struct conn *c)
{
	list_each_of (p, struct process, node, &processes)
		if (p->number > c->listed && p->state != PROCESS_STARTS)
			return p;
	return NULL;
}

/* Adds as many processes as the connection's buffer takes. Returns false when none is left. */
static bool list_some(struct conn *c)
{
	struct process *p;

	while ((p = next_listed(c)) && CONN_OUT_MAX - c->out_len >= LISTED_MAX) {
		c->listed = p->number;
		process_send(p, c);
	}
	return p != NULL;
}

static void continue_list(struct conn *c)
{
	bool more = true;

	while (more && c->state == CONN_LISTS && !c->out_len) {
		conn_cork(c);
		more = list_some(c);
		if (!more)
			conn_send(c, AGENT_DONE, NULL, 0);
		conn_uncork(c);
	}
	if (!more)
		conn_become(c, CONN_IDLE);
}

/* --- requests ------------------------------------------------------------------------------- */

static int listen_to(struct process *p, struct conn *c, const struct process_request *r,
		     struct err *e)
{
	if (r->offset > p->log.total)
		return err_say(e, ERANGE, "the %s wrote %llu bytes, not %llu",
			       p->tty ? "terminal" : "process", (unsigned long long)p->log.total,
			       (unsigned long long)r->offset);
	c->output_offset = r->offset;
	c->holds = r->holds;
	process_listen(p, c);
	return 0;
}

static int write_to(struct process *p, struct conn *c, const struct process_request *r,
		    struct err *e)
{
	if (!process_has_input(p) && r->type != AGENT_PROC_CLOSE)
		return process_no_input(p, e);
	if (!process_has_input(p)) {
		process_done(c);
		return 0;
	}
	c->process = p;
	c->written = r->type == AGENT_PROC_CLOSE ? 0 : r->rest;
	list_add_tail(&p->writers, &c->turn);
	conn_become(c, CONN_PROCESS_WAITS);
	process_write_all(p);
	return 0;
}

static int resize(const struct process *p, const struct process_request *r, struct err *e)
{
	const struct winsize size = {.ws_row = r->rows, .ws_col = r->cols};

	if (!p->tty)
		return err_say(e, EINVAL, "the process has no terminal");
	if (p->state != PROCESS_ENDED && ioctl(p->outs[0].watch.fd, TIOCSWINSZ, &size) < 0)
		return err_set(e, errno, "resize the terminal");
	return 0;
}

static int send_signal(const struct process *p, int number, struct err *e)
{
	if (p->exited)
		return err_say(e, ESRCH, "the program has ended");
	if (kill(-p->pid, number) < 0)
		return err_set(e, errno, "send signal %d", number);
	return 0;
}

static int handle_one(struct process *p, struct conn *c, const struct process_request *r,
		      struct err *e)
{
	int bad = 0;

	switch (r->type) {
	case AGENT_PROC_ATTACH:
		return listen_to(p, c, r, e);
	case AGENT_PROC_INPUT:
	case AGENT_PROC_CLOSE:
		return write_to(p, c, r, e);
	case AGENT_PROC_RESIZE:
		bad = resize(p, r, e);
		break;
	case AGENT_PROC_SIGNAL:
		bad = send_signal(p, r->signal, e);
		break;
	case AGENT_PROC_STAT:
		process_send(p, c);
		break;
	default: /* AGENT_PROC_KILL */
		kill_session(p);
		break;
	}
	if (!bad)
		process_done(c);
	return bad;
}

static int refuse_unknown(const char *id, struct err *e)
{
	const char *what = strncmp(id, "pty_", 4) == 0 ? "terminal" : "process";

	if (!lost)
		return err_say(e, ENOENT, "there is no such %s", what);
	return err_say(e, ENOENT, "there is no such %s: %s, and all processes with it", what, lost);
}

bool process_takes(uint8_t type)
{
	return process_request_is(type) || type == AGENT_PROC_LIST;
}

int process_handle(struct conn *c, const struct frame *f, struct err *e)
{
	struct process_request r;

	if (f->type == AGENT_PROC_LIST && f->len)
		return err_say(e, EPROTO, "a list of processes has no payload");
	if (f->type == AGENT_PROC_LIST) {
		c->listed = 0;
		conn_become(c, CONN_LISTS);
		continue_list(c);
		return 0;
	}
	int bad = process_request_parse(f, &r, e);
	if (bad)
		return bad;
	struct process *p = find(r.id);
	if (r.type == AGENT_PROC_START)
		bad = try_start(c, &r, f, e);
	else if (p)
		bad = handle_one(p, c, &r, e);
	else
		bad = refuse_unknown(r.id, e);
	if (bad)
		process_refuse(c, e);
	return 0;
}

void process_on_sent(struct conn *c)
{
	struct process *p = c->process;

	if (c->state == CONN_LISTS)
		continue_list(c);
	if (c->state != CONN_LISTENS)
		return;
	process_feed(p, c);
	process_watch(p);
}

void process_on_gone(struct conn *c)
{
	struct process *p = c->process;

	if (!p)
		return;
	c->process = NULL;
	/* Nobody will learn the id of a process that does not run yet. */
	if (p->starter == c) {
		p->starter = NULL;
		if (!p->exited)
			kill(p->pid, SIGKILL);
	}
	/* The next connection in the queue may write, and the program is not held any more. */
	else if (p->state == PROCESS_RUNS)
		process_write_all(p);
}
