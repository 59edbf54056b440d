// SPDX-License-Identifier: Apache-2.0
/* Runs the queue alone. The input has its registers and guest memory; the target accesses every
 * byte of each buffer that the queue returns. */
#include <stdlib.h>
#include <string.h>

#include "vmm/virtio/queue.h"

#define MEM 16384u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(struct vq *q)
{
	static struct vq_chain c;
	static uint8_t out[8192];
	uint64_t sum = 0;

	char text[256];
	struct report r = report_on(text, sizeof(text));

	vq_inspect(q, &r);
	for (int i = 0; i < 3 * VQ_SIZE_MAX; i++) {
		if (vq_pop(q, &c) <= 0) {
			if (!vq_enable_notification(q))
				break;
			continue;
		}
		if (c.nout + c.nin > VQ_SIZE_MAX)
			__builtin_trap();
		sum += iov_read(vq_out(&c), c.nout, 1, out, sizeof(out));
		iov_zero(vq_in(&c), c.nin, 3, c.in_bytes);
		vq_push(q, c.head, (uint32_t)sum);
		vq_should_notify(q);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gm mem = {.base = calloc(1, MEM), .bytes = MEM};
	struct vq q = {.mem = &mem, .size_max = VQ_SIZE_MAX};
	struct wire in = wire_from(data, size), fields;
	uint8_t saved[31], flags;

	wire_get_bytes(&in, saved, sizeof(saved));
	flags = wire_get_u8(&in);
	wire_get_bytes(&in, mem.base, wire_left(&in) < MEM ? wire_left(&in) : MEM);
	fields = wire_from(saved, sizeof(saved));
	if (vq_restore(&q, &fields, NULL) == 0) {
		q.indirect = flags & 1;
		q.event_idx = flags & 2;
		use(&q);
	}
	free(mem.base);
	return 0;
}
