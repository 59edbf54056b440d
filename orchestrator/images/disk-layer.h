// SPDX-License-Identifier: Apache-2.0
/* Empty files for the writable disk layers of VMs. They have no names: a layer's blocks are freed
 * when the last process that has it open ends. */
#ifndef RAMET_ORCHESTRATOR_IMAGES_DISK_LAYER_H
#define RAMET_ORCHESTRATOR_IMAGES_DISK_LAYER_H

#include "base/err.h"
#include "orchestrator/io/disk-job.h"

/* Returns the descriptor of a new layer, or -errno with *e filled. For worker threads. */
int disk_layer_new(const char *state_dir, struct err *e);
/* Starts a job that makes `n` layers on a worker: `done` finds their descriptors in job->fds. */
struct disk_job *disk_layers_open(struct loop *loop, const char *state_dir, unsigned n,
				  void (*done)(void *arg, struct disk_job *job), void *arg);

#endif
