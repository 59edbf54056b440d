// SPDX-License-Identifier: Apache-2.0
/*
 * A VM's disk: a read-only base, sealed layers over it, and one writable layer on top, in the
 * format of proto/image.h. The stack knows where the bytes of a range are and where they must be
 * written. The user (virtio/blk.c) does the I/O, so that no function here waits for a disk.
 */
#ifndef RAMET_VMM_BACKEND_LAYER_H
#define RAMET_VMM_BACKEND_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ctl.h"

#define LAYER_DISK_MAX	 (1ull << 40)	/* maximum size of a disk in bytes */
#define LAYER_SEALED_MAX CTL_LAYERS_MAX /* more layers could be sealed, but not opened again */

struct layer_stack;

/*
 * Opens a disk of `disk_bytes` (a multiple of 4096).
 *
 * `base_fd` is a raw file or block device, or -1 for an all-zero base. It may be shorter than the
 * disk, which then reads as zeros after its end, or longer; the excess is not visible. `sealed`
 * are `n` sealed layers, oldest first, each the parent of the next; each one is verified. A sealed
 * layer may come from a time when the disk was smaller (a multiple of 128 MiB); it has no clusters
 * past that size. `writable_fd` is an empty file open for reading and writing.
 *
 * Owns all descriptors on success; on failure the caller keeps them. The bitmaps of sealed layers
 * are mapped from their files, which nobody may change: truncating one under a running VM kills
 * this process.
 */
int layer_stack_open(struct layer_stack **out, int base_fd, const int *sealed, unsigned n,
		     int writable_fd, uint64_t disk_bytes, struct err *e);
void layer_stack_free(struct layer_stack *s);

/*
 * Seal the writable layer and put a new one over it, formatted into the empty file `writable_fd`,
 * in two steps, of which the second can't fail. They flush nothing, and no I/O on the stack may be
 * in flight. Between prepare and commit or abandon the stack may only be read. prepare returns
 * -E2BIG when there are LAYER_SEALED_MAX sealed layers; on failure the stack is as before. The
 * stack owns the descriptor from the commit on; until then, and after abandon, the caller does.
 */
int layer_stack_prepare(struct layer_stack *s, int writable_fd, struct err *e);
void layer_stack_commit(struct layer_stack *s);
void layer_stack_abandon(struct layer_stack *s);

/* True when data was written or discarded since the last seal. Otherwise a seal is useless. */
bool layer_stack_written(const struct layer_stack *s);
unsigned layer_sealed(const struct layer_stack *s); /* number of sealed layers */
/*
 * Return the descriptors below the writable layer, which the stack keeps owning. The sealed layers
 * are listed oldest first; returns their number.
 */
int layer_base_fd(const struct layer_stack *s);
unsigned layer_sealed_fds(const struct layer_stack *s, int fds[LAYER_SEALED_MAX]);

/*
 * Copy-up shortens the chain: the user copies clusters that are in the topmost sealed layers, and
 * not in the writable layer, into the writable layer, as a write of their content (layer_map).
 * After the last cluster those layers leave the chain, and their files are closed.
 *
 * plan: when more than `most` layers are sealed and no copy-up is planned, chooses layers: those
 * that are small compared with the ones above them, so that not much is copied more than a few
 * times. next: returns the next range to copy, at most `bytes`, or false when none is left and the
 * layers are gone. wanted: whether the cluster at `at` still has to be copied. A seal cancels the
 * plan.
 */
void layer_copy_up_plan(struct layer_stack *s, unsigned most);
bool layer_copying_up(const struct layer_stack *s);
bool layer_copy_up_next(struct layer_stack *s, uint64_t bytes, uint64_t *from, uint64_t *end);
bool layer_copy_up_wanted(const struct layer_stack *s, uint64_t at);
void layer_copy_up_stop(struct layer_stack *s);

uint64_t layer_disk_bytes(const struct layer_stack *s);
/* Returns the storage that the writable layer's file uses, in bytes. */
uint64_t layer_writable_bytes(const struct layer_stack *s);
/* Returns the descriptor of the writable layer's file, for fdatasync. */
int layer_writable_fd(const struct layer_stack *s);

/* A contiguous extent: `len` bytes at `offset` of `fd`, or zeros when fd is -1. */
struct layer_extent {
	int fd;
	uint64_t offset, len;
};

/*
 * Returns where the first bytes of disk range [at, at + len) are. len is not 0, and the range is
 * inside the disk.
 */
struct layer_extent layer_map(const struct layer_stack *s, uint64_t at, uint64_t len);

/*
 * Finds where to write disk range [at, at + len). LAYER_WRITE: `extent` is the destination of its
 * first bytes; call layer_written when they are stored. LAYER_COPY: the range starts in a cluster
 * that it covers only in part, and that is not in the writable layer yet. `extent` is that whole
 * cluster: read its content through layer_map, merge, and write it as one.
 */
enum layer_how { LAYER_WRITE, LAYER_COPY };
enum layer_how layer_write_map(const struct layer_stack *s, uint64_t at, uint64_t len,
			       struct layer_extent *extent);
/*
 * Marks disk range [at, at + len) as stored in the writable layer, where layer_write_map placed it:
 * reads now find it there. Call it also after a hole was punched there, which reads as zeros.
 * Clusters that the range covers only in part must be in the layer already.
 */
void layer_written(struct layer_stack *s, uint64_t at, uint64_t len);

#endif
