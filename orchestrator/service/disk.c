// SPDX-License-Identifier: Apache-2.0
/*
 * The free space of the disk, and whether it can be written. A worker thread looks every few
 * seconds, because the disk can block.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/io/step-job.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/catalogue.h"
#include "orchestrator/service/upkeep.h"

#define EVERY_MS   10000
#define STALE_MS   (3 * EVERY_MS) /* a check that takes longer has failed */
#define PROBE	   4096
#define DISK_AHEAD (2ull << 30) /* reserved for sandboxes, not for images made ahead */

struct disk_check {
	struct step_job job;
	char dir[CONFIG_PATH_MAX];
	struct disk_found found;
};

/* --- on the worker -------------------------------------------------------------------------- */

/* Checks that a file can be written in `dir`: the disk may be full or have become read-only. */
static void probe_disk(const char *dir, struct disk_found *found)
{
	static const char zeros[PROBE];
	struct statvfs fs;
	struct err e;

	found->error[0] = 0;
	if (statvfs(dir, &fs) == 0) {
		found->free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
		/* Leaves out the blocks that only root may use, as df(1) does. */
		found->total_bytes =
			(uint64_t)(fs.f_blocks - fs.f_bfree + fs.f_bavail) * fs.f_frsize;
	}
	scoped_fd int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EOPNOTSUPP)
		return; /* the file system does not support unnamed files */
	if (fd >= 0 && write(fd, zeros, PROBE) == PROBE)
		return;
	err_set(&e, errno, "state_dir %.100s is not writable", dir);
	snprintf(found->error, sizeof(found->error), "%s", e.text);
}

static int probe_step(void *job)
{
	struct disk_check *check = job;

	probe_disk(check->dir, &check->found);
	return 1;
}

/* --- on the loop ---------------------------------------------------------------------------- */

static void on_probed(void *owner, void *job)
{
	const struct disk_check *check = job;
	struct service *c = owner;

	upkeep_of(c)->disk.check = NULL;
	loop_timer_set(c->loop, &upkeep_of(c)->disk.timer, EVERY_MS);
	if (check->job.ret < 0)
		return;
	upkeep_of(c)->disk.found = check->found;
	upkeep_of(c)->disk.found_ms = loop_now_ms(c->loop);
	promises_changed(c); /* image memory grows without any call */
}

static const struct step_job_ops probe_ops = {LOOP_DISK, probe_step, NULL, on_probed, free};

static void on_timer(void *arg)
{
	struct service *c = arg;
	struct disk_check *check = must_alloc(sizeof(*check));

	snprintf(check->dir, sizeof(check->dir), "%s", c->config.state_dir);
	upkeep_of(c)->disk.check = check;
	step_job_start(c->loop, check, &probe_ops, c);
}

void disk_start(struct service *c)
{
	upkeep_of(c)->disk.found_ms = loop_now_ms(c->loop);
	loop_timer_start(c->loop, &upkeep_of(c)->disk.timer, on_timer, c, 0);
}

void disk_stop(struct service *c)
{
	loop_timer_clear(c->loop, &upkeep_of(c)->disk.timer);
	step_job_cancel(upkeep_of(c)->disk.check);
	upkeep_of(c)->disk.check = NULL;
}

const char *disk_error(const struct service *c, char *text, size_t size)
{
	uint64_t age_ms = loop_now_ms(c->loop) - upkeep_of(c)->disk.found_ms;

	if (age_ms > STALE_MS) {
		snprintf(text, size, "state_dir was last checked %llu s ago: the disk may be stuck",
			 (unsigned long long)age_ms / 1000);
		return text;
	}
	return upkeep_of(c)->disk.found.error[0] ? upkeep_of(c)->disk.found.error
						 : catalogue_error(c, text, size);
}

/* Uses the last measurement. The service takes the first one when it starts. */
bool disk_is_low(void *arg)
{
	const struct service *c = arg;
	uint64_t bytes = upkeep_of(c)->disk.found.free_bytes;

	return bytes && bytes < DISK_AHEAD;
}
