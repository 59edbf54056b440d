// SPDX-License-Identifier: Apache-2.0
/* The host's end of proto/agent.h: frames on a stream socket whose other end is a guest. */
#ifndef RAMET_ORCHESTRATOR_AGENT_AGENT_H
#define RAMET_ORCHESTRATOR_AGENT_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "orchestrator/io/loop.h"
#include "proto/agent.h"

/* --- frames --------------------------------------------------------------------------------- */

/* AGENT_ENTRY: one entry of a tree. Pointers are into the frame. */
struct agent_entry {
	const uint8_t *path; /* absolute, without zero bytes, not terminated */
	size_t path_len;
	uint32_t mode, uid, gid;
	uint64_t size;		/* size of a file, or number of a device; else 0 */
	const uint8_t *content; /* hash of a file, or target of a symbolic link */
	/* AGENT_HASH_LEN for a file, or 0 when the guest could not read the file. */
	size_t content_len;
};

/* AGENT_FILE and AGENT_NODE. Texts contain no zero byte and are not terminated. */
struct agent_file {
	const uint8_t *name; /* never empty */
	size_t name_len;
	uint32_t mode, uid, gid;
	uint64_t size; /* size of a file; else 0 */
	int64_t mtime_ns;
	const uint8_t *target; /* of a symbolic link */
	size_t target_len;
	const uint8_t *user, *group; /* names, in an AGENT_NODE; NULL or empty: none */
	size_t user_len, group_len;
};

/* AGENT_EVENT. The paths are absolute, contain no zero byte and are not terminated. */
struct agent_change {
	enum agent_event type;
	bool folder;
	const uint8_t *path, *to; /* `to`: of an AGENT_RENAMED */
	size_t path_len, to_len;
};

/* AGENT_PROC */
struct agent_process {
	const uint8_t *id; /* AGENT_ID_LEN bytes: "prc_" or "pty_", and 32 hexadecimal digits */
	const uint8_t *label, *user;
	size_t label_len, user_len;
	uint32_t pid;
	int64_t started_ms, ended_ms; /* ended_ms 0: it runs */
	uint64_t total;
	uint8_t flags; /* enum agent_proc_flag */
	int32_t exit_code;
	uint8_t signal; /* 0 to 64 */
};

/* AGENT_PROC_EXIT, besides the exit code */
struct agent_process_exit {
	uint8_t signal; /* 0 to 64 */
	bool timed_out;
	int64_t ended_ms;
	uint64_t total;
};

/* AGENT_CONTEXT */
struct agent_context {
	const uint8_t *id; /* AGENT_ID_LEN bytes: "ctx_" and 32 hexadecimal digits */
	enum agent_language language;
	bool busy;
	int64_t started_ms;
	const uint8_t *cwd; /* without zero bytes, not terminated; empty: the home folder */
	size_t cwd_len;
};

struct agent_frame {
	enum agent_answer type;
	/* Output, bytes of a bundle or file, or the text of an error. An AGENT_RESULT or
	 * AGENT_FAULT has one byte, which also counts as output. */
	const uint8_t *data;
	size_t len;
	/* AGENT_PROC_BYTES: offset of data[0]; place + len does not overflow */
	uint64_t place;
	uint8_t stream;	  /* AGENT_PROC_BYTES: 1 or 2 */
	uint32_t version; /* AGENT_PONG */
	int32_t exit_code;
	uint32_t errnum;	  /* AGENT_ERROR */
	struct agent_entry entry; /* AGENT_ENTRY */
	struct agent_file file;
	struct agent_change change;
	struct agent_process process;
	struct agent_process_exit exit;
	struct agent_context context;
};

/* Reads one frame from the start of `buf`. Returns its length in bytes, 0 when it is incomplete, or
 * -errno with *e filled for a frame that a correct guest would not send. */
ssize_t agent_frame_read(const uint8_t *buf, size_t len, struct agent_frame *out, struct err *e);

/* Returns whether a path stays within the folder that it is relative to: it has at most `depth`
 * parts, and none of them is empty, "." or "..". */
bool agent_path_is_plain(const uint8_t *path, size_t len, uint32_t depth);

/* Requests as they are sent. The caller of an encoder frees `p`, or passes it to agent_send. */
struct agent_bytes {
	uint8_t *p; /* NULL after an error */
	size_t len;
	int error; /* 0, -ENOMEM, or -E2BIG when a limit is exceeded */
};

