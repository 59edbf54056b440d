// SPDX-License-Identifier: Apache-2.0
/* The fleet's certificates: two authorities, one for its hosts and one for etcd, and the
 * certificates that they sign. */
#ifndef RAMET_ORCHESTRATOR_ETCD_CERTIFICATE_H
#define RAMET_ORCHESTRATOR_ETCD_CERTIFICATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PEM_MAX		 4096
#define CERTIFICATE_DAYS 3650

struct certificate {
	char cert[PEM_MAX], key[PEM_MAX]; /* PEM */
	uint8_t sha256[32];		  /* of the certificate in DER */
};

struct subject {
	const char *name;	      /* common name */
	const char *const *addresses; /* numeric addresses and names of hosts; NULL-terminated, or
					 NULL */
	const struct certificate *by; /* the authority; NULL: the subject is an authority itself */
};

/* Makes a key and a certificate for it. A certificate that is not an authority's is for servers and
 * for clients.
 * Returns 0, or -errno with *e filled. */
int certificate_make(struct certificate *out, const struct subject *subject, struct err *e);

#endif
