// SPDX-License-Identifier: Apache-2.0
#include "guest/terminal/pty.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/num.h"
#include "guest/terminal/pty-internal.h"
#include "guest/terminal/pty-start.h"
#include "guest/session.h"

#define READ_BYTES  65536u
#define DRAIN_BYTES AGENT_PTY_RING

static struct list ptys = {&ptys, &ptys}; /* oldest first */
static unsigned pty_count;
static pid_t (*cwd_owner)(void);

void pty_init(pid_t (*the_cwd_owner)(void))
{
	cwd_owner = the_cwd_owner;
}

static struct pty *find(const char *id)
{
	list_each (pos, &ptys) {
		struct pty *p = container_of(pos, struct pty, node);
		if (p->state != PTY_STARTS && strcmp(p->id, id) == 0)
			return p;
	}
	return NULL;
}

/* --- lifetime -----------------------------------------------------------------------------------
 */

/* Reads once into the ring. Returns 0 or less when there is nothing to read, now or ever. */
static ssize_t read_some(struct pty *p)
{
	size_t at = p->total % AGENT_PTY_RING;
	ssize_t n = read(p->master.fd, p->ring + at, min_u64(READ_BYTES, AGENT_PTY_RING - at));

	if (n > 0)
		p->total += (uint64_t)n;
	return n;
}

static void close_watch(struct watch *w)
{
	if (w->fd < 0)
		return;
	watch_del(w);
	close_fd(&w->fd);
}

static void on_master(struct watch *w, uint32_t events)
{
	struct pty *p = container_of(w, struct pty, master);
	ssize_t n = 0;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		n = read_some(p);
	/* Linux returns EIO while no process has the terminal open. The pidfd reports the end of
	 * the program. */
	if (n < 0 && errno == EIO)
		p->closed = true;
	else if (n > 0)
		p->closed = false;
	pty_watch_master(p);
	pty_feed_all(p);
	if (events & EPOLLOUT)
		pty_type_all(p);
}

/* Reads what the program wrote before it ended, but does not wait for other processes that have the
 * terminal open and continue to write. */
static void drain(struct pty *p)
{
	uint64_t end = p->total + DRAIN_BYTES;

	while (p->total < end && read_some(p) > 0)
		;
}

static void end(struct pty *p)
{
	drain(p);
	close_watch(&p->master);
	p->state = PTY_ENDED;
	pty_end_typing(p);
	pty_feed_all(p);
}

static void on_life(struct watch *w, uint32_t events)
{
	struct pty *p = container_of(w, struct pty, life);
	int status;

	if (waitpid(p->pid, &status, WNOHANG) != p->pid)
		return;
	close_watch(&p->life);
	p->reaped = true;
	p->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	/* In PTY_STARTS, the report of the start is not read yet. */
	if (p->state == PTY_RUNS)
		end(p);
}

static void pty_free(struct pty *p)
{
	list_del(&p->node);
	pty_count--;
	/* Only ended terminals have listeners here: those too slow to have received everything. */
	while (!list_empty(&p->listeners))
		pty_send_exit(p, container_of(p->listeners.next, struct conn, turn));
	close_watch(&p->report);
	close_watch(&p->life);
	close_watch(&p->master);
	munmap(p->ring, AGENT_PTY_RING);
	free(p);
}

/* --- the start ------------------------------------------------------------------------------ */

static void start_failed(struct pty *p, const struct err *e)
{
	if (!p->reaped) {
		kill(p->pid, SIGKILL);
		waitpid(p->pid, NULL, 0);
	}
	if (p->starter)
		pty_refuse(p->starter, e);
	pty_free(p);
}

static void on_report(struct watch *w, uint32_t events)
{
	struct pty *p = container_of(w, struct pty, report);
	struct err e;
	int result = pty_start_result(w->fd, &e);

	if (!result)
		return;
	close_watch(w);
	if (result < 0) {
		start_failed(p, &e);
		return;
	}
	p->state = PTY_RUNS;
	if (p->starter)
		pty_done(p->starter);
	p->starter = NULL;
	if (p->reaped)
		end(p);
}

/* Makes room for one more terminal by removing the oldest ended one. */
static int make_room(struct err *e)
{
	if (pty_count < AGENT_PTY_MAX)
		return 0;
	list_each (pos, &ptys) {
		struct pty *p = container_of(pos, struct pty, node);
		if (p->state == PTY_ENDED) {
			pty_free(p);
			return 0;
		}
	}
	return err_say(e, EAGAIN, "%d terminals are running, the maximum", AGENT_PTY_MAX);
}

static struct pty *pty_new(const struct pty_request *r, struct err *e)
{
	struct pty *p = calloc(1, sizeof(*p));
	/* Pages of the ring are allocated when output fills them. */
	void *ring = mmap(NULL, AGENT_PTY_RING, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!p || ring == MAP_FAILED) {
		free(p);
		if (ring != MAP_FAILED)
			munmap(ring, AGENT_PTY_RING);
		err_say(e, ENOMEM, "no memory for a terminal");
		return NULL;
	}
	p->started_ms = realtime_ms();
	memcpy(p->id, r->id, sizeof(p->id));
	memcpy(p->label, r->label, sizeof(p->label));
	p->ring = ring;
	p->master = (struct watch){.fd = -1, .on_event = on_master};
	p->life = (struct watch){.fd = -1, .on_event = on_life};
	p->report = (struct watch){.fd = -1, .on_event = on_report};
	list_init(&p->listeners);
	list_init(&p->typists);
	list_add_tail(&ptys, &p->node);
	pty_count++;
	return p;
}

