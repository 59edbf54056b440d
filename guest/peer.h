// SPDX-License-Identifier: Apache-2.0
/*
 * A worker's talk with the host, on the connection that it took over (worker.h): buffered answers
 * out, the data of AGENT_DATA frames in. Waits as long as the host does; a host that is gone, or
 * that breaks the protocol, ends the process with status 1.
 */
#ifndef RAMET_GUEST_PEER_H
#define RAMET_GUEST_PEER_H

#include <stdint.h>

#include "base/wire.h"

/* Begins with `unsent`, what the agent had still to send. `fd` may be non-blocking. */
void peer_init(int fd, const void *unsent, size_t len);

/* A writer for the payload of one frame; `len` is at most AGENT_PAYLOAD_MAX, and all of it is to be
 * written before the next call. */
struct wire peer_frame(uint8_t type, size_t len);
/* Room for a payload of up to AGENT_PAYLOAD_MAX bytes, which peer_send makes a frame. */
uint8_t *peer_room(void);
void peer_send(uint8_t type, size_t len);
void peer_flush(void);

/* From here on `size` bytes of data come from the host. */
void peer_expect(uint64_t size);
/* The next bytes of it: 1 or more, until the next call; 0 when all of it has come. */
size_t peer_data(const uint8_t **data);

/* The last frame; ends the process with 0. What is still to come of the data is read first. */
__attribute__((noreturn)) void peer_done(void);
__attribute__((noreturn, format(printf, 2, 3))) void peer_fail(int errnum, const char *format, ...);

#endif
