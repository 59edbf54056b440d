// SPDX-License-Identifier: Apache-2.0
#include "test/native/worker-client.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

static void die(const char *what)
{
	fprintf(stderr, "worker: %s\n", what);
	abort();
}

/* Makes a disk base whose mail has the number of the last order, so that it is not a new order. */
static int new_base(uint32_t seq)
{
	const struct worker_mail m = {.seq = seq};

	return vmm_file(&m, sizeof(m), WORKER_DISK_BYTES);
}

void worker_boot(struct worker *w, const struct vmm_options *o, const char *worker_elf)
{
	scoped_fd int kernel = open(worker_elf, O_RDONLY | O_CLOEXEC);
	struct vmm_snapshot disk = {.disk_bytes = WORKER_DISK_BYTES};

	worker_blank(w, o);
	disk.base = w->base = new_base(0);
	if (kernel < 0 || vmm_boot(&w->vmm, kernel, -1, "", &disk) ||
	    !vmm_expect_log(&w->vmm, "serial: ready"))
		die("it does not boot");
	close_fd(&disk.writable);
}

void worker_image(struct worker *w, struct vmm_snapshot *img, struct ctl_msg *reply)
{
	if (!vmm_fork(&w->vmm, img, reply))
		return;
	fprintf(stderr, "worker: %s\n", reply->reply.text);
	die("it can't be forked");
}

void worker_blank(struct worker *child, const struct vmm_options *o)
{
	*child = (struct worker){.base = -1};
	if (!vmm_start(&child->vmm, o))
		die("no blank VM");
}

void worker_prepare(struct worker *child, const struct worker *parent, enum worker_order order)
{
	child->base = new_base(parent->seq);
	child->seq = parent->seq;
	worker_post(child, order, 0, 0, 0);
}

void worker_restore(struct worker *child, const struct worker *parent,
		    const struct vmm_snapshot *img)
{
	struct vmm_snapshot own = *img;

	if (child->base < 0) {
		child->base = new_base(parent->seq);
		child->seq = parent->seq;
	}
	own.base = child->base;
	if (vmm_restore(&child->vmm, &own))
		die("a child can't be filled");
}

void worker_stop(struct worker *w)
{
	vmm_stop(&w->vmm);
	close_fd(&w->base);
}

void worker_post(struct worker *w, enum worker_order order, uint64_t a, uint64_t b, uint64_t c)
{
	const struct worker_mail m = {.seq = ++w->seq, .order = order, .a = a, .b = b, .c = c};

	/* The number comes last: a guest that reads in between sees the old order. */
	if (pwrite(w->base, (const uint8_t *)&m + 4, sizeof(m) - 4, 4) != sizeof(m) - 4 ||
	    pwrite(w->base, &m, 4, 0) != 4)
		die("an order can't be written to its disk");
}

uint64_t worker_wait(struct worker *w)
{
	char text[64];

	snprintf(text, sizeof(text), "serial: done %016x ", w->seq);
	if (!vmm_expect_log(&w->vmm, text) || !vmm_log_rest(&w->vmm, text, sizeof(text)))
		die("it does not answer");
	return strtoull(text, NULL, 16);
}

uint64_t worker_do(struct worker *w, enum worker_order order, uint64_t a, uint64_t b, uint64_t c)
{
	worker_post(w, order, a, b, c);
	return worker_wait(w);
}
