// SPDX-License-Identifier: Apache-2.0
/*
 * Parses the frames that a compromised guest may send as its agent, and splits the output in them
 * into events. The first byte chooses lines or chunks, and how many bytes are read at a time.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "orchestrator/agent/agent.h"
#include "orchestrator/exec/bundle.h"
#include "orchestrator/exec/splitter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct flow {
	size_t in, out;
	bool lines;
};

static void expect(bool right)
{
	if (!right)
		abort();
}

static void on_chunk(void *arg, const uint8_t *data, size_t len, bool partial)
{
	struct flow *flow = arg;

	flow->out += len;
	expect(!flow->lines || len == 0 || !memchr(data, '\n', len));
	expect(flow->lines || len > 0);
}

static uint8_t last[AGENT_PAYLOAD_MAX]; /* path of the previous entry */
static size_t last_len;

/* Compares the entry with the previous one, as a diff of two trees does. */
static void use_entry(const struct agent_entry *n)
{
	int order = agent_path_order(last, last_len, n->path, n->path_len);

	expect(n->path_len && n->path[0] == '/' && n->content_len <= AGENT_PATH_MAX);
	expect(n->content_len == 0 || (S_ISREG(n->mode) && n->content_len == AGENT_HASH_LEN) ||
	       S_ISLNK(n->mode));
	expect((order < 0) == (agent_path_order(n->path, n->path_len, last, last_len) > 0));
	expect((order == 0) == (last_len == n->path_len && !memcmp(last, n->path, last_len)));
	memcpy(last, n->path, n->path_len);
	last_len = n->path_len;
}

static void use_file(const struct agent_file *f, size_t name_max)
{
	expect(f->name_len && f->name_len <= name_max && !memchr(f->name, 0, f->name_len));
	expect(f->target_len <= AGENT_PATH_MAX && (!f->target_len || S_ISLNK(f->mode)));
	expect(!f->target_len || !memchr(f->target, 0, f->target_len));
	expect(f->size <= INT64_MAX && (!f->size || S_ISREG(f->mode)));
}

static void use_node(const struct agent_file *f)
{
	use_file(f, AGENT_NAME_MAX);
	expect(f->user_len <= AGENT_OWNER_MAX && f->group_len <= AGENT_OWNER_MAX);
	expect(!memchr(f->user, 0, f->user_len) && !memchr(f->group, 0, f->group_len));
}

static void use_change(const struct agent_change *c)
{
	expect(c->type <= AGENT_OVERFLOW && c->path_len && c->path[0] == '/');
	expect(!memchr(c->path, 0, c->path_len) && c->path_len <= AGENT_PATH_MAX);
	expect((c->to_len > 0) == (c->type == AGENT_RENAMED) && c->to_len <= AGENT_PATH_MAX);
	expect(!c->to_len || (c->to[0] == '/' && !memchr(c->to, 0, c->to_len)));
}

static void use_process(const struct agent_process *p)
{
	expect(!memcmp(p->id, "pty_", 4) || !memcmp(p->id, "prc_", 4));
	expect(!memchr(p->id, 0, AGENT_ID_LEN) && p->signal <= 64);
	expect(p->label_len <= AGENT_LABEL_MAX && p->user_len <= AGENT_USER_MAX);
}

static void use_bundle(const uint8_t *data, size_t len)
{
	struct wire w = wire_from(data, len);
	struct bundle_entry n;
	size_t seen = 0;

	for (; bundle_next(&w, &n); seen++) {
		expect(n.name_len > 0 && n.name_len <= BUNDLE_NAME_MAX &&
		       !memchr(n.name, 0, n.name_len));
		expect(n.kind <= AGENT_BUNDLE_JSON && n.data + n.len <= data + len);
	}
	if (bundle_is_sound(data, len))
		expect(seen > 0 && !w.bad);
}

static void on_frame(const struct agent_frame *f, struct splitter *s, struct flow *flow)
{
	if (f->type == AGENT_ERROR)
		expect(f->len <= AGENT_PAYLOAD_MAX && (f->len == 0 || f->data));
	if (f->type == AGENT_ENTRY)
		use_entry(&f->entry);
	if (f->type == AGENT_FILE)
		use_file(&f->file, AGENT_PATH_MAX);
	if (f->type == AGENT_NODE)
		use_node(&f->file);
	if (f->type == AGENT_EVENT)
		use_change(&f->change);
	if (f->type == AGENT_PROC)
		use_process(&f->process);
	if (f->type == AGENT_PROC_EXIT)
		expect(f->exit.signal <= 64);
	if (f->type == AGENT_PROC_BYTES)
		expect(f->place + f->len >= f->place && f->len <= AGENT_PAYLOAD_MAX - 9 &&
		       (f->stream == 1 || f->stream == 2));
	if (f->type == AGENT_BYTES)
		expect(f->len <= AGENT_PAYLOAD_MAX);
	if (f->type == AGENT_BUNDLE)
		use_bundle(f->data, f->len);
	if (f->type == AGENT_RESULT || f->type == AGENT_FAULT)
		expect(f->len == 1 && f->data[0] <= AGENT_RESULT_DROPPED);
	if (f->type != AGENT_STDOUT && f->type != AGENT_STDERR)
		return;
	expect(f->len <= AGENT_PAYLOAD_MAX);
	flow->in += f->len;
	for (size_t i = 0; flow->lines && i < f->len; i++)
		flow->in -= f->data[i] == '\n';
	expect(splitter_feed(s, f->data, f->len, on_chunk, flow) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	struct flow flow = {.lines = data[0] & 1};
	struct splitter s = {.chunks = !flow.lines};
	size_t step = 1 + (data[0] >> 1), seen = 0, at = 0;
	struct agent_frame f;
	struct err e = {0};
	ssize_t took = 0;

	last_len = 0;
	data++;
	size--;
	while (took >= 0 && seen < size) {
		seen = size - seen < step ? size : seen + step;
		while ((took = agent_frame_read(data + at, seen - at, &f, &e)) > 0) {
			expect((size_t)took <= seen - at);
			at += (size_t)took;
			on_frame(&f, &s, &flow);
		}
	}
	expect(took >= 0 || e.text[0]);
	splitter_end(&s, on_chunk, &flow);
	expect(flow.in == flow.out);
	return 0;
}
