// SPDX-License-Identifier: Apache-2.0
/*
 * Block device (virtio v1.2, 5.2) over a stack of disk layers. All data I/O goes through an
 * io_uring ring, so nothing on the loop's thread waits for a disk.
 *
 * A request is a small machine with one operation in the ring at a time: a step looks where its
 * next bytes are and submits them, a completion moves on. Requests whose clusters overlap, and of
 * which one writes, run one after the other; this alone makes partial writes of a cluster (read
 * it, merge, write it, then say that the layer has it) right against all that races with them.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/num.h"
#include "proto/image.h"
#include "vmm/backend/layer.h"
#include "vmm/virtio/blk-ring.h"
#include "vmm/virtio/device.h"

#define QUEUE_SIZE	128
#define SEG_MAX		126u /* data segments; a chain has a header and a status byte besides */
#define SEGS		(SEG_MAX + 2)
#define SEG_BYTES	65536u
#define REQUEST_BYTES	((uint64_t)SEG_MAX * SEG_BYTES)
#define SECTOR		512u
#define CLUSTER		IMAGE_CLUSTER
#define DISCARD_SECTORS (1u << 21)  /* in one request: 1 GiB */
#define TURN_BYTES	(16u << 20) /* of requests taken before others get their turn */

#define RETRY_NS   1000000u   /* until the kernel is asked again that was short of memory */
#define STARVED_NS 100000000u /* until a write is tried again that found the host's disk full */

#define F_SIZE_MAX     (1ull << 1)
#define F_SEG_MAX      (1ull << 2)
#define F_BLK_SIZE     (1ull << 6)
#define F_FLUSH	       (1ull << 9)
#define F_DISCARD      (1ull << 13)
#define F_WRITE_ZEROES (1ull << 14)

enum { T_IN = 0, T_OUT = 1, T_FLUSH = 4, T_GET_ID = 8, T_DISCARD = 11, T_WRITE_ZEROES = 13 };
enum { S_OK = 0, S_IOERR = 1, S_UNSUPP = 2 };

#define HEADER_BYTES 16u
#define ID_BYTES     20u
#define CONFIG_BYTES 60u
#define RANGE_BYTES  16u /* of a discard or write-zeroes request (5.2.6) */

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

enum phase { PHASE_DATA, PHASE_COPY_READ, PHASE_COPY_WRITE, PHASE_SYNC };

struct request {
	struct list node; /* on free, running or waiting */
	const struct kind *kind;
	uint16_t head;
	bool orphan;	   /* the driver it came from is gone */
	bool failed_punch; /* the file can't punch holes: zeros are written */
	bool synced;
	bool starved; /* the host's disk was full: the same step is tried again */
	enum phase phase;
	uint8_t *status;    /* in guest memory */
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
	struct loop_timer retry, starved;
	struct vio_blk_stats stats;
	uint64_t taken; /* bytes of requests in this turn */
	bool error_logged, starved_logged;
	struct vq_chain chain;
	struct request request[QUEUE_SIZE];
};

static struct blk *self(const struct vio_dev *d)
{
	return (struct blk *)(uintptr_t)d;
}

/* --- operations --- */

static struct io_uring_sqe *sqe_for(struct blk *b, struct request *r, uint64_t bytes)
{
	/* There is one: the ring has as many entries as there are requests. */
	struct io_uring_sqe *sqe = io_uring_get_sqe(&b->ring);

	r->op_bytes = bytes;
	b->in_ring++;
	return sqe;
}

static int submit_data(struct blk *b, struct request *r, const struct layer_run *run, bool write)
{
	struct io_uring_sqe *sqe = sqe_for(b, r, run->len);
	unsigned n = iov_slice(r->iov, r->niov, r->at - r->from, run->len, r->cut);

	r->phase = PHASE_DATA;
	if (write)
		io_uring_prep_writev(sqe, run->fd, r->cut, n, run->offset);
	else
		io_uring_prep_readv(sqe, run->fd, r->cut, n, run->offset);
	io_uring_sqe_set_data(sqe, r);
	return 1;
}

