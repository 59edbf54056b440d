// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of snapshot/: fork, merge, freeze and resume, and Spaces, which are sandboxes on
 * disk.
 */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_SNAPSHOTS_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_SNAPSHOTS_H

#include "orchestrator/sandbox/sandboxes.h"

#define SPACE_ID_PREFIX	     "spc_"
#define CHECKPOINT_ID_PREFIX "chk_" /* as long as that of Spaces */
#define CHECKPOINT_NAME_MAX  128    /* bytes */
#define FORK_MAX	     1000   /* children of one fork; config.fork_max may be lower */

/* Valid during the callback only. */
struct service_forked {
	const char *const *ids;	   /* of the `n` children; NULL: the child could not be started */
	const char *const *errors; /* why the child could not be started, or NULL */
	unsigned n;
	uint64_t pause_us;     /* how long the parent's vCPUs were paused */
	uint64_t ready_us;     /* from the call until every child's vCPUs ran */
	uint64_t copied_bytes; /* copied from the parent's RAM */
};
typedef void service_fork_fn(void *arg, const struct service_forked *forked,
			     const struct failure *f);

/*
 * Creates `n` children of a sandbox, all or none. When `fn` is called, each child is usable and its
 * guest has confirmed that it is unique. `reseed`: user-space random generators (Python's random,
 * numpy's) diverge as well. `labels` of the children: a JSON object of strings, or NULL; copied.
 * The budget of the tree may make the fork wait. An abandoned fork leaves no child.
 */
struct fork_spec {
	unsigned n;
	bool reseed;
	const char *labels;
};
struct op *service_fork(struct service *c, const char *tenant, const char *id,
			const struct fork_spec *spec, service_fork_fn *fn, void *arg);

/*
 * Gives the sandbox `parent` the VM of its descendant `winner`. The parent's previous VM ends:
 * calls running in it fail with code "merged", and queued ones continue in the new VM, after the
 * winner's. The id `winner` is gone: deleting it succeeds, any other use fails with FAIL_MERGED.
 */
struct op *service_merge(struct service *c, const char *tenant, const char *parent,
			 const char *winner, service_done_fn *fn, void *arg);

/* --- checkpoints ------------------------------------------------------------------------------ */

struct checkpoint_spec {
	const char *name, *labels; /* labels: JSON object of strings. NULL: none. Copied */
	uint32_t ttl_s;		   /* 0: no expiry */
	bool pin;
	enum checkpoint_kind kind;
};
/* Valid until the caller returns to the loop. */
struct checkpoint_view {
	char id[SANDBOX_ID_LEN + 1];
	const char *state;  /* "memory", "stored", "damaged" */
	const char *damage; /* the reason for "damaged", or NULL */
	const char *name;   /* or NULL */
	const char *labels; /* JSON object text */
	struct score score;
	const char *root; /* of the tree */
	uint32_t depth;	  /* in the tree */
	bool pin;
	const char *sandbox; /* whose state it is */
	/* The ids of the sandbox's ancestors, oldest first, then its own; separated by spaces. */
	const char *ancestors;
	const char *parent; /* the last checkpoint that this one's state comes from, or NULL */
	struct sandbox_config config;
	int64_t created_at_ms, expires_at_ms; /* ms since the epoch; 0: never */
	enum checkpoint_kind kind;
	uint64_t call_seq; /* number of the state: of the last event that led to it */
	/* Bytes on disk: of the checkpoint's own files (in memory: what they will take), and of
	 * files that it shares. */
	uint64_t bytes, shared_bytes;
	int64_t freed_bytes;  /* bytes that a deletion would free on disk now; -1: not counted */
	const char *metadata; /* JSON object text */
};
typedef void service_checkpoint_fn(void *arg, const struct checkpoint_view *view,
				   const struct failure *f);
/* Takes a checkpoint of a sandbox, which goes on. An abandoned call leaves none. */
struct op *service_checkpoint(struct service *c, const char *tenant, const char *id,
			      const struct checkpoint_spec *spec, service_checkpoint_fn *fn,
			      void *arg);
bool service_checkpoint_view(struct service *c, const char *tenant, const char *id,
			     struct checkpoint_view *view, struct failure *f);
/* Reports the view with freed_bytes, which a worker thread counts. */
struct op *service_checkpoint_look(struct service *c, const char *tenant, const char *id,
				   service_checkpoint_fn *fn, void *arg);
/* New settings of a checkpoint. NULL, and a score that is not given, change nothing. */
struct checkpoint_change {
	const char *name, *labels; /* an empty name: none */
	struct score score;
	enum change pin;
	uint32_t ttl_s; /* from now on; 0: no change */
};
bool service_checkpoint_change(struct service *c, const char *tenant, const char *id,
			       const struct checkpoint_change *change, struct failure *f);
/* Fails for a pinned checkpoint, and while sandboxes are being started from the checkpoint. Reports
 * the end when the deletion is on disk. */
struct op *service_checkpoint_delete(struct service *c, const char *tenant, const char *id,
				     service_done_fn *fn, void *arg);
