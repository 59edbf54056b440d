// SPDX-License-Identifier: Apache-2.0
/* Shared by pty.c (lifetime and requests) and pty-io.c (output and input). */
#ifndef RAMET_GUEST_TERMINAL_PTY_INTERNAL_H
#define RAMET_GUEST_TERMINAL_PTY_INTERNAL_H

#include "guest/conn.h"

enum pty_state {
	PTY_STARTS, /* its program is not running yet */
	PTY_RUNS,
	PTY_ENDED, /* all of its output is in the ring */
};

struct pty {
	struct list node;
	char id[AGENT_ID_LEN + 1];
	char label[AGENT_LABEL_MAX + 1];
	int64_t started_ms; /* since the epoch */
	enum pty_state state;
	int32_t exit_code;
	pid_t pid; /* the program's, also the session's id */
	bool reaped;
	bool closed;	      /* no process has the terminal open; one may open it again */
	struct watch master;  /* fd -1: closed */
	struct watch life;    /* of the pidfd */
	struct watch report;  /* of the start; fd -1: it is over */
	struct conn *starter; /* NULL: gone */
	struct list listeners, typists; /* connections, by turn; typists in order of arrival */
	uint64_t total;			/* bytes of output so far */
	uint8_t *ring;			/* the last AGENT_PTY_RING of them */
};

/* End the operation of a connection, with AGENT_DONE or with an error. */
void pty_done(struct conn *c);
void pty_refuse(struct conn *c, const struct err *e);

/* Sends a listener as much output as it takes, and AGENT_EXIT after the last. This may close it. */
void pty_feed(struct pty *p, struct conn *c);
void pty_feed_all(struct pty *p);
/* Sends the first answer to a listener that already has all output: an empty frame. */
void pty_send_empty(struct pty *p, struct conn *c);
/* Ends a listener's operation, even if it has not received all output. */
void pty_send_exit(struct pty *p, struct conn *c);

/* Types waiting input as far as the terminal takes it; the rest follows when it takes more. */
void pty_type_all(struct pty *p);
/* Refuses waiting input, which nobody will read. */
void pty_end_typing(struct pty *p);
/* Watches the master for the events needed now. */
void pty_watch_master(struct pty *p);

#endif
