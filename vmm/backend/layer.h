// SPDX-License-Identifier: Apache-2.0
/*
 * A VM's disk: a read-only base, sealed layers over it, and one writable layer on top, in the
 * format of proto/image.h. The stack answers where the bytes of a range are and where they must be
 * written; the I/O itself is its user's (virtio/blk.c), so that none of it waits here.
 */
#ifndef RAMET_VMM_BACKEND_LAYER_H
#define RAMET_VMM_BACKEND_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ctl.h"

#define LAYER_DISK_MAX	 (1ull << 40)	/* bytes of disk */
#define LAYER_SEALED_MAX CTL_LAYERS_MAX /* more could be sealed, but not opened again */

struct layer_stack;

/*
 * Opens a disk of `disk_bytes` (a multiple of 4096). Sealed layers may be of the disk when it was
 * smaller, of a multiple of 128 MiB: what is behind their end is not in them. `base_fd` is a raw
 * file or block device, shorter or longer than the disk: what it lacks reads as zeros, what it has
 * more is not seen; -1 for an all-zero base. `sealed` are `n` sealed layers, oldest first, each the
 * parent of the next; every one is verified. `writable_fd` is an empty file open for reading and
 * writing. All descriptors are the stack's once this succeeded, and stay the caller's when it
 * failed.
 *
 * The bitmaps of sealed layers are mapped from their files, which nobody may change: to shorten
 * one under a running VM ends this process.
 */
int layer_stack_open(struct layer_stack **out, int base_fd, const int *sealed, unsigned n,
		     int writable_fd, uint64_t disk_bytes, struct err *e);
void layer_stack_free(struct layer_stack *s);

/*
 * Seals the writable layer and puts a fresh one, formatted into the empty file `writable_fd`, over
 * it. Nothing is flushed. No I/O on the stack may be in flight. -E2BIG when there are
 * LAYER_SEALED_MAX sealed ones. On failure the stack is as before and the descriptor the caller's.
 */
int layer_stack_seal(struct layer_stack *s, int writable_fd, struct err *e);

/*
 * The same in two steps, of which the second can't fail. After prepare the stack goes on as it was,
 * without writes, until either commit or abandon is said. The descriptor is the stack's from the
 * commit on; abandon leaves it the caller's.
 */
int layer_stack_prepare(struct layer_stack *s, int writable_fd, struct err *e);
void layer_stack_commit(struct layer_stack *s);
void layer_stack_abandon(struct layer_stack *s);

/* Something was written (or discarded) since the last seal: only then is a seal of any use. */
bool layer_stack_written(const struct layer_stack *s);
unsigned layer_sealed(const struct layer_stack *s); /* how many layers are */
/* What the disk is made of below the writable layer; they stay the stack's. The sealed ones oldest
 * first; returns how many. */
int layer_base_fd(const struct layer_stack *s);
unsigned layer_sealed_fds(const struct layer_stack *s, int fds[LAYER_SEALED_MAX]);

/*
 * A chain is made shorter by lifting: clusters that are in its topmost sealed layers and not in the
 * writable one are copied there by the stack's user, as a write of what layer_map says they hold.
 * With the last of them the sealed layers leave the chain, and their files are closed.
 *
 * plan: if more than `most` are sealed and nothing is planned, chooses which to lift: those that
 * are small beside the ones above them, so that not much is copied more than a few times.
 * next: the next range to lift, of at most `bytes`; false, and the layers are gone, when there is
 * none left. wanted: whether the cluster at `at` still is to be lifted. A seal ends the plan.
 */
void layer_lift_plan(struct layer_stack *s, unsigned most);
bool layer_lifting(const struct layer_stack *s);
bool layer_lift_next(struct layer_stack *s, uint64_t bytes, uint64_t *from, uint64_t *end);
bool layer_lift_wanted(const struct layer_stack *s, uint64_t at);
void layer_lift_stop(struct layer_stack *s);

uint64_t layer_disk_bytes(const struct layer_stack *s);
/* Bytes of storage that the writable layer's file takes. */
uint64_t layer_writable_bytes(const struct layer_stack *s);
/* The file that guest writes go to, for fdatasync. */
int layer_writable_fd(const struct layer_stack *s);

/* A run of bytes: `len` of them at `offset` of `fd`; fd -1: they are zeros. */
struct layer_run {
	int fd;
	uint64_t offset, len;
};

/* Where the first bytes of disk range [at, at + len) are; len > 0 and inside the disk. */
struct layer_run layer_map(const struct layer_stack *s, uint64_t at, uint64_t len);

/*
 * Where to write disk range [at, at + len). LAYER_WRITE: `run` says where the first bytes of it
 * go; when they are there, the caller says layer_written for them. LAYER_COPY: the range starts in
 * a cluster that it covers in part and that is not in the writable layer yet: `run` is that whole
 * cluster, and what it holds must be read through layer_map, merged, and written as one.
 */
enum layer_how { LAYER_WRITE, LAYER_COPY };
enum layer_how layer_write_map(const struct layer_stack *s, uint64_t at, uint64_t len,
			       struct layer_run *run);
/* Every byte of disk range [at, at + len) that layer_write_map gave is in the writable layer:
 * reads see it from here on. Also said of a range in which a hole was punched (it reads as
 * zeros). Clusters covered in part must be there already. */
void layer_written(struct layer_stack *s, uint64_t at, uint64_t len);

#endif
