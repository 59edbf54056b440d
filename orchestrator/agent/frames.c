// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/random.h"
#include "base/wire.h"
#include "orchestrator/agent/agent.h"
#include "proto/agent-file.h"

#define SIGNAL_MAX 64
#define ENV_MAX	   1024 /* most variables that the guest's agent accepts in one request */
#define FIELDS_MAX 64	/* maximum size of all fields of a request besides its texts */

/* --- from the guest ------------------------------------------------------------------------- */

bool agent_path_is_plain(const uint8_t *path, size_t len, uint32_t depth)
{
	const uint8_t *at = path, *end = path + len;

	for (;; depth--) {
		const uint8_t *slash = memchr(at, '/', (size_t)(end - at));
		size_t part = (size_t)((slash ? slash : end) - at);

		if (!depth || !part || (at[0] == '.' && (part == 1 || (part == 2 && at[1] == '.'))))
			return false;
		if (!slash)
			return true;
		at = slash + 1;
	}
}

/* Returns true when the fields are consistent, as those of a real file are. */
static bool entry_is_sound(const struct agent_entry *n)
{
	if (!n->path_len || n->path[0] != '/' || memchr(n->path, 0, n->path_len))
		return false;
	if (S_ISREG(n->mode))
		return n->content_len == 0 || n->content_len == AGENT_HASH_LEN;
	if (S_ISLNK(n->mode))
		return n->size == 0 && !memchr(n->content, 0, n->content_len);
	bool device = S_ISCHR(n->mode) || S_ISBLK(n->mode);
	return n->content_len == 0 && (n->size == 0 || device);
}

static void read_entry(struct wire *w, struct agent_entry *n)
{
	n->path = wire_get_str(w, &n->path_len, AGENT_PAYLOAD_MAX);
	n->mode = wire_get_u32(w);
	n->uid = wire_get_u32(w);
	n->gid = wire_get_u32(w);
	n->size = wire_get_u64(w);
	n->content = wire_get_str(w, &n->content_len, AGENT_PATH_MAX);
	if (!w->bad && !entry_is_sound(n))
		w->bad = true;
}

static void read_file(struct wire *w, struct agent_file *f, size_t name_max)
{
	f->name = wire_get_str(w, &f->name_len, name_max);
	f->mode = wire_get_u32(w);
	f->uid = wire_get_u32(w);
	f->gid = wire_get_u32(w);
	f->size = wire_get_u64(w);
	f->mtime_ns = (int64_t)wire_get_u64(w);
	f->target = wire_get_str(w, &f->target_len, AGENT_PATH_MAX);
	if (w->bad)
		return;
	w->bad = !f->name_len || memchr(f->name, 0, f->name_len) ||
		 (f->size && !S_ISREG(f->mode)) || f->size > INT64_MAX ||
		 (f->target_len && (!S_ISLNK(f->mode) || memchr(f->target, 0, f->target_len)));
}

static void read_node(struct wire *w, struct agent_file *f)
{
	read_file(w, f, AGENT_NAME_MAX);
	f->user = wire_get_str(w, &f->user_len, AGENT_OWNER_MAX);
	f->group = wire_get_str(w, &f->group_len, AGENT_OWNER_MAX);
	if (!w->bad)
		w->bad = memchr(f->user, 0, f->user_len) || memchr(f->group, 0, f->group_len);
}

static bool is_path(const uint8_t *path, size_t len)
{
	return len && path[0] == '/' && !memchr(path, 0, len);
}

static void read_change(struct wire *w, struct agent_change *c)
{
	uint8_t type = wire_get_u8(w), folder = wire_get_u8(w);

	c->path = wire_get_str(w, &c->path_len, AGENT_PATH_MAX);
	c->to = wire_get_str(w, &c->to_len, AGENT_PATH_MAX);
	c->type = type;
	c->folder = folder;
	if (w->bad)
		return;
	bool to_fits = type == AGENT_RENAMED ? is_path(c->to, c->to_len) : !c->to_len;
	w->bad = type > AGENT_OVERFLOW || folder > 1 || !is_path(c->path, c->path_len) || !to_fits;
}

