// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of ports/: servers that listen in sandboxes. It shares ports with people who have no
 * API key, and connects to them. Nothing here knows of HTTP.
 */
#ifndef RAMET_ORCHESTRATOR_PORTS_PORTS_H
#define RAMET_ORCHESTRATOR_PORTS_PORTS_H

#include "base/num.h"
#include "orchestrator/sandbox/sandboxes.h"

/* --- shares --------------------------------------------------------------------------------- */

#define PORT_TOKEN_LEN	32
#define PORT_SHARES_MAX 64 /* of a sandbox */

/* Returns whether the PORT_TOKEN_LEN bytes at `p` are digits, as a token has them. */
static inline bool port_is_token(const char *p)
{
	uint8_t bytes[PORT_TOKEN_LEN / 2];

	return hex_bytes(bytes, sizeof(bytes), p);
}

/* A shared port: the token gives access to it and to nothing else. */
struct port_share {
	uint16_t port;
	bool is_public; /* accessible without the token, too */
	char token[PORT_TOKEN_LEN + 1];
};

/* Shares a port, or changes the access of a shared one (CHANGE_NONE: unchanged; a new share is not
 * public). A share keeps its token. Returns false, with *f filled, on failure. */
bool service_port_share(struct service *c, const char *tenant, const char *id, uint16_t port,
			enum change is_public, struct port_share *out, struct failure *f);
/* Ends a share: its token becomes invalid, and the connections that were made by its means end. */
bool service_port_unshare(struct service *c, const char *tenant, const char *id, uint16_t port,
			  struct failure *f);
/* Fills in *out. Fails with FAIL_NOT_SHARED for a port that is not shared. */
bool service_port_shared(struct service *c, const char *tenant, const char *id, uint16_t port,
			 struct port_share *out, struct failure *f);
/* Calls `each` for each share of the sandbox, by port. Returns false, with *f filled, when the
 * tenant has no such sandbox. */
bool service_port_shares(struct service *c, const char *tenant, const char *id,
			 void (*each)(void *arg, const struct port_share *share), void *arg,
			 struct failure *f);
/* Returns the tenant of a living sandbox whose port is public, or shared with this token (of `len`
 * bytes); else NULL. Shares of a tenant without a valid key admit nobody. The name is valid until
 * the caller returns to the loop. */
const char *service_port_admits(struct service *c, const char *id, uint16_t port, const char *token,
				size_t len);

/* --- connections ---------------------------------------------------------------------------- */

struct port_sink {
	void (*connected)(void *arg);
	/* Bytes of the server. */
	void (*data)(void *arg, const uint8_t *data, size_t len);
	/* The server has ended its direction. */
	void (*eof)(void *arg);
	/* Everything passed to service_port_send was sent. */
	void (*sent)(void *arg);
	/* The connection is over: both directions have ended (f NULL), or it failed. */
	void (*ended)(void *arg, const struct failure *f);
};

/* Connects to a TCP port in the sandbox. `visitor`: NULL for the tenant itself, else the number of
 * the client's address. A visitor needs the port's share: the connection ends with the share.
 * Visitors have limits of their own, in all and for each address. op_pause and op_resume apply to
 * the server's bytes; an abandoned connection is closed. A connection counts as activity in the
 * sandbox when bytes pass. */
struct op *service_port_connect(struct service *c, const char *tenant, const char *id,
				uint16_t port, const uint64_t *visitor,
				const struct port_sink *sink, void *arg);
/* Ends the connections of visitors to sandboxes whose tenants have no valid key any more. Call it
 * when a key was revoked or its grace period may have ended. */
void service_port_end_unserved(struct service *c);
/* Reports to another sink from now on. After `connected`. */
void service_port_redirect(struct op *op, const struct port_sink *sink, void *arg);
/* Sends a copy of the bytes (at least one). Only after `connected`. To bound the memory, wait for
 * `sent` before sending more. Returns false when the server takes no more bytes; it may still send
 * some. */
bool service_port_send(struct op *op, const void *data, size_t len);
/* Ends this direction once everything is sent. */
void service_port_end(struct op *op);

#endif
