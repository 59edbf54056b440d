// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/images/disk-layer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/alloc.h"

int disk_layer_new(const char *state_dir, struct err *e)
{
	int fd = open(state_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd < 0 ? err_set(e, errno, "make a disk layer in %s", state_dir) : fd;
}

static int open_layers(struct disk_job *job)
{
	for (unsigned i = 0; i < job->n; i++) {
		job->fds[i] = disk_layer_new(job->what, &job->job.err);
		if (job->fds[i] < 0)
			return job->fds[i];
	}
	return 0;
}

struct disk_job *disk_layers_open(struct loop *loop, const char *state_dir, unsigned n,
				  void (*done)(void *arg, struct disk_job *job), void *arg)
{
	return disk_job_start(loop, open_layers, must_copy(state_dir), n, done, arg);
}
