// SPDX-License-Identifier: Apache-2.0
/* What each kind of request does with the disk, one operation of the ring after the other. */
#include "vmm/virtio/blk-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/num.h"

/* --- operations --- */

static struct io_uring_sqe *sqe_for(struct blk *b, struct blk_request *r, uint64_t bytes)
{
	/* Never NULL: the ring has as many entries as there are requests. */
	struct io_uring_sqe *sqe = io_uring_get_sqe(&b->ring);

	r->op_bytes = bytes;
	b->in_ring++;
	return sqe;
}

static struct io_uring_sqe *sqe_for_data(struct blk *b, struct blk_request *r, uint64_t bytes)
{
	blk_charge(b, r, bytes, 1);
	return sqe_for(b, r, bytes);
}

static int submit_data(struct blk *b, struct blk_request *r, const struct layer_extent *extent,
		       bool write)
{
	struct io_uring_sqe *sqe = sqe_for_data(b, r, extent->len);
	unsigned n = iov_slice(r->iov, r->niov, r->at - r->from, extent->len, r->cut);

	r->phase = PHASE_DATA;
	if (write)
		io_uring_prep_writev(sqe, extent->fd, r->cut, n, extent->offset);
	else
		io_uring_prep_readv(sqe, extent->fd, r->cut, n, extent->offset);
	io_uring_sqe_set_data(sqe, r);
	return 1;
}

static int submit_sync(struct blk *b, struct blk_request *r)
{
	struct io_uring_sqe *sqe = sqe_for(b, r, 0);

	blk_charge(b, r, 0, BLK_SYNC_OPS);
	r->phase = PHASE_SYNC;
	r->synced = true;
	io_uring_prep_fsync(sqe, layer_writable_fd(b->disk), IORING_FSYNC_DATASYNC);
	io_uring_sqe_set_data(sqe, r);
	return 1;
}

/* Punches a hole in the writable layer, for whole clusters from the request's position on. */
static int submit_hole(struct blk *b, struct blk_request *r, uint64_t bytes, enum phase phase)
{
	struct io_uring_sqe *sqe = sqe_for(b, r, bytes);
	struct layer_extent extent;

	blk_charge(b, r, 0, BLK_SYNC_OPS);
	layer_write_map(b->disk, r->at, bytes, &extent);
	r->phase = phase;
	io_uring_prep_fallocate(sqe, extent.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)extent.offset, (off_t)bytes);
	io_uring_sqe_set_data(sqe, r);
	return 1;
}

/* --- read --- */

static int read_step(struct blk *b, struct blk_request *r)
{
	while (r->at < r->end) {
		struct layer_extent extent = layer_map(b->disk, r->at, r->end - r->at);

		if (extent.fd >= 0)
			return submit_data(b, r, &extent, false);
		iov_zero(r->iov, r->niov, r->at - r->from, extent.len);
		r->at += extent.len;
	}
	return 0;
}

static int read_done(struct blk *b, struct blk_request *r, uint64_t bytes)
{
	if (!bytes)
		return -EIO; /* a file was truncated while in use */
	b->stats.read_bytes += bytes;
	r->at += bytes;
	return 0;
}

/* --- copying a cluster that changes in part --- */

static int submit_copy(struct blk *b, struct blk_request *r, int fd, uint64_t offset,
		       uint64_t bytes, bool write)
{
	struct io_uring_sqe *sqe = sqe_for_data(b, r, bytes);

	if (write)
		io_uring_prep_write(sqe, fd, r->bounce + r->copied, (unsigned)bytes, offset);
	else
		io_uring_prep_read(sqe, fd, r->bounce + r->copied, (unsigned)bytes, offset);
	io_uring_sqe_set_data(sqe, r);
	return 1;
}

/* Returns the number of bytes of the request in its current cluster. */
static uint64_t part_of_cluster(const struct blk_request *r)
{
	return min_u64(r->end - r->at, CLUSTER - r->at % CLUSTER);
}

