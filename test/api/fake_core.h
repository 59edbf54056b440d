// SPDX-License-Identifier: Apache-2.0
/*
 * core.h without VMs. Code that "runs" is a script of lines, so that tests can bring the API into
 * every state:
 *   out TEXT | err TEXT   one event          raw HEX      stdout with these bytes
 *   flood N SIZE          N events of SIZE bytes, paused on request
 *   part TEXT             stdout, partial    len          stdout: length of the whole code
 *   exit N                the last event     fail         vm_died, mid-stream after output
 *   hang                  until interrupted: exit 130
 * A script without an end exits with 0.
 *
 * Templates: a create of "held" waits for the next create of "release". "full", "broken" and
 * "missing" fail with no_capacity, agent_error and unknown_template. Forks, merges and diffs of a
 * sandbox of "slow" wait for a create of "release" too, and so do resumes of a Space of "sleepy".
 * After a create of "hold-all", every call waits until its client leaves. A freeze of a sandbox of
 * "drowsy" waits for a create of "release". Forks, merges and diffs of a sandbox of "crowded" fail
 * with no_capacity. A diff reports the paths it was given as added, and two modified paths: one of
 * invalid and one of valid UTF-8.
 *
 * Files are those that were put, shared by all sandboxes, and a few special paths: /dir is a
 * folder; /full is full; /proc/hello has size 0 but contents; /big/N has N bytes (the byte at
 * offset i is i / 256 % 251); /short/N is cut off in the middle; a list of /names has all types, of
 * /many/N has N names, and of /worn N names and then a failure; everything on /locked is not
 * permitted.
 *
 * Programs on terminals print their arguments, echo their input, and obey it: "exit N", "flood N"
 * (N bytes). "missing" cannot be started.
 *
 * Contexts are shared by all sandboxes. "javascript" is not installed; a start with the folder
 * /nosuch fails, and so does the fourth.
 *
 * Some fields of core_stats report other numbers here: vm_deaths the abandoned calls, pool_hits the
 * pauses, pool_misses the resumes, blank_vms_ready the open calls, and warm_ready the length of the
 * last code, or whether the last fork was to reseed.
 */
#ifndef RAMET_TEST_FAKE_CORE_H
#define RAMET_TEST_FAKE_CORE_H

#include "orchestrator/io/loop.h"
#include "orchestrator/sandbox/sandboxes.h"

struct core *fake_core_new(struct loop *loop, bool ready);
void fake_core_set_ready(struct core *c);

#endif
