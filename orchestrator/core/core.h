// SPDX-License-Identifier: Apache-2.0
/*
 * Sandbox life as the API sees it. Knows nothing of HTTP or JSON; answers come by callback on the
 * loop's thread, exactly once and never from inside the call, unless the caller abandons the call.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_CORE_H
#define RAMET_ORCHESTRATOR_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/config.h"
#include "orchestrator/io/loop.h"
#include "proto/agent.h"

#define SANDBOX_ID_LEN	     36 /* "sbx_" + 32 hex digits */
#define SANDBOX_NAME_MAX     63 /* template name */
#define SANDBOX_METADATA_MAX (16u << 10)

struct core;

/* Why a call failed, in the terms of docs/api.md. */
struct failure {
	int status;	      /* HTTP status that says it best */
	const char *code;     /* short, stable, static */
	unsigned retry_after; /* seconds; 0: none */
	char text[ERR_TEXT_MAX];
};

/*
 * Fails when the catalogue can't be used or what an image is made of is missing. Takes `warden_fd`
 * over. Templates are then prepared in the background; `core_ready` tells when the first sandbox
 * can be created at once, `core_trouble` why not (empty when it can).
 */
int core_new(struct core **out, struct loop *loop, const struct config *config, int warden_fd,
	     struct err *e);
bool core_ready(const struct core *c);
const char *core_trouble(const struct core *c);
/* Ends every VM and calls `done` when all are gone. New calls fail with 503 from here on. */
void core_shutdown(struct core *c, void (*done)(void *arg), void *arg);
/* Before loop_free. Without core_shutdown before it, the VMs of sandboxes run on. */
void core_free(struct core *c);

/* --- sandboxes ------------------------------------------------------------------------------ */

struct sandbox_spec {
	char template[SANDBOX_NAME_MAX + 1]; /* empty: the default */
	uint32_t vcpus, ram_mib, rootfs_gb;  /* 0: the template's own */
	uint32_t timeout_s, idle_timeout_s;  /* 0: the configured defaults */
	bool persistent, egress;
	const char *metadata;	/* JSON object text, or NULL; copied */
	const char *const *env; /* NAME=VALUE, NULL-terminated, or NULL; copied; for every exec */
};

struct sandbox_view {
	char id[SANDBOX_ID_LEN + 1];
	const char *state; /* "ready", "running" */
	const char *template;
	uint32_t vcpus, ram_mib, rootfs_gb;
	bool persistent, egress;
	int64_t created_at_ms, expires_at_ms, idle_expires_at_ms; /* since the epoch; 0: never */
	const char *parent;					  /* id, or NULL */
	const char *const *children; /* ids of the living ones, NULL-terminated; NULL in lists */
	uint64_t memory_private_bytes, memory_shared_bytes;
	const char *metadata; /* JSON object text */
};

/* A call under way. */
struct core_call;

typedef void core_create_fn(void *arg, const struct sandbox_view *view, const struct failure *f);
typedef void core_done_fn(void *arg, const struct failure *f); /* f NULL: success */

/* The client went away: the callback will not come; what the call made and nobody knows of is
 * undone (a created sandbox is deleted). A running exec goes on. */
void core_abandon(struct core_call *call);

/* NULL only after `fn` was scheduled with a failure. */
struct core_call *core_create(struct core *c, const char *tenant, const struct sandbox_spec *spec,
			      core_create_fn *fn, void *arg);
struct core_call *core_delete(struct core *c, const char *tenant, const char *id, core_done_fn *fn,
			      void *arg);
struct core_call *core_interrupt(struct core *c, const char *tenant, const char *id,
				 core_done_fn *fn, void *arg);
/* False with *f filled when there is no such sandbox for this tenant. The view's strings are good
 * until the caller returns to the loop. */
bool core_view(struct core *c, const char *tenant, const char *id, struct sandbox_view *view,
	       struct failure *f);
/* Every sandbox of the tenant, oldest first. */
void core_list(struct core *c, const char *tenant,
	       void (*each)(void *arg, const struct sandbox_view *view), void *arg);

/* --- fork, merge, diff ------------------------------------------------------------------------ */

#define FORK_MAX       1000 /* children of one fork; config.fork_max may be lower */
#define DIFF_PATHS_MAX AGENT_PATHS_MAX

