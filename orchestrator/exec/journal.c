// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/exec/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "base/version.h"
#include "base/wire.h"
#include "orchestrator/config/config.h"
#include "orchestrator/exec/bundle.h"
#include "proto/agent.h"

#define MAGIC	  0x41494454454d4152ull /* "RAMETDIA" */
#define PAGE	  4096u
#define FIRST_LOG (64u << 10)
#define CODE_MAX  64
#define TRACE_MAX 1024
#define HELD_MAX  (LINE_MAX_BYTES + AGENT_PAYLOAD_MAX)
/* Upper bound of the content: events with their records, and for the default interpreter the held
 * lines of both streams and a part of a result; and the history. */
#define SAID_MAX                                                                                   \
	(REPLAY_BYTES_MAX + REPLAY_EVENTS_MAX * (CODE_MAX + 64u) + 2u * HELD_MAX +                 \
	 AGENT_BUNDLE_MAX + CONTEXTS_HELD_MAX + HISTORY_MAX * 256u + PAGE)
#define AREA_SIZE     (152u << 20)
#define AREA_AT(area) (PAGE + (size_t)(area)*AREA_SIZE)
#define FILE_SIZE     AREA_AT(2)
#define PATH_MAX_LEN  (CONFIG_PATH_MAX + 32)
#define SECOND_AREA   (1ull << 63)
/* Bits in RECORD_EVENT and RECORD_CALL. */
#define EVENT_PARTIAL 1u
#define EVENT_MAIN    2u
#define CALL_CHUNKS   1u
#define CALL_RESULTS  2u

_Static_assert(AREA_SIZE % PAGE == 0, "areas are punched out by pages");
_Static_assert(2 * SAID_MAX <= AREA_SIZE, "an area holds the content twice");

enum record {
	RECORD_SEQ = 1,
	RECORD_EVENT,
	RECORD_CALL,
	RECORD_HAVE,
	RECORD_HELD,
	RECORD_OVER,
	RECORD_CONTEXT = 16, /* the records that follow are of this context's calls */
	/* From version 2 on. */
	RECORD_HISTORY,
	RECORD_TEXT, /* of the call in the record before: when it began, first line of its code */
};

/* The first page. Each word is stored atomically: a kill leaves its old or its new value. */
struct head {
	uint64_t magic;
	uint32_t version, pid;
	/* Valid bytes of the log, plus SECOND_AREA if it is in the second area; 0: no log. */
	uint64_t committed;
	uint64_t expires_ms, idle_since_ms;
	uint64_t guest_busy;
};

struct journal {
	uint8_t *map; /* the whole file; the descriptor is closed to save one per VM */
	struct head *head;
	unsigned area;
	size_t len;   /* length of the log, including records not committed yet */
	size_t room;  /* bytes of the area that have pages */
	size_t limit; /* length at which the log is rewritten; whole pages */
	size_t pages; /* bytes that the file occupies, in both areas */
	struct output_account *account;
	bool goes_on;			/* see journal_goes_on */
	bool full;			/* a record did not fit, so the log is incomplete */
	bool warned;			/* a lack of space was logged */
	char context[AGENT_ID_LEN + 1]; /* the context of the last RECORD_CONTEXT */
	char path[PATH_MAX_LEN];
};

/* --- the file ------------------------------------------------------------------------------- */

static bool map_file(struct journal *j, int fd)
{
	void *map = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return false;
	j->map = map;
	j->head = map;
	return true;
}

static struct journal *make(const char *run_dir, uint32_t slot)
{
	struct journal *j = must_alloc(sizeof(*j));

	snprintf(j->path, sizeof(j->path), "%s/journals/%u", run_dir, slot);
	j->limit = FIRST_LOG;
	return j;
}

static void count_pages(struct journal *j, size_t now)
{
	output_count(j->account, j->pages, now);
	j->pages = now;
}

void journal_count(struct journal *j, struct output_account *account)
{
	if (!j)
		return;
	output_count(j->account, j->pages, 0);
	j->account = account;
	output_count(j->account, 0, j->pages);
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	count_pages(j, 0);
	if (j->map)
		munmap(j->map, FILE_SIZE);
	free(j);
}

void journal_remove(struct journal *j)
{
	if (!j)
		return;
	unlink(j->path);
	journal_close(j);
}

/* Allocates pages before they are written, because a store into a page that a full file system
 * cannot provide would kill the service. */
