// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/snapshot/space-open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "orchestrator/images/private.h"
#include "orchestrator/sandbox/tenant.h"
#include "orchestrator/snapshot/checkpoint.h"
#include "orchestrator/snapshot/space-files.h"

static void fail_for(struct space_open *open, const char *text)
{
	struct failure f;

	failure_set(&f, space_is_checkpoint(open->space) ? FAIL_START_FAILED : FAIL_RESUME_FAILED,
		    5, "%s %s can't be started and is kept: %.160s", space_noun(open->space->id),
		    open->space->id, text);
	open->fn(open->arg, &f);
}

/* Replaces the snapshot's memory file with the tenant's copy. A Space may have a template's memory
 * file if it was frozen before its tenant required private memory. */
static void on_private(void *arg, const struct failure *f)
{
	struct space_open *open = arg;
	struct space *p = open->space;
	struct err e;

	if (f)
		open->fn(open->arg, f);
	else if (private_take(p->service->privates, p->tenant, &open->image->fds[TEMPLATE_MEMORY],
			      &open->memory, &e) < 0)
		fail_for(open, e.text);
	else
		open->fn(open->arg, NULL);
}

static void choose_memory(struct space_open *open)
{
	struct space *p = open->space;
	struct service *c = p->service;

	if (!tenant_is_private(c, p->tenant))
		open->fn(open->arg, NULL);
	else if (private_ready(c->privates, p->tenant, open->image->fds[TEMPLATE_MEMORY],
			       &open->memory, &open->private_wait, on_private, open))
		on_private(open, NULL);
}

static int make_image(struct space_open *open, struct space_read *read)
{
	struct space_manifest *m = &read->manifest;
	struct vmproc_image image = {.memory_layers = m->memory_layers,
				     .layers = m->layers,
				     .disk_bytes = m->disk_bytes,
				     .nfds = m->image.n_files};

	if (!size_equal(&m->size, &open->space->config.size) ||
	    strcmp(m->template, open->space->config.template) != 0)
		return err_say(&read->job.err, EINVAL, "its manifest belongs to another Space");
	for (unsigned i = 0; i < image.nfds; i++)
		image.fds[i] = take_fd(&read->fds[i]);
	open->image = vmproc_image_of(&image);
	open->memory = read->memory;
	open->guest_busy = m->guest_busy;
	open->read_call = m->call;
	open->call = &open->read_call;
	m->call = (struct exec_point){0};
	return 0;
}

static void on_read(void *owner, void *job)
{
	struct space_open *open = owner;
	struct space_read *read = job;
	int ret = read->job.ret < 0 ? read->job.ret : make_image(open, read);
	struct failure f;

	open->read = NULL;
	if (ret == 0) {
		space_checked(open->space);
		choose_memory(open);
	} else if (read->damaged || ret == -EINVAL) {
		space_damaged(open->space, read->job.err.text);
		space_find(open->space->service, open->space->tenant, open->space->id, &f);
		open->fn(open->arg, &f);
	} else {
		fail_for(open, read->job.err.text);
	}
}

static const struct step_job_ops read_ops = {LOOP_BULK, space_read_step, NULL, on_read,
					     space_read_free};

bool space_open_start(struct space_open *open, struct space *space,
		      void (*fn)(void *arg, const struct failure *f), void *arg)
{
	const struct checkpoint *held = space->checkpoint;

	open->space = space;
	open->fn = fn;
	open->arg = arg;
	space->users++;
	if (held && held->image) {
		open->image = vmproc_image_get(held->image);
		open->call = &held->call;
		open->guest_busy = held->guest_busy;
		return true;
	}
	open->read = must_alloc(sizeof(*open->read));
	space_read_begin(open->read, space->service->config.state_dir, space->id);
	step_job_start(space->service->loop, open->read, &read_ops, open);
	space_scrub_stop(space);
	return false;
}

void space_open_fini(struct space_open *open)
{
	struct space *p = open->space;

	if (!p)
		return;
	step_job_cancel(open->read);
	waiter_cancel(&open->private_wait);
	vmproc_image_put(open->image);
	exec_point_fini(&open->read_call);
	*open = (struct space_open){0};
	p->users--;
	if (p->checkpoint)
		checkpoint_give_back(p->checkpoint);
}
