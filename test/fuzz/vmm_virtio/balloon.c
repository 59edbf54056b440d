// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int discard(void *arg, uint64_t offset, uint64_t bytes)
{
	if (offset > GUEST_MEM || bytes > GUEST_MEM - offset)
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest g = {.in = wire_from(data, size)};
	struct vio_dev *dev;

	drv_init(&g.v, GUEST_MEM);
	if (vio_balloon_new(&dev, &g.v.mem, g.v.loop, discard, NULL, NULL) < 0)
		abort();
	drv_attach(&g.v, dev);
	guest_maybe_restore(&g);
	guest_play(&g);
	drv_fini(&g.v);
	return 0;
}
