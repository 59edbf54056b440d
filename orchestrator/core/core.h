// SPDX-License-Identifier: Apache-2.0
/*
 * The sandbox life cycle as the API sees it, without HTTP or JSON. Functions run on the loop's
 * thread. A call reports its end by callback on that thread, exactly once and never from inside the
 * function that started it; an abandoned call reports nothing.
 */
#ifndef RAMET_ORCHESTRATOR_CORE_CORE_H
#define RAMET_ORCHESTRATOR_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/failure/failure.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/journal/event.h"
#include "orchestrator/template/template-view.h"
#include "proto/agent.h"

#define SANDBOX_ID_LEN	     36 /* "sbx_" + 32 hex digits */
#define SANDBOX_NAME_MAX     63 /* of a template */
#define SANDBOX_METADATA_MAX (16u << 10)

struct core;
struct keys;

/*
 * Creates the core. Fails, with *e filled, when the catalogue is unusable or an input of an image
 * is missing. Takes ownership of `warden_fd` on success only. Templates are then prepared in the
 * background: `core_ready` returns true once the first sandbox can be created without waiting;
 * `core_error` returns why it can't be, or "" when it can.
 */
int core_new(struct core **out, struct loop *loop, const struct config *config, int warden_fd,
	     struct err *e);
bool core_ready(const struct core *c);
const char *core_error(const struct core *c);
/* Returns the key registry (orchestrator/keys/keys.h). The core owns it. */
struct keys *core_keys(struct core *c);
/* Ends every VM and calls `done` once all have exited. New calls fail with 503 from here on. */
void core_shutdown(struct core *c, void (*done)(void *arg), void *arg);
/* Frees the core; call it before loop_free. Without core_shutdown first, sandboxes' VMs keep
 * running. */
void core_free(struct core *c);

/* --- sandboxes ------------------------------------------------------------------------------ */

struct sandbox_spec {
	char template[SANDBOX_NAME_MAX + 1]; /* empty: the default template */
	uint32_t vcpus, ram_mib, rootfs_gb;  /* 0: the template's own */
	uint32_t timeout_s, idle_timeout_s;  /* 0: the configured defaults */
	bool persistent, egress;
	const char *metadata;	/* JSON object text, or NULL; copied */
	const char *const *env; /* NAME=VALUE, NULL-terminated, or NULL; copied; for every exec */
};

/* Memory of VM processes, in bytes. A shared page counts once for each process that maps it. */
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
	int64_t created_at_ms, expires_at_ms, idle_expires_at_ms; /* ms since the epoch; 0: never */
	const char *parent;					  /* id, or NULL */
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
struct core_call;

typedef void core_create_fn(void *arg, const struct sandbox_view *view, const struct failure *f);
typedef void core_done_fn(void *arg, const struct failure *f); /* f NULL: success */

/* Detaches the client from a call: its callback will not come. The result that nobody knows of is
 * undone (a created sandbox is deleted). A running exec continues. */
void core_abandon(struct core_call *call);

/* Applies back-pressure to a call with a sink: after core_pause, at most one more buffer (64 KiB of
 * guest output) arrives until core_resume. An abandoned exec is never paused: its events go to the
 * replay ring only. */
void core_pause(struct core_call *call);
void core_resume(struct core_call *call);

/* Creates a sandbox for `tenant`. Returns NULL only after scheduling `fn` with a failure. */
struct core_call *core_create(struct core *c, const char *tenant, const struct sandbox_spec *spec,
			      core_create_fn *fn, void *arg);
/* Deletes a sandbox. An abandoned delete is not undone. */
struct core_call *core_delete(struct core *c, const char *tenant, const char *id, core_done_fn *fn,
			      void *arg);
/* Interrupts the sandbox's running exec. */
struct core_call *core_interrupt(struct core *c, const char *tenant, const char *id,
				 core_done_fn *fn, void *arg);
/* Fills in *view. Returns false, with *f filled, when the tenant has no such sandbox. The view's
 * strings are valid until the caller returns to the loop. */
