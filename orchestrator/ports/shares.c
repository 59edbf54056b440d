// SPDX-License-Identifier: Apache-2.0
/*
 * Shared ports. Each has a random token, kept with the sandbox in the catalogue, so that links stay
 * valid when the service restarts. A fork's children begin without shares: who got a link to the
 * parent has no access to them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "base/random.h"
#include "orchestrator/ports/internal.h"
#include "orchestrator/sandbox/service.h"
#include "orchestrator/sandbox/life.h"
#include "orchestrator/store/keys.h"

#define SHARED	       "port.shared" /* the event of a new or changed share */
#define SHARE_TEXT_MAX (sizeof("65535:1: ") + PORT_TOKEN_LEN)

/* --- in the catalogue ----------------------------------------------------------------------- */

/* Reads "PORT:PUBLIC:TOKEN". Returns its length, or 0 when it is malformed. */
static size_t share_read(struct port_share *share, const char *text)
{
	unsigned port, is_public;
	int at = 0;

	if (sscanf(text, "%5u:%1u:%n", &port, &is_public, &at) != 2 || !at || !port ||
	    port > UINT16_MAX || is_public > 1 || strlen(text + at) < PORT_TOKEN_LEN ||
	    !port_is_token(text + at))
		return 0;
	*share = (struct port_share){.port = (uint16_t)port, .is_public = is_public};
	memcpy(share->token, text + at, PORT_TOKEN_LEN);
	return (size_t)at + PORT_TOKEN_LEN;
}

static struct port_share *share_find(const struct ports_sandbox *p, uint16_t port)
{
	for (size_t i = 0; i < p->n_shares; i++)
		if (p->shares[i].port == port)
			return &p->shares[i];
	return NULL;
}

/* Inserts the share in the order of ports. Returns false when memory is short. */
static bool share_add(struct ports_sandbox *p, const struct port_share *share)
{
	size_t at = 0;
	void *more = realloc(p->shares, (p->n_shares + 1) * sizeof(*p->shares));

	if (!more)
		return false;
	p->shares = more;
	while (at < p->n_shares && p->shares[at].port < share->port)
		at++;
	memmove(&p->shares[at + 1], &p->shares[at], (p->n_shares - at) * sizeof(*p->shares));
	p->shares[at] = *share;
	p->n_shares++;
	return true;
}

static void share_remove(struct ports_sandbox *p, struct port_share *share)
{
	size_t after = (size_t)(p->shares + p->n_shares - share) - 1;

	memmove(share, share + 1, after * sizeof(*share));
	p->n_shares--;
}

void shares_read(struct ports_sandbox *p, const char *text)
{
	struct port_share share;
	size_t len;

	while (p->n_shares < PORT_SHARES_MAX && (len = share_read(&share, text)) != 0) {
		if (!share_find(p, share.port) && !share_add(p, &share))
			return;
		text += len;
		text += *text == ' ';
	}
}

/* Writes the shares in the form that shares_read reads. The caller frees the result; NULL: no
 * memory. */
static char *shares_write(const struct ports_sandbox *p)
{
	size_t room = p->n_shares * SHARE_TEXT_MAX + 1, len = 0;
	char *text = malloc(room);

	if (!text)
		return NULL;
	text[0] = '\0';
	for (size_t i = 0; i < p->n_shares; i++)
		len += (size_t)snprintf(text + len, room - len, "%s%u:%d:%s", i ? " " : "",
					p->shares[i].port, p->shares[i].is_public,
					p->shares[i].token);
	return text;
}

/* `event`: the name of the change that is recorded. */
static void note(const struct sandbox *s, const char *event, const struct port_share *share)
{
	bool shared = strcmp(event, SHARED) == 0;
	char text[40];

	snprintf(text, sizeof(text), "port %u%s", share->port,
		 !shared	    ? ""
		 : share->is_public ? ", public"
				    : ", with a token");
	log_info("sandbox %s: %s %s", s->id, shared ? "shared" : "no longer shared:", text);
	life_note(s, (struct audit_event){.name = event, .text = text});
}

/* Records the shares in the catalogue, after the change of one that `event` names. Returns false,
 * with *f filled, on failure. */
static bool record(struct sandbox *s, const char *event, const struct port_share *share,
		   struct failure *f)
{
	char *text = shares_write(ports_of(s));
	struct err e;
	int ret;

