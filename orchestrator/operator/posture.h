// SPDX-License-Identifier: Apache-2.0
/* Checks the host for settings that allow a guest to observe others through side channels of the
 * CPU (docs/hardening.md). */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_POSTURE_H
#define RAMET_ORCHESTRATOR_OPERATOR_POSTURE_H

#include <stdbool.h>

/*
 * Calls notify(arg, sentence) for each setting of the host that weakens the isolation of VMs,
 * according to the sysfs mounted at `sys`. Ignores files that are missing or unreadable, since not
 * every kernel and CPU has them. `cores_are_apart`: VMs never share a core.
 */
void posture_check(const char *sys, bool cores_are_apart,
		   void (*notify)(void *arg, const char *sentence), void *arg);

/* Returns whether the kernel can prevent threads of different VMs from sharing a core. Without SMT,
 * no threads share a core, and this returns false. */
bool posture_can_part_cores(void);

/* Runs posture_check on this host. `core_scheduling`: VMs never share a core if the kernel supports
 * that. */
void posture_check_host(bool core_scheduling, void (*notify)(void *arg, const char *sentence),
			void *arg);

#endif