bool core_view(struct core *c, const char *tenant, const char *id, struct sandbox_view *view,
	       struct failure *f);

/* --- lists, in pages -------------------------------------------------------------------------- */

/* The position of a list entry. Lists are ordered by creation time, then id. Zeroed: before the
 * first entry. */
struct list_position {
	int64_t at_ms; /* ms since the epoch */
	char id[SANDBOX_ID_LEN + 1];
};

struct list_name {
	enum { LIST_SANDBOXES, LIST_CHILDREN, LIST_SPACES } kind;
	const char *tenant; /* for LIST_SANDBOXES; NULL: all tenants */
	const char *parent; /* for LIST_CHILDREN: a sandbox id */
};

struct list_page {
	struct list_position after,
		last; /* the page holds the entries after `after`, up to and including `last` */
	bool more;    /* more entries follow this page */
};
/* Fills in page->last and page->more for a page of at most `most` entries after page->after.
 * Returns false, with *f filled, when there is no such list. */
bool core_page(struct core *c, const struct list_name *list, size_t most, struct list_page *page,
	       struct failure *f);
/* Reports up to `most` entries of the page, oldest first, and advances page->after past them.
 * Returns false when no more are left. core_page and core_list take O(log n), plus the time for the
 * entries reported. */
bool core_list(struct core *c, const struct list_name *list, struct list_page *page, size_t most,
	       void (*each)(void *arg, const struct sandbox_view *view), void *arg);

/* --- the catalogue ---------------------------------------------------------------------------- */

/* Ends once all catalogue changes made so far are on disk and survive a power cut. */
struct core_call *core_sync(struct core *c, core_done_fn *fn, void *arg);

/* `fd`: the copy, an unnamed file on disk, which the callee owns; -1 on failure. */
typedef void core_backup_fn(void *arg, int fd, const struct failure *f);
/* Copies the catalogue as it is now; later changes don't affect the copy. One backup runs at a
 * time. An abandoned backup is cancelled. */
struct core_call *core_backup(struct core *c, core_backup_fn *fn, void *arg);

/* --- inspecting a VM that does not progress --------------------------------------------------- */

/* `text`: a report of some pages for people; NULL on failure. */
typedef void core_inspect_fn(void *arg, const char *text, const struct failure *f);
/* Reports on the sandbox with the id `name`, of any tenant, or on the VM in the slot with that
 * number. Takes some seconds when the VM does not answer; changes nothing. */
struct core_call *core_inspect(struct core *c, const char *name, core_inspect_fn *fn, void *arg);

/* --- life cycle events ------------------------------------------------------------------------ */

enum life_event {
	LIFE_CREATED,
	LIFE_FORKED,  /* about the child; `other`: its parent */
	LIFE_MERGED,  /* about the parent; `other`: the winner, whose id is now gone */
	LIFE_FROZEN,  /* `space`: the new Space */
	LIFE_RESUMED, /* about the new sandbox; `space`: the Space it was resumed from */
	LIFE_EXPIRED,
	LIFE_DELETED,
	LIFE_STOPPED, /* ended by the shutdown of rametd */
	LIFE_DIED,    /* `text` holds the reason, as for every event of an end */
};

/* Valid during the callback only. Members that do not apply are NULL. */
struct life {
	enum life_event event;
	int64_t at_ms; /* ms since the epoch */
	const char *tenant, *sandbox, *template;
	const char *other, *space, *text;
};
typedef void core_life_fn(void *arg, const struct life *life);
/* Calls `fn` for each event once it is in the catalogue, before the client gets its answer. */
void core_watch_lives(struct core *c, core_life_fn *fn, void *arg);

/* --- Spaces: sandboxes on disk --------------------------------------------------------------- */

/* Valid until the caller returns to the loop. */
struct space_view {
	char id[SANDBOX_ID_LEN + 1];
	const char *state;   /* "frozen", "resuming", "damaged" */
	const char *damage;  /* the reason for "damaged", or NULL */
	const char *sandbox; /* the id of the sandbox that was frozen */
	const char *template;
	uint32_t vcpus, ram_mib, rootfs_gb, timeout_s, idle_timeout_s;
	bool egress;
	int64_t created_at_ms; /* ms since the epoch */
	uint64_t size_bytes;   /* on disk, without the files shared with the template */
	const char *metadata;  /* JSON object text */
};

