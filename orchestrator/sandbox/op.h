// SPDX-License-Identifier: Apache-2.0
/* An operation of the API in flight. Its end is reported at most once, and never from inside the
 * function that started the operation. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_OP_H
#define RAMET_ORCHESTRATOR_SANDBOX_OP_H

#include "orchestrator/io/deferred.h"
#include "orchestrator/sandbox/sandboxes.h"

struct size;
struct store_answer;
struct tenant;

/* What one kind of operation does. Each member says what NULL means. */
struct op_methods {
	/* Size of the struct whose first member is the op, zeroed by op_new; 0: just an
	 * op. */
	size_t size;
	/* Neither service->n_requests nor templates_work_began counts the operation, because it may
	 * wait forever, is counted elsewhere, or only shows existing state. */
	bool passive;
	bool makes_sandboxes; /* the pool is checked when the operation is over */
	/* Frees what the operation owns or has in flight, perhaps of an operation that failed
	 * before it began. Called once. NULL: nothing to free. */
	void (*put_away)(struct op *op);
	/* The operation is over, and its end is about to be reported; `op->failed` and
	 * `op->failure` are set. Releases connections and VMs, which must not wait for the report.
	 * NULL: put_away is called if the operation failed. */
	void (*finished)(struct op *op);
	/* Reports the end. NULL: calls done_fn, unless the operation was abandoned. */
	void (*notify)(struct op *op);
	/* The client disconnected. NULL: the operation continues, and its end is not reported. */
	void (*abandon)(struct op *op);
	/* The client disconnected, and what the operation runs for it in the guest is to end. NULL:
	 * abandon. */
	void (*hang_up)(struct op *op);
	/* Applies or ends back-pressure. NULL: nothing to pause. */
	void (*set_paused)(struct op *op, bool paused);
};
extern const struct op_methods op_plain; /* has only a done_fn */

struct op {
	const struct op_methods *ops;
	struct service *service;
	/* On a list of the room that handles the operation (service->creates, service->waits,
	 * sandbox->deletes, or a list in the state of a part), then on service->finished. */
	struct list link;
	struct deferred deferred;
	uint64_t began_ms; /* on the loop's clock */
	bool abandoned, failed;
	bool is_put_away;	 /* put_away was called */
	unsigned coming;	 /* sandboxes that the operation is about to make */
	uint64_t coming_mib;	 /* the RAM of all of them */
	uint64_t coming_gb;	 /* the disks of all of them */
	struct tenant *tenant;	 /* who will own them; NULL if `coming` is 0 */
	struct request_key *key; /* NULL: none */
	struct failure failure;
	void *arg;
	/* Reports the end; unused by kinds with a `notify`. NULL: nobody wants to know. */
	service_done_fn *done_fn;
};

struct op *op_new(struct service *c, const struct op_methods *ops, void *arg);
/* Like op_new, for a kind whose structs have different sizes. */
struct op *op_new_sized(struct service *c, const struct op_methods *ops, size_t size, void *arg);
/* Unlinks the operation and frees it with all it owns. */
void op_free(struct op *op);
/* Reports the end to `fn`: the view of the tenant's sandbox that the operation has made, or why it
 * has made none, or why that sandbox has ended since. */
void op_notify_made(const struct op *op, const char *tenant, const char *id, service_create_fn *fn);
/* Reports the end through done_fn, if somebody wants to know. */
void op_notify_done(struct op *op);
/* Counts `n` sandboxes of the tenant and of this size as being made, until the operation is
 * finished or op_expects_none is called. `each` NULL: op_promise adds the size once it is known. */
void op_expect(struct op *op, struct tenant *t, unsigned n, const struct size *each);
void op_promise(struct op *op, unsigned n, const struct size *each);
void op_expects_none(struct op *op);
/* Ends the operation with `f` (NULL: success), and reports the end on the loop's next turn. Returns
 * the operation. */
struct op *op_finish(struct op *op, const struct failure *f);
/* Calls op_finish for each operation of a list. */
void ops_finish(struct list *ops, const struct failure *f);
/* Fills in the catalogue row that records the operation's key with what it made. Returns `out`,
 * which is valid as long as the operation and the texts; NULL if the operation has no key. */
const struct store_answer *op_answer(const struct op *op, const char *tenant, enum made_kind kind,
				     const char *ids, struct store_answer *out);
/* Frees each operation of a list without reporting its end. */
void ops_free(struct list *ops);

#endif
