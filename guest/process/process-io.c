// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/elements.h"
#include "base/fd.h"
#include "base/num.h"
#include "base/wire.h"
#include "guest/process/process-internal.h"

#define READ_BYTES 65536u
/* More than a pipe holds. The log has room for this much besides the unsent output of a held
 * program. */
#define DRAIN_BYTES (AGENT_PROC_RING / 2)
#define CHUNK_MAX   (AGENT_PAYLOAD_MAX - 9) /* offset and stream take 9 bytes of the payload */

#define PIPE_EVENTS (EPOLLIN | EPOLLET)

/* Ends what the connection has to do with a process. */
static void leave(struct conn *c)
{
	c->process = NULL;
	list_del(&c->turn);
}

void process_done(struct conn *c)
{
	leave(c);
	conn_done(c);
}

void process_refuse(struct conn *c, const struct err *e)
{
	leave(c);
	conn_refuse(c, e);
}

/* --- listeners ------------------------------------------------------------------------------ */

void process_send(const struct process *p, struct conn *c)
{
	uint8_t payload[sizeof(p->id) + sizeof(p->label) + sizeof(p->user) + 64];
	struct wire w = wire_on(payload, sizeof(payload));
	unsigned flags = (p->tty ? AGENT_PROC_TTY : 0u) |
			 (p->timed_out ? AGENT_PROC_TIMED_OUT : 0u) |
			 (p->input.fd >= 0 ? AGENT_PROC_STDIN : 0u);

	wire_put_str(&w, p->id, strlen(p->id));
	wire_put_str(&w, p->label, strlen(p->label));
	wire_put_str(&w, p->user, strlen(p->user));
	wire_put_u32(&w, (uint32_t)p->pid);
	wire_put_u64(&w, (uint64_t)p->started_ms);
	wire_put_u64(&w, (uint64_t)p->ended_ms);
	wire_put_u64(&w, p->log.total);
	wire_put_u8(&w, (uint8_t)flags);
	wire_put_u32(&w, (uint32_t)p->exit_code);
	wire_put_u8(&w, p->signal);
	conn_send(c, AGENT_PROC, payload, w.pos);
}

void process_send_exit(struct process *p, struct conn *c)
{
	uint8_t payload[32];
	struct wire w = wire_on(payload, sizeof(payload));

	wire_put_u32(&w, (uint32_t)p->exit_code);
	wire_put_u8(&w, p->signal);
	wire_put_u8(&w, p->timed_out);
	wire_put_u64(&w, (uint64_t)p->ended_ms);
	wire_put_u64(&w, p->log.total);
	leave(c);
	conn_send(c, AGENT_PROC_EXIT, payload, w.pos);
	conn_become(c, CONN_IDLE);
}

static void send_part(struct conn *c, const struct output_part *part)
{
	struct wire w = wire_on(conn_payload(c), AGENT_PAYLOAD_MAX);

	wire_put_u64(&w, part->offset);
	wire_put_u8(&w, (uint8_t)(part->stream + 1));
	for (int i = 0; i < 2; i++)
		wire_put_bytes(&w, part->bytes[i], part->len[i]);
	c->output_offset = part->offset + part->len[0] + part->len[1];
	conn_send_payload(c, AGENT_PROC_BYTES, w.pos);
}

void process_listen(struct process *p, struct conn *c)
{
	c->process = p;
	list_add_tail(&p->listeners, &c->turn);
	conn_become(c, CONN_LISTENS);
	process_send(p, c);
	process_feed(p, c);
	process_watch(p);
}

void process_feed(struct process *p, struct conn *c)
{
	struct output_part part;
	bool more = true;

	while (more && c->state == CONN_LISTENS && !c->out_len) {
		more = output_log_find(&p->log, c->output_offset, CHUNK_MAX, &part);
		if (more)
			send_part(c, &part);
	}
	/* If the rest of the output was dropped, nothing more comes before the exit. */
	if (c->state == CONN_LISTENS && p->state == PROCESS_ENDED &&
	    (!more || c->output_offset == p->log.total))
		process_send_exit(p, c);
}

/* A connection that is closed meanwhile leaves the list. */
void process_feed_all(struct process *p)
{
	list_each_of_safe (c, struct conn, turn, &p->listeners)
		process_feed(p, c);
}

/* --- output --------------------------------------------------------------------------------- */

/* Returns true when a listener that holds the program lags too far behind: by bytes, or by runs of
 * one stream, of which the log remembers a limited number. */
static bool is_held(const struct process *p)
{
	list_each_of (c, const struct conn, turn, &p->listeners)
		if (c->holds && (p->log.total - c->output_offset >= AGENT_AHEAD_MAX ||
				 output_log_runs_after(&p->log, c->output_offset) >= LOG_RUNS / 2))
			return true;
	return false;
}

/* A closed terminal reports a hang-up until it is opened again, and a held one until it is read:
 * watch them edge-triggered. */
static void watch_tty(struct process *p)
{
	uint32_t events = p->held ? EPOLLET : EPOLLIN;

	if (!list_empty(&p->writers))
		events |= EPOLLOUT;
	if (p->tty_closed)
		events |= EPOLLET;
	watch_set(&p->outs[0].watch, events);
}