	if (!text)
		return failure_no_memory(f);
	note(s, event, share);
	ret = store_sandbox_ports(s->service->store, s->id, text, &e);
	free(text);
	return ret == 0 || failure_catalogue(f, &e);
}

/* --- requests ------------------------------------------------------------------------------- */

static bool add_new(struct sandbox *s, uint16_t port, bool is_public, struct failure *f)
{
	struct ports_sandbox *p = ports_of(s);
	struct port_share share = {.port = port, .is_public = is_public};

	if (p->n_shares >= PORT_SHARES_MAX) {
		failure_set(f, FAIL_TOO_MANY, 0,
			    "sandbox %s shares %d ports already: end one of these shares first",
			    s->id, PORT_SHARES_MAX);
		return false;
	}
	random_id(share.token, sizeof(share.token), "");
	if (!share_add(p, &share))
		return failure_no_memory(f);
	if (record(s, SHARED, &share, f))
		return true;
	share_remove(p, share_find(p, port));
	return false;
}

static bool change(struct sandbox *s, struct port_share *share, bool is_public, struct failure *f)
{
	bool was = share->is_public;

	share->is_public = is_public;
	if (record(s, SHARED, share, f))
		return true;
	share->is_public = was;
	return false;
}

bool service_port_share(struct service *c, const char *tenant, const char *id, uint16_t port,
			enum change is_public, struct port_share *out, struct failure *f)
{
	struct sandbox *s = sandbox_find(c, tenant, id, f);
	struct port_share *share = s ? share_find(ports_of(s), port) : NULL;
	bool wanted =
		is_public == CHANGE_NONE ? share && share->is_public : is_public == CHANGE_TRUE;

	if (!s)
		return false;
	if (!share || share->is_public != wanted) {
		if (share ? !change(s, share, wanted, f) : !add_new(s, port, wanted, f))
			return false;
		/* Some of the connections may have been made without the token. */
		if (!wanted)
			tunnels_end_shared(s, port);
	}
	*out = *share_find(ports_of(s), port);
	sandbox_touch(s);
	return true;
}

static struct port_share *find(struct sandbox *s, uint16_t port, struct failure *f)
{
	struct port_share *share = share_find(ports_of(s), port);

	if (!share)
		failure_set(f, FAIL_NOT_SHARED, 0, "port %u of sandbox %s is not shared", port,
			    s->id);
	return share;
}

bool service_port_unshare(struct service *c, const char *tenant, const char *id, uint16_t port,
			  struct failure *f)
{
	struct sandbox *s = sandbox_find(c, tenant, id, f);
	struct port_share *share = s ? find(s, port, f) : NULL;

	if (!share)
		return false;
	const struct port_share was = *share;
	share_remove(ports_of(s), share);
	if (!record(s, "port.unshared", &was, f)) {
		share_add(ports_of(s), &was); /* there is room for it */
		return false;
	}
	tunnels_end_shared(s, port);
	return true;
}

bool service_port_shared(struct service *c, const char *tenant, const char *id, uint16_t port,
			 struct port_share *out, struct failure *f)
{
	struct sandbox *s = sandbox_find(c, tenant, id, f);
	const struct port_share *share = s ? find(s, port, f) : NULL;

	if (share)
		*out = *share;
	return share;
}

bool service_port_shares(struct service *c, const char *tenant, const char *id,
			 void (*each)(void *arg, const struct port_share *share), void *arg,
			 struct failure *f)
{
	const struct sandbox *s = sandbox_find(c, tenant, id, f);

	if (!s)
		return false;
	for (size_t i = 0; i < ports_of(s)->n_shares; i++)
		each(arg, &ports_of(s)->shares[i]);
	return true;
}

/* Compares in constant time, so that the time does not tell how much of a guess was right. */
static bool same_token(const char *a, const char *b)
{
	unsigned char differs = 0;

	for (size_t i = 0; i < PORT_TOKEN_LEN; i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return !differs;
}

const char *service_port_admits(struct service *c, const char *id, uint16_t port, const char *token,
				size_t len)
{
	const struct sandbox *s = sandbox_of_any(c, id);
	const struct port_share *share = s ? share_find(ports_of(s), port) : NULL;

	if (share && keys_serve(c->keys, s->tenant) &&
	    (share->is_public || (len == PORT_TOKEN_LEN && same_token(share->token, token))))
		return s->tenant;
	return NULL;
}
