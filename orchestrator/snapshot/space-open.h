// SPDX-License-Identifier: Apache-2.0
/*
 * Gets the snapshot of a Space or checkpoint, from which VMs can be restored: the one that a
 * checkpoint holds in memory, or descriptors of the files on disk, which are read first unless
 * their checksums are verified already.
 */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_OPEN_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_SPACE_OPEN_H

#include <sys/stat.h>

#include "orchestrator/config/failure.h"
#include "orchestrator/exec/journal.h"
#include "orchestrator/images/waiter.h"

struct space;
struct space_read;
struct vmproc_image;

struct space_open {
	struct space *space;
	/* The result. */
	struct vmproc_image *image;
	const struct exec_point *call; /* the calls that ran; valid as long as `open` */
	bool guest_busy;
	/* In progress. */
	struct space_read *read;
	struct exec_point read_call;
	struct stat memory; /* stat of the snapshot's memory file */
	struct waiter private_wait;
	void (*fn)(void *arg, const struct failure *f);
	void *arg;
};

/* Returns true if `open`, which is zeroed, has the result. Otherwise calls `fn` from the loop when
 * it has, or with the failure. The Space stays in memory until space_open_fini. */
bool space_open_start(struct space_open *open, struct space *space,
		      void (*fn)(void *arg, const struct failure *f), void *arg);
/* Ends the work in progress and frees the result; accepts a zeroed `open`. */
void space_open_fini(struct space_open *open);

#endif
