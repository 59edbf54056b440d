// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of sandbox/: sandboxes as the API sees them. Nothing here knows of HTTP or JSON.
 * Answers come by callback on the loop's thread, exactly once and never from inside the call. No
 * answer comes after the caller has abandoned the call.
 */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_SANDBOXES_H
#define RAMET_ORCHESTRATOR_SANDBOX_SANDBOXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/config/failure.h"
#include "orchestrator/config/sandbox-config.h"

struct service;

#define SANDBOX_ID_LEN	     36 /* "sbx_" + 32 hex digits */
#define SANDBOX_METADATA_MAX (16u << 10)

struct sandbox_spec {
	struct sandbox_config config;
	const char *metadata;	/* JSON object text, or NULL; copied */
	const char *const *env; /* NAME=VALUE, NULL-terminated, or NULL; copied; for every exec */
	const char *labels;	/* JSON object of strings, or NULL; copied */
	const struct tree_budget *tree; /* of the tree that the sandbox begins; NULL: no limits */
	bool warm_only;			/* fails with FAIL_NO_WARM if no warm sandbox is ready */
};

/* Memory of VM processes, in bytes. A shared page counts once for each process that maps it. */
struct memory_use {
	uint64_t private_bytes, shared_bytes;
};

#define CHILDREN_SHOWN 1000

struct sandbox_view {
	char id[SANDBOX_ID_LEN + 1];
	const char *state; /* "ready", "running", "freezing" */
	struct sandbox_config config;
	int64_t created_at_ms, expires_at_ms, idle_expires_at_ms; /* ms since the epoch; 0: never */
	const char *parent;					  /* id, or NULL */
	const char *root;					  /* of its tree; an id */
	uint32_t depth;						  /* forks from the root */
	struct score score;
	const char *labels; /* JSON object text */
	/* Ids of living children, oldest first, NULL-terminated, at most CHILDREN_SHOWN; NULL in
	 * lists. */
	const char *const *children;
	size_t n_children;	  /* all living children */
	struct memory_use memory; /* in lists: measured some seconds ago; 0: not measured yet */
	const char *metadata;	  /* JSON object text */
	const char *tenant;
	uint32_t pid;	  /* of its VM process */
	uint64_t idle_ms; /* ms since the last activity; 0: a call is in flight */
	uint64_t frozen_bytes,
		freeze_bytes; /* while freezing: bytes written, and estimated total */
};

/* A call in flight. It ends, and the pointer is invalid, once its callback was called or it was
 * abandoned. */
struct op;

typedef void service_create_fn(void *arg, const struct sandbox_view *view, const struct failure *f);
typedef void service_done_fn(void *arg, const struct failure *f); /* f NULL: success */
/* `new_id` is NULL on failure. */
typedef void service_id_fn(void *arg, const char *new_id, const struct failure *f);

/* Detaches the client from a call: its callback is not called. A result that the client did not
 * learn of is undone (a created sandbox is deleted). A running exec continues. */
void op_abandon(struct op *op);
/* Like op_abandon, and ends the program whose output the call streams: an exec is interrupted, or
 * never begins; a process is killed. */
void op_hang_up(struct op *op);

/* Applies back-pressure to a call with a sink: after op_pause, at most one more buffer (64 KiB of
 * guest output) arrives until op_resume. An abandoned exec is never paused: its events go to the
 * replay ring only. */
void op_pause(struct op *op);
void op_resume(struct op *op);

/* Creates a sandbox for `tenant`. Never returns NULL: `fn` gets every failure. */
struct op *service_create(struct service *c, const char *tenant, const struct sandbox_spec *spec,
			  service_create_fn *fn, void *arg);
/* Deletes a sandbox. An abandoned delete is not undone. */
struct op *service_delete(struct service *c, const char *tenant, const char *id,
			  service_done_fn *fn, void *arg);

/* What happens to a setting that is true or false. */
enum change { CHANGE_NONE, CHANGE_FALSE, CHANGE_TRUE };
/* New settings of a sandbox. Zeroed members change nothing. */
struct sandbox_change {
	uint32_t timeout_s; /* its lifetime ends so many seconds from now */
	uint32_t idle_timeout_s;
	enum change persistent;
	enum change egress;   /* CHANGE_TRUE fails (FAIL_EGRESS_CLOSED) if it is closed */
	const char *metadata; /* JSON object text; copied */
	struct score score;
	const char *labels; /* as in a spec */
	const uint32_t *checkpoint_calls;
};
/* Changes a sandbox, all or nothing, and counts as activity in it. Like service_create, reduces
 * what exceeds the limits of the tenant; its longest lifetime counts from the creation. Ends once
 * no packet leaves the sandbox any more, if it closes egress. An abandoned change is not undone. */