static int watch_new(struct pty *p, const struct pty_started *s, struct err *e)
{
	scoped_fd int master = s->master;
	scoped_fd int report = s->report;
	scoped_fd int life = (int)syscall(SYS_pidfd_open, s->pid, 0);

	p->pid = s->pid;
	if (life < 0 || watch_add(&p->life, life, EPOLLIN | EPOLLET) < 0)
		return err_set(e, errno, "watch a terminal's program");
	take_fd(&life);
	if (watch_add(&p->master, master, EPOLLIN) < 0)
		return err_set(e, errno, "watch a terminal");
	take_fd(&master);
	if (watch_add(&p->report, report, EPOLLIN) < 0)
		return err_set(e, errno, "watch a terminal's start");
	take_fd(&report);
	return 0;
}

static int try_start(struct conn *c, const struct pty_request *r, const struct frame *f,
		     struct err *e)
{
	struct pty_started s;

	list_each (pos, &ptys)
		if (strcmp(container_of(pos, struct pty, node)->id, r->id) == 0)
			return err_say(e, EEXIST, "a terminal with this id already exists");
	int bad = make_room(e);
	if (bad)
		return bad;
	struct pty *p = pty_new(r, e);
	if (!p)
		return e->code;
	bad = pty_start(r, f, cwd_owner(), &s, e);
	if (bad) {
		pty_free(p);
		return bad;
	}
	bad = watch_new(p, &s, e);
	if (bad) {
		start_failed(p, e);
		return bad;
	}
	p->starter = c;
	c->pty = p;
	conn_become(c, CONN_PTY_WAITS);
	return 0;
}

/* --- requests ------------------------------------------------------------------------------- */

static void list_all(struct conn *c)
{
	list_each (pos, &ptys) {
		const struct pty *p = container_of(pos, struct pty, node);
		uint8_t payload[AGENT_ID_LEN + AGENT_LABEL_MAX + 32];
		struct wire w = wire_on(payload, sizeof(payload));

		if (p->state == PTY_STARTS)
			continue;
		wire_put_str(&w, p->id, strlen(p->id));
		wire_put_str(&w, p->label, strlen(p->label));
		wire_put_u64(&w, (uint64_t)p->started_ms);
		wire_put_u8(&w, p->state == PTY_ENDED);
		wire_put_u32(&w, (uint32_t)p->exit_code);
		conn_send(c, AGENT_PTY, payload, w.pos);
	}
	conn_send(c, AGENT_DONE, NULL, 0);
	conn_become(c, CONN_IDLE);
}

static int listen_to(struct pty *p, struct conn *c, uint64_t offset, struct err *e)
{
	if (offset > p->total)
		return err_say(e, ERANGE, "the terminal wrote %llu bytes, not %llu",
			       (unsigned long long)p->total, (unsigned long long)offset);
	c->pty = p;
	c->pty_offset = offset;
	list_add_tail(&p->listeners, &c->turn);
	conn_become(c, CONN_PTY_LISTENS);
	if (offset == p->total && p->state != PTY_ENDED)
		pty_send_empty(p, c);
	pty_feed(p, c);
	return 0;
}

static int type_into(struct pty *p, struct conn *c, size_t from, struct err *e)
{
	if (p->state == PTY_ENDED)
		return err_say(e, EPIPE, "the terminal's program has ended or closed it");
	c->pty = p;
	c->typed = from;
	list_add_tail(&p->typists, &c->turn);
	conn_become(c, CONN_PTY_WAITS);
	pty_type_all(p);
	return 0;
}

static int resize(const struct pty *p, const struct pty_request *r, struct err *e)
{
	const struct winsize size = {.ws_row = r->rows, .ws_col = r->cols};

	if (p->state != PTY_ENDED && ioctl(p->master.fd, TIOCSWINSZ, &size) < 0)
		return err_set(e, errno, "resize the terminal");
	return 0;
}

static int handle_session(struct pty *p, struct conn *c, const struct pty_request *r, struct err *e)
{
	int bad = 0;

	if (r->type == AGENT_PTY_ATTACH)
		return listen_to(p, c, r->offset, e);
	if (r->type == AGENT_PTY_INPUT)
		return type_into(p, c, r->rest, e);
	if (r->type == AGENT_PTY_RESIZE)
		bad = resize(p, r, e);
	else if (p->state != PTY_ENDED)
		session_kill(p->pid);
	if (!bad)
		pty_done(c);
	return bad;
}

bool pty_takes(uint8_t type)
{
	return pty_request_is(type) || type == AGENT_PTY_LIST;
}

int pty_handle(struct conn *c, const struct frame *f, struct err *e)
{
	struct pty_request r;

	if (f->type == AGENT_PTY_LIST && f->len)
		return err_say(e, EPROTO, "a list of terminals has no payload");
	if (f->type == AGENT_PTY_LIST) {
		list_all(c);
		return 0;
	}
	int bad = pty_request_parse(f, &r, e);
	if (bad)
		return bad;
	struct pty *p = r.type == AGENT_PTY_START ? NULL : find(r.id);
	if (r.type == AGENT_PTY_START)
		bad = try_start(c, &r, f, e);
	else if (p)
		bad = handle_session(p, c, &r, e);
	else
		bad = err_say(e, ENOENT, "there is no such terminal");
	if (bad)
		pty_refuse(c, e);
	return 0;
}

void pty_on_sent(struct conn *c)
{
	if (c->state == CONN_PTY_LISTENS)
		pty_feed(c->pty, c);
}

void pty_on_gone(struct conn *c)
{
	struct pty *p = c->pty;

	if (!p)
		return;
	c->pty = NULL;
	if (p->starter == c)
		p->starter = NULL;
	/* The next connection in the queue may type. */
	else if (p->state == PTY_RUNS)
		pty_type_all(p);
}
