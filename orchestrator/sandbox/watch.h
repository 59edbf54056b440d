// SPDX-License-Identifier: Apache-2.0
/* Facts about the host and the VMs that are looked up every few seconds. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_WATCH_H
#define RAMET_ORCHESTRATOR_SANDBOX_WATCH_H

#include "base/err.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/sandbox/sandboxes.h"

struct core;

/* Measured some seconds ago. */
struct watched {
	struct memory_use memory; /* of sandboxes' VMs */
	uint64_t disk_free_bytes;
	char disk_error[ERR_TEXT_MAX]; /* empty: state_dir is writable */
};

/* The state of watch.c. */
struct watch {
	struct watching *job; /* in progress, or NULL */
	struct watched found;
	uint64_t found_ms; /* when that was measured, on the loop's clock */
	struct loop_timer timer;
};

void watch_start(struct core *c);
void watch_stop(struct core *c);
/* Measures one VM process now; leaves *use unchanged when that fails. */
void watch_memory(uint32_t pid, struct memory_use *use);
/* Returns why state_dir or the catalogue can't be written, in `text` or in *c; NULL: they can. */
const char *watch_disk_error(const struct core *c, char *text, size_t size);

#endif
