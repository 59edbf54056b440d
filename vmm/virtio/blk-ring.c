// SPDX-License-Identifier: Apache-2.0
#include "vmm/virtio/blk-ring.h"

#include "base/fd.h"

static const uint8_t allowed[] = {
	IORING_OP_READ,	  IORING_OP_READV, IORING_OP_WRITE,
	IORING_OP_WRITEV, IORING_OP_FSYNC, IORING_OP_FALLOCATE,
};

static int restrict_ops(struct io_uring *ring)
{
	struct io_uring_restriction r[ARRAY_LEN(allowed)] = {0};
	int rc;

	for (unsigned i = 0; i < ARRAY_LEN(allowed); i++) {
		r[i].opcode = IORING_RESTRICTION_SQE_OP;
		r[i].sqe_op = allowed[i];
	}
	rc = io_uring_register_restrictions(ring, r, ARRAY_LEN(r));
	return rc < 0 ? rc : io_uring_enable_rings(ring);
}

int blk_ring_init(struct io_uring *ring, unsigned entries, struct err *e)
{
	struct io_uring_params p = {.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_CLAMP};
	int rc = io_uring_queue_init_params(entries, ring, &p);

	if (rc < 0)
		return err_set(e, -rc, "make an io_uring ring for the disk");
	rc = restrict_ops(ring);
	if (rc < 0) {
		io_uring_queue_exit(ring);
		return err_set(e, -rc, "restrict the disk's io_uring ring");
	}
	return 0;
}
