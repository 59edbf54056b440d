// SPDX-License-Identifier: Apache-2.0
/*
 * One VM process, from the slot it gets to the slot it gives back: the service's end of
 * proto/ctl.h. Nothing here is called back from inside the call that asked for it.
 */
#ifndef RAMET_ORCHESTRATOR_VM_VM_H
#define RAMET_ORCHESTRATOR_VM_VM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "orchestrator/io/later.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/vm/warden-client.h"
#include "proto/ctl.h"

struct vm;
struct vm_request;

/* What VMs share: the slots, the warden, the loop. */
struct vm_host {
	struct loop *loop;
	struct later_queue *later;
	struct warden_client *warden;
	const char *run_dir;
	uint32_t max_vms;
	struct vm **slots; /* [max_vms]; NULL: free; changed by slots.c alone */
	uint64_t *taken;   /* a bit for each slot, so that a free one is found at a glance */
	uint32_t in_use;
	struct list waiting; /* VMs that wait for a slot */
	/* Called when a VM waits and every slot is taken: may drop one that is worth less. */
	void (*want_slot)(void *arg);
	/* Called when a slot was given back. */
	void (*slot_free)(void *arg);
	/* Called when every vm_measure was answered; NULL: nobody waits for that. */
	void (*measured)(void *arg);
	unsigned measuring;
	void *arg;
	bool warden_lost;
	bool detached; /* the service ends, VMs run on: nothing is released */
};

int vm_host_init(struct vm_host *h, uint32_t max_vms);
void vm_host_fini(struct vm_host *h);
/* WARDEN_EXITED came for this slot. */
void vm_host_exited(struct vm_host *h, uint32_t slot, int status);
/* The warden is gone: every VM counts as dead, and dropped ones as given back. */
void vm_host_lost(struct vm_host *h);

struct vm_spec {
	uint32_t vcpus, ram_mib; /* of a shell: the most it can be filled with */
	uint64_t memory_max;	 /* bytes, for its cgroup */
};

struct vm_owner {
	void (*ready)(void *arg);		  /* it said hello */
	void (*died)(void *arg, const char *why); /* once; then only vm_drop is of use */
};

/* Starts a VM process; it waits for a slot when none is free. NULL: no memory. */
struct vm *vm_spawn(struct vm_host *h, const struct vm_spec *spec, const struct vm_owner *owner,
		    void *arg);
/* Which VM it is. The slot and the pid are given again to other VMs, the instance is not: it is
 * random, chosen by each fill. */
struct vm_id {
	uint32_t slot, pid; /* pid: as the host sees it; 0: not known */
	/* All zeros: it was filled by a service from before there were instances. */
	uint8_t instance[CTL_INSTANCE_LEN];
};
/*
 * Finds the VM process that a previous instance of the service left in a slot. One that is not the
 * VM that `id` names, or not as `spec` says, fails and is never driven. An `id` without an instance
 * names a VM of CTL_VERSION_BEFORE, and only such a one. NULL: the slot is taken or out of range.
 */
struct vm *vm_adopt(struct vm_host *h, const struct vm_id *id, const struct vm_spec *spec,
		    const struct vm_owner *owner, void *arg);
/* True when the VM that was found is not the one to adopt; vm_instance() says which it is. */
bool vm_is_foreign(const struct vm *vm);
/* Takes a slot whose content nobody wants and has the warden empty it. */
int vm_sweep(struct vm_host *h, uint32_t slot);

void vm_set_owner(struct vm *vm, const struct vm_owner *owner, void *arg);
struct loop *vm_loop(const struct vm *vm);
uint32_t vm_slot(const struct vm *vm);
/* As the host sees it; 0: not known. */
uint32_t vm_pid(const struct vm *vm);
const uint8_t *vm_instance(const struct vm *vm); /* all zeros before it is filled */
const struct vm_spec *vm_spec(const struct vm *vm);
/* The last line of the VM's log, or of what the guest's console wrote to it; cut to `size`,
 * printable, empty when there is none. */
enum vm_voice { VM_PROCESS, VM_GUEST };
void vm_last_words(const struct vm *vm, enum vm_voice voice, char *out, size_t size);
/* Makes a shell that has room for it one of this size; false when it has not. */
bool vm_fit(struct vm *vm, const struct vm_spec *spec);
/* Keeps every packet of the VM from leaving the host, as long as it lives. `fn` comes once, from
 * the loop, when that holds or could not be done; not when the VM dies or is dropped before. */
typedef void vm_closed_fn(void *arg, int error, const char *text);
void vm_close_egress(struct vm *vm, vm_closed_fn *fn, void *arg);
/* Sets the VM's share where CPUs are short; nothing waits for it. A new VM has WARDEN_BRINGUP, an
 * adopted one WARDEN_NORMAL. */
