// SPDX-License-Identifier: Apache-2.0
/* Maps guest addresses to handlers, for MMIO and ports. Called on vCPU threads. */
#ifndef RAMET_VMM_DEV_BUS_H
#define RAMET_VMM_DEV_BUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct bus_ops {
	/* `offset` is within the range; len is 1, 2, 4 or 8. The handler takes its own lock. */
	void (*read)(void *dev, uint64_t offset, uint8_t *data, uint32_t len);
	void (*write)(void *dev, uint64_t offset, const uint8_t *data, uint32_t len);
};

enum bus_space { BUS_MMIO, BUS_PORT };

#define BUS_RANGES_MAX 32

/* A zeroed bus is empty. All fields are private to bus.c. */
struct bus {
	unsigned n;
	struct bus_range {
		enum bus_space space;
		uint64_t addr, len;
		const struct bus_ops *ops;
		void *dev;
	} range[BUS_RANGES_MAX];
};

/*
 * Adds a range. Ranges must not overlap and are added before the first vCPU runs. `ops` and `dev`
 * must outlive the bus.
 */
int bus_add(struct bus *b, enum bus_space space, uint64_t addr, uint64_t len,
	    const struct bus_ops *ops, void *dev, struct err *e);
/* Access the bus. Without a handler, reads return all ones and writes are ignored. */
void bus_read(struct bus *b, enum bus_space space, uint64_t addr, uint8_t *data, uint32_t len);
void bus_write(struct bus *b, enum bus_space space, uint64_t addr, const uint8_t *data,
	       uint32_t len);

#endif
