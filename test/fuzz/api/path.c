// SPDX-License-Identifier: Apache-2.0
/* The input is a method, a space and a path. If they are accepted, the result must be a route with
 * valid ids or a valid port. */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "orchestrator/api/route.h"
#include "orchestrator/http/internal.h"
#include "orchestrator/ports/port-target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_some_id(const char *id)
{
	size_t len = strlen(id);

	return id_valid("sbx_", id, len) || id_valid("pty_", id, len) ||
	       id_valid("prc_", id, len) || id_valid("ctx_", id, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *space = memchr(text, ' ', size);
	size_t method_len = space ? (size_t)(space - text) : 0;
	const char *path = text + method_len + (space != NULL);
	size_t path_len = size - (size_t)(path - text);
	struct route_match m;

	enum route_result found = route_find(&m, text, method_len, path, path_len, "eu-1");
	if (found == ROUTE_FOUND) {
		const char *brace = m.route ? strchr(m.route->pattern, '{') : NULL;

		if (!m.route || (brace != NULL) != (m.id[0][0] != 0) ||
		    (brace && strchr(brace + 1, '{')) != (m.id[1][0] != 0))
			abort();
		if (m.id[0][0] && !is_some_id(m.id[0]))
			abort();
		if (m.id[1][0] &&
		    !(strstr(m.route->pattern, "{port}") ? port_number(m.id[1], strlen(m.id[1]))
							 : is_some_id(m.id[1])))
			abort();
	}
	if (found == ROUTE_METHOD && !m.allow[0])
		abort();
	guard_host_is_ours(path, path_len, "http://ramet.example:80/");
	return 0;
}
