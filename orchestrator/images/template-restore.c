// SPDX-License-Identifier: Apache-2.0
/* Opens the files that restores from a template need, and discards an image from which restores
 * fail. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/images/bases.h"
#include "orchestrator/images/disk-layer.h"
#include "orchestrator/images/host.h"
#include "orchestrator/images/template-internal.h"

#define BAD_IN_ROW_MAX 3 /* an image is discarded after so many failed restores */

static int check_disk(struct disk_job *job)
{
	return disk_is_full(job->what) ? -ENOSPC : 0;
}

/* Discards an image after repeated failures, unless the disk is full: that is not the image's
 * fault. */
static void on_disk_checked(void *arg, struct disk_job *job)
{
	struct template *t = arg;

	t->disk_check = NULL;
	if (job->job.ret < 0)
		t->bad_in_row = 0;
	if (t->bad_in_row < BAD_IN_ROW_MAX)
		return;
	t->discard = true;
	template_spoil(t);
}

void template_restored(struct template *t, bool well)
{
	t->bad_in_row = well ? 0 : t->bad_in_row + 1;
	if (t->bad_in_row < BAD_IN_ROW_MAX || t->built_here || t->disk_check)
		return;
	char *dir = must_copy(t->templates->env->config->state_dir);
	t->disk_check =
		disk_job_start(t->templates->env->loop, check_disk, dir, 0, on_disk_checked, t);
}

/* Input of the worker that opens a template's files. */
struct template_files {
	char dir[2 * CONFIG_PATH_MAX], state_dir[CONFIG_PATH_MAX];
	struct source source;
	bool evictable; /* mark as used now: eviction takes the least recently used image */
};

static int open_files(struct disk_job *job)
{
	static const char *const names[] = {"state", "memory", NULL, "layer-0"};
	struct template_files *what = job->what;
	struct source_stamp now;
	struct err *e = &job->job.err;

	scoped_fd int dir = open(what->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_set(e, errno, "open %s", what->dir);
	if (what->evictable)
		futimens(dir, NULL);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *path = names[i] ? names[i] : what->source.rootfs;

		job->fds[i] = openat(names[i] ? dir : AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
		if (job->fds[i] < 0)
			return err_set(e, errno, "open %s of template %s", path, what->source.name);
	}
	if (fstat(job->fds[TEMPLATE_MEMORY], &job->memory) < 0)
		return err_set(e, errno, "inspect %s of template %s", names[TEMPLATE_MEMORY],
			       what->source.name);
	/* Check the stamp after the open: the image holds only differences from the rootfs file
	 * that is open now. */
	source_stamp(&what->source, &now);
	if (!source_stamp_equal(&now, &what->source.stamp))
		return err_say(
			e, ENOENT,
			"a source file of template %s was replaced; the template must be rebuilt",
			what->source.name);
	int ret = base_remember(what->state_dir, job->fds[TEMPLATE_BASE], e);
	if (ret == 0)
		ret = job->fds[4] = disk_layer_new(what->state_dir, e);
	return ret < 0 ? ret : 0;
}

struct disk_job *template_open(struct template *t, void (*done)(void *arg, struct disk_job *job),
			       void *arg)
{
	struct template_files *what = must_alloc(sizeof(*what));
	const struct config *config = t->templates->env->config;

	snprintf(what->dir, sizeof(what->dir), "%s/templates/%s", config->state_dir, t->name);
	memcpy(what->state_dir, config->state_dir, sizeof(what->state_dir));
	what->source = t->source;
	what->evictable = t != t->templates->def;
	return disk_job_start(t->templates->env->loop, open_files, what, TEMPLATE_FDS, done, arg);
}

static int open_memory(struct disk_job *job)
{
	const char *path = job->what;

	job->fds[0] = open(path, O_RDONLY | O_CLOEXEC);
	if (job->fds[0] < 0 || fstat(job->fds[0], &job->memory) < 0)
		return err_set(&job->job.err, errno, "open %s", path);
	return 0;
}

struct disk_job *template_open_memory(struct template *t,
				      void (*done)(void *arg, struct disk_job *job), void *arg)
{
	char *path = must_alloc(2 * CONFIG_PATH_MAX);

	snprintf(path, 2 * CONFIG_PATH_MAX, "%s/templates/%s/memory",
		 t->templates->env->config->state_dir, t->name);
	return disk_job_start(t->templates->env->loop, open_memory, path, 1, done, arg);
}

/* Discards the image after somebody removed or replaced its files. */
void template_open_failed(struct template *t, int error)
{
	if (error == -ENOENT)
		template_spoil(t);
}

void template_fill(uint32_t rootfs_gb, struct ctl_msg *fill)
{
	*fill = (struct ctl_msg){.fill = {.kind = CTL_RESTORE,
					  .layers = 1,
					  .disk_bytes = (uint64_t)rootfs_gb << 30}};
}
