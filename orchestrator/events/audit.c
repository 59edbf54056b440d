// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/events/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/fd.h"
#include "base/log.h"
#include "orchestrator/events/files.h"

#define RING_SIZE  (1u << 20)
#define RING_MAGIC 0x31474e4952444152u
#define BATCH	   (64u << 10)
#define RETRY_MS   1000
#define SYNC_MS	   1000 /* a power cut loses at most the lines of this time and of the ring */

/* Holds whole lines from `head` to `tail`. Both count bytes from the beginning; modulo RING_SIZE
 * they are offsets in `bytes`. Each is updated after the bytes it covers were copied, so that the
 * ring has whole lines after a kill. */
struct ring {
	uint64_t magic, head, tail;
	uint64_t lost; /* lines dropped since the last one that fit */
	char bytes[RING_SIZE];
};
_Static_assert(sizeof(struct ring) <= AUDIT_RING_BYTES, "the ring has room");

struct audit {
	struct loop *loop;
	struct ring *ring;
	int dir;
	struct audit_files journal;
	uint64_t next; /* number of the next line */
	bool working, stopped, failing;
	bool at_work;	   /* a worker runs; atomic, for wait_for_worker */
	bool unsynced;	   /* the file has bytes that were not synced */
	bool wants_sync;   /* the next job syncs */
	char batch[BATCH]; /* whole lines being written to the file */
	size_t len, done;  /* length of `batch`; bytes of it that are in the file */
	size_t step;	   /* bytes that the current job wrote */
	int error;
	struct err reason;
	struct loop_timer retry, sync;
	struct audit_stats stats;
};

/* --- the ring ------------------------------------------------------------------------------- */

static size_t used(const struct ring *r)
{
	return (size_t)(r->tail - r->head);
}

static void copy_in(struct ring *r, const char *p, size_t len)
{
	size_t at = r->tail % RING_SIZE, first = len < RING_SIZE - at ? len : RING_SIZE - at;

	memcpy(r->bytes + at, p, first);
	memcpy(r->bytes, p + first, len - first);
	__atomic_store_n(&r->tail, r->tail + len, __ATOMIC_RELEASE);
}

static void copy_out(const struct ring *r, uint64_t from, char *out, size_t len)
{
	size_t at = from % RING_SIZE, first = len < RING_SIZE - at ? len : RING_SIZE - at;

	memcpy(out, r->bytes + at, first);
	memcpy(out + first, r->bytes, len - first);
}

static void drop(struct ring *r, size_t len)
{
	__atomic_store_n(&r->head, r->head + len, __ATOMIC_RELEASE);
}

/* Copies as many whole lines as fit; returns their length. */
static size_t peek_lines(const struct ring *r, char *out, size_t room)
{
	size_t len = used(r) < room ? used(r) : room;

	copy_out(r, r->head, out, len);
	const char *end = memrchr(out, '\n', len);
	return end ? (size_t)(end + 1 - out) : 0;
}

/* --- writing it out ------------------------------------------------------------------------- */

static void write_more(struct audit *a);

static void write_batch(struct audit *a)
{
	bool at_line = a->done == 0;

	a->step = 0;
	a->error = 0;
	if (a->done < a->len)
		a->error = audit_files_append(&a->journal, a->batch + a->done, a->len - a->done,
					      at_line, &a->step, &a->reason);
	if (a->error == 0 && a->wants_sync)
		a->error = audit_files_sync(&a->journal, &a->reason);
}

static void on_work(void *arg)
{
	struct audit *a = arg;

	write_batch(a);
	__atomic_store_n(&a->at_work, false, __ATOMIC_RELEASE);
}

/* Accounts for what a job wrote: the batch, or a part of it. */
static void account_for(struct audit *a)
{
	a->done += a->step;
	a->unsynced = a->unsynced || a->step;
	if (a->error == 0 && a->wants_sync)
		a->unsynced = a->wants_sync = false;
	if (a->len && a->done == a->len) {
		drop(a->ring, a->len);
		a->len = a->done = 0;
	}
}

/* Logs the first of consecutive failures, and the first success after them. */
static void report_error(struct audit *a)
{
	if (a->error < 0)
		a->stats.failures++;
	if (a->error < 0 && !a->failing)
		log_error("audit log: %s; lines wait until writing succeeds", a->reason.text);
	else if (a->error == 0 && a->failing)
		log_info("audit log: writing succeeds again");
	a->failing = a->error < 0;
}

static void on_worked(void *arg)
{
	struct audit *a = arg;

	a->working = false;
	account_for(a);
	report_error(a);
	if (!a->stopped && a->failing)
		loop_timer_set(a->loop, &a->retry, RETRY_MS);
	else if (!a->stopped)
		write_more(a);
}

static void write_more(struct audit *a)
{
	if (a->working || a->stopped || loop_timer_is_set(&a->retry))
		return;
	if (!a->len)
		a->len = peek_lines(a->ring, a->batch, sizeof(a->batch));
	if (a->unsynced && !loop_timer_is_set(&a->sync) && !a->wants_sync)
		loop_timer_set(a->loop, &a->sync, SYNC_MS);
	if (!a->len && !a->wants_sync)
		return;
	a->at_work = true; /* before the worker can see it */
	a->working = loop_work(a->loop, LOOP_DISK, on_work, on_worked, a) == 0;
	if (!a->working) {
		a->at_work = false;
		loop_timer_set(a->loop, &a->retry, RETRY_MS);
	}
}

static void on_retry(void *arg)
{
	write_more(arg);
}

