// SPDX-License-Identifier: Apache-2.0
/* A journal that is read back has the state of the last commit, wherever the writer was stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "orchestrator/exec/bundle.h"
#include "orchestrator/exec/journal.h"

#define SLOT	3
#define PID	77
#define SKIPPED 77

static char dir[32];

static int make_dir(void **state)
{
	log_init("test", LOG_ERROR + 1);
	snprintf(dir, sizeof(dir), "/tmp/ramet-dia-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static bool none_used(void *arg, uint32_t slot)
{
	return false;
}

static int remove_dir(void **state)
{
	char path[64];

	journals_sweep(dir, none_used, NULL);
	snprintf(path, sizeof(path), "%s/journals", dir);
	rmdir(path);
	return rmdir(dir);
}

static void add_event(struct journal *j, uint64_t seq, const char *text)
{
	const struct event ev = {
		.seq = seq, .ts_ms = 5, .data = (const uint8_t *)text, .len = strlen(text)};

	journal_event(j, &ev, seq % 2 ? "trace" : NULL);
}

/* Closes the journal and opens it again, as the next instance of the service does. */
static struct journal *reopen(struct journal *j, struct journal_state *out)
{
	journal_close(j);
	return journal_open(dir, SLOT, PID, out);
}

static void expect_replay(const struct journal_state *s, const char *text)
{
	const struct event *ev;
	const char *traceparent;
	char found[256] = "";
	size_t len = 0;

	for (uint64_t seq = 0; (ev = replay_after(&s->replay, seq, &traceparent)); seq = ev->seq)
		len += (size_t)snprintf(found + len, sizeof(found) - len, "%d:%.*s:%s:%s ",
					(int)ev->seq, (int)ev->len, (const char *)ev->data,
					traceparent ? traceparent : "-", ev->code ? ev->code : "-");
	assert_string_equal(found, text);
}

static void committed_records_are_read_back(void **state)
{
	const struct exec_point call = {.running = true,
					.number = 42,
					.timeout_ms = 1000,
					.limit_ms = 99,
					.traceparent = (char[]){"00-x"},
					.out = {.chunks = true}};
	const struct event failed = {.type = EVENT_ERROR,
				     .seq = 3,
				     .code = "agent_lost",
				     .data = (const uint8_t *)"why",
				     .len = 3};
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state s;

	assert_non_null(j);
	journal_seq(j, 0, 1000);
	add_event(j, 1, "one");
	add_event(j, 2, "two");
	journal_event(j, &failed, NULL);
	journal_call(j, &call);
	journal_held(j, EVENT_STDOUT, false, "ab", 2);
	journal_held(j, EVENT_STDOUT, false, "c", 1);
	journal_held(j, EVENT_STDERR, true, "err", 3);
	journal_have(j, 6);
	assert_true(journal_commit(j, true));
	journal_times(j, 7, 8);
	/* This event is not committed, so the next instance does not find it. */
	add_event(j, 4, "lost");
	journal_over(j);
	j = reopen(j, &s);
	assert_non_null(j);
	expect_replay(&s, "1:one:trace:- 2:two:-:- 3:why:-:agent_lost ");
	assert_int_equal(s.seq, 3);
	assert_int_equal(s.seq_reserved, 1000);
	assert_true(s.guest_busy && s.point.running && s.point.inherited);
	assert_true(s.point.out.chunks);
	assert_int_equal(s.point.number, 42);
	assert_int_equal(s.point.have, 6);
	assert_int_equal(s.point.limit_ms, 99);
	assert_string_equal(s.point.traceparent, "00-x");
	assert_int_equal(s.point.out.len, 3);
	assert_memory_equal(s.point.out.held, "abc", 3);
	assert_memory_equal(s.point.err.held, "err", 3);
	assert_int_equal(s.expires_ms, 7);
	assert_int_equal(s.idle_since_ms, 8);
	journal_state_fini(&s);
	journal_remove(j);
}

