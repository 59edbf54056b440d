// SPDX-License-Identifier: Apache-2.0
/*
 * The service's handle on one VM process, from taking a slot to giving it back. It speaks
 * proto/ctl.h. No callback is called from inside the function that requested it.
 */
#ifndef RAMET_ORCHESTRATOR_VM_VM_H
#define RAMET_ORCHESTRATOR_VM_VM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "orchestrator/io/deferred.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/vm/warden-client.h"
#include "proto/ctl.h"

struct vmproc;
struct vmproc_request;

/* Shared by all VMs: the slots, the warden and the loop. */
struct vmproc_host {
	struct loop *loop;
	struct deferred_queue *deferred;
	struct warden_client *warden;
	const char *run_dir;
	uint32_t max_vms;
	struct vmproc **slots; /* [max_vms]; NULL: free; changed by slots.c alone */
	uint64_t *taken;       /* one bit for each slot, to find a free one quickly */
	uint32_t in_use;
	uint32_t retired; /* slots that are taken but hold no VM: the warden refuses to use them */
	uint32_t ahead;	  /* VMs with a head start (vmproc_give_head_start) */
	struct list waiting; /* VMs that wait for a slot */
	/* Called when a VM begins to wait because every slot is taken: may drop a less important
	 * VM. */
	void (*want_slot)(void *arg);
	/* Called when a slot was given back. */
	void (*slot_free)(void *arg);
	/* Called when every vmproc_measure has been answered; may be NULL. */
	void (*measured)(void *arg);
	unsigned measuring;
	void *arg;
	bool warden_lost;
	bool detached; /* the service ends but VMs keep running: nothing is released */
};

void vmproc_host_init(struct vmproc_host *h, uint32_t max_vms);
void vmproc_host_fini(struct vmproc_host *h);
/* Returns the number of slots that VMs can have: all but the retired ones. */
uint32_t vmproc_host_usable(const struct vmproc_host *h);
/* Handles a WARDEN_EXITED for this slot. */
void vmproc_host_exited(struct vmproc_host *h, uint32_t slot, int status);
/* Handles the loss of the warden: every VM counts as dead, and dropped ones as given back. */
void vmproc_host_lost(struct vmproc_host *h);

struct vmproc_spec {
	uint32_t vcpus, ram_mib; /* of a blank VM: the maximum it can be filled with */
	uint64_t memory_max;	 /* bytes, for its cgroup */
};

struct vmproc_owner {
	void (*ready)(void *arg);		     /* the VM process sent its hello */
	void (*died)(void *arg, const char *reason); /* once; then only vmproc_drop is allowed */
};

/* Starts a VM process, as soon as there is a free slot. Failures are reported by the owner's
 * `died`. */
struct vmproc *vmproc_spawn(struct vmproc_host *h, const struct vmproc_spec *spec,
			    const struct vmproc_owner *owner, void *arg);
/* Identifies a VM. Slot and pid are reused for later VMs. The instance is unique: each CTL_FILL
 * chooses a random one. */
struct vmproc_id {
	uint32_t slot, pid;		    /* pid: in the host's namespace; 0: unknown */
	uint8_t instance[CTL_INSTANCE_LEN]; /* all zeros before the VM is filled */
};
/*
 * Takes over the VM process that a previous instance of the service left in a slot. A VM that
 * differs from `id` or `spec` is not used: the owner's `died` is called. Returns NULL when the slot
 * is taken or out of range.
 */
struct vmproc *vmproc_adopt(struct vmproc_host *h, const struct vmproc_id *id,
			    const struct vmproc_spec *spec, const struct vmproc_owner *owner,
			    void *arg);
/* Returns true when the VM found is not the one to adopt; vmproc_id() returns which it is. */
bool vmproc_is_foreign(const struct vmproc *vm);
/* Takes a slot with unknown contents and has the warden empty it. Returns 0, or -EBUSY when the
 * slot is taken or out of range. */
int vmproc_sweep(struct vmproc_host *h, uint32_t slot);

/* Replaces the owner and its argument. A vmproc_close_egress in progress with the old owner's
 * argument then calls its `fn` with the new argument. */
void vmproc_set_owner(struct vmproc *vm, const struct vmproc_owner *owner, void *arg);
struct loop *vmproc_loop(const struct vmproc *vm);
const struct vmproc_id *vmproc_id(const struct vmproc *vm);
/* Copies the last line of the VM's log, or of the guest's console output in it, to `out`: cut to
 * `size`, printable, empty when there is none. */
enum vmproc_voice { VM_PROCESS, VM_GUEST };
void vmproc_last_words(const struct vmproc *vm, enum vmproc_voice voice, char *out, size_t size);
/* Reduces a blank VM to `spec`: the same vCPUs and no more RAM. Returns false when that is
 * impossible. */
bool vmproc_fit(struct vmproc *vm, const struct vmproc_spec *spec);
/* Closes the VM's egress: for the rest of its life, none of its packets leaves the host. Calls `fn`
 * once, from the loop, when that is done or failed; not if the VM is dropped or the warden is lost
 * first. */
typedef void vmproc_closed_fn(void *arg, int error, const char *text);
void vmproc_close_egress(struct vmproc *vm, vmproc_closed_fn *fn, void *arg);
/* Sets the VM's share of contended CPUs, without waiting for it. A new VM starts with
 * WARDEN_BRINGUP, an adopted one with WARDEN_NORMAL. */
void vmproc_set_priority(struct vmproc *vm, enum warden_priority priority);
/* Gives the VM WARDEN_BRINGUP for `ms` milliseconds, then WARDEN_NORMAL. A vmproc_set_priority
 * before that overrides it. */
