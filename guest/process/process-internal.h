// SPDX-License-Identifier: Apache-2.0
/* Shared by process.c (lifetime and requests) and process-io.c (output and input). */
#ifndef RAMET_GUEST_PROCESS_PROCESS_INTERNAL_H
#define RAMET_GUEST_PROCESS_PROCESS_INTERNAL_H

#include "guest/conn.h"
#include "guest/process/output-log.h"

enum process_state {
	PROCESS_STARTS, /* the program does not run yet */
	PROCESS_RUNS,
	PROCESS_ENDED, /* all of its output is in the log */
};

struct process;

/* A source of output: a pipe, or a terminal's master, which is written to as well. */
struct process_out {
	struct watch watch; /* fd -1: closed */
	struct process *process;
	unsigned stream;
};

struct process {
	struct list node;
	uint64_t number; /* in the order of starts, from 1 */
	char id[AGENT_ID_LEN + 1];
	char label[AGENT_LABEL_MAX + 1];
	char user[AGENT_USER_MAX + 1];
	int64_t started_ms, ended_ms; /* since the epoch */
	uint32_t timeout_ms;	      /* 0: none */
	/* When the time limit's next step is due, on the loop's clock; 0: never. */
	int64_t due_ms;
	enum process_state state;
	bool tty;
	bool had_stdin; /* it was started with AGENT_PROC_STDIN */
	int32_t exit_code;
	uint8_t signal;
	bool timed_out;
	pid_t pid;	 /* the program's, also the session's id */
	bool exited;	 /* the program is a zombie, unless it is reaped */
	bool reaped;	 /* another process may have its pid */
	bool tty_closed; /* no process has the terminal open; one may open it again */
	bool held;	 /* a listener holds the program: its output is not read */
	struct process_out outs[LOG_STREAMS]; /* with a terminal: the first only */
	struct watch input;		      /* a pipe to stdin; fd -1: none, or closed */
	struct watch life;		      /* of the pidfd */
	/* The report of the start; fd -1: the start is over. */
	struct watch report;
	struct conn *starter;		/* NULL: gone */
	struct list listeners, writers; /* connections, by turn; writers in order of arrival */
	struct output_log log;
};

/* End the operation of a connection, with AGENT_DONE or with an error. */
void process_done(struct conn *c);
void process_refuse(struct conn *c, const struct err *e);

/* Sends AGENT_PROC. */
void process_send(const struct process *p, struct conn *c);

/* Makes a connection a listener, which gets all output from c->output_offset on. */
void process_listen(struct process *p, struct conn *c);
/* Sends a listener as much output as it takes, and the exit after the last. This may close it. */
void process_feed(struct process *p, struct conn *c);
void process_feed_all(struct process *p);
/* Ends a listener's operation, even if it has not received all output. */
void process_send_exit(struct process *p, struct conn *c);

/* Handle events of outs and input. */
void process_on_out(struct watch *w, uint32_t events);
void process_on_input(struct watch *w, uint32_t events);
/* Reads what the program wrote before it ended, but does not wait for other processes that have its
 * streams open and continue to write. */
void process_drain(struct process *p);

/* Writes waiting input as far as the program's stdin takes it; the rest follows when it takes more.
 */
void process_write_all(struct process *p);
/* Closes stdin and refuses waiting input, which nobody will read. */
void process_end_input(struct process *p);
/* Returns whether the program may still get input. */
bool process_has_input(const struct process *p);
/* Says why the process takes no input. Returns -EPIPE. */
int process_no_input(const struct process *p, struct err *e);
/* Watches the program's streams for the events needed now. */
void process_watch(struct process *p);

#endif
