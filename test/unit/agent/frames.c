// SPDX-License-Identifier: Apache-2.0
/* Frames of files and terminals: the guest's decoder reads what this end writes, and frames from a
 * guest are accepted only if they are consistent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/wire.h"
#include "guest/exec/context-request.h"
#include "guest/files/file-request.h"
#include "guest/process/process-request.h"
#include "orchestrator/agent/agent.h"

#define PTY "pty_0123456789abcdef0123456789abcdef"
#define CTX "ctx_0123456789abcdef0123456789abcdef"

/* --- requests ------------------------------------------------------------------------------- */

/* Reads the single frame of a request, from memory of exactly its size. */
static struct frame one(uint8_t *bytes, size_t len)
{
	struct wire w = wire_from(bytes, len);
	uint32_t size = wire_get_u32(&w);

	assert_int_equal(size, len - AGENT_HEADER_SIZE);
	return (struct frame){.type = bytes[4], .payload = bytes + AGENT_HEADER_SIZE, .len = size};
}

/* Returns the request's error. */
static int take(struct agent_bytes request, uint8_t **bytes, size_t *len)
{
	*bytes = request.p;
	*len = request.len;
	return request.error;
}

static void ask_file(const struct agent_file_request *r, struct file_request *out)
{
	struct err e = {0};
	uint8_t *bytes;
	size_t len;

	assert_int_equal(take(agent_file_bytes(r), &bytes, &len), 0);
	struct frame f = one(bytes, len);
	assert_int_equal(f.type, r->type);
	if (file_request_parse(&f, out, &e) < 0)
		fail_msg("request of type %d: %s", r->type, e.text);
	free(bytes);
}

static void file_requests_are_encoded(void **state)
{
	const struct agent_file_request asks[] = {
		{.type = AGENT_PUT, .path = "/a\xff", .mode = 04755, .size = 1ull << 40},
		{.type = AGENT_GET, .path = "/a", .offset = 1ull << 40, .size = 5},
		{.type = AGENT_REMOVE, .path = "/a", .flag = true},
		{.type = AGENT_MKDIR, .path = "/a", .mode = 0700, .flag = true},
		{.type = AGENT_MOVE, .path = "/a", .to = "/b\xff", .flag = true},
		{.type = AGENT_CHANGE,
		 .path = "/a",
		 .mode = 04755,
		 .uid = 1,
		 .gid = AGENT_UNCHANGED},
		{.type = AGENT_CHANGE, .path = "/a", .mode = AGENT_UNCHANGED, .flag = true},
		{.type = AGENT_WALK, .path = "/a", .depth = 3, .limit = 9, .after = "b/c"},
		{.type = AGENT_WALK, .path = "/a", .flag = true},
		{.type = AGENT_WRITE,
		 .path = "/a",
		 .how = AGENT_WRITE_AT,
		 .offset = 1ull << 40,
		 .size = AGENT_UNSIZED,
		 .mode = 0640},
		{.type = AGENT_PACK, .path = "/a"},
		{.type = AGENT_UNPACK, .path = "/a", .size = 1ull << 40},
		{.type = AGENT_WATCH, .path = "/a", .flag = true},
	};
	struct file_request r;

	for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
		const struct agent_file_request *a = &asks[i];

		ask_file(a, &r);
		assert_int_equal(r.type, a->type);
		assert_string_equal(r.path, a->path ? a->path : "");
		assert_string_equal(r.to, a->to ? a->to : "");
		assert_string_equal(r.after, a->after ? a->after : "");
		assert_true(r.depth == a->depth && r.limit == a->limit && r.how == a->how);
		assert_int_equal(r.mode, a->mode);
		assert_true(r.uid == a->uid && r.gid == a->gid);
		assert_true(r.offset == a->offset && r.size == a->size && r.flag == a->flag);
	}
}

static void longest_path_is_encoded(void **state)
{
	char path[AGENT_PATH_MAX + 2];
	struct agent_file_request a = {.type = AGENT_PUT, .path = path};
	struct file_request r;
	uint8_t *bytes;
	size_t len;

	memset(path, 'a', sizeof(path));
	path[0] = '/';
	path[AGENT_PATH_MAX + 1] = '\0';
	assert_int_equal(take(agent_file_bytes(&a), &bytes, &len), -E2BIG);
	path[AGENT_PATH_MAX] = '\0';
	ask_file(&a, &r);
	assert_int_equal(strlen(r.path), AGENT_PATH_MAX);
}