void vmproc_give_head_start(struct vmproc *vm, uint64_t ms);
/*
 * Measures the memory charged to the VM's cgroup if it may exceed the VM's RAM, as after a snapshot
 * or an adoption. Returns false if nothing is measured: the memory can't exceed the RAM, the VM has
 * no process, or the warden is lost. vmproc_charged returns the last result in bytes, 0 before the
 * first.
 */
bool vmproc_measure(struct vmproc *vm);
uint64_t vmproc_charged(const struct vmproc *vm);
/* Sets whether the kernel kills this VM before unmarked ones when memory runs out. */
void vmproc_set_oom(struct vmproc *vm, bool first);
bool vmproc_is_running(const struct vmproc *vm);

/* Ends the VM in any state and gives the slot back, then calls `gone` (may be NULL). Calls none of
 * the owner's functions, and forgets requests in flight. */
void vmproc_drop(struct vmproc *vm, void (*gone)(void *arg), void *arg);
/* Reserves the slot beyond the following vmproc_drop, which must have a `gone`, until
 * vmproc_give_back. That frees the VM, and may be called before `gone`. */
void vmproc_keep_slot(struct vmproc *vm);
void vmproc_give_back(struct vmproc *vm);
/* Gives up the handle like vmproc_drop, but lets the VM process keep running. Its slot stays taken,
 * but no longer counts in `in_use`. */
void vmproc_leave(struct vmproc *vm);

/*
 * Requests. They take ownership of descriptors, also on failure. `error` is 0 or -errno, with the
 * reason in `text`. When the VM dies, requests in flight fail before the owner's `died` is called.
 * `reply` is NULL when there is none. The handle is valid until `fn` is called or the VM is
 * dropped.
 */
typedef void vmproc_reply_fn(void *arg, int error, const char *text, const struct ctl_msg *reply);

/* Boots or restores a blank VM. `fill` describes its disk and memory; descriptors are in the order
 * of proto/ctl.h. */
struct vmproc_request *vmproc_fill(struct vmproc *vm, const struct ctl_msg *fill, int *fds,
				   unsigned nfds, vmproc_reply_fn *fn, void *arg);
struct vmproc_request *vmproc_connect(struct vmproc *vm, uint32_t port, bool vital, int fd,
				      vmproc_reply_fn *fn, void *arg);
/*
 * Makes a request without content:
 *   CTL_PAUSE   pauses the VM without a snapshot
 *   CTL_RUN     resumes a VM that was paused, also by vmproc_freeze
 *   CTL_STATS   asks for the VM process's statistics, reply->reply.stats, which are not checked.
 *               Allowed in any state; waits as long as the VM process takes
 *   CTL_RECORD  starts to record which pages of RAM a booted guest uses, for the snapshot that
 *               follows
 *   CTL_QUIT    ends the VM process
 */
struct vmproc_request *vmproc_ask(struct vmproc *vm, enum ctl_type type, vmproc_reply_fn *fn,
				  void *arg);

/*
 * A snapshot of a running VM, from which any number of blank VMs of its size can be restored.
 * Reference-counted; the last user closes the descriptors (state, memory, memory layers, disk base,
 * disk layers).
 */
struct vmproc_image {
	unsigned users;
	uint32_t memory_layers, layers;
	uint64_t disk_bytes;
	uint64_t pause_ns, copied_bytes; /* what the snapshot cost the VM */
	unsigned nfds;
	int fds[CTL_FDS_MAX];
};
/* Returns a copy of `image` with one user. The copy owns the descriptors. */
struct vmproc_image *vmproc_image_of(const struct vmproc_image *image);
/* Makes a snapshot from the reply to a CTL_FORK of a VM with `ram_mib`. Checks the reply, because a
 * guest may have taken over its VM process. Takes ownership of the descriptors on success; returns
 * NULL with *e filled on failure. */
struct vmproc_image *vmproc_image_new(const struct ctl_msg *reply, int *fds, unsigned nfds,
				      uint32_t ram_mib, struct err *e);
struct vmproc_image *vmproc_image_get(struct vmproc_image *image);
void vmproc_image_put(struct vmproc_image *image); /* accepts NULL */

/* The callee owns `image`, which is NULL on failure. */
typedef void vmproc_fork_fn(void *arg, int error, const char *text, struct vmproc_image *image);
/* Takes a snapshot of the running VM, which continues with `writable` (an empty file, taken over)
 * as its disk layer. On failure it keeps running as before. Snapshots are taken one at a time:
 * further ones wait, also for one that was cancelled. */
struct vmproc_request *vmproc_fork(struct vmproc *vm, unsigned children, int writable,
				   vmproc_fork_fn *fn, void *arg);
/* Like vmproc_fork, but the VM stays paused when the snapshot succeeds. */
struct vmproc_request *vmproc_freeze(struct vmproc *vm, int writable, vmproc_fork_fn *fn,
				     void *arg);
/* Restores `image`, which the caller keeps, in a blank VM. `writable` is an empty file for its own
 * disk layer, and is taken over. */
struct vmproc_request *vmproc_fill_image(struct vmproc *vm, struct vmproc_image *image,
					 int writable, vmproc_reply_fn *fn, void *arg);

/* Prevents the call of `fn`; the VM process may still carry out the request. */
void vmproc_request_cancel(struct vmproc_request *r);

/* Checks a packet that a VM process sent with `nfds` descriptors and copies it to *out, where
 * strings are NUL-terminated and printable. Returns 0, or -EPROTO with *e filled. */
int ctl_check(const void *packet, size_t len, unsigned nfds, struct ctl_msg *out, struct err *e);

#endif
