// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of guestops/: files, terminals and processes in a guest, and the difference
 * of two guests.
 */
#ifndef RAMET_ORCHESTRATOR_GUESTOPS_GUESTOPS_H
#define RAMET_ORCHESTRATOR_GUESTOPS_GUESTOPS_H

#include "orchestrator/agent/agent.h"
#include "orchestrator/guestops/diff-result.h"
#include "orchestrator/sandbox/sandboxes.h"

#define DIFF_PATHS_MAX AGENT_PATHS_MAX

/* The callee owns the diff, which is not sorted yet. */
typedef void service_diff_fn(void *arg, struct service_diff *diff, const struct failure *f);

/* Compares the files of two sandboxes under `paths` (absolute, NULL-terminated); `added` paths
 * exist in `other` only. Neither sandbox is paused: changes made meanwhile may be missed. */
struct op *service_diff(struct service *c, const char *tenant, const char *id, const char *other,
			const char *const *paths, service_diff_fn *fn, void *arg);

#define TEXT_DIFF_MAX (4u << 20) /* bytes of a diff of a text */

/* `text` is valid during the callback only. */
typedef void service_text_diff_fn(void *arg, const char *text, size_t len, const struct failure *f);

/* Makes a unified diff of the file `path`: from the sandbox's to the one in the sandbox `other`. */
struct op *service_text_diff(struct service *c, const char *tenant, const char *id,
			     const char *other, const char *path, service_text_diff_fn *fn,
			     void *arg);

/* --- merges of files ------------------------------------------------------------------------ */

#define MERGE_BRANCHES_MAX 16

/* What became of a path. The values are letters of merge_files.py. */
enum merge_outcome {
	MERGE_SAME = '=',   /* the parent had the result already */
	MERGE_TAKEN = 'a',  /* from a branch */
	MERGE_MERGED = 'm', /* by lines, or content and mode from different sides */
	/* Conflicts: */
	MERGE_CONTENT = 'C', /* the same lines, or a link's target, were changed differently */
	MERGE_BINARY = 'B',  /* changed differently, and either not a text or too large */
	MERGE_TYPE = 'T',    /* a file in one branch, a folder or link in another */
	MERGE_DELETED = 'D', /* deleted in one branch, and changed in another */
	/* Added by two branches with different content, so that there is no base. */
	MERGE_BOTH_ADDED = 'A',
	MERGE_ATTRIBUTES = 'M', /* mode or owner were changed differently */
	MERGE_NO_GIT = 'G',	/* a text to be merged by lines, but there is no git */
	MERGE_NO_FOLDER = 'W',	/* the parent has no folder for it */
	MERGE_NOT_EMPTY = 'E',	/* a folder to be removed has other files */
	MERGE_UNREADABLE = 'U', /* a guest did not send the file */
};
/* How a conflict was resolved; values as above. */
enum merge_resolution {
	MERGE_CLEAN = '.', /* there was none */
	MERGE_OPEN = '-',  /* not at all: the parent's file stays */
	MERGE_OURS = 'o',
	MERGE_THEIRS = 't',
	MERGE_MARKERS = 'm',
};
struct merge_entry {
	const char *path;
	char letters[MERGE_BRANCHES_MAX + 2]; /* of the base and the branches (merge_files.py) */
	enum merge_outcome outcome;
	enum merge_resolution resolution;
};
struct merge_plan {
	unsigned branches;
	struct merge_entry *entries; /* sorted by path */
	size_t n, room, bytes;	     /* `bytes`: of all paths */
};
/* Returns whether the branch changed the path. */
bool merge_entry_has(const struct merge_entry *n, unsigned branch);
/* Returns what the branches did with a path on which they agree. */
enum diff_kind merge_entry_kind(const struct merge_entry *n);

struct file_merge {
	const char *base;	     /* a fork of the parent that nobody changed */
	const char *const *branches; /* up to MERGE_BRANCHES_MAX; NULL-terminated */
	const char *const *paths;    /* absolute, up to DIFF_PATHS_MAX; NULL-terminated */
	const char *conflicts;	     /* "report", "ours", "theirs" or "markers" */
};
/* `plan` is valid during the callback only. */
typedef void service_merge_files_fn(void *arg, const struct merge_plan *plan,
				    const struct failure *f);

