// SPDX-License-Identifier: Apache-2.0
/* A call of the API under way: its end comes once, and never from inside the call. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_CALL_H
#define RAMET_ORCHESTRATOR_SANDBOX_CALL_H

#include "orchestrator/io/deferred.h"
#include "orchestrator/sandbox/sandboxes.h"

struct size;
struct tenant;

/* Operations of one kind of call. Each member says what NULL means. */
struct call_ops {
	/* Size of the struct whose first member is the core_call; 0: just a core_call. */
	size_t size;
	/* Counts neither as a request nor as activity: the call may wait forever, is counted where
	 * it begins, or only shows existing state. */
	bool passive;
	bool makes_sandboxes; /* check the pool when the call is over */
	/* Frees what the call has in flight, if anything. NULL: nothing to free. */
	void (*put_away)(struct core_call *call);
	/* The call is over: `call->failed` and its failure are set, and its end is about to be
	 * reported. Connections and VMs in use don't wait for that. NULL: put_away when it has
	 * failed. */
	void (*finished)(struct core_call *call);
	/* Reports the end. NULL: calls done_fn, unless the call was abandoned. */
	void (*notify)(struct core_call *call);
	/* The client went away. NULL: the call continues, and its end is not reported. */
	void (*abandon)(struct core_call *call);
	/* Applies back-pressure. NULL: nothing to pause. */
	void (*set_paused)(struct core_call *call, bool paused);
};
extern const struct call_ops call_plain; /* has only a done_fn */

struct core_call {
	const struct call_ops *ops;
	struct core *core;
	/* On the list of the room that works for it (core->creates, ->waits, a sandbox's ->deletes
	 * or the calls of its part), then on core->finished. */
	struct list link;
	struct deferred deferred;
	uint64_t began_ms; /* on the loop's clock */
	bool abandoned, failed;
	unsigned coming;     /* sandboxes that the call is about to make, and their */
	uint64_t coming_mib; /* total RAM and disk */
	uint64_t coming_gb;
	struct tenant *tenant; /* of this call; set only while `coming` */
	struct failure failure;
	void *arg;
	core_done_fn *done_fn; /* reports the end; unused by kinds with a `notify` */
};

struct core_call *call_new(struct core *c, const struct call_ops *ops, void *arg);
/* Unlinks the call and frees it with all it owns. */
void call_free(struct core_call *call);
/* Counts `n` sandboxes of the tenant and of this size as being made, until the call is finished or
 * call_expects_none. `each` NULL: call_promise gives the size once it is known. */
void call_expect(struct core_call *call, struct tenant *t, unsigned n, const struct size *each);
void call_promise(struct core_call *call, unsigned n, const struct size *each);
void call_expects_none(struct core_call *call);
/* Ends the call with `f` (NULL: success) on the loop's next turn. */
void call_finish(struct core_call *call, const struct failure *f);
/* Calls call_finish for each call of a list. */
void calls_finish(struct list *calls, const struct failure *f);
/* Frees each call of a list, without an answer to anybody. */
void calls_free(struct list *calls);

#endif