static void merge(struct blk_request *r)
{
	if (r->kind == &blk_copy_up_kind)
		return;
	uint8_t *into = r->bounce + r->at % CLUSTER;

	if (r->niov)
		iov_read(r->iov, r->niov, r->at - r->from, into, part_of_cluster(r));
	else
		memset(into, 0, part_of_cluster(r));
}

static int copy_write_step(struct blk *b, struct blk_request *r)
{
	uint64_t cluster = r->at - r->at % CLUSTER;
	struct layer_extent extent;

	/* For a whole cluster, this always returns its place in the writable layer. */
	layer_write_map(b->disk, cluster, CLUSTER, &extent);
	return submit_copy(b, r, extent.fd, extent.offset + r->copied, CLUSTER - r->copied, true);
}

static int copy_read_step(struct blk *b, struct blk_request *r)
{
	uint64_t cluster = r->at - r->at % CLUSTER;

	while (r->copied < CLUSTER) {
		struct layer_extent extent =
			layer_map(b->disk, cluster + r->copied, CLUSTER - r->copied);

		if (extent.fd >= 0)
			return submit_copy(b, r, extent.fd, extent.offset, extent.len, false);
		memset(r->bounce + r->copied, 0, extent.len);
		r->copied += extent.len;
	}
	r->copied = 0;
	if (r->kind == &blk_copy_up_kind && !r->failed_punch && is_zero(r->bounce, CLUSTER))
		return submit_hole(b, r, CLUSTER, PHASE_COPY_UP_HOLE);
	merge(r);
	r->phase = PHASE_COPY_WRITE;
	return copy_write_step(b, r);
}

static int copy_start(struct blk *b, struct blk_request *r)
{
	if (!r->bounce)
		r->bounce = malloc(CLUSTER);
	if (!r->bounce)
		return -ENOMEM;
	r->phase = PHASE_COPY_READ;
	r->copied = 0;
	return copy_read_step(b, r);
}

static int copy_done(struct blk *b, struct blk_request *r, uint64_t bytes)
{
	if (!bytes)
		return -EIO;
	r->copied += bytes;
	if (r->phase == PHASE_COPY_READ || r->copied < CLUSTER)
		return 0;
	layer_written(b->disk, r->at - r->at % CLUSTER, CLUSTER);
	if (r->kind != &blk_copy_up_kind)
		b->stats.write_bytes += part_of_cluster(r);
	r->at += part_of_cluster(r);
	r->phase = PHASE_DATA;
	return 0;
}

static bool is_copying(const struct blk_request *r)
{
	return r->phase == PHASE_COPY_READ || r->phase == PHASE_COPY_WRITE;
}

static int copy_step(struct blk *b, struct blk_request *r)
{
	return r->phase == PHASE_COPY_READ ? copy_read_step(b, r) : copy_write_step(b, r);
}

/* --- write --- */

/* A driver that did not accept FLUSH expects its writes to be stable when they are answered. */
static int writes_finish(struct blk *b, struct blk_request *r)
{
	if ((b->dev.driver_features & VIO_FEATURE(VIRTIO_BLK_F_FLUSH)) || r->synced)
		return 0;
	return submit_sync(b, r);
}

static int write_step(struct blk *b, struct blk_request *r)
{
	struct layer_extent extent;

	if (is_copying(r))
		return copy_step(b, r);
	if (r->at == r->end)
		return writes_finish(b, r);
	if (layer_write_map(b->disk, r->at, r->end - r->at, &extent) == LAYER_COPY)
		return copy_start(b, r);
	return submit_data(b, r, &extent, true);
}

static int write_done(struct blk *b, struct blk_request *r, uint64_t bytes)
{
	if (is_copying(r))
		return copy_done(b, r, bytes);
	if (r->phase == PHASE_SYNC)
		return 0;
	/*
	 * A write of whole clusters may have ended early. Only complete clusters are marked as
	 * present in the layer: unwritten parts must not become visible.
	 */
	if (r->at % CLUSTER == 0 && r->op_bytes >= CLUSTER)
		bytes -= bytes % CLUSTER;
	if (!bytes)
		return -ENOSPC;
	layer_written(b->disk, r->at, bytes);
	b->stats.write_bytes += bytes;
	r->at += bytes;
	return 0;
}

