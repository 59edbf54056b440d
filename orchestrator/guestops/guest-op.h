// SPDX-License-Identifier: Apache-2.0
/*
 * Operations in a sandbox's guest other than calls: files and processes. Each uses a separate
 * connection to the agent. After a success the connection stays open for IDLE_CONN_MS for the next
 * operation, so that a keystroke or a small file costs one round trip.
 */
#ifndef RAMET_ORCHESTRATOR_GUESTOPS_GUEST_OP_H
#define RAMET_ORCHESTRATOR_GUESTOPS_GUEST_OP_H

#include "orchestrator/agent/guest-link.h"
#include "orchestrator/guestops/guestops.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/service.h"

#define IDLE_CONN_MS	  15000
#define OPS_MAX		  32  /* operations at once in a sandbox; each has a process in the guest */
#define LISTENERS_MAX	  256 /* AGENT_PROC_MAX: each process may have one */
#define ALL_OPS_MAX	  512 /* each may hold 256 KiB of data in flight and 64 KiB of answers */
#define ALL_LISTENERS_MAX 1024

struct guest_op;

/* The code of an operation that the guest refused with an error number. */
struct guest_refusal {
	uint32_t errnum;
	enum failure_code code;
};

struct guest_op_kind {
	/* The operation fails when no data moves in either direction for this long. */
	uint32_t timeout_ms;
	enum failure_code impatient_code; /* the failure's code then; FAIL_NONE: agent_error */
	/* Codes by error number. The last entry, whose errnum is 0, has the code for all other
	 * error numbers. FAIL_NONE there, or NULL here: the codes of operations on files apply. */
	const struct guest_refusal *refusals;
	bool file; /* counted in the statistics of file operations */
	/* Waits for events that may never come: does not count as activity and has no timeout. */
	bool listens;
	/* Counts as activity although it listens. */
	bool works;
	/* Returns the request that removes what `op` has made. With this function, an abandoned
	 * operation continues to its end, and then what it made is removed, unless the client
	 * learned of it. NULL: the operation makes nothing that has to be removed. */
	struct agent_bytes (*undo)(struct guest_op *op);
	/* Undoes the effect of another operation, which was counted. Starts even above the limits.
	 * If a freeze is in progress, starts after that, if it fails. */
	bool undoes;
	/* Handles frames other than AGENT_DONE and AGENT_ERROR. NULL: none are allowed. */
	void (*frame)(struct guest_op *op, const struct agent_frame *frame);
	/* Handles AGENT_DONE. NULL: the operation has succeeded. */
	void (*done)(struct guest_op *op);
	/* Reports the end. NULL: through the call's done_fn. */
	void (*notify)(struct op *base);
	/* Returns the request that kills the program whose output `op` streams. NULL: the program
	 * continues. */
	struct agent_bytes (*hang_up)(struct guest_op *op);
	void (*fini)(struct guest_op *op); /* frees members; may be NULL */
};

/* The state that all operations share, and the first member of each. */
struct guest_op {
	struct op base;
	const struct guest_op_kind *kind;
	struct sandbox *sandbox; /* NULL once the operation is over */
	struct guest_link
		guest; /* the operation fails if no data has moved by the link's deadline */
	struct agent_bytes request; /* its `p`: until it is sent */
	const uint8_t *data;	 /* owned by the caller: follows the request in AGENT_DATA frames */
	uint64_t data_left;	 /* AGENT_UNSIZED: until the last part */
	service_wants_fn *wants; /* the data arrives in parts; NULL: it is at `data` */
	bool unfinished;	 /* the last part has not arrived */
	bool wants_input;	 /* `wants` was called for the next part */
	uint64_t *count;	 /* statistics counter for the bytes of `data`, or NULL */
	uint64_t moved_ms;	 /* when data moved last, loop ms */
	bool paused;
	bool listens;	      /* counts against the limit of listeners */
	bool unseen;	      /* `kind` has an undo, and the client has not learned of the result */
	bool made;	      /* there is something to undo */
	struct tenant *owner; /* tenant of what the operation makes or streams; NULL: not begun */
	char of[SANDBOX_ID_LEN + 1]; /* id of the sandbox */
	char lost[ERR_TEXT_MAX];     /* why the connection broke; empty: it is intact */
	uint64_t touched_ms;	     /* last sandbox_touch, loop ms */
};

static inline struct guest_op *guest_op_of(const struct op *base)
{
	return container_of(base, struct guest_op, base);
}

/* Returns an operation of `size` bytes that reports its end to `fn`, which is NULL if its kind has
 * a `notify`. The members after the shared state are zero. */
struct guest_op *guest_op_new(struct service *c, const struct guest_op_kind *kind, size_t size,
			      service_done_fn *fn, void *arg);
/* Has the operation send this data after its request. */
void guest_op_set_data(struct guest_op *op, const struct file_data *data, uint64_t *count);
/* Starts the operation with this request, whose bytes it takes. */
struct op *guest_op_start(struct guest_op *op, const char *tenant, const char *id,
			  struct agent_bytes request);
/* Sends the next request, whose bytes it takes, on the same connection. */
void guest_op_next(struct guest_op *op, struct agent_bytes request);
/* Ends the operation after its last frame, and keeps the connection for the next one. */
void guest_op_succeed(struct guest_op *op);
/* Ends the operation successfully before its last frame, and closes the connection. */
void guest_op_enough(struct guest_op *op);
/* Fails the operation. The client may retry in a second when memory or a limit is the reason. */
void guest_op_fail(struct guest_op *op, enum failure_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Fails the operation: the guest violated the protocol. */
void guest_op_fail_rules(struct guest_op *op);

/* Fails the operations of a sandbox that ends or gets another VM. */
void guest_op_sandbox_gone(struct sandbox *s, const struct failure *f);
/* Begins the operations that waited for the end of a freeze. */
void guest_op_start_delayed(struct sandbox *s);
/* Closes the idle connections, which are kept for the next operation. */
void idle_conns_drop(struct sandbox *s);
/* Returns a copy of the path as the guest spells it: no repeated or trailing slashes, no ".". */
char *guest_path_clean(const char *path);
/* Fails the diffs of a sandbox that ends or gets another VM (diff.c). */
void diff_sandbox_gone(struct sandbox *s, const struct failure *f);

#endif