/* `new_id` is NULL on failure. */
typedef void core_id_fn(void *arg, const char *new_id, const struct failure *f);

/*
 * Writes the sandbox to disk as a Space and reports the Space's id. By then the sandbox and every
 * call in it have ended with code "frozen"; processes in the guest continue when it is resumed. On
 * failure the sandbox keeps running. An abandoned freeze is not undone.
 */
struct core_call *core_freeze(struct core *c, const char *tenant, const char *id, core_id_fn *fn,
			      void *arg);

struct space_resume {
	uint32_t timeout_s, idle_timeout_s; /* 0: the values of the frozen sandbox */
	bool persistent;
	bool says_egress, egress; /* `egress` counts if says_egress is set, else the Space's own
				     value; closed egress can't be reopened */
};
/* Turns a Space into a sandbox with a new id; the Space is gone then. A resume that fails, or is
 * abandoned before the sandbox exists, leaves the Space as it was. */
struct core_call *core_space_resume(struct core *c, const char *tenant, const char *id,
				    const struct space_resume *how, core_create_fn *fn, void *arg);
struct core_call *core_space_delete(struct core *c, const char *tenant, const char *id,
				    core_done_fn *fn, void *arg);
bool core_space_view(struct core *c, const char *tenant, const char *id, struct space_view *view,
		     struct failure *f);
/* Works like core_list, for LIST_SPACES. */
bool core_spaces(struct core *c, const struct list_name *list, struct list_page *page, size_t most,
		 void (*each)(void *arg, const struct space_view *view), void *arg);
/* Reports every Space that was on disk but not in the catalogue at the start. It is kept as ID.lost
 * until `removed_at_ms` (ms since the epoch). */
void core_spaces_lost(struct core *c,
		      void (*each)(void *arg, const char *id, int64_t removed_at_ms), void *arg);

/* --- templates -------------------------------------------------------------------------------- */

/* Looks for templates on disk, then ends: core_templates reports what it found. */
struct core_call *core_templates_look(struct core *c, core_done_fn *fn, void *arg);
/* Reports every template that the last look found: the default one first, the others by name. */
void core_templates(struct core *c, void (*each)(void *arg, const struct template_view *view),
		    void *arg);

/* --- fork, merge, diff ------------------------------------------------------------------------ */

#define FORK_MAX       1000 /* children of one fork; config.fork_max may be lower */
#define DIFF_PATHS_MAX AGENT_PATHS_MAX

/* Valid during the callback only. */
struct core_forked {
	const char *const *ids; /* of the `n` children */
	unsigned n;
	uint64_t pause_us;     /* how long the parent's vCPUs were paused */
	uint64_t ready_us;     /* from the call until every child's vCPUs ran */
	uint64_t copied_bytes; /* copied from the parent's RAM */
};
typedef void core_fork_fn(void *arg, const struct core_forked *forked, const struct failure *f);

/*
 * Creates `n` children of a sandbox, all or none. When `fn` comes, each child is usable and its
 * guest has confirmed that it is unique. `reseed`: user-space random generators (Python's random,
 * numpy's) diverge as well. An abandoned fork leaves no child.
 */
struct core_call *core_fork(struct core *c, const char *tenant, const char *id, unsigned n,
			    bool reseed, core_fork_fn *fn, void *arg);

/*
 * Gives the id `parent` the VM of `winner`, which must be its descendant; the parent's previous VM
 * ends. Calls running in that VM fail with code "merged"; its queued calls continue in the new VM,
 * after the winner's. The winner's id is gone: deleting it succeeds, any other use fails with not
 * found.
 */
struct core_call *core_merge(struct core *c, const char *tenant, const char *parent,
			     const char *winner, core_done_fn *fn, void *arg);

