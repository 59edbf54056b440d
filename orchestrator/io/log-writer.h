// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the log on a thread of its own, so that a reader of standard error that stands still (a
 * pager, a full disk behind journald) does not stop the loop. Lines wait in a ring of bounded size;
 * those that find no room are dropped and counted.
 */
#ifndef RAMET_ORCHESTRATOR_IO_LOG_WRITER_H
#define RAMET_ORCHESTRATOR_IO_LOG_WRITER_H

#include <stdint.h>

#include "base/err.h"

#define LOG_RING_BYTES (256u << 10) /* a power of two; some thousand lines */

/* Takes over all lines of base/log.h; once in a process, which must not fork afterwards. What a
 * crash leaves in the ring is still written. 0, or -errno with *e filled. */
int log_writer_start(int fd, struct err *e);
/* Waits until all lines are written, for a second at most. Async-signal-safe. */
void log_writer_flush(void);
/* Returns how many lines were dropped so far. */
uint64_t log_writer_dropped(void);

#endif
