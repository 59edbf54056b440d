// SPDX-License-Identifier: Apache-2.0
/*
 * Block device (virtio v1.2, 5.2) on a stack of disk layers. All data I/O goes through an io_uring
 * ring, so the loop's thread never waits for a disk.
 */
#include "vmm/virtio/blk-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/fd.h"
#include "base/num.h"

#define SEG_BYTES	65536u
#define REQUEST_BYTES	((uint64_t)SEG_MAX * SEG_BYTES)
#define DISCARD_SECTORS (1u << 21) /* per request: 1 GiB */
/* Bytes of the requests that are taken in one turn, before other devices get their turns. */
#define TURN_BYTES (16u << 20)

#define HEADER_BYTES sizeof(struct virtio_blk_outhdr)

/* --- requests from the driver --- */

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

/*
 * Reads the range of a discard or write-zeroes request, which is its data (5.2.6). Returns a
 * status.
 */
static uint8_t read_range(const struct vq_chain *c, struct wanted *w)
{
	struct virtio_blk_discard_write_zeroes r;

	if (w->data_bytes != sizeof(r))
		return VIRTIO_BLK_S_IOERR;
	iov_read(vq_out(c), c->nout, HEADER_BYTES, &r, sizeof(r));
	w->sector = r.sector;
	w->sectors = r.num_sectors;
	if (r.flags & ~(w->type == VIRTIO_BLK_T_WRITE_ZEROES ? 1u : 0u))
		return VIRTIO_BLK_S_UNSUPP;
	return w->sectors <= DISCARD_SECTORS ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR;
}

static uint8_t check_data(const struct vq_chain *c, struct wanted *w)
{
	w->data_in = w->type == VIRTIO_BLK_T_IN;
	w->data_bytes = w->data_in ? c->in_bytes - 1 : c->out_bytes - HEADER_BYTES;
	if (w->data_bytes % SECTOR || w->data_bytes > REQUEST_BYTES || c->nin > SEGS ||
	    c->nout > SEGS)
		return VIRTIO_BLK_S_IOERR;
	w->sectors = w->data_bytes / SECTOR;
	return VIRTIO_BLK_S_OK;
}

static uint8_t check(const struct blk *b, const struct vq_chain *c, struct wanted *w)
{
	uint8_t status = VIRTIO_BLK_S_OK;

	w->data_bytes = c->out_bytes - HEADER_BYTES;
	switch (w->type) {
	case VIRTIO_BLK_T_IN:
	case VIRTIO_BLK_T_OUT:
		status = check_data(c, w);
		break;
	case VIRTIO_BLK_T_DISCARD:
	case VIRTIO_BLK_T_WRITE_ZEROES:
		status = read_range(c, w);
		break;
	case VIRTIO_BLK_T_FLUSH:
		w->sector = w->sectors = 0;
		break;
	default:
		return VIRTIO_BLK_S_UNSUPP;
	}
	if (status == VIRTIO_BLK_S_OK && (!b->disk || !range_ok(b, w->sector, w->sectors)))
		status = VIRTIO_BLK_S_IOERR;
	return status;
}

static void start(struct blk *b, const struct vq_chain *c, const struct wanted *w, uint8_t *status)
{
	struct blk_request *r = blk_get_request(b);

	b->taken += w->data_bytes;
	r->kind = &blk_kinds[w->type];
	r->head = c->head;
	r->status = status;
	r->from = r->at = w->sector * SECTOR;
	r->end = r->from + w->sectors * SECTOR;
	if (w->type == VIRTIO_BLK_T_IN)
		r->niov = iov_slice(vq_in(c), c->nin, 0, w->data_bytes, r->iov);
	else if (w->type == VIRTIO_BLK_T_OUT)
		r->niov = iov_slice(vq_out(c), c->nout, HEADER_BYTES, w->data_bytes, r->iov);
	blk_start(b, r);
}

static uint64_t give_id(const struct vq_chain *c)
{
	static const char id[VIRTIO_BLK_ID_BYTES] = "ramet-disk";

	return iov_write(vq_in(c), c->nin, 0, id, min_u64(sizeof(id), c->in_bytes - 1));
}

