// SPDX-License-Identifier: Apache-2.0
/* Sandboxes that a previous instance of the service left. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_ADOPT_H
#define RAMET_ORCHESTRATOR_SANDBOX_ADOPT_H

struct service;
struct err;

/* Takes over the sandboxes of the previous instance and their VMs. Returns 0, or -errno with *e
 * filled. */
int adopt_all(struct service *c, struct err *e);
/* Empties the VM slots that no sandbox has taken over. */
void adopt_sweep(struct service *c);

#endif
