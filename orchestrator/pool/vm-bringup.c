// SPDX-License-Identifier: Apache-2.0
/* Steps: a blank VM -> egress closed -> files opened -> restored -> agent reached -> reseeded ->
 * file system grown -> primed -> ready. A failed step drops the VM. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "base/state-machine.h"
#include "orchestrator/agent/guest-link.h"
#include "orchestrator/images/guest-start.h"
#include "orchestrator/images/host.h"
#include "orchestrator/images/private.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/io/disk-job.h"
#include "orchestrator/pool/vm-bringup.h"
#include "orchestrator/vm/progress.h"

/* Limits on the time without progress of a VM process. A slow guest that makes progress gets more
 * time. */
#define STALL_MS      15000
#define IDLE_STALL_MS (20 * STALL_MS) /* for a VM that runs at low priority */
/* After this, a report is written; later, vm/request.c gives the VM up. */
#define RESTORE_STALL_MS 30000

enum bringup_state {
	BRINGUP_BLANK,
	BRINGUP_CLOSING, /* the VM's egress is being closed, before the guest starts */
	BRINGUP_OPENING, /* the template's files */
	BRINGUP_RESTORING,
	BRINGUP_DIALING,
	BRINGUP_RESEEDING,
	BRINGUP_GROWING, /* the root file system grows to a disk larger than the template's */
	BRINGUP_PRIMING,
	BRINGUP_READY,
	BRINGUP_NSTATES,
};

enum bringup_event {
	BRINGUP_CLOSE,
	BRINGUP_OPEN,
	BRINGUP_RESTORE,
	BRINGUP_DIAL,
	BRINGUP_RESEED,
	BRINGUP_GROW,
	BRINGUP_PRIME,
	BRINGUP_FINISH,
	BRINGUP_NEVENTS,
};

static const uint8_t next[BRINGUP_NSTATES][BRINGUP_NEVENTS] = {
	[BRINGUP_BLANK] = {[BRINGUP_CLOSE] = STATE_TO(BRINGUP_CLOSING),
			   [BRINGUP_OPEN] = STATE_TO(BRINGUP_OPENING),
			   [BRINGUP_RESTORE] = STATE_TO(BRINGUP_RESTORING)},
	[BRINGUP_CLOSING] = {[BRINGUP_OPEN] = STATE_TO(BRINGUP_OPENING),
			     [BRINGUP_RESTORE] = STATE_TO(BRINGUP_RESTORING)},
	[BRINGUP_OPENING] = {[BRINGUP_RESTORE] = STATE_TO(BRINGUP_RESTORING)},
	[BRINGUP_RESTORING] = {[BRINGUP_DIAL] = STATE_TO(BRINGUP_DIALING)},
	[BRINGUP_DIALING] = {[BRINGUP_RESEED] = STATE_TO(BRINGUP_RESEEDING)},
	[BRINGUP_RESEEDING] = {[BRINGUP_GROW] = STATE_TO(BRINGUP_GROWING),
			       [BRINGUP_PRIME] = STATE_TO(BRINGUP_PRIMING),
			       [BRINGUP_FINISH] = STATE_TO(BRINGUP_READY)},
	[BRINGUP_GROWING] = {[BRINGUP_PRIME] = STATE_TO(BRINGUP_PRIMING),
			     [BRINGUP_FINISH] = STATE_TO(BRINGUP_READY)},
	[BRINGUP_PRIMING] = {[BRINGUP_PRIME] = STATE_TO(BRINGUP_PRIMING),
			     [BRINGUP_FINISH] = STATE_TO(BRINGUP_READY)},
};
static const struct state_machine machine = STATE_MACHINE("VM bring-up", next);

struct vm_bringup {
	const struct template_env *env;
	struct vm_bringup_spec spec; /* holds a reference to the image */
	enum bringup_state state;
	char id[BRINGUP_ID_LEN + 1];
	struct vmproc *vm;
	struct disk_job *files;
	struct guest_link guest; /* its deadline covers the restore, the reseed and the priming */
	struct vmproc_progress progress; /* of the VM process, while the guest is awaited */
	unsigned to_prime;		 /* priming calls left */
	uint64_t restore_ns, running_ns; /* monotonic: restore requested; vCPUs started */
	struct inspection *report;	 /* in progress; after it the VM is given up for `reason` */
	char reason[ERR_TEXT_MAX];
	struct deferred deferred;
	vm_bringup_fn *fn;
	void *arg;
};