static void longest_name_in_a_list_is_encoded(void **state)
{
	static char name[AGENT_NAME_MAX + 2];
	struct agent_file_request a = {.type = AGENT_WALK, .path = "/", .after = name};
	struct file_request r;
	uint8_t *bytes;
	size_t len;

	memset(name, 'a', AGENT_NAME_MAX + 1);
	assert_int_equal(take(agent_file_bytes(&a), &bytes, &len), -E2BIG);
	name[AGENT_NAME_MAX] = '\0';
	ask_file(&a, &r);
	assert_int_equal(strlen(r.after), AGENT_NAME_MAX);
}

static void ask_process(const struct agent_process_request *a, struct process_request *out)
{
	struct err e = {0};
	uint8_t *bytes;
	size_t len;

	assert_int_equal(take(agent_process_bytes(a), &bytes, &len), 0);
	struct frame f = one(bytes, len);
	if (process_request_parse(&f, out, &e) < 0)
		fail_msg("request of type %d: %s", a->type, e.text);
	assert_int_equal(out->type, a->type);
	assert_string_equal(out->id, PTY);
	if (a->type == AGENT_PROC_INPUT)
		assert_memory_equal(f.payload + out->rest, a->input, a->input_len);
	free(bytes);
}

static void process_requests_are_encoded(void **state)
{
	const char *const argv[] = {"ls", "", "a b", NULL}, *const env[] = {"A=1", "B=", NULL};
	const char *const more[] = {"C=x=y", NULL};
	static const uint8_t typed[AGENT_INPUT_MAX];
	struct process_request r;

	ask_process(&(struct agent_process_request){.type = AGENT_PROC_START,
						    .id = PTY,
						    .flags = AGENT_PROC_STDIN | AGENT_PROC_FOLLOW,
						    .timeout_ms = 1500,
						    .cwd = "/tmp",
						    .user = "joe",
						    .label = "a label",
						    .argv = argv,
						    .env = {env, more}},
		    &r);
	assert_int_equal(r.flags, AGENT_PROC_STDIN | AGENT_PROC_FOLLOW);
	assert_true(r.timeout_ms == 1500 && r.argc == 3 && r.env == 3 && !r.cols && !r.rows);
	assert_string_equal(r.cwd, "/tmp");
	assert_string_equal(r.user, "joe");
	assert_string_equal(r.label, "a label");
	ask_process(&(struct agent_process_request){.type = AGENT_PROC_START,
						    .id = PTY,
						    .flags = AGENT_PROC_TTY | AGENT_PROC_MUST_RUN,
						    .cols = 65535,
						    .rows = 1,
						    .label = "",
						    .argv = argv},
		    &r);
	assert_true(r.cols == 65535 && r.rows == 1 && !r.user[0] && !r.cwd[0]);
	ask_process(
		&(struct agent_process_request){
			.type = AGENT_PROC_ATTACH, .id = PTY, .place = 1ull << 50, .hold = true},
		&r);
	assert_true(r.offset == 1ull << 50 && r.holds);
	ask_process(&(struct agent_process_request){.type = AGENT_PROC_INPUT,
						    .id = PTY,
						    .input = typed,
						    .input_len = sizeof(typed)},
		    &r);
	ask_process(&(struct agent_process_request){.type = AGENT_PROC_INPUT, .id = PTY}, &r);
	ask_process(
		&(struct agent_process_request){
			.type = AGENT_PROC_RESIZE, .id = PTY, .cols = 120, .rows = 40},
		&r);
	assert_true(r.cols == 120 && r.rows == 40);
	ask_process(
		&(struct agent_process_request){.type = AGENT_PROC_SIGNAL, .id = PTY, .signal = 15},
		&r);
	assert_int_equal(r.signal, 15);
	ask_process(&(struct agent_process_request){.type = AGENT_PROC_CLOSE, .id = PTY}, &r);
	ask_process(&(struct agent_process_request){.type = AGENT_PROC_KILL, .id = PTY}, &r);
	ask_process(&(struct agent_process_request){.type = AGENT_PROC_STAT, .id = PTY}, &r);
}

