// SPDX-License-Identifier: Apache-2.0
/* A template as lists of templates show it. */
#ifndef RAMET_ORCHESTRATOR_TEMPLATE_TEMPLATE_VIEW_H
#define RAMET_ORCHESTRATOR_TEMPLATE_TEMPLATE_VIEW_H

#include <stddef.h>
#include <stdint.h>

struct template_size {
	uint32_t vcpus, ram_mib, rootfs_gb;
};

/* Valid during the call only. */
struct template_view {
	const char *name, *description; /* no description: "" */
	/* "ready"; "building"; "waiting": its image is made on request, or when the service has
	 * nothing else to do; "failed" */
	const char *state;
	const char *reason;		    /* failed: a sentence or a traceback; else "" */
	uint32_t vcpus, ram_mib, rootfs_gb; /* of a sandbox that asks for nothing else */
	const struct template_size *sizes;  /* sizes that have an image already */
	size_t n_sizes;
};

#endif
