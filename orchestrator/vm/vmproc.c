// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/state-machine.h"
#include "orchestrator/vm/internal.h"

/* Timeouts without progress: an overcommitted host takes many times as long as an idle one. */
#define SPAWN_TIMEOUT_MS 30000
#define HELLO_TIMEOUT_MS 30000
#define ADOPT_TIMEOUT_MS 60000 /* longer, as the VM holds a tenant's work */
#define RELEASE_RETRY_MS 2000

/* Until it is broken or dropped, every VM may become so. */
#define MAY_END [VM_FAIL] = STATE_TO(VM_BROKEN), [VM_DROP] = STATE_TO(VM_RELEASING)

static const uint8_t next[VM_NSTATES][VM_NEVENTS] = {
	[VM_WAITING] = {[VM_GOT_SLOT] = STATE_TO(VM_SPAWNING),
			[VM_ADOPT] = STATE_TO(VM_GREETING),
			MAY_END},
	[VM_SPAWNING] = {[VM_REFUSED] = STATE_TO(VM_WAITING),
			 [VM_SPAWNED] = STATE_TO(VM_GREETING),
			 MAY_END},
	[VM_GREETING] = {[VM_HELLO_BLANK] = STATE_TO(VM_BLANK),
			 [VM_HELLO_RUNNING] = STATE_TO(VM_RUNNING),
			 [VM_HELLO_PAUSED] = STATE_TO(VM_PAUSED),
			 MAY_END},
	[VM_BLANK] = {[VM_FILL] = STATE_TO(VM_FILLING), [VM_INSPECT] = STATE_TO(VM_BLANK), MAY_END},
	[VM_FILLING] =
		{[VM_FILLED] = STATE_TO(VM_RUNNING), [VM_INSPECT] = STATE_TO(VM_FILLING), MAY_END},
	[VM_RUNNING] = {[VM_CONNECT] = STATE_TO(VM_RUNNING),
			[VM_FORK] = STATE_TO(VM_RUNNING),
			[VM_FREEZE] = STATE_TO(VM_FREEZING),
			[VM_PAUSE] = STATE_TO(VM_PAUSING),
			[VM_RECORD] = STATE_TO(VM_RUNNING),
			[VM_QUIT] = STATE_TO(VM_QUITTING),
			[VM_INSPECT] = STATE_TO(VM_RUNNING),
			MAY_END},
	[VM_PAUSING] = {[VM_PAUSE_DONE] = STATE_TO(VM_PAUSED),
			[VM_INSPECT] = STATE_TO(VM_PAUSING),
			MAY_END},
	[VM_PAUSED] = {[VM_RUN] = STATE_TO(VM_STARTING),
		       [VM_QUIT] = STATE_TO(VM_QUITTING),
		       [VM_INSPECT] = STATE_TO(VM_PAUSED),
		       MAY_END},
	[VM_FREEZING] = {[VM_FROZEN] = STATE_TO(VM_PAUSED),
			 [VM_FREEZE_FAILED] = STATE_TO(VM_RUNNING),
			 [VM_INSPECT] = STATE_TO(VM_FREEZING),
			 MAY_END},
	[VM_STARTING] =
		{[VM_RUNS] = STATE_TO(VM_RUNNING), [VM_INSPECT] = STATE_TO(VM_STARTING), MAY_END},
	[VM_QUITTING] = {[VM_QUIT_DONE] = STATE_TO(VM_BROKEN), MAY_END},
	[VM_BROKEN] = {[VM_DROP] = STATE_TO(VM_RELEASING)},
};
static const struct state_machine machine = STATE_MACHINE("VM process", next);

/* Moves to the next state. The event must be legal in the current one. */
static void step(struct vmproc *vm, enum vmproc_event event)
{
	vm->state = (enum vmproc_state)state_after(&machine, vm->state, event);
}

bool vmproc_try_step(struct vmproc *vm, enum vmproc_event event)
{
	return state_try(&machine, &vm->state, event);
}

/* Returns true from the start of the VM process until the VM breaks or is dropped. */
static bool is_spawned(const struct vmproc *vm)
{
	return vm->state > VM_SPAWNING && vm->state < VM_BROKEN;
}

static struct vmproc *vmproc_new(struct vmproc_host *h, const struct vmproc_owner *owner, void *arg)
{
	struct vmproc *vm = must_alloc(sizeof(*vm));

	*vm = (struct vmproc){.host = h,
			      .id = {.slot = VM_NO_SLOT},
			      .priority = WARDEN_BRINGUP, /* the warden starts it with this */
			      .owner = owner,
			      .owner_arg = arg,
			      .fd = -1,
			      .next_seq = 1};
	return vm;
}

