// SPDX-License-Identifier: Apache-2.0
/* The filter in the query of a list of sandboxes or checkpoints. Independent of h2o, so that it can
 * be fuzzed. */
#ifndef RAMET_ORCHESTRATOR_API_LIST_FILTER_H
#define RAMET_ORCHESTRATOR_API_LIST_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/json/json.h"
#include "orchestrator/service/service.h"

/* Conditions that must all hold; an empty text is none. Zeroed: everything fits. */
struct list_filter {
	struct json_flat labels; /* members that the labels must have */

	/* Of sandboxes. */
	char state[16], template[SANDBOX_NAME_MAX + 1];
	int64_t after_ms, before_ms;   /* creation time, exclusive, ms since the epoch; 0: any */
	struct json_flat metadata;     /* members that the metadata must have */
	char root[SANDBOX_ID_LEN + 1]; /* root of the sandbox's tree */

	/* Of checkpoints. */
	char name[CHECKPOINT_NAME_MAX + 1];
	char sandbox[SANDBOX_ID_LEN + 1], ancestor[SANDBOX_ID_LEN + 1];
};

/* Reads the filter from the query of `url`, which is as sent. Returns -EINVAL with an error text
 * for the client; then there is nothing to free. On success the caller frees with list_filter_fini.
 */
int list_filter_read(struct list_filter *f, const char *url, size_t url_len, struct err *e);
void list_filter_fini(struct list_filter *f);
bool list_filter_fits(const struct list_filter *f, const struct sandbox_view *view);
/* The same for a list of checkpoints. */
int checkpoint_filter_read(struct list_filter *f, const char *url, size_t url_len, struct err *e);
bool checkpoint_filter_fits(const struct list_filter *f, const struct checkpoint_view *view);

#endif
