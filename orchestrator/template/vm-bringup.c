// SPDX-License-Identifier: Apache-2.0
/*
 * Warm sandboxes: VMs restored from a template or from another VM's snapshot, whose guest has
 * confirmed that it is unique, with an open connection to the agent. A warm sandbox has its id
 * already, so the guest's host name is right and nothing is left to do in it when a client takes
 * it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "orchestrator/io/disk-job.h"
#include "orchestrator/core/inspect.h"
#include "orchestrator/template/private.h"
#include "orchestrator/vm/progress.h"

/* A slow guest gets more time; the limit applies to a VM process that makes no progress for so
 * long. */
#define STILL_MS      15000
#define IDLE_STILL_MS (20 * STILL_MS) /* for a VM that runs at low priority */
#define FILL_STILL_MS 30000	      /* then a report is written; vm.c gives up the VM later */

enum warm_state {
	WARM_SHELL,
	WARM_CLOSING, /* its egress, before the guest starts */
	WARM_OPENING, /* the template's files */
	WARM_FILLING,
	WARM_DIALING,
	WARM_RESEEDING,
	WARM_GROWING, /* its root file system, to a disk larger than the template's */
	WARM_REHEARSING,
	WARM_READY,
};

const struct agent_exec priming_calls[PRIMING_CALLS] = {
	{.language = AGENT_PYTHON, .code = "print(end='')", .code_len = 13},
	{.language = AGENT_BASH, .code = "true", .code_len = 4},
};

struct warm {
	struct core *core;
	struct warm_source from; /* holds a reference to the image */
	enum warm_state state;
	char id[SANDBOX_ID_LEN + 1];
	struct vmproc *vm;
	struct disk_job *files;
	struct guest_link guest; /* its deadline covers the restore, the reseed and the priming */
	struct vmproc_progress progress; /* since the deadline was set */
	unsigned to_prime;		 /* priming calls left */
	uint64_t fill_ns, filled_ns;	 /* monotonic: restore requested, restore done */
	struct inspection *inspection; /* in progress: the VM is given up after it, for `reason` */
	char reason[ERR_TEXT_MAX];
	struct deferred deferred;
	warm_fn *fn;
	void *arg;
};

void warm_free(struct warm *w)
{
	if (!w)
		return;
	inspection_cancel(w->inspection);
	deferred_cancel(&w->deferred);
	disk_job_cancel(w->files);
	guest_link_close(&w->guest);
	if (w->vm)
		vmproc_drop(w->vm, NULL, NULL);
	if (w->from.image) {
		vmproc_image_put(w->from.image);
		disk_close(w->core->loop, &w->from.writable);
	}
	free(w);
}

void warm_parts_drop(struct warm_parts *parts)
{
	agent_free(parts->agent);
	if (parts->vm)
		vmproc_drop(parts->vm, NULL, NULL);
	*parts = (struct warm_parts){0};
}

struct warm_parts warm_take(struct warm *w)
{
	struct warm_parts parts = {
		.vm = w->vm,
		.agent = guest_link_release(&w->guest),
		.filled_ns = w->filled_ns,
	};

	memcpy(parts.id, w->id, sizeof(parts.id));
	w->vm = NULL;
	warm_free(w);
	return parts;
}

/* Fails a warm sandbox and calls its `fn`: before it is ready, its maker's; afterwards its
 * holder's, who drops it. */
static void fail(struct warm *w, const char *text)
{
	warm_fn *fn = w->fn;
	void *arg = w->arg;
	char copy[ERR_TEXT_MAX];

	snprintf(copy, sizeof(copy), "%s", text);
	log_warn("a restored VM in slot %u is dropped: %s", w->vm ? vmproc_slot(w->vm) : 0, copy);
	if (w->from.template && w->state >= WARM_FILLING && w->state < WARM_READY)
		template_restored(w->from.template, false);
	warm_free(w);
	fn(arg, NULL, copy);
}

/* --- VMs without progress --------------------------------------------------------------------- */

static uint32_t stalled_ms(const struct warm *w)
{
	if (w->from.prime)
		return IDLE_STILL_MS;
	return w->state == WARM_FILLING ? FILL_STILL_MS : STILL_MS;
}

/* Logs the report. A VM process that does not answer the restore request is given up by vm.c. */
static void on_inspected(void *arg, const struct inspected *found)
{
	struct warm *w = arg;
	char what[ERR_TEXT_MAX + 64];

	w->inspection = NULL;
	snprintf(what, sizeof(what), "the VM in slot %u (%s)", vmproc_slot(w->vm), w->reason);
	stall_log(w->core, what, found->text);
	if (w->state != WARM_FILLING)
		fail(w, w->reason);
}

