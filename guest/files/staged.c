// SPDX-License-Identifier: Apache-2.0
#include "guest/files/staged.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "guest/loop.h"
#include "guest/files/worker.h"

#define EXPIRES_MS (3600 * 1000)

static struct list uploads = {&uploads, &uploads};
static unsigned upload_count;

static struct staged *find(const char *id)
{
	list_each (pos, &uploads) {
		struct staged *d = container_of(pos, struct staged, node);
		if (strcmp(d->id, id) == 0)
			return d;
	}
	return NULL;
}

static int check_table(const char *id, struct err *e)
{
	if (find(id))
		return err_say(e, EEXIST, "an upload with this id is already open");
	if (upload_count == AGENT_UPLOAD_MAX)
		return err_say(e, EAGAIN, "%d uploads are open, which is the limit",
			       AGENT_UPLOAD_MAX);
	return 0;
}

struct staged *staged_new(const char *id, struct err *e)
{
	if (id && check_table(id, e) < 0)
		return NULL;
	struct staged *d = calloc(1, sizeof(*d));
	void *file = mmap(NULL, sizeof(*d->file), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!d || file == MAP_FAILED) {
		free(d);
		if (file != MAP_FAILED)
			munmap(file, sizeof(*d->file));
		err_say(e, ENOMEM, "no memory for a staged file");
		return NULL;
	}
	d->file = file;
	d->touched = loop_now_ms();
	list_init(&d->node);
	if (!id)
		return d;
	memcpy(d->id, id, sizeof(d->id));
	list_add_tail(&uploads, &d->node);
	upload_count++;
	return d;
}

struct staged *staged_find(const char *id)
{
	struct staged *d = find(id);

	if (d)
		d->touched = loop_now_ms();
	return d;
}

static void sweep_run(const void *request)
{
	/* The memory is shared: the agent may have unmapped it, this process has not. */
	staged_remove((struct staged_file *)(uintptr_t)request);
}

/* Removes the temporary file, in a worker if possible, since unlinking a big file takes a while. */
static void sweep(struct staged *d)
{
	const struct worker_job job = {.run = sweep_run, .request = d->file};
	struct err e;

	if (d->file->state == STAGED_OPEN && worker_start(NULL, &job, &e) < 0)
		staged_remove(d->file);
}

static void unlist(struct staged *d)
{
	if (list_empty(&d->node))
		return;
	list_del(&d->node);
	upload_count--;
}

static void free_unused(struct staged *d)
{
	if (d->workers || !list_empty(&d->node))
		return;
	sweep(d);
	munmap(d->file, sizeof(*d->file));
	free(d);
}

void staged_use(struct staged *d)
{
	d->workers++;
}

void staged_unuse(struct staged *d)
{
	d->workers--;
	d->touched = loop_now_ms();
	if (!d->workers) {
		d->commits = false;
		/* The temporary file was renamed (committed), or could not be created. */
		if (d->file->state != STAGED_OPEN)
			unlist(d);
	}
	free_unused(d);
}

void staged_drop(struct staged *d)
{
	unlist(d);
	free_unused(d);
}

void staged_drop_all(void)
{
	list_each_safe (pos, &uploads) {
		struct staged *d = container_of(pos, struct staged, node);
		if (d->workers)
			sweep(d);
		staged_drop(d);
	}
}

int staged_expire(void)
{
	int64_t next = -1, now = loop_now_ms();

	list_each_safe (pos, &uploads) {
		struct staged *d = container_of(pos, struct staged, node);
		int64_t left = d->touched + EXPIRES_MS - now;

		if (d->workers)
			continue;
		if (left <= 0)
			staged_drop(d);
		else if (next < 0 || left < next)
			next = left;
	}
	return (int)next;
}
