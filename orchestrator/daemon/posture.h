// SPDX-License-Identifier: Apache-2.0
/* Settings of the host that let a guest learn of others by how the CPU behaves
 * (docs/operating.md). */
#ifndef RAMET_ORCHESTRATOR_DAEMON_POSTURE_H
#define RAMET_ORCHESTRATOR_DAEMON_POSTURE_H

#include <stdbool.h>

/*
 * Calls tell(arg, sentence) for each setting of the host that weakens the walls between VMs, as the
 * files of sysfs, mounted at `sys`, have it. A file that is missing or can't be read counts as
 * fine: another kernel or CPU has none. `cores_are_apart`: each VM has a core for itself while it
 * runs.
 */
void posture_check(const char *sys, bool cores_are_apart,
		   void (*notify)(void *arg, const char *sentence), void *arg);

/* posture_check of this host. `core_scheduling`: VMs get a core each where the kernel can do that.
 */
void posture_check_host(bool core_scheduling, void (*notify)(void *arg, const char *sentence),
			void *arg);

#endif
