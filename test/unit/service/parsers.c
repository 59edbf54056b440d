// SPDX-License-Identifier: Apache-2.0
/* Splitter, replay, frames and control messages: properties that hold for any input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "orchestrator/agent/agent.h"
#include "orchestrator/exec/replay.h"
#include "orchestrator/exec/splitter.h"
#include "orchestrator/vm/vmproc.h"

static unsigned seed;

static unsigned below(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

static int print_seed(void **state)
{
	const char *given = getenv("RAMET_TEST_SEED");

	seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
	print_message("RAMET_TEST_SEED=%u\n", seed);
	return 0;
}

/* --- splitter ------------------------------------------------------------------------------- */

struct chunks {
	char text[1 << 16];
	size_t len;
	unsigned count, partial;
	bool whole_characters;
	bool add_newlines;
};

static void on_chunk(void *arg, const uint8_t *data, size_t len, bool partial)
{
	struct chunks *p = arg;

	assert_true(p->len + len + 1 < sizeof(p->text));
	memcpy(p->text + p->len, data, len);
	p->len += len;
	if (p->add_newlines)
		p->text[p->len++] = '\n';
	p->count++;
	p->partial += partial;
	if (utf8_cut(data, len))
		p->whole_characters = false;
}

static void feed_in_parts(struct splitter *s, const char *text, size_t len, struct chunks *p)
{
	while (len) {
		size_t part = 1 + below(7);

		part = part < len ? part : len;
		assert_int_equal(splitter_feed(s, (const uint8_t *)text, part, on_chunk, p), 0);
		text += part;
		len -= part;
	}
	splitter_end(s, on_chunk, p);
}

