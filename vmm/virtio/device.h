// SPDX-License-Identifier: Apache-2.0
/*
 * A virtio device (virtio v1.2). The transport (mmio.c) owns registers, status, features and
 * queues; a device is a const table of operations on its own state. Registers are served on vCPU
 * threads under the transport's lock; only the operation config_read is called there. All other
 * operations run on the loop's thread with the same lock held. The transport records a reset or
 * DRIVER_OK and delivers it to the device before anything else.
 */
#ifndef RAMET_VMM_VIRTIO_DEVICE_H
#define RAMET_VMM_VIRTIO_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/report.h"
#include "base/wire.h"
#include "vmm/dev/bus.h"
#include "vmm/dev/event-loop.h"
#include "vmm/kvm/irq.h"
#include "vmm/kvm/memory.h"
#include "vmm/virtio/queue.h"

#define VIO_QUEUES_MAX 4

/* In <linux/virtio_*.h>, features are numbers of bits. Its structures are in the host's byte order,
 * which on x86 is that of virtio. */
#define VIO_FEATURE(bit) (1ull << (bit))

struct vio_dev;

struct vio_ops {
	const char *name;
	uint32_t id; /* virtio device id, v1.2 section 5 */
	unsigned queues;
	uint16_t queue_size; /* maximum size of any queue, also of one in a snapshot */
	/* Maximum size of each queue as advertised to a driver; 0: queue_size. */
	uint16_t advertised_size[VIO_QUEUES_MAX];
	uint64_t features; /* of the device; the transport adds its own */
	void (*config_read)(struct vio_dev *d, uint32_t offset, uint8_t *data, uint32_t len);
	int (*activate)(struct vio_dev *d, struct err *e); /* on DRIVER_OK; may be NULL */
	/*
	 * Called when the driver's queues are gone: requests in flight must not be answered. May be
	 * NULL.
	 */
	void (*reset)(struct vio_dev *d);
	void (*on_kick)(struct vio_dev *d, unsigned queue);
	/*
	 * Returns true when no I/O is in flight. Otherwise the device calls vio_drained once,
	 * later. May be NULL.
	 */
	bool (*drain)(struct vio_dev *d);
	void (*save)(const struct vio_dev *d, struct wire *w);
	int (*restore)(struct vio_dev *d, struct wire *r, struct err *e);
	/*
	 * Called once after a restore, when the VM is about to run (vsock: transport reset event).
	 */
	void (*resumed)(struct vio_dev *d);
	/*
	 * Called after each turn, on the loop's thread and without the lock: callbacks may be
	 * called from here.
	 */
	void (*after_turn)(struct vio_dev *d);
	/*
	 * Adds lines about the device's own state. Called on the loop's thread with the lock held.
	 * May be NULL.
	 */
	void (*inspect)(const struct vio_dev *d, struct report *r);
	/* Releases what the device holds; the transport then frees `d`. May be NULL. */
	void (*fini)(struct vio_dev *d);
};

/* The base of every device, embedded first in the device's own struct. */
struct vio_dev {
	const struct vio_ops *ops;
	const struct gm *mem;
	struct event_loop *loop;
	struct vio_mmio *mmio; /* the transport that it is part of */
	struct vq *vq;	       /* ops->queues of them */
	uint64_t driver_features;
	/* Between activate and reset, while the driver has not broken the protocol. */
	bool active;
	/*
	 * Between drain and continue: takes no buffers and, once drained, touches no guest memory.
	 */
	bool quiesced;
	bool drained; /* on_drained is due */
	void (*on_drained)(void *arg);
	void *on_drained_arg;
};

/* Every event of a device's back end (a watch, a timer) is processed between these two. */
void vio_enter(struct vio_dev *d);
void vio_leave(struct vio_dev *d);

/*
 * Reports that the driver broke the protocol: sets DEVICE_NEEDS_RESET, notifies the driver, logs
 * once. Returns -EPROTO so that a handler can `return vio_guest_fault(...)`.
 */
int vio_guest_fault(struct vio_dev *d, const char *what);
/* Notifies the driver that the device's config has changed. */
void vio_config_changed(struct vio_dev *d);
/*
 * Notifies the driver of used buffers in `queue`: raises the interrupt unless the driver suppressed
 * it.
 */
void vio_notify(struct vio_dev *d, unsigned queue);
/*
 * Takes the next chain (vq_pop). Returns false when there is none, when the device is quiesced or
 * not active, and after a protocol error, which is reported by vio_guest_fault.
 */
bool vio_pop(struct vio_dev *d, unsigned queue, struct vq_chain *c);
/* Does the same, but asks the driver for a kick before it returns false. */
bool vio_pop_or_wait(struct vio_dev *d, unsigned queue, struct vq_chain *c);
/* Serves config_read from the beginning of a device's configuration; the rest is zeros. */
void vio_config_copy(const void *config, size_t size, uint32_t offset, uint8_t *data, uint32_t len);
/* Calls on_kick again in a later turn, so that other devices get their turns. Safe from any thread.
 */
void vio_rekick(struct vio_dev *d, unsigned queue);
/* Reports that a device whose drain returned false has no I/O in flight any more. */
void vio_drained(struct vio_dev *d);

/*
 * Creates the transport: registers at `addr` (VIO_MMIO_SIZE bytes) on the bus, doorbell eventfds of
 * the queues on the loop, interrupts on `line`. Owns `dev`, which is freed on failure.
 */
#define VIO_MMIO_SIZE 0x1000u
int vio_mmio_new(struct vio_mmio **out, struct vio_dev *dev, uint64_t addr, struct irq_line *line,
		 struct bus *bus, struct event_loop *loop, struct err *e);