void vmproc_free_if_idle(struct vmproc *vm)
{
	if (!vm->free_me || vm->recv_op || vm->sends)
		return;
	close_fd(&vm->fd);
	free(vm);
}

static void report_death(void *arg)
{
	struct vmproc *vm = arg;

	vmproc_fail_requests(vm);
	if (vm->owner)
		vm->owner->died(vm->owner_arg, vm->reason);
}

void vmproc_fail(struct vmproc *vm, const char *format, ...)
{
	char words[ERR_TEXT_MAX / 2];
	va_list args;

	if (!vmproc_try_step(vm, VM_FAIL)) /* the VM failed before, or was dropped */
		return;
	list_del(&vm->wait_link);
	loop_timer_clear(vm->host->loop, &vm->timer);
	va_start(args, format);
	/* clang-tidy overlooks the va_start: NOLINTNEXTLINE(clang-analyzer-valist*) */
	vsnprintf(vm->reason, sizeof(vm->reason), format, args);
	va_end(args);
	vmproc_last_words(vm, vm->voice, words, sizeof(words));
	size_t used = strlen(vm->reason);
	if (words[0])
		snprintf(vm->reason + used, sizeof(vm->reason) - used, " (last line of its %s: %s)",
			 vm->voice == VM_GUEST ? "console" : "log", words);
	deferred_run(vm->host->deferred, &vm->deferred, report_death, vm);
}

/* --- start ---------------------------------------------------------------------------------- */

static uint32_t hello_timeout_ms(const struct vmproc *vm)
{
	return vm->adopted ? ADOPT_TIMEOUT_MS : HELLO_TIMEOUT_MS;
}

static void on_hello_timeout(void *arg)
{
	struct vmproc *vm = arg;

	if (vmproc_progressed(&vm->progress, vm->id.pid, vm->adopted ? VM_GUEST_WORKS : VM_WORKS))
		loop_timer_set(vm->host->loop, &vm->timer, hello_timeout_ms(vm));
	else
		vmproc_fail(vm, "the VM process sent no hello and made no progress for %u s",
			    hello_timeout_ms(vm) / 1000);
}

static void connect_control(struct vmproc *vm)
{
	struct err e;

	if (vmproc_open_socket(vm, &e) < 0) {
		vmproc_fail(vm, "%s", e.text);
		return;
	}
	loop_timer_start(vm->host->loop, &vm->timer, on_hello_timeout, vm,
			 vmproc_progress_begin(&vm->progress, hello_timeout_ms(vm)));
	vmproc_receive(vm);
}

static void release(struct vmproc *vm);

/* Returns the slot as the argument of a callback that may be called after the VM was freed. */
static void *slot_arg(const struct vmproc *vm)
{
	return (void *)(uintptr_t)vm->id.slot;
}

static unsigned slot_of(const void *arg)
{
	return (unsigned)(uintptr_t)arg;
}

static void on_prioritized(void *arg, int error, uint64_t value, const char *text)
{
	/* The death of a VM is reported separately. */
	if (error && error != -ESRCH)
		log_warn("slot %u: cannot change the VM's priority: %s", slot_of(arg), text);
}

static void send_priority(struct vmproc *vm)
{
	const struct warden_msg msg = {.type = WARDEN_PRIORITY,
				       .slot = vm->id.slot,
				       .priority = {.priority = vm->priority}};

	warden_client_call(vm->host->warden, &msg, on_prioritized, slot_arg(vm));
}

static void set_spawn_timer(struct vmproc *vm)
{
	vm->warden_answers = warden_client_answers(vm->host->warden);
	loop_timer_set(vm->host->loop, &vm->timer, SPAWN_TIMEOUT_MS);
}

/* Starts the VM in another slot, because starting one in this slot crashes the warden. Returns
 * false when that does not help. */
static bool try_other_slot(struct vmproc *vm)
{
	if (!vmproc_retire_slot(vm))
		return false;
	step(vm, VM_REFUSED);
	set_spawn_timer(vm);
	vmproc_take_slot(vm);
	return true;
}

static void on_spawned(void *arg, int error, uint64_t value, const char *text)
{
	struct vmproc *vm = arg;

	vm->spawn_pending = false;
	if (vm->state == VM_RELEASING) {
		release(vm);
		return;
	}
	if (vm->state != VM_SPAWNING) /* the spawn timed out */
		return;
	if (error == -ENOTRECOVERABLE && try_other_slot(vm))
		return;
	loop_timer_clear(vm->host->loop, &vm->timer);
	if (error) {
		vmproc_fail(vm, "cannot start the VM process: %s", text);
		return;
	}
	vm->id.pid = (uint32_t)value;
	step(vm, VM_SPAWNED);
	if (vm->priority != WARDEN_BRINGUP)
		send_priority(vm);
	connect_control(vm);
}

