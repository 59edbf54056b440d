// SPDX-License-Identifier: Apache-2.0
/*
 * Checks arbitrary control packets. The first byte is the number of descriptors that accompany the
 * packet. An accepted packet must satisfy the assumptions of the handlers.
 */
#include <stdlib.h>
#include <string.h>

#include "vmm/ctl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_fill(const struct ctl_msg *m, unsigned nfds)
{
	unsigned first =
		m->fill.kind == CTL_BOOT ? 1 + m->fill.has_initrd : 2 + m->fill.memory_layers;

	if (first + 1 + m->fill.layers + 1 != nfds || nfds > CTL_FDS_MAX ||
	    strnlen(m->fill.cmdline, CTL_CMDLINE_MAX) == CTL_CMDLINE_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ctl_msg m = {0};
	struct err e = {0};
	unsigned nfds;

	if (size < 1)
		return 0;
	nfds = data[0];
	size--;
	memcpy(&m, data + 1, size < sizeof(m) ? size : sizeof(m));
	if (ctl_check_request(&m, size, nfds, &e)) {
		if (!e.text[0])
			abort();
	} else if (size != sizeof(m) || !m.seq) {
		abort();
	} else if (m.type == CTL_FILL) {
		check_fill(&m, nfds);
	}
	return 0;
}
