// SPDX-License-Identifier: Apache-2.0
/* The API itself: private declarations of this room. */
#ifndef RAMET_ORCHESTRATOR_API_INTERNAL_H
#define RAMET_ORCHESTRATOR_API_INTERNAL_H

#include "base/list.h"
#include "orchestrator/api/api.h"
#include "orchestrator/api/handler.h"

struct api {
	struct http *http;
	struct loop *loop;
	struct service *service;
	const struct config *config;
	struct peers *peers; /* NULL: this host is in no fleet */
	/* Lists that are made of parts of several hosts, see fleet-pages.c. */
	struct list lists;
	struct ui_file *ui; /* the files of the web page */
	size_t n_ui;
	api_watch_fn *watch_fn; /* NULL: no further counters */
	void *watch_arg;
};

/* --- made-before.c ---------------------------------------------------------------------------- */

/* Has the server remember the answers that previous instances of the service gave to requests with
 * an Idempotency-Key. Returns 0, or -errno with *e filled. */
int made_before_load(struct api *a, struct err *e);

/* --- ui.c: the web page --------------------------------------------------------------------- */

/* Reads the files of ui_dir. A folder that is missing has none. Returns 0, or -errno with *e
 * filled. */
int ui_load(struct api *a, struct err *e);
void ui_free(struct api *a);
/* Returns whether the request is for the page or one of its files. */
bool ui_is_for(const struct request *r);
void ui_serve(struct request *r);

/* --- regions.c ------------------------------------------------------------------------------ */

/* Answers a request for another region. */
void refuse_region(struct request *r);

/* --- metrics.c ------------------------------------------------------------------------------ */

void metrics_print(struct api *a, struct text *out);

/* --- openapi.c ------------------------------------------------------------------------------ */

extern const char openapi_json[], openapi_json_end[];

#endif
