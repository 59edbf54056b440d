// SPDX-License-Identifier: Apache-2.0
/*
 * core.h without VMs: what "runs" is a script of lines, so that tests drive the API into every
 * state.
 *   out TEXT | err TEXT   one event          raw HEX      stdout with these bytes
 *   flood N SIZE          N events of SIZE bytes, held back while paused
 *   part TEXT             stdout, partial    len          stdout: length of the whole code
 *   exit N                the last event     fail STATUS  fails instead (after output: mid-stream)
 *   hang                  until interrupted: exit 130
 * A script without an end exits 0. Templates: "held" is made by the next create of "release";
 * "full", "broken", "died" and "missing" fail with 503, 500, 500 and 400. Forks, merges and diffs
 * of a "slow" one wait for that release too, and so do resumes of a "sleepy" one; those of a
 * "crowded" one fail with 503. A diff adds the paths it was asked for, and finds two modified whose
 * bytes are no good UTF-8, or just so.
 * Files are what was put, of all sandboxes together, and a few paths of their own: /dir is a
 * folder, /full takes nothing, /proc/hello says it is empty, /big/N has N bytes (that of place i is
 * i / 256 % 251), /short/N is cut off in the middle; a list of /names has all kinds, of /many/N N
 * names, of /worn N that end in a failure; everything on /locked is not permitted. Programs of
 * terminals say what they were started with, echo what is typed, and do as it says: "exit N",
 * "flood N" (N bytes). "missing" can't be started. core_stats tells what was asked of it:
 * vm_deaths counts abandoned calls, pool_hits pauses, pool_misses resumes, blank_vms_ready the
 * calls that are open, warm_ready the length of the last code, or whether the last fork was to
 * reseed.
 */
#ifndef RAMET_TEST_FAKE_CORE_H
#define RAMET_TEST_FAKE_CORE_H

#include "orchestrator/core/core.h"

struct core *fake_core_new(struct loop *loop, bool ready);
void fake_core_set_ready(struct core *c);

#endif
