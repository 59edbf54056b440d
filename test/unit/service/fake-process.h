// SPDX-License-Identifier: Apache-2.0
/*
 * Processes of a fake guest. The program, or the first digit of an id
 * that ends in zeros, selects the behaviour.
 *
 * Programs:
 *   /errno/N  cannot be started, with errno N
 *   /wait     waits for fakes_go before it runs
 *   /silent   is confirmed without a description
 *   /flood    writes as much as the reader accepts
 * Ids:
 *   1  writes as much as the reader accepts
 *   2  sends output at a lower offset than before
 *   3  is described twice by an attach and never by a stat, has ended and its stdin is closed
 *   4  sends output before its description
 *   5  ends its stream with AGENT_DONE
 *   6  is described with another id
 *   7  loses 10 bytes between "hello" and "world"
 *   8  has ended
 *   9  does not exist
 *   a  waits for fakes_go, then writes as much as the reader accepts
 * Others write "hello" to stdout, wait for fakes_go, write " world" to stderr, and are killed by
 * SIGTERM at their time limit. A list contains 0 to 2; 1 has a terminal, 2 has ended.
 */
#ifndef RAMET_TEST_UNIT_SERVICE_FAKE_PROCESS_H
#define RAMET_TEST_UNIT_SERVICE_FAKE_PROCESS_H

#include "test/unit/service/fake-files.h"

/* Returns the id of the process whose behaviour is described above under `which`. `prefix` is
 * "prc_", or "pty_" of a terminal. */
const char *fake_process_id(const char *prefix, int which);
/* Answers a request, as fake_files_serve does. */
bool fake_process_serve(const struct fake_files *f, int fd, uint8_t type, const uint8_t *body,
			size_t len);

#endif
