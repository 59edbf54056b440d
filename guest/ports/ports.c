// SPDX-License-Identifier: Apache-2.0
#include "guest/ports/ports.h"

#include <errno.h>

#include "guest/ports/relay.h"

bool ports_takes(uint8_t type)
{
	return type == AGENT_DIAL;
}

int ports_handle(struct conn *c, const struct frame *f, struct err *e)
{
	uint16_t port;
	int bad = dial_parse(f, &port, e);

	if (bad)
		return bad;
	if (c->out_len)
		return err_say(e, EPROTO, "dial: the last answer was not read yet");
	if (!relay_has_room()) {
		err_say(e, EAGAIN, "%u connections to ports of this sandbox are open already",
			RELAYS_MAX);
		conn_send_error(c, e);
		conn_become(c, CONN_ENDING);
		return 0;
	}
	relay_start(conn_detach(c), port);
	return 0;
}
