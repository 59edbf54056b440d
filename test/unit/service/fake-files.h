// SPDX-License-Identifier: Apache-2.0
/*
 * Files of a fake guest. The requested path selects the behaviour.
 *
 * Paths in all requests:
 *   /errno/N      fails with errno N
 *   /wait         waits for fakes_go
 *   /die          ends the VM
 *   /hang-up      closes the connection
 *   /garbage      sends a frame of an unexpected type
 * get and stat:
 *   /size/N       a file of N bytes; the byte at offset i is i % 251
 *   /more/N       sends more than the N bytes that it announces
 *   /less/N       sends half of the N bytes that it announces
 *   /zero/N       announces 0 bytes and sends N
 *   /twice        sends its description twice
 *   /none         sends no description
 *   /bytes-first  sends bytes before its description
 * put:
 *   /early        confirms the put before all data has arrived
 * list:
 *   /many/N       N entries
 *   /worn/N       N entries, then an error
 *   /slash /dots /empty  entries with invalid names
 * pack:
 *   /size/N       an archive of N bytes
 *   /worn/N       N bytes, then an error
 *   /wrong        sends a frame of an unexpected type
 * watch:
 *   /unready /ready-twice  the first event is not the only AGENT_WATCHING
 *   /flood        sends as many events as the reader accepts
 *   /changes      an event of each kind, then the end
 *   others        a rename, then, after fakes_go, the end
 */
#ifndef RAMET_TEST_UNIT_SERVICE_FAKE_FILES_H
#define RAMET_TEST_UNIT_SERVICE_FAKE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_files {
	void *guest;
	bool (*wait)(void *guest); /* returns false when the guest is dead */
	void (*die)(void *guest);
	/* Size and fake_sum of the last put, or of all input of processes. */
	uint64_t *put_bytes, *put_sum;
};

/* Returns the checksum `sum`, which starts at 0, continued over `data`. */
uint64_t fake_sum(uint64_t sum, const uint8_t *data, size_t len);
/* Answers a request. Returns false when the caller must close the connection. */
bool fake_files_serve(const struct fake_files *f, int fd, uint8_t type, const uint8_t *body,
		      size_t len);

#endif
