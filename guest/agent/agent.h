// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_AGENT_AGENT_H
#define RAMET_GUEST_AGENT_AGENT_H

/*
 * Runs the agent, which serves proto/agent.h until the guest is powered off. Options: --unix PATH
 * (listen there instead of on vsock), --run-dir DIR (for driver.py; /run/ramet), --grace-ms N
 * (2000),
 * --dry-run-system. Returns an exit status if the start fails.
 */
int agent_main(int argc, char **argv);

#endif