static bool give_pages(struct journal *j, size_t at, size_t len)
{
	if (madvise(j->map + at, len, MADV_POPULATE_WRITE) == 0) {
		count_pages(j, j->pages + len);
		return true;
	}
	/* EFAULT is reported where a store would raise SIGBUS. */
	const char *reason = strerror(errno == EFAULT ? ENOSPC : errno);
	madvise(j->map + at, len, MADV_REMOVE); /* some of the pages may have been allocated */
	if (!j->warned)
		log_warn("session journal %s: %s; if the service ends now, events are lost",
			 j->path, reason);
	j->warned = true;
	return false;
}

static int create(const char *path)
{
	return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0600);
}

/* Creates the file with its first page; returns false, with errno set, on failure. */
static bool make_file(struct journal *j, const char *run_dir)
{
	scoped_fd int fd = create(j->path);

	if (fd < 0 && errno == ENOENT) {
		char dir[PATH_MAX_LEN];

		snprintf(dir, sizeof(dir), "%s/journals", run_dir);
		mkdir(dir, 0700);
		fd = create(j->path);
	} else if (fd < 0 && errno == EEXIST) { /* left by an earlier sandbox */
		unlink(j->path);
		fd = create(j->path);
	}
	return fd >= 0 && ftruncate(fd, FILE_SIZE) == 0 && map_file(j, fd) &&
	       give_pages(j, 0, PAGE);
}

struct journal *journal_new(const char *run_dir, uint32_t slot, uint32_t pid)
{
	struct journal *j = make(run_dir, slot);

	if (!make_file(j, run_dir)) {
		if (!j->warned)
			log_warn("create the session journal %s: %s; "
				 "if the service ends now, events are lost",
				 j->path, strerror(errno));
		journal_remove(j);
		return NULL;
	}
	*j->head = (struct head){.magic = MAGIC, .version = JOURNAL_VERSION, .pid = pid};
	return j;
}

void journals_sweep(const char *run_dir, bool (*used)(void *arg, uint32_t slot), void *arg)
{
	char path[PATH_MAX_LEN], extra;
	struct dirent *entry;
	uint32_t slot;

	snprintf(path, sizeof(path), "%s/journals", run_dir);
	DIR *d = opendir(path);
	if (!d)
		return;
	while ((entry = readdir(d)))
		if (sscanf(entry->d_name, "%u%c", &slot, &extra) == 1 && !used(arg, slot))
			unlinkat(dirfd(d), entry->d_name, 0);
	closedir(d);
}

/* --- writing -------------------------------------------------------------------------------- */

static size_t whole_pages(size_t len)
{
	return (len + PAGE - 1) / PAGE * PAGE;
}

static bool has_room(struct journal *j, size_t len)
{
	size_t need = j->len + len, room = j->room + j->room / 2;

	if (j->full || need > j->limit)
		return false;
	if (need <= j->room)
		return true;
	if (room < need + 2 * PAGE)
		room = need + 2 * PAGE;
	room = min_u64(whole_pages(room), j->limit);
	if (!give_pages(j, AREA_AT(j->area) + j->room, room - j->room))
		return false;
	j->room = room;
	return true;
}

/* Begins a record with `len` bytes of content; returns false when it does not fit. */
static bool begin(struct journal *j, enum record type, size_t len, struct wire *w)
{
	if (!j)
		return false;
	if (!has_room(j, len + 1)) {
		j->full = true;
		return false;
	}
	*w = wire_on(j->map + AREA_AT(j->area) + j->len, len + 1);
	wire_put_u8(w, (uint8_t)type);
	return true;
}

static void finish(struct journal *j, const struct wire *w)
{
	j->len += w->pos;
}

void journal_seq(struct journal *j, uint64_t seq, uint64_t reserved)
{
	struct wire w;

	if (!begin(j, RECORD_SEQ, 16, &w))
		return;
	wire_put_u64(&w, seq);
	wire_put_u64(&w, reserved);
	finish(j, &w);
}

void journal_in(struct journal *j, const char *context)
{
	const size_t len = context ? strlen(context) : 0;
	struct wire w;

	if (!j || len > AGENT_ID_LEN || strcmp(j->context, len ? context : "") == 0 ||
	    !begin(j, RECORD_CONTEXT, 4 + len, &w))
		return;
	wire_put_str(&w, context, len);
	finish(j, &w);
	memcpy(j->context, len ? context : "", len + 1);
}

