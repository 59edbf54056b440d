// SPDX-License-Identifier: Apache-2.0
/*
 * What this host knows of its cell: the hosts, from their cards in etcd, and what operators have
 * ordered for them. All of it is input: any host may have written it. A card that is damaged,
 * belongs to another fleet or collides with another is left out, and the log says why; the others
 * stay.
 */
#ifndef RAMET_ORCHESTRATOR_ETCD_VIEW_H
#define RAMET_ORCHESTRATOR_ETCD_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "orchestrator/etcd/card.h"
#include "orchestrator/etcd/order.h"
#include "orchestrator/etcd/wire.h"

#define VIEW_CLOCK_S	 5		    /* a clock may be ahead by that much */
#define VIEW_LATE_S	 30		    /* or behind: a card may also come late */
#define VIEW_GONE_KEEP_S (35ll * 24 * 3600) /* a host that is gone is forgotten after this time */

struct view;

/* `self` must outlive the view. */
struct view *view_new(const struct card *self, uint32_t cell);
void view_free(struct view *v);
/* Takes over the hosts of an earlier table. Returns false if it is not a table of this host. */
bool view_load(struct view *v, const char *text, size_t len);

/* All keys of etcd are passed to view_take between these two calls. A host without a key is gone
 * since `now`, in seconds since the epoch. */
void view_list_begin(struct view *v);
void view_list_end(struct view *v, int64_t now);
/* Takes over a pair below /ramet/CELL/. `live`: the pair has just changed. */
void view_take(struct view *v, const struct etcd_pair *pair, bool live, int64_t now);
/* Returns true once after this host's own card has vanished from etcd. */
bool view_self_lost(struct view *v);

/* Returns the host with that name or number; NULL: there is none. */
const struct fleet_host *view_find(const struct view *v, const char *host);
/* Returns the last order for the host; ORDER_SERVE if there is none. */
struct order view_order(const struct view *v, uint32_t number);

/* Adds the text of hosts.json. */
void view_hosts(const struct view *v, struct text *out);

#endif