void vm_set_priority(struct vm *vm, enum warden_priority priority);
/* Gives the VM WARDEN_BRINGUP for `ms` milliseconds, then WARDEN_NORMAL. A vm_set_priority before
 * that takes its place. */
void vm_give_head_start(struct vm *vm, uint64_t ms);
/*
 * Asks how much memory the VM's cgroup is charged with, if that can be more than its RAM: it has
 * made images, or is from before this service. False: it can't be, or nobody can be asked.
 * vm_charged: what the answer was, 0 before the first.
 */
bool vm_measure(struct vm *vm);
uint64_t vm_charged(const struct vm *vm);
/* Whether the kernel ends it before VMs that are not marked, when memory runs out. */
void vm_set_oom(struct vm *vm, bool first);
bool vm_is_shell(const struct vm *vm);
bool vm_is_running(const struct vm *vm);

/* Ends the VM whatever it does and gives the slot back; then `gone` (may be NULL) is called. The
 * owner hears no more of it, and requests under way are forgotten. */
void vm_drop(struct vm *vm, void (*gone)(void *arg), void *arg);
/* Before a vm_drop with a `gone`: no other VM gets the slot before vm_give_back, which frees the VM
 * and may come before `gone` does. */
void vm_keep_slot(struct vm *vm);
void vm_give_back(struct vm *vm);
/* Instead of a vm_drop: lets the VM run on, undriven. Its slot stays taken, and is not counted. */
void vm_leave(struct vm *vm);

/*
 * Requests. Descriptors are taken over, also on failure. `error` is 0 or -errno, with a sentence;
 * when the VM dies, requests under way fail before the owner's `died` is called. `reply` is NULL
 * when there is none. The handle is good until `fn` is called or the VM dropped.
 */
typedef void vm_reply_fn(void *arg, int error, const char *text, const struct ctl_msg *reply);

/* How the disk and memory of a fill are made up; the descriptors in the order of proto/ctl.h. */
struct vm_request *vm_fill(struct vm *vm, const struct ctl_msg *fill, int *fds, unsigned nfds,
			   vm_reply_fn *fn, void *arg);
struct vm_request *vm_connect(struct vm *vm, uint32_t port, int fd, vm_reply_fn *fn, void *arg);
struct vm_request *vm_pause(struct vm *vm, vm_reply_fn *fn, void *arg);
/* Of a VM that vm_freeze left paused. */
struct vm_request *vm_run(struct vm *vm, vm_reply_fn *fn, void *arg);
struct vm_request *vm_save(struct vm *vm, int fds[3], vm_reply_fn *fn, void *arg);
struct vm_request *vm_quit(struct vm *vm, vm_reply_fn *fn, void *arg);

/*
 * An image of a running VM: what any number of shells of its size are filled from. Counted; the
 * descriptors (state, memory, memory layers, disk base, disk layers) go with the last user.
 */
struct vm_image {
	unsigned users;
	uint32_t memory_layers, layers;
	uint64_t disk_bytes;
	uint64_t pause_ns, copied_bytes; /* what it cost the VM */
	unsigned nfds;
	int fds[CTL_FDS_MAX];
};
/* Of what `image` says, but for its users; the descriptors are the new one's. */
struct vm_image *vm_image_of(const struct vm_image *image);
/* From the reply to a CTL_FORK of a VM with `ram_mib`, which is checked: a VM process may be in the
 * hands of its guest. Takes the descriptors over when it succeeds; NULL with *e filled if not. */
struct vm_image *vm_image_new(const struct ctl_msg *reply, int *fds, unsigned nfds,
			      uint32_t ram_mib, struct err *e);
struct vm_image *vm_image_get(struct vm_image *image);
void vm_image_put(struct vm_image *image); /* NULL is fine */

/* `image` is the callee's, NULL when it failed. */
typedef void vm_fork_fn(void *arg, int error, const char *text, struct vm_image *image);
/* Takes an image of the running VM, which goes on with `writable` (an empty file, taken over) as
 * its disk layer. A failure leaves it running as before. One at a time: others wait, also for one
 * that was cancelled. */
struct vm_request *vm_fork(struct vm *vm, unsigned children, int writable, vm_fork_fn *fn,
			   void *arg);
/* The same, but the VM stays paused when there is an image. */
struct vm_request *vm_freeze(struct vm *vm, int writable, vm_fork_fn *fn, void *arg);
/* A fill with an image, which is the caller's still, and an empty file of its own, taken over. */
struct vm_request *vm_fill_image(struct vm *vm, struct vm_image *image, int writable,
				 vm_reply_fn *fn, void *arg);

/* `fn` will not be called. */
void vm_request_cancel(struct vm_request *r);

/* Checks what a VM process sent, with `nfds` descriptors, and copies it to *out; sentences are
 * NUL-terminated in it. */
int ctl_check(const void *packet, size_t len, unsigned nfds, struct ctl_msg *out, struct err *e);

#endif