struct agent_exec {
	const char *context; /* NULL: the default interpreter; else `language` is not used */
	enum agent_language language;
	uint32_t timeout_ms; /* 0: none */
	uint64_t call;	     /* for agent_attach_bytes; unique among the guest's calls */
	const char *code;
	size_t code_len;
	const char *cwd;	   /* NULL: unchanged */
	const char *const *env[2]; /* NAME=VALUE lists, NULL-terminated; each may be NULL */
	bool results;		   /* AGENT_EXEC_RESULTS */
	bool prepares;		   /* AGENT_EXEC_PREPARES */
};
struct agent_bytes agent_exec_bytes(const struct agent_exec *exec);
struct agent_bytes agent_plain_bytes(enum agent_request type);
struct agent_bytes agent_grow_bytes(uint64_t disk_bytes);
/* `user_generators`: also seeds the random generators of Python and numpy. */
struct agent_bytes agent_reseed_bytes(const uint8_t entropy[AGENT_ENTROPY_LEN], int64_t realtime_ns,
				      bool user_generators, const char *hostname);
/* `have`: bytes of the call's output, stdout and stderr together, received so far. `context` as in
 * agent_exec. */
struct agent_bytes agent_attach_bytes(const char *context, uint64_t call, uint64_t have);
/* `call`: the number of the call; 0: whichever runs. */
struct agent_bytes agent_interrupt_bytes(const char *context, uint64_t call);
/* `paths`: NULL-terminated. The error is -E2BIG also for more than AGENT_PATHS_MAX paths or too
 * long ones. */
struct agent_bytes agent_tree_bytes(const char *const *paths);

/* A request about files. Its type determines which fields are sent. */
struct agent_file_request {
	enum agent_request type;
	const char *path, *to, *after;
	uint32_t mode, uid, gid, depth, limit;
	enum agent_write how;
	uint64_t offset, size;
	bool flag;
};
struct agent_bytes agent_file_bytes(const struct agent_file_request *r);

/* A request about processes. Its type determines which fields are sent. */
struct agent_process_request {
	enum agent_request type;
	const char *id;
	uint8_t flags; /* enum agent_proc_flag */
	uint16_t cols, rows;
	uint32_t timeout_ms;
	uint64_t place;
	bool hold;
	uint8_t signal;
	const uint8_t *input;
	size_t input_len;
	const char *cwd;  /* NULL: the default, see proto/agent.h */
	const char *user; /* NULL: the agent's own user */
	const char *label;
	const char *const *argv;
	const char *const *env[2];
};
/* A request about contexts. */
struct agent_context_request {
	enum agent_request type;
	const char *id; /* NULL: none is sent */
	enum agent_language language;
	const char *cwd; /* NULL: the home folder */
	const char *const *env[2];
};
struct agent_bytes agent_context_bytes(const struct agent_context_request *r);

/* Maximum number of bytes in one AGENT_PROC_INPUT. */
#define AGENT_INPUT_MAX (AGENT_PAYLOAD_MAX - 4 - AGENT_ID_LEN)
struct agent_bytes agent_process_bytes(const struct agent_process_request *r);

/* Encodes AGENT_DATA frames of up to AGENT_PAYLOAD_MAX bytes each. */
struct agent_bytes agent_data_bytes(const uint8_t *data, size_t data_len);

/* Compares two paths in the order of AGENT_TREE's entries, with a result as from memcmp: a folder,
 * then its contents, then names that begin with the folder's name. */
int agent_path_order(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len);

/* --- a connection --------------------------------------------------------------------------- */

struct agent;

struct agent_events {
	/* A frame was received. The callee may pause, send on and free the connection. */
	void (*frame)(void *arg, const struct agent_frame *frame);
	/* The connection cannot be used any more; `reason` is a sentence. */
	void (*ended)(void *arg, const char *reason);
	/* Everything passed to agent_send has been sent. May be NULL. */
	void (*sent)(void *arg);
};

/* Makes a connection of the socket `fd` and starts to read. Takes ownership of `fd`, also on
 * failure. Returns NULL when out of memory. */
struct agent *agent_new(struct loop *loop, int fd, const struct agent_events *events, void *arg);
void agent_set_events(struct agent *a, const struct agent_events *events, void *arg);
/* Sends encoded requests. Takes ownership of `request.p` (from malloc). Failures are reported by
 * `ended`. */
void agent_send(struct agent *a, struct agent_bytes request);
/* Returns true while not all requests have been sent. */
bool agent_is_sending(const struct agent *a);
/* Stops handing out frames until agent_resume. Meanwhile nothing is read, except by a read already
 * in flight. */
void agent_pause(struct agent *a);
void agent_resume(struct agent *a);
void agent_free(struct agent *a);

#endif
