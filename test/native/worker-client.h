// SPDX-License-Identifier: Apache-2.0
/* Talks to a worker guest (worker.h): each has a disk base of its own, with its mail in it. */
#ifndef RAMET_TEST_NATIVE_WORKER_CLIENT_H
#define RAMET_TEST_NATIVE_WORKER_CLIENT_H

#include "test/native/vmm-client.h"
#include "test/native/worker.h"

#define WORKER_DISK_BYTES (8u << 20)

struct worker {
	struct vmm vmm;
	int base; /* of its disk */
	uint32_t seq;
};

/* All of these end the program with a message on failure. */
void worker_boot(struct worker *w, const struct vmm_options *o, const char *worker_elf);
/* Forks it. The caller owns the snapshot. */
void worker_image(struct worker *w, struct vmm_snapshot *img, struct ctl_msg *reply);
/* Makes a child: restores a snapshot of `parent` into a blank VM (worker_blank). */
void worker_blank(struct worker *child, const struct vmm_options *o);
/* Call it before the restore: puts the first order into its mail. */
void worker_prepare(struct worker *child, const struct worker *parent, enum worker_order order);
void worker_restore(struct worker *child, const struct worker *parent,
		    const struct vmm_snapshot *img);
void worker_stop(struct worker *w);

/* Posts an order; waits until it is done, for its value. */
void worker_post(struct worker *w, enum worker_order order, uint64_t a, uint64_t b, uint64_t c);
uint64_t worker_wait(struct worker *w);
uint64_t worker_do(struct worker *w, enum worker_order order, uint64_t a, uint64_t b, uint64_t c);

#endif
