// SPDX-License-Identifier: Apache-2.0
/*
 * The one VM of this process. It starts blank, is booted or restored once, then is running, paused
 * or ended. All functions are for the loop's thread.
 */
#ifndef RAMET_VMM_VM_H
#define RAMET_VMM_VM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ctl.h"
#include "vmm/config.h"
#include "vmm/dev/event-loop.h"

struct vm;

/* Called once on the loop's thread when the guest has ended. */
typedef void vm_ended_fn(void *arg, enum ctl_end_reason reason, const char *text);

/* Creates a blank VM: does all the slow work and confines the vCPU threads. Only the end of the
 * process frees it, also after a failure. */
int vm_new(struct vm **out, const struct vm_config *cfg, struct event_loop *loop, struct err *e);
void vm_on_ended(struct vm *vm, vm_ended_fn *fn, void *arg);
/* Confines the calling thread, which is the loop's. */
int vm_confine(struct vm *vm, struct err *e);

/* Returns the size of RAM; for a blank VM, the maximum. */
uint32_t vm_ram_mib(const struct vm *vm);
enum ctl_vm_state vm_state(const struct vm *vm);

/* The disk of a VM: a base, sealed layers over it (oldest first), an empty writable file. */
struct vm_disk {
	int *base, *layers, *writable; /* set to -1 when taken over */
	unsigned nlayers;
	uint64_t bytes;
};

/*
 * The RAM of a snapshot, `ram_mib` in size: the memory file, then the layers over it, oldest first.
 */
struct vm_memory {
	uint32_t ram_mib;
	const int *fds;
	unsigned nlayers;
};

/*
 * Boot a kernel in the blank VM, or restore a snapshot into it, and run it. `ram_mib` is even and
 * at most that of vm_config. The disk's descriptors are taken over (set to -1); the caller keeps
 * the others. A blank VM is unusable after a failure.
 */
int vm_boot(struct vm *vm, uint32_t ram_mib, int kernel_fd, int initrd_fd, const char *cmdline,
	    const struct vm_disk *disk, struct err *e);
int vm_restore(struct vm *vm, int state_fd, const struct vm_memory *memory,
	       const struct vm_disk *disk, struct err *e);
/* Returns the now_ns() time at which the vCPUs started to run. */
uint64_t vm_running_since(const struct vm *vm);
/*
 * Completes a boot or restore after the request was answered: confines the loop's thread further
 * and, after a restore, notifies the guest and lets waiting device I/O continue.
 */
void vm_started(struct vm *vm);

/*
 * Pauses the running VM. `done` is called with 0 once everything is quiesced, or with -ECANCELED
 * when the guest ends first.
 */
typedef void vm_paused_fn(void *arg, int result);
int vm_pause(struct vm *vm, vm_paused_fn *done, void *arg, struct err *e);
int vm_run(struct vm *vm, struct err *e);

/* A snapshot of the VM, as passed to vm_forked_fn. */
struct vm_snapshot {
	int fds[CTL_FDS_MAX]; /* in the order of CTL_FORK; valid until the callback returns */
	unsigned nfds, memory_layers, layers;
	uint64_t pause_ns; /* for how long the vCPUs were paused */
	uint64_t copied_bytes, disk_bytes;
};

/*
 * Takes a snapshot of the running VM and lets it continue. Takes over *writable_fd (sets it to -1)
 * for the VM's next disk layer, and closes it if none is needed. Calls `done` once, perhaps before
 * this returns, with the snapshot, or with NULL and an error. After an error the VM runs on as
 * before. With `stay_paused`, a successful snapshot leaves the VM paused until vm_run. Returns
 * -errno, without calling `done`, when no snapshot was begun.
 */
typedef void vm_forked_fn(void *arg, const struct vm_snapshot *snapshot, const struct err *e);
struct vm_fork_how {
	unsigned children; /* about how many VMs will be restored from the snapshot */
	bool stay_paused;
};
int vm_fork(struct vm *vm, const struct vm_fork_how *how, int *writable_fd, vm_forked_fn *done,
	    void *arg, struct err *e);

/*
 * Starts to record which pages of RAM the guest uses. The next snapshot contains the list, and VMs
 * restored from it map these pages before they run. The guest's kernel begins with what it does
 * after a restore: it draws a new seed, and connections to the guest end. Returns -EINVAL unless
 * the VM runs, has booted and was never forked; -EBUSY while it is paused or forked; -ENOTSUP if
 * the host's kernel can't record or map them.
 */
int vm_record(struct vm *vm, struct err *e);

/*
 * Serves a CTL_CONNECT: joins the connection to *stream_fd, which is taken over (set to -1).
 * `done` is called as by vio_vsock_connect. Returns -errno, without calling it, when there is no
 * guest.
 */
int vm_connect(struct vm *vm, const struct ctl_msg *m, int *stream_fd,
	       void (*done)(void *arg, int result), void *arg, struct err *e);

/*
 * Adds a description of the VM, in whatever state it is. Stops the vCPUs for a moment to read them.
 */
struct report;
void vm_inspect(struct vm *vm, struct report *r);

void vm_stats(const struct vm *vm, struct ctl_msg *reply);

#endif
