// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_GUEST_AGENT_AGENT_H
#define RAMET_GUEST_AGENT_AGENT_H

/*
 * Runs the agent, which serves proto/agent.h until the guest is powered off. Returns an exit status
 * if the start fails. Options: --unix PATH (listens there instead of on vsock), --run-dir DIR
 * (where it writes driver.py; default /run/ramet), --grace-ms N (call_init; default 2000),
 * --dry-run-system (logs changes to the guest instead of making them).
 */
int agent_main(int argc, char **argv);

#endif