/* Brings into the sandbox what the branches, its descendants, changed against the base. Either all
 * is written or nothing: with "report", nothing if there is a conflict. */
struct op *service_merge_files(struct service *c, const char *tenant, const char *id,
			       const struct file_merge *merge, service_merge_files_fn *fn,
			       void *arg);

/* --- files ---------------------------------------------------------------------------------- */

/*
 * Paths are absolute guest paths of up to AGENT_PATH_MAX bytes without NUL. Symbolic links are
 * followed except where stated. Input data belongs to the caller and must stay valid until the
 * callback comes or the call is abandoned. An abandoned call is cancelled at once: an unfinished
 * write leaves nothing behind.
 */

#define CORE_ID_LEN AGENT_ID_LEN /* "ctx_", "pty_" (with a tty) or "prc_", then 32 hex digits */

/* Valid during the callback only. Names and targets may hold any byte but NUL and are not
 * NUL-terminated. */
struct file_view {
	const char *name; /* in a list: the path relative to the folder; else the whole path */
	size_t name_len;
	uint32_t mode, uid, gid; /* mode: type and permissions, as in stat */
	uint64_t size;		 /* bytes, for a file; else 0 */
	int64_t mtime_ns;	 /* ns since the epoch */
	const char *target;	 /* of a symbolic link; else NULL */
	size_t target_len;
	const char *user, *group; /* in a stat or list: names of uid and gid; length 0: unknown */
	size_t user_len, group_len;
	uint64_t offset, length; /* in a get: the range that follows; length UINT64_MAX: unknown */
};

/* Receives the results of a stat (`file` once), a list (`file` for each name, then `more` if its
 * limit was reached and there are more), a get (`file`, then `bytes`) and a pack (`bytes`). `ended`
 * always comes last. */
struct file_sink {
	void (*file)(void *arg, const struct file_view *file);
	void (*more)(void *arg);
	void (*bytes)(void *arg, const void *data, size_t len);
	void (*ended)(void *arg, const struct failure *f);
};

/*
 * Data that is written to the guest. All of it is at `p`, or, with `wants`, it arrives while it is
 * written: each time the loop calls `wants`, the caller passes the next part to service_file_feed,
 * then or later. The guest sets the pace, and at most one part waits for it.
 */
typedef void service_wants_fn(void *arg);
struct file_data {
	const void *p;
	uint64_t len; /* AGENT_UNSIZED: unknown, only with `wants` */
	service_wants_fn *wants;
};

/* Passes a part of the data on; `last` if the data ends with it. Fails the call if the data is
 * shorter or longer than its length. Only after `wants`, once each time, and while the call is
 * neither finished nor abandoned. */
void service_file_feed(struct op *base, const void *part, size_t len, bool last);

/* Makes a request whose answer is only success or failure (proto/agent.h): AGENT_PUT, AGENT_WRITE
 * and AGENT_UNPACK with `data`, whose length becomes the size; others without (NULL). A put
 * replaces nothing before the last part of its data; a write or unpack that fails or is abandoned
 * may leave part of the data. */
struct op *service_file_do(struct service *c, const char *tenant, const char *id,
			   const struct agent_file_request *request, const struct file_data *data,
			   service_done_fn *fn, void *arg);

/* Packs a folder into a tar archive. */
struct op *service_file_pack(struct service *c, const char *tenant, const char *id,
			     const char *path, const struct file_sink *sink, void *arg);

/* Valid during the callback only; not NUL-terminated. */
struct watch_event {
	enum agent_event type;
	bool folder;
	const char *path, *to; /* absolute; `to`: of an AGENT_RENAMED */
	size_t path_len, to_len;
};
struct watch_sink {
	/* The first event is AGENT_WATCHING. */
	void (*event)(void *arg, const struct watch_event *event);
	/* Called last; without a failure when the path is gone. */
	void (*ended)(void *arg, const struct failure *f);
};
/* Watches a file or folder until it is gone or the call is abandoned. A slow reader loses events,
 * which AGENT_OVERFLOW reports. */
