// SPDX-License-Identifier: Apache-2.0
/*
 * A virtio device (virtio v1.2): the transport (mmio.c) owns registers, status, features and
 * queues; a device is a const table of operations over its own state. Registers are served on vCPU
 * threads under the transport's lock, and of a device's operations only features and config_read
 * are called there. All others run on the loop's thread with the same lock held: a reset or
 * DRIVER_OK is noted by the transport and reaches the device before anything else does.
 */
#ifndef RAMET_VMM_VIRTIO_DEVICE_H
#define RAMET_VMM_VIRTIO_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/report.h"
#include "base/wire.h"
#include "vmm/dev/bus.h"
#include "vmm/dev/loop.h"
#include "vmm/kvm/irq.h"
#include "vmm/kvm/memory.h"
#include "vmm/virtio/queue.h"

#define VIO_QUEUES_MAX 4

struct vio_dev;

struct vio_ops {
	uint32_t id; /* virtio device id, v1.2 section 5 */
	unsigned queues;
	uint16_t queue_size; /* largest of any queue, also in an image */
	/* Largest of each that a driver is told of; 0: queue_size. */
	uint16_t told_size[VIO_QUEUES_MAX];
	uint64_t (*features)(const struct vio_dev *d); /* device bits; VERSION_1 is added */
	void (*config_read)(struct vio_dev *d, uint32_t offset, uint8_t *data, uint32_t len);
	int (*activate)(struct vio_dev *d, struct err *e); /* DRIVER_OK was set; may be NULL */
	/* The driver's queues are gone: what is in flight must not be answered. */
	void (*reset)(struct vio_dev *d);
	void (*on_kick)(struct vio_dev *d, unsigned queue);
	/* True when no I/O is in flight (or NULL); else the device calls vio_drained once so. */
	bool (*drain)(struct vio_dev *d);
	void (*save)(const struct vio_dev *d, struct wire *w);
	int (*restore)(struct vio_dev *d, struct wire *r, struct err *e);
	/* Called once after restore when the VM is about to run (vsock: transport reset event). */
	void (*resumed)(struct vio_dev *d);
	/* After each turn on the loop's thread, without the lock: the place to call others. */
	void (*settled)(struct vio_dev *d);
	/* Adds lines about the device's own state. On the loop's thread, with the lock held; may be
	 * NULL. */
	void (*inspect)(const struct vio_dev *d, struct report *r);
	void (*free)(struct vio_dev *d);
};

/* What every device is built on; embedded first in the device's own struct. */
struct vio_dev {
	const struct vio_ops *ops;
	const struct gm *mem;
	struct loop *loop;
	struct vio_mmio *mmio; /* the transport it sits in */
	struct vq *vq;	       /* ops->queues of them */
	uint64_t driver_features;
	bool active;  /* between activate and reset, and the driver made no fault */
	bool still;   /* between drain and continue: takes no buffers, touches no guest memory
		       * once drained */
	bool drained; /* on_drained is due */
	void (*on_drained)(void *arg);
	void *on_drained_arg;
};

/* Every back-end event of a device (a watch, a timer) runs between these two. */
void vio_enter(struct vio_dev *d);
void vio_leave(struct vio_dev *d);

/* The driver broke the protocol: sets DEVICE_NEEDS_RESET, tells the driver, logs once. Returns
 * -EPROTO so that a handler can `return vio_guest_fault(...)`. */
int vio_guest_fault(struct vio_dev *d, const char *what);
/* What config_read says is another than before. */
void vio_config_changed(struct vio_dev *d);
/* Used buffers were added to `queue`: raises the line unless the driver suppressed it. */
void vio_notify(struct vio_dev *d, unsigned queue);
/* vq_pop of an active device: a fault counts as an empty queue and has been dealt with. */
bool vio_pop(struct vio_dev *d, unsigned queue, struct vq_chain *c);
/* Calls on_kick again in a later turn, so that others get theirs. */
void vio_rekick(struct vio_dev *d, unsigned queue);
/* The device that said false to drain has nothing in flight now. */
void vio_drained(struct vio_dev *d);

/*
 * The transport: registers at `addr` (VIO_MMIO_SIZE bytes) on the bus, doorbell eventfds of the
 * queues on the loop, interrupts on `line`. Takes ownership of `dev` on success.
 */
#define VIO_MMIO_SIZE 0x1000u
int vio_mmio_new(struct vio_mmio **out, struct vio_dev *dev, uint64_t addr, struct irq_line *line,
		 struct bus *bus, struct loop *loop, struct err *e);
void vio_mmio_free(struct vio_mmio *m);
struct vio_dev *vio_mmio_device(struct vio_mmio *m);
/* The doorbell eventfd of queue `q`, for KVM_IOEVENTFD at addr + 0x50 with datamatch q. */
int vio_mmio_doorbell(struct vio_mmio *m, unsigned q);
/*
 * The device takes no more buffers; kicks are remembered. True when it has nothing in flight
 * either; else on_drained of the device (set it before) is called once, without locks. Then guest
 * memory is not touched until vio_mmio_continue (the same VM goes on) or vio_mmio_resumed (a
 * restored one runs for the first time).
 */