void journal_event(struct journal *j, const struct event *ev, const char *traceparent)
{
	size_t code = ev->code ? strlen(ev->code) : 0;
	size_t trace = traceparent ? strlen(traceparent) : 0;
	struct wire w;

	journal_in(j, ev->context);
	if (code > CODE_MAX || trace > TRACE_MAX || ev->len > REPLAY_BYTES_MAX ||
	    !begin(j, RECORD_EVENT, 34 + code + trace + ev->len, &w))
		return;
	wire_put_u8(&w, (uint8_t)ev->type);
	wire_put_u8(&w, (ev->partial ? EVENT_PARTIAL : 0) | (ev->main ? EVENT_MAIN : 0));
	wire_put_u32(&w, (uint32_t)ev->exit_code);
	wire_put_u64(&w, ev->seq);
	wire_put_u64(&w, (uint64_t)ev->ts_ms);
	wire_put_str(&w, ev->code, code);
	wire_put_str(&w, traceparent, trace);
	wire_put_str(&w, ev->data, ev->len);
	finish(j, &w);
}

void journal_history(struct journal *j, const struct history_entry *entry)
{
	const size_t text = strlen(entry->text), checkpoint = strlen(entry->checkpoint);
	struct wire w;

	if (!begin(j, RECORD_HISTORY, 44 + text + checkpoint, &w))
		return;
	wire_put_u32(&w, entry->n);
	wire_put_u32(&w, entry->after);
	wire_put_u64(&w, (uint64_t)entry->at_ms);
	wire_put_u64(&w, (uint64_t)entry->began_ms);
	wire_put_u64(&w, entry->seq);
	wire_put_u8(&w, entry->kind);
	wire_put_u8(&w, entry->result);
	wire_put_u16(&w, entry->children);
	wire_put_str(&w, entry->text, text);
	wire_put_str(&w, entry->checkpoint, checkpoint);
	finish(j, &w);
}

static void put_text(struct journal *j, const struct exec_point *point)
{
	const size_t len = strlen(point->text);
	struct wire w;

	if (!begin(j, RECORD_TEXT, 12 + len, &w))
		return;
	wire_put_u64(&w, (uint64_t)point->began_ms);
	wire_put_str(&w, point->text, len);
	finish(j, &w);
}

void journal_call(struct journal *j, const struct exec_point *point)
{
	size_t trace = point->traceparent ? strlen(point->traceparent) : 0;
	struct wire w;

	if (trace > TRACE_MAX || !begin(j, RECORD_CALL, 25 + trace, &w))
		return;
	wire_put_u64(&w, point->number);
	wire_put_u32(&w, point->timeout_ms);
	wire_put_u64(&w, point->limit_ms);
	wire_put_u8(&w,
		    (point->out.chunks ? CALL_CHUNKS : 0) | (point->results ? CALL_RESULTS : 0));
	wire_put_str(&w, point->traceparent, trace);
	finish(j, &w);
	put_text(j, point);
}

void journal_have(struct journal *j, uint64_t have)
{
	struct wire w;

	if (!begin(j, RECORD_HAVE, 8, &w))
		return;
	wire_put_u64(&w, have);
	finish(j, &w);
}

void journal_held(struct journal *j, enum event_type what, bool fresh, const void *data, size_t len)
{
	struct wire w;

	if (!begin(j, RECORD_HELD, 6 + len, &w))
		return;
	wire_put_u8(&w, (uint8_t)what);
	wire_put_u8(&w, fresh);
	wire_put_str(&w, data, len);
	finish(j, &w);
}

void journal_over(struct journal *j)
{
	struct wire w;

	if (begin(j, RECORD_OVER, 0, &w))
		finish(j, &w);
}

static void store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

bool journal_commit(struct journal *j, bool guest_busy)
{
	if (!j)
		return true;
	store(&j->head->guest_busy, guest_busy);
	if (!j->full)
		store(&j->head->committed, j->len | (j->area ? SECOND_AREA : 0));
	return !j->full;
}

void journal_times(struct journal *j, uint64_t expires_ms, uint64_t idle_since_ms)
{
	if (!j)
		return;
	store(&j->head->expires_ms, expires_ms);
	store(&j->head->idle_since_ms, idle_since_ms);
}

/* --- rewriting the log ---------------------------------------------------------------------- */

