// SPDX-License-Identifier: Apache-2.0
/*
 * AGENT_TREE from the agent's side: a process for each listing writes its answer to the connection
 * itself (tree.h), so that a slow disk or a slow host holds nobody else up.
 */
#ifndef RAMET_GUEST_LISTER_H
#define RAMET_GUEST_LISTER_H

#include "guest/conn.h"

#define LISTER_COUNT_MAX 16

/* Starts a listing; the connection is CONN_TREE until its end. 0 or -errno. */
int lister_start(struct conn *c, const struct tree_request *r, struct err *e);
/* The connection is gone. */
void lister_on_gone(struct conn *c);

#endif
