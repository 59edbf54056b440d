// SPDX-License-Identifier: Apache-2.0
/*
 * Stand-ins for VMs with their agents, and for the warden, for a service that is to have thousands
 * of them: in a few processes with one thread each, three descriptors a VM. They restore, connect
 * and answer each call at once, and know no forks, files or terminals.
 */
#ifndef RAMET_BENCH_STAND_INS_H
#define RAMET_BENCH_STAND_INS_H

struct stand_ins;

/* Takes VM directories from RUN_DIR/vm. Before any thread is started, since it forks; the processes
 * end with this one. NULL with errno set on failure. */
struct stand_ins *stand_ins_new(const char *run_dir);
/* Returns a socket to the warden for a service, which replaces the one before. */
int stand_ins_attach(struct stand_ins *s);

#endif