static int submit_sync(struct blk *b, struct request *r)
{
	struct io_uring_sqe *sqe = sqe_for(b, r, 0);

	r->phase = PHASE_SYNC;
	r->synced = true;
	io_uring_prep_fsync(sqe, layer_writable_fd(b->disk), IORING_FSYNC_DATASYNC);
	io_uring_sqe_set_data(sqe, r);
	return 1;
}

/* --- read --- */

static int read_step(struct blk *b, struct request *r)
{
	while (r->at < r->end) {
		struct layer_run run = layer_map(b->disk, r->at, r->end - r->at);

		if (run.fd >= 0)
			return submit_data(b, r, &run, false);
		iov_zero(r->iov, r->niov, r->at - r->from, run.len);
		r->at += run.len;
	}
	return 0;
}

static int read_done(struct blk *b, struct request *r, uint64_t bytes)
{
	if (!bytes)
		return -EIO; /* a file became shorter under us */
	b->stats.read_bytes += bytes;
	r->at += bytes;
	return 0;
}

/* --- copying a cluster of which a part changes --- */

static int submit_copy(struct blk *b, struct request *r, int fd, uint64_t offset, uint64_t bytes,
		       bool write)
{
	struct io_uring_sqe *sqe = sqe_for(b, r, bytes);

	if (write)
		io_uring_prep_write(sqe, fd, r->bounce + r->copied, (unsigned)bytes, offset);
	else
		io_uring_prep_read(sqe, fd, r->bounce + r->copied, (unsigned)bytes, offset);
	io_uring_sqe_set_data(sqe, r);
	return 1;
}

/* Bytes of the request that fall in the cluster it stands in. */
static uint64_t part_of_cluster(const struct request *r)
{
	return min_u64(r->end - r->at, CLUSTER - r->at % CLUSTER);
}

static void merge(struct request *r)
{
	uint8_t *into = r->bounce + r->at % CLUSTER;

	if (r->niov)
		iov_read(r->iov, r->niov, r->at - r->from, into, part_of_cluster(r));
	else
		memset(into, 0, part_of_cluster(r));
}

static int copy_write_step(struct blk *b, struct request *r)
{
	uint64_t cluster = r->at - r->at % CLUSTER;
	struct layer_run run;

	/* Asked for a whole cluster, the answer is always its place in the writable layer. */
	layer_write_map(b->disk, cluster, CLUSTER, &run);
	return submit_copy(b, r, run.fd, run.offset + r->copied, CLUSTER - r->copied, true);
}

static int copy_read_step(struct blk *b, struct request *r)
{
	uint64_t cluster = r->at - r->at % CLUSTER;

	while (r->copied < CLUSTER) {
		struct layer_run run = layer_map(b->disk, cluster + r->copied, CLUSTER - r->copied);

		if (run.fd >= 0)
			return submit_copy(b, r, run.fd, run.offset, run.len, false);
		memset(r->bounce + r->copied, 0, run.len);
		r->copied += run.len;
	}
	merge(r);
	r->phase = PHASE_COPY_WRITE;
	r->copied = 0;
	return copy_write_step(b, r);
}

static int copy_start(struct blk *b, struct request *r)
{
	if (!r->bounce)
		r->bounce = malloc(CLUSTER);
	if (!r->bounce)
		return -ENOMEM;
	r->phase = PHASE_COPY_READ;
	r->copied = 0;
	return copy_read_step(b, r);
}

static int copy_done(struct blk *b, struct request *r, uint64_t bytes)
{
	if (!bytes)
		return -EIO;
	r->copied += bytes;
	if (r->phase == PHASE_COPY_READ || r->copied < CLUSTER)
		return 0;
	layer_written(b->disk, r->at - r->at % CLUSTER, CLUSTER);
	b->stats.write_bytes += part_of_cluster(r);
	r->at += part_of_cluster(r);
	r->phase = PHASE_DATA;
	return 0;
}

static bool is_copying(const struct request *r)
{
	return r->phase == PHASE_COPY_READ || r->phase == PHASE_COPY_WRITE;
}