static void step(struct vm_bringup *b, enum bringup_event event)
{
	b->state = (enum bringup_state)state_after(&machine, b->state, event);
}

static void cancel_report(struct vm_bringup *b)
{
	b->env->inspector->cancel(b->report);
	b->report = NULL;
}

void vm_bringup_free(struct vm_bringup *b)
{
	if (!b)
		return;
	cancel_report(b);
	deferred_cancel(&b->deferred);
	disk_job_cancel(b->files);
	guest_link_close(&b->guest);
	if (b->vm)
		vmproc_drop(b->vm, NULL, NULL);
	if (b->spec.image) {
		vmproc_image_put(b->spec.image);
		disk_close(b->env->loop, &b->spec.writable);
	}
	if (b->spec.template)
		template_put(b->spec.template);
	free(b);
}

void ready_vm_drop(struct ready_vm *ready)
{
	agent_free(ready->agent);
	if (ready->vm)
		vmproc_drop(ready->vm, NULL, NULL);
	*ready = (struct ready_vm){0};
}

struct ready_vm vm_bringup_take(struct vm_bringup *b)
{
	struct ready_vm ready = {
		.vm = b->vm,
		.agent = guest_link_release(&b->guest),
		.running_ns = b->running_ns,
	};

	memcpy(ready.id, b->id, sizeof(ready.id));
	b->vm = NULL;
	vm_bringup_free(b);
	return ready;
}

/* Drops the VM and frees the bring-up, then calls its `fn`. */
static void fail(struct vm_bringup *b, const char *text)
{
	vm_bringup_fn *fn = b->fn;
	void *arg = b->arg;
	char copy[ERR_TEXT_MAX];

	snprintf(copy, sizeof(copy), "%s", text);
	log_warn("the new VM in slot %u is dropped: %s", b->vm ? vmproc_id(b->vm)->slot : 0, copy);
	if (b->spec.template && b->state >= BRINGUP_RESTORING && b->state < BRINGUP_READY)
		template_restored(b->spec.template, false);
	vm_bringup_free(b);
	fn(arg, NULL, copy);
}

/* --- VMs without progress --------------------------------------------------------------------- */

static uint32_t stalled_ms(const struct vm_bringup *b)
{
	if (b->spec.prime)
		return IDLE_STALL_MS;
	return b->state == BRINGUP_RESTORING ? RESTORE_STALL_MS : STALL_MS;
}

/* A VM process that does not answer the restore request is given up by vm/request.c. */
static void on_inspected(void *arg, const struct inspected *found)
{
	struct vm_bringup *b = arg;
	char what[ERR_TEXT_MAX + 64];

	b->report = NULL;
	snprintf(what, sizeof(what), "the VM in slot %u (%s)", vmproc_id(b->vm)->slot, b->reason);
	b->env->inspector->log(b->env->arg, what, found->text);
	if (b->state != BRINGUP_RESTORING)
		fail(b, b->reason);
}

/* Gives the VM up once a report on it is written, unless it progresses meanwhile. Gives it up at
 * once if too many reports are in progress, because a request waits. */
static void give_up(struct vm_bringup *b, const char *text)
{
	snprintf(b->reason, sizeof(b->reason), "%s", text);
	b->report = b->env->inspector->start(b->env->arg, b->vm, NULL, on_inspected, b);
	if (!b->report && b->state != BRINGUP_RESTORING)
		fail(b, b->reason);
}