struct op *service_file_watch(struct service *c, const char *tenant, const char *id,
			      const char *path, bool recursive, const struct watch_sink *sink,
			      void *arg);

struct file_range {
	uint64_t offset, length; /* length UINT64_MAX: to the end */
	bool from_end; /* offset counts back from the end; an offset beyond the size means the whole
			  file */
};
/*
 * Reads a range of a regular file. If the file's size is not 0, all bytes in the range are
 * delivered, or the call fails. If it is 0 (as in /proc), whatever can be read is delivered. A
 * range that begins after the end has no bytes.
 */
struct op *service_file_get(struct service *c, const char *tenant, const char *id, const char *path,
			    const struct file_range *range, const struct file_sink *sink,
			    void *arg);
/* Reports a path's properties. `link`: if the path is a symbolic link, the properties of the link,
 * not of its target. */
struct op *service_file_stat(struct service *c, const char *tenant, const char *id,
			     const char *path, bool link, const struct file_sink *sink, void *arg);
struct file_list {
	const char *path;
	uint32_t depth; /* levels of folders, up to AGENT_DEPTH_MAX; 1: only its own entries */
	uint32_t limit; /* of entries, below UINT32_MAX; 0: none */
	/* A name in the list, after which the list starts; "": at its first name. */
	const char *after;
};
/* Lists a folder: each folder before its content, the names in it in byte order. Symbolic links in
 * it are reported as links, and file systems mounted there are not entered. */
struct op *service_file_list(struct service *c, const char *tenant, const char *id,
			     const struct file_list *list, const struct file_sink *sink, void *arg);
/* --- processes ------------------------------------------------------------------------------ */

/* Programs that run beside the Python process, on pipes or on a tty. The guest holds them: a fork's
 * children inherit them, and they outlive the service. */
struct process_spec {
	const char *const *argv; /* NULL-terminated */
	const char *label;	 /* shown in lists */
	const char *cwd;  /* NULL: the user's home, or without a user the Python process's folder */
	const char *user; /* name or uid; NULL: the agent's */
	const char *const *env; /* NAME=VALUE, overrides the sandbox's own */
	bool stdin_pipe;	/* false: stdin is /dev/null */
	bool tty;
	uint32_t cols, rows; /* of the tty: 1 to 65535 */
	uint32_t timeout_ms; /* 0: none */
	bool must_run;	     /* a program that cannot be run fails the start */
};

struct process_exit {
	int code;	/* 128 + signal if killed */
	uint8_t signal; /* 0: none */
	bool timed_out;
	int64_t ended_ms; /* since the epoch */
	uint64_t total;	  /* bytes of output */
};
/* Valid during the callback only. */
struct process_view {
	char id[CORE_ID_LEN + 1];
	const char *label, *user; /* not NUL-terminated; may be invalid UTF-8 */
	size_t label_len, user_len;
	uint32_t pid;
	int64_t started_ms; /* since the epoch */
	uint64_t total;	    /* bytes of output so far */
	bool tty, stdin_open, ended;
	struct process_exit exit; /* valid if it has ended */
};
struct process_list_sink {
	void (*process)(void *arg, const struct process_view *process); /* oldest first */
	void (*ended)(void *arg, const struct failure *f);
};
struct process_sink {
	void (*started)(void *arg, const struct process_view *process); /* called first */
	/* `stream`: 1 stdout, or the output of a tty; 2 stderr. `place`: offset of the first byte
	 * in the output of both. Output no longer kept is skipped. */
	void (*bytes)(void *arg, unsigned stream, uint64_t place, const void *data, size_t len);
	void (*exited)(void *arg, const struct process_exit *exit); /* last, instead of `failed` */
	void (*failed)(void *arg, const struct failure *f);
};