static void read_process(struct wire *w, struct agent_process *p)
{
	size_t id_len;

	p->id = wire_get_str(w, &id_len, AGENT_ID_LEN);
	p->label = wire_get_str(w, &p->label_len, AGENT_LABEL_MAX);
	p->user = wire_get_str(w, &p->user_len, AGENT_USER_MAX);
	p->pid = wire_get_u32(w);
	p->started_ms = (int64_t)wire_get_u64(w);
	p->ended_ms = (int64_t)wire_get_u64(w);
	p->total = wire_get_u64(w);
	p->flags = wire_get_u8(w);
	p->exit_code = (int32_t)wire_get_u32(w);
	p->signal = wire_get_u8(w);
	if (w->bad)
		return;
	w->bad = p->signal > SIGNAL_MAX ||
		 !(id_valid("prc_", p->id, id_len) || id_valid("pty_", p->id, id_len));
}

static void read_process_exit(struct wire *w, struct agent_frame *f)
{
	f->exit_code = (int32_t)wire_get_u32(w);
	f->exit.signal = wire_get_u8(w);
	f->exit.timed_out = wire_get_u8(w) != 0;
	f->exit.ended_ms = (int64_t)wire_get_u64(w);
	f->exit.total = wire_get_u64(w);
	if (f->exit.signal > SIGNAL_MAX)
		w->bad = true;
}

static void read_context(struct wire *w, struct agent_context *x)
{
	size_t id_len;

	x->id = wire_get_str(w, &id_len, AGENT_ID_LEN);
	uint8_t language = wire_get_u8(w);
	x->busy = wire_get_u8(w) != 0;
	x->started_ms = (int64_t)wire_get_u64(w);
	x->cwd = wire_get_str(w, &x->cwd_len, AGENT_PATH_MAX);
	if (w->bad)
		return;
	x->language = language;
	w->bad = !id_valid("ctx_", x->id, id_len) || language > AGENT_JAVASCRIPT ||
		 memchr(x->cwd, 0, x->cwd_len);
}

/* Reads the rest of the payload. */
static void read_rest(struct wire *w, struct agent_frame *f)
{
	f->data = w->p + w->pos;
	f->len = wire_left(w);
	w->pos = w->size;
}

static void read_output(struct wire *w, struct agent_frame *f)
{
	f->place = wire_get_u64(w);
	f->stream = wire_get_u8(w);
	read_rest(w, f);
	if (f->place > UINT64_MAX - f->len || (f->stream != 1 && f->stream != 2))
		w->bad = true;
}

static bool read_payload(struct wire *w, struct agent_frame *f)
{
	switch (f->type) {
	case AGENT_PONG:
		f->version = wire_get_u32(w);
		break;
	case AGENT_STDOUT:
	case AGENT_STDERR:
	case AGENT_BYTES:
	case AGENT_BUNDLE:
		read_rest(w, f);
		break;
	case AGENT_RESULT:
	case AGENT_FAULT:
		read_rest(w, f);
		if (f->len != 1 ||
		    f->data[0] > (f->type == AGENT_RESULT ? AGENT_RESULT_DROPPED : 0))
			w->bad = true;
		break;
	case AGENT_EXIT:
		f->exit_code = (int32_t)wire_get_u32(w);
		wire_get_u8(w); /* whether the state was lost */
		break;
	case AGENT_DONE:
		break;
	case AGENT_ERROR:
		f->errnum = wire_get_u32(w);
		f->data = wire_get_str(w, &f->len, AGENT_PAYLOAD_MAX);
		break;
	case AGENT_ENTRY:
		read_entry(w, &f->entry);
		break;
	case AGENT_FILE:
		read_file(w, &f->file, AGENT_PATH_MAX);
		break;
	case AGENT_NODE:
		read_node(w, &f->file);
		break;
	case AGENT_EVENT:
		read_change(w, &f->change);
		break;
	case AGENT_PROC_BYTES:
		read_output(w, f);
		break;
	case AGENT_PROC:
		read_process(w, &f->process);
		break;
	case AGENT_PROC_EXIT:
		read_process_exit(w, f);
		break;
	case AGENT_CONTEXT:
		read_context(w, &f->context);
		break;
	default:
		return false;
	}
	return !w->bad && wire_left(w) == 0;
}