static void on_late(void *arg)
{
	static const char *const reasons[] = {
		[BRINGUP_RESTORING] = "its process made no progress during the restore",
		[BRINGUP_RESEEDING] = "the guest made no progress before it confirmed the new seed",
		[BRINGUP_GROWING] = "the guest made no progress before its file system had grown",
		[BRINGUP_PRIMING] = "the guest made no progress in a priming call",
	};
	struct vm_bringup *b = arg;

	if (vmproc_progressed(&b->progress, vmproc_id(b->vm)->pid, VM_GUEST_WORKS))
		guest_link_set_deadline(&b->guest, stalled_ms(b));
	else
		give_up(b, reasons[b->state]);
}

static void watch_progress(struct vm_bringup *b)
{
	guest_link_set_deadline(&b->guest, vmproc_progress_begin(&b->progress, stalled_ms(b)));
}

static void note_progress(struct vm_bringup *b)
{
	if (!b->report)
		return;
	cancel_report(b);
	watch_progress(b);
}

/* --- reseed, grow, prime ---------------------------------------------------------------------- */

static void prime(struct vm_bringup *b)
{
	if (!b->to_prime) {
		step(b, BRINGUP_FINISH);
		vmproc_set_priority(b->vm,
				    WARDEN_BRINGUP); /* for its first call; it idles until then */
		guest_link_clear_deadline(&b->guest);
		if (b->spec.template)
			template_restored(b->spec.template, true);
		b->fn(b->arg, b, NULL);
		return;
	}
	step(b, BRINGUP_PRIME);
	guest_link_send(&b->guest, agent_exec_bytes(&priming_calls[PRIMING_CALLS - b->to_prime--]));
}

/* Returns true when the disk is larger than the template's. A fork's disk has its image's size. */
static bool wants_to_grow(const struct vm_bringup *b)
{
	return b->state == BRINGUP_RESEEDING && b->spec.template &&
	       b->spec.size.rootfs_gb > template_size(b->spec.template)->rootfs_gb;
}

static void grow(struct vm_bringup *b)
{
	if (!wants_to_grow(b)) {
		prime(b);
		return;
	}
	step(b, BRINGUP_GROW);
	guest_link_send(&b->guest, agent_grow_bytes((uint64_t)b->spec.size.rootfs_gb << 30));
}

static void on_frame(void *arg, const struct agent_frame *frame)
{
	struct vm_bringup *b = arg;
	char text[ERR_TEXT_MAX];

	note_progress(b);
	if (b->state == BRINGUP_PRIMING && frame->type == AGENT_EXIT && !frame->exit_code) {
		prime(b);
	} else if (b->state == BRINGUP_PRIMING) {
		fail(b, "a priming call failed");
	} else if (b->state != BRINGUP_RESEEDING && b->state != BRINGUP_GROWING) {
		fail(b, "the guest's agent sent a frame without a request");
	} else if (frame->type == AGENT_DONE) {
		grow(b);
	} else if (frame->type == AGENT_ERROR) {
		snprintf(text, sizeof(text), "the guest could not be made %s: %.*s",
			 b->state == BRINGUP_GROWING ? "as large as its disk" : "unique",
			 (int)(frame->len < 128 ? frame->len : 128),
			 frame->data ? (const char *)frame->data : "");
		fail(b, text);
	} else {
		fail(b, "the guest's agent sent an unexpected answer");
	}
}

static void on_reached(void *arg)
{
	struct vm_bringup *b = arg;

	step(b, BRINGUP_RESEED);
	watch_progress(b);
	guest_link_send(&b->guest,
			reseed_bytes(b->id + 4, b->spec.template || b->spec.user_generators));
}

static void on_lost(void *arg, enum guest_lost reason, const char *text)
{
	struct vm_bringup *b = arg;

	if (reason == GUEST_UNREACHED && vmproc_is_running(b->vm))
		give_up(b, text);
	else
		fail(b, text);
}

static const struct guest_link_events guest_events = {on_reached, on_frame, on_lost, on_late, NULL};

/* Returns when the vCPUs began to run: the VM process's own time if plausible, since its answer may
 * have waited in a queue; else now. */
static uint64_t ran_since(const struct vm_bringup *b, const struct ctl_msg *reply)
{
	uint64_t since = reply->reply.fill.running_ns, now = now_ns();

	return since >= b->restore_ns && since <= now ? since : now;
}

