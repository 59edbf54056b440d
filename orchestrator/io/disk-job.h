// SPDX-License-Identifier: Apache-2.0
/*
 * Work on files for one owner: what opens, stats or reads files on a disk, which may stand still,
 * is done by a worker thread, and its owner goes on when it is over.
 */
#ifndef RAMET_ORCHESTRATOR_IO_DISK_JOB_H
#define RAMET_ORCHESTRATOR_IO_DISK_JOB_H

#include <stdbool.h>

#include <sys/stat.h>

#include "base/err.h"
#include "orchestrator/io/loop.h"

struct disk_job {
	struct loop *loop;
	int (*work)(struct disk_job *job); /* on a worker; fills `fds` and `what` */
	void (*done)(void *arg, struct disk_job *job);
	void *arg;
	void *what;		       /* malloc'd, the job's; NULL: nothing */
	void (*free_what)(void *what); /* set by the owner where free does not do */
	struct loop_timer undone;      /* set when there was no worker for it */
	bool cancelled;
	int ret; /* of the work; `err` says why */
	struct err err;
	struct stat memory; /* of a template's memory file, where one was opened */
	unsigned n;
	int fds[]; /* -1: none; those that `done` leaves are closed, on a worker */
};

/* `done` comes from the loop. `what` is the job's from here on. */
struct disk_job *disk_job_start(struct loop *loop, int (*work)(struct disk_job *job), void *what,
				unsigned n_fds, void (*done)(void *arg, struct disk_job *job),
				void *arg);
/* `done` does not come. NULL is fine. */
void disk_job_cancel(struct disk_job *job);
/* Closes a file that may be without a name, so that its blocks are freed; *fd is -1 then. */
void disk_close(struct loop *loop, int *fd);

#endif
