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
#include "orchestrator/io/deferred.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/vm/warden-client.h"
#include "proto/ctl.h"

struct vmproc;
struct vmproc_request;

/* What VMs share: the slots, the warden, the loop. */
struct vmproc_host {
	struct loop *loop;
	struct deferred_queue *deferred;
	struct warden_client *warden;
	const char *run_dir;
	uint32_t max_vms;
	struct vmproc **slots; /* [max_vms]; NULL: free; changed by slots.c alone */
	uint64_t *taken;       /* a bit for each slot, so that a free one is found at a glance */
	uint32_t in_use;
	struct list waiting; /* VMs that wait for a slot */
	/* Called when a VM waits and every slot is taken: may drop one that is worth less. */
	void (*want_slot)(void *arg);
	/* Called when a slot was given back. */
	void (*slot_free)(void *arg);
	/* Called when every vmproc_measure was answered; NULL: nobody waits for that. */
	void (*measured)(void *arg);
	unsigned measuring;
	void *arg;
	bool warden_lost;
	bool detached; /* the service ends, VMs run on: nothing is released */
};

int vmproc_host_init(struct vmproc_host *h, uint32_t max_vms);
void vmproc_host_fini(struct vmproc_host *h);
/* WARDEN_EXITED came for this slot. */
void vmproc_host_exited(struct vmproc_host *h, uint32_t slot, int status);
/* The warden is gone: every VM counts as dead, and dropped ones as given back. */
void vmproc_host_lost(struct vmproc_host *h);

struct vmproc_spec {
	uint32_t vcpus, ram_mib; /* of a shell: the most it can be filled with */
	uint64_t memory_max;	 /* bytes, for its cgroup */
};

struct vmproc_owner {
	void (*ready)(void *arg);		     /* it said hello */
	void (*died)(void *arg, const char *reason); /* once; then only vmproc_drop is of use */
};

/* Starts a VM process; it waits for a slot when none is free. NULL: no memory. */
struct vmproc *vmproc_spawn(struct vmproc_host *h, const struct vmproc_spec *spec,
			    const struct vmproc_owner *owner, void *arg);
/* Which VM it is. The slot and the pid are given again to other VMs, the instance is not: it is
 * random, chosen by each fill. */
struct vmproc_id {
	uint32_t slot, pid; /* pid: as the host sees it; 0: not known */
	/* All zeros: it was filled by a service from before there were instances. */
	uint8_t instance[CTL_INSTANCE_LEN];
};
/*
 * Finds the VM process that a previous instance of the service left in a slot. One that is not the
 * VM that `id` names, or not as `spec` says, fails and is never driven. An `id` without an instance
 * names a VM of CTL_VERSION_BEFORE, and only such a one. NULL: the slot is taken or out of range.
 */
struct vmproc *vmproc_adopt(struct vmproc_host *h, const struct vmproc_id *id,
			    const struct vmproc_spec *spec, const struct vmproc_owner *owner,
			    void *arg);
/* True when the VM that was found is not the one to adopt; vmproc_instance() says which it is. */
bool vmproc_is_foreign(const struct vmproc *vm);
/* Takes a slot whose content nobody wants and has the warden empty it. */
int vmproc_sweep(struct vmproc_host *h, uint32_t slot);

void vmproc_set_owner(struct vmproc *vm, const struct vmproc_owner *owner, void *arg);
struct loop *vmproc_loop(const struct vmproc *vm);
uint32_t vmproc_slot(const struct vmproc *vm);
/* As the host sees it; 0: not known. */
uint32_t vmproc_pid(const struct vmproc *vm);
const uint8_t *vmproc_instance(const struct vmproc *vm); /* all zeros before it is filled */
const struct vmproc_spec *vmproc_spec(const struct vmproc *vm);
/* The last line of the VM's log, or of what the guest's console wrote to it; cut to `size`,
 * printable, empty when there is none. */
enum vmproc_voice { VM_PROCESS, VM_GUEST };
void vmproc_last_words(const struct vmproc *vm, enum vmproc_voice voice, char *out, size_t size);
/* Makes a shell that has room for it one of this size; false when it has not. */
bool vmproc_fit(struct vmproc *vm, const struct vmproc_spec *spec);
/* Keeps every packet of the VM from leaving the host, as long as it lives. `fn` comes once, from
 * the loop, when that holds or could not be done; not when the VM dies or is dropped before. */
typedef void vmproc_closed_fn(void *arg, int error, const char *text);
void vmproc_close_egress(struct vmproc *vm, vmproc_closed_fn *fn, void *arg);
/* Sets the VM's share where CPUs are short; nothing waits for it. A new VM has WARDEN_BRINGUP, an
 * adopted one WARDEN_NORMAL. */
void vmproc_set_priority(struct vmproc *vm, enum warden_priority priority);
/* Gives the VM WARDEN_BRINGUP for `ms` milliseconds, then WARDEN_NORMAL. A vmproc_set_priority
 * before that takes its place. */