static void write_point(struct journal *j, const struct exec_point *p)
{
	if (!p->running)
		return;
	journal_in(j, p->context);
	journal_call(j, p);
	if (p->out.len)
		journal_held(j, EVENT_STDOUT, true, p->out.held, p->out.len);
	if (p->err.len)
		journal_held(j, EVENT_STDERR, true, p->err.held, p->err.len);
	if (p->bundle.len)
		journal_held(j, EVENT_RESULT, true, p->bundle.held, p->bundle.len);
	journal_have(j, p->have);
}

static void write_all(struct journal *j, const struct journal_state *now, size_t replay_most)
{
	size_t left = now->replay.bytes;
	const struct event *ev;
	const char *trace;

	journal_seq(j, now->seq, now->seq_reserved);
	for (uint64_t seq = 0; (ev = replay_after(&now->replay, seq, &trace)); seq = ev->seq) {
		if (left <= replay_most)
			journal_event(j, ev, trace);
		left -= ev->len;
	}
	for (uint32_t i = 0; i < now->history.count; i++)
		journal_history(j, &now->history.entries[i]);
	for (const struct exec_point *p = &now->point; p; p = p->next)
		write_point(j, p);
}

/* Frees the pages of an area; `others` is the size of the other area's. */
static void punch(struct journal *j, unsigned area, size_t others)
{
	madvise(j->map + AREA_AT(area), AREA_SIZE, MADV_REMOVE);
	count_pages(j, PAGE + others);
}

/* Returns the length at which a log of `len` bytes is to be rewritten. With growth by half, each
 * byte is copied about twice in total, and few pages are unused. */
static size_t limit_after(size_t len)
{
	size_t limit = whole_pages(len + len / 2);

	return min_u64(limit > FIRST_LOG ? limit : FIRST_LOG, AREA_SIZE);
}

void journal_write(struct journal *j, const struct journal_state *now, size_t replay_most)
{
	if (!j)
		return;
	unsigned before = j->area;
	bool lost = j->full;
	size_t others = j->pages - PAGE;

	j->area = !before;
	j->len = j->room = 0;
	j->limit = AREA_SIZE;
	j->full = false;
	j->context[0] = '\0';
	write_all(j, now, replay_most);
	if (j->full) {
		/* If events were lost before, the file's state is outdated, and the next instance
		 * must not use it. */
		if (lost)
			store(&j->head->committed, 0);
		punch(j, j->area, others);
		j->area = before;
		return;
	}
	j->limit = limit_after(j->len);
	j->warned = false;
	journal_commit(j, now->guest_busy);
	if (others) /* before the first write, the other area is empty */
		punch(j, before, j->room);
}

/* --- reading -------------------------------------------------------------------------------- */

static bool read_event(struct wire *w, struct journal_state *out)
{
	char code[CODE_MAX + 1], trace[TRACE_MAX + 1];
	struct event ev = {.type = wire_get_u8(w)};
	uint8_t flags = wire_get_u8(w);

	ev.partial = flags & EVENT_PARTIAL;
	ev.main = flags & EVENT_MAIN;
	ev.exit_code = (int)wire_get_u32(w);
	ev.seq = wire_get_u64(w);
	ev.ts_ms = (int64_t)wire_get_u64(w);
	wire_get_text(w, code, sizeof(code));
	wire_get_text(w, trace, sizeof(trace));
	ev.data = wire_get_str(w, &ev.len, REPLAY_BYTES_MAX);
	if (w->bad || ev.type > EVENT_FAULT || ev.seq <= replay_last(&out->replay))
		return false;
	if (ev.type >= EVENT_RESULT && !bundle_is_sound(ev.data, ev.len))
		return false;
	ev.code = ev.type == EVENT_ERROR ? code : NULL;
	ev.context = out->context[0] ? out->context : NULL;
	if (ev.seq > out->seq)
		out->seq = ev.seq;
	replay_add(&out->replay, &ev, trace[0] ? trace : NULL);
	return true;
}

static bool read_history(struct wire *w, struct history_log *h)
{
	struct history_entry e = {.n = wire_get_u32(w)};

	e.after = wire_get_u32(w);
	e.at_ms = (int64_t)wire_get_u64(w);
	e.began_ms = (int64_t)wire_get_u64(w);
	e.seq = wire_get_u64(w);
	e.kind = wire_get_u8(w);
	e.result = wire_get_u8(w);
	e.children = wire_get_u16(w);
	wire_get_text(w, e.text, sizeof(e.text));
	wire_get_text(w, e.checkpoint, sizeof(e.checkpoint));
	return !w->bad && history_read(h, &e);
}

