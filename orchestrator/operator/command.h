// SPDX-License-Identifier: Apache-2.0
/*
 * The commands of operators, as `rametctl` sends them: NUL-terminated arguments. A command is found
 * by its first words, runs to its end and writes text. Commands on keys also work without a
 * service.
 */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_COMMAND_H
#define RAMET_ORCHESTRATOR_OPERATOR_COMMAND_H
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "orchestrator/config/config.h"
#include "orchestrator/sandbox/sandboxes.h"

#define COMMAND_BYTES_MAX 4096 /* total size of the arguments */
#define COMMAND_ARGS_MAX  16

/* Asks the service for a copy of the catalogue. rametctl makes the folder, whose name is missing.
 */
#define COMMAND_COPY "backup\0copy"

/* How a command ended: the first byte of an answer, and the exit status of `rametctl`. */
enum command_status {
	COMMAND_DONE = 0,
	COMMAND_FAILED = 1, /* the text is the error */
	COMMAND_USAGE = 2,  /* the text is the error and the usage */
};

struct command_env;
struct fork_spec;
struct peers;
struct service_forked;
struct key;
struct keys;
struct store;

/* The rest of a long answer, which is written in parts so that no command blocks the loop. */
struct command_rest {
	/* Writes the next part; returns false after the last one. NULL: nothing follows. */
	bool (*more)(const struct command_env *env, struct command_rest *rest, FILE *out);
	struct list_page page; /* position in a list of the service */
	const struct key *key; /* the last key listed; NULL: none yet */
};

struct command_env {
	const struct config *config;
	struct keys *keys;
	struct service *service; /* NULL: no service runs */
	struct store *store;
	/* service_sync; NULL: each change waits for the disk anyway. */
	struct op *(*sync)(struct service *service, void (*fn)(void *arg, const struct failure *f),
			   void *arg);
	/* service_backup */
	struct op *(*backup)(struct service *service,
			     void (*fn)(void *arg, int fd, const struct failure *f), void *arg);
	/* service_inspect */
	struct op *(*inspect)(struct service *service, const char *name,
			      void (*fn)(void *arg, const char *text, const struct failure *f),
			      void *arg);
	/* peers_loads */
	struct op *(*loads)(struct peers *peers, struct service *service,
			    void (*fn)(void *arg, const char *text, const struct failure *f),
			    void *arg);
	struct peers *peers; /* NULL: this host is in no fleet */
	/* service_create, service_fork and service_delete, for the canary */
	struct op *(*create)(struct service *service, const char *tenant,
			     const struct sandbox_spec *spec, service_create_fn *fn, void *arg);
	struct op *(*fork)(struct service *service, const char *tenant, const char *id,
			   const struct fork_spec *spec,
			   void (*fn)(void *arg, const struct service_forked *forked,
				      const struct failure *f),
			   void *arg);
	struct op *(*remove)(struct service *service, const char *tenant, const char *id,
			     service_done_fn *fn, void *arg);
	struct command_rest *rest; /* filled in by long answers; NULL: they are written at once */
};

/* Runs a command. argv[0] is the first argument after the command's words; argv[argc] is NULL.
 * Writes its answer to `out` and returns 0, or returns -errno with *e filled, whose text is the
 * answer. -EINVAL also prints the command's usage. */
typedef int command_fn(const struct command_env *env, int argc, const char *const argv[], FILE *out,
		       struct err *e);

/* What the answer of a successful command waits for. */
enum command_wait {
	COMMAND_AT_ONCE,
	COMMAND_SYNC,	 /* the catalogue is on the disk, so that the change survives a power cut */
	COMMAND_BACKUP,	 /* a copy of the catalogue, whose descriptor the answer carries */
	COMMAND_INSPECT, /* a report on the VM that its last argument names */
	COMMAND_CANARY,	 /* the report of canary_start */
	COMMAND_LOADS,	 /* the loads of the fleet's hosts */
};

struct command {
	const char *words;     /* "key create" */
	const char *arguments; /* "--tier TIER --name NAME"; "" when there are none */
	const char *help;      /* one line */
	command_fn *run;       /* NULL: the command does only what `wait` says */
	int n_plain; /* number of arguments that must be given; OWN_OPTIONS: `run` parses them */
	enum command_wait wait;
};
#define OWN_OPTIONS (-1)

/* Tables of commands; a NULL in `words` ends a table. */
extern const struct command key_commands[];
extern const struct command audit_commands[];
extern const struct command host_commands[]; /* these need a service */

struct arguments {
	char text[COMMAND_BYTES_MAX];
	const char *argv[COMMAND_ARGS_MAX + 1]; /* into text; NULL-terminated */
	int argc;
};
/* Parses a request of 1 to COMMAND_ARGS_MAX texts without control characters; -EINVAL with *e
 * filled otherwise. */
int arguments_parse(struct arguments *out, const void *request, size_t len, struct err *e);

/* Finds the command in `tables` (NULL-terminated) and runs it. Writes the answer to `out` and sets
 * *wait to what must happen before it is sent. */
enum command_status command_run(const struct command *const *tables, const struct command_env *env,
				const struct arguments *args, FILE *out, enum command_wait *wait);

/* Prints the help of a command ("key create"), of all commands with the same first word ("key"), or
 * without arguments of all commands. Returns COMMAND_USAGE if there is no such command. */
enum command_status command_help(const struct command *const *tables, const struct arguments *args,
				 FILE *out);

/* --- for commands ---------------------------------------------------------------------------- */

/* An option of a command: NAME VALUE or NAME=VALUE. */
struct option_value {
	const char *name;  /* "--tier" */
	const char *value; /* NULL: not given */
};
/* Parses argv: sets the values of the `n` options, and stores the other arguments, of which there
 * must be exactly `n_rest`, in `rest`. Returns -EINVAL with *e filled otherwise. */
int command_options(int argc, const char *const argv[], struct option_value *options, size_t n,
		    const char **rest, size_t n_rest, struct err *e);
/* Lines in each part of a long answer. */
#define COMMAND_LINES 64
/* Prints a time since the epoch like "2026-11-21T20:15:00Z". */
#define COMMAND_TIME_LEN 20
void command_time(int64_t ms, char out[static COMMAND_TIME_LEN + 1]);

#endif