/* --- discard, write zeroes --- */

/* Punches a hole for the next whole clusters that do not already read as zeros. */
static int punch_step(struct blk *b, struct blk_request *r, uint64_t end)
{
	while (r->at < end) {
		struct layer_extent at = layer_map(b->disk, r->at, end - r->at);
		/* A base may end within a cluster; the rest of that cluster is zeros. */
		uint64_t bytes = (at.len + CLUSTER - 1) / CLUSTER * CLUSTER;

		if (at.fd < 0) {
			r->at += at.len;
			continue;
		}
		return submit_hole(b, r, bytes, PHASE_DATA);
	}
	return 0;
}

static int discard_step(struct blk *b, struct blk_request *r)
{
	uint64_t end = r->end - r->end % CLUSTER;

	/* A discard is a hint (5.2.6.2): partially covered clusters stay as they are. */
	if (r->at % CLUSTER)
		r->at += CLUSTER - r->at % CLUSTER;
	return r->failed_punch ? 0 : punch_step(b, r, end);
}

static int punch_done(struct blk *b, struct blk_request *r, uint64_t bytes)
{
	if (is_copying(r))
		return copy_done(b, r, bytes);
	if (r->phase == PHASE_SYNC)
		return 0;
	layer_written(b->disk, r->at, r->op_bytes);
	r->at += r->op_bytes;
	return 0;
}

static int zeroes_step(struct blk *b, struct blk_request *r)
{
	uint64_t whole = r->end - r->end % CLUSTER;

	if (is_copying(r))
		return copy_step(b, r);
	if (r->at % CLUSTER == 0 && r->at < whole && !r->failed_punch) {
		int rc = punch_step(b, r, whole);

		if (rc)
			return rc;
	}
	if (r->at < r->end)
		return copy_start(b, r);
	return writes_finish(b, r);
}

/* --- copying clusters up from sealed layers to the writable one --- */

static int copy_up_step(struct blk *b, struct blk_request *r)
{
	if (is_copying(r))
		return copy_step(b, r);
	/* Skips clusters that the guest has written meanwhile. */
	while (r->at < r->end && !layer_copy_up_wanted(b->disk, r->at))
		r->at += CLUSTER;
	return r->at < r->end ? copy_start(b, r) : 0;
}

static int copy_up_done(struct blk *b, struct blk_request *r, uint64_t bytes)
{
	if (r->phase != PHASE_COPY_UP_HOLE)
		return copy_done(b, r, bytes);
	layer_written(b->disk, r->at, CLUSTER);
	r->at += CLUSTER;
	r->phase = PHASE_DATA;
	return 0;
}

const struct blk_kind blk_copy_up_kind = {copy_up_step, copy_up_done, true};

/* --- flush --- */

static int flush_step(struct blk *b, struct blk_request *r)
{
	return r->synced ? 0 : submit_sync(b, r);
}

static int flush_done(struct blk *b, struct blk_request *r, uint64_t bytes)
{
	return 0;
}

const struct blk_kind blk_kinds[] = {
	[VIRTIO_BLK_T_IN] = {read_step, read_done, false},
	[VIRTIO_BLK_T_OUT] = {write_step, write_done, true},
	[VIRTIO_BLK_T_FLUSH] = {flush_step, flush_done, false},
	[VIRTIO_BLK_T_DISCARD] = {discard_step, punch_done, true},
	[VIRTIO_BLK_T_WRITE_ZEROES] = {zeroes_step, punch_done, true},
};

bool blk_punch_refused(struct blk_request *r, int res)
{
	bool hole = r->phase == PHASE_COPY_UP_HOLE ||
		    (r->phase == PHASE_DATA && r->kind->done == punch_done);

	if (res != -EOPNOTSUPP || !hole || r->failed_punch)
		return false;
	r->failed_punch = true;
	r->phase = PHASE_DATA;
	return true;
}
