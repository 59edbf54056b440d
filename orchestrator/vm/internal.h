// SPDX-License-Identifier: Apache-2.0
/* Shared by vm.c (life), vm-slots.c and vm-request.c (the control socket). */
#ifndef RAMET_ORCHESTRATOR_VM_INTERNAL_H
#define RAMET_ORCHESTRATOR_VM_INTERNAL_H

#include <sys/socket.h>

#include "orchestrator/vm/progress.h"
#include "orchestrator/vm/vmproc.h"

#define VM_NO_SLOT UINT32_MAX

enum vmproc_state {
	VM_WAITING,  /* for a slot */
	VM_SPAWNING, /* the warden makes it */
	VM_GREETING, /* connected, its hello is to come */
	VM_SHELL,
	VM_FILLING,
	VM_RUNNING,
	VM_PAUSING,
	VM_PAUSED,
	VM_SAVING,
	VM_FREEZING, /* an image is made of it, for which it stays paused */
	VM_STARTING, /* a paused one is to run again */
	VM_QUITTING,
	VM_BROKEN,    /* dead, or a step failed: of no use but to be dropped */
	VM_RELEASING, /* dropped; the warden empties its slot */
	VM_NSTATES,
};

enum vmproc_event {
	VM_GOT_SLOT,
	VM_SPAWNED,
	VM_HELLO_SHELL,
	VM_HELLO_RUNNING,
	VM_HELLO_PAUSED,
	VM_FILL,
	VM_FILLED,
	VM_CONNECT,
	VM_PAUSE,
	VM_PAUSE_DONE,
	VM_SAVE,
	VM_SAVED,
	VM_FORK,
	VM_FREEZE,
	VM_FROZEN,
	VM_FREEZE_FAILED,
	VM_RUN,
	VM_RUNS,
	VM_QUIT,
	VM_QUIT_DONE,
	VM_INSPECT, /* asked for, and answered */
	VM_FAIL,
	VM_DROP,
	VM_NEVENTS,
};

struct vmproc {
	struct vmproc_host *host;
	enum vmproc_state state;
	struct vmproc_spec spec;
	struct vmproc_id id;
	uint32_t version;		  /* of the control protocol that the VM process speaks */
	const struct vmproc_owner *owner; /* NULL: nobody listens */
	void *owner_arg;
	struct list wait_link; /* on host->waiting */
	bool adopted, foreign;
	bool keeps_slot, emptied; /* dropped, but no other VM gets the slot; it is empty by now */
	enum warden_priority priority;	 /* as asked for; the warden knows once the VM is spawned */
	int oom_first;			 /* 0 or 1; -1: not known */
	struct loop_timer head_start;	 /* while it has WARDEN_BRINGUP for a time */
	bool spawn_pending;		 /* the warden's reply to the spawn is to come */
	struct loop_timer timer;	 /* spawn, greeting, release retry */
	uint64_t warden_answers;	 /* when the spawn's timer was set */
	struct vmproc_progress progress; /* since the greeting's timer was set */
	struct deferred deferred;	 /* failure to be told; the end of a drop */
	enum vmproc_voice voice;	 /* whose last words say most about its end */
	char reason[ERR_TEXT_MAX];	 /* it broke */
	vmproc_closed_fn *closed;	 /* waits for the warden; NULL: nobody does */
	void *closed_arg;
	void (*gone)(void *arg);
	void *gone_arg;

	int fd; /* control socket */
	struct loop_op *recv_op;
	uint8_t in[sizeof(struct ctl_msg) + 1];
	struct iovec in_iov;
	struct msghdr in_hdr;
	_Alignas(struct cmsghdr) char in_control[CMSG_SPACE(sizeof(int) * CTL_FDS_MAX)];
	/* Bytes its cgroup is charged with at most, as far as is known: when the warden was asked
	 * last, and by images since. Until then without what the guest has of its own. */
	uint64_t charged_most;
	uint64_t charged; /* what it was when it was measured */
	uint32_t next_seq;
	struct list requests; /* struct vmproc_request */
	unsigned sends;	      /* send operations under way */
	bool free_me;	      /* once no operation is under way */
};

/* Moves the state, or says in the log that the event has no place in it and returns false. */
bool vmproc_step(struct vmproc *vm, enum vmproc_event event);
/* The VM is of no more use; its owner is told on the next turn. */
void vmproc_fail(struct vmproc *vm, const char *format, ...) __attribute__((format(printf, 2, 3)));
void vmproc_free_if_idle(struct vmproc *vm);

/* vm-request.c */
int vmproc_open_socket(struct vmproc *vm, struct err *e);
void vmproc_receive(struct vmproc *vm);
void vmproc_fail_requests(struct vmproc *vm);
void vmproc_forget_requests(struct vmproc *vm);
void vmproc_close_socket(struct vmproc *vm);
/* Asks for a report (CTL_INSPECT) into the memory file `fd`, taken over. A VM process that does not
 * answer is left alone, and `fn` comes also when the VM is dropped, from inside of that. NULL: one
 * is under way already. */
struct vmproc_request *vmproc_ask_report(struct vmproc *vm, int fd, vmproc_reply_fn *fn, void *arg);
/* Adds a line for each request under way. */
struct report;
void vmproc_report_requests(const struct vmproc *vm, struct report *r);
/* Checked messages that are no replies. */
void vmproc_on_hello(struct vmproc *vm, const struct ctl_msg *msg);

/* vm-slots.c */
/* Takes the first free slot, now or when there is one. */
void vmproc_take_slot(struct vmproc *vm);
/* Takes this slot, which is free. */
void vmproc_occupy_slot(struct vmproc *vm, uint32_t slot);
void vmproc_give_slot(struct vmproc *vm);
void vmproc_start_spawn(struct vmproc *vm);

#endif