static void start_over_a_frame_is_refused(void **state)
{
	char *arg = calloc(1, AGENT_PAYLOAD_MAX + 1);
	const char *const argv[] = {arg, NULL};
	struct agent_process_request a = {
		.type = AGENT_PROC_START, .id = PTY, .label = "", .argv = argv};
	const size_t fields = 4 + AGENT_ID_LEN + 1 + 4 + 4 + 3 * 4 + 4 + 4 + 4;
	struct process_request r;
	uint8_t *bytes;
	size_t len;

	memset(arg, 'a', AGENT_PAYLOAD_MAX - fields + 1);
	assert_int_equal(take(agent_process_bytes(&a), &bytes, &len), -E2BIG);
	arg[AGENT_PAYLOAD_MAX - fields] = '\0';
	ask_process(&a, &r);
	free(arg);
}

static void too_many_variables_are_refused(void **state)
{
	const char *const argv[] = {"a", NULL};
	const char *env[2][601] = {{NULL}};
	struct agent_process_request a = {.type = AGENT_PROC_START,
					  .id = PTY,
					  .label = "",
					  .argv = argv,
					  .env = {env[0], env[1]}};
	struct agent_exec exec = {.code = "", .env = {env[0], env[1]}};
	struct process_request r;
	uint8_t *bytes;
	size_t len;

	for (int i = 0; i < 1024; i++)
		env[i / 600][i % 600] = "A=1";
	ask_process(&a, &r);
	assert_int_equal(r.env, 1024);
	env[1][424] = "A=1";
	assert_int_equal(take(agent_process_bytes(&a), &bytes, &len), -E2BIG);
	assert_int_equal(take(agent_exec_bytes(&exec), &bytes, &len), -E2BIG);
}

static void data_is_split_into_frames(void **state)
{
	static const size_t sizes[] = {0, 1, 65536, 65537, 200000};

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		uint8_t *data = malloc(sizes[i] + 1), *bytes;
		size_t len, at = 0, seen = 0;

		for (size_t j = 0; j < sizes[i]; j++)
			data[j] = (uint8_t)(j * 3);
		assert_int_equal(take(agent_data_bytes(data, sizes[i]), &bytes, &len), 0);
		while (at < len) {
			struct wire w = wire_from(bytes + at, len - at);
			uint32_t size = wire_get_u32(&w);

			assert_int_equal(bytes[at + 4], AGENT_DATA);
			assert_true(size > 0 && size <= AGENT_PAYLOAD_MAX);
			assert_memory_equal(bytes + at + AGENT_HEADER_SIZE, data + seen, size);
			seen += size;
			at += AGENT_HEADER_SIZE + size;
		}
		assert_int_equal(seen, sizes[i]);
		free(bytes);
		free(data);
	}
}

/* --- answers -------------------------------------------------------------------------------- */

static uint8_t buf[AGENT_HEADER_SIZE + AGENT_PAYLOAD_MAX];
static struct agent_frame got;

static ssize_t read_back(uint8_t type, struct wire *body)
{
	struct wire w = wire_on(buf, AGENT_HEADER_SIZE);
	struct err e;

	wire_put_u32(&w, (uint32_t)body->pos);
	wire_put_u8(&w, type);
	wire_put_u8(&w, 0);
	wire_put_u16(&w, 0);
	return agent_frame_read(buf, AGENT_HEADER_SIZE + body->pos, &got, &e);
}

static struct wire body_on(void)
{
	return wire_on(buf + AGENT_HEADER_SIZE, AGENT_PAYLOAD_MAX);
}

static ssize_t file(const char *name, size_t name_len, uint32_t mode, uint64_t size,
		    const char *target, size_t target_len)
{
	struct wire w = body_on();

	wire_put_str(&w, name, name_len);
	wire_put_u32(&w, mode);
	wire_put_u32(&w, 10);
	wire_put_u32(&w, 20);
	wire_put_u64(&w, size);
	wire_put_u64(&w, (uint64_t)-5);
	wire_put_str(&w, target, target_len);
	return read_back(AGENT_FILE, &w);
}