/* Waits on if the warden has answered anything: it handles one request at a time, so each answer
 * may free a slot and brings this spawn closer. */
static void on_spawn_timeout(void *arg)
{
	struct vmproc *vm = arg;

	if (warden_client_answers(vm->host->warden) != vm->warden_answers) {
		set_spawn_timer(vm);
		return;
	}
	vmproc_fail(vm,
		    vm->state == VM_WAITING ? "no VM slot became free in %d s"
					    : "the warden did not start a VM process in %d s",
		    SPAWN_TIMEOUT_MS / 1000);
}

void vmproc_start_spawn(struct vmproc *vm)
{
	struct warden_msg msg = {
		.type = WARDEN_SPAWN,
		.slot = vm->id.slot,
		.spawn = {.vcpus = vm->spec.vcpus,
			  .ram_mib = vm->spec.ram_mib,
			  .memory_max = vm->spec.memory_max,
			  .cpu_max_pct = 100 * vm->spec.vcpus,
			  .pids_max = 64 + 2 * vm->spec.vcpus},
	};

	step(vm, VM_GOT_SLOT);
	if (warden_client_call(vm->host->warden, &msg, on_spawned, vm) < 0)
		vmproc_fail(vm, "the warden is gone");
	else
		vm->spawn_pending = true;
}

struct vmproc *vmproc_spawn(struct vmproc_host *h, const struct vmproc_spec *spec,
			    const struct vmproc_owner *owner, void *arg)
{
	struct vmproc *vm = vmproc_new(h, owner, arg);

	vm->spec = *spec;
	vm->timer = (struct loop_timer){.fn = on_spawn_timeout, .arg = vm};
	set_spawn_timer(vm);
	vmproc_take_slot(vm);
	return vm;
}

struct vmproc *vmproc_adopt(struct vmproc_host *h, const struct vmproc_id *id,
			    const struct vmproc_spec *spec, const struct vmproc_owner *owner,
			    void *arg)
{
	if (id->slot >= h->max_vms || h->slots[id->slot])
		return NULL;
	struct vmproc *vm = vmproc_new(h, owner, arg);
	vm->adopted = true;
	vm->oom_first = -1;
	vm->spec = *spec;
	vm->charged_most = spec->memory_max; /* unknown: assume the maximum */
	vm->id = *id;
	vmproc_occupy_slot(vm, id->slot);
	step(vm, VM_ADOPT);
	vmproc_set_priority(vm,
			    WARDEN_NORMAL); /* the service may have crashed before it set this */
	connect_control(vm);
	return vm;
}

/* Handles the end of a CTL_RUN. If it failed, the owner's `died` is called. */
static void on_runs(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct vmproc *vm = arg;

	if (!error && vm->owner)
		vm->owner->ready(vm->owner_arg);
}

/* Returns true for the VM to adopt. The slot may hold another VM if the end of a sandbox did not
 * reach the catalogue. */
static bool is_the_one(struct vmproc *vm, const struct ctl_msg *msg)
{
	if (!memcmp(vm->id.instance, msg->hello.instance, sizeof(vm->id.instance)))
		return true;
	vm->foreign = true;
	memcpy(vm->id.instance, msg->hello.instance, sizeof(vm->id.instance));
	return false;
}

void vmproc_on_hello(struct vmproc *vm, const struct ctl_msg *msg)
{
	bool same = msg->hello.vcpus == vm->spec.vcpus && msg->hello.ram_mib == vm->spec.ram_mib;
	bool blank = msg->hello.state == CTL_BLANK, running = msg->hello.state == CTL_RUNNING;
	bool paused = msg->hello.state == CTL_PAUSED;

	if (vm->state == VM_GREETING && vm->adopted && !is_the_one(vm, msg)) {
		vmproc_fail(vm, "another VM than the catalogue names was found in slot %u",
			    vm->id.slot);
		return;
	}
	if (vm->state != VM_GREETING || !same || (vm->adopted ? !running && !paused : !blank)) {
		vmproc_fail(
			vm,
			"the VM process reports an impossible state (state %u, %u vCPUs, %u MiB;"
			" expected %u vCPUs, %u MiB)",
			msg->hello.state, msg->hello.vcpus, msg->hello.ram_mib, vm->spec.vcpus,
			vm->spec.ram_mib);
		return;
	}
	loop_timer_clear(vm->host->loop, &vm->timer);
	step(vm, blank ? VM_HELLO_BLANK : paused ? VM_HELLO_PAUSED : VM_HELLO_RUNNING);
	if (paused) /* the service ended during a freeze */
		vmproc_ask(vm, CTL_RUN, on_runs, vm);
	else if (vm->owner)
		vm->owner->ready(vm->owner_arg);
}