static void take(struct blk *b, const struct vq_chain *c)
{
	const struct iovec *last;
	uint8_t *status, refused;
	struct virtio_blk_outhdr h;

	if (c->out_bytes < HEADER_BYTES || !c->nin) {
		vio_guest_fault(&b->dev, "disk request without a header or a status byte");
		return;
	}
	last = &vq_in(c)[c->nin - 1];
	status = (uint8_t *)last->iov_base + last->iov_len - 1;
	iov_read(vq_out(c), c->nout, 0, &h, sizeof(h));
	struct wanted w = {.type = h.type, .sector = h.sector};
	if (w.type == VIRTIO_BLK_T_GET_ID) {
		blk_answer(b, c->head, status, VIRTIO_BLK_S_OK, give_id(c));
		return;
	}
	refused = check(b, c, &w);
	if (refused)
		blk_answer(b, c->head, status, refused, 0);
	else
		start(b, c, &w, status);
}

static void take_all(struct blk *b)
{
	unsigned left = QUEUE_SIZE;
	struct vio_dev *d = &b->dev;

	b->taken = 0;
	do {
		while (left && b->taken < TURN_BYTES && blk_has_request(b) && !blk_is_limited(b) &&
		       vio_pop(d, 0, &b->chain)) {
			take(b, &b->chain);
			left--;
		}
		if (!left || b->taken >= TURN_BYTES) {
			vio_rekick(d, 0);
			break;
		}
	} while (d->active && !d->quiesced && blk_has_request(b) && !blk_is_limited(b) &&
		 vq_enable_notification(&d->vq[0]));
	blk_submit(b);
	if (d->active)
		vio_notify(d, 0);
}

static void blk_on_kick(struct vio_dev *d, unsigned queue)
{
	take_all(blk_self(d));
}

static void on_ring(void *arg, uint32_t events)
{
	struct blk *b = arg;

	vio_enter(&b->dev);
	blk_reap(b);
	take_all(b);
	vio_leave(&b->dev);
}

static void on_enospc(void *arg)
{
	struct blk *b = arg;

	if (b->dev.quiesced) {
		event_timer_set(b->dev.loop, &b->enospc, BLK_ENOSPC_RETRY_NS);
		return;
	}
	vio_enter(&b->dev);
	blk_retry_held(b, HOLD_ENOSPC);
	take_all(b);
	vio_leave(&b->dev);
}

/*
 * Does nothing while the device is quiesced: the rate limit holds no request then, and none is
 * taken.
 */
static void on_limited(void *arg)
{
	struct blk *b = arg;

	vio_enter(&b->dev);
	blk_retry_held(b, HOLD_RATE);
	take_all(b);
	vio_leave(&b->dev);
}

/* --- the ring --- */

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

/*
 * The ring can only read, write, sync and allocate on open files: an attacker who has taken over
 * the process can't use it to bypass the system call filter.
 */
static int init_ring(struct io_uring *ring, struct err *e)
{
	struct io_uring_params p = {.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_CLAMP};
	int rc = io_uring_queue_init_params(QUEUE_SIZE, ring, &p);

	if (rc < 0)
		return err_set(e, -rc, "make an io_uring ring for the disk");
	rc = restrict_ops(ring);
	if (rc < 0) {
		io_uring_queue_exit(ring);
		return err_set(e, -rc, "restrict the disk's io_uring ring");
	}
	return 0;
}

/* --- the device --- */

static void blk_config_read(struct vio_dev *d, uint32_t offset, uint8_t *data, uint32_t len)
{
	const struct blk *b = blk_self(d);
	const struct virtio_blk_config config = {
		.capacity = b->disk ? layer_disk_bytes(b->disk) / SECTOR : 0,
		.size_max = SEG_BYTES,
		.seg_max = SEG_MAX,
		.blk_size = CLUSTER,
		.max_discard_sectors = DISCARD_SECTORS,
		.max_discard_seg = 1,
		.discard_sector_alignment = CLUSTER / SECTOR,
		.max_write_zeroes_sectors = DISCARD_SECTORS,
		.max_write_zeroes_seg = 1,
		.write_zeroes_may_unmap = 1,
	};

	vio_config_copy(&config, sizeof(config), offset, data, len);
}

static void blk_reset(struct vio_dev *d)
{
	blk_forget_requests(blk_self(d));
}

static bool blk_drain(struct vio_dev *d)
{
	struct blk *b = blk_self(d);

	blk_retry_held(b, HOLD_RATE);
	blk_copy_up_more(b);
	blk_submit(b);
	return !b->in_ring;
}

