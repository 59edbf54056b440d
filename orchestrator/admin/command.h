// SPDX-License-Identifier: Apache-2.0
/*
 * What operators tell the service, as `ramet` sends it: arguments, each with a NUL behind it. A
 * command is found by its first words, runs to its end and writes text. Commands of a table work
 * wherever what they need is there: those on keys without a service, too.
 */
#ifndef RAMET_ORCHESTRATOR_ADMIN_COMMAND_H
#define RAMET_ORCHESTRATOR_ADMIN_COMMAND_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/core/core.h"

#define COMMAND_BYTES_MAX 4096 /* of all arguments */
#define COMMAND_ARGS_MAX  16

/* How a command ended: the first byte of an answer, and the exit status of `ramet`. */
enum command_status {
	COMMAND_DONE = 0,
	COMMAND_FAILED = 1, /* the text says why */
	COMMAND_USAGE = 2,  /* the text says how it is called */
};

struct audit_event;
struct command_env;
struct key;
struct keys;

/* What follows of a long answer, so that no command holds up the loop. */
struct command_rest {
	/* Says the next part; false: it was the last. NULL: nothing follows. */
	bool (*more)(const struct command_env *env, struct command_rest *rest, FILE *out);
	struct list_page page; /* what is left of a list of the core */
	const struct key *key; /* the last one of a list of keys; NULL: none yet */
};

struct command_env {
	const struct config *config;
	struct keys *keys;
	struct core *core; /* NULL: no service runs */
	/* Tells the audit log what became of a key; NULL: there is none. */
	void (*notify)(void *arg, const struct audit_event *event);
	void *tell_arg;
	/* core_sync; NULL: each change is on the disk when it was made. */
	struct core_call *(*sync)(struct core *core, void (*fn)(void *arg, const struct failure *f),
				  void *arg);
	/* core_backup */
	struct core_call *(*backup)(struct core *core,
				    void (*fn)(void *arg, int fd, const struct failure *f),
				    void *arg);
	/* core_inspect */
	struct core_call *(*inspect)(struct core *core, const char *name,
				     void (*fn)(void *arg, const char *text,
						const struct failure *f),
				     void *arg);
	struct command_rest *rest; /* to be filled in; NULL: all is said at once */
};

/* argv[0] is the first argument behind the command's words; argv[argc] is NULL. `out` gets what it
 * has to say; on failure it fills *e, whose text stands for it. 0, or -errno; -EINVAL is told with
 * the command's usage. */
typedef int command_fn(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		       struct err *e);

/* Says what the answer of a successful command waits for. */
enum command_wait {
	COMMAND_AT_ONCE,
	COMMAND_SYNC,	 /* what the catalogue has is on the disk: no power cut takes it back */
	COMMAND_BACKUP,	 /* a copy of the catalogue, whose descriptor goes along */
	COMMAND_INSPECT, /* a report on the VM that its last argument names */
};

struct command {
	const char *words;     /* "key create" */
	const char *arguments; /* "--tier TIER --name NAME"; "" when there are none */
	const char *help;      /* one line */
	command_fn *run;
	enum command_wait wait;
};

/* Commands one after the other; a NULL in `words` ends the table. */
extern const struct command key_commands[];
extern const struct command host_commands[]; /* in a service */

struct arguments {
	char text[COMMAND_BYTES_MAX];
	const char *argv[COMMAND_ARGS_MAX + 1]; /* into text; NULL-terminated */
	int argc;
};
/* -EINVAL with *e filled unless it is 1 to COMMAND_ARGS_MAX texts without control characters. */
int arguments_parse(struct arguments *out, const void *request, size_t len, struct err *e);

/* Finds the command in `tables` (NULL-terminated) and runs it: what is to be told is in `out`, and
 * *wait is what to wait for before. */
enum command_status command_run(const struct command *const *tables, const struct command_env *env,
				const struct arguments *args, FILE *out, enum command_wait *wait);

/* --- for commands ---------------------------------------------------------------------------- */

/* An option of a command: NAME VALUE or NAME=VALUE. */
struct option_value {
	const char *name;  /* "--tier" */
	const char *value; /* NULL until it is found */
};
/* Takes all `n` options out of argv; what is none of them goes to `rest`, up to `n_rest`, which
 * the command must have exactly. -EINVAL with *e filled otherwise. */
int command_options(int argc, const char *const argv[], struct option_value *options, size_t n,
		    const char **rest, size_t n_rest, struct err *e);
/* Lines of a long answer that are said at a time. */
#define COMMAND_LINES 64
/* "2026-11-21T20:15:00Z" */
#define COMMAND_TIME_LEN 20
void command_time(int64_t ms, char out[static COMMAND_TIME_LEN + 1]);

#endif
