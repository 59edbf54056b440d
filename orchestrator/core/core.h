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
#include "orchestrator/config/config.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/journal/event.h"
#include "proto/agent.h"

#define SANDBOX_ID_LEN	     36 /* "sbx_" + 32 hex digits */
#define SANDBOX_NAME_MAX     63 /* template name */
#define SANDBOX_METADATA_MAX (16u << 10)

struct core;
struct keys;

/* Why a call failed, in the terms of docs/api.md. */
struct failure {
	int status;	      /* HTTP status that says it best */
	const char *code;     /* short, stable, static */
	unsigned retry_after; /* seconds; 0: none */
	char text[ERR_TEXT_MAX];
};

/*
 * Fails when the catalogue can't be used or what an image is made of is missing. Takes `warden_fd`
 * over when it does not. Templates are then prepared in the background; `core_ready` tells when the
 * first sandbox can be created at once, `core_error` why not (empty when it can).
 */
int core_new(struct core **out, struct loop *loop, const struct config *config, int warden_fd,
	     struct err *e);
bool core_ready(const struct core *c);
const char *core_error(const struct core *c);
/* Who may ask (orchestrator/keys/keys.h): the core's, as long as it is there. */
struct keys *core_keys(struct core *c);
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

/* Memory of VM processes. What is shared is counted for each that maps it. */
struct memory_use {
	uint64_t private_bytes, shared_bytes;
};

#define CHILDREN_SHOWN 1000

struct sandbox_view {
	char id[SANDBOX_ID_LEN + 1];
	const char *state; /* "ready", "running", "freezing" */
	const char *template;
	uint32_t vcpus, ram_mib, rootfs_gb;
	bool persistent, egress;
	int64_t created_at_ms, expires_at_ms, idle_expires_at_ms; /* since the epoch; 0: never */
	const char *parent;					  /* id, or NULL */
	/* Ids of the living ones, oldest first, NULL-terminated, and no more than CHILDREN_SHOWN;
	 * NULL in lists. */
	const char *const *children;
	size_t n_children;	  /* all of them */
	struct memory_use memory; /* in lists as it was some seconds ago; 0: not looked up yet */
	const char *metadata;	  /* JSON object text */
	const char *tenant;
	uint32_t pid;	  /* of its VM process */
	uint64_t idle_ms; /* since something was done in it; 0: something is under way */
	uint64_t frozen_bytes, freeze_bytes; /* freezing: written, and to write, about */
};

/* A call under way. */
struct core_call;

typedef void core_create_fn(void *arg, const struct sandbox_view *view, const struct failure *f);
typedef void core_done_fn(void *arg, const struct failure *f); /* f NULL: success */

/* The client went away: the callback will not come; what the call made and nobody knows of is
 * undone (a created sandbox is deleted). A running exec goes on. */
void core_abandon(struct core_call *call);

/* Back-pressure on a call with a sink: after pause, at most one more buffer's worth (64 KiB of what
 * the guest sends) comes until resume. An abandoned exec is never paused:
 * its events go to the replay ring only. */
void core_pause(struct core_call *call);
void core_resume(struct core_call *call);

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

/* --- lists, in pages -------------------------------------------------------------------------- */

/* Where an entry stands in a list: lists are ordered by time of creation, then id. Zeroed: before
 * the first. */
struct list_position {
	int64_t at_ms; /* since the epoch */
	char id[SANDBOX_ID_LEN + 1];
};

struct list_name {
	enum { LIST_SANDBOXES, LIST_CHILDREN, LIST_SPACES } kind;
	const char *tenant; /* LIST_SANDBOXES: NULL: of all tenants */
	const char *parent; /* LIST_CHILDREN: the id of a sandbox */
};

struct list_page {
	struct list_position after, last; /* it has what stands behind the one, up to the other */
	bool more;			  /* there is something behind it */
};
/* Fills in page->last and page->more for a page of at most `most` entries behind page->after. False
 * with *f filled when there is no such list. */
bool core_page(struct core *c, const struct list_name *list, size_t most, struct list_page *page,
	       struct failure *f);
