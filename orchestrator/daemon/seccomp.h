// SPDX-License-Identifier: Apache-2.0
/* The system calls that the service may make. */
#ifndef RAMET_ORCHESTRATOR_DAEMON_SECCOMP_H
#define RAMET_ORCHESTRATOR_DAEMON_SECCOMP_H

#include "base/err.h"

/*
 * Confines this thread, and those it starts, with a seccomp filter: for any other call the kernel
 * kills the process and logs it. The service can then neither start nor execute a process, nor
 * create an io_uring ring, which would bypass the filter. Requires no_new_privs. Builds with a
 * sanitizer are not confined, since its runtime makes further calls.
 */
int seccomp_confine(struct err *e);

#endif