/* Good during the call only. */
struct core_forked {
	const char *const *ids; /* of the `n` children */
	unsigned n;
	uint64_t pause_us;     /* the parent's vCPUs stood still for so long */
	uint64_t ready_us;     /* from the call until the vCPUs of every child ran */
	uint64_t copied_bytes; /* of the parent's RAM */
};
typedef void core_fork_fn(void *arg, const struct core_forked *forked, const struct failure *f);

/*
 * `n` children of a sandbox, all or none: each is usable, and its guest has confirmed that it is
 * unique, when `fn` is called. `reseed`: user-space generators (Python's random, numpy's) part as
 * well. An abandoned fork leaves no child.
 */
struct core_call *core_fork(struct core *c, const char *tenant, const char *id, unsigned n,
			    bool reseed, core_fork_fn *fn, void *arg);

/*
 * The id `parent` drives the VM of `winner` from here on, which must descend from it; the VM it had
 * ends. Calls that run in it fail with code "merged", calls that wait go on in the new one, after
 * those of the winner. The winner's id is gone: deleting it is no error, all else is not found.
 */
struct core_call *core_merge(struct core *c, const char *tenant, const char *parent,
			     const char *winner, core_done_fn *fn, void *arg);

/* Sorted by their bytes; good during the call only. */
struct core_diff {
	const char *const *added, *const *removed, *const *modified;
	size_t n_added, n_removed, n_modified;
};
typedef void core_diff_fn(void *arg, const struct core_diff *diff, const struct failure *f);

/* What differs under `paths` (absolute, NULL-terminated) between two sandboxes; added is what only
 * `other` has. Both are compared as they are while they are read: neither stands still. */
struct core_call *core_diff(struct core *c, const char *tenant, const char *id, const char *other,
			    const char *const *paths, core_diff_fn *fn, void *arg);

/* --- exec ----------------------------------------------------------------------------------- */

enum event_type { EVENT_STDOUT, EVENT_STDERR, EVENT_EXIT, EVENT_ERROR };

struct event {
	enum event_type type;
	bool partial; /* lines mode: this line goes on in the next event (it is over the limit) */
	int exit_code;
	uint64_t seq;
	int64_t ts_ms; /* since the epoch */
	const uint8_t
		*data; /* output: bytes as produced (lines: without the newline); error: text */
	size_t len;
	const char *code; /* error: as in a failure; static */
};

struct exec_spec {
	bool bash;	  /* else Python */
	bool chunks;	  /* else lines */
	const char *code; /* copied */
	size_t code_len;
	uint32_t timeout_ms; /* 0: none */
	const char *cwd;     /* NULL: unchanged */
	const char *const *env;
	const char *traceparent; /* NULL, or kept for replay */
};

/*
 * Events of one call, in order; the last is EVENT_EXIT. `started` comes first, when the call was
 * taken (then the answer is 200). `failed` comes alone, or instead of EVENT_EXIT, with the failure
 * as an event too, for a stream that has begun. The data of an event is good during the call only.
 */
struct exec_sink {
	void (*started)(void *arg);
	void (*event)(void *arg, const struct event *ev);
	void (*failed)(void *arg, const struct failure *f, const struct event *ev);
};

struct core_call *core_exec(struct core *c, const char *tenant, const char *id,
			    const struct exec_spec *spec, const struct exec_sink *sink, void *arg);
/* Back-pressure: after pause, at most one more buffer's worth (64 KiB of guest output) of events
 * comes until resume. An abandoned call is never paused: its events go to the replay ring only. */
void core_exec_pause(struct core_call *call);
void core_exec_resume(struct core_call *call);

/* The last 1,000 events (bounded in bytes too), oldest first. False as core_view. */
bool core_replay(struct core *c, const char *tenant, const char *id,
		 void (*each)(void *arg, const struct event *ev, const char *traceparent),
		 void *arg, struct failure *f);

/* --- figures -------------------------------------------------------------------------------- */

struct core_figures {
	uint64_t sandboxes, creates, create_failures, execs, vm_deaths;
	uint64_t pool_hits, pool_misses;
	uint64_t forks, fork_failures, merges;
	uint64_t shells_ready, warm_ready;
};
void core_figures(const struct core *c, struct core_figures *out);

#endif