/* Tells at most `most` entries of the page, oldest first, and moves page->after behind them. False
 * when no more are left. Both take O(log n) beside what they tell. */
bool core_list(struct core *c, const struct list_name *list, struct list_page *page, size_t most,
	       void (*each)(void *arg, const struct sandbox_view *view), void *arg);

/* --- the catalogue ---------------------------------------------------------------------------- */

/* Ends when the catalogue is on the disk, so that no power cut takes its changes back. */
struct core_call *core_sync(struct core *c, core_done_fn *fn, void *arg);

/* `fd`, the callee's: the copy, on disk and without a name; -1 on failure. */
typedef void core_backup_fn(void *arg, int fd, const struct failure *f);
/* A copy of the catalogue as it is now, whatever changes meanwhile. One at a time. An abandoned one
 * is given up. */
struct core_call *core_backup(struct core *c, core_backup_fn *fn, void *arg);

/* --- a look at what stands still -------------------------------------------------------------- */

/* `text`: some pages for people; NULL on failure. */
typedef void core_inspect_fn(void *arg, const char *text, const struct failure *f);
/* Reports on a sandbox of any tenant, by its id, or on the VM in a slot, by its number. It takes
 * some seconds when the VM does not answer, and changes nothing. */
struct core_call *core_inspect(struct core *c, const char *name, core_inspect_fn *fn, void *arg);

/* --- what becomes of sandboxes -------------------------------------------------------------- */

enum life_event {
	LIFE_CREATED,
	LIFE_FORKED,  /* of the child; `other`: its parent */
	LIFE_MERGED,  /* of the parent; `other`: the winner, which is gone */
	LIFE_FROZEN,  /* `space` */
	LIFE_RESUMED, /* of the new sandbox; `space`: what it was */
	LIFE_EXPIRED,
	LIFE_DELETED,
	LIFE_STOPPED, /* with rametd */
	LIFE_DIED,    /* `text` says why, as of all that end */
};

/* Good during the call only; NULL where there is none. */
struct life {
	enum life_event event;
	int64_t at_ms; /* since the epoch */
	const char *tenant, *sandbox, *template;
	const char *other, *space, *text;
};
typedef void core_life_fn(void *arg, const struct life *life);
/* `fn` hears of each event, when it is in the catalogue, before it is answered. */
void core_watch_lives(struct core *c, core_life_fn *fn, void *arg);

/* --- Spaces: sandboxes on disk --------------------------------------------------------------- */

/* Good until the caller returns to the loop. */
struct space_view {
	char id[SANDBOX_ID_LEN + 1];
	const char *state;   /* "frozen", "resuming", "damaged" */
	const char *damage;  /* what is wrong with it, or NULL */
	const char *sandbox; /* the id it had when it was frozen */
	const char *template;
	uint32_t vcpus, ram_mib, rootfs_gb, timeout_s, idle_timeout_s;
	bool egress;
	int64_t created_at_ms; /* since the epoch */
	uint64_t size_bytes;   /* of the disk; what it shares with its template is not counted */
	const char *metadata;  /* JSON object text */
};

/* `new_id` is NULL on failure. */
typedef void core_id_fn(void *arg, const char *new_id, const struct failure *f);

/*
 * Writes the sandbox to disk as a Space, of which the id comes; the sandbox has ended then, with
 * code "frozen", and so has every call in it: what runs in the guest goes on when it is resumed. On
 * failure it runs on. An abandoned freeze is not taken back.
 */
struct core_call *core_freeze(struct core *c, const char *tenant, const char *id, core_id_fn *fn,
			      void *arg);

struct space_resume {
	uint32_t timeout_s, idle_timeout_s; /* 0: as when it was frozen */
	bool persistent;
	bool says_egress, egress; /* else as when it was frozen; a closed one can't be opened */
};
/* Makes a Space a sandbox with an id of its own, and is gone with that; a resume that fails, or is
 * abandoned before the sandbox is there, leaves it. */
struct core_call *core_space_resume(struct core *c, const char *tenant, const char *id,
				    const struct space_resume *how, core_create_fn *fn, void *arg);