ssize_t agent_frame_read(const uint8_t *buf, size_t len, struct agent_frame *out, struct err *e)
{
	struct wire head = wire_from(buf, len);

	if (len < AGENT_HEADER_SIZE)
		return 0;
	uint32_t size = wire_get_u32(&head);
	uint8_t type = wire_get_u8(&head), zero8 = wire_get_u8(&head);
	uint16_t zero16 = wire_get_u16(&head);
	if (size > AGENT_PAYLOAD_MAX || zero8 || zero16)
		return err_say(e, EPROTO,
			       "the guest's agent sent a frame with an invalid header (type %u, %u "
			       "bytes, reserved %x and %x)",
			       type, size, zero8, zero16);
	if (len - AGENT_HEADER_SIZE < size)
		return 0;
	*out = (struct agent_frame){.type = type};
	struct wire body = wire_from(buf + AGENT_HEADER_SIZE, size);
	if (!read_payload(&body, out))
		return err_say(e, EPROTO, "the guest's agent sent an invalid frame of type %u",
			       type);
	return (ssize_t)(AGENT_HEADER_SIZE + size);
}

/* --- to the guest --------------------------------------------------------------------------- */

static void put_header(struct wire *w, size_t len, enum agent_request type)
{
	wire_put_u32(w, (uint32_t)len);
	wire_put_u8(w, (uint8_t)type);
	wire_put_u8(w, 0);
	wire_put_u16(w, 0);
}

static void put_text(struct wire *w, const char *text)
{
	wire_put_str(w, text, text ? strlen(text) : 0);
}

/* Returns the maximum of bytes that these variables take. */
static size_t envs_size(const char *const *const envs[2])
{
	size_t size = 0;

	for (int i = 0; i < 2; i++)
		for (const char *const *env = envs[i]; env && *env; env++)
			size += 2 * sizeof(uint32_t) + strlen(*env);
	return size;
}

/* The "=" is not sent. */
static void put_envs(struct wire *w, const char *const *const envs[2])
{
	struct wire count_at = *w;
	uint32_t count = 0;

	wire_put_u32(w, 0);
	for (int i = 0; i < 2; i++)
		for (const char *const *env = envs[i]; env && *env; env++, count++) {
			size_t name = strcspn(*env, "=");

			wire_put_str(w, *env, name);
			put_text(w, *env + name + ((*env)[name] == '='));
		}
	wire_put_u32(&count_at, count);
	w->bad = w->bad || count > ENV_MAX;
}

static size_t parts_size(size_t len)
{
	return (len + AGENT_PAYLOAD_MAX - 1) / AGENT_PAYLOAD_MAX * AGENT_HEADER_SIZE + len;
}

/* Writes the bytes in as many frames of the type as they need. */
static void put_parts(struct wire *w, enum agent_request type, const void *data, size_t len)
{
	const uint8_t *at = data;

	while (len) {
		size_t part = len < AGENT_PAYLOAD_MAX ? len : AGENT_PAYLOAD_MAX;

		put_header(w, part, type);
		wire_put_bytes(w, at, part);
		at += part;
		len -= part;
	}
}

/* Starts a request, perhaps in a context, with `room` for its payload. The puts do nothing when out
 * of memory. */
static struct wire request_new(const char *context, enum agent_request type, size_t room)
{
	size_t size = AGENT_HEADER_SIZE + (context ? 4 + strlen(context) + 1 : 0) + room;
	struct wire w = wire_on(malloc(size), size);

	w.bad = !w.p;
	put_header(&w, 0, context ? AGENT_IN_CONTEXT : type);
	if (!context)
		return w;
	put_text(&w, context);
	wire_put_u8(&w, (uint8_t)type);
	return w;
}

/* Ends the request's first frame. */
static void end_frame(struct wire *w)
{
	struct wire head = wire_on(w->p, AGENT_HEADER_SIZE);
	size_t len = w->pos - AGENT_HEADER_SIZE;

	if (!w->bad && len <= AGENT_PAYLOAD_MAX)
		wire_put_u32(&head, (uint32_t)len);
	else
		w->bad = true;
}

/* Hands the request over; frees it if it is too large. */
static struct agent_bytes take_request(struct wire *w)
{
	if (!w->bad)
		return (struct agent_bytes){.p = w->p, .len = w->pos};
	int error = w->p ? -E2BIG : -ENOMEM;
	free(w->p);
	return (struct agent_bytes){.error = error};
}

