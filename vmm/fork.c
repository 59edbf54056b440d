// SPDX-License-Identifier: Apache-2.0
/*
 * Takes a snapshot of a running VM. Slow work is done while the vCPUs run: before the pause the
 * devices are drained (requests of the guest wait) and the next disk layer is prepared; after the
 * pause the state is written. Everything that can fail comes before the VM changes, except the
 * freeze of its memory, which changes nothing that the guest could see.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fd.h"
#include "vmm/backend/layer.h"
#include "vmm/vm-internal.h"

/* The intermediate results of a fork. */
struct fork_job {
	struct vm_snapshot snapshot;
	struct layer_stack *disk;
	struct state_capture *quiesced;
	int state_fd;
	bool stopped; /* the vCPUs stay paused */
};

static void finish_fork(struct vm *vm, const struct vm_snapshot *snapshot, const struct err *e)
{
	vm_forked_fn *done = vm->on_forked;

	close_fd(&vm->fork_writable);
	vm->on_forked = NULL;
	vm->cancel = NULL;
	done(vm->on_forked_arg, snapshot, e);
}

static void cancel(struct vm *vm)
{
	struct err e = {0};

	vm->on_drained = NULL;
	err_say(&e, ECANCELED, "the guest ended before it was forked");
	finish_fork(vm, NULL, &e);
}

static int check_disk(struct vm *vm, struct err *e)
{
	if (vio_blk_enospc(vm_blk(vm)))
		return err_say(
			e, ENOSPC,
			"the host's disk is full: a fork would lose writes of the guest that "
			"wait for space");
	return 0;
}

/* Prepares everything that does not need the vCPUs to be paused. */
static int prepare(struct vm *vm, struct fork_job *f, struct err *e)
{
	const struct state_parts p = vm_parts(vm);
	int r = check_disk(vm, e);

	if (r)
		return r;
	f->state_fd = memfd_create("state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (f->state_fd < 0)
		return err_set(e, errno, "create a memfd for the state");
	r = state_capture_new(&f->quiesced, &p, e);
	if (!r)
		r = ram_prepare(vm->ram, vm->fork_how.children, e);
	/* An empty layer would only make the chain longer. */
	if (!r && layer_stack_written(f->disk))
		r = layer_stack_prepare(f->disk, vm->fork_writable, e);
	return r;
}

/*
 * Pauses the vCPUs, captures RAM and state, and resumes the vCPUs, unless the guest has ended or is
 * to stay paused.
 */
static int capture(struct vm *vm, struct fork_job *f, struct err *e)
{
	uint64_t start = now_ns();
	int r;

	vcpus_pause(vm->vcpus);
	if (vm->end.set)
		return err_say(e, ECANCELED, "the guest ended before it was forked");
	r = ram_freeze(vm->ram, &f->snapshot.copied_bytes, e);
	if (!r)
		r = state_capture_take(f->quiesced, e);
	vm_notify_clock_stopped(vm);
	f->stopped = !r && vm->fork_how.stay_paused;
	if (!f->stopped)
		vcpus_run(vm->vcpus);
	f->snapshot.pause_ns = now_ns() - start;
	return r;
}

static int write_state(struct fork_job *f, struct err *e)
{
	int r = state_capture_write(f->quiesced, f->state_fd, e);

	/* The state file has many readers, none of which may be able to write to it. */
	if (!r && fcntl(f->state_fd, F_ADD_SEALS,
			F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_set(e, errno, "seal the state");
	return r;
}

static void list_files(struct vm *vm, struct fork_job *f)
{
	struct vm_snapshot *snapshot = &f->snapshot;
	unsigned n = 0, memory;

	snapshot->fds[n++] = f->state_fd;
	memory = ram_snapshot_fds(vm->ram, snapshot->fds + n);
	n += memory;
	snapshot->fds[n++] = layer_base_fd(f->disk);
	snapshot->layers = layer_sealed_fds(f->disk, snapshot->fds + n);
	snapshot->nfds = n + snapshot->layers;
	snapshot->memory_layers = memory - 1;
	snapshot->disk_bytes = layer_disk_bytes(f->disk);
}

/* Resumes the VM, unless it is to stay paused and the snapshot succeeded. */
static void go_on(struct vm *vm, bool stopped, bool well)
{
	if (stopped && well) {
		vm->state = CTL_PAUSED;
		return;
	}
	if (stopped)
		vcpus_run(vm->vcpus);
	vm_continue_devices(vm);
}

static void fork_drained(struct vm *vm)
{
	struct fork_job f = {.disk = vio_blk_disk(vm_blk(vm)), .state_fd = -1};
	struct err e = {0};
	int r = prepare(vm, &f, &e);

	if (!r)
		r = capture(vm, &f, &e);
	if (!r)
		r = write_state(&f, &e);
	if (!r && layer_stack_written(f.disk)) {
		layer_stack_commit(f.disk);
		vm->fork_writable = -1;
		vio_blk_sealed(vm_blk(vm));
	}
	if (r)
		layer_stack_abandon(f.disk);
	else
		list_files(vm, &f);
	state_capture_free(f.quiesced);
	go_on(vm, f.stopped, r == 0);
	finish_fork(vm, r ? NULL : &f.snapshot, &e);
	close_fd(&f.state_fd);
	ram_end_freeze(vm->ram);
	vm_flatten(vm);
}

int vm_fork(struct vm *vm, const struct vm_fork_how *how, int *writable_fd, vm_forked_fn *done,
	    void *arg, struct err *e)
{
	int r = vm_check_free(vm, e);

	if (!r)
		r = check_disk(vm, e);
	if (r)
		return r;
	vm->cancel = cancel;
	vm->on_forked = done;
	vm->on_forked_arg = arg;
	vm->fork_writable = take_fd(writable_fd);
	vm->fork_how = *how;
	vm_drain(vm, fork_drained);
	return 0;
}
