// SPDX-License-Identifier: Apache-2.0
/* Uploads: files written in parts. The guest holds their state, so each call asks the guest. */
#include <string.h>

#include "base/random.h"
#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"

#define TIMEOUT_MS	  60000
#define COMMIT_TIMEOUT_MS 600000 /* a commit reads the whole file for its checksum */

static int encode_abort(struct guest_op *op, struct guest_op *by)
{
	const struct agent_file_request request = {.type = AGENT_ABORT,
						   .id = container_of(op, struct id_op, op)->id};

	return agent_file_bytes(&request, &by->bytes, &by->len);
}

static const struct guest_op_kind plain_kind = {
	.timeout_ms = TIMEOUT_MS, .missing_code = FAIL_NO_SUCH_UPLOAD, .file = true};
static const struct guest_op_kind commit_kind = {
	.timeout_ms = COMMIT_TIMEOUT_MS, .missing_code = FAIL_NO_SUCH_UPLOAD, .file = true};
static const struct guest_op_kind begin_kind = {
	.timeout_ms = TIMEOUT_MS,
	.missing_code = FAIL_NO_SUCH_FILE,
	.file = true,
	.undo = encode_abort,
	.done = id_op_done,
	.notify = id_op_notify,
};

struct core_call *core_upload_begin(struct core *c, const char *tenant, const char *id,
				    const char *path, uint32_t mode, core_id_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new(c, &begin_kind, sizeof(struct id_op), arg);
	struct id_op *o = container_of(op, struct id_op, op);
	const struct agent_file_request request = {
		.type = AGENT_UPLOAD, .id = o->id, .mode = mode, .path = path};

	o->fn = fn;
	random_id(o->id, sizeof(o->id), "upl_");
	return guest_op_start(op, tenant, id, agent_file_bytes(&request, &op->bytes, &op->len));
}

struct core_call *core_upload_part(struct core *c, const char *tenant, const char *id,
				   const char *upload, const struct upload_part *part,
				   core_done_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new_plain(c, &plain_kind, fn, arg);
	const struct agent_file_request request = {
		.type = AGENT_PART, .id = upload, .offset = part->offset, .size = part->len};

	op->data = part->data;
	op->data_left = part->len;
	op->count = &guestops_of_core(c)->file_bytes_in;
	return guest_op_start(op, tenant, id, agent_file_bytes(&request, &op->bytes, &op->len));
}

struct core_call *core_upload_commit(struct core *c, const char *tenant, const char *id,
				     const char *upload, uint64_t size, const uint8_t *hash,
				     core_done_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new_plain(c, &commit_kind, fn, arg);
	const struct agent_file_request request = {
		.type = AGENT_COMMIT, .id = upload, .size = size, .hash = hash};

	return guest_op_start(op, tenant, id, agent_file_bytes(&request, &op->bytes, &op->len));
}

struct core_call *core_upload_abort(struct core *c, const char *tenant, const char *id,
				    const char *upload, core_done_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new_plain(c, &plain_kind, fn, arg);
	const struct agent_file_request request = {.type = AGENT_ABORT, .id = upload};

	return guest_op_start(op, tenant, id, agent_file_bytes(&request, &op->bytes, &op->len));
}