static int copy_step(struct blk *b, struct request *r)
{
	return r->phase == PHASE_COPY_READ ? copy_read_step(b, r) : copy_write_step(b, r);
}

/* --- write --- */

/* A driver that did not take FLUSH expects its writes to be stable when they are answered. */
static int writes_finish(struct blk *b, struct request *r)
{
	if ((b->dev.driver_features & F_FLUSH) || r->synced)
		return 0;
	return submit_sync(b, r);
}

static int write_step(struct blk *b, struct request *r)
{
	struct layer_run run;

	if (is_copying(r))
		return copy_step(b, r);
	if (r->at == r->end)
		return writes_finish(b, r);
	if (layer_write_map(b->disk, r->at, r->end - r->at, &run) == LAYER_COPY)
		return copy_start(b, r);
	return submit_data(b, r, &run, true);
}

static int write_done(struct blk *b, struct request *r, uint64_t bytes)
{
	if (is_copying(r))
		return copy_done(b, r, bytes);
	if (r->phase == PHASE_SYNC)
		return 0;
	/* Of clusters that are new to the layer only whole ones count: of the rest, what was not
	 * written must not be seen. */
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

/* Punches a hole for the next whole clusters that do not read as zeros already. */
static int punch_step(struct blk *b, struct request *r, uint64_t end)
{
	while (r->at < end) {
		struct layer_run at = layer_map(b->disk, r->at, end - r->at), run;
		/* A base may end within a cluster: what follows it there is zeros. */
		uint64_t bytes = (at.len + CLUSTER - 1) / CLUSTER * CLUSTER;

		if (at.fd < 0) {
			r->at += at.len;
			continue;
		}
		layer_write_map(b->disk, r->at, bytes, &run);
		struct io_uring_sqe *sqe = sqe_for(b, r, bytes);
		r->phase = PHASE_DATA;
		io_uring_prep_fallocate(sqe, run.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					(off_t)run.offset, (off_t)bytes);
		io_uring_sqe_set_data(sqe, r);
		return 1;
	}
	return 0;
}

static int discard_step(struct blk *b, struct request *r)
{
	uint64_t end = r->end - r->end % CLUSTER;

	/* A hint (5.2.6.2): clusters covered in part stay as they are. */
	if (r->at % CLUSTER)
		r->at += CLUSTER - r->at % CLUSTER;
	return r->failed_punch ? 0 : punch_step(b, r, end);
}

static int punch_done(struct blk *b, struct request *r, uint64_t bytes)
{
	if (is_copying(r))
		return copy_done(b, r, bytes);
	if (r->phase == PHASE_SYNC)
		return 0;
	layer_written(b->disk, r->at, r->op_bytes);
	r->at += r->op_bytes;
	return 0;
}

static int zeroes_step(struct blk *b, struct request *r)
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

/* --- flush --- */

static int flush_step(struct blk *b, struct request *r)
{
	return r->synced ? 0 : submit_sync(b, r);
}

static int flush_done(struct blk *b, struct request *r, uint64_t bytes)
{
	return 0;
}

static const struct kind kinds[] = {
	[T_IN] = {read_step, read_done, false},
	[T_OUT] = {write_step, write_done, true},
	[T_FLUSH] = {flush_step, flush_done, false},
	[T_DISCARD] = {discard_step, punch_done, true},
	[T_WRITE_ZEROES] = {zeroes_step, punch_done, true},
};

/* --- life of a request --- */

static void log_error_once(struct blk *b, int error)
{
	if (!b->error_logged)
		log_error("disk: %s; the guest sees an I/O error (told once)", strerror(error));
	b->error_logged = true;
}

static void release(struct blk *b, struct request *r)
{
	list_del(&r->node);
	free(r->bounce);
	r->bounce = NULL;
	/* The one used last is taken first: what an idle guest never needs is never touched. */
	list_add_tail(b->free.next, &r->node);
}

static void answer(struct blk *b, uint16_t head, uint8_t *status, uint8_t value, uint64_t written)
{
	__atomic_store_n(status, value, __ATOMIC_RELAXED);
	vq_push(&b->dev.vq[0], head, (uint32_t)written + 1);
}

static void finish(struct blk *b, struct request *r, int error)
{
	if (error)
		log_error_once(b, -error);
	if (!r->orphan)
		answer(b, r->head, r->status, error ? S_IOERR : S_OK,
		       r->kind->step == read_step && !error ? r->end - r->from : 0);
	release(b, r);
}

/* Goes on with a running request after each completion, and first of all. */
static void advance(struct blk *b, struct request *r)
{
	int rc = r->orphan ? 0 : r->kind->step(b, r);

	if (rc <= 0)
		finish(b, r, rc);
}

/*
 * A full disk of the host is no fault of the guest's disk: an I/O error would make the guest's file
 * system give up for good. The write waits until there is room, as a slow disk's would; also while
 * the device is still, since then no operation is in the ring.
 */
static bool is_starved(const struct blk *b, const struct request *r, int res)
{
	return (res == -ENOSPC || res == -EDQUOT) && !r->orphan;
}

static void starve(struct blk *b, struct request *r)
{
	if (!b->starved_logged)
		log_warn("disk: the host has no room; the guest's writes wait for it (told once)");
	b->starved_logged = true;
	r->starved = true;
	b->nstarved++;
	if (!b->starved.due_ns)
		loop_timer_set(b->dev.loop, &b->starved, STARVED_NS);
}

/* A starved request has no operation in the ring: it is among those that run, and moved by us. */
static void each_starved(struct blk *b, void (*move)(struct blk *b, struct request *r))
{
	list_each_safe (n, &b->running) {
		struct request *r = container_of(n, struct request, node);

		if (r->starved) {
			r->starved = false;
			b->nstarved--;
			move(b, r);
		}
	}
}

static void give_up(struct blk *b, struct request *r)
{
	finish(b, r, r->orphan ? 0 : -ENOSPC);
}

static bool conflicts(const struct request *x, const struct request *y)
{
	if (!x->kind->writes && !y->kind->writes)
		return false;
	return x->from / CLUSTER * CLUSTER < y->end && y->from / CLUSTER * CLUSTER < x->end;
}

/* True when no request that runs, or waits and came before `r`, is in its way. */
static bool may_run(const struct blk *b, const struct request *r)
{
	list_each (n, &b->running) {
		if (conflicts(container_of(n, struct request, node), r))
			return false;
	}
	list_each (n, &b->waiting) {
		const struct request *w = container_of(n, struct request, node);

		if (w == r)
			return true;
		if (conflicts(w, r))
			return false;
	}
	return true;
}

static void run(struct blk *b, struct request *r)
{
	list_del(&r->node);
	list_add_tail(&b->running, &r->node);
	advance(b, r);
}

static void run_waiting(struct blk *b)
{
	list_each_safe (n, &b->waiting) {
		struct request *r = container_of(n, struct request, node);

		if (may_run(b, r))
			run(b, r);
	}
}

/* --- taking requests from the driver --- */

struct wanted {
	uint32_t type;
	uint64_t sector, sectors;
	uint64_t data_bytes;
	bool data_in; /* the device writes the data */
};

static bool range_ok(const struct blk *b, uint64_t sector, uint64_t sectors)
{
	uint64_t all = layer_disk_bytes(b->disk) / SECTOR;

	return sector <= all && sectors <= all - sector;
}

/* 5.2.6: a discard or write-zeroes request carries its range as data. */
static uint8_t read_range(const struct vq_chain *c, struct wanted *w)
{
	uint8_t raw[RANGE_BYTES];
	struct wire r = wire_from(raw, sizeof(raw));
	uint32_t flags;

	if (w->data_bytes != RANGE_BYTES)
		return S_IOERR;
	iov_read(vq_out(c), c->nout, HEADER_BYTES, raw, sizeof(raw));
	w->sector = wire_get_u64(&r);
	w->sectors = wire_get_u32(&r);
	flags = wire_get_u32(&r);
	if (flags & ~(w->type == T_WRITE_ZEROES ? 1u : 0u))
		return S_UNSUPP;
	return w->sectors <= DISCARD_SECTORS ? S_OK : S_IOERR;
}

static uint8_t check_data(const struct vq_chain *c, struct wanted *w)
{
	w->data_in = w->type == T_IN;
	w->data_bytes = w->data_in ? c->in_bytes - 1 : c->out_bytes - HEADER_BYTES;
	if (w->data_bytes % SECTOR || w->data_bytes > REQUEST_BYTES || c->nin > SEGS ||
	    c->nout > SEGS)
		return S_IOERR;
	w->sectors = w->data_bytes / SECTOR;
	return S_OK;
}

static uint8_t check(const struct blk *b, const struct vq_chain *c, struct wanted *w)
{
	uint8_t status = S_OK;

	w->data_bytes = c->out_bytes - HEADER_BYTES;
	switch (w->type) {
	case T_IN:
	case T_OUT:
		status = check_data(c, w);
		break;
	case T_DISCARD:
	case T_WRITE_ZEROES:
		status = read_range(c, w);
		break;
	case T_FLUSH:
		w->sector = w->sectors = 0;
		break;
	default:
		return S_UNSUPP;
	}
	if (status == S_OK && (!b->disk || !range_ok(b, w->sector, w->sectors)))
		status = S_IOERR;
	return status;
}

static bool has_request(const struct blk *b)
{
	return b->used < QUEUE_SIZE || !list_empty(&b->free);
}

static struct request *get_request(struct blk *b)
{
	struct request *r;

	if (list_empty(&b->free)) {
		r = &b->request[b->used++];
		list_init(&r->node);
		return r;
	}
	r = container_of(b->free.next, struct request, node);
	list_del(&r->node);
	return r;
}

static void start(struct blk *b, const struct vq_chain *c, const struct wanted *w, uint8_t *status)
{
	struct request *r = get_request(b);

	b->taken += w->data_bytes;
	r->kind = &kinds[w->type];
	r->head = c->head;
	r->orphan = r->failed_punch = r->synced = r->starved = false;
	r->phase = PHASE_DATA;
	r->status = status;
	r->from = r->at = w->sector * SECTOR;
	r->end = r->from + w->sectors * SECTOR;
	r->niov = 0;
	if (w->type == T_IN)
		r->niov = iov_slice(vq_in(c), c->nin, 0, w->data_bytes, r->iov);
	else if (w->type == T_OUT)
		r->niov = iov_slice(vq_out(c), c->nout, HEADER_BYTES, w->data_bytes, r->iov);
	if (may_run(b, r)) {
		run(b, r);
	} else {
		list_add_tail(&b->waiting, &r->node);
	}
}

static uint64_t give_id(const struct vq_chain *c)
{
	static const char id[ID_BYTES] = "ramet-disk";

	return iov_write(vq_in(c), c->nin, 0, id, min_u64(ID_BYTES, c->in_bytes - 1));
}

static void take(struct blk *b, const struct vq_chain *c)
{
	const struct iovec *last;
	uint8_t raw[HEADER_BYTES], *status, refused;
	struct wire h = wire_from(raw, sizeof(raw));
	struct wanted w = {0};

	if (c->out_bytes < HEADER_BYTES || !c->nin) {
		vio_guest_fault(&b->dev, "disk request without a header or a status byte");
		return;
	}
	last = &vq_in(c)[c->nin - 1];
	status = (uint8_t *)last->iov_base + last->iov_len - 1;
	iov_read(vq_out(c), c->nout, 0, raw, sizeof(raw));
	w.type = wire_get_u32(&h);
	wire_get_u32(&h); /* reserved */
	w.sector = wire_get_u64(&h);
	if (w.type == T_GET_ID) {
		answer(b, c->head, status, S_OK, give_id(c));
		return;
	}
	refused = check(b, c, &w);
	if (refused)
		answer(b, c->head, status, refused, 0);
	else
		start(b, c, &w, status);
}

static void submit(struct blk *b)
{
	while (io_uring_sq_ready(&b->ring)) {
		if (io_uring_submit(&b->ring) < 0) {
			/* The kernel is short of memory; what it did not take stays queued. */
			loop_timer_set(b->dev.loop, &b->retry, RETRY_NS);
			return;
		}
	}
}

static void on_retry(void *arg)
{
	struct blk *b = arg;

	vio_enter(&b->dev);
	submit(b);
	vio_leave(&b->dev);
}

static void take_all(struct blk *b)
{
	unsigned left = QUEUE_SIZE;
	struct vio_dev *d = &b->dev;

	b->taken = 0;
	do {
		while (left && b->taken < TURN_BYTES && has_request(b) &&
		       vio_pop(d, 0, &b->chain)) {
			take(b, &b->chain);
			left--;
		}
		if (!left || b->taken >= TURN_BYTES) {
			vio_rekick(d, 0);
			break;
		}
	} while (d->active && !d->still && has_request(b) && vq_rearm(&d->vq[0]));
	submit(b);
	if (d->active)
		vio_notify(d, 0);
}

static void blk_on_kick(struct vio_dev *d, unsigned queue)
{
	take_all(self(d));
}

/* --- completions --- */

/* True when the operation failed because the file can't punch holes, and there is another way. */
static bool punch_refused(struct request *r, int res)
{
	if (res != -EOPNOTSUPP || is_copying(r) || r->phase != PHASE_DATA || r->failed_punch ||
	    r->kind->done != punch_done)
		return false;
	r->failed_punch = true;
	return true;
}

static void complete(struct blk *b, struct request *r, int res)
{
	int rc = res;

	if (res == -EINTR || res == -EAGAIN || punch_refused(r, res))
		rc = 0; /* the same step again, in its other way if it was refused */
	else if (res >= 0)
		rc = r->kind->done(b, r, (uint64_t)res);
	if (is_starved(b, r, rc))
		starve(b, r);
	else if (rc < 0)
		finish(b, r, rc);
	else
		advance(b, r);
}

static void reap(struct blk *b)
{
	struct io_uring_cqe *cqe;
	bool was_quiet = !b->in_ring;

	while (io_uring_peek_cqe(&b->ring, &cqe) == 0) {
		struct request *r = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&b->ring, cqe);
		b->in_ring--;
		complete(b, r, res);
	}
	run_waiting(b);
	if (b->dev.still && !b->in_ring && !was_quiet)
		vio_drained(&b->dev);
}