static void blk_save(const struct vio_dev *d, struct wire *w)
{
	const struct blk *b = blk_self(d);

	wire_put_u64(w, b->disk ? layer_disk_bytes(b->disk) : 0);
}

static int blk_restore(struct vio_dev *d, struct wire *r, struct err *e)
{
	struct blk *b = blk_self(d);
	uint64_t had = wire_get_u64(r), has = b->disk ? layer_disk_bytes(b->disk) : 0;

	if (!r->bad && had > has)
		return err_say(e, EINVAL,
			       "the snapshot has a disk of %llu bytes, this VM only %llu",
			       (unsigned long long)had, (unsigned long long)has);
	b->grown = !r->bad && had < has;
	return 0;
}

static void blk_resumed(struct vio_dev *d)
{
	if (blk_self(d)->grown)
		vio_config_changed(d);
	blk_self(d)->grown = false;
}

static void blk_inspect(const struct vio_dev *d, struct report *r)
{
	const struct blk *b = blk_self(d);

	report_add(r,
		   "  %u requests run, %u wait for others, %u operations in the ring, %u wait for "
		   "room on the host's disk%s%s; read %llu bytes, written %llu\n",
		   list_count(&b->running), list_count(&b->waiting), b->in_ring, b->nenospc,
		   b->limited.due_ns ? ", the rate limit is exceeded" : "",
		   b->copying_up ? ", layers are being copied up" : "",
		   (unsigned long long)b->stats.read_bytes,
		   (unsigned long long)b->stats.write_bytes);
}

static void blk_fini(struct vio_dev *d)
{
	struct blk *b = blk_self(d);

	d->quiesced = true;
	if (b->disk)
		layer_copy_up_stop(b->disk);
	blk_forget_requests(b);
	/* Wait before freeing memory that the kernel still reads or writes. */
	blk_await_requests(b);
	event_timer_clear(d->loop, &b->copy_up);
	event_timer_clear(d->loop, &b->retry);
	event_timer_clear(d->loop, &b->enospc);
	event_timer_clear(d->loop, &b->limited);
	event_watch_del(b->watch);
	io_uring_queue_exit(&b->ring);
	layer_stack_free(b->disk);
}

static const struct vio_ops blk_ops = {
	.name = "blk",
	.id = 2,
	.queues = 1,
	.queue_size = QUEUE_SIZE,
	.features = VIO_FEATURE(VIRTIO_BLK_F_SIZE_MAX) | VIO_FEATURE(VIRTIO_BLK_F_SEG_MAX) |
		    VIO_FEATURE(VIRTIO_BLK_F_BLK_SIZE) | VIO_FEATURE(VIRTIO_BLK_F_FLUSH) |
		    VIO_FEATURE(VIRTIO_BLK_F_DISCARD) | VIO_FEATURE(VIRTIO_BLK_F_WRITE_ZEROES),
	.config_read = blk_config_read,
	.reset = blk_reset,
	.on_kick = blk_on_kick,
	.drain = blk_drain,
	.save = blk_save,
	.restore = blk_restore,
	.resumed = blk_resumed,
	.inspect = blk_inspect,
	.fini = blk_fini,
};

int vio_blk_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop,
		struct layer_stack *disk, struct err *e)
{
	struct blk *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return err_set(e, ENOMEM, "make the disk device");
	b->dev = (struct vio_dev){.ops = &blk_ops, .mem = mem, .loop = loop};
	blk_init_requests(b);
	blk_init_copy_up(b);
	b->enospc = (struct event_timer){.fn = on_enospc, .arg = b};
	b->limited = (struct event_timer){.fn = on_limited, .arg = b};
	rc = init_ring(&b->ring, e);
	if (rc < 0) {
		free(b);
		return rc;
	}
	rc = event_watch_add(loop, b->ring.ring_fd, EPOLLIN, on_ring, b, &b->watch, e);
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
	blk_self(d)->disk = disk;
}

void vio_blk_limit(struct vio_dev *d, const struct vio_blk_limits *l)
{
	blk_self(d)->bytes.per_s = l->bytes_s;
	blk_self(d)->ops.per_s = l->ops_s;
}

struct layer_stack *vio_blk_disk(struct vio_dev *d)
{
	return blk_self(d)->disk;
}

bool vio_blk_enospc(const struct vio_dev *d)
{
	return blk_self(d)->nenospc;
}

struct vio_blk_stats vio_blk_stats(const struct vio_dev *d)
{
	return blk_self(d)->stats;
}
