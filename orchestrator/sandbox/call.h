// SPDX-License-Identifier: Apache-2.0
/* A call of the API in flight. Its end is reported at most once, and never from inside the function
 * that started the call. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_CALL_H
#define RAMET_ORCHESTRATOR_SANDBOX_CALL_H

#include "orchestrator/io/deferred.h"
#include "orchestrator/sandbox/sandboxes.h"

struct size;
struct store_answer;
struct tenant;

/* Operations of one kind of call. Each member says what NULL means. */
struct call_ops {
	/* Size of the struct whose first member is the core_call, zeroed by call_new; 0: just a
	 * core_call. */
	size_t size;
	/* Neither core->n_requests nor templates_work_began counts the call, because it may wait
	 * forever, is counted elsewhere, or only shows existing state. */
	bool passive;
	bool makes_sandboxes; /* the pool is checked when the call is over */
	/* Frees what the call owns or has in flight, perhaps of a call that failed before it began.
	 * Called once. NULL: nothing to free. */
	void (*put_away)(struct core_call *call);
	/* The call is over, and its end is about to be reported; `call->failed` and `call->failure`
	 * are set. Releases connections and VMs, which must not wait for the report. NULL: put_away
	 * is called if the call failed. */
	void (*finished)(struct core_call *call);
	/* Reports the end. NULL: calls done_fn, unless the call was abandoned. */
	void (*notify)(struct core_call *call);
	/* The client disconnected. NULL: the call continues, and its end is not reported. */
	void (*abandon)(struct core_call *call);
	/* The client disconnected, and what the call runs for it in the guest is to end. NULL:
	 * abandon. */
	void (*hang_up)(struct core_call *call);
	/* Applies or ends back-pressure. NULL: nothing to pause. */
	void (*set_paused)(struct core_call *call, bool paused);
};
extern const struct call_ops call_plain; /* has only a done_fn */

struct core_call {
	const struct call_ops *ops;
	struct core *core;
	/* On a list of the room that handles the call (core->creates, core->waits,
	 * sandbox->deletes, or a list in the state of a part), then on core->finished. */
	struct list link;
	struct deferred deferred;
	uint64_t began_ms; /* on the loop's clock */
	bool abandoned, failed;
	bool is_put_away;	 /* put_away was called */
	unsigned coming;	 /* sandboxes that the call is about to make */
	uint64_t coming_mib;	 /* the RAM of all of them */
	uint64_t coming_gb;	 /* the disks of all of them */
	struct tenant *tenant;	 /* who will own them; NULL if `coming` is 0 */
	struct request_key *key; /* NULL: none */
	struct failure failure;
	void *arg;
	/* Reports the end; unused by kinds with a `notify`. NULL: nobody wants to know. */
	core_done_fn *done_fn;
};

struct core_call *call_new(struct core *c, const struct call_ops *ops, void *arg);
/* Like call_new, for a kind whose structs have different sizes. */
struct core_call *call_new_sized(struct core *c, const struct call_ops *ops, size_t size,
				 void *arg);
/* Unlinks the call and frees it with all it owns. */
void call_free(struct core_call *call);
/* Reports the end through done_fn, if somebody wants to know. */
void call_notify_done(struct core_call *call);
/* Counts `n` sandboxes of the tenant and of this size as being made, until the call is finished or
 * call_expects_none is called. `each` NULL: call_promise adds the size once it is known. */
void call_expect(struct core_call *call, struct tenant *t, unsigned n, const struct size *each);
void call_promise(struct core_call *call, unsigned n, const struct size *each);
void call_expects_none(struct core_call *call);
/* Ends the call with `f` (NULL: success), and reports the end on the loop's next turn. */
void call_finish(struct core_call *call, const struct failure *f);
/* Calls call_finish for each call of a list. */
void calls_finish(struct list *calls, const struct failure *f);
/* Fills in the catalogue row that records the call's key with what it made. Returns `out`, which is
 * valid as long as the call and the texts; NULL if the call has no key. */
const struct store_answer *call_answer(const struct core_call *call, const char *tenant,
				       enum made_kind kind, const char *ids,
				       struct store_answer *out);
/* Frees each call of a list without reporting its end. */
void calls_free(struct list *calls);

#endif