static void file_entries_are_read(void **state)
{
	assert_true(file("a\xff", 2, S_IFREG | 0644, INT64_MAX, "", 0) > 0);
	assert_true(got.file.name_len == 2 && !memcmp(got.file.name, "a\xff", 2));
	assert_true(got.file.mode == (S_IFREG | 0644) && got.file.size == INT64_MAX);
	assert_true(got.file.uid == 10 && got.file.gid == 20 && got.file.mtime_ns == -5);
	assert_true(file("l", 1, S_IFLNK | 0777, 0, "../x", 4) > 0);
	assert_true(got.file.target_len == 4 && !memcmp(got.file.target, "../x", 4));
	assert_true(file("d", 1, S_IFDIR | 0755, 0, "", 0) > 0);
}

static void inconsistent_file_entries_are_refused(void **state)
{
	char name[AGENT_PATH_MAX + 1] = {0};

	memset(name, 'a', sizeof(name));
	assert_true(file(name, AGENT_PATH_MAX, S_IFREG, 0, "", 0) > 0);
	assert_int_equal(file(name, AGENT_PATH_MAX + 1, S_IFREG, 0, "", 0), -EPROTO);
	assert_int_equal(file("", 0, S_IFREG, 0, "", 0), -EPROTO);
	assert_int_equal(file("a\0b", 3, S_IFREG, 0, "", 0), -EPROTO);
	assert_int_equal(file("a", 1, S_IFREG, 1ull << 63, "", 0), -EPROTO);
	assert_int_equal(file("a", 1, S_IFDIR, 1, "", 0), -EPROTO);
	assert_int_equal(file("a", 1, S_IFREG, 0, "x", 1), -EPROTO);
	assert_int_equal(file("a", 1, S_IFLNK, 0, "a\0b", 3), -EPROTO);
	assert_int_equal(file("a", 1, S_IFLNK, 0, name, AGENT_PATH_MAX + 1), -EPROTO);
}

static ssize_t node(size_t name_len, const char *user, size_t user_len, size_t group_len)
{
	static char name[AGENT_NAME_MAX + 1];
	struct wire w = body_on();

	memset(name, 'n', sizeof(name));
	wire_put_str(&w, name, name_len);
	wire_put_u32(&w, S_IFREG | 0644);
	wire_put_u32(&w, 1);
	wire_put_u32(&w, 2);
	wire_put_u64(&w, 3);
	wire_put_u64(&w, 4);
	wire_put_str(&w, "", 0);
	wire_put_str(&w, user, user_len);
	wire_put_str(&w, name, group_len);
	return read_back(AGENT_NODE, &w);
}

static void nodes_have_names_of_owners(void **state)
{
	assert_true(node(AGENT_NAME_MAX, "me", 2, AGENT_OWNER_MAX) > 0);
	assert_int_equal(got.file.name_len, AGENT_NAME_MAX);
	assert_true(got.file.user_len == 2 && !memcmp(got.file.user, "me", 2));
	assert_int_equal(got.file.group_len, AGENT_OWNER_MAX);
	assert_true(node(1, "", 0, 0) > 0 && !got.file.user_len && !got.file.group_len);
	assert_int_equal(node(AGENT_NAME_MAX + 1, "", 0, 0), -EPROTO);
	assert_int_equal(node(0, "", 0, 0), -EPROTO);
	assert_int_equal(node(1, "a\0b", 3, 0), -EPROTO);
	assert_int_equal(node(1, "", 0, AGENT_OWNER_MAX + 1), -EPROTO);
}

static ssize_t change(uint8_t type, uint8_t folder, const char *path, const char *to)
{
	struct wire w = body_on();

	wire_put_u8(&w, type);
	wire_put_u8(&w, folder);
	wire_put_str(&w, path, strlen(path));
	wire_put_str(&w, to, strlen(to));
	return read_back(AGENT_EVENT, &w);
}