static void on_restored(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct vm_bringup *b = arg;

	note_progress(b);
	guest_link_clear_deadline(&b->guest);
	if (error) {
		fail(b, text);
		return;
	}
	b->running_ns = ran_since(b, reply);
	step(b, BRINGUP_DIAL);
	guest_link_dial(&b->guest, b->vm, stalled_ms(b), true);
}

static void begin_restore(struct vm_bringup *b)
{
	b->restore_ns = now_ns();
	step(b, BRINGUP_RESTORE);
	watch_progress(b);
}

static void on_opened(void *arg, struct disk_job *files)
{
	struct vm_bringup *b = arg;
	struct ctl_msg fill;
	struct err e;

	b->files = NULL;
	if (files->job.ret < 0) {
		template_open_failed(b->spec.template, files->job.ret);
		fail(b, files->job.err.text);
		return;
	}
	if (b->spec.private_of &&
	    private_take(b->spec.privates, b->spec.private_of, &files->fds[TEMPLATE_MEMORY],
			 &files->memory, &e) < 0) {
		fail(b, e.text);
		return;
	}
	template_fill(b->spec.size.rootfs_gb, &fill);
	begin_restore(b);
	vmproc_fill(b->vm, &fill, files->fds, TEMPLATE_FDS, on_restored, b);
}

static void restore(struct vm_bringup *b)
{
	if (!b->spec.image) {
		step(b, BRINGUP_OPEN);
		b->files = template_open(b->spec.template, on_opened, b);
		return;
	}
	begin_restore(b);
	vmproc_fill_image(b->vm, b->spec.image, take_fd(&b->spec.writable), on_restored, b);
	vmproc_image_put(b->spec.image); /* the request holds its own reference */
	b->spec.image = NULL;
}

/* The egress of a blank VM, or of one that is ready, is closed. */
static void on_closed(void *arg, int error, const char *text)
{
	struct vm_bringup *b = arg;
	char reason[ERR_TEXT_MAX];

	snprintf(reason, sizeof(reason), "its egress can't be closed: %s", text);
	if (error)
		fail(b, reason);
	else if (b->state == BRINGUP_READY)
		b->fn(b->arg, b, NULL);
	else
		restore(b);
}

static void on_blank(void *arg)
{
	struct vm_bringup *b = arg;

	if (!b->spec.closed) {
		restore(b);
		return;
	}
	step(b, BRINGUP_CLOSE);
	vmproc_close_egress(b->vm, on_closed, b);
}

void vm_bringup_close_egress(struct vm_bringup *b, vm_bringup_fn *fn, void *arg)
{
	b->fn = fn;
	b->arg = arg;
	vmproc_close_egress(b->vm, on_closed, b);
}

static void on_died(void *arg, const char *reason)
{
	fail(arg, reason);
}

static const struct vmproc_owner vmproc_owner = {on_blank, on_died};

struct vm_bringup *vm_bringup_start(const struct template_env *env,
				    const struct vm_bringup_spec *spec, vm_bringup_fn *fn,
				    void *arg)
{
	struct vm_bringup *b = must_alloc(sizeof(*b));

	*b = (struct vm_bringup){.env = env, .spec = *spec, .fn = fn, .arg = arg};
	guest_link_init(&b->guest, b->env->loop, &guest_events, b);
	b->to_prime = spec->prime ? PRIMING_CALLS : 0;
	random_id(b->id, sizeof(b->id), "sbx_");
	if (spec->image)
		vmproc_image_get(spec->image);
	if (spec->template)
		template_hold(spec->template);
	b->vm = spec->blank;
	if (b->vm) {
		vmproc_set_owner(b->vm, &vmproc_owner, b);
		deferred_run(b->env->deferred, &b->deferred, on_blank, b);
	} else {
		struct vmproc_spec vm = size_vm_spec(&spec->size, false);

		b->vm = vmproc_spawn(b->env->vms, &vm, &vmproc_owner, b);
	}
	if (spec->prime) /* no request waits for the VM yet, but the next one may */
		vmproc_set_priority(b->vm, WARDEN_NORMAL);
	return b;
}
