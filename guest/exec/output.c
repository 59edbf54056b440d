// SPDX-License-Identifier: Apache-2.0
#include "guest/exec/output.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"

/*
 * Edge-triggered: the kernel then lists the two pipes in the order in which they got their data.
 * (With level triggering, a pipe that was just read is put in the list again, before the other.)
 */
#define PIPE_EVENTS (EPOLLIN | EPOLLET)
/* A program can write this much while nobody reads: see output_on_time. */
#define PIPE_SIZE (512 << 10)
/*
 * After so many reads in a row from the same pipe, later text is left in it for a while. Before
 * that, text is read at once: the order of a program's output to both pipes is known only from the
 * order of the reads.
 */
#define READS_IN_ROW_MAX 64
#define HOLD_MS_MAX	 10	      /* the longest that hold_ms returns */
#define FLOOD		 (256u << 10) /* bytes in that time after which writers may be waiting for room */

/* The answers for the kinds of bytes. push also sends AGENT_FAULT in place of AGENT_RESULT. Two
 * ends never follow each other, since no bundle is empty. */
static const enum agent_answer answer_types[] = {
	[OUTPUT_STDOUT] = AGENT_STDOUT,
	[OUTPUT_STDERR] = AGENT_STDERR,
	[OUTPUT_BUNDLE] = AGENT_BUNDLE,
	[OUTPUT_BUNDLE_END] = AGENT_RESULT,
};

/* Sends unsent output to the connection. For back-pressure, each frame waits until the connection
 * has sent the previous one. */
static void push(struct output *o)
{
	o->due = o->left_in_pipe;
	while (o->sink && !o->sink->out_len && o->sent < o->ring.total) {
		size_t len;
		enum output_kind kind;
		const uint8_t *run =
			output_ring_run(&o->ring, o->sent, AGENT_PAYLOAD_MAX, &len, &kind);
		enum agent_answer type = answer_types[kind];
		uint8_t *payload = conn_payload(o->sink);

		memcpy(payload, run, len);
		if (kind == OUTPUT_BUNDLE_END && *run == OUTPUT_FAULT) {
			type = AGENT_FAULT;
			*payload = 0;
		}
		o->sent += len;
		conn_send_payload(o->sink, type, len);
	}
}

/* Returns how many bytes may be taken out of the pipes now. */
static size_t allowance(const struct output *o)
{
	if (!o->of_call || o->no_backpressure)
		return AGENT_PAYLOAD_MAX;
	if (o->sink)
		return o->sink->out_len ? 0 : AGENT_PAYLOAD_MAX;
	uint64_t waiting = o->ring.total - o->sent;
	uint64_t room = waiting < AGENT_AHEAD_MAX ? AGENT_AHEAD_MAX - waiting : 0;
	return room < AGENT_PAYLOAD_MAX ? (size_t)room : AGENT_PAYLOAD_MAX;
}

/* Keeps the end of text that is dropped. */
static void keep_dropped(struct output *o, const uint8_t *text, size_t len)
{
	if (len > sizeof(o->dropped)) {
		text += len - sizeof(o->dropped);
		len = sizeof(o->dropped);
	}
	size_t old = o->dropped_len;
	if (old > sizeof(o->dropped) - len)
		old = sizeof(o->dropped) - len;
	memmove(o->dropped, o->dropped + o->dropped_len - old, old);
	memcpy(o->dropped + old, text, len);
	o->dropped_len = old + len;
}

static ssize_t take_and_drop(struct output_pipe *p, size_t max)
{
	static uint8_t text[AGENT_PAYLOAD_MAX];
	ssize_t n = read(p->watch.fd, text, max < sizeof(text) ? max : sizeof(text));

	if (n > 0 && p->kind == OUTPUT_STDERR)
		keep_dropped(p->output, text, (size_t)n);
	return n;
}

static ssize_t take(struct output_pipe *p, size_t max)
{
	struct output *o = p->output;
	size_t room;

	if (!o->of_call)
		return take_and_drop(p, max);
	uint8_t *to = output_ring_end(&o->ring, &room);
	ssize_t n = read(p->watch.fd, to, max < room ? max : room);
	if (n > 0)
		output_ring_grow(&o->ring, (size_t)n, p->kind);
	/* If the read ended at the edge of the ring, reads the rest of this pipe now: the other
	 * pipe's text is newer. */
	if (n == (ssize_t)room && room < max) {
		ssize_t rest = take(p, max - room);
		n += rest > 0 ? rest : 0;
	}
	return n;
}

