// SPDX-License-Identifier: Apache-2.0
/* What the handlers of routes share, besides http.h: private declarations of this room. */
#ifndef RAMET_ORCHESTRATOR_API_HANDLER_H
#define RAMET_ORCHESTRATOR_API_HANDLER_H

#include "orchestrator/api/list-filter.h"
#include "orchestrator/api/spec.h" /* generated from openapi.json */
#include "orchestrator/exec/event.h"
#include "orchestrator/http/http.h"
#include "orchestrator/service/service.h"
#include "proto/agent.h"

struct agent_file_request;

/* --- pages.c: lists ------------------------------------------------------------------------- */

/* Adds at most `most` entries of the page to `out`, calling pages_comma before each. Returns false
 * when no more are left. */
typedef bool pages_fn(struct request *r, size_t most);

struct fleet_pages; /* in fleet-pages.c */

/* A list that is being sent: the request's `state`. */
struct pages {
	struct list_name list;
	struct list_page page; /* the entries still to send */
	pages_fn *add;
	struct list_filter filter;
	unsigned rejected; /* entries that the filter rejected in this turn */
	size_t n;	   /* entries that were added */
	bool more;	   /* there is a next chunk to gather */
	struct loop_timer turn;
	size_t part_at;			     /* where the part begins in `out` */
	void (*gathered)(struct request *r); /* the part is complete */
	struct fleet_pages *fleet;	     /* of a list over all hosts; NULL: of this one only */
};

static inline struct pages *pages_of(const struct request *r)
{
	return r->state;
}

/* Answers with the list: the page at ?cursor= with ?limit= entries, or all of it. The texts in
 * `list` must live as long as the request. */
void serve_pages(struct request *r, const struct list_name *list, pages_fn *add);
void pages_comma(struct request *r);
/* Reads ?limit= to *limit, cut to PAGE_MAX; leaves *limit unchanged when absent. Returns false,
 * with an answer given, when it is invalid. */
bool ask_limit(struct request *r, size_t *limit);
/* Reads ?cursor=. Returns the length of its key, 0 when it is absent, or -EINVAL, with an answer
 * given, when it is invalid. A key has `least` to `most` bytes. */
int ask_cursor(struct request *r, char kind, void *key, size_t least, size_t most);
/* Adds the header with the cursor of the next page. Called before the answer, when there is such a
 * page. */
void answer_next(struct request *r, char kind, const void *key, size_t len);

/* --- trees.c ---------------------------------------------------------------------------------- */

/* Bytes of labels as JSON: each byte of a text has at most 6 as \u00XX, each label 6 more. */
#define LABELS_JSON_MAX (6 * LABELS_BYTES_MAX + 6 * LABELS_MAX + 3)
/* Makes a JSON object of labels, from NAME=VALUE; "{}" without any (NULL). Returns false, with an
 * answer given, when they are too many. */
bool labels_read(struct request *r, char *const *labels, char out[static LABELS_JSON_MAX]);
/* Reads the field `tree` of a create. Returns false, with an answer given, when it is invalid. */
bool budget_read(struct request *r, const struct json_text *field, struct tree_budget *budget);
/* Adds the members root, depth, score and labels. */
void text_node(struct text *t, const char *root, uint32_t depth, struct score score,
	       const char *labels);
/* Adds the members template, vcpus, ram_mib and rootfs_gb. */
void text_machine(struct text *t, const struct sandbox_config *config);
/* Adds the member metadata, from a JSON object; NULL or empty is {}. */
void text_metadata(struct text *t, const char *metadata);

/* --- answers to a create or resume, a fork, and a freeze ---------------------------------------
 */

/* service_create_fn: answers with the new sandbox. */
void request_created(void *arg, const struct sandbox_view *view, const struct failure *f);
/* Add the body of an answer. */
void text_created(struct text *t, const struct config *config, const char *id, const char *state);
/* Fills in *spec, which has `labels`. Returns false, with an answer given, when the labels are too
 * many. */
bool fork_spec_read(struct request *r, const struct fork_body *b,
		    char labels[static LABELS_JSON_MAX], struct fork_spec *spec);
void text_forked(struct text *t, const struct service_forked *forked);
void text_frozen(struct text *t, const char *space);
/* Adds the children of a checkpoint or Space, one item each. */
void text_started(struct text *t, const struct service_forked *forked);
void text_checkpoint(struct text *t, const struct checkpoint_view *view);
/* Return false, with an answer given, if the checkpoint in a body is not an id, or if another host
 * has it. */
bool checkpoint_is_id(struct request *r, const struct json_text *id);
bool checkpoint_is_good(struct request *r, const struct json_text *id);

/* --- api.c ---------------------------------------------------------------------------------- */

/* Calls the handler of the request's route; again for a request that had to wait for something. */
void route_serve(struct request *r);

/* --- diff.c --------------------------------------------------------------------------------- */

/* Returns the paths that a body names, or the default ones. */
const char *const *diff_paths(char **paths);
/* Returns false, with an answer given, for paths that cannot be compared. NULL is fine. */
bool diff_paths_are_good(struct request *r, char **paths);
/* Returns whether the request compares with a checkpoint. It then starts a sandbox, which becomes
 * `other`, and has the route's handler called again; or it has answered. */
bool diff_starts_other(struct request *r);
/* Deletes that sandbox if there is one. */
void diff_end_other(struct request *r);

/* --- events.c ------------------------------------------------------------------------------- */

/* Adds one line of NDJSON. `traceparent` may be NULL. */
void event_line(struct text *t, const struct event *ev, const char *traceparent);

/* --- watch.c -------------------------------------------------------------------------------- */

/* Adds {"type":TYPE,KEY:SENTENCE,"code":CODE without the end of the object. */
void text_failed(struct text *t, const char *type, const char *key, const struct failure *f);

/* --- files.c: query parameters; false, with an answer given, for an invalid one --------------- */

bool ask_path(struct request *r, char path[static AGENT_PATH_MAX + 1]);
bool ask_flag(struct request *r, const char *name, bool *flag);
/* Reads a number from `least` on; leaves *n unchanged when the parameter is absent. */
bool ask_number(struct request *r, const char *name, uint64_t least, uint64_t *n);

/* Sends a request on files whose answer is only success or failure. */
void file_do(struct request *r, const struct agent_file_request *request,
	     const struct file_data *data);
/* Adds "KEY":"NAME", and "KEY_b64" with the exact bytes if the name is not UTF-8. */
void add_name(struct text *t, const char *key, const char *name, size_t len);
/* Adds bytes of a file or archive to the answer, which begins with the first of them. */
void stream_file(struct request *r, const char *type, const void *data, size_t len);
/* Ends such an answer: f is why it is not complete, or NULL. */
void end_file(struct request *r, const char *type, const struct failure *f);
/* service_done_fn of the HEAD for such an answer. */
void end_file_head(void *arg, const struct failure *f);

/* The value of a uint8_t for an optional bool that the body does not have. */
#define NOT_SAID 2
static inline enum change change_of(uint8_t said)
{
	return said == NOT_SAID ? CHANGE_NONE : said ? CHANGE_TRUE : CHANGE_FALSE;
}

#endif