/* Gives the VM up once a report on it is written, unless it progresses meanwhile. Skips the report
 * when many VMs are being inspected, because a request waits. */
static void give_up(struct warm *w, const char *text)
{
	if (inspections_full(w->core)) {
		if (w->state != WARM_FILLING)
			fail(w, text);
		return;
	}
	snprintf(w->reason, sizeof(w->reason), "%s", text);
	w->inspection = inspection_start(w->core, w->vm, NULL, on_inspected, w);
}

static void on_late(void *arg)
{
	static const char *const reasons[] = {
		[WARM_FILLING] = "its process made no progress before the restore",
		[WARM_RESEEDING] = "the guest made no progress before it confirmed the new seed",
		[WARM_GROWING] = "the guest made no progress before its file system had grown",
		[WARM_REHEARSING] = "the guest made no progress in a priming call",
	};
	struct warm *w = arg;

	if (vmproc_progressed(&w->progress, vmproc_pid(w->vm), VM_GUEST_WORKS))
		guest_link_set_deadline(&w->guest, stalled_ms(w));
	else
		give_up(w, reasons[w->state]);
}

static void watch_progress(struct warm *w)
{
	vmproc_progress_begin(&w->progress, vmproc_pid(w->vm));
	guest_link_set_deadline(&w->guest, stalled_ms(w));
}

static void goes_on(struct warm *w)
{
	if (!w->inspection)
		return;
	inspection_cancel(w->inspection);
	w->inspection = NULL;
	watch_progress(w);
}

/* --- reseed, grow, prime ---------------------------------------------------------------------- */

static void prime(struct warm *w)
{
	uint8_t *bytes = NULL;
	size_t len = 0;

	if (!w->to_prime) {
		w->state = WARM_READY;
		vmproc_set_priority(w->vm,
				    WARDEN_BRINGUP); /* for its first call; it idles until then */
		guest_link_clear_deadline(&w->guest);
		if (w->from.template)
			template_restored(w->from.template, true);
		w->fn(w->arg, w, NULL);
		return;
	}
	w->state = WARM_REHEARSING;
	int encoded = agent_exec_bytes(&priming_calls[PRIMING_CALLS - w->to_prime--], &bytes, &len);
	guest_link_send(&w->guest, encoded, bytes, len);
}

/* Returns true when the disk is larger than the template's. A fork's disk has its image's size. */
static bool wants_to_grow(const struct warm *w)
{
	return w->state == WARM_RESEEDING && w->from.template &&
	       w->from.size.rootfs_gb > template_size(w->from.template)->rootfs_gb;
}

static void grow(struct warm *w)
{
	uint8_t *bytes = NULL;
	size_t len = 0;

	if (!wants_to_grow(w)) {
		prime(w);
		return;
	}
	w->state = WARM_GROWING;
	int encoded = agent_grow_bytes((uint64_t)w->from.size.rootfs_gb << 30, &bytes, &len);
	guest_link_send(&w->guest, encoded, bytes, len);
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct warm *w = arg;
	char text[ERR_TEXT_MAX];

	goes_on(w);
	if (w->state == WARM_REHEARSING && frame->type == AGENT_EXIT && !frame->exit_code) {
		prime(w);
	} else if (w->state == WARM_REHEARSING) {
		fail(w, "a priming call failed");
	} else if (w->state != WARM_RESEEDING && w->state != WARM_GROWING) {
		fail(w, "the guest's agent sent a frame without a request");
	} else if (frame->type == AGENT_DONE) {
		grow(w);
	} else if (frame->type == AGENT_ERROR) {
		snprintf(text, sizeof(text), "the guest could not be made %s: %.*s",
			 w->state == WARM_GROWING ? "as large as its disk" : "unique",
			 (int)(frame->len < 128 ? frame->len : 128),
			 frame->data ? (const char *)frame->data : "");
		fail(w, text);
	} else {
		fail(w, "the guest's agent sent an unexpected answer");
	}
}

static void on_reached(void *arg)
{
	struct warm *w = arg;
	uint8_t entropy[AGENT_ENTROPY_LEN], *bytes = NULL;
	struct timespec now;
	char host[16];
	size_t len = 0;

	random_bytes(entropy, sizeof(entropy));
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(host, sizeof(host), "ramet-%.8s", w->id + 4);
	int encoded =
		agent_reseed_bytes(entropy, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
				   w->from.template || w->from.user_generators, host, &bytes, &len);
	explicit_bzero(entropy, sizeof(entropy));
	w->state = WARM_RESEEDING;
	watch_progress(w);
	guest_link_send(&w->guest, encoded, bytes, len);
}