/* Moves at most `max` bytes from the pipe to the ring; returns how many. Output between calls is
 * dropped. */
static size_t move(struct output_pipe *p, size_t max)
{
	struct output *o = p->output;
	ssize_t n = take(p, max);

	if (n <= 0)
		return 0;
	p->moved += (uint64_t)n;
	__atomic_store_n(p->progress, p->moved, __ATOMIC_RELEASE);
	o->due = o->due || (o->of_call && o->sink);
	return (size_t)n;
}

static struct output_pipe *other(struct output *o)
{
	return &o->pipes[o->last == &o->pipes[OUTPUT_STDOUT] ? OUTPUT_STDERR : OUTPUT_STDOUT];
}

static void watch_pipe(struct output_pipe *p, bool on)
{
	const uint32_t events = on ? PIPE_EVENTS : 0;

	/* Text that is in the pipe by now causes a new event. */
	if (p->watch.events != events)
		watch_again(&p->watch, events);
}

/* Starts with `last`: if both pipes have text, their events come in the order of these calls. */
static void watch_pipes(struct output *o)
{
	bool may = allowance(o) != 0;

	watch_pipe(o->last, may && !o->left_in_pipe);
	watch_pipe(other(o), may);
}

/* Reads p->left bytes of the pipe, or as many as the allowance permits. Returns true when none are
 * left. */
static bool drain_pipe(struct output_pipe *p)
{
	while (p->left > 0) {
		size_t max = allowance(p->output);
		if (!max)
			return false;
		size_t n = move(p, (size_t)p->left < max ? (size_t)p->left : max);
		push(p->output);
		if (!n)
			break;
		p->left -= (int)n;
	}
	p->left = 0;
	return true;
}

static void mark(struct output_pipe *p)
{
	if (ioctl(p->watch.fd, FIONREAD, &p->left) < 0)
		p->left = 0;
}

static void leave_in_pipe(struct output *o)
{
	o->left_in_pipe = o->due = true;
	__atomic_store_n(o->older, (uint64_t)(o->last - o->pipes) + 1, __ATOMIC_SEQ_CST);
}

static void forget_left(struct output *o)
{
	o->left_in_pipe = false;
	__atomic_store_n(o->older, 0, __ATOMIC_SEQ_CST);
}

/* Takes the text that was left in the pipe. Returns true when all of it was taken. */
static bool take_left(struct output *o)
{
	/* Clears `older` before it sets the mark, which has to count all that the driver wrote
	 * while `older` was set. */
	forget_left(o);
	mark(o->last);
	return drain_pipe(o->last);
}

static void read_last(struct output *o)
{
	size_t max = allowance(o);
	size_t n = max ? move(o->last, max) : 0;

	/* The ring must not drop output that is not sent yet. */
	if (o->ring.total - o->sent >= AGENT_PAYLOAD_MAX)
		push(o);
	/* There may be more; a shorter read means that the pipe is empty. */
	if (n == max && allowance(o))
		watch_again(&o->last->watch, PIPE_EVENTS);
}

static void drop(struct output_pipe *p)
{
	/* There may be more; a shorter read means that the pipe is empty. */
	if (move(p, AGENT_PAYLOAD_MAX) == AGENT_PAYLOAD_MAX)
		watch_again(&p->watch, PIPE_EVENTS);
}

static void on_readable(struct watch *w, uint32_t events)
{
	struct output_pipe *p = container_of(w, struct output_pipe, watch);
	struct output *o = p->output;

	if (!o->of_call) {
		drop(p);
		return;
	}
	if (o->left_in_pipe && !take_left(o)) {
		watch_pipes(o); /* this event comes again, after the rest of `last` */
		return;
	}
	if (p != o->last)
		o->reads_in_row = 0;
	o->last = p;
	if (o->reads_in_row == READS_IN_ROW_MAX) {
		leave_in_pipe(o);
	} else {
		o->reads_in_row++;
		read_last(o);
	}
	watch_pipes(o);
}