static void ended_call_does_not_run(void **state)
{
	const struct exec_point call = {.running = true, .number = 42};
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state s;

	journal_call(j, &call);
	journal_have(j, 6);
	journal_over(j);
	assert_true(journal_commit(j, false));
	j = reopen(j, &s);
	assert_non_null(j);
	assert_false(s.point.running);
	journal_state_fini(&s);
	journal_remove(j);
}

#define CONTEXT	 "ctx_00000000000000000000000000000001"
#define CONTEXT2 "ctx_00000000000000000000000000000002"

static void expect_point(struct exec_point *first, const char *context, uint64_t number,
			 uint64_t have, const char *held)
{
	struct exec_point *p = exec_point_of(first, context);

	assert_non_null(p);
	assert_true(p->running);
	assert_int_equal(p->number, number);
	assert_int_equal(p->have, have);
	assert_int_equal(p->out.len, strlen(held));
	assert_memory_equal(p->out.held, held, strlen(held));
}

/* Also after the log was rewritten, and continued by the next instance. */
static void calls_of_contexts_are_read_back(void **state)
{
	const struct exec_point main_call = {.running = true, .number = 1};
	const struct exec_point one = {.running = true, .number = 2}, two = {.number = 3};
	const struct event event = {.seq = 1, .context = CONTEXT}, next = {.seq = 2};
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state s;
	const char *trace;

	journal_seq(j, 0, 1000);
	journal_call(j, &main_call);
	journal_in(j, CONTEXT);
	journal_call(j, &one);
	journal_held(j, false, true, "b", 1);
	journal_in(j, NULL);
	journal_held(j, false, true, "a", 1);
	journal_have(j, 10);
	journal_in(j, CONTEXT2);
	journal_call(j, &two);
	journal_over(j);
	journal_event(j, &event, NULL);
	journal_have(j, 20);
	assert_true(journal_commit(j, false));
	for (int i = 0; i < 3; i++) {
		j = reopen(j, &s);
		assert_non_null(j);
		expect_point(&s.point, "", 1, 10, "a");
		expect_point(&s.point, CONTEXT, 2, 20, "b");
		assert_null(s.point.next->next);
		if (i == 0)
			journal_write(j, &s, REPLAY_BYTES_MAX);
		if (i == 1) {
			journal_event(j, &next, NULL);
			journal_in(j, CONTEXT);
			assert_true(journal_commit(j, false));
		}
		if (i == 2) {
			assert_string_equal(replay_after(&s.replay, 0, &trace)->context, CONTEXT);
			assert_null(replay_after(&s.replay, 1, &trace)->context);
			assert_null(replay_after(&s.replay, 2, &trace));
		}
		journal_state_fini(&s);
	}
	journal_remove(j);
}

static struct history_entry entry(uint32_t n, const char *text, const char *checkpoint)
{
	struct history_entry e = {.n = n,
				  .after = n - 1,
				  .at_ms = 11,
				  .began_ms = 10,
				  .seq = 9,
				  .kind = HISTORY_FORK,
				  .result = HISTORY_MERGED,
				  .children = 1000};

	snprintf(e.text, sizeof(e.text), "%s", text);
	snprintf(e.checkpoint, sizeof(e.checkpoint), "%s", checkpoint);
	return e;
}

static void expect_entry(const struct history_log *h, uint32_t i, struct history_entry e)
{
	const struct history_entry *has = &h->entries[i];

	assert_true(i < h->count);
	assert_int_equal(has->n, e.n);
	assert_int_equal(has->after, e.after);
	assert_true(has->at_ms == e.at_ms && has->began_ms == e.began_ms && has->seq == e.seq);
	assert_true(has->kind == e.kind && has->result == e.result && has->children == e.children);
	assert_string_equal(has->text, e.text);
	assert_string_equal(has->checkpoint, e.checkpoint);
}

