// SPDX-License-Identifier: Apache-2.0
/* File operations in a guest, done by its agent. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/num.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"

#define TIMEOUT_MS	60000
#define LONG_TIMEOUT_MS 600000 /* the agent sends nothing while it works on a big folder */

/* --- operations without output -------------------------------------------------------------- */

static const struct guest_refusal unpack_refusals[] = {{EBADMSG, FAIL_BAD_ARCHIVE}, {0, FAIL_NONE}};

static const struct guest_op_kind plain_kind = {.timeout_ms = TIMEOUT_MS, .file = true};
static const struct guest_op_kind long_kind = {.timeout_ms = LONG_TIMEOUT_MS, .file = true};
static const struct guest_op_kind unpack_kind = {
	.timeout_ms = LONG_TIMEOUT_MS, .refusals = unpack_refusals, .file = true};

static const struct guest_op_kind *kind_of(enum agent_request type)
{
	switch (type) {
	case AGENT_REMOVE:
	case AGENT_CHANGE:
		return &long_kind;
	case AGENT_UNPACK:
		return &unpack_kind;
	default:
		return &plain_kind;
	}
}

struct op *service_file_do(struct service *c, const char *tenant, const char *id,
			   const struct agent_file_request *request, const struct file_data *data,
			   service_done_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new(c, kind_of(request->type), sizeof(*op), fn, arg);
	struct agent_file_request sized = *request;

	if (data) {
		sized.size = data->len;
		guest_op_set_data(op, data, &guestops_of_service(c)->file_bytes_in);
	}
	return guest_op_start(op, tenant, id, agent_file_bytes(&sized));
}

/* --- operations with a sink ----------------------------------------------------------------- */

struct file_op {
	struct guest_op op;
	struct file_sink sink;
	bool reported; /* the sink has received a file */
	char *path;
	/* For a stat and a list: */
	uint32_t depth, limit, count; /* `count`: entries that were reported */
	/* For a get: */
	struct file_range range;
	bool asks_size; /* the range counts from the end, so the first request asks for the size */
	bool sized;	/* `left` is valid */
	uint64_t left;
};

static struct file_op *of(struct guest_op *op)
{
	return container_of(op, struct file_op, op);
}

static void fini(struct guest_op *op)
{
	free(of(op)->path);
}

/* Passes the file's properties to the sink, which may abandon the operation: `o` may be freed. */
static void report_file(struct file_op *o, const struct agent_file *f)
{
	const struct file_view view = {
		.name = (const char *)f->name,
		.name_len = f->name_len,
		.mode = f->mode,
		.uid = f->uid,
		.gid = f->gid,
		.size = f->size,
		.mtime_ns = f->mtime_ns,
		.target = (const char *)f->target,
		.target_len = f->target_len,
		.user = (const char *)f->user,
		.user_len = f->user_len,
		.group = (const char *)f->group,
		.group_len = f->group_len,
		.offset = o->range.offset,
		.length = o->sized ? o->left : UINT64_MAX,
	};

	o->reported = true;
	o->sink.file(o->op.base.arg, &view);
}

static void on_stat_frame(struct guest_op *op, const struct agent_frame *frame)
{
	if (frame->type == AGENT_NODE && !of(op)->reported)
		report_file(of(op), &frame->file);
	else
		guest_op_fail_rules(op);
}

static void on_stat_done(struct guest_op *op)
{
	if (of(op)->reported)
		guest_op_succeed(op);
	else
		guest_op_fail_rules(op);
}

static const struct guest_op_kind stat_kind = {
	.timeout_ms = TIMEOUT_MS,
	.file = true,
	.frame = on_stat_frame,
	.done = on_stat_done,
	.fini = fini,
};

static void on_list_frame(struct guest_op *op, const struct agent_frame *frame)
{
	struct file_op *o = of(op);

	if (frame->type != AGENT_NODE ||
	    !agent_path_is_plain(frame->file.name, frame->file.name_len, o->depth)) {
		guest_op_fail_rules(op);
	} else if (o->limit && o->count == o->limit) {
		guest_op_enough(op);
		o->sink.more(op->base.arg);
	} else {
		o->count++;
		report_file(o, &frame->file);
	}
}

static const struct guest_op_kind list_kind = {
	.timeout_ms = LONG_TIMEOUT_MS,
	.file = true,
	.frame = on_list_frame,
	.fini = fini,
};

static struct file_op *file_op_new(struct service *c, const struct guest_op_kind *kind,
				   const char *path, const struct file_sink *sink, void *arg)
{
	struct guest_op *op = guest_op_new(c, kind, sizeof(struct file_op), sink->ended, arg);

	of(op)->sink = *sink;
	of(op)->path = must_copy(path);
	return of(op);
}