struct core_call *core_space_delete(struct core *c, const char *tenant, const char *id,
				    core_done_fn *fn, void *arg);
bool core_space_view(struct core *c, const char *tenant, const char *id, struct space_view *view,
		     struct failure *f);
/* The same as core_list, for LIST_SPACES. */
bool core_spaces(struct core *c, const struct list_name *list, struct list_page *page, size_t most,
		 void (*each)(void *arg, const struct space_view *view), void *arg);
/* Every Space on the disk that the catalogue did not name at the start: it is kept as ID.lost until
 * `removed_at_ms` (since the epoch). */
void core_spaces_lost(struct core *c,
		      void (*each)(void *arg, const char *id, int64_t removed_at_ms), void *arg);

/* --- templates -------------------------------------------------------------------------------- */

struct template_size {
	uint32_t vcpus, ram_mib, rootfs_gb;
};

/* Good during the call only. */
struct template_view {
	const char *name, *description; /* no description: "" */
	/* "ready"; "building"; "waiting": its image is made when nothing else is to do, or when it
	 * is asked for; "failed" */
	const char *state;
	const char *reason;		    /* failed: a sentence, or a traceback; else "" */
	uint32_t vcpus, ram_mib, rootfs_gb; /* of a sandbox that asks for nothing else */
	const struct template_size *sizes;  /* that have an image already */
	size_t n_sizes;
};
/* Looks for templates on the disk, then ends: core_templates tells what is there now. */
struct core_call *core_templates_look(struct core *c, core_done_fn *fn, void *arg);
/* Tells every template that the last look found, the default one first, the others by name. */
void core_templates(struct core *c, void (*each)(void *arg, const struct template_view *view),
		    void *arg);

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
/* Of the last 1,000 events (bounded in bytes too) those with a higher number than `since`, oldest
 * first. False as core_view. */
bool core_replay(struct core *c, const char *tenant, const char *id, uint64_t since,
		 void (*each)(void *arg, const struct event *ev, const char *traceparent),
		 void *arg, struct failure *f);

/* `started` comes first; `ended` comes last, with f NULL as soon as nothing runs or waits. */
struct follow_sink {
	void (*started)(void *arg);
	void (*event)(void *arg, const struct event *ev, const char *traceparent);
	void (*ended)(void *arg, const struct failure *f);
};
/* The same events, and those that come until nothing runs or waits in the sandbox. One that is
 * paused for long misses what core_replay would not have any more. */
struct core_call *core_follow(struct core *c, const char *tenant, const char *id, uint64_t since,
			      const struct follow_sink *sink, void *arg);

/* --- files ---------------------------------------------------------------------------------- */

/*
 * Paths are absolute, up to AGENT_PATH_MAX bytes, any but zero, and the guest's own: symbolic links
 * in them are followed but where said. Data that is handed in is the caller's and stays where it is
 * until the callback, or until the call is abandoned. An abandoned one is given up at once: what it
 * was to write leaves nothing behind.
 */

#define CORE_ID_LEN	AGENT_ID_LEN /* of an upload: "upl_" + 32 hex; of a terminal: "pty_" + 32 */
#define UPLOAD_PART_MAX (8u << 20)

/* Good during the call only; names and targets hold any byte but zero and are not terminated. */
struct file_view {
	const char *name; /* of a list: in the folder; else the path */
	size_t name_len;
	uint32_t mode, uid, gid; /* type and permissions, as in stat */
	uint64_t size;		 /* of a file, else 0 */
	int64_t mtime_ns;	 /* since the epoch */
	const char *target;	 /* of a symbolic link */
	size_t target_len;
	uint64_t offset, length; /* of a get: what of it comes; length UINT64_MAX: not known */
};

/* What comes of a stat (`file` once), a list (`file` for each name, in the order of their bytes)
 * and a get (`file`, then `bytes`). `ended` comes last, in any case. */
struct file_sink {
	void (*file)(void *arg, const struct file_view *file);
	void (*bytes)(void *arg, const void *data, size_t len);
	void (*ended)(void *arg, const struct failure *f);
};