static size_t random_text(char *text, size_t size)
{
	static const char *const bits[] = {
		"a", "\n", "\r\n", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8d\x8b", "line", "\n\n"};
	size_t len = 0;

	for (unsigned n = below(200); n; n--)
		len += (size_t)snprintf(text + len, size - len, "%s", bits[below(8)]);
	return len;
}

static void test_lines_join_to_the_input(void **state)
{
	for (int round = 0; round < 2000; round++) {
		struct chunks p = {.whole_characters = true, .add_newlines = true};
		struct splitter s = {0};
		char text[2048];
		size_t len = random_text(text, sizeof(text));

		feed_in_parts(&s, text, len, &p);
		if (len && text[len - 1] != '\n')
			p.len--; /* the last line had no newline */
		assert_int_equal(p.len, len);
		assert_memory_equal(p.text, text, len);
		assert_true(p.whole_characters);
		assert_null(s.held);
	}
}

static void test_chunks_join_to_the_input_and_split_no_character(void **state)
{
	for (int round = 0; round < 2000; round++) {
		struct chunks p = {.whole_characters = true};
		struct splitter s = {.chunks = true};
		char text[2048];
		size_t len = random_text(text, sizeof(text));

		feed_in_parts(&s, text, len, &p);
		assert_int_equal(p.len, len);
		assert_memory_equal(p.text, text, len);
		assert_true(p.whole_characters);
	}
}

static void test_random_bytes_pass_unchanged(void **state)
{
	for (int round = 0; round < 2000; round++) {
		struct chunks p = {0};
		struct splitter s = {.chunks = true};
		char text[256];
		size_t len = below(sizeof(text));

		for (size_t i = 0; i < len; i++)
			text[i] = (char)below(256);
		feed_in_parts(&s, text, len, &p);
		assert_int_equal(p.len, len);
		assert_memory_equal(p.text, text, len);
	}
}

static void test_chunk_is_held_only_for_an_unfinished_character(void **state)
{
	struct splitter s = {.chunks = true};
	struct chunks p = {0};

	splitter_feed(&s, (const uint8_t *)"abc", 3, on_chunk, &p);
	assert_int_equal(p.len, 3);
	splitter_feed(&s, (const uint8_t *)"d\xe2\x82", 3, on_chunk, &p);
	assert_int_equal(p.len, 4); /* an incomplete character is held back */
	splitter_feed(&s, (const uint8_t *)"\xac", 1, on_chunk, &p);
	assert_int_equal(p.len, 7);
	splitter_feed(&s, (const uint8_t *)"\xff", 1, on_chunk, &p);
	assert_int_equal(p.len, 8); /* cannot begin a character */
	splitter_fini(&s);
}

struct sizes {
	size_t lens[8];
	bool partial[8];
	unsigned n;
};

static void note_size(void *arg, const uint8_t *data, size_t len, bool partial)
{
	struct sizes *sizes = arg;

	sizes->lens[sizes->n] = len;
	sizes->partial[sizes->n++] = partial;
}

static void test_line_over_the_limit_comes_in_parts(void **state)
{
	size_t len = LINE_MAX_BYTES + 10;
	uint8_t *line = malloc(len + 1);
	struct splitter s = {0};
	struct sizes sizes = {0};

	memset(line, 'x', len);
	line[len] = '\n';
	for (size_t at = 0; at <= len; at += 65536)
		splitter_feed(&s, line + at, len + 1 - at < 65536 ? len + 1 - at : 65536, note_size,
			      &sizes);
	assert_int_equal(sizes.n, 2);
	assert_int_equal(sizes.lens[0], LINE_MAX_BYTES);
	assert_true(sizes.partial[0]);
	assert_int_equal(sizes.lens[1], 10);
	assert_false(sizes.partial[1]);
	splitter_fini(&s);
	free(line);
}

static void test_line_of_exactly_the_limit_is_whole(void **state)
{
	uint8_t *line = malloc(LINE_MAX_BYTES + 1);
	struct splitter s = {0};
	struct sizes sizes = {0};

	memset(line, 'x', LINE_MAX_BYTES);
	line[LINE_MAX_BYTES] = '\n';
	splitter_feed(&s, line, 100, note_size, &sizes);
	splitter_feed(&s, line + 100, LINE_MAX_BYTES + 1 - 100, note_size, &sizes);
	assert_int_equal(sizes.n, 1);
	assert_int_equal(sizes.lens[0], LINE_MAX_BYTES);
	assert_false(sizes.partial[0]);
	splitter_fini(&s);
	free(line);
}

static void test_line_over_the_limit_splits_no_character(void **state)
{
	uint8_t *line = malloc(LINE_MAX_BYTES + 2);
	struct splitter s = {0};
	struct sizes sizes = {0};

	memset(line, 'x', LINE_MAX_BYTES - 1);
	memcpy(line + LINE_MAX_BYTES - 1, "\xc3\xa9\n", 3);
	splitter_feed(&s, line, LINE_MAX_BYTES + 2, note_size, &sizes);
	assert_int_equal(sizes.n, 2);
	assert_int_equal(sizes.lens[0], LINE_MAX_BYTES - 1);
	assert_int_equal(sizes.lens[1], 2);
	splitter_fini(&s);
	free(line);
}

/* --- replay --------------------------------------------------------------------------------- */

struct seen {
	uint64_t first, last;
	unsigned n;
	size_t bytes;
};

static void note_event(struct seen *seen, const struct event *ev, const char *traceparent)
{
	if (seen->n++)
		assert_int_equal(ev->seq, seen->last + 1);
	else
		seen->first = ev->seq;
	seen->last = ev->seq;
	seen->bytes += ev->len;
	assert_true((ev->seq % 3 == 0) == (traceparent != NULL));
	if (!ev->len)
		return;
	assert_int_equal(ev->data[0], (uint8_t)ev->seq);
	assert_memory_equal(ev->data, ev->data + 1, ev->len - 1); /* all are the same */
}

static struct seen note_events(const struct replay *r)
{
	const struct event *ev;
	const char *traceparent;
	struct seen seen = {0};

	while ((ev = replay_after(r, seen.last, &traceparent)))
		note_event(&seen, ev, traceparent);
	return seen;
}

static void add(struct replay *r, uint64_t seq, size_t len)
{
	uint8_t *data = malloc(len + 1);
	struct event ev = {.type = EVENT_STDOUT, .seq = seq, .data = data, .len = len};

	memset(data, (uint8_t)seq, len);
	replay_add(r, &ev, seq % 3 == 0 ? "00-trace" : NULL);
	free(data);
}

static void test_replay_keeps_the_last_events(void **state)
{
	struct replay r = {0};

	for (uint64_t seq = 1; seq <= 5000; seq++) {
		add(&r, seq, below(50));
		if (seq % 100)
			continue;
		struct seen seen = note_events(&r);
		assert_int_equal(seen.last, seq);
		assert_int_equal(seen.n, seq < REPLAY_EVENTS_MAX ? seq : REPLAY_EVENTS_MAX);
	}
	replay_fini(&r);
}

static void test_replay_is_bounded_in_bytes(void **state)
{
	struct replay r = {0};

	for (uint64_t seq = 1; seq <= 300; seq++) {
		add(&r, seq, below(REPLAY_BYTES_MAX / 4));
		struct seen seen = note_events(&r);
		assert_int_equal(seen.last, seq);
		assert_true(seen.bytes <= REPLAY_BYTES_MAX);
	}
	replay_fini(&r);
}

static void test_longest_line_is_kept_with_its_exit(void **state)
{
	struct replay r = {0};

	add(&r, 1, LINE_MAX_BYTES);
	add(&r, 2, 0);
	assert_int_equal(note_events(&r).n, 2);
	replay_fini(&r);
}

/* --- frames --------------------------------------------------------------------------------- */

static size_t frame(uint8_t *out, uint8_t type, const void *payload, uint32_t len)
{
	struct wire w = wire_on(out, 256);

	wire_put_u32(&w, len);
	wire_put_u8(&w, type);
	wire_put_u8(&w, 0);
	wire_put_u16(&w, 0);
	wire_put_bytes(&w, payload, len);
	return w.pos;
}

static void test_answers_are_parsed(void **state)
{
	struct agent_frame f;
	uint8_t buf[256];
	struct err e;

	size_t len = frame(buf, AGENT_EXIT, "\xfe\xff\xff\xff\x01", 5);
	assert_int_equal(agent_frame_read(buf, len, &f, &e), len);
	assert_int_equal(f.exit_code, -2);
	len = frame(buf, AGENT_ERROR, "\x05\0\0\0\x02\0\0\0no", 10);
	assert_int_equal(agent_frame_read(buf, len, &f, &e), len);
	assert_int_equal(f.errnum, 5);
	assert_memory_equal(f.data, "no", 2);
	len = frame(buf, AGENT_STDOUT, "", 0);
	assert_int_equal(agent_frame_read(buf, len, &f, &e), len);
	assert_int_equal(f.len, 0);
}

static void test_incomplete_frame_waits_for_the_rest(void **state)
{
	struct agent_frame f;
	uint8_t buf[256];
	struct err e;
	size_t len = frame(buf, AGENT_PONG, "\x01\0\0\0", 4);

	for (size_t n = 0; n < len; n++)
		assert_int_equal(agent_frame_read(buf, n, &f, &e), 0);
}

static void test_bad_frames_are_refused(void **state)
{
	struct agent_frame f;
	uint8_t buf[256];
	struct err e;

	size_t len = frame(buf, AGENT_EXIT, "\0\0\0\0", 4); /* too short */
	assert_int_equal(agent_frame_read(buf, len, &f, &e), -EPROTO);
	len = frame(buf, AGENT_DONE, "x", 1); /* too long */
	assert_int_equal(agent_frame_read(buf, len, &f, &e), -EPROTO);
	len = frame(buf, AGENT_ERROR, "\x05\0\0\0\xff\0\0\0no", 10); /* text too long */
	assert_int_equal(agent_frame_read(buf, len, &f, &e), -EPROTO);
	len = frame(buf, AGENT_EXEC, "", 0); /* not an answer */
	assert_int_equal(agent_frame_read(buf, len, &f, &e), -EPROTO);
	frame(buf, AGENT_STDOUT, "", 0);
	memcpy(buf, "\x01\0\x01\0", 4); /* over the payload limit */
	assert_int_equal(agent_frame_read(buf, 8, &f, &e), -EPROTO);
	frame(buf, AGENT_DONE, "", 0);
	buf[6] = 1; /* must be 0 */
	assert_int_equal(agent_frame_read(buf, 8, &f, &e), -EPROTO);
}

/* Returns the request's error. */
static int take(struct agent_bytes request, uint8_t **bytes, size_t *len)
{
	*bytes = request.p;
	*len = request.len;
	return request.error;
}

static void test_request_has_the_length_of_its_header(void **state)
{
	const char *const one[] = {"A=1", "EMPTY=", NULL}, *const two[] = {"B", NULL};
	char code[3 * AGENT_PAYLOAD_MAX / 2];
	struct agent_exec exec = {.code = code,
				  .code_len = sizeof(code),
				  .cwd = "/tmp",
				  .timeout_ms = 9,
				  .env = {one, two}};
	uint8_t *bytes;
	size_t len, at = 0, code_seen = 0;
	unsigned frames = 0;

	memset(code, 'c', sizeof(code));
	assert_int_equal(take(agent_exec_bytes(&exec), &bytes, &len), 0);
	while (at < len) {
		struct wire w = wire_from(bytes + at, AGENT_HEADER_SIZE);
		uint32_t payload = wire_get_u32(&w);

		assert_int_equal(wire_get_u8(&w), frames++ ? AGENT_CODE : AGENT_EXEC);
		assert_true(payload <= AGENT_PAYLOAD_MAX);
		code_seen += frames > 1 ? payload : 0;
		at += AGENT_HEADER_SIZE + payload;
	}
	assert_int_equal(at, len);
	assert_int_equal(frames, 3);
	assert_int_equal(code_seen, sizeof(code));
	free(bytes);
	exec.code_len = AGENT_CODE_MAX + 1;
	assert_int_equal(take(agent_exec_bytes(&exec), &bytes, &len), -E2BIG);
}

static size_t entry(uint8_t *out, uint32_t mode, const char *path, uint64_t size,
		    const char *content, size_t content_len)
{
	uint8_t payload[200];
	struct wire w = wire_on(payload, sizeof(payload));

	wire_put_str(&w, path, strlen(path));
	wire_put_u32(&w, mode);
	wire_put_u32(&w, 1000);
	wire_put_u32(&w, 1001);
	wire_put_u64(&w, size);
	wire_put_str(&w, content, content_len);
	return frame(out, AGENT_ENTRY, payload, (uint32_t)w.pos);
}

static void test_tree_entries_are_parsed(void **state)
{
	char hash[AGENT_HASH_LEN] = {1};
	struct agent_frame f;
	uint8_t buf[256];
	struct err e;

	size_t len = entry(buf, S_IFREG | 0644, "/a b\n", 1ull << 40, hash, sizeof(hash));
	assert_int_equal(agent_frame_read(buf, len, &f, &e), len);
	assert_int_equal(f.entry.path_len, 5);
	assert_memory_equal(f.entry.path, "/a b\n", 5);
	assert_int_equal(f.entry.mode, S_IFREG | 0644);
	assert_int_equal(f.entry.uid, 1000);
	assert_int_equal(f.entry.gid, 1001);
	assert_int_equal(f.entry.size, 1ull << 40);
	assert_int_equal(f.entry.content_len, AGENT_HASH_LEN);
	assert_memory_equal(f.entry.content, hash, sizeof(hash));
	len = entry(buf, S_IFLNK | 0777, "/l", 0, "../x", 4);
	assert_int_equal(agent_frame_read(buf, len, &f, &e), len);
	assert_memory_equal(f.entry.content, "../x", 4);
}

static void test_invalid_tree_entries_are_refused(void **state)
{
	char hash[AGENT_HASH_LEN] = {1};
	const struct {
		uint32_t mode;
		const char *path;
		uint64_t size;
		const char *content;
		size_t content_len;
		bool taken;
	} cases[] = {
		{S_IFREG, "/a", 5, "", 0, true}, /* the guest could not read the file */
		{S_IFREG, "/a", 5, hash, AGENT_HASH_LEN - 1, false},
		{S_IFREG, "a", 5, hash, AGENT_HASH_LEN, false},
		{S_IFREG, "", 5, hash, AGENT_HASH_LEN, false},
		{S_IFDIR, "/a", 0, "", 0, true},
		{S_IFDIR, "/a", 1, "", 0, false},
		{S_IFDIR, "/a", 0, "x", 1, false},
		{S_IFCHR, "/a", 259, "", 0, true},
		{S_IFLNK, "/a", 0, "a\0b", 3, false},
		{S_IFLNK, "/a", 1, "ab", 2, false},
	};
	struct agent_frame f;
	uint8_t buf[256];
	struct err e;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t len = entry(buf, cases[i].mode, cases[i].path, cases[i].size,
				   cases[i].content, cases[i].content_len);
		ssize_t want = cases[i].taken ? (ssize_t)len : -EPROTO;

		assert_int_equal(agent_frame_read(buf, len, &f, &e), want);
	}
}

