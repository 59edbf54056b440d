// SPDX-License-Identifier: Apache-2.0
#include "guest/draft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "guest/loop.h"
#include "guest/worker.h"

#define EXPIRES_MS (3600 * 1000)

static struct list uploads = {&uploads, &uploads};
static unsigned upload_count;

static struct draft *find(const char *id)
{
	list_each (pos, &uploads) {
		struct draft *d = container_of(pos, struct draft, node);
		if (strcmp(d->id, id) == 0)
			return d;
	}
	return NULL;
}

static int check_table(const char *id, struct err *e)
{
	if (find(id))
		return err_say(e, EEXIST, "there is an upload with this id already");
	if (upload_count == AGENT_UPLOAD_MAX)
		return err_say(e, EAGAIN, "%d uploads are open, which is the limit",
			       AGENT_UPLOAD_MAX);
	return 0;
}

struct draft *draft_new(const char *id, struct err *e)
{
	if (id && check_table(id, e) < 0)
		return NULL;
	struct draft *d = calloc(1, sizeof(*d));
	void *file = mmap(NULL, sizeof(*d->file), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!d || file == MAP_FAILED) {
		free(d);
		if (file != MAP_FAILED)
			munmap(file, sizeof(*d->file));
		err_say(e, ENOMEM, "no memory for a file's draft");
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

struct draft *draft_find(const char *id)
{
	struct draft *d = find(id);

	if (d)
		d->touched = loop_now_ms();
	return d;
}

static void sweep_run(const void *request)
{
	/* The memory is shared with the agent, which may have given it up; this process has not. */
	draft_remove((struct draft_file *)(uintptr_t)request);
}

/* Not by the agent itself if it can be helped: to unlink a big file takes a while. */
static void sweep(struct draft *d)
{
	const struct worker_job job = {.run = sweep_run, .request = d->file};
	struct err e;

	if (d->file->state == DRAFT_OPEN && worker_start(NULL, &job, &e) < 0)
		draft_remove(d->file);
}

static void unlist(struct draft *d)
{
	if (list_empty(&d->node))
		return;
	list_del(&d->node);
	upload_count--;
}

static void free_unused(struct draft *d)
{
	if (d->workers || !list_empty(&d->node))
		return;
	sweep(d);
	munmap(d->file, sizeof(*d->file));
	free(d);
}

void draft_use(struct draft *d)
{
	d->workers++;
}

void draft_unuse(struct draft *d)
{
	d->workers--;
	d->touched = loop_now_ms();
	if (!d->workers) {
		d->commits = false;
		/* It was put in its place or, when it is still new, could not be made. */
		if (d->file->state != DRAFT_OPEN)
			unlist(d);
	}
	free_unused(d);
}

void draft_drop(struct draft *d)
{
	unlist(d);
	free_unused(d);
}

void draft_drop_all(void)
{
	list_each_safe (pos, &uploads) {
		struct draft *d = container_of(pos, struct draft, node);
		if (d->workers)
			sweep(d);
		draft_drop(d);
	}
}

int draft_expire(void)
{
	int64_t next = -1, now = loop_now_ms();

	list_each_safe (pos, &uploads) {
		struct draft *d = container_of(pos, struct draft, node);
		int64_t left = d->touched + EXPIRES_MS - now;

		if (d->workers)
			continue;
		if (left <= 0)
			draft_drop(d);
		else if (next < 0 || left < next)
			next = left;
	}
	return (int)next;
}
