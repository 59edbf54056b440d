// SPDX-License-Identifier: Apache-2.0
/* Shared by pty.c (life and requests) and pty-io.c (who listens and who types). */
#ifndef RAMET_GUEST_PTY_INTERNAL_H
#define RAMET_GUEST_PTY_INTERNAL_H

#include "guest/conn.h"

enum pty_state {
	PTY_STARTS, /* its program does not run yet */
	PTY_RUNS,
	PTY_ENDED, /* and all of its output is in the ring */
};

struct pty {
	struct list node;
	char id[AGENT_ID_LEN + 1];
	char label[AGENT_LABEL_MAX + 1];
	int64_t started_ms; /* since the epoch */
	enum pty_state state;
	int32_t exit_code;
	pid_t pid; /* of the program, and the session's id */
	bool reaped;
	bool closed;			/* by all that had it open, who may open it again */
	struct watch master;		/* fd -1: closed */
	struct watch life;		/* a pidfd */
	struct watch report;		/* of the start; -1: over */
	struct conn *starter;		/* NULL: gone */
	struct list listeners, typists; /* connections, by turn: the latter in order of arrival */
	uint64_t total;			/* bytes that were ever written to it */
	uint8_t *ring;			/* the last AGENT_PTY_RING of them */
};

/* Ends the operation of a connection that has to do with a terminal. */
void pty_done(struct conn *c);
void pty_refuse(struct conn *c, const struct err *e);

/* Sends a listener what it takes, and the end when all of it was sent. It may be lost. */
void pty_feed(struct pty *p, struct conn *c);
void pty_feed_all(struct pty *p);
/* The first answer to a listener that has all there is. */
void pty_tell_silence(struct pty *p, struct conn *c);
/* Ends a listener's operation, whatever it has. */
void pty_tell_exit(struct pty *p, struct conn *c);

/* Types what waits, as far as the terminal takes it; the rest when it takes more. */
void pty_type_all(struct pty *p);
/* Refuses all that waits: nobody will read it. */
void pty_end_typing(struct pty *p);
/* Watches the master for what is needed now. */
void pty_watch_master(struct pty *p);

#endif
