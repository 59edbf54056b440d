// SPDX-License-Identifier: Apache-2.0
#include "guest/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest/kept.h"

/*
 * Edge-triggered: the kernel then lists the two pipes in the order in which they got their data.
 * (A level-triggered one that was just read stands in the list again, before the other.)
 */
#define PIPE_EVENTS (EPOLLIN | EPOLLET)
/* A program can write so much while nobody reads: see output_is_due. */
#define PIPE_SIZE (512 << 10)
/*
 * After so many reads in a row from the same pipe, later text is left in it for a while. Before
 * that, text is read at once: the order of the reads is how the order of a program's output to both
 * pipes is known.
 */
#define RUN 64

struct pipe_end {
	struct watch watch; /* of the read end */
	int write_fd;
	bool is_stderr;
	int left;	    /* bytes up to the mark */
	uint64_t *progress; /* in the page that the driver sees; never read here */
	uint64_t moved;
};

static struct pipe_end pipes[OUTPUT_COUNT];
static struct pipe_end *last = &pipes[OUTPUT_STDOUT]; /* was read last */
static unsigned run;				      /* reads of it in a row, up to RUN */
/*
 * Text is left in `last`: the pipe is not watched, so its writer wakes nobody. Text in the other
 * pipe is newer. `older` tells the driver, which then writes to the other pipe without waiting
 * until `last` is read.
 */
static bool left_in_pipe;
static uint64_t
	*older; /* in the page that the driver sees: the number of `last`; 0: no text is left */
static struct conn *sink;
static struct kept kept;
static uint64_t sent;  /* bytes of the call that were given to a connection */
static bool of_call;   /* what comes is a call's output */
static bool is_let_go; /* and is not held up for want of a connection */
static bool ends;      /* up to the marks */
static bool due;       /* text was left in a pipe, or was read and could be sent */
static int progress_fd = -1;

/* Gives the connection what it has not got, a frame at a time: back-pressure. */
static void push(void)
{
	due = left_in_pipe;
	while (sink && !sink->out_len && sent < kept.total) {
		size_t len;
		bool is_stderr;
		const uint8_t *piece = kept_piece(&kept, sent, AGENT_PAYLOAD_MAX, &len, &is_stderr);

		memcpy(conn_payload(sink), piece, len);
		sent += len;
		conn_send_payload(sink, is_stderr ? AGENT_STDERR : AGENT_STDOUT, len);
	}
}

/* How many bytes may be taken out of the pipes now. */
static size_t allowance(void)
{
	if (!of_call || is_let_go)
		return AGENT_PAYLOAD_MAX;
	if (sink)
		return sink->out_len ? 0 : AGENT_PAYLOAD_MAX;
	uint64_t waiting = kept.total - sent;
	uint64_t room = waiting < AGENT_AHEAD_MAX ? AGENT_AHEAD_MAX - waiting : 0;
	return room < AGENT_PAYLOAD_MAX ? (size_t)room : AGENT_PAYLOAD_MAX;
}

static ssize_t take(struct pipe_end *p, size_t max)
{
	static uint8_t dropped[AGENT_PAYLOAD_MAX];
	size_t room = sizeof(dropped);

	if (!of_call)
		return read(p->watch.fd, dropped, max < room ? max : room);
	uint8_t *to = kept_end(&kept, &room);
	ssize_t n = read(p->watch.fd, to, max < room ? max : room);
	if (n > 0)
		kept_grow(&kept, (size_t)n, p->is_stderr);
	/* At the edge of the ring what is left of it comes now: the other pipe's is younger. */
	if (n == (ssize_t)room && room < max) {
		ssize_t rest = take(p, max - room);
		n += rest > 0 ? rest : 0;
	}
	return n;
}

/* Moves at most `max` bytes; fewer when the pipe holds no more. */
static size_t move(struct pipe_end *p, size_t max)
{
	ssize_t n = take(p, max);

	if (n <= 0)
		return 0;
	p->moved += (uint64_t)n;
	__atomic_store_n(p->progress, p->moved, __ATOMIC_RELEASE);
	due = due || (of_call && sink);
	return (size_t)n;
}

static struct pipe_end *other(void)
{
	return &pipes[last == &pipes[OUTPUT_STDOUT] ? OUTPUT_STDERR : OUTPUT_STDOUT];
}

static void watch_pipe(struct pipe_end *p, bool on)
{
	const uint32_t events = on ? PIPE_EVENTS : 0;

	/* Text that is in the pipe by now is an event again. */
	if (p->watch.events != events)
		watch_again(&p->watch, events);
}

/* `last` first: where both pipes have text, their events come in the order of these calls. */
static void watch_pipes(void)
{
	bool may = allowance() != 0;

	watch_pipe(last, may && !left_in_pipe);
	watch_pipe(other(), may);
}

/* Takes `left` bytes, as far as the allowance goes. Returns true when that was all of them. */
static bool drain_pipe(struct pipe_end *p)
{
	while (p->left > 0) {
		size_t max = allowance();
		if (!max)
			return false;
		size_t n = move(p, (size_t)p->left < max ? (size_t)p->left : max);
		push();
		if (!n)
			break;
		p->left -= (int)n;
	}
	p->left = 0;
	return true;
}

