// SPDX-License-Identifier: Apache-2.0
/*
 * The one VM of this process: made as a shell, filled once, then running, paused or ended. All
 * functions are for the loop's thread.
 */
#ifndef RAMET_VMM_VM_H
#define RAMET_VMM_VM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ctl.h"
#include "vmm/config.h"
#include "vmm/dev/loop.h"

struct vm;

/* The guest is gone; called once, on the loop's thread. */
typedef void vm_ended_fn(void *arg, enum ctl_end_reason reason, const char *text);

/* Makes the shell: everything that takes time, and the confinement of the vCPU threads. */
int vm_new(struct vm **out, const struct config *cfg, struct loop *loop, struct err *e);
void vm_free(struct vm *vm);
void vm_on_ended(struct vm *vm, vm_ended_fn *fn, void *arg);
/* Confines the calling thread, the loop's. */
int vm_confine(struct vm *vm, struct err *e);

/* Of a shell: the most there can be. */
uint32_t vm_ram_mib(const struct vm *vm);
enum ctl_vm_state vm_state(const struct vm *vm);

/* The disk of a VM: a base, sealed layers over it (oldest first), an empty writable file. */
struct vm_disk {
	int *base, *layers, *writable; /* set to -1 when taken over */
	unsigned nlayers;
	uint64_t bytes;
};

/* The RAM of an image of `ram_mib`: the memory file, then the layers over it, oldest first. */
struct vm_memory {
	uint32_t ram_mib;
	const int *fds;
	unsigned nlayers;
};

/* Fills the shell and runs it; RAM is even, and no more than config's. The descriptors of the disk
 * are taken over, others stay. */
int vm_boot(struct vm *vm, uint32_t ram_mib, int kernel_fd, int initrd_fd, const char *cmdline,
	    const struct vm_disk *disk, struct err *e);
int vm_restore(struct vm *vm, int state_fd, const struct vm_memory *memory,
	       const struct vm_disk *disk, struct err *e);
/* The vCPUs of a filled VM run since then, by now_ns(). */
uint64_t vm_running_since(const struct vm *vm);
/* After a fill, when whoever waits for it was answered: the guest is told what happened
 * to it, and gets what was on its way. */
void vm_filled(struct vm *vm);

/* Pauses the running VM; `done` is called once all is still, or (-ECANCELED) the guest ended. */
typedef void vm_paused_fn(void *arg, int result);
int vm_pause(struct vm *vm, vm_paused_fn *done, void *arg, struct err *e);
int vm_run(struct vm *vm, struct err *e);

/*
 * Writes the paused VM to two empty files and seals its disk, which goes on in *writable_fd (taken
 * over). *pause_ns: since when it stands still.
 */
int vm_save(struct vm *vm, int state_fd, int memory_fd, int *writable_fd, uint64_t *pause_ns,
	    struct err *e);

/* An image of the VM, as the fork that made it hands it out. */
struct vm_image {
	int fds[CTL_FDS_MAX]; /* in the order of CTL_FORK; valid during the call */
	unsigned nfds, memory_layers, layers;
	uint64_t pause_ns; /* the vCPUs stood still for so long */
	uint64_t copied_bytes, disk_bytes;
};

/*
 * Takes an image of the running VM, which goes on. *writable_fd (taken over, then -1) is for its
 * next disk layer, and closed where none is needed. `done` is called once, perhaps before this
 * returns: with the image, or with NULL and what went wrong; then the VM runs on as before.
 * `stay_paused`: with the image it is paused, until vm_run.
 */
typedef void vm_forked_fn(void *arg, const struct vm_image *image, const struct err *e);
struct vm_fork_how {
	unsigned children; /* so many fills are to come, about */
	bool stay_paused;
};
int vm_fork(struct vm *vm, const struct vm_fork_how *how, int *writable_fd, vm_forked_fn *done,
	    void *arg, struct err *e);

/* Joins a guest port to *stream_fd (taken over, then -1); `done` as in vio_vsock_connect. */
int vm_connect(struct vm *vm, uint32_t port, int *stream_fd, void (*done)(void *arg, int result),
	       void *arg, struct err *e);

/* Adds the state of the VM, for people; in any state. Stops the vCPUs for a moment to read them. */
struct report;
void vm_inspect(struct vm *vm, struct report *r);

void vm_stats(const struct vm *vm, struct ctl_msg *reply);

#endif
