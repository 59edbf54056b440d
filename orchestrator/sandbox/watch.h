// SPDX-License-Identifier: Apache-2.0
/* Facts about the host that are looked up every few seconds. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_WATCH_H
#define RAMET_ORCHESTRATOR_SANDBOX_WATCH_H

#include "base/err.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/sandbox/sandboxes.h"

struct service;

/* Measured some seconds ago. */
struct watched {
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

void watch_start(struct service *c);
void watch_stop(struct service *c);
/* Returns why state_dir or the catalogue can't be written, in `text` or in *c; NULL: they can. */
const char *watch_disk_error(const struct service *c, char *text, size_t size);

#endif