/* Also after the log was rewritten. */
static void history_is_read_back(void **state)
{
	const struct exec_point call = {.running = true, .began_ms = 5, .text = "x = 1"};
	const struct history_entry entries[] = {entry(1, "one", ""), entry(2, "two", ""),
						entry(2, "two", "chk_1"), entry(9, "", "")};
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state s;

	for (int i = 0; i < 4; i++)
		journal_history(j, &entries[i]);
	journal_call(j, &call);
	assert_true(journal_commit(j, false));
	for (int i = 0; i < 2; i++) {
		j = reopen(j, &s);
		assert_non_null(j);
		assert_int_equal(s.history.count, 3);
		expect_entry(&s.history, 0, entries[0]);
		expect_entry(&s.history, 1, entries[2]); /* a later record of it replaces it */
		expect_entry(&s.history, 2, entries[3]);
		assert_int_equal(s.point.began_ms, 5);
		assert_string_equal(s.point.text, "x = 1");
		journal_write(j, &s, REPLAY_BYTES_MAX);
		journal_state_fini(&s);
	}
	journal_remove(j);
}

/* Writes twenty times the limit: the log is rewritten from the state, and the file stops
 * growing. */
static void full_journal_is_rewritten(void **state)
{
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state now = {.seq_reserved = 1 << 20}, past;
	char text[1000], path[64];
	struct stat st;
	unsigned times = 0;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	for (now.seq = 1; now.seq <= 5000; now.seq++) {
		struct event ev = {.seq = now.seq, .data = (uint8_t *)text, .len = 999};

		replay_add(&now.replay, &ev, NULL);
		add_event(j, now.seq, text);
		if (!journal_commit(j, false)) {
			journal_write(j, &now, REPLAY_BYTES_MAX);
			times++;
		}
	}
	assert_true(times > 1 && times < 50);
	snprintf(path, sizeof(path), "%s/journals/%d", dir, SLOT);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_blocks * 512 < 4 << 20);
	j = reopen(j, &past);
	assert_non_null(j);
	assert_int_equal(past.seq, 5000);
	assert_int_equal(past.replay.count, REPLAY_EVENTS_MAX);
	journal_state_fini(&past);
	journal_state_fini(&now);
	journal_remove(j);
}

static void child_gets_the_last_events(void **state)
{
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state now = {.seq = 3, .seq_reserved = 10}, past;

	for (uint64_t seq = 1; seq <= 3; seq++) {
		struct event ev = {.seq = seq, .data = (const uint8_t *)"12345", .len = 5};

		replay_add(&now.replay, &ev, NULL);
	}
	journal_write(j, &now, 7);
	j = reopen(j, &past);
	assert_non_null(j);
	expect_replay(&past, "3:12345:-:- ");
	journal_state_fini(&past);
	journal_state_fini(&now);
	journal_remove(j);
}

static void journal_of_another_vm_is_refused(void **state)
{
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state s;

	journal_close(journal_open(dir, SLOT, PID, &s)); /* nothing was committed */
	add_event(j, 1, "one");
	journal_commit(j, false);
	assert_null(journal_open(dir, SLOT, PID + 1, &s));
	assert_null(journal_open(dir, SLOT + 1, PID, &s));
	j = reopen(j, &s);
	assert_non_null(j);
	journal_state_fini(&s);
	journal_remove(j);
	assert_null(journal_open(dir, SLOT, PID, &s));
}

