// SPDX-License-Identifier: Apache-2.0
/*
 * Work on files for one owner. A disk may hang, so a worker thread opens, stats or reads the files;
 * the owner continues from a callback.
 */
#ifndef RAMET_ORCHESTRATOR_IO_DISK_JOB_H
#define RAMET_ORCHESTRATOR_IO_DISK_JOB_H

#include <sys/stat.h>

#include "orchestrator/io/step-job.h"

struct disk_job {
	struct step_job job;
	int (*work)(struct disk_job *job); /* on a worker; fills `fds` and `what` */
	void (*done)(void *arg, struct disk_job *job);
	void *what;		       /* NULL, or malloc'd data of `work`; owned by the job */
	void (*free_what)(void *what); /* set by the owner unless free() is enough */
	struct stat memory;	       /* of a template's memory file, if one was opened */
	unsigned n;		       /* number of fds */
	int fds[]; /* -1: none; a worker closes those that `done` does not take */
};

/* Starts `work` on a worker thread; calls `done` on the loop, also if no worker thread is
 * available. Takes ownership of `what`. The job is freed after `done`. */
struct disk_job *disk_job_start(struct loop *loop, int (*work)(struct disk_job *job), void *what,
				unsigned n_fds, void (*done)(void *arg, struct disk_job *job),
				void *arg);
/* Cancels the job: `done` is not called. NULL is fine. */
void disk_job_cancel(struct disk_job *job);
/* Closes *fd on a worker thread and sets it to -1. Use it for files that may be unlinked, because
 * closing them frees their blocks. */
void disk_close(struct loop *loop, int *fd);

#endif