static void events_are_read(void **state)
{
	char path[AGENT_PATH_MAX + 2] = "/";
	struct wire w;

	assert_true(change(AGENT_RENAMED, 1, "/a", "/b\xff") > 0);
	assert_true(got.change.type == AGENT_RENAMED && got.change.folder);
	assert_true(got.change.path_len == 2 && !memcmp(got.change.path, "/a", 2));
	assert_true(got.change.to_len == 3 && !memcmp(got.change.to, "/b\xff", 3));
	for (uint8_t type = 0; type < 8; type++)
		assert_true((change(type, 0, "/a", "") > 0) ==
			    (type <= AGENT_OVERFLOW && type != AGENT_RENAMED));
	assert_int_equal(change(AGENT_WRITTEN, 0, "/a", "/b"), -EPROTO);
	assert_int_equal(change(AGENT_RENAMED, 0, "/a", "b"), -EPROTO);
	assert_int_equal(change(AGENT_WRITTEN, 2, "/a", ""), -EPROTO);
	assert_int_equal(change(AGENT_WRITTEN, 0, "a", ""), -EPROTO);
	assert_int_equal(change(AGENT_WRITTEN, 0, "", ""), -EPROTO);
	memset(path + 1, 'a', AGENT_PATH_MAX);
	assert_int_equal(change(AGENT_WRITTEN, 0, path, ""), -EPROTO);
	path[AGENT_PATH_MAX] = '\0';
	assert_true(change(AGENT_WRITTEN, 0, path, "") > 0);
	w = body_on();
	wire_put_u8(&w, AGENT_WRITTEN);
	wire_put_u8(&w, 0);
	wire_put_str(&w, "/a\0", 3);
	wire_put_str(&w, "", 0);
	assert_int_equal(read_back(AGENT_EVENT, &w), -EPROTO);
}

static ssize_t result(uint8_t type, const char *payload, size_t len)
{
	struct wire w = body_on();

	wire_put_bytes(&w, payload, len);
	return read_back(type, &w);
}

static void results_are_read(void **state)
{
	assert_true(result(AGENT_BUNDLE, "any\0thing", 9) > 0);
	assert_int_equal(got.len, 9);
	assert_memory_equal(got.data, "any\0thing", 9);
	for (char end = AGENT_RESULT_SHOWN; end <= AGENT_RESULT_DROPPED; end++) {
		assert_true(result(AGENT_RESULT, &end, 1) > 0);
		assert_int_equal(got.len, 1);
		assert_int_equal(got.data[0], end);
	}
	assert_true(result(AGENT_FAULT, "\0", 1) > 0);
	assert_int_equal(result(AGENT_RESULT, "\3", 1), -EPROTO);
	assert_int_equal(result(AGENT_RESULT, "", 0), -EPROTO);
	assert_int_equal(result(AGENT_RESULT, "\0\0", 2), -EPROTO);
	assert_int_equal(result(AGENT_FAULT, "\1", 1), -EPROTO);
}

static void flags_of_a_call_are_sent(void **state)
{
	for (int i = 0; i < 4; i++) {
		const struct agent_exec exec = {.code = "",
						.results = i & AGENT_EXEC_RESULTS,
						.prepares = i & AGENT_EXEC_PREPARES};
		uint8_t *bytes;
		size_t len;

		assert_int_equal(take(agent_exec_bytes(&exec), &bytes, &len), 0);
		assert_int_equal(bytes[AGENT_HEADER_SIZE + 1], i);
		free(bytes);
	}
}

static ssize_t process(const char *id, size_t label_len, size_t user_len, uint8_t signal)
{
	static const char text[AGENT_LABEL_MAX + 1];
	struct wire w = body_on();

	wire_put_str(&w, id, strlen(id));
	wire_put_str(&w, text, label_len);
	wire_put_str(&w, text, user_len);
	wire_put_u32(&w, 412);
	wire_put_u64(&w, 1700000000123);
	wire_put_u64(&w, 1700000000999);
	wire_put_u64(&w, 11);
	wire_put_u8(&w, AGENT_PROC_TTY);
	wire_put_u32(&w, 137);
	wire_put_u8(&w, signal);
	return read_back(AGENT_PROC, &w);
}

