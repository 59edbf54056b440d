// SPDX-License-Identifier: Apache-2.0
/* The state of service.c, which starts and ends the service and does its housekeeping. */
#ifndef RAMET_ORCHESTRATOR_SERVICE_UPKEEP_H
#define RAMET_ORCHESTRATOR_SERVICE_UPKEEP_H

#include "orchestrator/sandbox/service.h"

struct upkeep {
	struct loop_timer housekeeping;
	uint64_t slept_ms; /* total ms that the host was suspended since its boot */
	struct loop_timer closing_limit;
	struct deferred closed;
	void (*shutdown_done)(void *arg);
	void *shutdown_arg;
};
extern const struct template_env_ops template_ops; /* templates.c */

extern struct part upkeep_part;
static inline struct upkeep *upkeep_of(const struct service *c)
{
	return part_of_service(&upkeep_part, c);
}

#endif