/* Damages every byte in turn, and truncates the log at every length. */
static void damaged_journal_is_read_safely(void **state)
{
	char path[64];
	uint8_t log[4096], copy[4096];
	struct journal_state s;
	struct err e;
	struct journal *j = journal_new(dir, SLOT, PID);
	const struct exec_point call = {.running = true, .number = 1};

	journal_seq(j, 0, 10);
	add_event(j, 1, "one");
	journal_call(j, &call);
	journal_held(j, EVENT_STDOUT, false, "abc", 3);
	journal_have(j, 3);
	add_event(j, 2, "two");
	assert_true(journal_commit(j, false));
	journal_close(j);
	snprintf(path, sizeof(path), "%s/journals/%d", dir, SLOT);
	FILE *f = fopen(path, "r");
	fseek(f, 4096, SEEK_SET);
	size_t len = fread(log, 1, 200, f);
	fclose(f);
	assert_int_equal(len, 200);
	while (len && !log[len - 1])
		len--;
	assert_int_equal(journal_read(log, len, &s, &e), 0);
	expect_replay(&s, "1:one:trace:- 2:two:-:- ");
	journal_state_fini(&s);
	for (size_t i = 0; i < len; i++) {
		memcpy(copy, log, len);
		copy[i] ^= 0xff;
		journal_read(copy, len, &s, &e);
		journal_state_fini(&s);
		journal_read(log, i, &s, &e);
		journal_state_fini(&s);
	}
	log[0] = 99;
	assert_true(journal_read(log, len, &s, &e) < 0);
	assert_non_null(strstr(e.text, "is invalid"));
	journal_state_fini(&s);
}

/* The next instance overwrites records that were not committed. */
static void next_instance_continues_the_journal(void **state)
{
	struct journal_state s;
	struct journal *j = journal_new(dir, SLOT, PID);

	journal_seq(j, 0, 10);
	add_event(j, 1, "one");
	assert_true(journal_commit(j, false));
	add_event(j, 2, "lost");
	for (uint64_t life = 2; life < 5; life++) {
		j = reopen(j, &s);
		assert_true(journal_goes_on(j));
		journal_state_fini(&s);
		add_event(j, life, "more");
		assert_true(journal_commit(j, false));
		add_event(j, 9, "a longer one that is lost");
	}
	j = reopen(j, &s);
	expect_replay(&s, "1:one:trace:- 2:more:-:- 3:more:trace:- 4:more:-:- ");
	journal_state_fini(&s);
	journal_close(j);
}

/* A service that was killed during a rewrite left pages in the other half, which are freed. */
static void journal_with_extra_pages_is_rewritten(void **state)
{
	struct journal_state s;
	struct journal *j = journal_new(dir, SLOT, PID);
	char path[64];

	journal_seq(j, 0, 10);
	assert_true(journal_commit(j, false));
	snprintf(path, sizeof(path), "%s/journals/%d", dir, SLOT);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "x", 1, 60 << 20), 1);
	close(fd);
	j = reopen(j, &s);
	assert_non_null(j);
	assert_false(journal_goes_on(j));
	journal_write(j, &s, SIZE_MAX); /* into the half with those pages */
	journal_write(j, &s, SIZE_MAX);
	journal_state_fini(&s);
	j = reopen(j, &s);
	assert_true(journal_goes_on(j));
	journal_state_fini(&s);
	journal_close(j);
}

/* --- results ------------------------------------------------------------------------------- */