/* Frees what one point owns. It keeps its place in the list. */
static void point_clear(struct exec_point *p)
{
	struct exec_point empty = {.next = p->next};

	memcpy(empty.context, p->context, sizeof(empty.context));
	splitter_fini(&p->out);
	splitter_fini(&p->err);
	splitter_fini(&p->bundle);
	free(p->traceparent);
	*p = empty;
}

void exec_point_fini(struct exec_point *p)
{
	while (p->next) {
		struct exec_point *next = p->next;

		p->next = next->next;
		point_clear(next);
		free(next);
	}
	point_clear(p);
}

int exec_point_copy_call(struct exec_point *to, const struct exec_point *from)
{
	const struct exec_point was = *to;

	*to = *from;
	to->next = was.next;
	memcpy(to->context, was.context, sizeof(to->context));
	to->out = was.out;
	to->err = was.err;
	to->bundle = was.bundle;
	to->traceparent = from->traceparent ? must_copy(from->traceparent) : NULL;
	if (splitter_copy(&to->out, &from->out) < 0 || splitter_copy(&to->err, &from->err) < 0 ||
	    splitter_copy(&to->bundle, &from->bundle) < 0)
		return -ENOMEM;
	return 0;
}

int exec_point_copy(struct exec_point *to, const struct exec_point *from)
{
	for (;; to = to->next, from = from->next) {
		memcpy(to->context, from->context, sizeof(to->context));
		int ret = exec_point_copy_call(to, from);

		if (ret < 0 || !from->next)
			return ret;
		to->next = must_alloc(sizeof(*to));
	}
}

struct exec_point *exec_point_of(struct exec_point *first, const char *context)
{
	struct exec_point *p = first;
	unsigned n = 1;

	for (; strcmp(p->context, context) != 0; p = p->next, n++) {
		if (p->next)
			continue;
		if (n == EXEC_POINTS_MAX)
			return NULL;
		p->next = must_alloc(sizeof(*p));
		snprintf(p->next->context, sizeof(p->next->context), "%s", context);
	}
	return p;
}

/* Ends the call of the current context. */
static void read_over(struct journal_state *out)
{
	struct exec_point *before = &out->point, *p = before;

	while (p && strcmp(p->context, out->context) != 0) {
		before = p;
		p = p->next;
	}
	if (!p)
		return;
	point_clear(p);
	if (p == &out->point)
		return;
	before->next = p->next;
	free(p);
}

static bool read_call(struct wire *w, struct exec_point *p)
{
	char trace[TRACE_MAX + 1];

	point_clear(p);
	p->running = p->at_guest = p->inherited = true;
	p->number = wire_get_u64(w);
	p->timeout_ms = wire_get_u32(w);
	p->limit_ms = wire_get_u64(w);
	uint8_t flags = wire_get_u8(w);
	p->out.chunks = p->err.chunks = flags & CALL_CHUNKS;
	p->results = flags & CALL_RESULTS;
	wire_get_text(w, trace, sizeof(trace));
	p->traceparent = trace[0] ? strdup(trace) : NULL;
	return !w->bad;
}

static bool read_text(struct wire *w, struct exec_point *p)
{
	p->began_ms = (int64_t)wire_get_u64(w);
	wire_get_text(w, p->text, sizeof(p->text));
	return !w->bad && p->running;
}

static bool read_held(struct wire *w, struct exec_point *p)
{
	uint8_t what = wire_get_u8(w);
	struct splitter *s =
		what == EVENT_STDOUT ? &p->out : (what == EVENT_RESULT ? &p->bundle : &p->err);
	size_t len, most = what == EVENT_RESULT ? AGENT_BUNDLE_MAX : HELD_MAX;
	bool fresh = wire_get_u8(w);
	const uint8_t *data = wire_get_str(w, &len, most);

	if (fresh)
		s->len = 0;
	return !w->bad && p->running && s->len + len <= most && splitter_hold(s, data, len) == 0;
}

static bool read_have(struct wire *w, struct exec_point *p)
{
	uint64_t have = wire_get_u64(w);
	bool grows = have >= p->have;

	p->have = have;
	return p->running && grows;
}

