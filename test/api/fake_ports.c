// SPDX-License-Identifier: Apache-2.0
/* Ports of the fake core: shares, and servers that do not exist. Connections to real servers are
 * tested in test/guest_api. */
#include <string.h>

#include "orchestrator/ports/ports.h"
#include "test/api/fake_call.h"

static struct port_share only; /* the only share, of any sandbox; port 0: none */

static bool exists(struct core *c, const char *tenant, const char *id, struct failure *f)
{
	struct sandbox_view view;

	return core_view(c, tenant, id, &view, f);
}

bool core_port_share(struct core *c, const char *tenant, const char *id, uint16_t port,
		     enum change is_public, struct port_share *out, struct failure *f)
{
	if (!exists(c, tenant, id, f))
		return false;
	only.port = port;
	if (is_public != CHANGE_NONE)
		only.is_public = is_public == CHANGE_TRUE;
	memset(only.token, 'a', PORT_TOKEN_LEN);
	*out = only;
	return true;
}

bool core_port_shared(struct core *c, const char *tenant, const char *id, uint16_t port,
		      struct port_share *out, struct failure *f)
{
	if (!exists(c, tenant, id, f))
		return false;
	*out = only;
	if (only.port != port)
		failure_set(f, FAIL_NOT_SHARED, 0, "port %u is not shared", port);
	return only.port == port;
}

bool core_port_unshare(struct core *c, const char *tenant, const char *id, uint16_t port,
		       struct failure *f)
{
	struct port_share share;
	bool was = core_port_shared(c, tenant, id, port, &share, f);

	if (was)
		memset(&only, 0, sizeof(only));
	return was;
}

bool core_port_shares(struct core *c, const char *tenant, const char *id,
		      void (*each)(void *arg, const struct port_share *share), void *arg,
		      struct failure *f)
{
	if (!exists(c, tenant, id, f))
		return false;
	if (only.port)
		each(arg, &only);
	return true;
}

const char *core_port_admits(struct core *c, const char *id, uint16_t port, const char *token,
			     size_t len)
{
	return only.port == port && only.is_public ? "tnt_public" : NULL;
}

struct core_call *core_port_connect(struct core *c, const char *tenant, const char *id,
				    uint16_t port, const uint64_t *visitor,
				    const struct port_sink *sink, void *arg)
{
	struct core_call *call = call_new(c, DONE, arg);

	call->done = sink->ended;
	call->failing = true;
	if (visitor || exists(c, tenant, id, &call->failure))
		failure_set(&call->failure, FAIL_PORT_CLOSED, 0,
			    "nothing listens on port %u in the sandbox", port);
	return call;
}

void core_port_end_unserved(struct core *c)
{
}

bool core_port_send(struct core_call *call, const void *data, size_t len)
{
	return false;
}

void core_port_end(struct core_call *call)
{
}

void core_port_redirect(struct core_call *call, const struct port_sink *sink, void *arg)
{
}
