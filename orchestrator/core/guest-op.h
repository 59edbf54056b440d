// SPDX-License-Identifier: Apache-2.0
/*
 * An operation in a sandbox's guest beside its execs: files and terminals. Each has a connection to
 * the agent for itself; when it ends well the connection is kept for the next one for a while, so
 * that a keystroke or a small file costs one round trip.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_OP_H
#define RAMET_ORCHESTRATOR_CORE_OP_H

#include "orchestrator/core/internal.h"

#define OP_SPARE_MS	  15000
#define OPS_MAX		  32 /* at once in a sandbox; each has a process in its guest */
#define LISTENERS_MAX	  64
#define ALL_OPS_MAX	  512 /* each may hold 256 KiB of data on its way, and 64 of answers */
#define ALL_LISTENERS_MAX 1024

struct guest_op;

struct guest_op_kind {
	/* Nothing comes and nothing is taken for so long: it has failed. */
	uint32_t timeout_ms;
	const char *impatient_code; /* NULL: agent_error */
	const char *missing_code;   /* what ENOENT means */
	bool file;		    /* counted with those of files */
	/* Waits for what may never come: it is no activity by itself, and has no patience. */
	bool listens;
	/* When it is abandoned it goes on: `done` undoes what it did. */
	bool undoes;
	/* What comes beside AGENT_DONE and AGENT_ERROR. NULL: nothing may come. */
	void (*frame)(struct guest_op *op, const struct agent_frame *frame);
	/* AGENT_DONE. NULL: the operation has succeeded. */
	void (*done)(struct guest_op *op);
	/* AGENT_ERROR, where it means something else than elsewhere. May be NULL. */
	void (*refused)(struct guest_op *op, uint32_t errnum, const char *text);
	/* Its end. NULL: it is a done_fn's. */
	void (*notify)(struct core_call *call);
	void (*fini)(struct guest_op *op); /* may be NULL */
};

/* The first member of what an operation consists of. */
struct guest_op {
	struct core_call *call;
	const struct guest_op_kind *kind;
	struct sandbox *sandbox; /* NULL once it is over */
	struct guest_link guest; /* its deadline: something has to move until then */
	uint8_t *bytes;		 /* the request, until it is sent */
	size_t len;
	const uint8_t *data; /* the caller's: goes behind it in AGENT_DATA frames */
	size_t data_left;
	uint64_t *count; /* of the bytes of such data, or NULL */
	bool heard;	 /* something came or was taken since the timer was set */
	bool paused;
	char lost[ERR_TEXT_MAX]; /* why the connection broke; empty: it did not */
	uint64_t touched_ms;
};

/* A call with an operation of `size` bytes, zeroed. */
struct guest_op *guest_op_new(struct core *c, const struct guest_op_kind *kind, size_t size,
			      void *arg);
/* One whose end is a done_fn's. */
struct guest_op *guest_op_new_plain(struct core *c, const struct guest_op_kind *kind,
				    core_done_fn *fn, void *arg);
/* `encoded` is what came of encoding the first request into op->bytes. */
struct core_call *guest_op_start(struct guest_op *op, const char *tenant, const char *id,
				 int encoded);
/* The next request on the same connection; `encoded` as above. */
void guest_op_next(struct guest_op *op, int encoded);
/* It is over and the connection may be used again: its last frame has come. */
void guest_op_succeed(struct guest_op *op);
/* It is over before that. */
void guest_op_enough(struct guest_op *op);
void guest_op_fail(struct guest_op *op, int status, const char *code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The guest sent what has no place here. */
void guest_op_fail_rules(struct guest_op *op);

/* Of a new upload or terminal, whose id the service draws. */
struct id_op {
	struct guest_op op;
	char id[CORE_ID_LEN + 1];
	bool undoing;
	int (*undo)(struct id_op *o); /* encodes the request for it */
};
void id_op_done(struct guest_op *op);
void id_op_tell(struct core_call *call);

#endif
