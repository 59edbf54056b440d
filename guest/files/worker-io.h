// SPDX-License-Identifier: Apache-2.0
/*
 * A worker's side of the connection that it took over (worker.h): sends buffered answers and
 * receives the data of AGENT_DATA frames. Blocks while the host does not read or send. If the host
 * closes the connection or breaks the protocol, the process ends with status 1.
 */
#ifndef RAMET_GUEST_FILES_WORKER_IO_H
#define RAMET_GUEST_FILES_WORKER_IO_H

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/wire.h"

/* Starts with `unsent`, bytes that the agent had not sent yet. `fd` may be non-blocking. */
void worker_io_init(int fd, const void *unsent, size_t len);

/* Adds a frame and returns a writer for its payload. `len` is at most AGENT_PAYLOAD_MAX; all of it
 * must be written before the next call. */
struct wire worker_io_frame(uint8_t type, size_t len);
/* Returns a buffer of AGENT_PAYLOAD_MAX bytes; worker_io_send makes its first `len` bytes a frame.
 */
uint8_t *worker_io_room(void);
void worker_io_send(uint8_t type, size_t len);
void worker_io_flush(void);

/* Expects `size` bytes of data from the host, or with AGENT_UNSIZED an empty frame at their end. */
void worker_io_expect(uint64_t size);
/* Receives the next bytes of that data, valid until the next call. Returns how many: 0 after the
 * last. */
size_t worker_io_data(const uint8_t **data);

/* Send the last frame, discard the rest of the data and end the process with status 0. */
__attribute__((noreturn)) void worker_io_done(void);
__attribute__((noreturn, format(printf, 2, 3))) void worker_io_fail(int errnum, const char *format,
								    ...);
__attribute__((noreturn)) static inline void worker_io_fail_err(const struct err *e)
{
	worker_io_fail(-e->code, "%s", e->text);
}
/* Reports errno as the result of doing `what` to the path. */
__attribute__((noreturn)) static inline void worker_io_fail_path(const char *what, const char *path)
{
	worker_io_fail(errno, "%s %.100s: %s", what, path, strerror(errno));
}

#endif