bool vio_mmio_drain(struct vio_mmio *m);
void vio_mmio_continue(struct vio_mmio *m);
/* Transport and device together, as one section of the state file. VM paused, device drained. A
 * restored device is still until vio_mmio_resumed. */
void vio_mmio_save(struct vio_mmio *m, struct wire *w);
int vio_mmio_restore(struct vio_mmio *m, struct wire *r, struct err *e);
void vio_mmio_resumed(struct vio_mmio *m);
/* Adds the state of transport, queues and device, for people. */
void vio_mmio_inspect(struct vio_mmio *m, struct report *r);

/* Constructors. Each owns what it is given from the moment it succeeds. */
struct layer_stack; /* backend/layer.h */
int vio_blk_new(struct vio_dev **out, const struct gm *mem, struct loop *loop,
		struct layer_stack *disk, struct err *e);
int vio_rng_new(struct vio_dev **out, const struct gm *mem, struct loop *loop, struct err *e);
/* Lines the guest writes go to `log_fd`, at most `bytes_per_s` on average; the rest is counted. */
int vio_console_new(struct vio_dev **out, const struct gm *mem, struct loop *loop, int log_fd,
		    uint64_t bytes_per_s, struct err *e);
int vio_vsock_new(struct vio_dev **out, const struct gm *mem, struct loop *loop, uint64_t guest_cid,
		  struct err *e);

/* The guest has no use for `bytes` of RAM from `offset` on, whatever they hold. 0 or -errno. */
typedef int vio_discard(void *arg, uint64_t offset, uint64_t bytes);
int vio_balloon_new(struct vio_dev **out, const struct gm *mem, struct loop *loop,
		    vio_discard *discard, void *arg, struct err *e);

/*
 * `tap_fd` is a tap that does not block and puts the header of virtio v1.2 (12 bytes) before each
 * frame, with its offloads set; -1: there is no link, and what the guest sends is dropped. With
 * `ipv6` the guest is told of a router for it. Addresses: proto/net.h.
 */
int vio_net_new(struct vio_dev **out, const struct gm *mem, struct loop *loop, int tap_fd,
		bool ipv6, struct err *e);

/* Between these two, frames of the guest stay in its queue. Hold is for the loop's thread before
 * the vCPUs run; release is for any thread. */
void vio_net_hold(struct vio_dev *d);
void vio_net_release(struct vio_dev *d);

struct vio_net_stats {
	uint64_t rx_frames, rx_bytes; /* given to the guest */
	uint64_t tx_frames, tx_bytes; /* taken by the tap */
	uint64_t rx_dropped, tx_dropped;
};
struct vio_net_stats vio_net_stats(const struct vio_dev *d);

/*
 * Opens a connection from the host to a guest port and joins it to `stream_fd` (non-blocking
 * stream socket, owned by the device from here on). `done` is called once, on the loop's thread
 * and without locks, perhaps before this returns: 0, -ECONNREFUSED, -ETIMEDOUT, -ECONNRESET
 * (the guest's driver went away, or the device is freed), -EMFILE (too many connections).
 */
typedef void vio_vsock_done(void *arg, int result);
void vio_vsock_connect(struct vio_dev *d, uint32_t port, int stream_fd, vio_vsock_done *done,
		       void *arg);
unsigned vio_vsock_connections(const struct vio_dev *d);

/*
 * `disk` may be NULL in vio_blk_new: a shell has none until it is filled. Sets it once, before the
 * driver or vio_mmio_restore touches the device; owned by the device from here on.
 */
void vio_blk_set_disk(struct vio_dev *d, struct layer_stack *disk);

/*
 * What the guest's requests may take of the host's disk each second; 0: no limit. Counted are
 * operations on files of the host, which one request can need many of, with their bytes; to make
 * what was written stable, or to give room back, counts as many operations. What is over it waits
 * in the queue. Set before the driver touches the device.
 */
struct vio_blk_limits {
	uint32_t bytes_s, ops_s;
};
void vio_blk_limit(struct vio_dev *d, const struct vio_blk_limits *l);

struct vio_blk_stats {
	uint64_t read_bytes, write_bytes;
};
struct vio_blk_stats vio_blk_stats(const struct vio_dev *d);

/* Writes of the guest wait for room on the host's disk: they are neither done nor refused, and so
 * can't be part of an image. A drain does not wait for them; they go on with the device. */
bool vio_blk_starved(const struct vio_dev *d);

/* The disk was sealed: a chain of layers that became long is made shorter from now on. */
void vio_blk_sealed(struct vio_dev *d);

/* Hands the disk of a blk device over, to seal its writable layer and to set the next one. */
struct layer_stack *vio_blk_disk(struct vio_dev *d);

#endif
