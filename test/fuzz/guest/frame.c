// SPDX-License-Identifier: Apache-2.0
/* Parses a stream of bytes from the host or from the user's Python process, as the agent does. */
#include <stdlib.h>
#include <string.h>

#include "guest/exec/context-request.h"
#include "guest/files/file-request.h"
#include "guest/process/process-request.h"
#include "proto/agent-file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void parse_file(const struct frame *f)
{
	struct file_request r;
	struct err e;

	if (!agent_file_is(f->type) || file_request_parse(f, &r, &e) < 0)
		return;
	must(r.mode <= 07777 && strlen(r.path) <= AGENT_PATH_MAX);
	must(r.path[0] == '/' || r.path[0] == '\0');
	must(r.depth <= AGENT_DEPTH_MAX && strlen(r.after) <= AGENT_NAME_MAX);
	must(r.how <= AGENT_WRITE_APPEND);
}

/* Iterates over the strings as the started process does. */
static void parse_process(const struct frame *f)
{
	struct wire w = wire_from(f->payload, f->len);
	struct process_request r;
	struct err e;
	size_t len;

	if (!process_request_is(f->type) || process_request_parse(f, &r, &e) < 0)
		return;
	must(strlen(r.id) == AGENT_ID_LEN && r.rest <= f->len);
	must(f->type != AGENT_PROC_SIGNAL || (r.signal && r.signal <= SIGNAL_MAX));
	must(f->type != AGENT_PROC_RESIZE || (r.cols && r.rows));
	if (f->type != AGENT_PROC_START)
		return;
	must(!(r.flags & AGENT_PROC_TTY) == !r.cols && !r.cols == !r.rows && r.argc);
	must(strlen(r.label) <= AGENT_LABEL_MAX && strlen(r.user) <= AGENT_USER_MAX);
	w.pos = r.args;
	for (uint32_t i = 0; i < r.argc; i++)
		must(wire_get_str(&w, &len, AGENT_PAYLOAD_MAX) != NULL);
	w.pos = r.variables;
	for (uint32_t i = 0; i < 2 * r.env; i++)
		must(wire_get_str(&w, &len, AGENT_PAYLOAD_MAX) != NULL);
	must(!w.bad && w.pos == f->len);
}

static void parse_context(const struct frame *f)
{
	struct wire w = wire_from(f->payload, f->len);
	struct context_request r;
	struct err e;
	size_t len;

	if (!context_request_is(f->type) || context_request_parse(f, &r, &e) < 0)
		return;
	must(strlen(r.id) == (f->type == AGENT_CONTEXT_LIST ? 0 : AGENT_ID_LEN));
	must(!strchr(r.id, '/') && strlen(r.cwd) <= AGENT_PATH_MAX);
	must(f->type != AGENT_IN_CONTEXT || r.inner.payload + r.inner.len == f->payload + f->len);
	if (f->type != AGENT_CONTEXT_START)
		return;
	w.pos = r.env;
	for (uint32_t i = 0; i < 2 * r.env_count; i++)
		must(wire_get_str(&w, &len, AGENT_PAYLOAD_MAX) != NULL);
	must(!w.bad && w.pos == f->len);
}

/* Parses an exact-size copy of the payload, so that ASan detects a read beyond its end. */
static void parse(const struct frame *f)
{
	struct exec_request exec;
	struct reseed_request reseed;
	struct attach_request attach;
	struct tree_request tree;
	uint16_t port;
	uint64_t call;
	struct err e;
	uint8_t *copy = malloc(f->len ? f->len : 1);
	const struct frame exact = {.type = f->type, .len = f->len, .payload = copy};

	must(copy != NULL);
	memcpy(copy, f->payload, f->len);
	if (exec_parse(&exact, &exec, &e) == 0)
		must(exec.code_len <= AGENT_CODE_MAX && exec.language <= AGENT_BASH);
	if (reseed_parse(&exact, &reseed, &e) == 0)
		must(strlen(reseed.hostname) <= HOST_NAME_LEN && reseed.realtime_ns >= 0);
	must((attach_parse(&exact, &attach, &e) == 0) == (f->len == 16));
	must((interrupt_parse(&exact, &call, &e) == 0) == (f->len == 8));
	if (tree_parse(&exact, &tree, &e) == 0)
		for (uint32_t i = 0; i < tree.count; i++)
			must(tree.paths[i].len <= AGENT_PATH_MAX && tree.paths[i].text[0] == '/' &&
			     !memchr(tree.paths[i].text, 0, tree.paths[i].len));
	parse_file(&exact);
	parse_process(&exact);
	if (dial_parse(&exact, &port, &e) == 0)
		must(port != 0 && f->len == 2);
	parse_context(&exact);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct frame_in in;
	struct frame f;
	struct err e;
	int got = 0;

	frame_reset(&in);
	while (size && got >= 0) {
		size_t n = frame_room(&in) < size ? frame_room(&in) : size;
		must(n && in.have + n <= FRAME_MAX);
		memcpy(frame_end(&in), data, n);
		data += n;
		size -= n;
		got = frame_got(&in, n, &f, &e);
		if (got > 0) {
			parse(&f);
			frame_reset(&in);
		}
	}
	return 0;
}
