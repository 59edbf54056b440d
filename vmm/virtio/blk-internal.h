// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of the block device: requests from the driver, and the device as a whole (blk.c); the
 * life of a request from start to answer (blk-request.c); what each kind of request does with the
 * disk (blk-steps.c); and requests of our own that shorten the chain of layers (blk-copy-up.c).
 *
 * A request is a small state machine with one operation in the ring at a time: a step finds its
 * next bytes and submits them, a completion moves on. Requests whose clusters overlap run one after
 * the other if one of them writes. This rule alone makes the partial write of a cluster (read it,
 * merge, write it, then mark it as present in the layer) correct against everything that runs at
 * the same time.
 */
#ifndef RAMET_VMM_VIRTIO_BLK_INTERNAL_H
#define RAMET_VMM_VIRTIO_BLK_INTERNAL_H

#include <liburing.h>
#include <linux/virtio_blk.h>

#include "base/bucket.h"
#include "base/list.h"
#include "proto/image.h"
#include "vmm/backend/layer.h"
#include "vmm/virtio/device.h"

#define QUEUE_SIZE 128
#define SEG_MAX	   126u /* data segments; a chain also has a header and a status byte */
#define SEGS	   (SEG_MAX + 2)
#define SECTOR	   512u
#define CLUSTER	   IMAGE_CLUSTER

/*
 * Cost of one flush or hole, in operations of the rate limit: it makes the host write its journal,
 * for which the disks of all other VMs wait.
 */
#define BLK_SYNC_OPS 20u

/* Delay before a write that found the host's disk full is retried. */
#define BLK_ENOSPC_RETRY_NS 100000000u

struct blk;
struct blk_request;

/*
 * `step` submits the next operation and returns 1, or 0 when none is left, or -errno. `done`
 * processes an operation that moved `bytes`; it returns 0 or -errno.
 */
struct blk_kind {
	int (*step)(struct blk *b, struct blk_request *r);
	int (*done)(struct blk *b, struct blk_request *r, uint64_t bytes);
	bool writes;
};

/* Why a running request has no operation in the ring. The same step is retried later. */
enum hold {
	HOLD_NONE,
	HOLD_ENOSPC, /* the host's disk was full */
	HOLD_RATE,   /* the VM has exceeded its rate limit */
};

enum phase { PHASE_DATA, PHASE_COPY_READ, PHASE_COPY_WRITE, PHASE_SYNC, PHASE_COPY_UP_HOLE };

struct blk_request {
	struct list node; /* on free, running or waiting */
	const struct blk_kind *kind;
	uint16_t head;
	bool orphan;	   /* the driver that made it is gone */
	bool failed_punch; /* the file does not support holes: zeros are written */
	bool synced;
	enum hold hold;
	enum phase phase;
	uint8_t *status;    /* in guest memory; NULL: nobody waits for an answer */
	uint64_t from, end; /* range of the disk in bytes */
	uint64_t at;	    /* done up to here */
	uint64_t op_bytes;  /* bytes of the operation in the ring */
	uint64_t copied;    /* bytes of the cluster in bounce that were read or written */
	uint8_t *bounce;    /* one cluster, while a partial write copies it */
	unsigned niov;
	struct iovec iov[SEGS]; /* the data in guest memory */
	struct iovec cut[SEGS]; /* the part of iov that is in the ring */
};

struct blk {
	struct vio_dev dev;
	struct layer_stack *disk; /* NULL in a blank VM */
	struct io_uring ring;
	struct event_watch *watch;
	struct list free, running, waiting;
	unsigned used;	  /* requests ever used: the memory of the others is untouched */
	unsigned in_ring; /* operations that the kernel has, or will get */
	unsigned nenospc; /* requests that wait for space on the host's disk */
	struct event_timer retry, enospc, limited, copy_up;
	struct bucket bytes, ops; /* rate limits of the guest's requests */
	struct vio_blk_stats stats;
	uint64_t taken; /* bytes of the requests taken in this turn */
	bool error_logged, enospc_logged;
	bool grown;	 /* the driver of the restored VM knows a smaller disk */
	bool copying_up; /* a request of blk-copy-up.c is in flight */
	struct vq_chain chain;
	struct blk_request request[QUEUE_SIZE];
};

static inline struct blk *blk_self(const struct vio_dev *d)
{
	return (struct blk *)(uintptr_t)d;
}

/* Defined in blk-steps.c, indexed by virtio request type. */
extern const struct blk_kind blk_kinds[];
/*
 * True when the operation failed because the file does not support holes. The request does without
 * them when its step is repeated.
 */
bool blk_punch_refused(struct blk_request *r, int res);

extern const struct blk_kind blk_copy_up_kind;

/*
 * blk-copy-up.c. blk_copy_up_more begins or continues an urgent copy-up while the device is
 * quiesced; blk_on_copied_up is called when a chunk was copied (error 0) or failed (-errno).
 */
void blk_copy_up_more(struct blk *b);
void blk_on_copied_up(struct blk *b, int error);
void blk_init_copy_up(struct blk *b);

/* blk-request.c */
void blk_init_requests(struct blk *b);
bool blk_has_request(const struct blk *b);
/* Returns a free request (there must be one), to be filled in and started. */
struct blk_request *blk_get_request(struct blk *b);
void blk_start(struct blk *b, struct blk_request *r);
void blk_answer(struct blk *b, uint16_t head, uint8_t *status, uint8_t value, uint64_t written);
/* Submits prepared operations to the kernel. Call it in every turn that may have prepared some. */
void blk_submit(struct blk *b);
/* Processes all completions. */
void blk_reap(struct blk *b);
/* Retries the requests held for `reason`, and starts those that waited for them. */
void blk_retry_held(struct blk *b, enum hold reason);
/*
 * True while the guest's requests have to wait because of the rate limit; the timer `limited` is
 * then set. Never true while the device is being drained, which must not wait for the limit.
 */
bool blk_is_limited(struct blk *b);
/* Charges an operation to the rate limits, unless it belongs to a copy-up. */
void blk_charge(struct blk *b, const struct blk_request *r, uint64_t bytes, unsigned ops);
/* Call it when the driver is gone: none of its requests is answered any more. */
void blk_forget_requests(struct blk *b);
/* Waits until the kernel has no operation left. */
void blk_await_requests(struct blk *b);

#endif