static void on_ring(void *arg, uint32_t events)
{
	struct blk *b = arg;

	vio_enter(&b->dev);
	reap(b);
	take_all(b);
	vio_leave(&b->dev);
}

static void on_starved(void *arg)
{
	struct blk *b = arg;

	if (b->dev.still) {
		loop_timer_set(b->dev.loop, &b->starved, STARVED_NS);
		return;
	}
	vio_enter(&b->dev);
	each_starved(b, advance);
	run_waiting(b);
	take_all(b);
	vio_leave(&b->dev);
}

/* --- the device --- */

static uint64_t blk_features(const struct vio_dev *d)
{
	return F_SIZE_MAX | F_SEG_MAX | F_BLK_SIZE | F_FLUSH | F_DISCARD | F_WRITE_ZEROES;
}

static void put_zeros(struct wire *w, size_t n)
{
	while (n--)
		wire_put_u8(w, 0);
}

static void blk_config_read(struct vio_dev *d, uint32_t offset, uint8_t *data, uint32_t len)
{
	struct blk *b = self(d);
	uint8_t config[CONFIG_BYTES];
	struct wire w = wire_on(config, sizeof(config));

	wire_put_u64(&w, b->disk ? layer_disk_bytes(b->disk) / SECTOR : 0);
	wire_put_u32(&w, SEG_BYTES);
	wire_put_u32(&w, SEG_MAX);
	put_zeros(&w, 4); /* geometry */
	wire_put_u32(&w, CLUSTER);
	put_zeros(&w, 12); /* topology, writeback, queues */
	wire_put_u32(&w, DISCARD_SECTORS);
	wire_put_u32(&w, 1); /* ranges in a discard */
	wire_put_u32(&w, CLUSTER / SECTOR);
	wire_put_u32(&w, DISCARD_SECTORS);
	wire_put_u32(&w, 1); /* ranges in a write-zeroes */
	wire_put_u8(&w, 1);  /* which may unmap */
	put_zeros(&w, 3);
	if (offset < CONFIG_BYTES)
		memcpy(data, config + offset, min_u64(len, CONFIG_BYTES - offset));
}

