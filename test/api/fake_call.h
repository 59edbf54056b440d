// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of the fake core. */
#ifndef RAMET_TEST_FAKE_CALL_H
#define RAMET_TEST_FAKE_CALL_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "orchestrator/core/core.h"
#include "orchestrator/exec/exec.h"
#include "orchestrator/guestops/guestops.h"
#include "orchestrator/usage/usage.h"
#include "test/api/fake_core.h"

#define RING	  1000
#define FLOOD_MAX 100000

struct saved {
	struct event ev;
	char traceparent[64];
};

struct sandbox {
	struct list link;
	char id[SANDBOX_ID_LEN + 1];
	char parent[SANDBOX_ID_LEN + 1]; /* empty: none */
	char space[SANDBOX_ID_LEN + 1];	 /* not empty: it is a Space */
	struct sandbox_spec spec;
	char *metadata;
	uint64_t seq;
	struct saved ring[RING];
	size_t saved;
};

enum kind { CREATE, DONE, EXEC, FORK, DIFF, OP };

struct core_call {
	struct list link;
	struct core *core;
	struct sandbox *sandbox;
	enum kind kind;
	struct loop_timer step;
	void *arg;
	core_create_fn *created;
	core_done_fn *done;
	core_fork_fn *forked;
	core_diff_fn *compared;
	unsigned n;
	char *paths[DIFF_PATHS_MAX + 1];
	bool failing, held;
	struct failure failure;
	/* exec */
	struct exec_sink sink;
	char *code, *at, traceparent[64];
	size_t code_len;
	bool started, paused, abandoned, hanging;
	unsigned flood;
	size_t flood_size;
	/* fake_files.c and fake_pty.c */
	void (*run)(struct core_call *call); /* one step; ends with call_free, or waits */
	void (*on_failed)(struct core_call *call);
	struct follow_sink follows;
	struct file_sink files;
	struct watch_sink watch;
	struct pty_sink listener;
	struct pty_list_sink ptys;
	struct context_list_sink contexts;
	core_id_fn *id_fn;
	core_usage_fn *usage_fn;
	struct usage_query usage_query;
	core_pty_read_fn *read_fn;
	struct fake_pty *pty;
	/* fake_process.c */
	struct fake_process *process;
	struct process_sink process_sink;
	struct process_list_sink process_list;
	struct file_data in; /* that arrives in parts, written to `path` from `in_at` on */
	uint64_t in_at;
	const uint8_t *data; /* owned by the caller */
	size_t len, max;
	uint64_t size, sent;
	char path[AGENT_PATH_MAX + 1];
};

struct core {
	struct loop *loop;
	bool ready, stopping;
	struct store *store;
	struct keys *keys;
	struct list sandboxes, spaces, calls;
	uint64_t next_id;
	struct core_stats stats;
	bool holding; /* every call waits */
	void (*down)(void *arg);
	void *down_arg;
	struct loop_timer down_timer;
	struct list files, uploads, ptys, processes, contexts;
};

struct core_call *call_new(struct core *c, enum kind kind, void *arg);
/* Makes a call on a sandbox, which fails when the sandbox does not exist. */
struct core_call *call_on(struct core *c, enum kind kind, const char *id, void *arg);
void call_free(struct core_call *call);
void fail(struct core_call *call, enum failure_code code, const char *text);

void fake_sandbox_view(const struct sandbox *s, struct sandbox_view *v);
void fake_space_view(const struct sandbox *s, struct space_view *v);
void fake_files_free(struct core *c);
void fake_ptys_free(struct core *c);
void fake_processes_free(struct core *c);
void fake_contexts_free(struct core *c);
/* Returns whether a context was started and not deleted. */
bool fake_context_is(const struct core *c, const char *id);

#endif
