// SPDX-License-Identifier: Apache-2.0
/* Talks to worker guests (worker.h) through mail on their disks. Each worker has a disk base of its
 * own, and its mail is in that. */
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

/* All functions end the program with a message when they fail. */
void worker_boot(struct worker *w, const struct vmm_options *o, const char *worker_elf);
/* Makes a snapshot of the worker, which the caller owns. */
void worker_image(struct worker *w, struct vmm_snapshot *img, struct ctl_msg *reply);
/* Makes a child: restores a snapshot of `parent` into a blank VM (worker_blank). */
void worker_blank(struct worker *child, const struct vmm_options *o);
/* Call it before the restore: puts the first order into its mail. */
void worker_prepare(struct worker *child, const struct worker *parent, enum worker_order order);
void worker_restore(struct worker *child, const struct worker *parent,
		    const struct vmm_snapshot *img);
void worker_stop(struct worker *w);

/* Posts an order without waiting. */
void worker_post(struct worker *w, enum worker_order order, uint64_t a, uint64_t b, uint64_t c);
/* Waits until the last order is done; returns its value. */
uint64_t worker_wait(struct worker *w);
/* Posts an order and waits for its value. */
uint64_t worker_do(struct worker *w, enum worker_order order, uint64_t a, uint64_t b, uint64_t c);

#endif