/* Hands over a request that is a single frame. */
static struct agent_bytes take_frame(struct wire *w)
{
	end_frame(w);
	return take_request(w);
}

struct agent_bytes agent_exec_bytes(const struct agent_exec *exec)
{
	size_t room = FIELDS_MAX + (exec->cwd ? strlen(exec->cwd) : 0) + envs_size(exec->env);

	if (exec->code_len > AGENT_CODE_MAX)
		return (struct agent_bytes){.error = -E2BIG};
	struct wire w = request_new(exec->context, AGENT_EXEC, room + parts_size(exec->code_len));
	wire_put_u8(&w, (uint8_t)exec->language);
	wire_put_u8(&w, (exec->results ? AGENT_EXEC_RESULTS : 0) |
				(exec->prepares ? AGENT_EXEC_PREPARES : 0));
	wire_put_u32(&w, exec->timeout_ms);
	wire_put_u32(&w, (uint32_t)exec->code_len);
	wire_put_u64(&w, exec->call);
	put_text(&w, exec->cwd);
	put_envs(&w, exec->env);
	end_frame(&w);
	put_parts(&w, AGENT_CODE, exec->code, exec->code_len);
	return take_request(&w);
}

struct agent_bytes agent_plain_bytes(enum agent_request type)
{
	struct wire w = request_new(NULL, type, 0);

	return take_frame(&w);
}

struct agent_bytes agent_grow_bytes(uint64_t disk_bytes)
{
	const struct agent_file_request r = {.type = AGENT_GROW, .size = disk_bytes};

	return agent_file_bytes(&r);
}

struct agent_bytes agent_reseed_bytes(const uint8_t entropy[AGENT_ENTROPY_LEN], int64_t realtime_ns,
				      bool user_generators, const char *hostname)
{
	size_t room = FIELDS_MAX + AGENT_ENTROPY_LEN + strlen(hostname);
	struct wire w = request_new(NULL, AGENT_RESEED, room);

	wire_put_bytes(&w, entropy, AGENT_ENTROPY_LEN);
	wire_put_u64(&w, (uint64_t)realtime_ns);
	wire_put_u8(&w, user_generators);
	put_text(&w, hostname);
	return take_frame(&w);
}

struct agent_bytes agent_interrupt_bytes(const char *context, uint64_t call)
{
	struct wire w = request_new(context, AGENT_INTERRUPT, FIELDS_MAX);

	wire_put_u64(&w, call);
	return take_frame(&w);
}

struct agent_bytes agent_attach_bytes(const char *context, uint64_t call, uint64_t have)
{
	struct wire w = request_new(context, AGENT_ATTACH, FIELDS_MAX);

	wire_put_u64(&w, call);
	wire_put_u64(&w, have);
	return take_frame(&w);
}

struct agent_bytes agent_tree_bytes(const char *const *paths)
{
	size_t room = FIELDS_MAX;
	uint32_t count = 0;

	for (; paths[count]; count++) {
		room += 4 + strlen(paths[count]);
		if (count == AGENT_PATHS_MAX || strlen(paths[count]) > AGENT_PATH_MAX)
			return (struct agent_bytes){.error = -E2BIG};
	}
	struct wire w = request_new(NULL, AGENT_TREE, room);
	wire_put_u32(&w, count);
	for (uint32_t i = 0; i < count; i++)
		put_text(&w, paths[i]);
	return take_frame(&w);
}

/* --- files and processes -------------------------------------------------------------------- */

static void put_field(struct wire *w, enum agent_file_field field,
		      const struct agent_file_request *r)
{
	switch (field) {
	case FIELD_OFFSET:
		wire_put_u64(w, r->offset);
		break;
	case FIELD_SIZE:
		wire_put_u64(w, r->size);
		break;
	case FIELD_MODE:
	case FIELD_NEW_MODE:
		wire_put_u32(w, r->mode);
		break;
	case FIELD_FLAG:
		wire_put_u8(w, r->flag);
		break;
	case FIELD_PATH:
		put_text(w, r->path);
		break;
	case FIELD_TO:
		put_text(w, r->to);
		break;
	case FIELD_OWNER:
		wire_put_u32(w, r->uid);
		wire_put_u32(w, r->gid);
		break;
	case FIELD_DEPTH:
		wire_put_u32(w, r->depth);
		break;
	case FIELD_LIMIT:
		wire_put_u32(w, r->limit);
		break;
	case FIELD_AFTER:
		put_text(w, r->after);
		break;
	case FIELD_HOW:
		wire_put_u8(w, (uint8_t)r->how);
		break;
	case FIELD_END:
		break;
	}
}

