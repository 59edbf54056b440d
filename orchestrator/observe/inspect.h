// SPDX-License-Identifier: Apache-2.0
/* The state of inspections. An inspection makes a report on a VM that makes no progress. Lower
 * rooms start inspections through vm/inspector.h, the API through observe/reports.h. */
#ifndef RAMET_ORCHESTRATOR_OBSERVE_INSPECT_H
#define RAMET_ORCHESTRATOR_OBSERVE_INSPECT_H

#include "base/list.h"
#include "orchestrator/sandbox/part.h"
#include "orchestrator/vm/inspector.h"

struct inspect_service {
	struct list inspections; /* struct inspection: in progress */
	unsigned n_inspections;
	struct stall_reports {
		unsigned written;  /* logged recently */
		unsigned left_out; /* since the last report that was logged */
		uint64_t since_ms;
	} stall_reports;
};
extern struct part inspect_part;
static inline struct inspect_service *inspect_of_service(const struct service *c)
{
	return part_of_service(&inspect_part, c);
}

extern const struct inspector inspector; /* for the lower rooms */

#endif
