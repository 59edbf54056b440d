// SPDX-License-Identifier: Apache-2.0
/* Reports that show a person why a VM makes no progress. */
#ifndef RAMET_ORCHESTRATOR_OBSERVE_REPORTS_H
#define RAMET_ORCHESTRATOR_OBSERVE_REPORTS_H

#include "orchestrator/sandbox/sandboxes.h"

/* Receives the report. `text`: some pages for people; NULL on failure. */
typedef void service_inspect_fn(void *arg, const char *text, const struct failure *f);
/* Reports on the sandbox with the id `name`, of any tenant, or on the VM in the slot with that
 * number. Takes some seconds when the VM does not answer; changes nothing. */
struct op *service_inspect(struct service *c, const char *name, service_inspect_fn *fn, void *arg);

#endif