static void on_sync(void *arg)
{
	struct audit *a = arg;

	a->wants_sync = true;
	write_more(a);
}

/* --- lines ---------------------------------------------------------------------------------- */

void audit_add(struct audit *a, const struct audit_event *event)
{
	char lines[2 * AUDIT_LINE_MAX];
	size_t len = 0;

	if (!a)
		return;
	struct ring *r = a->ring;
	uint64_t n = a->next;
	const struct audit_event gap = {
		.name = "audit.lost", .at_ms = event->at_ms, .lost = r->lost};
	if (r->lost)
		len = audit_line_new(lines, n++, &gap);
	len += audit_line_new(lines + len, n++, event);
	if (used(r) + len > RING_SIZE) {
		r->lost++;
		a->stats.lost++;
		return;
	}
	a->next = n;
	copy_in(r, lines, len);
	r->lost = 0;
	a->stats.lines++;
	write_more(a);
}

/* --- life ----------------------------------------------------------------------------------- */

static int map_ring(struct audit *a, int ring_fd, struct err *e)
{
	int flags = ring_fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *p = mmap(NULL, AUDIT_RING_BYTES, PROT_READ | PROT_WRITE, flags, ring_fd, 0);

	if (p == MAP_FAILED)
		return err_set(e, errno, "map the audit log's memory");
	a->ring = p;
	if (a->ring->magic != RING_MAGIC || a->ring->head > a->ring->tail ||
	    used(a->ring) > RING_SIZE) {
		a->ring->head = a->ring->tail = a->ring->lost = 0;
		a->ring->magic = RING_MAGIC;
	}
	return 0;
}

/* Returns the length of the line that begins at `from`, with its newline; 0 if there is none. */
static size_t line_at(const struct ring *r, uint64_t from, struct audit_line *line)
{
	char text[AUDIT_LINE_MAX];
	size_t left = (size_t)(r->tail - from), len = left < sizeof(text) ? left : sizeof(text);

	copy_out(r, from, text, len);
	const char *end = memchr(text, '\n', len);
	if (!end || !audit_line_parse(line, text, (size_t)(end - text)))
		return 0;
	return (size_t)(end + 1 - text);
}

/* Takes over the lines that a killed service left in the ring, without those that are in the file
 * already. */
static void recover_ring(struct audit *a)
{
	struct ring *r = a->ring;
	uint64_t last = audit_files_last(a->dir), from;
	struct audit_line line;
	size_t len;

	a->next = last + 1;
	for (from = r->head; (len = line_at(r, from, &line)) > 0; from += len) {
		if (line.n <= last)
			drop(r, len);
		else
			a->next = line.n + 1;
	}
	r->tail = from;
}

static int open_dir(const struct config *config, struct err *e)
{
	char path[2 * CONFIG_PATH_MAX + 2];

	config_audit_dir(config, path, sizeof(path));
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_set(e, errno, "audit_dir: open %s", path) : fd;
}

int audit_new(struct audit **out, struct loop *loop, const struct config *config, int ring_fd,
	      struct err *e)
{
	*out = NULL;
	if (!config->audit_dir[0])
		return 0;
	scoped_fd int dir = open_dir(config, e);
	if (dir < 0)
		return dir;
	struct audit *a = calloc(1, sizeof(*a));
	if (!a)
		return err_set(e, ENOMEM, "set up the audit log");
	int r = map_ring(a, ring_fd, e);
	if (r < 0) {
		free(a);
		return r;
	}
	a->loop = loop;
	a->dir = take_fd(&dir);
	a->journal = (struct audit_files){
		.dir = a->dir,
		.fd = -1,
		.max_bytes = (uint64_t)config->audit_max_mib << 20,
		.files = config->audit_files,
	};
	a->retry = (struct loop_timer){.fn = on_retry, .arg = a};
	a->sync = (struct loop_timer){.fn = on_sync, .arg = a};
	recover_ring(a);
	write_more(a);
	*out = a;
	return 0;
}

void audit_stop(struct audit *a)
{
	if (!a)
		return;
	a->stopped = true;
	loop_timer_clear(a->loop, &a->retry);
	loop_timer_clear(a->loop, &a->sync);
}

/* Waits for the job, whose on_worked the loop may never call. */
static void wait_for_worker(struct audit *a)
{
	while (__atomic_load_n(&a->at_work, __ATOMIC_ACQUIRE))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	if (a->working)
		account_for(a);
	a->working = false;
}

/* Writes until the ring is empty or a write fails. */
static void flush(struct audit *a)
{
	wait_for_worker(a);
	do {
		if (!a->len)
			a->len = peek_lines(a->ring, a->batch, sizeof(a->batch));
		a->wants_sync = !used(a->ring) || used(a->ring) == a->len;
		write_batch(a);
		account_for(a);
	} while (a->error == 0 && used(a->ring));
	if (a->error < 0)
		log_error("audit log: %s; %zu bytes were not written", a->reason.text,
			  used(a->ring));
}

void audit_free(struct audit *a)
{
	if (!a)
		return;
	flush(a);
	audit_files_close(&a->journal);
	close_fd(&a->dir);
	munmap(a->ring, AUDIT_RING_BYTES);
	free(a);
}

void audit_stats(const struct audit *a, struct audit_stats *out)
{
	*out = a ? a->stats : (struct audit_stats){0};
	if (!a)
		return;
	out->last = a->next - 1;
	out->waiting_bytes = used(a->ring);
	out->written_bytes = __atomic_load_n(&a->journal.written, __ATOMIC_RELAXED);
}