static void test_attach_and_tree_requests_are_encoded(void **state)
{
	const char *const paths[] = {"/a", "/b", NULL};
	uint8_t *bytes;
	size_t len;

	assert_int_equal(take(agent_attach_bytes(NULL, 3, 0x0102), &bytes, &len), 0);
	assert_int_equal(len, 24);
	assert_memory_equal(bytes, "\x10\0\0\0\x07\0\0\0\x03\0\0\0\0\0\0\0", 16);
	assert_memory_equal(bytes + 16, "\x02\x01\0\0\0\0\0\0", 8);
	free(bytes);
	assert_int_equal(take(agent_tree_bytes(paths), &bytes, &len), 0);
	assert_int_equal(len, 24);
	assert_memory_equal(bytes, "\x10\0\0\0\x08\0\0\0\x02\0\0\0\x02\0\0\0/a\x02\0\0\0/b", 24);
	free(bytes);
}

static void test_paths_over_a_limit_are_refused(void **state)
{
	const char *paths[AGENT_PATHS_MAX + 2] = {NULL};
	char path[AGENT_PATH_MAX + 2];
	uint8_t *bytes;
	size_t len;

	for (size_t i = 0; i <= AGENT_PATHS_MAX; i++)
		paths[i] = "/";
	assert_int_equal(take(agent_tree_bytes(paths), &bytes, &len), -E2BIG);
	paths[AGENT_PATHS_MAX] = NULL;
	assert_int_equal(take(agent_tree_bytes(paths), &bytes, &len), 0);
	free(bytes);
	memset(path, '/', sizeof(path));
	path[AGENT_PATH_MAX + 1] = '\0';
	assert_int_equal(take(agent_tree_bytes((const char *[]){path, NULL}), &bytes, &len),
			 -E2BIG);
	path[AGENT_PATH_MAX] = '\0';
	assert_int_equal(take(agent_tree_bytes((const char *[]){path, NULL}), &bytes, &len), 0);
	free(bytes);
	for (size_t i = 0; i < 16; i++) /* short enough one by one, but not together */
		paths[i] = path;
	assert_int_equal(take(agent_tree_bytes(paths), &bytes, &len), -E2BIG);
}