static void results_are_read_back(void **state)
{
	const struct exec_point call = {.running = true, .number = 42, .results = true};
	struct journal *j = journal_new(dir, SLOT, PID);
	uint8_t note[BUNDLE_NOTE_MAX];
	struct event ev = {.type = EVENT_RESULT, .seq = 1, .main = true, .data = note};
	struct journal_state s;

	ev.len = bundle_note(note, "a value");
	journal_seq(j, 0, 10);
	journal_call(j, &call);
	journal_event(j, &ev, NULL);
	ev.type = EVENT_FAULT;
	ev.seq = 2;
	ev.main = false;
	journal_event(j, &ev, NULL);
	journal_held(j, EVENT_RESULT, false, "lost", 4);
	journal_held(j, EVENT_RESULT, true, NULL, 0);
	journal_held(j, EVENT_RESULT, false, "par", 3);
	journal_held(j, EVENT_RESULT, false, "tial", 4);
	journal_have(j, 500);
	assert_true(journal_commit(j, true));
	for (int i = 0; i < 2; i++) {
		const char *trace;

		j = reopen(j, &s);
		assert_non_null(j);
		const struct event *first = replay_after(&s.replay, 0, &trace);
		assert_true(first->type == EVENT_RESULT && first->main && first->len == ev.len);
		assert_memory_equal(first->data, note, ev.len);
		const struct event *second = replay_after(&s.replay, 1, &trace);
		assert_true(second->type == EVENT_FAULT && !second->main);
		assert_true(s.point.results && !s.point.out.chunks && s.point.have == 500);
		assert_int_equal(s.point.bundle.len, 7);
		assert_memory_equal(s.point.bundle.held, "partial", 7);
		journal_write(j, &s, SIZE_MAX); /* for the second turn */
		journal_state_fini(&s);
	}
	/* The size of the largest result fits, with one that is arriving. */
	uint8_t *large = calloc(1, AGENT_BUNDLE_MAX);
	struct wire w = wire_on(large, AGENT_BUNDLE_MAX);
	wire_put_str(&w, "x/y", 3);
	wire_put_u8(&w, AGENT_BUNDLE_BYTES);
	wire_put_u32(&w, AGENT_BUNDLE_MAX - 12);
	s = (struct journal_state){.seq = 3, .seq_reserved = 10, .point = call};
	ev = (struct event){.type = EVENT_RESULT, .seq = 3, .data = large, .len = AGENT_BUNDLE_MAX};
	replay_add(&s.replay, &ev, NULL);
	assert_int_equal(splitter_hold(&s.point.bundle, large, AGENT_BUNDLE_MAX), 0);
	journal_write(j, &s, SIZE_MAX);
	journal_state_fini(&s);
	j = reopen(j, &s);
	assert_non_null(j);
	assert_int_equal(s.point.bundle.len, AGENT_BUNDLE_MAX);
	assert_int_equal(replay_last(&s.replay), 3);
	journal_state_fini(&s);
	free(large);
	journal_remove(j);
}

static void malformed_bundles_are_refused(void **state)
{
	const struct {
		const char *bytes;
		size_t len;
	} bad[] = {{"", 0},
		   {"\1\0\0\0a\0\1\0\0\0", 10},	 /* cut */
		   {"\1\0\0\0a\3\0\0\0\0", 10},	 /* unknown kind */
		   {"\1\0\0\0\n\0\0\0\0\0", 10}, /* name */
		   {"\0\0\0\0\0\0\0\0\0", 9}};
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state s;

	assert_true(bundle_is_sound((const uint8_t *)"\1\0\0\0a\2\0\0\0\0", 10));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(bundle_is_sound((const uint8_t *)bad[i].bytes, bad[i].len));
	const struct event ev = {
		.type = EVENT_RESULT, .seq = 1, .data = (const uint8_t *)"bad", .len = 3};
	journal_event(j, &ev, NULL);
	assert_true(journal_commit(j, false));
	assert_null(reopen(j, &s));
}

static void journal_of_another_version_is_refused(void **state)
{
	for (int i = 0; i < 2; i++) {
		const uint32_t versions[] = {JOURNAL_VERSION_OLDEST - 1, JOURNAL_VERSION + 1};
		struct journal *j = journal_new(dir, SLOT, PID);
		struct journal_state s;
		char path[64];

		add_event(j, 1, "one");
		assert_true(journal_commit(j, false));
		journal_close(j);
		snprintf(path, sizeof(path), "%s/journals/%d", dir, SLOT);
		int fd = open(path, O_RDWR | O_CLOEXEC);
		assert_int_equal(pwrite(fd, &versions[i], sizeof(versions[i]), 8), 4);
		/* The size of its areas may differ too. */
		assert_int_equal(ftruncate(fd, i ? 64 << 20 : 4096), 0);
		close(fd);
		assert_null(journal_open(dir, SLOT, PID, &s));
		unlink(path);
	}
}

/* Replaces the version in the file. Returns the one before. */
static uint32_t set_version(uint32_t version)
{
	uint32_t before;
	char path[64];

	snprintf(path, sizeof(path), "%s/journals/%d", dir, SLOT);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &before, sizeof(before), 8), sizeof(before));
	assert_int_equal(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
	close(fd);
	return before;
}