void vmproc_set_owner(struct vmproc *vm, const struct vmproc_owner *owner, void *arg)
{
	if (vm->closed && vm->closed_arg == vm->owner_arg)
		vm->closed_arg = arg;
	vm->owner = owner;
	vm->owner_arg = arg;
}

static void on_limited(void *arg, int error, uint64_t value, const char *text)
{
	/* The VM keeps its previous limit. If it needs more it dies, which is reported. */
	if (error)
		log_error("slot %u: cannot change the VM's memory limit: %s", slot_of(arg), text);
}

/* The fill need not wait for the new limit: a guest takes longer to touch that much memory. */
bool vmproc_fit(struct vmproc *vm, const struct vmproc_spec *spec)
{
	struct warden_msg msg = {.type = WARDEN_MEMORY, .slot = vm->id.slot};

	if (vm->state != VM_BLANK || spec->vcpus != vm->spec.vcpus ||
	    spec->ram_mib > vm->spec.ram_mib)
		return false;
	msg.memory.max = spec->memory_max;
	if (spec->memory_max != vm->spec.memory_max &&
	    warden_client_call(vm->host->warden, &msg, on_limited, slot_arg(vm)) < 0)
		return false;
	vm->spec = *spec;
	return true;
}

static void set_ahead(struct vmproc *vm, bool ahead)
{
	loop_timer_clear(vm->host->loop, &vm->head_start);
	vm->host->ahead += (uint32_t)ahead - (uint32_t)vm->ahead;
	vm->ahead = ahead;
}

void vmproc_set_priority(struct vmproc *vm, enum warden_priority priority)
{
	set_ahead(vm, false);
	if (priority == vm->priority)
		return;
	vm->priority = priority;
	if (is_spawned(vm))
		send_priority(vm);
}

static void on_head_start_over(void *arg)
{
	vmproc_set_priority(arg, WARDEN_NORMAL);
}

void vmproc_give_head_start(struct vmproc *vm, uint64_t ms)
{
	vmproc_set_priority(vm, WARDEN_BRINGUP);
	set_ahead(vm, true);
	loop_timer_start(vm->host->loop, &vm->head_start, on_head_start_over, vm, ms);
}

static void on_marked(void *arg, int error, uint64_t value, const char *text)
{
	if (error && error != -ESRCH)
		log_warn("slot %u: cannot change the VM's OOM score: %s", slot_of(arg), text);
}

void vmproc_set_oom(struct vmproc *vm, bool first)
{
	const struct warden_msg msg = {
		.type = WARDEN_OOM, .slot = vm->id.slot, .oom = {.first = first}};

	if (vm->oom_first == first || !is_spawned(vm))
		return;
	vm->oom_first = first;
	warden_client_call(vm->host->warden, &msg, on_marked, slot_arg(vm));
}

/* The VM still exists, for the reason given at on_closed. Not called any more once the warden is
 * lost. */
static void on_measured(void *arg, int error, uint64_t charged, const char *text)
{
	struct vmproc *vm = arg;
	struct vmproc_host *h = vm->host;

	if (!error)
		vm->charged = charged;
	if (--h->measuring == 0 && h->measured)
		h->measured(h->arg);
}

bool vmproc_measure(struct vmproc *vm)
{
	const struct warden_msg msg = {.type = WARDEN_CHARGED, .slot = vm->id.slot};

	if (!vm->charged_most || !is_spawned(vm) ||
	    warden_client_call(vm->host->warden, &msg, on_measured, vm) < 0)
		return false;
	vm->host->measuring++;
	return true;
}

uint64_t vmproc_charged(const struct vmproc *vm)
{
	return vm->charged;
}

/* The VM still exists: the warden answers in order, and the VM is freed only after the answer to
 * its WARDEN_RELEASE, which was sent later. */
static void on_closed(void *arg, int error, uint64_t value, const char *text)
{
	struct vmproc *vm = arg;
	vmproc_closed_fn *fn = vm->closed;

	vm->closed = NULL;
	if (fn)
		fn(vm->closed_arg, error, text);
}

void vmproc_close_egress(struct vmproc *vm, vmproc_closed_fn *fn, void *arg)
{
	struct warden_msg msg = {.type = WARDEN_NO_EGRESS, .slot = vm->id.slot};

	vm->closed = fn;
	vm->closed_arg = arg;
	if (warden_client_call(vm->host->warden, &msg, on_closed, vm) < 0)
		vmproc_fail(vm, "the warden is gone");
}