void vmproc_give_head_start(struct vmproc *vm, uint64_t ms);
/*
 * Asks how much memory the VM's cgroup is charged with, if that can be more than its RAM: it has
 * made images, or is from before this service. False: it can't be, or nobody can be asked.
 * vmproc_charged: what the answer was, 0 before the first.
 */
bool vmproc_measure(struct vmproc *vm);
uint64_t vmproc_charged(const struct vmproc *vm);
/* Whether the kernel ends it before VMs that are not marked, when memory runs out. */
void vmproc_set_oom(struct vmproc *vm, bool first);
bool vmproc_is_blank(const struct vmproc *vm);
bool vmproc_is_running(const struct vmproc *vm);

/* Ends the VM whatever it does and gives the slot back; then `gone` (may be NULL) is called. The
 * owner hears no more of it, and requests under way are forgotten. */
void vmproc_drop(struct vmproc *vm, void (*gone)(void *arg), void *arg);
/* Before a vmproc_drop with a `gone`: no other VM gets the slot before vmproc_give_back, which
 * frees the VM and may come before `gone` does. */
void vmproc_keep_slot(struct vmproc *vm);
void vmproc_give_back(struct vmproc *vm);
/* Instead of a vmproc_drop: lets the VM run on, undriven. Its slot stays taken, and is not counted.
 */
void vmproc_leave(struct vmproc *vm);

/*
 * Requests. Descriptors are taken over, also on failure. `error` is 0 or -errno, with a sentence;
 * when the VM dies, requests under way fail before the owner's `died` is called. `reply` is NULL
 * when there is none. The handle is good until `fn` is called or the VM dropped.
 */
typedef void vmproc_reply_fn(void *arg, int error, const char *text, const struct ctl_msg *reply);

/* How the disk and memory of a fill are made up; the descriptors in the order of proto/ctl.h. */
struct vmproc_request *vmproc_fill(struct vmproc *vm, const struct ctl_msg *fill, int *fds,
				   unsigned nfds, vmproc_reply_fn *fn, void *arg);
struct vmproc_request *vmproc_connect(struct vmproc *vm, uint32_t port, int fd, vmproc_reply_fn *fn,
				      void *arg);
struct vmproc_request *vmproc_pause(struct vmproc *vm, vmproc_reply_fn *fn, void *arg);
/* Of a VM that vmproc_freeze left paused. */
struct vmproc_request *vmproc_run(struct vmproc *vm, vmproc_reply_fn *fn, void *arg);
struct vmproc_request *vmproc_save(struct vmproc *vm, int fds[3], vmproc_reply_fn *fn, void *arg);
struct vmproc_request *vmproc_quit(struct vmproc *vm, vmproc_reply_fn *fn, void *arg);

/*
 * An image of a running VM: what any number of shells of its size are filled from. Counted; the
 * descriptors (state, memory, memory layers, disk base, disk layers) go with the last user.
 */
struct vmproc_image {
	unsigned users;
	uint32_t memory_layers, layers;
	uint64_t disk_bytes;
	uint64_t pause_ns, copied_bytes; /* what it cost the VM */
	unsigned nfds;
	int fds[CTL_FDS_MAX];
};
/* Of what `image` says, but for its users; the descriptors are the new one's. */
struct vmproc_image *vmproc_image_of(const struct vmproc_image *image);
/* From the reply to a CTL_FORK of a VM with `ram_mib`, which is checked: a VM process may be in the
 * hands of its guest. Takes the descriptors over when it succeeds; NULL with *e filled if not. */
struct vmproc_image *vmproc_image_new(const struct ctl_msg *reply, int *fds, unsigned nfds,
				      uint32_t ram_mib, struct err *e);
struct vmproc_image *vmproc_image_get(struct vmproc_image *image);
void vmproc_image_put(struct vmproc_image *image); /* NULL is fine */

/* `image` is the callee's, NULL when it failed. */
typedef void vmproc_fork_fn(void *arg, int error, const char *text, struct vmproc_image *image);
/* Takes an image of the running VM, which goes on with `writable` (an empty file, taken over) as
 * its disk layer. A failure leaves it running as before. One at a time: others wait, also for one
 * that was cancelled. */
struct vmproc_request *vmproc_fork(struct vmproc *vm, unsigned children, int writable,
				   vmproc_fork_fn *fn, void *arg);
/* The same, but the VM stays paused when there is an image. */
struct vmproc_request *vmproc_freeze(struct vmproc *vm, int writable, vmproc_fork_fn *fn,
				     void *arg);
/* A fill with an image, which is the caller's still, and an empty file of its own, taken over. */
struct vmproc_request *vmproc_fill_image(struct vmproc *vm, struct vmproc_image *image,
					 int writable, vmproc_reply_fn *fn, void *arg);

/* `fn` will not be called. */
void vmproc_request_cancel(struct vmproc_request *r);

/* Checks what a VM process sent, with `nfds` descriptors, and copies it to *out; sentences are
 * NUL-terminated in it. */
int ctl_check(const void *packet, size_t len, unsigned nfds, struct ctl_msg *out, struct err *e);

#endif
