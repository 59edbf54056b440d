// SPDX-License-Identifier: Apache-2.0
#include "guest/ports/dial-request.h"

#include <errno.h>

int dial_parse(const struct frame *f, uint16_t *port, struct err *e)
{
	struct wire w = wire_from(f->payload, f->len);

	*port = wire_get_u16(&w);
	int bad = payload_end(&w, "dial", e);
	if (bad)
		return bad;
	return *port ? 0 : err_say(e, EPROTO, "dial: port 0 can't be connected to");
}
