// SPDX-License-Identifier: Apache-2.0
/* The host's resources for VMs, and whether they are running out. */
#ifndef RAMET_ORCHESTRATOR_IMAGES_HOST_H
#define RAMET_ORCHESTRATOR_IMAGES_HOST_H

#include "orchestrator/config/failure.h"
#include "orchestrator/images/sizes.h"
#include "orchestrator/vm/vmproc.h"

/* Returns the largest sandbox size that the host supports. */
struct size size_host(void);
/* Returns the VM spec of a size, with its cgroup's memory limit. `builds`: the VM saves a template
 * image, which dirties more page cache. */
struct vmproc_spec size_vm_spec(const struct size *size, bool builds);
/* Returns true when another VM would push the host into swapping or out of memory. */
bool host_memory_low(void);
/* Returns true when the disk is too full for another VM, and running guests can't write. May block:
 * call it on a worker. */
bool disk_is_full(const char *state_dir);
/* Chooses the size of a sandbox from what was asked for (0: the template's own), cut to what the
 * host has and to `most`, and the image that serves it. Returns false with *f filled when less than
 * the minimum was asked for. */
bool size_choose(const struct source *from, const struct size *asked, const struct size *most,
		 struct sized_choice *out, struct failure *f);

#endif