struct checkpoint_prune {
	const char *sandbox; /* only checkpoints of this sandbox; NULL: of all sandboxes */
	bool keeps;
	uint32_t keep;	       /* with `keeps`: how many of the newest stay */
	uint32_t older_than_s; /* younger ones stay; 0: no condition */
	bool dry_run;	       /* only reports which would be deleted */
};
/* Deletes the checkpoints that `how` asks for and that are neither pinned nor in use. If there are
 * more than 1,000, deletes only the newest 1,000. Before the first deletion, which may fail, `each`
 * gets all of them, newest first. `bytes`: size of the checkpoint's own files on disk. */
bool service_checkpoints_prune(struct service *c, const char *tenant,
			       const struct checkpoint_prune *how,
			       void (*each)(void *arg, const char *id, uint64_t bytes), void *arg,
			       struct failure *f);

/* Starts sandboxes from a checkpoint or Space, which stays. Unlike service_fork, it does not undo
 * the others when a child can't be started, fails only if none can, and does not wait for room in
 * the tree. */
struct op *service_fork_from(struct service *c, const char *tenant, const char *id,
			     const struct fork_spec *spec, service_fork_fn *fn, void *arg);
/* Creates a sandbox from the checkpoint `from`. `spec` has what differs from the checkpoint's
 * sandbox; what is NULL or 0 in it does not differ. Egress can only be closed. */
struct op *service_create_from(struct service *c, const char *tenant, const char *from,
			       const struct sandbox_spec *spec, service_create_fn *fn, void *arg);

/* `to`: the checkpoint that the sandbox went back to; `kept`: the checkpoint of its state before,
 * or NULL. Both are valid during the callback only, and not after a failure. */
typedef void service_rollback_fn(void *arg, const char *to, const char *kept,
				 const struct failure *f);
/*
 * Gives the sandbox the state of a checkpoint of its size and template, in another VM: as after a
 * merge, calls that run in the old one fail with FAIL_ROLLED_BACK, and queued ones continue. `keep`
 * (NULL: don't) is the name of a checkpoint that keeps the present state. An abandoned rollback is
 * not undone.
 */
struct op *service_rollback(struct service *c, const char *tenant, const char *id,
			    const char *checkpoint, const char *keep, service_rollback_fn *fn,
			    void *arg);

/* Rolls the sandbox back to before its last `n` calls. A call after which no checkpoint could be
 * taken in time counts together with the call after it. */
struct op *service_undo(struct service *c, const char *tenant, const char *id, uint32_t n,
			const char *keep, service_rollback_fn *fn, void *arg);

/* --- history ---------------------------------------------------------------------------------- */

struct history_entry;
/* Valid during the callback only. */
struct history_view {
	const struct history_entry *entry; /* exec/history.h */
	bool undone;			   /* the present state does not come from the entry */
	/* The checkpoint of the state after the entry; NULL: none, or deleted. */
	const char *checkpoint;
	const char *const *children; /* the children of a fork that still live */
	size_t n_children;
};
/* Reports the sandbox's last calls, checkpoints, forks, merges and rollbacks with a number above
 * `after`, oldest first, until `each` returns false. Returns false, with *f filled, when the tenant
 * has no such sandbox. */
bool service_history(struct service *c, const char *tenant, const char *id, uint32_t after,
		     bool (*each)(void *arg, const struct history_view *view), void *arg,
		     struct failure *f);

/* --- Spaces ----------------------------------------------------------------------------------- */

/* Valid until the caller returns to the loop. */
struct space_view {
	char id[SANDBOX_ID_LEN + 1];
	const char *state;   /* "frozen", "resuming", "damaged" */
	const char *damage;  /* the reason for "damaged", or NULL */
	const char *sandbox; /* the id of the sandbox that was frozen */
	struct sandbox_config config;
	int64_t created_at_ms; /* ms since the epoch */
	uint64_t size_bytes;   /* on disk, without the files shared with the template */
	const char *metadata;  /* JSON object text */
	const char *root;      /* these four mean the same as in a sandbox_view */
	uint32_t depth;
	struct score score;
	const char *labels;
};

/*
 * Writes the sandbox to disk as a Space and reports the Space's id. By then the sandbox and every
 * call in it have ended with code "frozen"; processes in the guest continue when the Space is
 * resumed. On failure the sandbox keeps running. An abandoned freeze is not undone.
 */
struct op *service_freeze(struct service *c, const char *tenant, const char *id, service_id_fn *fn,
			  void *arg);

struct space_resume {
	uint32_t timeout_s, idle_timeout_s; /* 0: the values of the frozen sandbox */
	bool persistent;
	enum change egress; /* a closed one can't be reopened */
};
/* Turns a Space into a sandbox with a new id; the Space is gone then. A resume that fails or is
 * abandoned leaves the Space as it was. */
struct op *service_space_resume(struct service *c, const char *tenant, const char *id,
				const struct space_resume *how, service_create_fn *fn, void *arg);
struct op *service_space_delete(struct service *c, const char *tenant, const char *id,
				service_done_fn *fn, void *arg);
bool service_space_view(struct service *c, const char *tenant, const char *id,
			struct space_view *view, struct failure *f);
/* Reports every Space that was on disk but not in the catalogue at the start. Its directory is kept
 * as ID.lost until `removed_at_ms` (ms since the epoch). */
void service_spaces_lost(struct service *c,
			 void (*each)(void *arg, const char *id, int64_t removed_at_ms), void *arg);

#endif