static void test_paths_compare_in_tree_order(void **state)
{
	static const char *const sorted[] = {"/",      "/a",   "/a/b", "/a/b/c", "/a/c",
					     "/a\n/b", "/a b", "/a.b", "/ab",	 "/\xff"};
	const size_t n = sizeof(sorted) / sizeof(sorted[0]);

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++) {
			int order = agent_path_order((const uint8_t *)sorted[i], strlen(sorted[i]),
						     (const uint8_t *)sorted[k], strlen(sorted[k]));

			assert_int_equal((order > 0) - (order < 0), (i > k) - (i < k));
		}
}

/* --- control messages ----------------------------------------------------------------------- */

static void test_messages_of_a_vm_process_are_checked(void **state)
{
	struct ctl_msg msg = {.version = CTL_VERSION, .type = CTL_REPLY, .seq = 1}, out;
	struct err e;

	memset(msg.reply.text, 'x', sizeof(msg.reply.text));
	msg.reply.error = -EIO;
	assert_int_equal(ctl_check(&msg, sizeof(msg), 0, &out, &e), 0);
	assert_int_equal(strlen(out.reply.text), CTL_TEXT_MAX - 1);
	strcpy(msg.reply.text, "a\x1b[2J\nb");
	assert_int_equal(ctl_check(&msg, sizeof(msg), 0, &out, &e), 0);
	assert_string_equal(out.reply.text, "a?[2J?b");
	struct ctl_msg ended = {.version = CTL_VERSION, .type = CTL_ENDED};
	strcpy(ended.ended.text, "a\x9b\r");
	assert_int_equal(ctl_check(&ended, sizeof(ended), 0, &out, &e), 0);
	assert_string_equal(out.ended.text, "a??");
	assert_int_equal(ctl_check(&msg, sizeof(msg) - 1, 0, &out, &e), -EPROTO);
	assert_int_equal(ctl_check(&msg, sizeof(msg) + 1, 0, &out, &e), -EPROTO);
	msg.reply.error = 1;
	assert_int_equal(ctl_check(&msg, sizeof(msg), 0, &out, &e), -EPROTO);
	msg.reply.error = INT32_MIN;
	assert_int_equal(ctl_check(&msg, sizeof(msg), 0, &out, &e), -EPROTO);
	msg.reply.error = 0;
	msg.version++;
	for (size_t len = sizeof(msg.version); len <= sizeof(msg); len *= 2)
		assert_int_equal(ctl_check(&msg, len, 0, &out, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, "of a newer Ramet"));
	msg.version--;
	msg.type = CTL_FILL;
	assert_int_equal(ctl_check(&msg, sizeof(msg), 0, &out, &e), -EPROTO);
	msg.type = CTL_REPLY;
	msg.nfds = 2;
	assert_int_equal(ctl_check(&msg, sizeof(msg), 2, &out, &e), 0);
	assert_int_equal(ctl_check(&msg, sizeof(msg), 1, &out, &e), -EPROTO);
	msg.type = CTL_HELLO;
	assert_int_equal(ctl_check(&msg, sizeof(msg), 2, &out, &e), -EPROTO);
}