void process_watch(struct process *p)
{
	bool held = p->state != PROCESS_ENDED && is_held(p), changed = held != p->held;

	p->held = held;
	if (p->tty && p->outs[0].watch.fd >= 0)
		watch_tty(p);
	if (p->input.fd >= 0)
		watch_set(&p->input, list_empty(&p->writers) ? 0 : EPOLLOUT);
	for (int i = 0; i < LOG_STREAMS && changed && !p->tty; i++)
		if (p->outs[i].watch.fd >= 0)
			watch_again(&p->outs[i].watch, held ? EPOLLET : PIPE_EVENTS);
}

/* Reads once into the log. Returns 0 or less when there is nothing to read, now or ever. `more`:
 * there may be more to read now. */
static ssize_t read_some(struct process_out *out, bool *more)
{
	static uint8_t dropped[READ_BYTES];
	struct process *p = out->process;
	size_t room = sizeof(dropped);
	/* Output after the program's end, or when there is no memory, is discarded. */
	uint8_t *to =
		p->state == PROCESS_ENDED ? NULL : output_log_end(&p->log, out->stream, &room);
	size_t max = min_u64(room, READ_BYTES);
	ssize_t n = read(out->watch.fd, to ? to : dropped, max);

	if (n > 0 && to)
		output_log_grow(&p->log, out->stream, (size_t)n);
	*more = n == (ssize_t)max;
	return n;
}

/* Linux returns EIO while no process has the terminal open. The pidfd reports the end of the
 * program. */
static void read_tty(struct process *p)
{
	bool more;
	ssize_t n = read_some(&p->outs[0], &more);

	if (n < 0 && errno == EIO)
		p->tty_closed = true;
	else if (n > 0)
		p->tty_closed = false;
}

/* Reads a pipe once. Edge-triggered: the kernel then lists both pipes in the order in which they
 * got their data. If more may be there, the next event is queued behind that of the other pipe. */
static void read_pipe(struct process_out *out, bool hung_up)
{
	bool more;
	ssize_t n = read_some(out, &more);

	if (n > 0 && (more || hung_up))
		watch_again(&out->watch, PIPE_EVENTS);
	else if (n == 0)
		watch_close(&out->watch);
}

void process_on_out(struct watch *w, uint32_t events)
{
	struct process_out *out = container_of(w, struct process_out, watch);
	struct process *p = out->process;
	bool readable = events & (EPOLLIN | EPOLLHUP | EPOLLERR);

	if (readable && !p->held && p->tty)
		read_tty(p);
	else if (readable && !p->held)
		read_pipe(out, events & EPOLLHUP);
	process_feed_all(p);
	if (events & EPOLLOUT)
		process_write_all(p);
	process_watch(p);
}

void process_drain(struct process *p)
{
	bool more;

	for (int i = 0; i < LOG_STREAMS; i++) {
		uint64_t end = p->log.total + DRAIN_BYTES;

		while (p->outs[i].watch.fd >= 0 && p->log.total < end &&
		       read_some(&p->outs[i], &more) > 0)
			;
	}
}

/* --- input ---------------------------------------------------------------------------------- */

bool process_has_input(const struct process *p)
{
	return p->state != PROCESS_ENDED && (p->tty || p->input.fd >= 0);
}

int process_no_input(const struct process *p, struct err *e)
{
	if (p->tty)
		return err_say(e, EPIPE,
			       "the terminal takes no input: its program has ended or has closed "
			       "the terminal");
	if (!p->had_stdin)
		return err_say(e, EPIPE,
			       "the program was started without stdin; start it with "
			       "stdin=True to write to it");
	return err_say(e, EPIPE, "the program has ended, or its stdin is closed");
}

static void refuse_input(const struct process *p, struct conn *c)
{
	struct err e;

	process_no_input(p, &e);
	process_refuse(c, &e);
}

/* Writes the rest of a connection's input. Returns 0, or -EAGAIN when the program takes no more
 * now. */
static int write_some(struct process *p, struct conn *c)
{
	static const uint8_t end_of_file[] = {4};
	int fd = p->tty ? p->outs[0].watch.fd : p->input.fd;
	struct frame f = frame_again(&c->in);
	bool closes = f.type == AGENT_PROC_CLOSE;
	const uint8_t *bytes = closes ? end_of_file : f.payload;
	size_t len = !closes ? f.len : p->tty ? sizeof(end_of_file) : 0;

	while (c->written < len) {
		ssize_t n = write(fd, bytes + c->written, len - c->written);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EAGAIN;
		c->written += (size_t)n;
	}
	return 0;
}

void process_write_all(struct process *p)
{
	while (!list_empty(&p->writers) && process_has_input(p)) {
		struct conn *c = container_of(p->writers.next, struct conn, turn);
		bool closes = frame_again(&c->in).type == AGENT_PROC_CLOSE;
		int bad = write_some(p, c);

		if (bad == -EAGAIN)
			break;
		if (bad)
			refuse_input(p, c);
		else
			process_done(c);
		if (closes && !p->tty)
			process_end_input(p);
	}
	process_watch(p);
}

void process_end_input(struct process *p)
{
	watch_close(&p->input);
	list_drain_of (c, struct conn, turn, &p->writers)
		refuse_input(p, c);
}

void process_on_input(struct watch *w, uint32_t events)
{
	struct process *p = container_of(w, struct process, input);

	/* Nobody has the other end open any more. */
	if (events & EPOLLERR)
		process_end_input(p);
	else
		process_write_all(p);
}
