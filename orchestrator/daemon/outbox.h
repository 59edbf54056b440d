// SPDX-License-Identifier: Apache-2.0
/*
 * The service's end of the webhooks: gives ramet-notify one event after the other, over a socket
 * that outlives both processes. The event is in the catalogue until ramet-notify is done with it,
 * so a crash of either process or of the host loses none; some may be sent twice.
 */
#ifndef RAMET_ORCHESTRATOR_DAEMON_OUTBOX_H
#define RAMET_ORCHESTRATOR_DAEMON_OUTBOX_H

#include "base/err.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/store/store.h"

struct outbox;

/* `fd` stays the caller's. `wanted`: the setting webhook_events, which must outlive the outbox. If
 * the webhooks are new, they begin with the next event. */
int outbox_new(struct outbox **out, struct loop *loop, struct store *store, int fd,
	       const char *wanted, struct err *e);
/* To be called when there are new events. Accepts NULL, like the other functions. */
void outbox_look(struct outbox *o);
/* To be called after the loop was freed. */
void outbox_free(struct outbox *o);

struct outbox_stats {
	uint64_t behind;  /* events that ramet-notify is not done with */
	uint64_t dropped; /* removed from the catalogue before they could be sent */
};
void outbox_stats(const struct outbox *o, struct outbox_stats *out);

#endif