static void processes_are_read(void **state)
{
	static const char *const bad[] = {"",
					  "prc_",
					  "pty_0123456789abcdef0123456789abcde",
					  "pty_0123456789abcdef0123456789abcdefa",
					  "pty_0123456789ABCDEF0123456789abcdef",
					  CTX};
	const char *prc = "prc_0123456789abcdef0123456789abcdef";

	assert_true(process(PTY, 0, 0, 0) > 0);
	assert_true(process(prc, AGENT_LABEL_MAX, AGENT_USER_MAX, 64) > 0);
	assert_memory_equal(got.process.id, prc, AGENT_ID_LEN);
	assert_true(got.process.pid == 412 && got.process.total == 11);
	assert_true(got.process.started_ms == 1700000000123);
	assert_true(got.process.ended_ms == 1700000000999);
	assert_true(got.process.flags == AGENT_PROC_TTY && got.process.exit_code == 137);
	assert_int_equal(got.process.signal, 64);
	assert_int_equal(process(prc, AGENT_LABEL_MAX + 1, 0, 0), -EPROTO);
	assert_int_equal(process(prc, 0, AGENT_USER_MAX + 1, 0), -EPROTO);
	assert_int_equal(process(prc, 0, 0, 65), -EPROTO);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(process(bad[i], 0, 0, 0), -EPROTO);
}

static ssize_t process_output(uint64_t offset, uint8_t stream, const char *text)
{
	struct wire w = body_on();

	wire_put_u64(&w, offset);
	wire_put_u8(&w, stream);
	wire_put_bytes(&w, text, strlen(text));
	return read_back(AGENT_PROC_BYTES, &w);
}

static void output_of_processes_is_read(void **state)
{
	struct wire w = body_on();

	assert_true(process_output(7, 2, "hello") > 0);
	assert_true(got.place == 7 && got.stream == 2 && got.len == 5);
	assert_memory_equal(got.data, "hello", 5);
	assert_true(process_output(UINT64_MAX - 1, 1, "x") > 0);
	assert_int_equal(process_output(7, 0, "hello"), -EPROTO);
	assert_int_equal(process_output(7, 3, "hello"), -EPROTO);
	assert_int_equal(process_output(UINT64_MAX - 1, 1, "xy"), -EPROTO);
	wire_put_u64(&w, 5);
	assert_int_equal(read_back(AGENT_PROC_BYTES, &w), -EPROTO);
}

static ssize_t process_exit(uint8_t signal)
{
	struct wire w = body_on();

	wire_put_u32(&w, 143);
	wire_put_u8(&w, signal);
	wire_put_u8(&w, 1);
	wire_put_u64(&w, 1700000000123);
	wire_put_u64(&w, 11);
	return read_back(AGENT_PROC_EXIT, &w);
}

static void ends_of_processes_are_read(void **state)
{
	assert_true(process_exit(15) > 0);
	assert_true(got.exit_code == 143 && got.exit.signal == 15 && got.exit.timed_out);
	assert_true(got.exit.ended_ms == 1700000000123 && got.exit.total == 11);
	assert_int_equal(process_exit(65), -EPROTO);
}

static void ask_context(uint8_t *bytes, size_t len, struct context_request *out)
{
	struct err e = {0};
	struct frame f = one(bytes, len);

	if (context_request_parse(&f, out, &e) < 0)
		fail_msg("request of type %d: %s", f.type, e.text);
}

static void context_requests_are_encoded(void **state)
{
	const char *const env[] = {"A=1", "B=", NULL}, *const more[] = {"C=x=y", NULL};
	const struct agent_context_request asks[] = {
		{.type = AGENT_CONTEXT_START,
		 .id = CTX,
		 .language = AGENT_JAVASCRIPT,
		 .cwd = "/tmp",
		 .env = {env, more}},
		{.type = AGENT_CONTEXT_START, .id = CTX},
		{.type = AGENT_CONTEXT_END, .id = CTX},
		{.type = AGENT_CONTEXT_RESTART, .id = CTX},
		{.type = AGENT_CONTEXT_LIST},
	};
	struct context_request r;
	uint8_t *bytes;
	size_t len;

	for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
		assert_int_equal(take(agent_context_bytes(&asks[i]), &bytes, &len), 0);
		ask_context(bytes, len, &r);
		assert_int_equal(r.type, asks[i].type);
		assert_string_equal(r.id, asks[i].id ? asks[i].id : "");
		assert_string_equal(r.cwd, asks[i].cwd ? asks[i].cwd : "");
		assert_int_equal(r.language, asks[i].language);
		assert_int_equal(r.env_count, i ? 0 : 3);
		free(bytes);
	}
}

