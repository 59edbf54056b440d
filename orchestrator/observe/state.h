// SPDX-License-Identifier: Apache-2.0
/* The samples of use, for each sandbox and the service. */
#ifndef RAMET_ORCHESTRATOR_OBSERVE_STATE_H
#define RAMET_ORCHESTRATOR_OBSERVE_STATE_H

#include "base/list.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/observe/ring.h"
#include "orchestrator/observe/sampler.h"
#include "orchestrator/sandbox/part.h"

struct vm_use;
struct vmproc_request;

/* The CPU time of a VM process at an earlier moment. */
struct usage_base {
	uint32_t pid;	/* 0: none */
	uint64_t at_ms; /* now_ns() in ms */
	uint64_t cpu_ms;
};

struct usage_sandbox {
	struct sandbox *sandbox;
	struct list turn;	       /* on a list of the sampler */
	struct loop_timer limit;       /* while a measurement waits for the VM process */
	struct usage_job *job;	       /* the worker that reads /proc, or NULL */
	struct vmproc_request *asking; /* the request to the VM process, or NULL */
	bool measuring, due;	       /* due: the measurement becomes a sample */
	struct usage_sample found;     /* the last numbers */
	uint64_t read_ms;	       /* when found.cpu_ms was read, now_ns() in ms */
	uint32_t asked_pid;	       /* the VM process that reported last */
	uint64_t asked_cpu_ns;	       /* the CPU time of asked_pid when it reported */
	struct usage_base base[2];     /* of the last two samples, the newer one first */
	struct usage_ring ring;
	struct list calls; /* calls that wait for the measurement */
};
extern struct part usage_part;
static inline struct usage_sandbox *usage_of(const struct sandbox *s)
{
	return part_of_sandbox(&usage_part, s);
}
static inline struct sampler *sampler_of(const struct service *c)
{
	return part_of_service(&usage_part, c);
}

/* Takes note of what the sampler found. A measurement that is in progress becomes the sample. */
void usage_sampled(struct sandbox *s, const struct vm_use *use);

#endif
