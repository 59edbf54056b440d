// SPDX-License-Identifier: Apache-2.0
/*
 * Files and terminals of a fake guest: what is asked for says what happens.
 *
 * Paths: /errno/N fails so; /wait waits until the test says go; /die ends the VM; /hang-up ends the
 * connection; /garbage sends what has no place there. To get or stat: /size/N is a file of N bytes
 * (that of place i is i % 251); /more/N puts out more than it said, /less/N half of it, /zero/N
 * says it is empty; /twice says twice what it is, /none not at all, /bytes-first its bytes before.
 * To put: /early is done before all has come. To list: /many/N, /slash and /dots (bad names). A
 * commit of a hash that begins with ff is refused. Programs are paths as well. Terminals by the
 * first digit of their id: 0 says "hello", waits, says " world" and exits with 3; 1 puts out all
 * that is taken; 2 goes back in its output; 3 exits with 5 at once; 4 loses 10 bytes between
 * "hello" and "world"; all others are not there. A list has 0 to 4. Input that begins with w waits.
 */
#ifndef RAMET_TEST_UNIT_CORE_FAKE_FILES_H
#define RAMET_TEST_UNIT_CORE_FAKE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_files {
	void *guest;
	bool (*wait)(void *guest); /* false: the guest is dead */
	void (*die)(void *guest);
	/* What came last, and how it adds up. */
	uint64_t *put_bytes, *put_sum;
};

/* What a whole body of these bytes adds up to. */
uint64_t fake_sum(uint64_t sum, const uint8_t *data, size_t len);
/* False: hang up. */
bool fake_files_serve(const struct fake_files *f, int fd, uint8_t type, const uint8_t *body,
		      size_t len);

#endif
