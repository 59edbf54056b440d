// SPDX-License-Identifier: Apache-2.0
/* What operators have ordered for a host: the value of the host's key below /ramet/CELL/orders/.
 * The last order counts, whether the host runs or not. */
#ifndef RAMET_ORCHESTRATOR_ETCD_ORDER_H
#define RAMET_ORCHESTRATOR_ETCD_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/json/text.h"

#define ORDER_FORMAT 1

enum order_kind {
	ORDER_SERVE,  /* the host serves, as without any order */
	ORDER_DRAIN,  /* no new sandboxes */
	ORDER_FORGET, /* the host is left out of the table while it is gone */
};

struct order {
	enum order_kind kind;
	int64_t at;	  /* when the order was given, in seconds since the epoch */
	int64_t deadline; /* when the host's last sandboxes end, in the same unit; 0: never */
};

/* Returns 0, or -errno with *e filled. */
int order_read(struct order *out, const char *text, size_t len, struct err *e);
void order_write(struct text *out, const struct order *order);

/* Completes "--deadline must be". */
#define ORDER_TIME_FORM "a time like 90s, 30m, 12h or 2d"
/* Parses a time until a deadline, in seconds if it has no unit. Returns false for anything else. */
bool order_time_parse(const char *text, int64_t *seconds);

#endif
