// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of the block device: requests as the driver makes them and the device as a whole
 * (blk.c), their life from start to answer (blk-request.c), what each kind of them does with the
 * disk (blk-steps.c), and those of our own that shorten its chain of layers (blk-lift.c).
 *
 * A request is a small machine with one operation in the ring at a time: a step looks where its
 * next bytes are and submits them, a completion moves on. Requests whose clusters overlap, and of
 * which one writes, run one after the other; this alone makes partial writes of a cluster (read
 * it, merge, write it, then say that the layer has it) right against all that races with them.
 */
#ifndef RAMET_VMM_VIRTIO_BLK_INTERNAL_H
#define RAMET_VMM_VIRTIO_BLK_INTERNAL_H

#include "base/bucket.h"
#include "base/list.h"
#include "proto/image.h"
#include "vmm/backend/layer.h"
#include "vmm/virtio/blk-ring.h"
#include "vmm/virtio/device.h"

#define QUEUE_SIZE 128
#define SEG_MAX	   126u /* data segments; a chain has a header and a status byte besides */
#define SEGS	   (SEG_MAX + 2)
#define SECTOR	   512u
#define CLUSTER	   IMAGE_CLUSTER
#define F_FLUSH	   (1ull << 9)

/* What one flush or hole takes of the operations per second: it makes the host write its journal,
 * which the disks of all others wait for. */
#define BLK_SYNC_OPS 20u

/* Until a write is tried again that found the host's disk full. */
#define BLK_STARVED_NS 100000000u

enum { T_IN = 0, T_OUT = 1, T_FLUSH = 4, T_GET_ID = 8, T_DISCARD = 11, T_WRITE_ZEROES = 13 };
enum { S_OK = 0, S_IOERR = 1, S_UNSUPP = 2 };

struct blk;
struct request;

/*
 * `step` submits the next operation and returns 1, or 0 when there is none left, or -errno.
 * `done` takes note of an operation that moved `bytes`; 0 or -errno.
 */
struct kind {
	int (*step)(struct blk *b, struct request *r);
	int (*done)(struct blk *b, struct request *r, uint64_t bytes);
	bool writes;
};

/* Why a running request has no operation in the ring: the same step is tried again later. */
enum hold {
	HOLD_NONE,
	HOLD_ROOM, /* the host's disk was full */
	HOLD_RATE, /* the VM used more than it may in this time */
};

enum phase { PHASE_DATA, PHASE_COPY_READ, PHASE_COPY_WRITE, PHASE_SYNC, PHASE_LIFT_HOLE };

struct request {
	struct list node; /* on free, running or waiting */
	const struct kind *kind;
	uint16_t head;
	bool orphan;	   /* the driver it came from is gone */
	bool failed_punch; /* the file can't punch holes: zeros are written */
	bool synced;
	enum hold hold;
	enum phase phase;
	uint8_t *status;    /* in guest memory; NULL: nobody waits for an answer */
	uint64_t from, end; /* range of the disk in bytes */
	uint64_t at;	    /* done up to here */
	uint64_t op_bytes;  /* of the operation in the ring */
	uint64_t copied;    /* of the cluster in bounce, read or written */
	uint8_t *bounce;    /* one cluster, while a partial write copies it */
	unsigned niov;
	struct iovec iov[SEGS]; /* the data in guest memory */
	struct iovec cut[SEGS]; /* the part of it that is in the ring */
};

struct blk {
	struct vio_dev dev;
	struct layer_stack *disk; /* NULL in a shell */
	struct io_uring ring;
	struct loop_watch *watch;
	struct list free, running, waiting;
	unsigned used;	   /* requests that were ever taken: the others are memory never touched */
	unsigned in_ring;  /* operations that the kernel has, or will be given */
	unsigned nstarved; /* requests that wait for room on the host's disk */
	struct loop_timer retry, starved, limited, lift;
	struct bucket bytes, ops; /* of the guest's requests on the host's disk */
	struct vio_blk_stats stats;
	uint64_t taken; /* bytes of requests in this turn */
	bool error_logged, starved_logged;
	bool grown;   /* the restored driver knows a smaller disk */
	bool lifting; /* a request of blk-lift.c is under way */
	struct vq_chain chain;
	struct request request[QUEUE_SIZE];
};

static inline struct blk *blk_self(const struct vio_dev *d)
{
	return (struct blk *)(uintptr_t)d;
}

/* blk-steps.c: by virtio type. */
extern const struct kind blk_kinds[];
/* True when the operation failed because the file can't punch holes, and there is another way. */
bool blk_punch_refused(struct request *r, int res);

extern const struct kind blk_lift_kind;

/* blk-lift.c: goes on with shortening the chain of layers, when it is time to. */
void blk_lift_more(struct blk *b);
void blk_on_lifted(struct blk *b, int error);
void blk_init_lift(struct blk *b);

/* blk-request.c */
void blk_init_requests(struct blk *b);
bool blk_has_request(const struct blk *b);
/* One that is free (there is one), to be filled in and started. */
struct request *blk_get_request(struct blk *b);
void blk_start(struct blk *b, struct request *r);
void blk_answer(struct blk *b, uint16_t head, uint8_t *status, uint8_t value, uint64_t written);
/* Gives the kernel what was started; in any turn that may have started something. */
void blk_submit(struct blk *b);
/* Takes up all completions. */
void blk_reap(struct blk *b);
/* Those that wait for that reason are tried again, and those that wait for them. */
void blk_retry_held(struct blk *b, enum hold why);
/* True while the guest's requests have to wait since it used more than it may in this time; the
 * timer `limited` is set then. Never while the device is to stand still: that is not to wait. */
bool blk_is_limited(struct blk *b);
/* Takes what an operation costs from what may be used. */
void blk_charge(struct blk *b, const struct request *r, uint64_t bytes, unsigned ops);
/* The driver is gone: nothing of its is answered any more. */
void blk_forget_requests(struct blk *b);
/* Returns when the kernel has no operation any more. */
void blk_await_requests(struct blk *b);

#endif