/* Starts a process and streams its output. The process waits for a slow reader; when the call is
 * abandoned it goes on, unless its program was not running yet. Counts as activity of the sandbox.
 */
struct op *service_process_run(struct service *c, const char *tenant, const char *id,
			       const struct process_spec *spec, const struct process_sink *sink,
			       void *arg);
/* Starts a process and describes it. An abandoned start kills it. */
struct op *service_process_start(struct service *c, const char *tenant, const char *id,
				 const struct process_spec *spec,
				 const struct process_list_sink *sink, void *arg);
/* Streams the output from byte offset `place`, as far as it is kept, then new output. A slow reader
 * loses the oldest output. Abandoning the call detaches this listener only. */
struct op *service_process_attach(struct service *c, const char *tenant, const char *id,
				  const char *process, uint64_t place,
				  const struct process_sink *sink, void *arg);
/* Describes a process, or all of them (NULL). */
struct op *service_process_list(struct service *c, const char *tenant, const char *id,
				const char *process, const struct process_list_sink *sink,
				void *arg);
#define PTY_READ_MAX AGENT_PROC_RING

struct process_read {
	uint64_t place;	  /* byte offset of the first byte wanted */
	size_t max_bytes; /* 1 to PTY_READ_MAX */
	uint32_t timeout_ms;
};
/* Valid during the callback only. */
struct process_output {
	const uint8_t *data; /* of both streams */
	size_t len;
	uint64_t next; /* byte offset for the next read */
	bool exited;   /* the program has ended and all output was delivered */
	int exit_code;
};
typedef void service_process_read_fn(void *arg, const struct process_output *out,
				     const struct failure *f);
/* Reports output as soon as there is some or the program has ended. The result is empty when the
 * time limit passes first. */
struct op *service_process_read(struct service *c, const char *tenant, const char *id,
				const char *process, const struct process_read *read,
				service_process_read_fn *fn, void *arg);

#define PTY_INPUT_MAX (1u << 20) /* bytes of one input of the routes of terminals */

/* Writes to stdin. Success: the pipe or terminal accepted all bytes. */
struct op *service_process_input(struct service *c, const char *tenant, const char *id,
				 const char *process, const void *data, size_t len,
				 service_done_fn *fn, void *arg);
/* Makes a request whose answer is only success or failure: AGENT_PROC_CLOSE, AGENT_PROC_SIGNAL,
 * AGENT_PROC_KILL or AGENT_PROC_RESIZE. */
struct op *service_process_do(struct service *c, const char *tenant, const char *id,
			      const struct agent_process_request *request, service_done_fn *fn,
			      void *arg);

/* --- contexts ------------------------------------------------------------------------------- */

/* Further interpreters beside the default one, with a process, a queue and a state of their own.
 * The guest holds them too. exec/ sends calls to them. */
struct context_spec {
	enum agent_language language;
	const char *cwd;	/* NULL: the home folder */
	const char *const *env; /* NAME=VALUE, overrides the sandbox's own */
};
/* `type`: AGENT_CONTEXT_END or AGENT_CONTEXT_RESTART. */
struct op *service_context_do(struct service *c, const char *tenant, const char *id,
			      enum agent_request type, const char *context, service_done_fn *fn,
			      void *arg);

struct context_view {
	char id[CORE_ID_LEN + 1];
	enum agent_language language;
	bool busy; /* a call runs or waits in the guest */
	int64_t started_at_ms;
	const char *cwd; /* not NUL-terminated; may be invalid UTF-8; empty: the home folder */
	size_t cwd_len;
};
struct context_list_sink {
	void (*context)(void *arg, const struct context_view *x); /* for each, oldest first */
	void (*ended)(void *arg, const struct failure *f);
};
/* Starts a context, whose interpreter then waits for code, and describes it. An abandoned start
 * ends it. */
struct op *service_context_start(struct service *c, const char *tenant, const char *id,
				 const struct context_spec *spec,
				 const struct context_list_sink *sink, void *arg);
struct op *service_context_list(struct service *c, const char *tenant, const char *id,
				const struct context_list_sink *sink, void *arg);

#endif
