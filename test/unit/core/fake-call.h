// SPDX-License-Identifier: Apache-2.0
/*
 * A call in a fake guest: a script in a thread of its own, its output kept for whoever is attached,
 * and a copy of it as it is at one moment, for the copy of a guest.
 */
#ifndef RAMET_TEST_UNIT_CORE_FAKE_CALL_H
#define RAMET_TEST_UNIT_CORE_FAKE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_call;

/* What a script may do to its guest. */
struct fake_call_ops {
	/* For the turn, which is set when it is 0; false: the guest is dead. */
	bool (*wait)(void *guest, unsigned long *turn);
	void (*die)(void *guest);
	void (*tree)(void *guest, const char *line);
	const char *(*mark)(void *guest, const char *text); /* NULL: only says what it is */
};

/* Copies the script. */
struct fake_call *fake_call_new(uint64_t number, const char *script, const char *env);
struct fake_call *fake_call_copy(struct fake_call *from);
void fake_call_start(struct fake_call *call, const struct fake_call_ops *ops, void *guest);
/* Whoever waits in it or for it returns. */
void fake_call_kill(struct fake_call *call);
void fake_call_free(struct fake_call *call);

bool fake_call_is_over(struct fake_call *call);
uint64_t fake_call_number(const struct fake_call *call);
/* Until it has ended; it is not held up any more. */
void fake_call_wait(struct fake_call *call);
/* Sends its frames to `fd`, from byte `from` of its output on. True when it has ended and all is
 * sent, false when the connection is of no more use, -EBUSY or -ERANGE in *refused. */
bool fake_call_pump(struct fake_call *call, int fd, uint64_t from, int *refused);

bool fake_send_all(int fd, const void *data, size_t len);
bool fake_send_frame(int fd, uint8_t type, const void *payload, size_t len);

#endif
