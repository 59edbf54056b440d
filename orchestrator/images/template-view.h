// SPDX-License-Identifier: Apache-2.0
/* A template as lists of templates show it. */
#ifndef RAMET_ORCHESTRATOR_IMAGES_TEMPLATE_VIEW_H
#define RAMET_ORCHESTRATOR_IMAGES_TEMPLATE_VIEW_H

#include <stddef.h>

#include "orchestrator/config/sandbox-config.h"

/* Valid only during the call of the function that receives it. */
struct template_view {
	const char *name, *description; /* no description: "" */
	/* "ready"; "building"; "waiting": its image is made on request, or when the service has
	 * nothing else to do; "failed" */
	const char *state;
	const char *reason;	  /* failed: a sentence or a traceback; else "" */
	struct size size;	  /* size of a sandbox, unless its create asks for another one */
	const struct size *sizes; /* sizes that have an image already */
	size_t n_sizes;
};

#endif
