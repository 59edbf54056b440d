// SPDX-License-Identifier: Apache-2.0
/*
 * This host's membership: its card in etcd under a lease, and the tables of all hosts and of all
 * API keys, which are written to files whenever they change. If etcd is away, the last tables stay.
 */
#ifndef RAMET_ORCHESTRATOR_ETCD_SESSION_H
#define RAMET_ORCHESTRATOR_ETCD_SESSION_H

#include "base/err.h"
#include "orchestrator/etcd/client.h"
#include "orchestrator/etcd/order.h"
#include "orchestrator/etcd/settings.h"

#define LEASE_TTL_S  30
#define KEEPALIVE_MS 10000

struct session;

/* `certificates`: the folder of etcd-ca.pem, etcd-cert.pem and etcd-key.pem. `tables`: the
 * folder of hosts.json, keys.json and the folder `out`, in which the service offers its keys. The
 * settings must outlive the session. */
int session_new(struct session **out, const struct fleet_settings *settings,
		const char *certificates, const char *tables, struct err *e);

/* Does the work that is due, then waits until more is due or something has changed. */
void session_turn(struct session *s);
/* Returns whether there is a table for the service to start with, perhaps of an earlier process. */
bool session_has_table(const struct session *s);

/* Prints the version and the state of each member of etcd, with advice. Returns 0 if all answer. */
int session_check(const struct fleet_settings *settings, const char *certificates, struct err *e);

/* Gives the host with that name or number an order. Returns 0 once etcd has it. */
int session_order(const struct fleet_settings *settings, const char *certificates,
		  const char *tables, const char *name, const struct order *what, struct err *e);

#endif