static void requests_in_contexts_are_encoded(void **state)
{
	const struct agent_exec exec = {.context = CTX,
					.timeout_ms = 5,
					.call = 6,
					.code = "pwd",
					.code_len = 3,
					.cwd = "/"};
	struct context_request r;
	struct exec_request x;
	struct attach_request a;
	struct err e = {0};
	uint8_t *bytes;
	uint64_t call;
	size_t len;

	assert_int_equal(take(agent_exec_bytes(&exec), &bytes, &len), 0);
	assert_memory_equal(bytes + len - 3, "pwd", 3);
	ask_context(bytes, len - 3 - AGENT_HEADER_SIZE, &r);
	assert_int_equal(r.inner.type, AGENT_EXEC);
	assert_int_equal(exec_parse(&r.inner, &x, &e), 0);
	assert_true(x.timeout_ms == 5 && x.call == 6 && x.code_len == 3);
	free(bytes);
	assert_int_equal(take(agent_attach_bytes(CTX, 7, 8), &bytes, &len), 0);
	ask_context(bytes, len, &r);
	assert_int_equal(r.inner.type, AGENT_ATTACH);
	assert_int_equal(attach_parse(&r.inner, &a, &e), 0);
	assert_true(a.call == 7 && a.have == 8);
	free(bytes);
	assert_int_equal(take(agent_interrupt_bytes(CTX, 9), &bytes, &len), 0);
	ask_context(bytes, len, &r);
	assert_int_equal(r.inner.type, AGENT_INTERRUPT);
	assert_int_equal(interrupt_parse(&r.inner, &call, &e), 0);
	assert_int_equal(call, 9);
	free(bytes);
	assert_int_equal(take(agent_interrupt_bytes(NULL, 0), &bytes, &len), 0);
	assert_int_equal(bytes[4], AGENT_INTERRUPT);
	assert_int_equal(len, AGENT_HEADER_SIZE + 8);
	free(bytes);
}

static ssize_t context_entry(const char *id, uint8_t language, const char *cwd, size_t cwd_len)
{
	struct wire w = body_on();

	wire_put_str(&w, id, strlen(id));
	wire_put_u8(&w, language);
	wire_put_u8(&w, 1);
	wire_put_u64(&w, 1700000000123);
	wire_put_str(&w, cwd, cwd_len);
	return read_back(AGENT_CONTEXT, &w);
}

static void contexts_are_read(void **state)
{
	assert_true(context_entry(CTX, AGENT_BASH, "/tmp", 4) > 0);
	assert_memory_equal(got.context.id, CTX, AGENT_ID_LEN);
	assert_true(got.context.language == AGENT_BASH && got.context.busy);
	assert_int_equal(got.context.started_ms, 1700000000123);
	assert_int_equal(got.context.cwd_len, 4);
	assert_true(context_entry(CTX, AGENT_JAVASCRIPT, "", 0) > 0);
	assert_int_equal(context_entry(CTX, AGENT_JAVASCRIPT + 1, "", 0), -EPROTO);
	assert_int_equal(context_entry(PTY, AGENT_BASH, "", 0), -EPROTO);
	assert_int_equal(context_entry("ctx_", AGENT_BASH, "", 0), -EPROTO);
	assert_int_equal(context_entry(CTX, AGENT_BASH, "/a\0b", 4), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_requests_are_encoded),
		cmocka_unit_test(longest_path_is_encoded),
		cmocka_unit_test(longest_name_in_a_list_is_encoded),
		cmocka_unit_test(process_requests_are_encoded),
		cmocka_unit_test(processes_are_read),
		cmocka_unit_test(output_of_processes_is_read),
		cmocka_unit_test(ends_of_processes_are_read),
		cmocka_unit_test(context_requests_are_encoded),
		cmocka_unit_test(requests_in_contexts_are_encoded),
		cmocka_unit_test(contexts_are_read),
		cmocka_unit_test(start_over_a_frame_is_refused),
		cmocka_unit_test(too_many_variables_are_refused),
		cmocka_unit_test(data_is_split_into_frames),
		cmocka_unit_test(file_entries_are_read),
		cmocka_unit_test(inconsistent_file_entries_are_refused),
		cmocka_unit_test(results_are_read),
		cmocka_unit_test(flags_of_a_call_are_sent),
		cmocka_unit_test(nodes_have_names_of_owners),
		cmocka_unit_test(events_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
