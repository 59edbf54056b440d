// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/peers/peer-ask.h"

#include <string.h>

#include "base/fd.h"

/* Returns whether the field is left out because this host writes it itself. */
static bool is_dropped(const struct port_ask *ask, const struct port_field *f)
{
	static const char *const ours[] = {"host", "content-length", "expect", "forwarded",
					   "ramet-warm"};
	static const char forwarded[] = "x-forwarded";

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (port_name_is(f->name, f->name_len, ours[i]))
			return true;
	if (f->name_len >= sizeof(forwarded) - 1 &&
	    memcmp(f->name, forwarded, sizeof(forwarded) - 1) == 0)
		return true;
	return port_is_hop(f->name, f->name_len, ask->fields, ask->n_fields) ||
	       !port_is_name(f->name, f->name_len) || !port_is_value(f->value, f->value_len);
}

bool peer_ask_write(struct text *out, const struct port_ask *ask, const char *fields)
{
	if (!port_ask_line(out, ask))
		return false;
	if (port_is_value(ask->authority, ask->authority_len))
		port_ask_field(out, "host", ask->authority, ask->authority_len);
	for (size_t i = 0; i < ask->n_fields; i++) {
		const struct port_field *f = &ask->fields[i];

		if (!is_dropped(ask, f))
			text_printf(out, "%.*s: %.*s\r\n", (int)f->name_len, f->name,
				    (int)f->value_len, f->value);
	}
	port_ask_field(out, "x-forwarded-for", ask->client, strlen(ask->client));
	port_ask_field(out, "x-forwarded-proto", ask->scheme, strlen(ask->scheme));
	text_puts(out, fields);
	port_ask_end(out, ask, "keep-alive");
	return true;
}
