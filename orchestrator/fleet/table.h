// SPDX-License-Identifier: Apache-2.0
/*
 * The table of the fleet's hosts, which the file hosts.json holds (docs/fleet.md). Whoever writes
 * the file replaces it by rename(2). The file is input: a damaged one is refused with the reason.
 */
#ifndef RAMET_ORCHESTRATOR_FLEET_TABLE_H
#define RAMET_ORCHESTRATOR_FLEET_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/err.h"

#define FLEET_FORMAT	   1
#define FLEET_HOSTS_MAX	   4096
#define FLEET_TABLE_BYTES  (4u << 20) /* maximum size of the file: a host has up to 560 bytes */
#define FLEET_NAME_MAX	   63
#define FLEET_CERT_BYTES   32  /* bytes of a certificate's SHA-256 */
#define FLEET_DEAD_AFTER_S 600 /* a host that is gone for longer counts as lost, with its VMs */

struct fleet_keys;

struct fleet_host {
	uint32_t number;
	char name[FLEET_NAME_MAX + 1];	    /* also the common name of its certificate */
	char address[ADDRESS_PORT_MAX + 1]; /* address of its peer port */
	struct sockaddr_storage at;
	socklen_t at_len;
	char region[FLEET_NAME_MAX + 1], zone[FLEET_NAME_MAX + 1], version[FLEET_NAME_MAX + 1];
	bool draining;	    /* gets no new sandboxes */
	int64_t deadline;   /* end of the drain, in seconds since the epoch; 0: none */
	int64_t seen, gone; /* in seconds since the epoch; 0: unknown, or not gone */
	bool has_cert;
	uint8_t cert[FLEET_CERT_BYTES];
};

struct fleet_table {
	char fleet[FLEET_NAME_MAX + 1];
	uint32_t cell;
	const struct fleet_host *self;
	size_t n;
	struct fleet_host hosts[]; /* by number */
};

/* Reads the object of one host. Returns 0, or -errno with *e filled. */
int fleet_host_read(struct fleet_host *h, const char *text, size_t len, struct err *e);
/* Reads the text of hosts.json. Returns 0 with a table that the caller frees with free(3), or
 * -errno with *e filled. */
int fleet_table_read(struct fleet_table **out, const char *text, size_t len, struct err *e);
/* Both return NULL when there is no such host. */
const struct fleet_host *fleet_table_host(const struct fleet_table *t, uint32_t number);
const struct fleet_host *fleet_table_named(const struct fleet_table *t, const char *name);

/* Returns whether another host of this cell made the id, and sets *host to it, also if the table
 * calls that host gone, since it may be reached nevertheless; NULL: it is not, or no longer, in the
 * table. If the id does not say who made it, this host's catalogue decides. */
bool fleet_is_elsewhere(const struct fleet_table *t, const struct fleet_keys *keys, const char *id,
			size_t len, const struct fleet_host **host);
/* Returns whether a host that cannot be reached counts as lost. `now`: seconds since the epoch. */
bool fleet_is_lost(const struct fleet_host *h, int64_t now);

#endif
