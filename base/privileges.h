// SPDX-License-Identifier: Apache-2.0
/* The capabilities that each process of Ramet keeps, and how a process gives up the others. */
#ifndef RAMET_BASE_PRIVILEGES_H
#define RAMET_BASE_PRIVILEGES_H

#include <stddef.h>
#include <sys/capability.h>

#include "base/err.h"

struct privileges {
	const char *process;
	const cap_value_t *keeps;
	size_t n;
};

/* Makes jails, as root. */
extern const struct privileges privileges_warden;
/* Service, ramet-notify, VM processes, and rametctl when it changes the catalogue: nothing. */
extern const struct privileges privileges_none;

/*
 * Gives up for good, together with all processes that this one starts, whatever `p` does not keep:
 * removes it from the bounding set, empties the ambient set, and locks the secure bits, so that
 * root has no capability by its uid after an exec. Requires CAP_SETPCAP.
 */
int privileges_bound(const struct privileges *p, struct err *e);

/*
 * Reduces the effective and permitted sets to what `p` keeps and this process has, empties the
 * inheritable set, and sets no_new_privs.
 */
int privileges_keep(const struct privileges *p, struct err *e);

#endif
