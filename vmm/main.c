// SPDX-License-Identifier: Apache-2.0
/* ramet-vmm: one process for one microVM. It opens no files by name: see config.h. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/turn.h"
#include "vmm/config.h"
#include "vmm/ctl.h"
#include "vmm/dev/event-loop.h"
#include "vmm/vm.h"

static int serve(const struct vm_config *cfg, struct err *e)
{
	struct event_loop *loop = NULL;
	struct vm *vm = NULL;
	int r = event_loop_new(&loop, e);

	if (!r)
		r = vm_new(&vm, cfg, loop, e);
	/* For the loop's thread only: the vCPU threads exist already. */
	turn_soon();
	if (!r)
		r = ctl_serve(cfg, loop, vm, e);
	if (!r)
		r = vm_confine(vm, e);
	if (!r)
		event_loop_run(loop);
	/* The end of the process frees all; freeing it here would only take time. */
	return r;
}

static int fail(const struct err *e)
{
	log_error("%s", e->text);
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct vm_config cfg;
	struct err e = {0};
	char role[32];

	/*
	 * A single malloc arena: every KiB of a blank VM counts, and only the loop's thread
	 * allocates.
	 */
	mallopt(M_ARENA_MAX, 1);
	/* Lets malloc keep freed memory for the start of the guest, since new pages cost time. */
	mallopt(M_TRIM_THRESHOLD, 512 << 10);
	/* Has the buffers of connections (CONN_BUF_BYTES) allocated on the heap, so that malloc
	 * keeps them, too, when they are freed. */
	mallopt(M_MMAP_THRESHOLD, 512 << 10);
	signal(SIGPIPE, SIG_IGN);
	/* Reads the time zone file, if any, while files may still be opened. */
	tzset();
	log_init("vm", LOG_INFO);
	if (vm_config_parse(&cfg, argc, argv, &e))
		return fail(&e);
	snprintf(role, sizeof(role), "vm %u", cfg.slot);
	log_init(role, LOG_INFO);
	if (serve(&cfg, &e))
		return fail(&e);
	exit(EXIT_SUCCESS);
}
