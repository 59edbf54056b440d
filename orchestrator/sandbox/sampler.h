// SPDX-License-Identifier: Apache-2.0
/*
 * Looks at the VM process of each sandbox every few seconds, from outside: an idle VM process is
 * not woken.
 */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_SAMPLER_H
#define RAMET_ORCHESTRATOR_SANDBOX_SAMPLER_H

#include "base/list.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/sandbox/sandboxes.h"

#define SAMPLER_TURNS 50

struct core;
struct sandbox;

/* The CPU time and memory of a VM process. */
struct vm_use {
	uint64_t cpu_ns; /* CPU time of all its threads since its start */
	uint64_t at_ms;	 /* when that was read, now_ns() in ms */
	struct memory_use memory;
};

struct sampler {
	struct list turns[SAMPLER_TURNS]; /* struct sandbox.sample_turn */
	unsigned turn, next_turn;	  /* to look at next; for the next sandbox */
	struct sampling *job;		  /* in progress, or NULL */
	struct loop_timer timer;
	uint32_t step_ms;
};

void sampler_init(struct sampler *sampler);
/* Adds a sandbox that has its VM. It is removed from the list when it is shed. */
void sampler_add(struct sandbox *s);

/* Starts to look at each VM process every `step_ms`. */
void sampler_start(struct core *c, uint32_t step_ms);
void sampler_stop(struct core *c);
/* Returns the memory of all sandboxes' VM processes, as of the last looks. */
struct memory_use sampler_memory(const struct core *c);
/* Returns the CPU time of a process in ns; 0: it is gone. */
uint64_t vm_cpu_ns(uint32_t pid);
/* Measures one VM process now; leaves *use unchanged when that fails. */
void vm_memory_read(uint32_t pid, struct memory_use *use);
/* Measures one VM process now. Returns false if it is gone. */
bool vm_use_read(uint32_t pid, struct vm_use *use);

#endif