struct op *service_change(struct service *c, const char *tenant, const char *id,
			  const struct sandbox_change *change, service_done_fn *fn, void *arg);
/* Fills in *view. Returns false, with *f filled, when the tenant has no such sandbox. The view's
 * strings are valid until the caller returns to the loop. */
bool service_view(struct service *c, const char *tenant, const char *id, struct sandbox_view *view,
		  struct failure *f);

/* --- trees ------------------------------------------------------------------------------------ */

struct tree_view {
	const char *root; /* an id, also after the end of that sandbox */
	bool limited;
	struct tree_budget budget;
	int64_t created_at_ms; /* of the root */
	size_t live;	       /* sandboxes */
	size_t waiting;	       /* forks that wait for room */
	uint64_t ram_mib;      /* of living sandboxes */
	uint64_t cpu_ms;       /* of all sandboxes, living and ended */
	uint64_t wall_ms;      /* since created_at_ms */
};
/* Describes the tree with this root, or else the tree of this sandbox. The view's strings are valid
 * until the caller returns to the loop. */
bool service_tree(struct service *c, const char *tenant, const char *id, struct tree_view *view,
		  struct failure *f);
/* Reports the living sandboxes of the tree, oldest first, each with its CPU time as the last
 * service_tree read it, until `each` returns false. Returns true when all were reported. */
typedef bool service_tree_node_fn(void *arg, const struct sandbox_view *view, uint64_t cpu_ms);
bool service_tree_nodes(struct service *c, const char *tenant, const char *root,
			service_tree_node_fn *each, void *arg);
struct tree_change {
	struct tree_budget budget; /* limits that are 0 keep their value */
	bool at_limit;		   /* budget.at_limit is to be changed, too */
};
/* Changes the budget of the tree that has this root or this sandbox; a tree without a budget gets
 * one. */
bool service_tree_change(struct service *c, const char *tenant, const char *id,
			 const struct tree_change *change, struct failure *f);
/* Deletes all sandboxes of the tree with this root; or else this sandbox and its descendants.
 * Spaces stay. An abandoned delete is not undone. */
struct op *service_tree_delete(struct service *c, const char *tenant, const char *id,
			       service_done_fn *fn, void *arg);

/* --- lists, in pages -------------------------------------------------------------------------- */

/* The position of a list entry. Lists are ordered by creation time, then id. Zeroed: before the
 * first entry. */
struct list_position {
	int64_t at_ms; /* ms since the epoch */
	char id[SANDBOX_ID_LEN + 1];
};

struct list_page {
	struct list_position after,
		last; /* the page holds the entries after `after`, up to and including `last` */
	bool more;    /* more entries follow this page */
};

/* --- the catalogue ---------------------------------------------------------------------------- */

/* Ends once all catalogue changes made so far are on disk and survive a power cut. */
struct op *service_sync(struct service *c, service_done_fn *fn, void *arg);

/* --- answers to requests with an Idempotency-Key ---------------------------------------------- */

#define REQUEST_HASH_LEN 32
struct request_key {
	uint8_t key[REQUEST_HASH_LEN];	/* hash of the tenant and the client's key */
	uint8_t asks[REQUEST_HASH_LEN]; /* hash of the request */
};
/* Has the key recorded together with what the call makes, in one transaction. For create, fork,
 * freeze and resume. To be called in the turn of the loop that started the call. */
void op_key(struct op *op, const struct request_key *key);

enum made_kind {
	MADE_SANDBOX = 1,
	MADE_CHILDREN,
	MADE_SPACE,
	MADE_CHECKPOINT,
	MADE_STARTS
}; /* the values are those in the catalogue */

struct store_answer; /* store/store.h */
/* Removes the recorded requests older than `max_age_ms`, then reports the others, oldest first. For
 * the start of the service only, since this takes O(n). Returns 0, or -errno with *e filled. What
 * `made` points to is valid during the callback only. */
typedef void service_made_fn(void *arg, const struct store_answer *made);
int service_requests_made(struct service *c, uint64_t max_age_ms, service_made_fn *each, void *arg,
			  struct err *e);
/* Removes the recorded result of a key; does nothing if there is none. */
void service_key_forget(struct service *c, const uint8_t key[static REQUEST_HASH_LEN]);

#endif
