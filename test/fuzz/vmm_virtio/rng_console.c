// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest g = {.in = wire_from(data, size)};
	struct vio_dev *dev;

	drv_init(&g.v, GUEST_MEM);
	if (wire_get_u8(&g.in) & 1) {
		if (vio_rng_new(&dev, &g.v.mem, g.v.loop, NULL) < 0)
			abort();
	} else {
		int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

		if (vio_console_new(&dev, &g.v.mem, g.v.loop, fd, 10000, NULL) < 0)
			abort();
	}
	drv_attach(&g.v, dev);
	guest_maybe_restore(&g);
	guest_play(&g);
	drv_fini(&g.v);
	return 0;
}