/* Version 1 has neither the history nor the texts of calls. */
static void journal_of_version_1_is_continued(void **state)
{
	static const char call[] = "\3" /* RECORD_CALL */
				   "\x2a\0\0\0\0\0\0\0"
				   "\0\0\0\0"
				   "\0\0\0\0\0\0\0\0"
				   "\0"
				   "\0\0\0";
	const struct history_entry e = entry(1, "one", "");
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state s;
	struct err err;

	assert_int_equal(journal_read((const uint8_t *)call, sizeof(call), &s, &err), 0);
	assert_true(s.point.running && s.point.number == 42 && !s.point.text[0]);
	journal_state_fini(&s);
	add_event(j, 1, "one");
	assert_true(journal_commit(j, false));
	set_version(1);
	j = reopen(j, &s);
	assert_non_null(j);
	expect_replay(&s, "1:one:trace:- ");
	assert_int_equal(s.history.count, 0);
	journal_state_fini(&s);
	journal_history(j, &e);
	assert_true(journal_commit(j, false));
	/* An older instance would not know the record. */
	assert_int_equal(set_version(JOURNAL_VERSION), JOURNAL_VERSION);
	j = reopen(j, &s);
	assert_non_null(j);
	expect_entry(&s.history, 0, e);
	journal_state_fini(&s);
	journal_remove(j);
}

/* --- resources ------------------------------------------------------------------------------ */

static unsigned count_descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void journal_keeps_no_descriptor(void **state)
{
	unsigned before = count_descriptors();
	struct journal *j = journal_new(dir, SLOT, PID);
	struct journal_state s;

	assert_non_null(j);
	assert_int_equal(count_descriptors(), before);
	journal_seq(j, 0, 10);
	assert_true(journal_commit(j, false));
	j = reopen(j, &s);
	assert_non_null(j);
	assert_int_equal(count_descriptors(), before);
	journal_state_fini(&s);
	journal_close(j);
}

static size_t free_bytes(void)
{
	struct statvfs fs;

	assert_int_equal(statvfs(dir, &fs), 0);
	return (size_t)fs.f_bfree * fs.f_bsize;
}

/* Runs in a child process, which mounts the file system. */
static int fill_small_disk(void)
{
	static char big[512 << 10];
	struct journal_state s;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("disk", dir, "tmpfs", 0, "size=256k") < 0)
		return SKIPPED;
	struct journal *j = journal_new(dir, SLOT, PID);
	assert_non_null(j);
	journal_seq(j, 0, 10);
	add_event(j, 1, "one");
	assert_true(journal_commit(j, false));
	size_t before = free_bytes();
	memset(big, 'x', sizeof(big) - 1);
	struct journal_state now = {.seq = 2, .seq_reserved = 10};
	const struct event ev = {.seq = 2, .data = (const uint8_t *)big, .len = sizeof(big) - 1};
	replay_add(&now.replay, &ev, NULL);
	journal_write(j, &now, SIZE_MAX);
	journal_state_fini(&now);
	assert_int_equal(free_bytes(), before);
	j = reopen(j, &s);
	assert_non_null(j);
	expect_replay(&s, "1:one:trace:- ");
	journal_state_fini(&s);
	journal_close(j);
	return 0;
}

static void full_disk_keeps_committed_records(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fill_small_disk());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == SKIPPED)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(committed_records_are_read_back),
		TEST(ended_call_does_not_run),
		TEST(calls_of_contexts_are_read_back),
		TEST(history_is_read_back),
		TEST(full_journal_is_rewritten),
		TEST(child_gets_the_last_events),
		TEST(journal_of_another_vm_is_refused),
		TEST(damaged_journal_is_read_safely),
		TEST(next_instance_continues_the_journal),
		TEST(journal_with_extra_pages_is_rewritten),
		TEST(results_are_read_back),
		TEST(malformed_bundles_are_refused),
		TEST(journal_of_another_version_is_refused),
		TEST(journal_of_version_1_is_continued),
		TEST(journal_keeps_no_descriptor),
		TEST(full_disk_keeps_committed_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
