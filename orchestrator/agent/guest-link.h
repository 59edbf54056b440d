// SPDX-License-Identifier: Apache-2.0
/*
 * A connection to the agent in a VM's guest, from the first attempt to reach the agent, through
 * requests and their answers, until it is closed or lost. Every user of the agent embeds one. All
 * callbacks come from the loop, unless a function says otherwise; each may use, close and free the
 * link.
 */
#ifndef RAMET_ORCHESTRATOR_AGENT_GUEST_LINK_H
#define RAMET_ORCHESTRATOR_AGENT_GUEST_LINK_H

#include "orchestrator/agent/agent.h"
#include "orchestrator/vm/dial.h"

enum guest_lost {
	GUEST_UNREACHED, /* no connection could be made in time */
	GUEST_BROKEN,	 /* the connection ended, or the guest broke the protocol */
	GUEST_NO_MEMORY, /* out of memory for a connection or a request */
};

struct guest_link_events {
	/* The agent is reached: requests can be sent. */
	void (*reached)(void *arg);
	void (*frame)(void *arg, const struct agent_frame *frame);
	/* The connection is gone or could not be made; a deadline still runs. `text` is valid
	 * during the call only. */
	void (*lost)(void *arg, enum guest_lost how, const char *text);
	/* The deadline has passed; the connection is unchanged. NULL if no deadline is ever set. */
	void (*late)(void *arg);
	/* All requests have been sent. May be NULL. */
	void (*sent)(void *arg);
};

/* Members are private to guest-link.c, except that others may read `agent`. */
struct guest_link {
	struct loop *loop;
	const struct guest_link_events *events;
	void *arg;
	struct dial *dial;   /* not NULL while trying to reach the agent */
	struct agent *agent; /* not NULL while there is a connection */
	struct loop_timer deadline;
	bool paused; /* if set without a connection, the next one starts paused */
};

/* Initializes a link without a connection. */
void guest_link_init(struct guest_link *l, struct loop *loop,
		     const struct guest_link_events *events, void *arg);
/* Tries to reach the agent, as long as dial_start does; calls `reached` or `lost`. */
void guest_link_dial(struct guest_link *l, struct vmproc *vm, uint32_t ms, bool while_working);
/* Stops trying to reach the agent. An existing connection stays. */
void guest_link_cancel_dial(struct guest_link *l);
/* Takes over an open connection, without changing whether it is paused. */
void guest_link_take(struct guest_link *l, struct agent *agent);
/* Returns the open connection, which the caller then owns, or NULL. It reports to the link until
 * the caller changes that with agent_set_events. */
struct agent *guest_link_release(struct guest_link *l);

/* Sends the request to the agent and takes ownership of its bytes. If it could not be encoded,
 * calls `lost` at once with GUEST_NO_MEMORY, and returns false. */
bool guest_link_send(struct guest_link *l, struct agent_bytes request);
/* Like guest_link_send, for a request without a payload. */
bool guest_link_send_plain(struct guest_link *l, enum agent_request type);

/* Calls `late` in `ms`, with or without a connection. Replaces an earlier deadline. */
void guest_link_set_deadline(struct guest_link *l, uint64_t ms);
void guest_link_clear_deadline(struct guest_link *l);
/* Pauses or resumes the connection. While it is paused, no frame is handed out, and nothing is read
 * except by a read already in flight. */
void guest_link_pause(struct guest_link *l, bool paused);

/* Closes the connection, if any. The deadline and an attempt to reach the agent continue. */
void guest_link_hang_up(struct guest_link *l);
/* Ends everything: no callback follows. Does nothing to a zeroed link. */
void guest_link_close(struct guest_link *l);

#endif
