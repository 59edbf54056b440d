// SPDX-License-Identifier: Apache-2.0
/*
 * A connection to the agent in a VM's guest: from the first attempt to reach it, over the requests
 * and their answers, until it is closed or lost. Whoever asks a guest for something embeds one.
 * All callbacks come from the loop, unless a function says otherwise; each may use, close and free
 * the link.
 */
#ifndef RAMET_ORCHESTRATOR_AGENT_GUEST_LINK_H
#define RAMET_ORCHESTRATOR_AGENT_GUEST_LINK_H

#include "orchestrator/agent/agent.h"
#include "orchestrator/vm/dial.h"

enum guest_lost {
	GUEST_UNREACHED, /* no connection could be made in time */
	GUEST_BROKEN,	 /* the connection ended, or the guest broke the protocol */
	GUEST_NO_MEMORY, /* for a connection or a request */
};

struct guest_link_events {
	/* The agent is reached: requests can be sent. */
	void (*reached)(void *arg);
	void (*frame)(void *arg, const struct agent_frame *frame);
	/* There is no connection any more; a deadline still runs. `text` is good during the call
	 * only. */
	void (*lost)(void *arg, enum guest_lost how, const char *text);
	/* The deadline has passed; the connection is as it was. NULL: none is ever set. */
	void (*late)(void *arg);
	/* All requests have left for the guest. May be NULL. */
	void (*sent)(void *arg);
};

/* Its members are for guest-link.c; `agent` may be asked by others. */
struct guest_link {
	struct loop *loop;
	const struct guest_link_events *events;
	void *arg;
	struct dial *dial;   /* not NULL while the agent is being reached */
	struct agent *agent; /* not NULL while there is a connection */
	struct loop_timer deadline;
	bool paused; /* the next connection is paused from its start */
};

/* Makes a link without a connection. */
void guest_link_init(struct guest_link *l, struct loop *loop,
		     const struct guest_link_events *events, void *arg);
/* Tries to reach the agent for `limit_ms`; `reached` or `lost` follows. */
void guest_link_dial(struct guest_link *l, struct vmproc *vm, uint32_t limit_ms);
/* The same, until the VM process has made no progress for `still_ms`. */
void guest_link_dial_while_working(struct guest_link *l, struct vmproc *vm, uint32_t stalled_ms);
/* Stops trying to reach the agent. A connection that is there stays. */
void guest_link_cancel_dial(struct guest_link *l);
/* Takes over an open connection, paused or not as it is. */
void guest_link_take(struct guest_link *l, struct agent *agent);
/* Returns the open connection, which is the caller's from here on, or NULL. It keeps reporting to
 * the link until agent_set_events. */
struct agent *guest_link_release(struct guest_link *l);

/*
 * Sends `bytes`, taken over, to the agent that is reached. `encoded` is the result of encoding
 * them: when it is negative there are none, and `lost` is called at once with GUEST_NO_MEMORY.
 * Returns false in that case.
 */
bool guest_link_send(struct guest_link *l, int encoded, uint8_t *bytes, size_t len);
/* The same with a request that is only a type. */
bool guest_link_send_plain(struct guest_link *l, enum agent_request type);

/* `late` is called in `ms`, whether there is a connection or not; replaces an earlier deadline. */
void guest_link_set_deadline(struct guest_link *l, uint64_t ms);
void guest_link_clear_deadline(struct guest_link *l);
/* While paused no frame is handed out, and nothing is read beyond what already was asked for. */
void guest_link_pause(struct guest_link *l, bool paused);

/* Closes a connection that is there; the deadline and an attempt to reach the agent stay. */
void guest_link_hang_up(struct guest_link *l);
/* Ends all of it: no callback follows. Does nothing to a zeroed link. */
void guest_link_close(struct guest_link *l);

#endif