static struct vmproc_image *image_of(struct ctl_msg *reply, int *fds, unsigned n, struct err *e)
{
	for (unsigned i = 0; i < n; i++) {
		fds[i] = memfd_create("image", MFD_CLOEXEC);
		assert_true(fds[i] >= 0);
	}
	assert_int_equal(ftruncate(fds[1], 128 << 20), 0);
	return vmproc_image_new(reply, fds, n, 128, e);
}

static void close_all(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close_fd(&fds[i]);
}

static void test_image_files_are_checked_before_use(void **state)
{
	const struct ctl_msg good = {.reply.fork = {.disk_bytes = 4096, .memory_layers = 1}};
	struct ctl_msg bad[] = {good, good, good, good, good, good};
	int fds[CTL_FDS_MAX], pair[2];
	struct err e;

	bad[0].reply.fork.memory_layers = 0;
	bad[1].reply.fork.layers = UINT32_MAX;
	bad[2].reply.fork.memory_layers = CTL_MEMORY_MAX + 1;
	bad[3].reply.fork.layers = CTL_LAYERS_MAX + 1;
	bad[4].reply.fork.disk_bytes = 0;
	bad[5].reply.fork.disk_bytes = 4097;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_null(image_of(&bad[i], fds, 4, &e));
		assert_true(fds[3] >= 0); /* still owned by the caller */
		close_all(fds, 4);
	}
	bad[0] = good;
	struct vmproc_image *image = image_of(&bad[0], fds, 4, &e);
	assert_non_null(image);
	assert_int_equal(fds[3], -1);
	/* A VM process must not be able to write the files of another one. */
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(fcntl(image->fds[i], F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(pwrite(image->fds[3], "x", 1, 0), -1);
	int last = image->fds[3];
	vmproc_image_put(vmproc_image_get(image));
	assert_int_not_equal(fcntl(last, F_GETFD), -1);
	/* A socket is not a regular file, and a memory file of another size cannot be this VM's. */
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	for (unsigned i = 0; i < 4; i++)
		fds[i] = dup(image->fds[i]);
	assert_int_equal(dup2(pair[0], fds[2]), fds[2]);
	assert_null(vmproc_image_new(&good, fds, 4, 128, &e));
	assert_non_null(strstr(e.text, "not a regular file"));
	assert_int_equal(dup2(image->fds[2], fds[2]), fds[2]);
	assert_null(vmproc_image_new(&good, fds, 4, 192, &e));
	assert_non_null(strstr(e.text, "192 MiB"));
	close_all(fds, 4);
	close_all(pair, 2);
	vmproc_image_put(image);
	assert_int_equal(fcntl(last, F_GETFD), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_join_to_the_input),
		cmocka_unit_test(test_chunks_join_to_the_input_and_split_no_character),
		cmocka_unit_test(test_random_bytes_pass_unchanged),
		cmocka_unit_test(test_chunk_is_held_only_for_an_unfinished_character),
		cmocka_unit_test(test_line_over_the_limit_comes_in_parts),
		cmocka_unit_test(test_line_of_exactly_the_limit_is_whole),
		cmocka_unit_test(test_line_over_the_limit_splits_no_character),
		cmocka_unit_test(test_replay_keeps_the_last_events),
		cmocka_unit_test(test_replay_is_bounded_in_bytes),
		cmocka_unit_test(test_longest_line_is_kept_with_its_exit),
		cmocka_unit_test(test_answers_are_parsed),
		cmocka_unit_test(test_incomplete_frame_waits_for_the_rest),
		cmocka_unit_test(test_bad_frames_are_refused),
		cmocka_unit_test(test_request_has_the_length_of_its_header),
		cmocka_unit_test(test_tree_entries_are_parsed),
		cmocka_unit_test(test_invalid_tree_entries_are_refused),
		cmocka_unit_test(test_attach_and_tree_requests_are_encoded),
		cmocka_unit_test(test_paths_over_a_limit_are_refused),
		cmocka_unit_test(test_paths_compare_in_tree_order),
		cmocka_unit_test(test_messages_of_a_vm_process_are_checked),
		cmocka_unit_test(test_image_files_are_checked_before_use),
	};

	return cmocka_run_group_tests(tests, print_seed, NULL);
}
