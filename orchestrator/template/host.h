// SPDX-License-Identifier: Apache-2.0
/* What this host has for VMs, and whether it is running out of it. */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_HOST_H
#define RAMET_ORCHESTRATOR_TEMPLATE_HOST_H

#include "orchestrator/template/sizes.h"
#include "orchestrator/vm/vmproc.h"

/* The most of each that a sandbox can have here. */
struct size size_host(void);
/* For the cgroup of a VM; one that writes an image dirties more page cache. */
struct vmproc_spec size_vm_spec(const struct size *size, bool builds);
/* Another VM would push the host into swapping or worse. */
bool host_memory_low(void);
/* No VM can be filled, and guests that write wait. On a worker. */
bool disk_is_full(const char *state_dir);

#endif
