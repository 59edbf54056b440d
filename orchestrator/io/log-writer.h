// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the log on a separate thread, so that a reader of standard error that hangs (a pager, a
 * full disk behind journald) does not block the loop. Lines wait in a ring of bounded size; lines
 * that do not fit are dropped and counted.
 */
#ifndef RAMET_ORCHESTRATOR_IO_LOG_WRITER_H
#define RAMET_ORCHESTRATOR_IO_LOG_WRITER_H

#include <stdint.h>

#include "base/err.h"

#define LOG_RING_BYTES (256u << 10) /* a power of two; some thousand lines */

/* Takes over all lines of base/log.h and writes them to `fd`. Call it once in a process, which must
 * not fork afterwards. Lines in the ring are still written when the process crashes. Returns 0, or
 * -errno with *e filled. */
int log_writer_start(int fd, struct err *e);
/* Waits until all lines are written, for a second at most. Async-signal-safe. */
void log_writer_flush(void);
/* Returns how many lines were dropped so far. */
uint64_t log_writer_dropped(void);

#endif