/* Paths sorted bytewise; valid during the callback only. */
struct core_diff {
	const char *const *added, *const *removed, *const *modified;
	size_t n_added, n_removed, n_modified;
};
typedef void core_diff_fn(void *arg, const struct core_diff *diff, const struct failure *f);

/* Compares two sandboxes under `paths` (absolute, NULL-terminated); `added` paths exist in `other`
 * only. Neither sandbox is paused: changes made while it reads may or may not be seen. */
struct core_call *core_diff(struct core *c, const char *tenant, const char *id, const char *other,
			    const char *const *paths, core_diff_fn *fn, void *arg);

/* --- exec ----------------------------------------------------------------------------------- */

struct exec_spec {
	bool bash;	  /* else Python */
	bool chunks;	  /* deliver output in chunks as they come; else by line */
	const char *code; /* copied */
	size_t code_len;
	uint32_t timeout_ms; /* 0: none */
	const char *cwd;     /* working directory; NULL: unchanged */
	const char *const *env;
	const char *traceparent; /* NULL: none; kept for replay */
};

/*
 * Receives the events of one call, in order; the last is EVENT_EXIT. `started` comes first, once
 * the call was accepted (the answer is then 200). `failed` comes alone, or in place of EVENT_EXIT;
 * it carries the failure as an event too, for a stream that has begun. Event data is valid during
 * the callback only.
 */
struct exec_sink {
	void (*started)(void *arg);
	void (*event)(void *arg, const struct event *ev);
	void (*failed)(void *arg, const struct failure *f, const struct event *ev);
};

struct core_call *core_exec(struct core *c, const char *tenant, const char *id,
			    const struct exec_spec *spec, const struct exec_sink *sink, void *arg);
/* Reports those of the last 1,000 events (also bounded in bytes) with a number above `since`,
 * oldest first. Returns false like core_view. */
bool core_replay(struct core *c, const char *tenant, const char *id, uint64_t since,
		 void (*each)(void *arg, const struct event *ev, const char *traceparent),
		 void *arg, struct failure *f);

/* `started` comes first. `ended` comes last, with f NULL once no call runs or is queued. */
struct follow_sink {
	void (*started)(void *arg);
	void (*event)(void *arg, const struct event *ev, const char *traceparent);
	void (*ended)(void *arg, const struct failure *f);
};
/* Reports the same events as core_replay, then new ones until no call runs or is queued in the
 * sandbox. A follower that is paused for long misses events that core_replay has dropped. */
struct core_call *core_follow(struct core *c, const char *tenant, const char *id, uint64_t since,
			      const struct follow_sink *sink, void *arg);

/* --- files ---------------------------------------------------------------------------------- */

/*
 * Paths are absolute guest paths of up to AGENT_PATH_MAX bytes without NUL. Symbolic links are
 * followed except where stated. Input data belongs to the caller and must stay valid until the
 * callback comes or the call is abandoned. An abandoned call is cancelled at once: an unfinished
 * write leaves nothing behind.
 */

#define CORE_ID_LEN	AGENT_ID_LEN /* of an upload: "upl_" + 32 hex; of a terminal: "pty_" + 32 */
#define UPLOAD_PART_MAX (8u << 20)

/* Valid during the callback only. Names and targets may hold any byte but NUL and are not
 * NUL-terminated. */
struct file_view {
	const char *name; /* in a list: relative to the folder; else the path */
	size_t name_len;
	uint32_t mode, uid, gid; /* mode: type and permissions, as in stat */
	uint64_t size;		 /* bytes, for a file; else 0 */
	int64_t mtime_ns;	 /* ns since the epoch */
	const char *target;	 /* of a symbolic link; else NULL */
	size_t target_len;
	uint64_t offset, length; /* for a get: the range that follows; length UINT64_MAX: unknown */
};

/* Receives the results of a stat (`file` once), a list (`file` for each name, in byte order) and a
 * get (`file`, then `bytes`). `ended` always comes last. */
