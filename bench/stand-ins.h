// SPDX-License-Identifier: Apache-2.0
/*
 * Stand-ins for VMs with their agents, and for the warden, to run a service with thousands of VMs.
 * They live in a few processes with one thread each, and use three descriptors per VM. They
 * restore, connect and answer each call at once. They support neither files nor terminals, and
 * CTL_FORK only for the snapshot of a template.
 */
#ifndef RAMET_BENCH_STAND_INS_H
#define RAMET_BENCH_STAND_INS_H

struct stand_ins;

/* Starts the processes, which create VM directories in RUN_DIR/vm and end with this process. It
 * forks, so call it before any thread is started. Returns NULL with errno set on failure. */
struct stand_ins *stand_ins_new(const char *run_dir);
/* Returns a socket to the warden for a service, which replaces the previous service. */
int stand_ins_attach(struct stand_ins *s);

#endif