static void on_lost(void *arg, enum guest_lost reason, const char *text)
{
	struct warm *w = arg;

	if (reason == GUEST_UNREACHED && vmproc_is_running(w->vm))
		give_up(w, text);
	else
		fail(w, text);
}

static const struct guest_link_events guest_events = {on_reached, on_frame, on_lost, on_late, NULL};

/* Returns when the vCPUs began to run: the VM process's own time if plausible, since its answer may
 * have waited in a queue; else now. */
static uint64_t ran_since(const struct warm *w, const struct ctl_msg *reply)
{
	uint64_t since = reply->reply.fill.running_ns, now = now_ns();

	return since >= w->fill_ns && since <= now ? since : now;
}

static void on_filled(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct warm *w = arg;

	goes_on(w);
	guest_link_clear_deadline(&w->guest);
	if (error) {
		fail(w, text);
		return;
	}
	w->filled_ns = ran_since(w, reply);
	w->state = WARM_DIALING;
	guest_link_dial_while_working(&w->guest, w->vm, stalled_ms(w));
}

static void begin_fill(struct warm *w)
{
	w->fill_ns = now_ns();
	w->state = WARM_FILLING;
	watch_progress(w);
}

static void on_opened(void *arg, struct disk_job *files)
{
	struct warm *w = arg;
	struct ctl_msg fill;
	struct err e;

	w->files = NULL;
	if (files->ret < 0) {
		template_open_failed(w->from.template, files->ret);
		fail(w, files->err.text);
		return;
	}
	if (w->from.private_of &&
	    private_take(w->core, w->from.private_of, &files->fds[TEMPLATE_MEMORY], &files->memory,
			 &e) < 0) {
		fail(w, e.text);
		return;
	}
	template_fill(w->from.size.rootfs_gb, &fill);
	begin_fill(w);
	vmproc_fill(w->vm, &fill, files->fds, TEMPLATE_FDS, on_filled, w);
}

static void fill_from_image(struct warm *w)
{
	begin_fill(w);
	vmproc_fill_image(w->vm, w->from.image, take_fd(&w->from.writable), on_filled, w);
	vmproc_image_put(w->from.image); /* the request holds its own reference */
	w->from.image = NULL;
}

static void fill(struct warm *w)
{
	if (w->from.image) {
		fill_from_image(w);
		return;
	}
	w->state = WARM_OPENING;
	w->files = template_open(w->from.template, on_opened, w);
}

static void fail_open(struct warm *w, const char *text)
{
	char copy[ERR_TEXT_MAX];

	snprintf(copy, sizeof(copy), "its egress can't be closed: %s", text);
	fail(w, copy);
}

static void on_blank_closed(void *arg, int error, const char *text)
{
	struct warm *w = arg;

	if (error)
		fail_open(w, text);
	else
		fill(w);
}

static void on_blank(void *arg)
{
	struct warm *w = arg;

	if (!w->from.closed) {
		fill(w);
		return;
	}
	w->state = WARM_CLOSING;
	vmproc_close_egress(w->vm, on_blank_closed, w);
}

static void on_ready_closed(void *arg, int error, const char *text)
{
	struct warm *w = arg;

	if (error)
		fail_open(w, text);
	else
		w->fn(w->arg, w, NULL);
}

void warm_close_egress(struct warm *w, warm_fn *fn, void *arg)
{
	w->fn = fn;
	w->arg = arg;
	vmproc_close_egress(w->vm, on_ready_closed, w);
}

static void on_died(void *arg, const char *reason)
{
	fail(arg, reason);
}

static const struct vmproc_owner vmproc_owner = {on_blank, on_died};

struct warm *warm_make(struct core *c, const struct warm_source *from, warm_fn *fn, void *arg)
{
	struct warm *w = must_alloc(sizeof(*w));

	*w = (struct warm){.core = c, .from = *from, .fn = fn, .arg = arg};
	guest_link_init(&w->guest, c->loop, &guest_events, w);
	w->to_prime = from->prime ? PRIMING_CALLS : 0;
	random_id(w->id, sizeof(w->id), "sbx_");
	if (from->image)
		vmproc_image_get(from->image);
	w->vm = from->image ? from->blank : pool_take_blank(c, &from->size);
	if (w->vm) {
		vmproc_set_owner(w->vm, &vmproc_owner, w);
		deferred_run(&c->deferred, &w->deferred, on_blank, w);
	} else {
		struct vmproc_spec spec = size_vm_spec(&from->size, false);

		w->vm = vmproc_spawn(&c->vms, &spec, &vmproc_owner, w);
	}
	if (from->prime) /* no request waits for it yet; the next one may soon */
		vmproc_set_priority(w->vm, WARDEN_NORMAL);
	return w;
}