static bool read_record(struct wire *w, struct journal_state *out)
{
	const enum record type = wire_get_u8(w);
	struct exec_point *point = NULL;

	if (type == RECORD_CALL || type == RECORD_HAVE || type == RECORD_HELD ||
	    type == RECORD_TEXT) {
		point = exec_point_of(&out->point, out->context);
		if (!point)
			return false;
	}
	switch (type) {
	case RECORD_SEQ:
		out->seq = wire_get_u64(w);
		out->seq_reserved = wire_get_u64(w);
		return out->seq <= out->seq_reserved;
	case RECORD_EVENT:
		return read_event(w, out);
	case RECORD_CALL:
		return read_call(w, point);
	case RECORD_HAVE:
		return read_have(w, point);
	case RECORD_HELD:
		return read_held(w, point);
	case RECORD_OVER:
		read_over(out);
		return true;
	case RECORD_CONTEXT:
		wire_get_text(w, out->context, sizeof(out->context));
		return !w->bad;
	case RECORD_HISTORY:
		return read_history(w, &out->history);
	case RECORD_TEXT:
		return read_text(w, point);
	}
	return false;
}

int journal_read(const uint8_t *log, size_t len, struct journal_state *out, struct err *e)
{
	struct wire w = wire_from(log, len);

	*out = (struct journal_state){0};
	while (wire_left(&w)) {
		size_t at = w.pos;

		if (!read_record(&w, out) || w.bad)
			return err_say(e, EBADMSG, "the record at offset %zu of %zu is invalid", at,
				       len);
	}
	return 0;
}

void journal_state_fini(struct journal_state *s)
{
	exec_point_fini(&s->point);
	replay_fini(&s->replay);
	history_fini(&s->history);
}

/* Returns whether the file is a journal of a version that this program reads. */
static bool is_readable(const struct journal *j, int fd)
{
	struct head head;
	struct err e;

	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) || head.magic != MAGIC)
		return false;
	if (version_check("it", head.version, JOURNAL_VERSION_OLDEST, JOURNAL_VERSION, &e) == 0)
		return true;
	log_warn("session journal %s: %s; its events are lost", j->path, e.text);
	return false;
}

/* Returns false when the journal is of another VM, or empty. */
static bool head_is_good(const struct journal *j, uint32_t pid, size_t *len)
{
	uint64_t committed = __atomic_load_n(&j->head->committed, __ATOMIC_ACQUIRE);

	*len = committed & ~SECOND_AREA;
	return j->head->pid == pid && *len && *len <= AREA_SIZE;
}

/* Determines how many pages the log's area has. If the file occupies more than those, the journal
 * cannot be continued, since the use of the other pages is unknown. */
static void find_room(struct journal *j, int fd, size_t len)
{
	off_t end = lseek(fd, (off_t)AREA_AT(j->area), SEEK_HOLE);
	size_t room = end < 0 ? 0 : (size_t)end - AREA_AT(j->area);

	j->goes_on = len <= room && room <= AREA_SIZE && j->pages == PAGE + room;
	if (!j->goes_on)
		return;
	j->len = len;
	j->room = room;
	j->limit = limit_after(len);
}

bool journal_goes_on(const struct journal *j)
{
	return j && j->goes_on;
}

static bool restore(struct journal *j, uint32_t pid, struct journal_state *out)
{
	struct stat st;
	struct err e;
	size_t len;

	scoped_fd int fd = open(j->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0 || !is_readable(j, fd))
		return false;
	if (st.st_size != (off_t)FILE_SIZE || !map_file(j, fd) || !head_is_good(j, pid, &len))
		return false;
	j->area = j->head->committed & SECOND_AREA ? 1 : 0;
	j->pages = (size_t)st.st_blocks * 512;
	if (journal_read(j->map + AREA_AT(j->area), len, out, &e) < 0) {
		log_warn("session journal %s: %s; its events are lost", j->path, e.text);
		journal_state_fini(out);
		return false;
	}
	j->head->version = JOURNAL_VERSION; /* of the records that will be added */
	memcpy(j->context, out->context, sizeof(j->context));
	find_room(j, fd, len);
	out->guest_busy = j->head->guest_busy;
	out->expires_ms = j->head->expires_ms;
	out->idle_since_ms = j->head->idle_since_ms;
	return true;
}

struct journal *journal_open(const char *run_dir, uint32_t slot, uint32_t pid,
			     struct journal_state *out)
{
	struct journal *j = make(run_dir, slot);

	*out = (struct journal_state){0};
	if (restore(j, pid, out))
		return j;
	journal_close(j);
	*out = (struct journal_state){0};
	return NULL;
}
