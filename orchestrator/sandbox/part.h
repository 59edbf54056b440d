// SPDX-License-Identifier: Apache-2.0
/*
 * A part of the service above the sandboxes, as sandbox/ sees it: which state it keeps with each
 * sandbox, each tenant and the service, and what it does when something happens to a sandbox. The
 * code of sandbox/ names no part. service/service.c lists them, lower rooms first; their hooks run
 * in that order.
 */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_PART_H
#define RAMET_ORCHESTRATOR_SANDBOX_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent;
struct service;
struct failure;
struct sandbox;
struct sandbox_view;
struct store_sandbox;
struct tenant;

struct part {
	/* Bytes of the part's state in the memory block of a service, a tenant and a sandbox. It is
	 * zeroed first, and freed with the block. 0: none. */
	size_t service_size, tenant_size, sandbox_size;
	/* Offsets of the state in those blocks, set by parts_place. */
	size_t service_at, tenant_at, sandbox_at;

	/* Hooks. NULL: the part does nothing. */
	void (*sandbox_init)(struct sandbox *s);

	/* The living sandbox was loaded from this row of the catalogue when the service started,
	 * and its VM will be taken over: restores what the previous instance kept of it. */
	void (*loaded)(struct sandbox *s, const struct store_sandbox *row);
	/* The sandbox has its VM, and is in the catalogue. The part gets the connection to the
	 * agent. */
	void (*begun)(struct sandbox *s, struct agent *agent);
	/* The VM of an adopted sandbox can be connected to. */
	void (*vm_ready)(struct sandbox *s);

	/* The sandbox was used: its idle time starts again. */
	void (*touched)(struct sandbox *s);
	/* An operation in the sandbox has begun to wait or has ended (sandbox_schedule). Starts
	 * what can start now. The state is SBX_READY or SBX_RUNNING; the agent may be disconnected.
	 */
	void (*start_waiting)(struct sandbox *s);

	/* Adds to a view of the sandbox. */
	void (*view)(const struct sandbox *s, struct sandbox_view *view);

	/* The lifetime or idle time of a persistent sandbox is over: starts to freeze it. */
	void (*freeze)(struct sandbox *s);
	/* The sandbox ends (SBX_ENDING), or is about to be merged: fails what is in flight in its
	 * VM with `f`. */
	void (*fail_ops)(struct sandbox *s, const struct failure *f);
	/* The sandbox becomes a mere record of its end, or is freed: releases all other state.
	 * Calls that are still in it are freed without reporting their ends. */
	void (*shed)(struct sandbox *s);
};

/* Bytes of the memory blocks, with the states of all parts. */
struct part_sizes {
	size_t service, tenant, sandbox;
};
/* Lays out the states of all parts after the structs they belong to. `parts` ends with NULL. */
void parts_place(struct part *const *parts, struct part_sizes *out);
static inline void *part_of_service(const struct part *p, const struct service *c)
{
	return (char *)(uintptr_t)c + p->service_at;
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
