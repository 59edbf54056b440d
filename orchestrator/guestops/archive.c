// SPDX-License-Identifier: Apache-2.0
/* Folders of a guest as tar archives, packed and unpacked by its agent. */
#include <errno.h>

#include "orchestrator/guestops/guest-op.h"
#include "orchestrator/guestops/state.h"

#define TIMEOUT_MS 600000 /* the agent sends nothing while it works on a big folder */

/* --- pack ----------------------------------------------------------------------------------- */

struct pack_op {
	struct guest_op op;
	struct file_sink sink;
};

static struct pack_op *of(struct guest_op *op)
{
	return container_of(op, struct pack_op, op);
}

static void on_pack_frame(struct guest_op *op, const struct agent_frame *frame)
{
	if (frame->type != AGENT_BYTES) {
		guest_op_fail_rules(op);
		return;
	}
	guestops_of_service(op->base.service)->file_bytes_out += frame->len;
	of(op)->sink.bytes(op->base.arg, frame->data, frame->len);
}

static void notify_pack(struct op *base)
{
	if (!base->abandoned)
		of(guest_op_of(base))->sink.ended(base->arg, base->failed ? &base->failure : NULL);
}

static const struct guest_op_kind pack_kind = {
	.timeout_ms = TIMEOUT_MS,
	.missing_code = FAIL_NO_SUCH_FILE,
	.file = true,
	.frame = on_pack_frame,
	.notify = notify_pack,
};

struct op *service_file_pack(struct service *c, const char *tenant, const char *id,
			     const char *path, const struct file_sink *sink, void *arg)
{
	struct guest_op *op = guest_op_new(c, &pack_kind, sizeof(struct pack_op), arg);
	const struct agent_file_request request = {.type = AGENT_PACK, .path = path};

	of(op)->sink = *sink;
	return guest_op_start(op, tenant, id, agent_file_bytes(&request, &op->bytes, &op->len));
}

/* --- unpack --------------------------------------------------------------------------------- */

static void on_unpack_refused(struct guest_op *op, uint32_t errnum, const char *text)
{
	if (errnum == EBADMSG)
		guest_op_fail(op, FAIL_BAD_ARCHIVE, "%s", text);
	else
		guest_op_refused(op, errnum, text);
}

static const struct guest_op_kind unpack_kind = {
	.timeout_ms = TIMEOUT_MS,
	.missing_code = FAIL_NO_SUCH_FILE,
	.file = true,
	.refused = on_unpack_refused,
};

struct op *service_file_unpack(struct service *c, const char *tenant, const char *id,
			       const struct file_unpack *unpack, service_done_fn *fn, void *arg)
{
	struct guest_op *op = guest_op_new_plain(c, &unpack_kind, fn, arg);
	const struct agent_file_request request = {
		.type = AGENT_UNPACK, .path = unpack->path, .size = unpack->data.len};

	guest_op_set_data(op, &unpack->data, &guestops_of_service(c)->file_bytes_in);
	return guest_op_start(op, tenant, id, agent_file_bytes(&request, &op->bytes, &op->len));
}
