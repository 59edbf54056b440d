// SPDX-License-Identifier: Apache-2.0
/* Parses AGENT_DIAL and trusts nothing in it. */
#ifndef RAMET_GUEST_PORTS_DIAL_REQUEST_H
#define RAMET_GUEST_PORTS_DIAL_REQUEST_H

#include "guest/frame.h"

/* Sets *port, which is not 0. Returns 0 or -EPROTO. */
int dial_parse(const struct frame *f, uint16_t *port, struct err *e);

#endif
