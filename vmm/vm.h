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

/* Creates a blank VM: does all the slow work and confines the vCPU threads. */
int vm_new(struct vm **out, const struct vm_config *cfg, struct event_loop *loop, struct err *e);
void vm_free(struct vm *vm);
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

/* The RAM of a snapshot of `ram_mib`: the memory file, then the layers over it, oldest first. */
struct vm_memory {
	uint32_t ram_mib;
	const int *fds;
	unsigned nlayers;
};

/*
 * Boot a kernel in the blank VM, or restore a snapshot into it, and run it. The size of RAM is even
 * and at most config's. The disk's descriptors are taken over; the caller keeps the others.
 */
int vm_boot(struct vm *vm, uint32_t ram_mib, int kernel_fd, int initrd_fd, const char *cmdline,
	    const struct vm_disk *disk, struct err *e);
int vm_restore(struct vm *vm, int state_fd, const struct vm_memory *memory,
	       const struct vm_disk *disk, struct err *e);
/* Returns the time, by now_ns(), since when the vCPUs run. */
uint64_t vm_running_since(const struct vm *vm);
/*
 * Call it after a boot or restore, when the request was answered. Notifies a restored guest, and
 * lets waiting device I/O continue.
 */
void vm_started(struct vm *vm);

/*
 * Pauses the running VM. `done` is called once everything is quiesced, or with -ECANCELED when the
 * guest has ended.
 */
typedef void vm_paused_fn(void *arg, int result);
int vm_pause(struct vm *vm, vm_paused_fn *done, void *arg, struct err *e);
int vm_run(struct vm *vm, struct err *e);

/* A snapshot of the VM, as passed to vm_forked_fn. */
struct vm_snapshot {
	int fds[CTL_FDS_MAX]; /* in the order of CTL_FORK; valid during the call */
	unsigned nfds, memory_layers, layers;
	uint64_t pause_ns; /* for how long the vCPUs were paused */
	uint64_t copied_bytes, disk_bytes;
};

/*
 * Takes a snapshot of the running VM, which goes on. *writable_fd (taken over, then -1) is for its
 * next disk layer, and is closed where none is needed. `done` is called once, perhaps before this
 * returns, with the snapshot, or with NULL and an error; the VM then runs on as before. With
 * `stay_paused` the VM stays paused after a successful snapshot, until vm_run.
 */
typedef void vm_forked_fn(void *arg, const struct vm_snapshot *snapshot, const struct err *e);
struct vm_fork_how {
	unsigned children; /* estimate of the VMs to be restored from it */
	bool stay_paused;
};
int vm_fork(struct vm *vm, const struct vm_fork_how *how, int *writable_fd, vm_forked_fn *done,
	    void *arg, struct err *e);

/* Joins a guest port to *stream_fd (taken over, then -1). `done` as in vio_vsock_connect. */
int vm_connect(struct vm *vm, uint32_t port, int *stream_fd, void (*done)(void *arg, int result),
	       void *arg, struct err *e);

/* Adds the state of the VM, in any state, for people. Stops the vCPUs for a moment to read them. */
struct report;
void vm_inspect(struct vm *vm, struct report *r);

void vm_stats(const struct vm *vm, struct ctl_msg *reply);

#endif
