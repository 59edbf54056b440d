// SPDX-License-Identifier: Apache-2.0
/* The calls of an interpreter: the queue of AGENT_EXECs, and the running call with its output, time
 * limit and end. */
#ifndef RAMET_GUEST_EXEC_CALL_H
#define RAMET_GUEST_EXEC_CALL_H

#include <stdbool.h>

#include "guest/conn.h"
#include "guest/exec/driver.h"
#include "guest/exec/output.h"

#define CALL_NOTE_MAX (ERR_TEXT_MAX + 128)

enum call_state {
	CALL_NONE,
	CALL_CODE,  /* its code arrives, and is passed to the driver at once */
	CALL_RUNS,  /* until the driver reports its exit code */
	CALL_DRAINS /* ended; its last output is not sent yet, or its host attached again */
};

/* The last measure taken against a call that exceeded its time limit. */
enum call_stop { STOP_NOTHING, STOP_SIGINT, STOP_KILL_CODE, STOP_KILL_DRIVER };

/* The call that runs or ran last. call_next zeroes it, up to its output. All fields are private to
 * call.c. */
struct call {
	enum call_state state;
	struct conn *client; /* NULL: it left; the call continues, see AGENT_ATTACH */
	uint64_t number;     /* chosen by the host */
	bool attachable;     /* false: the call's code never arrived completely */
	bool started;	     /* a signal now reaches the user's code */
	pid_t bash_group;    /* 0: the code runs in the driver */
	uint32_t code_left;
	uint32_t timeout_ms;
	uint64_t oom_before; /* oom_kills() before it began */
	int64_t began;	     /* by loop_now_ms */
	int64_t deadline;    /* by loop_now_ms; 0: none */
	enum call_stop stop;
	int64_t nudge;	  /* after an interrupt, by loop_now_ms; 0: none */
	int64_t nudge_ms; /* from the last nudge to the next */
	int32_t exit_code;
	bool state_lost;
	bool noted;		  /* `note` was added to the output, which is complete now */
	bool cut_short;		  /* the interpreter died before it had all of the code */
	char note[CALL_NOTE_MAX]; /* the agent's own line on the call's stderr */
	size_t last_len;
	size_t bundle_len; /* bytes of the bundle that is arriving */
	struct output output;
	/* The driver's last text, last_len bytes, then the note. */
	uint8_t last_text[AGENT_PAYLOAD_MAX + CALL_NOTE_MAX];
};

struct interpreter_ops;

struct interpreter {
	const struct interpreter_ops *ops;
	void (*on_free)(struct interpreter *in); /* a call's end was sent: no call is active */
	unsigned grace_ms;			 /* of call_init */
	bool reseed_due;      /* the driver must reseed before it gets more code */
	uint8_t reseed_users; /* 1: the driver then reseeds the user's generators too */
	bool reseeding;	      /* AGENT_RESEED was sent to the driver */
	bool restarts;	      /* its process was killed for a restart */
	bool ends;	      /* it was killed for good, or never started */
	/* From these, the next call reports that the process was lost between calls. */
	bool used;	   /* it holds state of earlier calls */
	struct err lost;   /* how the process was lost while no call ran; code 0: it was not */
	bool reborn;	   /* lost with an agent before this one, and no call was made since */
	struct list queue; /* connections whose call waits */
	uint64_t doomed;   /* the call to interrupt when it begins; 0: none */
	struct driver driver;
	struct call call;
};

static inline struct interpreter *interpreter_of(struct driver *d)
{
	return container_of(d, struct interpreter, driver);
}

/*
 * Opens the pipes for output. `grace_ms` passes between SIGINT at the time limit, SIGKILL to the
 * code, and SIGKILL to the driver. Returns 0 or -errno.
 */
int call_init(struct interpreter *in, unsigned grace_ms, struct err *e);

/* Queues the connection whose `in` holds a checked AGENT_EXEC (c->exec). */
void call_queue(struct interpreter *in, struct conn *c);
/* Takes a frame of a connection in CONN_CODE. Returns 0 or -EPROTO. */
int call_code(struct interpreter *in, struct conn *c, const struct frame *f, struct err *e);
/* Sends the last call's output from byte r->have on, and its end, to `c`. Returns 0, or the error
 * with which AGENT_ATTACH is answered. */
int call_attach(struct interpreter *in, struct conn *c, const struct attach_request *r,
		struct err *e);
/* If the running call has no client, lets its code write without waiting for one, because another
 * request waits for the call. */
void call_drop_backpressure(struct interpreter *in);
/* Sends SIGINT to the call with this number (0: whichever runs or is about to). A call that has not
 * begun gets the signal when it begins. Does nothing to a call that has ended. */
void call_interrupt(struct interpreter *in, uint64_t number);

/* Starts the next queued call, if there is one. Called when the driver waits for code. */
void call_next(struct interpreter *in);
bool call_is_active(const struct interpreter *in);
/* Returns true from the arrival of a call's code until its exit code is known. */
bool call_is_running(const struct interpreter *in);
/* Answers every queued call with AGENT_ERROR: the interpreter cannot be started. */
void call_refuse_all(struct interpreter *in, const struct err *e);

/* Process events of connections and of the driver, as described at conn_ops and driver_ops. */
void call_on_sent(struct interpreter *in, struct conn *c);
void call_on_gone(struct interpreter *in, struct conn *c);
void call_on_driver_sent(struct interpreter *in);
void call_on_started(struct driver *d, pid_t bash_group);
void call_on_exit(struct driver *d, int32_t code, const uint8_t *last, size_t last_len);
int call_on_part(struct driver *d, const struct frame *f);
void call_on_driver_gone(struct interpreter *in, int status, const struct err *e);

/* Returns the milliseconds until call_on_time has to be called; -1: nothing is due. */
int call_timeout_ms(const struct interpreter *in);
/* Enforces the time limit, nudges interrupted code, and sends output that is due; called after each
 * event. */
void call_on_time(struct interpreter *in);

#endif