struct file_put {
	const char *path;
	uint32_t mode; /* 0: that of the file it replaces, else 0644 */
	const void *data;
	size_t len;
};

/* All of the file or nothing, in place of what is there; missing folders are made. */
struct core_call *core_file_put(struct core *c, const char *tenant, const char *id,
				const struct file_put *put, core_done_fn *fn, void *arg);

struct file_range {
	uint64_t offset, length; /* length UINT64_MAX: to the end */
	bool from_end;		 /* offset counts back from the end; over the size: all of it */
};
/*
 * Bytes of a regular file. Of one with a size, exactly what the range has of it comes, or the end
 * is a failure; of one that says 0 (in /proc), what can be read. A range that begins behind the end
 * has no bytes.
 */
struct core_call *core_file_get(struct core *c, const char *tenant, const char *id,
				const char *path, const struct file_range *range,
				const struct file_sink *sink, void *arg);
/* `link`: of a symbolic link itself. */
struct core_call *core_file_stat(struct core *c, const char *tenant, const char *id,
				 const char *path, bool link, const struct file_sink *sink,
				 void *arg);
/* Symbolic links in the folder are told as such. */
struct core_call *core_file_list(struct core *c, const char *tenant, const char *id,
				 const char *path, const struct file_sink *sink, void *arg);
/* A symbolic link itself; `recursive`: a folder with all that is in it. */
struct core_call *core_file_remove(struct core *c, const char *tenant, const char *id,
				   const char *path, bool recursive, core_done_fn *fn, void *arg);
/* `mode` 0: 0755. `parents`: missing ones are made, and a folder that is there is no error. */
struct core_call *core_file_mkdir(struct core *c, const char *tenant, const char *id,
				  const char *path, uint32_t mode, bool parents, core_done_fn *fn,
				  void *arg);

/* A file in parts. The upload belongs to the guest: a restart of the service leaves it alone, a
 * fork leaves it with the parent. */
struct core_call *core_upload_begin(struct core *c, const char *tenant, const char *id,
				    const char *path, uint32_t mode, core_id_fn *fn, void *arg);
struct upload_part {
	uint64_t offset;
	const void *data;
	size_t len; /* up to UPLOAD_PART_MAX */
};
struct core_call *core_upload_part(struct core *c, const char *tenant, const char *id,
				   const char *upload, const struct upload_part *part,
				   core_done_fn *fn, void *arg);
/* `hash`: AGENT_HASH_LEN bytes, or NULL not to check it. */
struct core_call *core_upload_commit(struct core *c, const char *tenant, const char *id,
				     const char *upload, uint64_t size, const uint8_t *hash,
				     core_done_fn *fn, void *arg);
struct core_call *core_upload_abort(struct core *c, const char *tenant, const char *id,
				    const char *upload, core_done_fn *fn, void *arg);

/* --- terminals ------------------------------------------------------------------------------ */

#define PTY_INPUT_MAX (1u << 20) /* bytes of one core_pty_input */
#define PTY_READ_MAX  AGENT_PTY_RING

/* A terminal belongs to the guest too: it is in a fork's children and outlives the service. */
struct pty_spec {
	const char *const *argv; /* NULL-terminated */
	const char *label;	 /* for lists */
	uint32_t cols, rows;	 /* 1 to 65535 */
	const char *cwd;	 /* NULL: that of the Python process */
	const char *const *env;	 /* NAME=VALUE, over the sandbox's own */
};
/* The program runs when `fn` is called. An abandoned start is killed again. */
struct core_call *core_pty_start(struct core *c, const char *tenant, const char *id,
				 const struct pty_spec *spec, core_id_fn *fn, void *arg);

struct pty_sink {
	/* Comes first when it is not NULL: there is such a terminal. */
	void (*found)(void *arg);
	/* `place`: of the first byte in all that the terminal ever put out; what is not kept any
	 * more is left out. */
	void (*bytes)(void *arg, uint64_t place, const void *data, size_t len);
	void (*exited)(void *arg, int code); /* the last, instead of `failed` */
	void (*failed)(void *arg, const struct failure *f);
};
/* Output from byte `place` on, what is kept of it, then as it comes; then the exit code. A slow
 * reader loses the oldest. Abandoned: that listener goes. */
