// SPDX-License-Identifier: Apache-2.0
#include "vmm/kvm/irq.h"

#include <errno.h>
#include <sys/eventfd.h>

int irq_line_init(struct irq_line *line, uint32_t gsi, struct err *e)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return err_set(e, errno, "create the eventfd of interrupt %u", gsi);
	*line = (struct irq_line){.fd = fd, .gsi = gsi};
	return 0;
}

void irq_line_raise(const struct irq_line *line)
{
	/* Fails only when 2^64 - 2 edges are pending; one more would change nothing. */
	eventfd_write(line->fd, 1);
}