static void blk_reset(struct vio_dev *d)
{
	struct blk *b = self(d);

	/* The kernel may still be writing to the buffers of what runs; a driver that resets in
	 * mid-flight and reuses them at once harms only itself. */
	list_each (n, &b->running) {
		container_of(n, struct request, node)->orphan = true;
	}
	each_starved(b, give_up);
	while (!list_empty(&b->waiting))
		release(b, container_of(b->waiting.next, struct request, node));
}

static bool blk_drain(struct vio_dev *d)
{
	return !self(d)->in_ring;
}

static void blk_save(const struct vio_dev *d, struct wire *w)
{
	const struct blk *b = self(d);

	wire_put_u64(w, b->disk ? layer_disk_bytes(b->disk) : 0);
}

static int blk_restore(struct vio_dev *d, struct wire *r, struct err *e)
{
	struct blk *b = self(d);
	uint64_t had = wire_get_u64(r), has = b->disk ? layer_disk_bytes(b->disk) : 0;

	if (!r->bad && had != has)
		return err_say(e, EINVAL, "saved with a disk of %llu bytes, restored with %llu",
			       (unsigned long long)had, (unsigned long long)has);
	return 0;
}

/* Nothing may be freed that the kernel still reads or writes. */
static void await_running(struct blk *b)
{
	struct io_uring_cqe *cqe;

	b->dev.still = true;
	blk_reset(&b->dev);
	io_uring_submit(&b->ring);
	while (!list_empty(&b->running) && io_uring_wait_cqe(&b->ring, &cqe) >= -EINTR)
		reap(b);
}

