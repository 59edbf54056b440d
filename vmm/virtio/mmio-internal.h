// SPDX-License-Identifier: Apache-2.0
/* The transport's own fields, shared by mmio.c, mmio-save.c and mmio-inspect.c. */
#ifndef RAMET_VMM_VIRTIO_MMIO_INTERNAL_H
#define RAMET_VMM_VIRTIO_MMIO_INTERNAL_H

#include <pthread.h>

#include "vmm/virtio/device.h"

enum status {
	S_ACKNOWLEDGE = 1,
	S_DRIVER = 2,
	S_DRIVER_OK = 4,
	S_FEATURES_OK = 8,
	S_NEEDS_RESET = 64,
	S_FAILED = 128,
};

#define S_FOUND	     (S_ACKNOWLEDGE | S_DRIVER)
#define S_NEGOTIATED (S_FOUND | S_FEATURES_OK)
#define S_RUNNING    (S_NEGOTIATED | S_DRIVER_OK)

#define INT_USED_BUFFER	  1u
#define INT_CONFIG_CHANGE 2u

struct doorbell {
	struct vio_mmio *mmio;
	unsigned queue;
	int fd; /* eventfd */
	struct event_watch *watch;
};

struct vio_mmio {
	pthread_mutex_t lock;
	struct vio_dev *dev;
	const struct irq_line *line;
	uint32_t interrupt_status; /* atomic: served without the lock */
	uint32_t status;
	uint32_t device_features_sel, driver_features_sel;
	uint32_t queue_sel;
	uint32_t config_generation;
	bool reset_due, activate_due; /* recorded on a vCPU thread, done on the loop's thread */
	bool fault_logged;
	bool resuming; /* interrupts are recorded; vio_mmio_resumed raises the line once */
	struct vq vq[VIO_QUEUES_MAX];
	struct doorbell bell[VIO_QUEUES_MAX];
};

/*
 * True when the driver may select these features. The caller of this and the next two holds the
 * lock.
 */
bool mmio_features_acceptable(const struct vio_mmio *m, uint64_t features);
/* Applies the negotiated features to a queue that is set up. */
void mmio_negotiated(const struct vio_mmio *m, struct vq *q);
/* Resets the device, as when a driver writes 0 to the status. */
void mmio_reset(struct vio_mmio *m);

#endif
