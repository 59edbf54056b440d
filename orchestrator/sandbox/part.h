// SPDX-License-Identifier: Apache-2.0
/*
 * A part of the service above the sandboxes, as the code of sandboxes sees it: which state it keeps
 * with each sandbox, each tenant and the core, and what it does when something happens to a
 * sandbox. Sandboxes name no part. core_new has the list of them, the lower rooms first; their
 * hooks run in that order.
 */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_PART_H
#define RAMET_ORCHESTRATOR_SANDBOX_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent_frame;
struct core;
struct failure;
struct sandbox;
struct sandbox_view;
struct store_sandbox;
struct tenant;

struct part {
	/* Bytes of the part's state in the memory block of a core, a tenant and a sandbox. It is
	 * zeroed before the init hooks below, and freed with the block. 0: none. */
	size_t core_size, tenant_size, sandbox_size;
	/* Where the state is in the block. parts_place sets these; they are the same in each core.
	 */
	size_t core_at, tenant_at, sandbox_at;

	/* Hooks. A NULL member: nothing happens. */
	void (*core_init)(struct core *c);
	void (*tenant_init)(struct tenant *t);
	void (*tenant_fini)(struct tenant *t);
	void (*sandbox_init)(struct sandbox *s);
	/* The sandbox is freed, with all calls in it, without an answer to anybody. */
	void (*sandbox_fini)(struct sandbox *s);

	/* The catalogue had this row of the sandbox at the start; then, for one that lives, its VM
	 * is about to be taken over: the part restores what it kept outside the catalogue. */
	void (*loaded)(struct sandbox *s, const struct store_sandbox *row);
	void (*adopting)(struct sandbox *s);
	/* All sandboxes of the catalogue have found their VM slots, or not. */
	void (*all_adopted)(struct core *c);
	/* Adds to the row that a new sandbox gets in the catalogue. */
	void (*row)(struct sandbox *s, struct store_sandbox *row);
	/* The sandbox has its VM, and is in the catalogue. */
	void (*begun)(struct sandbox *s);

	/* There is a new connection to its agent. */
	void (*agent_reached)(struct sandbox *s);
	void (*agent_frame)(struct sandbox *s, const struct agent_frame *frame);
	/* The guest has everything that the connection was given. */
	void (*agent_sent)(struct sandbox *s);
	/* The connection is closed, and what it had not sent is lost. */
	void (*agent_dropped)(struct sandbox *s);
	/* The same, because the connection broke. */
	void (*agent_lost)(struct sandbox *s);

	/* True while something in the sandbox counts as activity all along. */
	bool (*is_busy)(const struct sandbox *s);
	/* Its idle time began anew. */
	void (*touched)(struct sandbox *s);
	/* Something in the sandbox has begun to wait or has ended (sandbox_schedule). Starts what
	 * can start now. The state is SBX_READY or SBX_RUNNING; the agent may be disconnected. */
	void (*start_waiting)(struct sandbox *s);

	/* Adds to a view of the sandbox. */
	void (*view)(const struct sandbox *s, struct sandbox_view *view);

	/* Its time is over, and it is persistent: it is to be frozen. */
	void (*freeze)(struct sandbox *s);
	/* It ends for good: its execs fail with `f`, and nothing is kept for a next instance. */
	void (*end)(struct sandbox *s, const struct failure *f);
	/* It ends, or gets another VM, and still has its VM: everything in flight in it, except for
	 * execs, fails with `f`. */
	void (*fail_side_calls)(struct sandbox *s, const struct failure *f);
	/* Everything but the record of what it was is given up. */
	void (*shed)(struct sandbox *s);
	/* A VM is gone, and maybe its sandbox as well. */
	void (*vm_gone)(struct core *c);
};

/* Bytes of the memory blocks, with the states of all parts. */
struct part_sizes {
	size_t core, tenant, sandbox;
};
/* Lays out the states of all parts behind the structs they belong to. `parts` ends with NULL. */
void parts_place(struct part *const *parts, struct part_sizes *out);
static inline void *part_of_core(const struct part *p, const struct core *c)
{
	return (char *)(uintptr_t)c + p->core_at;
}
static inline void *part_of_tenant(const struct part *p, const struct tenant *t)
{
	return (char *)(uintptr_t)t + p->tenant_at;
}
static inline void *part_of_sandbox(const struct part *p, const struct sandbox *s)
{
	return (char *)(uintptr_t)s + p->sandbox_at;
}

/* Calls a hook of each part that has it. */
#define RUN_PARTS(c, hook, ...)                                                                    \
	for (struct part *const *at_ = (c)->parts; *at_; at_++)                                    \
		if ((*at_)->hook)                                                                  \
	(*at_)->hook(__VA_ARGS__)

#endif
