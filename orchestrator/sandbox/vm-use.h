// SPDX-License-Identifier: Apache-2.0
/* Looks at a VM process from outside: an idle VM process is not woken. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_VM_USE_H
#define RAMET_ORCHESTRATOR_SANDBOX_VM_USE_H

#include "orchestrator/sandbox/sandboxes.h"

/* The CPU time and memory of a VM process. */
struct vm_use {
	uint64_t cpu_ns; /* CPU time of all its threads since its start */
	uint64_t at_ms;	 /* when that was read, now_ns() in ms */
	struct memory_use memory;
};

/* Returns the CPU time of a process in ns; 0: it is gone. */
uint64_t vm_cpu_ns(uint32_t pid);
/* Measures one VM process now. Returns false if it is gone. */
bool vm_use_read(uint32_t pid, struct vm_use *use);

#endif
