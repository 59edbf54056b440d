// SPDX-License-Identifier: Apache-2.0
#include "guest/output.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Edge-triggered: the kernel then lists the two pipes in the order in which they got their data.
 * (A level-triggered one that was just read stands in the list again, before the other.)
 */
#define PIPE_EVENTS (EPOLLIN | EPOLLET)

struct pipe_end {
	struct watch watch; /* of the read end */
	int write_fd;
	uint8_t frame_type;
	int left;	    /* bytes up to the mark */
	uint64_t *progress; /* in the page that the driver sees; never read here */
	uint64_t moved;
};

static struct pipe_end pipes[OUTPUT_COUNT];
static struct conn *sink;
static int progress_fd = -1;

static void watch_pipes(bool on)
{
	for (size_t i = 0; i < OUTPUT_COUNT; i++)
		watch_set(&pipes[i].watch, on ? PIPE_EVENTS : 0);
}

/* Moves at most `max` bytes. Back-pressure: the next ones stay in the pipe until these are sent. */
static ssize_t move(struct pipe_end *p, size_t max)
{
	static uint8_t dropped[AGENT_PAYLOAD_MAX];
	uint8_t *to = sink ? conn_payload(sink) : dropped;
	ssize_t n = read(p->watch.fd, to, max);

	if (n <= 0)
		return n;
	if (sink)
		conn_send_payload(sink, p->frame_type, (size_t)n);
	p->moved += (uint64_t)n;
	__atomic_store_n(p->progress, p->moved, __ATOMIC_RELEASE);
	return n;
}

static bool is_blocked(void)
{
	return sink && sink->out_len;
}

static void on_readable(struct watch *w, uint32_t events)
{
	ssize_t n = 0;

	if (!is_blocked())
		n = move(container_of(w, struct pipe_end, watch), AGENT_PAYLOAD_MAX);
	if (is_blocked())
		watch_pipes(false);
	else if (n == AGENT_PAYLOAD_MAX)
		watch_again(w); /* there may be more; less means that the pipe was emptied */
}

static int open_pipe(struct pipe_end *p, uint8_t frame_type)
{
	int fds[2];

	/* Only the read end may be non-blocking: the write end is the programs' own. */
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	p->write_fd = fds[1];
	p->frame_type = frame_type;
	p->watch.on_event = on_readable;
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	return watch_add(&p->watch, fds[0], PIPE_EVENTS);
}

static int open_progress(void)
{
	const size_t size = OUTPUT_COUNT * sizeof(uint64_t);

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
	return 0;
}

int output_open(struct err *e)
{
	int bad = open_progress();

	if (!bad)
		bad = open_pipe(&pipes[OUTPUT_STDOUT], AGENT_STDOUT);
	if (!bad)
		bad = open_pipe(&pipes[OUTPUT_STDERR], AGENT_STDERR);
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

void output_to(struct conn *c)
{
	sink = c;
	output_resume();
}

void output_resume(void)
{
	watch_pipes(!is_blocked());
}

void output_mark_end(void)
{
	for (size_t i = 0; i < OUTPUT_COUNT; i++)
		if (ioctl(pipes[i].watch.fd, FIONREAD, &pipes[i].left) < 0)
			pipes[i].left = 0;
	/* What comes later than the mark is not this call's. */
	watch_pipes(false);
}

static bool drain_pipe(struct pipe_end *p)
{
	while (p->left > 0) {
		if (is_blocked())
			return false;
		size_t max =
			(size_t)p->left < AGENT_PAYLOAD_MAX ? (size_t)p->left : AGENT_PAYLOAD_MAX;
		ssize_t n = move(p, max);
		if (n <= 0)
			break;
		p->left -= (int)n;
	}
	p->left = 0;
	return true;
}

bool output_drain(void)
{
	return drain_pipe(&pipes[OUTPUT_STDOUT]) && drain_pipe(&pipes[OUTPUT_STDERR]) &&
	       !is_blocked();
}