static void blk_free(struct vio_dev *d)
{
	struct blk *b = self(d);

	await_running(b);
	loop_timer_clear(d->loop, &b->retry);
	loop_timer_clear(d->loop, &b->starved);
	loop_watch_del(b->watch);
	io_uring_queue_exit(&b->ring);
	layer_stack_free(b->disk);
	free(b);
}

static const struct vio_ops blk_ops = {
	.id = 2,
	.queues = 1,
	.queue_size = QUEUE_SIZE,
	.features = blk_features,
	.config_read = blk_config_read,
	.reset = blk_reset,
	.on_kick = blk_on_kick,
	.drain = blk_drain,
	.save = blk_save,
	.restore = blk_restore,
	.free = blk_free,
};

int vio_blk_new(struct vio_dev **out, const struct gm *mem, struct loop *loop,
		struct layer_stack *disk, struct err *e)
{
	struct blk *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return err_set(e, ENOMEM, "make the disk device");
	b->dev = (struct vio_dev){.ops = &blk_ops, .mem = mem, .loop = loop};
	list_init(&b->free);
	list_init(&b->running);
	list_init(&b->waiting);
	b->retry = (struct loop_timer){.fn = on_retry, .arg = b};
	b->starved = (struct loop_timer){.fn = on_starved, .arg = b};
	rc = blk_ring_init(&b->ring, QUEUE_SIZE, e);
	if (rc < 0) {
		free(b);
		return rc;
	}
	rc = loop_watch_add(loop, b->ring.ring_fd, EPOLLIN, on_ring, b, &b->watch, e);
	if (rc < 0) {
		io_uring_queue_exit(&b->ring);
		free(b);
		return rc;
	}
	b->disk = disk;
	*out = &b->dev;
	return 0;
}

void vio_blk_set_disk(struct vio_dev *d, struct layer_stack *disk)
{
	self(d)->disk = disk;
}

struct layer_stack *vio_blk_disk(struct vio_dev *d)
{
	return self(d)->disk;
}

bool vio_blk_starved(const struct vio_dev *d)
{
	return self(d)->nstarved;
}

struct vio_blk_stats vio_blk_stats(const struct vio_dev *d)
{
	return self(d)->stats;
}