struct file_sink {
	void (*file)(void *arg, const struct file_view *file);
	void (*bytes)(void *arg, const void *data, size_t len);
	void (*ended)(void *arg, const struct failure *f);
};

struct file_put {
	const char *path;
	uint32_t mode; /* 0: the mode of the replaced file, else 0644 */
	const void *data;
	size_t len;
};

/* Replaces the file atomically: all of it or nothing. Creates missing parent folders. */
struct core_call *core_file_put(struct core *c, const char *tenant, const char *id,
				const struct file_put *put, core_done_fn *fn, void *arg);

struct file_range {
	uint64_t offset, length; /* length UINT64_MAX: to the end */
	bool from_end; /* offset counts back from the end; an offset beyond the size means the whole
			  file */
};
/*
 * Reads bytes of a regular file. When the file has a size, exactly the range's part of it is
 * delivered, or the end is a failure. When its size is 0 (as in /proc), whatever can be read is
 * delivered. A range that begins after the end has no bytes.
 */
struct core_call *core_file_get(struct core *c, const char *tenant, const char *id,
				const char *path, const struct file_range *range,
				const struct file_sink *sink, void *arg);
/* `link`: describe a symbolic link itself instead of its target. */
struct core_call *core_file_stat(struct core *c, const char *tenant, const char *id,
				 const char *path, bool link, const struct file_sink *sink,
				 void *arg);
/* Lists a folder. Symbolic links in it are reported as links. */
struct core_call *core_file_list(struct core *c, const char *tenant, const char *id,
				 const char *path, const struct file_sink *sink, void *arg);
/* Removes a path; of a symbolic link, the link itself. `recursive`: a folder with its contents. */
struct core_call *core_file_remove(struct core *c, const char *tenant, const char *id,
				   const char *path, bool recursive, core_done_fn *fn, void *arg);
/* Makes a folder. `mode` 0: 0755. `parents`: creates missing parents; an existing folder is no
 * error. */
struct core_call *core_file_mkdir(struct core *c, const char *tenant, const char *id,
				  const char *path, uint32_t mode, bool parents, core_done_fn *fn,
				  void *arg);

/* Uploads a file in parts. The guest holds the upload: it survives a restart of the service, and a
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
/* `hash`: the expected checksum, AGENT_HASH_LEN bytes; NULL: don't check. */
struct core_call *core_upload_commit(struct core *c, const char *tenant, const char *id,
				     const char *upload, uint64_t size, const uint8_t *hash,
				     core_done_fn *fn, void *arg);
struct core_call *core_upload_abort(struct core *c, const char *tenant, const char *id,
				    const char *upload, core_done_fn *fn, void *arg);

/* --- terminals ------------------------------------------------------------------------------ */

#define PTY_INPUT_MAX (1u << 20) /* bytes of one core_pty_input */
#define PTY_READ_MAX  AGENT_PTY_RING

/* The guest holds terminals too: a fork's children inherit them, and they outlive the service. */
struct pty_spec {
	const char *const *argv; /* NULL-terminated */
	const char *label;	 /* shown in lists */
	uint32_t cols, rows;	 /* 1 to 65535 */
	const char *cwd;	 /* NULL: the Python process's working directory */
	const char *const *env;	 /* NAME=VALUE, overrides the sandbox's own */
};
/* Starts a terminal; its program runs when `fn` comes. An abandoned start kills the program. */
struct core_call *core_pty_start(struct core *c, const char *tenant, const char *id,
				 const struct pty_spec *spec, core_id_fn *fn, void *arg);

struct pty_sink {
	/* Called first if not NULL, once the terminal was found. */
	void (*found)(void *arg);
	/* `place`: offset of the first byte in the terminal's whole output. Output no longer kept
	 * is skipped. */
	void (*bytes)(void *arg, uint64_t place, const void *data, size_t len);
	void (*exited)(void *arg, int code); /* called last, instead of `failed` */
	void (*failed)(void *arg, const struct failure *f);
};
/* Streams the output from byte offset `place`, as far as it is kept, then new output, then the exit
 * code. A slow reader loses the oldest output. Abandoning the call detaches this listener only. */