static int open_pipe(struct output *o, enum output_kind kind)
{
	struct output_pipe *p = &o->pipes[kind];
	int fds[2];

	/* Only the read end may be non-blocking: the user's programs share the write end. */
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	p->output = o;
	p->write_fd = fds[1];
	p->kind = kind;
	p->watch.on_event = on_readable;
	p->watch.fd = fds[0];
	list_init(&p->watch.changed);
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	/* The kernel refuses this to users with many pipes; a small pipe works as well. */
	fcntl(fds[0], F_SETPIPE_SZ, PIPE_SIZE);
	return watch_add(&p->watch, fds[0], PIPE_EVENTS);
}

#define PROGRESS_SIZE ((OUTPUT_PIPES + 2) * sizeof(uint64_t))

static int open_progress(struct output *o)
{
	const size_t size = PROGRESS_SIZE;

	o->progress_fd = memfd_create("output-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* Sealed: if user code truncated it, our next store would raise SIGBUS. */
	if (o->progress_fd < 0 || ftruncate(o->progress_fd, (off_t)size) < 0 ||
	    fcntl(o->progress_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	uint64_t *page = o->page = mmap(NULL, size, PROT_WRITE, MAP_SHARED, o->progress_fd, 0);
	if (page == MAP_FAILED) {
		o->page = NULL;
		return -errno;
	}
	for (size_t i = 0; i < OUTPUT_PIPES; i++)
		o->pipes[i].progress = &page[i];
	o->older = &page[OUTPUT_PIPES];
	o->results = &page[OUTPUT_PIPES + 1];
	return 0;
}

int output_open(struct output *o, struct err *e)
{
	for (size_t i = 0; i < OUTPUT_PIPES; i++)
		o->pipes[i].watch.fd = o->pipes[i].write_fd = -1;
	int bad = open_progress(o);

	o->last = &o->pipes[OUTPUT_STDOUT];
	if (!bad)
		bad = open_pipe(o, OUTPUT_STDOUT);
	if (!bad)
		bad = open_pipe(o, OUTPUT_STDERR);
	return bad ? err_set(e, -bad, "open the output pipes") : 0;
}

void output_close(struct output *o)
{
	for (size_t i = 0; i < OUTPUT_PIPES; i++) {
		watch_close(&o->pipes[i].watch);
		close_fd(&o->pipes[i].write_fd);
	}
	if (o->page)
		munmap(o->page, PROGRESS_SIZE);
	close_fd(&o->progress_fd);
}

struct driver_pipes output_driver_pipes(const struct output *o)
{
	return (struct driver_pipes){.out = o->pipes[OUTPUT_STDOUT].write_fd,
				     .err = o->pipes[OUTPUT_STDERR].write_fd,
				     .progress = o->progress_fd};
}

void output_drop_old(struct output *o)
{
	/* Up to a mark: a process that writes all the time must not delay the call for ever. */
	for (size_t i = 0; i < OUTPUT_PIPES; i++) {
		mark(&o->pipes[i]);
		drain_pipe(&o->pipes[i]);
	}
}

void output_forget_dropped(struct output *o)
{
	o->dropped_len = 0;
}

void output_last_dropped(const struct output *o, char *out, size_t size)
{
	size_t end = o->dropped_len, start, n = 0;

	while (end && isspace((unsigned char)o->dropped[end - 1]))
		end--;
	for (start = end; start && o->dropped[start - 1] != '\n';)
		start--;
	for (; start < end && n + 1 < size; start++)
		if (!iscntrl((unsigned char)o->dropped[start]))
			out[n++] = o->dropped[start];
	out[n] = '\0';
}

void output_begin(struct output *o, uint64_t have)
{
	output_ring_clear(&o->ring);
	o->ring.total = have;
	o->sent = have;
	o->of_call = true;
	o->no_backpressure = false;
	o->reads_in_row = 0;
	output_resume(o);
}

bool output_keeps(const struct output *o, uint64_t from)
{
	return from >= output_ring_first(&o->ring) && from <= o->ring.total;
}

void output_to(struct output *o, struct conn *c, uint64_t from)
{
	o->sink = c;
	o->no_backpressure = false;
	if (c)
		o->sent = from;
	output_resume(o);
}

void output_drop_backpressure(struct output *o)
{
	o->no_backpressure = true;
	output_resume(o);
}

void output_resume(struct output *o)
{
	push(o);
	if (!o->ends && !o->part_waits)
		watch_pipes(o);
}

/* Takes and sends the text that is there now. Returns how many bytes it took. */
static size_t send_due(struct output *o)
{
	uint64_t before = o->ring.total;

	if (o->left_in_pipe)
		take_left(o);
	push(o);
	if (!o->part_waits)
		watch_pipes(o);
	return (size_t)(o->ring.total - before);
}

/*
 * Returns for how many ms output waits, so that more output or the call's end is sent with it: four
 * times as long as the call has run, from 1 to HOLD_MS_MAX; 1 during a flood. In a slow VM the end
 * takes longer, and a timer that is due before the next tick (10 ms, CONFIG_HZ_100) costs two more
 * exits. In a fast VM, text must not seem to be held back.
 */
static int hold_ms(const struct output *o, int64_t ran_ms)
{
	int64_t ms = 4 * ran_ms;

	return ms < 1 || o->flooded ? 1 : ms < HOLD_MS_MAX ? (int)ms : HOLD_MS_MAX;
}

int output_timeout_ms(const struct output *o)
{
	int64_t left = o->send_at - loop_now_ms();

	if (!o->send_at)
		return -1;
	return left > 0 ? (int)left : 0;
}

/* Sends due output once it has waited for hold_ms. Meanwhile, its writer wakes nobody. */
void output_on_time(struct output *o, int64_t ran_ms)
{
	if (!o->due) {
		o->send_at = 0;
	} else if (!o->send_at) {
		o->send_at = loop_now_ms() + hold_ms(o, ran_ms);
	} else if (output_timeout_ms(o) == 0) {
		o->send_at = 0;
		o->flooded = send_due(o) >= FLOOD / (o->flooded ? 8 : 1);
	}
}

static void mark_all(struct output *o)
{
	forget_left(o);
	for (size_t i = 0; i < OUTPUT_PIPES; i++)
		mark(&o->pipes[i]);
}

static void unwatch_pipes(struct output *o)
{
	for (size_t i = 0; i < OUTPUT_PIPES; i++)
		watch_pipe(&o->pipes[i], false);
}

void output_mark_end(struct output *o)
{
	mark_all(o);
	o->due = false;
	/* Bytes after the mark are not this call's. */
	o->ends = true;
}

bool output_drain(struct output *o)
{
	if (drain_pipe(o->last) && drain_pipe(other(o)))
		return true;
	if (o->ends) /* not if the call ended meanwhile because its client was lost */
		unwatch_pipes(o);
	return false;
}

void output_drop_result(struct output *o)
{
	__atomic_store_n(o->results, ++o->n_results, __ATOMIC_RELEASE);
}

bool output_add_part(struct output *o, enum output_kind kind, const void *data, size_t len)
{
	if (!o->part_waits)
		mark_all(o);
	o->part_waits = !drain_pipe(o->last) || !drain_pipe(other(o)) || allowance(o) < len;
	if (o->part_waits) {
		unwatch_pipes(o); /* later text follows the part */
		return false;
	}
	output_ring_add(&o->ring, data, len, kind);
	/* The ring must not drop output that is not sent yet. */
	if (o->ring.total - o->sent >= AGENT_PAYLOAD_MAX)
		push(o);
	o->due = o->due || o->sink;
	watch_pipes(o);
	if (kind == OUTPUT_BUNDLE_END)
		output_drop_result(o);
	return true;
}

void output_add(struct output *o, const void *text, size_t len)
{
	output_ring_add(&o->ring, text, len, OUTPUT_STDERR);
	push(o);
}

bool output_is_sent(const struct output *o)
{
	return !o->sink || (o->sent == o->ring.total && (!o->sink->out_len || o->sink->corked));
}

void output_end(struct output *o)
{
	o->sink = NULL;
	o->of_call = o->ends = o->part_waits = o->due = false;
	forget_left(o);
	output_resume(o);
}
