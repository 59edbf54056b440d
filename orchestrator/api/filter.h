// SPDX-License-Identifier: Apache-2.0
/* The filter in the query of a list of sandboxes. Independent of h2o, so that it can be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_API_FILTER_H
#define RAMET_ORCHESTRATOR_API_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/sandbox/sandboxes.h"

#define FILTER_METADATA_MAX 4096 /* bytes of JSON */

/* Conditions that must all hold. Zeroed: every sandbox fits. */
struct filter {
	char state[16], template[SANDBOX_NAME_MAX + 1]; /* empty: any */
	int64_t after_ms, before_ms; /* creation time, exclusive, ms since the epoch; 0: any */
	char *metadata; /* JSON object whose members the sandbox's metadata must have; NULL: any;
			   owned */
	size_t metadata_len;
};

/* Reads the filter from the query of `url`, which is as sent. Returns -EINVAL with an error text
 * for the client; then there is nothing to free. On success the caller frees with filter_fini. */
int filter_read(struct filter *f, const char *url, size_t url_len, struct err *e);
void filter_fini(struct filter *f);
bool filter_fits(const struct filter *f, const struct sandbox_view *view);

#endif