struct core_call *core_pty_attach(struct core *c, const char *tenant, const char *id,
				  const char *pty, uint64_t place, const struct pty_sink *sink,
				  void *arg);

struct pty_read {
	uint64_t place;	  /* byte offset of the first byte wanted */
	size_t max_bytes; /* 1 to PTY_READ_MAX */
	uint32_t timeout_ms;
};
/* Valid during the callback only. */
struct pty_output {
	const uint8_t *data;
	size_t len;
	uint64_t next; /* byte offset for the next read */
	bool exited;   /* the program has ended and all output was delivered */
	int exit_code;
};
typedef void core_pty_read_fn(void *arg, const struct pty_output *out, const struct failure *f);
/* Returns output as soon as there is some or the program has ended; an empty result when the time
 * limit passes. */
struct core_call *core_pty_read(struct core *c, const char *tenant, const char *id, const char *pty,
				const struct pty_read *read, core_pty_read_fn *fn, void *arg);

/* Writes to a terminal. Success: the terminal accepted all bytes. */
struct core_call *core_pty_input(struct core *c, const char *tenant, const char *id,
				 const char *pty, const void *data, size_t len, core_done_fn *fn,
				 void *arg);
struct core_call *core_pty_resize(struct core *c, const char *tenant, const char *id,
				  const char *pty, uint32_t cols, uint32_t rows, core_done_fn *fn,
				  void *arg);
/* Sends SIGKILL to all of the terminal's processes. */
struct core_call *core_pty_kill(struct core *c, const char *tenant, const char *id, const char *pty,
				core_done_fn *fn, void *arg);

struct pty_view {
	char id[CORE_ID_LEN + 1];
	const char *label; /* not NUL-terminated; may be invalid UTF-8 */
	size_t label_len;
	int64_t started_at_ms; /* ms since the epoch */
	bool ended;
	int exit_code;
};
struct pty_list_sink {
	void (*pty)(void *arg,
		    const struct pty_view *pty); /* called for each terminal, oldest first */
	void (*ended)(void *arg, const struct failure *f);
};
struct core_call *core_pty_list(struct core *c, const char *tenant, const char *id,
				const struct pty_list_sink *sink, void *arg);

/* --- statistics ------------------------------------------------------------------------------- */

struct core_stats {
	uint64_t sandboxes, creates, create_failures, execs, vm_deaths;
	uint64_t output_held_bytes;	 /* for replay, and unfinished lines */
	uint64_t output_dropped_bytes;	 /* events dropped because the output budget was used up */
	uint64_t pool_hits, pool_misses; /* creates served with a warm sandbox, or without one */
	uint64_t template_boots;	 /* images built */
	uint64_t templates_building;	 /* requested, or prepared ahead */
	uint64_t forks, fork_failures, merges;
	uint64_t blank_vms_ready, warm_ready;
	uint64_t warm_default_ready; /* of warm_ready: those that a create with default settings
					takes */
	uint64_t file_calls, file_failures, file_bytes_in, file_bytes_out;
	uint64_t ptys, pty_bytes_in, pty_bytes_out;
	uint64_t operations, listeners;	   /* in flight now */
	uint64_t ready, running, adopting; /* sandboxes by state */
	/* Measured some seconds ago: memory of sandboxes' VMs, and free space below state_dir. */
	struct memory_use memory;
	uint64_t disk_free_bytes;
	uint64_t freezes, freeze_failures, resumes, resume_failures, spaces_damaged;
	uint64_t spaces, spaces_bytes; /* existing Spaces */
	uint64_t spaces_lost;	       /* Space directories that the catalogue does not name */
	uint64_t ends_unrecorded;      /* sandboxes whose end is not in the catalogue yet */
};
void core_stats(const struct core *c, struct core_stats *out);
/* Reports every condition for serving sandboxes: the reason is NULL where the condition holds, else
 * a sentence. */
void core_checks(const struct core *c,
		 void (*each)(void *arg, const char *name, const char *reason), void *arg);

#endif