struct loop *vmproc_loop(const struct vmproc *vm)
{
	return vm->host->loop;
}

const struct vmproc_id *vmproc_id(const struct vmproc *vm)
{
	return &vm->id;
}

bool vmproc_is_foreign(const struct vmproc *vm)
{
	return vm->foreign;
}

bool vmproc_is_running(const struct vmproc *vm)
{
	return vm->state == VM_RUNNING;
}

/* --- end ------------------------------------------------------------------------------------ */

static void finish_drop(void *arg)
{
	struct vmproc *vm = arg;
	void (*gone)(void *arg) = vm->gone;
	void *gone_arg = vm->gone_arg;

	vm->emptied = true;
	if (!vm->keeps_slot)
		vmproc_give_back(vm);
	if (gone)
		gone(gone_arg);
}

void vmproc_keep_slot(struct vmproc *vm)
{
	vm->keeps_slot = true;
}

void vmproc_give_back(struct vmproc *vm)
{
	vm->keeps_slot = false;
	if (!vm->emptied)
		return;
	vmproc_forget_requests(vm); /* a report may have been requested since the drop */
	vmproc_give_slot(vm);
	vm->free_me = true;
	vmproc_free_if_idle(vm);
}

static void retry_release(void *arg)
{
	release(arg);
}

static void on_released(void *arg, int error, uint64_t value, const char *text)
{
	struct vmproc *vm = arg;

	if (!error) {
		finish_drop(vm);
		return;
	}
	log_error("cannot empty slot %u (will retry): %s", vm->id.slot, text);
	loop_timer_start(vm->host->loop, &vm->timer, retry_release, vm, RELEASE_RETRY_MS);
}

static void release(struct vmproc *vm)
{
	struct warden_msg msg = {.type = WARDEN_RELEASE, .slot = vm->id.slot};

	if (vm->id.slot == VM_NO_SLOT || vm->host->warden_lost ||
	    warden_client_call(vm->host->warden, &msg, on_released, vm) < 0)
		deferred_run(vm->host->deferred, &vm->deferred, finish_drop, vm);
}

static void detach(struct vmproc *vm)
{
	step(vm, VM_DROP);
	vm->owner = NULL;
	vm->closed = NULL;
	list_del(&vm->wait_link);
	loop_timer_clear(vm->host->loop, &vm->timer);
	set_ahead(vm, false);
	deferred_cancel(&vm->deferred);
	vmproc_forget_requests(vm);
	vmproc_close_socket(vm);
}

void vmproc_drop(struct vmproc *vm, void (*gone)(void *arg), void *arg)
{
	detach(vm);
	vm->gone = gone;
	vm->gone_arg = arg;
	if (vm->id.slot == VM_NO_SLOT && !gone) {
		vm->free_me = true;
		vmproc_free_if_idle(vm);
	} else if (!vm->host->detached && (!vm->spawn_pending || vm->host->warden_lost)) {
		release(vm);
	}
}

void vmproc_leave(struct vmproc *vm)
{
	detach(vm);
	vm->emptied = true; /* this service will not use the slot again */
	vm->host->in_use--;
}

int vmproc_sweep(struct vmproc_host *h, uint32_t slot)
{
	if (slot >= h->max_vms || h->slots[slot])
		return -EBUSY;
	struct vmproc *vm = vmproc_new(h, NULL, NULL);
	vmproc_occupy_slot(vm, slot);
	vmproc_drop(vm, NULL, NULL);
	return 0;
}

void vmproc_host_exited(struct vmproc_host *h, uint32_t slot, int status)
{
	struct vmproc *vm = slot < h->max_vms ? h->slots[slot] : NULL;

	if (!vm)
		return;
	if (WIFSIGNALED(status))
		vmproc_fail(vm, "the VM process was killed by signal %d", WTERMSIG(status));
	else
		vmproc_fail(vm, "the VM process ended with status %d", WEXITSTATUS(status));
}

void vmproc_host_lost(struct vmproc_host *h)
{
	h->warden_lost = true;
	for (uint32_t i = 0; i < h->max_vms; i++) {
		struct vmproc *vm = h->slots[i];

		if (!vm)
			continue;
		vm->spawn_pending = false;
		if (vm->emptied)
			continue;
		if (vm->state == VM_RELEASING)
			deferred_run(h->deferred, &vm->deferred, finish_drop, vm);
		else
			vmproc_fail(vm, "the warden is gone");
	}
}
