// SPDX-License-Identifier: Apache-2.0
/*
 * Host measurements that operators poll. A worker thread takes them every few seconds, because the
 * disk can block.
 */
#include "orchestrator/sandbox/watch.h"

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
#include "orchestrator/sandbox/service.h"

#define EVERY_MS   10000
#define STALE_MS   (3 * EVERY_MS) /* a check that takes longer has failed */
#define PROBE	   4096
#define DISK_AHEAD (2ull << 30) /* reserved for sandboxes, not for images made ahead */

struct watching {
	struct step_job job;
	char dir[CONFIG_PATH_MAX];
	struct watched found;
};

/* --- on the worker -------------------------------------------------------------------------- */

/* Checks that a file can be written in `dir`: the disk may be full or have become read-only. */
static void probe_disk(const char *dir, struct watched *found)
{
	static const char zeros[PROBE];
	struct statvfs fs;
	struct err e;

	found->disk_error[0] = 0;
	if (statvfs(dir, &fs) == 0)
		found->disk_free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	scoped_fd int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EOPNOTSUPP)
		return; /* the file system does not support unnamed files */
	if (fd >= 0 && write(fd, zeros, PROBE) == PROBE)
		return;
	err_set(&e, errno, "state_dir %.100s is not writable", dir);
	snprintf(found->disk_error, sizeof(found->disk_error), "%s", e.text);
}

static int probe_step(void *job)
{
	struct watching *w = job;

	probe_disk(w->dir, &w->found);
	return 1;
}

/* --- on the loop ---------------------------------------------------------------------------- */

static void on_probed(void *owner, void *job)
{
	const struct watching *w = job;
	struct service *c = owner;

	c->watch.job = NULL;
	loop_timer_set(c->loop, &c->watch.timer, EVERY_MS);
	if (w->job.ret < 0)
		return;
	c->watch.found = w->found;
	c->watch.found_ms = loop_now_ms(c->loop);
	promises_changed(c); /* image memory grows without any call */
}

static const struct step_job_ops probe_ops = {LOOP_DISK, probe_step, NULL, on_probed, free};

static void on_timer(void *arg)
{
	struct service *c = arg;
	struct watching *w = must_alloc(sizeof(*w));

	snprintf(w->dir, sizeof(w->dir), "%s", c->config.state_dir);
	c->watch.job = w;
	step_job_start(c->loop, w, &probe_ops, c);
}

void watch_start(struct service *c)
{
	c->watch.found_ms = loop_now_ms(c->loop);
	loop_timer_start(c->loop, &c->watch.timer, on_timer, c, 0);
}

void watch_stop(struct service *c)
{
	loop_timer_clear(c->loop, &c->watch.timer);
	step_job_cancel(c->watch.job);
	c->watch.job = NULL;
}

const char *watch_disk_error(const struct service *c, char *text, size_t size)
{
	uint64_t age_ms = loop_now_ms(c->loop) - c->watch.found_ms;

	if (age_ms > STALE_MS) {
		snprintf(text, size, "state_dir was last checked %llu s ago: the disk may be stuck",
			 (unsigned long long)age_ms / 1000);
		return text;
	}
	return c->watch.found.disk_error[0] ? c->watch.found.disk_error
					    : catalogue_error(c, text, size);
}

/* Uses the last measurement. The service takes the first one when it starts. */
bool host_disk_low(const struct service *c)
{
	uint64_t bytes = c->watch.found.disk_free_bytes;

	return bytes && bytes < DISK_AHEAD;
}
