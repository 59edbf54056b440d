// SPDX-License-Identifier: Apache-2.0
/*
 * An image of a running VM. What takes time is done while the vCPUs run: before the pause the
 * devices come to rest (what the guest asks of them waits) and the disk's layer is sealed; after
 * it the state is written. All that can fail comes before anything of the VM changed, but for the
 * freeze of its memory, which changes nothing that it could see.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "vmm/backend/layer.h"
#include "vmm/vm-internal.h"

/* A tenth of the loop's time. */
#define FLATTEN_EVERY_NS 1000000u

/* What there is in the course of a fork. */
struct fork {
	struct vm_image image;
	struct layer_stack *disk;
	struct state_still *still;
	int state_fd;
	bool stopped; /* the vCPUs were left so */
};

/* --- Merging memory layers in the background --- */

static void on_flatten(void *arg)
{
	struct vm *vm = arg;

	if (vm->state == CTL_RUNNING && !vm->on_paused && ram_flatten_step(vm->ram))
		loop_timer_set(vm->loop, &vm->flatten, FLATTEN_EVERY_NS);
}

void vm_flatten(struct vm *vm)
{
	vm->flatten.fn = on_flatten;
	vm->flatten.arg = vm;
	loop_timer_set(vm->loop, &vm->flatten, FLATTEN_EVERY_NS);
}

/* --- The fork --- */

static void finish_fork(struct vm *vm, const struct vm_image *image, const struct err *e)
{
	vm_forked_fn *done = vm->on_forked;

	close_fd(&vm->fork_writable);
	vm->on_forked = NULL;
	if (done)
		done(vm->on_forked_arg, image, e);
}

void vm_end_fork(struct vm *vm)
{
	struct err e = {0};

	vm->on_drained = NULL;
	err_say(&e, ECANCELED, "the guest ended before it was forked");
	finish_fork(vm, NULL, &e);
}

static int check_disk(struct vm *vm, struct err *e)
{
	if (vio_blk_starved(vm_blk(vm)))
		return err_say(e, ENOSPC,
			       "the host's disk is full, and the guest's writes wait for room on "
			       "it: a fork would lose them");
	return 0;
}

/* All that can be had before the vCPUs stand still. */
static int prepare(struct vm *vm, struct fork *f, struct err *e)
{
	const struct state_parts p = vm_parts(vm);
	int r = check_disk(vm, e);

	if (r)
		return r;
	f->state_fd = memfd_create("state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (f->state_fd < 0)
		return err_set(e, errno, "make a file for the state");
	r = state_still_new(&f->still, &p, e);
	if (!r)
		r = ram_prepare(vm->ram, vm->fork_how.children, e);
	/* An empty layer would only make the chain longer. */
	if (!r && layer_stack_written(f->disk))
		r = layer_stack_prepare(f->disk, vm->fork_writable, e);
	return r;
}

/* The vCPUs stand still in here, and run when it returns; unless the guest has ended, or is to stay
 * as it is. */
static int take_still(struct vm *vm, struct fork *f, struct err *e)
{
	uint64_t start = now_ns();
	int r;

	vcpus_pause(vm->vcpus);
	if (vm->end.set)
		return err_say(e, ECANCELED, "the guest ended before it was forked");
	r = ram_freeze(vm->ram, &f->image.copied_bytes, e);
	if (!r)
		r = state_still_take(f->still, e);
	vm_tell_clock_stopped(vm);
	f->stopped = !r && vm->fork_how.stay_paused;
	if (!f->stopped)
		vcpus_run(vm->vcpus);
	f->image.pause_ns = now_ns() - start;
	return r;
}

static int write_state(struct fork *f, struct err *e)
{
	int r = state_still_write(f->still, f->state_fd, e);

	/* Many will read it, none shall write it. */
	if (!r && fcntl(f->state_fd, F_ADD_SEALS,
			F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return err_set(e, errno, "seal the state");
	return r;
}

static void list_files(struct vm *vm, struct fork *f)
{
	struct vm_image *img = &f->image;
	unsigned n = 0, memory;

	img->fds[n++] = f->state_fd;
	memory = ram_image(vm->ram, img->fds + n);
	n += memory;
	img->fds[n++] = layer_base_fd(f->disk);
	img->layers = layer_sealed_fds(f->disk, img->fds + n);
	img->nfds = n + img->layers;
	img->memory_layers = memory - 1;
	img->disk_bytes = layer_disk_bytes(f->disk);
}

/* Or not, when it is to stay paused and there is an image. */
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
	struct fork f = {.disk = vio_blk_disk(vm_blk(vm)), .state_fd = -1};
	struct err e = {0};
	int r = prepare(vm, &f, &e);

	if (!r)
		r = take_still(vm, &f, &e);
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
	state_still_free(f.still);
	go_on(vm, f.stopped, r == 0);
	finish_fork(vm, r ? NULL : &f.image, &e);
	close_fd(&f.state_fd);
	ram_settle(vm->ram);
	vm_flatten(vm);
}

int vm_fork(struct vm *vm, const struct vm_fork_how *how, int *writable_fd, vm_forked_fn *done,
	    void *arg, struct err *e)
{
	int r;

	if (vm->state != CTL_RUNNING)
		return err_say(e, EINVAL, "the VM does not run");
	if (vm->on_paused || vm->on_forked)
		return err_say(e, EBUSY, "the VM is being %s already",
			       vm->on_paused ? "paused" : "forked");
	r = check_disk(vm, e);
	if (r)
		return r;
	vm->on_forked = done;
	vm->on_forked_arg = arg;
	vm->fork_writable = take_fd(writable_fd);
	vm->fork_how = *how;
	vm_drain(vm, fork_drained);
	return 0;
}
