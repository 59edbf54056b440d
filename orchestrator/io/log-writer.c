// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/io/log-writer.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define FLUSH_MS 1000

static struct {
	pthread_mutex_t lock;
	sem_t wake;
	bool idle; /* the thread waits, or is about to; under the lock */
	char ring[LOG_RING_BYTES];
	atomic_size_t queued, written; /* bytes since the start; changed under the lock */
	uint64_t missing;	       /* lines dropped but not reported yet; under the lock */
	atomic_uint_fast64_t dropped;
	int fd;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t count_lines(const char *lines, size_t len)
{
	uint64_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += lines[i] == '\n';
	return n;
}

/* The functions from here to peek() are called with the lock held. */
static size_t room_left(void)
{
	return LOG_RING_BYTES - (writer.queued - writer.written);
}

static void append(const char *lines, size_t len)
{
	size_t at = writer.queued % LOG_RING_BYTES, to_end = LOG_RING_BYTES - at;

	memcpy(writer.ring + at, lines, len < to_end ? len : to_end);
	if (len > to_end)
		memcpy(writer.ring, lines + to_end, len - to_end);
	writer.queued += len;
}

static void drop(const char *lines, size_t len)
{
	uint64_t n = count_lines(lines, len);

	writer.missing += n;
	writer.dropped += n;
}

/* Appends a line that says how many lines are missing at this point of the log. */
static void report_missing(void)
{
	char line[LOG_LINE_MAX];

	append(line, log_render(line, sizeof(line), LOG_ERROR,
				"%llu lines of the log are missing here: its reader was too slow",
				(unsigned long long)writer.missing));
	writer.missing = 0;
}

/* Once a line was dropped, drops all until half of the ring is free, so that one gap results
 * instead of many. */
static void put(const char *lines, size_t len)
{
	pthread_mutex_lock(&writer.lock);
	if (writer.missing && room_left() >= LOG_RING_BYTES / 2)
		report_missing();
	if (writer.missing || len > room_left())
		drop(lines, len);
	else
		append(lines, len);
	bool idle = writer.idle;
	writer.idle = false;
	pthread_mutex_unlock(&writer.lock);
	/* After the unlock, since the woken thread takes the lock at once. */
	if (idle)
		sem_post(&writer.wake);
}

/* Copies as many whole lines as fit out of the ring, in which they stay until they are written. */
static size_t peek(char *out, size_t size)
{
	size_t len = writer.queued - writer.written, at = writer.written % LOG_RING_BYTES;
	size_t to_end = LOG_RING_BYTES - at;

	if (len > size)
		len = size;
	memcpy(out, writer.ring + at, len < to_end ? len : to_end);
	if (len > to_end)
		memcpy(out + to_end, writer.ring, len - to_end);
	while (len && out[len - 1] != '\n')
		len--;
	return len;
}

/* Handles EAGAIN, because the reader may have set O_NONBLOCK on a file description that
 * both share. */
static void write_all(const char *text, size_t len)
{
	while (len) {
		struct pollfd poll_fd = {.fd = writer.fd, .events = POLLOUT};
		ssize_t n = write(writer.fd, text, len);

		if (n < 0 && errno == EAGAIN)
			poll(&poll_fd, 1, -1);
		else if (n < 0 && errno != EINTR)
			return; /* nothing is left to report the error to */
		if (n < 0)
			continue;
		text += n;
		len -= (size_t)n;
	}
}

/* A write(2) of up to PIPE_BUF bytes to a pipe is atomic: lines of several processes do not mix. */
_Static_assert(LOG_LINE_MAX <= PIPE_BUF, "a batch has room for a line");

static void *writer_main(void *arg)
{
	char batch[PIPE_BUF];

	pthread_mutex_lock(&writer.lock);
	for (;;) {
		size_t len = peek(batch, sizeof(batch));

		if (!len && writer.missing) {
			report_missing();
			continue;
		}
		writer.idle = !len;
		pthread_mutex_unlock(&writer.lock);
		if (len)
			write_all(batch, len);
		else
			sem_wait(&writer.wake); /* an early return only costs another look at the
						   ring */
		pthread_mutex_lock(&writer.lock);
		writer.written += len;
	}
	return NULL;
}

void log_writer_flush(void)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	for (int i = 0; i < FLUSH_MS && writer.written != writer.queued; i++)
		nanosleep(&ms, NULL);
}

/* Waits while the writer thread writes; then the signal's default action follows (SA_RESETHAND). */
static void on_crash(int signal)
{
	log_writer_flush();
}

/* Installs on_crash for fatal signals, except those that a sanitizer handles already. */
static void watch_crashes(void)
{
	static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
	const struct sigaction action = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};
	struct sigaction before;

	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
			sigaction(signals[i], &action, NULL);
}

int log_writer_start(int fd, struct err *e)
{
	sigset_t all, before;
	pthread_t thread;

	writer.fd = fd;
	sem_init(&writer.wake, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int ret = pthread_create(&thread, NULL, writer_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret)
		return err_set(e, ret, "start the thread that writes the log");
	pthread_detach(thread);
	log_set_output(put);
	watch_crashes();
	return 0;
}

uint64_t log_writer_dropped(void)
{
	return writer.dropped;
}
