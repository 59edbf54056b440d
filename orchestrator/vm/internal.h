// SPDX-License-Identifier: Apache-2.0
/* Shared by vmproc.c (life cycle), slots.c, look.c and request.c (the control socket). */
#ifndef RAMET_ORCHESTRATOR_VM_INTERNAL_H
#define RAMET_ORCHESTRATOR_VM_INTERNAL_H

#include "base/message-fds.h"
#include "orchestrator/vm/progress.h"
#include "orchestrator/vm/vmproc.h"

#define VM_NO_SLOT UINT32_MAX

enum vmproc_state {
	VM_WAITING,  /* for a slot */
	VM_SPAWNING, /* the warden is starting the process */
	VM_GREETING, /* connected, no hello yet */
	VM_BLANK,
	VM_FILLING,
	VM_RUNNING,
	VM_PAUSING,
	VM_PAUSED,
	VM_FREEZING, /* taking a snapshot, after which it stays paused */
	VM_STARTING, /* resuming after a pause */
	VM_QUITTING,
	VM_BROKEN,    /* dead, or a step failed: can only be dropped */
	VM_RELEASING, /* dropped; the warden empties its slot */
	VM_NSTATES,
};

enum vmproc_event {
	VM_GOT_SLOT,
	VM_ADOPT,
	VM_REFUSED, /* the slot is retired */
	VM_SPAWNED,
	VM_HELLO_BLANK,
	VM_HELLO_RUNNING,
	VM_HELLO_PAUSED,
	VM_FILL,
	VM_FILLED,
	VM_CONNECT,
	VM_PAUSE,
	VM_PAUSE_DONE,
	VM_FORK,
	VM_FREEZE,
	VM_FROZEN,
	VM_FREEZE_FAILED,
	VM_RUN,
	VM_RUNS,
	VM_QUIT,
	VM_QUIT_DONE,
	VM_RECORD,  /* requested, and answered */
	VM_INSPECT, /* requested, and answered */
	VM_FAIL,
	VM_DROP,
	VM_NEVENTS,
};

struct vmproc {
	struct vmproc_host *host;
	enum vmproc_state state;
	struct vmproc_spec spec;
	struct vmproc_id id;
	const struct vmproc_owner *owner; /* NULL: no callbacks */
	void *owner_arg;
	struct list wait_link; /* on host->waiting */
	bool adopted, foreign;
	bool keeps_slot;	       /* after a drop the slot stays reserved */
	bool emptied;		       /* dropped, and the warden has emptied the slot */
	enum warden_priority priority; /* as requested; the warden learns it after the spawn */
	int oom_first;		       /* 0 or 1; -1: unknown */
	struct loop_timer head_start;  /* runs while the VM has WARDEN_BRINGUP for a limited time */
	bool ahead;		       /* counted in host->ahead */
	bool spawn_pending;	       /* the warden has not answered the spawn yet */
	struct loop_timer timer;       /* spawn, greeting, release retry */
	uint64_t warden_answers; /* value of warden_client_answers when the spawn timer was set */
	struct vmproc_progress progress; /* while the greeting is awaited */
	struct deferred deferred;	 /* reports a failure, or ends a drop */
	enum vmproc_voice voice;	 /* whose last line in the log best explains the VM's end */
	char reason[ERR_TEXT_MAX];	 /* why it broke */
	vmproc_closed_fn *closed;	 /* gets the warden's answer to close_egress; or NULL */
	void *closed_arg;
	void (*gone)(void *arg);
	void *gone_arg;

	int fd; /* control socket */
	struct loop_op *recv_op;
	uint8_t in[sizeof(struct ctl_msg) + 1];
	struct iovec in_iov;
	struct msghdr in_hdr;
	MESSAGE_FDS_ROOM(in_control, CTL_FDS_MAX);
	/* Upper bound of the bytes charged to the VM's cgroup: the warden's last answer plus what
	 * snapshots have added since. Before the first answer it leaves out the guest's private
	 * memory. */
	uint64_t charged_most;
	uint64_t charged; /* bytes at the last measurement */
	uint32_t next_seq;
	struct list requests; /* struct vmproc_request */
	unsigned sends;	      /* send operations in flight */
	bool free_me;	      /* to be freed once no operation is in flight */
};

/* Moves the state if the event is legal in it, and returns whether it is. */
bool vmproc_try_step(struct vmproc *vm, enum vmproc_event event);
/* Marks the VM as broken and soon, from the loop, fails its requests and calls the owner's `died`.
 * Does nothing to a broken or dropped VM. */
void vmproc_fail(struct vmproc *vm, const char *format, ...) __attribute__((format(printf, 2, 3)));
void vmproc_free_if_idle(struct vmproc *vm);

/* request.c */
int vmproc_open_socket(struct vmproc *vm, struct err *e);
void vmproc_receive(struct vmproc *vm);
void vmproc_fail_requests(struct vmproc *vm);
void vmproc_forget_requests(struct vmproc *vm);
void vmproc_close_socket(struct vmproc *vm);
/* Requests a report (CTL_INSPECT) into the memory file `fd`, which is taken over. A VM process that
 * does not answer does not make the VM VM_BROKEN. If the VM is dropped, vmproc_drop calls `fn`
 * before it returns. Returns NULL when such a request is already in flight. */
struct vmproc_request *vmproc_ask_report(struct vmproc *vm, int fd, vmproc_reply_fn *fn, void *arg);
/* Adds a line for each request in flight. */
struct report;
void vmproc_report_requests(const struct vmproc *vm, struct report *r);
/* Handles a checked hello. */
void vmproc_on_hello(struct vmproc *vm, const struct ctl_msg *msg);

/* slots.c */
/* Takes the first free slot and starts the VM process in it, now or as soon as a slot is free. */
void vmproc_take_slot(struct vmproc *vm);
/* Takes this slot, which must be free. */
void vmproc_occupy_slot(struct vmproc *vm, uint32_t slot);
void vmproc_give_slot(struct vmproc *vm);
/* Takes the slot, in which nothing runs, from its VM, for as long as the service runs. Returns
 * false, with the slot as it was, when too many are retired. */
bool vmproc_retire_slot(struct vmproc *vm);
void vmproc_start_spawn(struct vmproc *vm);

#endif
