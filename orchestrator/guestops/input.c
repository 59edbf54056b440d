// SPDX-License-Identifier: Apache-2.0
/* Input for a program in a guest, on a pipe or on a terminal: one request after the other, until
 * all bytes are sent. */
#include <stdio.h>

#include "base/num.h"
#include "orchestrator/guestops/guest-op.h"

static int encode(struct input_op *o)
{
	size_t part = min_u64(o->left, AGENT_INPUT_MAX);
	const struct agent_process_request request = {
		.type = o->type, .id = o->id, .input = o->input, .input_len = part};

	if (part)
		o->input += part; /* without any input, the pointer may be NULL */
	o->left -= part;
	*o->sent += part;
	return agent_process_bytes(&request, &o->op.bytes, &o->op.len);
}

void input_op_done(struct guest_op *op)
{
	struct input_op *o = container_of(op, struct input_op, op);

	if (o->left)
		guest_op_next(op, encode(o));
	else
		guest_op_succeed(op);
}

struct core_call *input_op_start(struct input_op *o, const char *tenant, const char *id,
				 const char *program, const void *data, size_t len)
{
	snprintf(o->id, sizeof(o->id), "%s", program);
	o->input = data;
	o->left = len;
	return guest_op_start(&o->op, tenant, id, encode(o));
}