void vio_mmio_free(struct vio_mmio *m);
struct vio_dev *vio_mmio_device(struct vio_mmio *m);
/* Returns the doorbell eventfd of queue `q`, for KVM_IOEVENTFD at addr + 0x50 with datamatch q. */
int vio_mmio_doorbell(struct vio_mmio *m, unsigned q);
/*
 * Drains the device: it takes no more buffers, and kicks are remembered. Returns true when no I/O
 * is in flight. Otherwise calls the device's on_drained (to be set before) once, without locks.
 * From then on it does not touch guest memory until vio_mmio_continue (the same VM goes on) or
 * vio_mmio_resumed (a restored VM runs for the first time). The latter may also be called while a
 * VM runs: its drivers then do what they do after a restore.
 */
bool vio_mmio_drain(struct vio_mmio *m);
void vio_mmio_continue(struct vio_mmio *m);
/*
 * Save and restore transport and device, as one section of the state file. The VM is paused and the
 * device drained. A restored device stays quiesced until vio_mmio_resumed.
 */
void vio_mmio_save(struct vio_mmio *m, struct wire *w);
int vio_mmio_restore(struct vio_mmio *m, struct wire *r, struct err *e);
void vio_mmio_resumed(struct vio_mmio *m);
/* Adds the state of the transport, the queues and the device, for people. */
void vio_mmio_inspect(struct vio_mmio *m, struct report *r);

/* Constructors. On success the device owns the disk or descriptor that it was given. */
struct layer_stack; /* backend/layer.h */
int vio_blk_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop,
		struct layer_stack *disk, struct err *e);
int vio_rng_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop, struct err *e);
/*
 * Writes the guest's output to the log `log_fd`, line by line, at most `bytes_per_s` on average;
 * the rest is dropped and counted.
 */
int vio_console_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop, int log_fd,
		    uint64_t bytes_per_s, struct err *e);
int vio_vsock_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop,
		  uint64_t guest_cid, struct err *e);

/* Frees `bytes` of RAM from `offset` on, which the guest does not use. Returns 0 or -errno. */
typedef int vio_discard(void *arg, uint64_t offset, uint64_t bytes);
int vio_balloon_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop,
		    vio_discard *discard, void *arg, struct err *e);

/*
 * `tap_fd` is a non-blocking tap that puts the header of virtio v1.2 (12 bytes) before each frame,
 * with its offloads set. With -1 there is no link, and the guest's frames are dropped. With `ipv6`
 * the device sends router advertisements to the guest. Addresses: proto/net.h.
 */
int vio_net_new(struct vio_dev **out, const struct gm *mem, struct event_loop *loop, int tap_fd,
		bool ipv6, struct err *e);

/*
 * Between hold and release, frames of the guest stay in its queue. Call hold on the loop's thread
 * before the vCPUs run; release is safe from any thread.
 */
void vio_net_hold(struct vio_dev *d);
void vio_net_release(struct vio_dev *d);

struct vio_net_stats {
	uint64_t rx_frames, rx_bytes; /* delivered to the guest */
	uint64_t tx_frames, tx_bytes; /* accepted by the tap */
	uint64_t rx_dropped, tx_dropped;
};
struct vio_net_stats vio_net_stats(const struct vio_dev *d);

/*
 * Connects the host to a guest port and joins the connection to `stream_fd` (a stream socket,
 * blocking or not, owned by the device from here on). Connections that are not `vital` leave one
 * place free. `done` is called once, on the loop's thread and without locks, perhaps before this
 * returns, with 0, -ECONNREFUSED, -ETIMEDOUT, -ECONNRESET (the guest's driver or the socket's other
 * end went away, or the device is freed), -EMFILE (too many connections) or -ENOMEM.
 */
typedef void vio_vsock_done(void *arg, int result);
void vio_vsock_connect(struct vio_dev *d, uint32_t port, bool vital, int stream_fd,
		       vio_vsock_done *done, void *arg);
unsigned vio_vsock_connections(const struct vio_dev *d);

/*
 * Sets the disk, once, before the driver or vio_mmio_restore touches the device. A blank VM has
 * none: vio_blk_new accepts NULL. The device owns the disk from here on.
 */
void vio_blk_set_disk(struct vio_dev *d, struct layer_stack *disk);

/*
 * Rate limits of the guest's requests on the host's disk, per second; 0: no limit. They count
 * operations on files of the host, of which a request may need many, and their bytes. A sync or a
 * hole counts as several operations (BLK_SYNC_OPS). Requests beyond the limits wait in the queue.
 * Set them before the driver touches the device.
 */
struct vio_blk_limits {
	uint32_t bytes_s, ops_s;
};
void vio_blk_limit(struct vio_dev *d, const struct vio_blk_limits *l);

struct vio_blk_stats {
	uint64_t read_bytes, write_bytes;
};
struct vio_blk_stats vio_blk_stats(const struct vio_dev *d);

/*
 * True while writes of the guest wait for space on the host's disk. They are neither done nor
 * refused, and so can't be part of a snapshot. A drain does not wait for them; they continue with
 * the device.
 */
bool vio_blk_enospc(const struct vio_dev *d);

/* Call it after the disk was sealed: begins to shorten the chain of layers if it is long. */
void vio_blk_sealed(struct vio_dev *d);

/* Returns the disk, for sealing its writable layer and setting the next one; NULL in a blank VM. */
struct layer_stack *vio_blk_disk(struct vio_dev *d);

#endif
