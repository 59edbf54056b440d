// SPDX-License-Identifier: Apache-2.0
/* The system calls the service may make. */
#ifndef RAMET_ORCHESTRATOR_DAEMON_SECCOMP_H
#define RAMET_ORCHESTRATOR_DAEMON_SECCOMP_H

#include "base/err.h"

/*
 * Confines this thread and those it starts: any other call ends the process and is logged by the
 * kernel. No process can be made and nothing executed; no io_uring, which goes past all this. Needs
 * no_new_privs. Builds with a sanitizer are not confined: its runtime makes calls of its own.
 */
int seccomp_confine(struct err *e);

#endif
