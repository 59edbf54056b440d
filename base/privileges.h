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
 * Makes sure that programs which this process runs can never have a capability that `p` does not
 * keep: removes these from the bounding set, empties the ambient set, and locks the secure bits, so
 * that an exec as root does not give capabilities. Requires CAP_SETPCAP.
 */
int privileges_bound(const struct privileges *p, struct err *e);

/*
 * Reduces the effective and permitted sets to what `p` keeps and this process has, empties the
 * inheritable set, and sets no_new_privs.
 */
int privileges_keep(const struct privileges *p, struct err *e);

#endif
