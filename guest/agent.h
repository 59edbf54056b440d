// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_AGENT_H
#define RAMET_GUEST_AGENT_H

/*
 * Serves proto/agent.h until the guest is powered off. Options: --unix PATH (listen there instead
 * of on vsock), --run-dir DIR (for driver.py; /run/ramet), --grace-ms N (2000), --dry-run-system.
 * Returns an exit status, for faults at the start only.
 */
int agent_main(int argc, char **argv);

#endif