struct core_call *core_pty_attach(struct core *c, const char *tenant, const char *id,
				  const char *pty, uint64_t place, const struct pty_sink *sink,
				  void *arg);

struct pty_read {
	uint64_t place;	  /* of the first byte wanted */
	size_t max_bytes; /* 1 to PTY_READ_MAX */
	uint32_t timeout_ms;
};
/* Good during the call only. */
struct pty_output {
	const uint8_t *data;
	size_t len;
	uint64_t next; /* where the next read begins */
	bool exited;   /* and all of the output was told */
	int exit_code;
};
typedef void core_pty_read_fn(void *arg, const struct pty_output *out, const struct failure *f);
/* As soon as there is output or the program has ended; nothing when the time is over. */
struct core_call *core_pty_read(struct core *c, const char *tenant, const char *id, const char *pty,
				const struct pty_read *read, core_pty_read_fn *fn, void *arg);

/* Success: the terminal took all of it. */
struct core_call *core_pty_input(struct core *c, const char *tenant, const char *id,
				 const char *pty, const void *data, size_t len, core_done_fn *fn,
				 void *arg);
struct core_call *core_pty_resize(struct core *c, const char *tenant, const char *id,
				  const char *pty, uint32_t cols, uint32_t rows, core_done_fn *fn,
				  void *arg);
/* SIGKILL to all of its processes. */
struct core_call *core_pty_kill(struct core *c, const char *tenant, const char *id, const char *pty,
				core_done_fn *fn, void *arg);

struct pty_view {
	char id[CORE_ID_LEN + 1];
	const char *label; /* not terminated; may be no UTF-8 */
	size_t label_len;
	int64_t started_at_ms; /* since the epoch */
	bool ended;
	int exit_code;
};
struct pty_list_sink {
	void (*pty)(void *arg, const struct pty_view *pty); /* oldest first */
	void (*ended)(void *arg, const struct failure *f);
};
struct core_call *core_pty_list(struct core *c, const char *tenant, const char *id,
				const struct pty_list_sink *sink, void *arg);

/* --- figures -------------------------------------------------------------------------------- */

struct core_stats {
	uint64_t sandboxes, creates, create_failures, execs, vm_deaths;
	uint64_t output_held_bytes;	 /* for replay, and lines that have not ended */
	uint64_t output_dropped_bytes;	 /* events that went because all of it was too much */
	uint64_t pool_hits, pool_misses; /* creates that found a warm sandbox, or did not */
	uint64_t template_boots;	 /* images made */
	uint64_t templates_building;	 /* that are asked for, or prepared ahead */
	uint64_t forks, fork_failures, merges;
	uint64_t blank_vms_ready, warm_ready;
	uint64_t warm_default_ready; /* of these, those that a create without a wish takes */
	uint64_t file_calls, file_failures, file_bytes_in, file_bytes_out;
	uint64_t ptys, pty_bytes_in, pty_bytes_out;
	uint64_t operations, listeners;	   /* under way now */
	uint64_t ready, running, adopting; /* sandboxes by state */
	/* As they were some seconds ago: of the VMs of sandboxes, and below state_dir. */
	struct memory_use memory;
	uint64_t disk_free_bytes;
	uint64_t freezes, freeze_failures, resumes, resume_failures, spaces_damaged;
	uint64_t spaces, spaces_bytes; /* that there are */
	uint64_t spaces_lost;	       /* directories that the catalogue does not name */
	uint64_t ends_unrecorded;      /* sandboxes whose end is not in the catalogue yet */
};
void core_stats(const struct core *c, struct core_stats *out);
/* All that must hold for a sandbox to be served: `why` is NULL where it does, else a sentence. */
void core_checks(const struct core *c,
		 void (*each)(void *arg, const char *name, const char *reason), void *arg);

#endif