struct op *service_file_stat(struct service *c, const char *tenant, const char *id,
			     const char *path, bool link, const struct file_sink *sink, void *arg)
{
	struct file_op *o = file_op_new(c, &stat_kind, path, sink, arg);
	struct guest_op *op = &o->op;
	const struct agent_file_request request = {.type = AGENT_WALK, .path = path, .flag = link};

	return guest_op_start(op, tenant, id, agent_file_bytes(&request));
}

struct op *service_file_list(struct service *c, const char *tenant, const char *id,
			     const struct file_list *list, const struct file_sink *sink, void *arg)
{
	struct file_op *o = file_op_new(c, &list_kind, list->path, sink, arg);
	struct guest_op *op = &o->op;
	/* One more than the limit shows that there are more. */
	const struct agent_file_request request = {.type = AGENT_WALK,
						   .path = list->path,
						   .depth = list->depth,
						   .limit = list->limit ? list->limit + 1 : 0,
						   .after = list->after};

	o->depth = list->depth;
	o->limit = list->limit;
	return guest_op_start(op, tenant, id, agent_file_bytes(&request));
}

/* --- get ------------------------------------------------------------------------------------ */

/* Encodes the request for the size or, once it is known, for the bytes. */
static struct agent_bytes encode_get(const struct file_op *o)
{
	const struct agent_file_request request = {
		.type = o->asks_size ? AGENT_WALK : AGENT_GET,
		.path = o->path,
		.offset = o->range.offset,
		.size = min_u64(o->range.length, INT64_MAX - min_u64(o->range.offset, INT64_MAX)),
	};

	return agent_file_bytes(&request);
}

static void note_size(struct file_op *o, uint64_t size)
{
	uint64_t back = min_u64(o->range.offset, size);

	o->range.from_end = false;
	o->range.offset = size - back;
}

static void begin_bytes(struct file_op *o, const struct agent_file *f)
{
	o->sized = f->size > 0;
	o->left = f->size > o->range.offset ? f->size - o->range.offset : 0;
	o->left = min_u64(o->left, o->range.length);
	report_file(o, f);
}

static void on_bytes(struct file_op *o, const struct agent_frame *frame)
{
	size_t len = frame->len;
	bool enough = o->sized && len > o->left;

	if (enough)
		len = o->left;
	o->left -= o->sized ? len : 0;
	guestops_of_service(o->op.base.service)->file_bytes_out += len;
	/* End the operation before the sink gets the bytes: it may abandon the call. */
	if (enough)
		guest_op_enough(&o->op);
	if (len)
		o->sink.bytes(o->op.base.arg, frame->data, len);
}

static void on_get_frame(struct guest_op *op, const struct agent_frame *frame)
{
	struct file_op *o = of(op);

	if (frame->type == AGENT_NODE && o->range.from_end)
		note_size(o, frame->file.size);
	else if (frame->type == AGENT_FILE && !o->asks_size && !o->reported)
		begin_bytes(o, &frame->file);
	else if (frame->type == AGENT_BYTES && o->reported)
		on_bytes(o, frame);
	else
		guest_op_fail_rules(op);
}

static void on_get_done(struct guest_op *op)
{
	struct file_op *o = of(op);

	if (o->asks_size && !o->range.from_end) {
		o->asks_size = false;
		guest_op_next(op, encode_get(o));
	} else if (o->reported && o->left) {
		guest_op_fail(op, FAIL_FILE_CHANGED,
			      "the file shrank while it was read: %llu bytes are missing",
			      (unsigned long long)o->left);
	} else {
		on_stat_done(op);
	}
}

static const struct guest_op_kind get_kind = {
	.timeout_ms = TIMEOUT_MS,
	.file = true,
	.frame = on_get_frame,
	.done = on_get_done,
	.fini = fini,
};

struct op *service_file_get(struct service *c, const char *tenant, const char *id, const char *path,
			    const struct file_range *range, const struct file_sink *sink, void *arg)
{
	struct file_op *o = file_op_new(c, &get_kind, path, sink, arg);

	o->range = *range;
	o->asks_size = range->from_end;
	return guest_op_start(&o->op, tenant, id, encode_get(o));
}

/* --- pack: bytes as of a get, without a file before them ------------------------------------- */

static const struct guest_op_kind pack_kind = {
	.timeout_ms = LONG_TIMEOUT_MS,
	.file = true,
	.frame = on_get_frame,
	.fini = fini,
};

struct op *service_file_pack(struct service *c, const char *tenant, const char *id,
			     const char *path, const struct file_sink *sink, void *arg)
{
	struct file_op *o = file_op_new(c, &pack_kind, path, sink, arg);
	const struct agent_file_request request = {.type = AGENT_PACK, .path = path};

	o->reported = true;
	return guest_op_start(&o->op, tenant, id, agent_file_bytes(&request));
}