struct agent_bytes agent_file_bytes(const struct agent_file_request *r)
{
	const enum agent_file_field *field = agent_file_layouts[r->type].fields;
	size_t path = r->path ? strlen(r->path) : 0, to = r->to ? strlen(r->to) : 0;
	size_t after = r->after ? strlen(r->after) : 0;

	if (path > AGENT_PATH_MAX || to > AGENT_PATH_MAX || after > AGENT_NAME_MAX)
		return (struct agent_bytes){.error = -E2BIG};
	struct wire w = request_new(NULL, r->type, FIELDS_MAX + path + to + after);
	for (; *field != FIELD_END; field++)
		put_field(&w, *field, r);
	return take_frame(&w);
}

static void put_start(struct wire *w, const struct agent_process_request *r)
{
	uint32_t argc = 0;

	wire_put_u8(w, r->flags);
	wire_put_u16(w, r->cols);
	wire_put_u16(w, r->rows);
	wire_put_u32(w, r->timeout_ms);
	put_text(w, r->cwd);
	put_text(w, r->user);
	put_text(w, r->label);
	while (r->argv[argc])
		argc++;
	wire_put_u32(w, argc);
	for (uint32_t i = 0; i < argc; i++)
		put_text(w, r->argv[i]);
	put_envs(w, r->env);
}

struct agent_bytes agent_process_bytes(const struct agent_process_request *r)
{
	bool large = r->type == AGENT_PROC_START || r->type == AGENT_PROC_INPUT;
	struct wire w = request_new(NULL, r->type, large ? AGENT_PAYLOAD_MAX : FIELDS_MAX);

	put_text(&w, r->id);
	switch (r->type) {
	case AGENT_PROC_START:
		put_start(&w, r);
		break;
	case AGENT_PROC_RESIZE:
		wire_put_u16(&w, r->cols);
		wire_put_u16(&w, r->rows);
		break;
	case AGENT_PROC_ATTACH:
		wire_put_u64(&w, r->place);
		wire_put_u8(&w, r->hold);
		break;
	case AGENT_PROC_SIGNAL:
		wire_put_u8(&w, r->signal);
		break;
	case AGENT_PROC_INPUT:
		wire_put_bytes(&w, r->input, r->input_len);
		break;
	default:
		break;
	}
	return take_frame(&w);
}

struct agent_bytes agent_context_bytes(const struct agent_context_request *r)
{
	bool starts = r->type == AGENT_CONTEXT_START;
	struct wire w = request_new(NULL, r->type, starts ? AGENT_PAYLOAD_MAX : FIELDS_MAX);

	if (r->id)
		put_text(&w, r->id);
	if (starts) {
		wire_put_u8(&w, (uint8_t)r->language);
		put_text(&w, r->cwd);
		put_envs(&w, r->env);
	}
	return take_frame(&w);
}

struct agent_bytes agent_data_bytes(const uint8_t *data, size_t data_len)
{
	size_t size = parts_size(data_len);
	struct wire w = wire_on(malloc(size), size);

	w.bad = !w.p;
	put_parts(&w, AGENT_DATA, data, data_len);
	return take_request(&w);
}

/* --- trees ---------------------------------------------------------------------------------- */

/* Ranks the end of a path first, then a slash, then all other bytes. */
static int rank(const uint8_t *path, size_t len, size_t at)
{
	if (at == len)
		return -1;
	return path[at] == '/' ? 0 : path[at] + 1;
}

int agent_path_order(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	size_t both = a_len < b_len ? a_len : b_len, at = 0;

	while (at < both && a[at] == b[at])
		at++;
	return rank(a, a_len, at) - rank(b, b_len, at);
}
