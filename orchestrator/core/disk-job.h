// SPDX-License-Identifier: Apache-2.0
/*
 * Work on files for one owner: what opens, stats or reads files on a disk, which may stand still,
 * is done by a worker thread, and its owner goes on when it is over.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_DISK_JOB_H
#define RAMET_ORCHESTRATOR_CORE_DISK_JOB_H

#include "base/err.h"
#include "orchestrator/core/internal.h"

struct disk_job {
	struct loop *loop;
	int (*work)(struct disk_job *job); /* on a worker; fills `fds` and `what` */
	void (*done)(void *arg, struct disk_job *job);
	void *arg;
	void *what; /* malloc'd, the job's; NULL: nothing */
	struct later later;
	bool cancelled;
	int ret; /* of the work; `err` says why */
	struct err err;
	unsigned n;
	int fds[]; /* -1: none; those that `done` leaves are closed, on a worker */
};

/* `done` comes from the loop. `what` is the job's from here on. */
struct disk_job *disk_job_start(struct core *c, int (*work)(struct disk_job *job), void *what,
				unsigned n_fds, void (*done)(void *arg, struct disk_job *job),
				void *arg);
/* `done` does not come. NULL is fine. */
void disk_job_cancel(struct disk_job *job);
/* `n` empty files for writable disk layers, without names. */
struct disk_job *disk_layers_open(struct core *c, unsigned n,
				  void (*done)(void *arg, struct disk_job *job), void *arg);
/* Closes a file that may be without a name, so that its blocks are freed; *fd is -1 then. */
void disk_close(struct core *c, int *fd);

#endif