static void mark(struct pipe_end *p)
{
	if (ioctl(p->watch.fd, FIONREAD, &p->left) < 0)
		p->left = 0;
}

static void leave_in_pipe(void)
{
	left_in_pipe = due = true;
	__atomic_store_n(older, (uint64_t)(last - pipes) + 1, __ATOMIC_SEQ_CST);
}

static void forget_left(void)
{
	left_in_pipe = false;
	__atomic_store_n(older, 0, __ATOMIC_SEQ_CST);
}

/* Takes the text that was left in the pipe. Returns true when that was all of it. */
static bool take_left(void)
{
	/* First: the mark has to count all that the driver wrote while `older` was set. */
	forget_left();
	mark(last);
	return drain_pipe(last);
}

static void read_last(void)
{
	size_t max = allowance();
	size_t n = max ? move(last, max) : 0;

	/* Output that is not sent yet must stay in the ring. */
	if (kept.total - sent >= AGENT_PAYLOAD_MAX)
		push();
	/* There may be more; less means that the pipe was emptied. */
	if (n == max && allowance())
		watch_again(&last->watch, PIPE_EVENTS);
}

static void drop(struct pipe_end *p)
{
	/* There may be more; less means that the pipe was emptied. */
	if (move(p, AGENT_PAYLOAD_MAX) == AGENT_PAYLOAD_MAX)
		watch_again(&p->watch, PIPE_EVENTS);
}

static void on_readable(struct watch *w, uint32_t events)
{
	struct pipe_end *p = container_of(w, struct pipe_end, watch);

	if (!of_call) {
		drop(p);
		return;
	}
	if (left_in_pipe && !take_left()) {
		watch_pipes(); /* later, and this one again */
		return;
	}
	if (p != last)
		run = 0;
	last = p;
	if (run == RUN) {
		leave_in_pipe();
	} else {
		run++;
		read_last();
	}
	watch_pipes();
}

static int open_pipe(struct pipe_end *p, bool is_stderr)
{
	int fds[2];

	/* Only the read end may be non-blocking: the write end is the programs' own. */
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	p->write_fd = fds[1];
	p->is_stderr = is_stderr;
	p->watch.on_event = on_readable;
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	/* The kernel refuses this to users with many pipes; a small one works as well. */
	fcntl(fds[0], F_SETPIPE_SZ, PIPE_SIZE);
	return watch_add(&p->watch, fds[0], PIPE_EVENTS);
}

static int open_progress(void)
{
	const size_t size = (OUTPUT_COUNT + 1) * sizeof(uint64_t);

	progress_fd = memfd_create("output-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* Sealed: user code that cut it short would have our next store end in SIGBUS. */
	if (progress_fd < 0 || ftruncate(progress_fd, (off_t)size) < 0 ||
	    fcntl(progress_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	uint64_t *page = mmap(NULL, size, PROT_WRITE, MAP_SHARED, progress_fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	for (size_t i = 0; i < OUTPUT_COUNT; i++)
		pipes[i].progress = &page[i];
	older = &page[OUTPUT_COUNT];
	return 0;
}

int output_open(struct err *e)
{
	int bad = open_progress();

	if (!bad)
		bad = open_pipe(&pipes[OUTPUT_STDOUT], false);
	if (!bad)
		bad = open_pipe(&pipes[OUTPUT_STDERR], true);
	return bad ? err_set(e, -bad, "output pipes") : 0;
}

int output_progress_fd(void)
{
	return progress_fd;
}

int output_write_end(enum output_stream stream)
{
	return pipes[stream].write_fd;
}

void output_begin(void)
{
	kept_clear(&kept);
	sent = 0;
	of_call = true;
	is_let_go = false;
	run = 0;
	output_resume();
}

bool output_is_due(void)
{
	return due;
}

size_t output_send_due(void)
{
	uint64_t before = kept.total;

	if (!due)
		return 0;
	if (left_in_pipe)
		take_left();
	push();
	watch_pipes();
	return (size_t)(kept.total - before);
}

bool output_keeps(uint64_t from)
{
	return from >= kept_first(&kept) && from <= kept.total;
}

void output_to(struct conn *c, uint64_t from)
{
	sink = c;
	is_let_go = false;
	if (c)
		sent = from;
	output_resume();
}

void output_let_go(void)
{
	is_let_go = true;
	output_resume();
}

void output_resume(void)
{
	push();
	if (!ends)
		watch_pipes();
}

void output_mark_end(void)
{
	forget_left();
	due = false;
	for (size_t i = 0; i < OUTPUT_COUNT; i++)
		mark(&pipes[i]);
	/* What comes later than the mark is not this call's. */
	ends = true;
}

bool output_drain(void)
{
	if (drain_pipe(last) && drain_pipe(other()))
		return true;
	if (ends) /* the call may be over by now, with its client */
		for (size_t i = 0; i < OUTPUT_COUNT; i++)
			watch_pipe(&pipes[i], false);
	return false;
}

void output_add(const void *text, size_t len)
{
	kept_add(&kept, text, len, true);
	push();
}

bool output_is_sent(void)
{
	return !sink || (sent == kept.total && (!sink->out_len || sink->corked));
}

void output_end(void)
{
	sink = NULL;
	of_call = ends = due = false;
	forget_left();
	output_resume();
}
