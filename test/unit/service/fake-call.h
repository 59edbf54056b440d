// SPDX-License-Identifier: Apache-2.0
/*
 * A call in a fake guest: a script that runs in its own thread. The output is retained for the
 * connections that attach. A call can be copied at any moment, as part of the copy of a guest.
 */
#ifndef RAMET_TEST_UNIT_SERVICE_FAKE_CALL_H
#define RAMET_TEST_UNIT_SERVICE_FAKE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_call;

/* Actions of a script on its guest. */
struct fake_call_ops {
	/* Waits for turn *turn (a number of fakes_go); if *turn is 0, sets it to the next one
	 * first. Returns false when the guest is dead. */
	bool (*wait)(void *guest, unsigned long *turn);
	void (*die)(void *guest);
	void (*tree)(void *guest, const char *line);
	const char *(*mark)(void *guest, const char *text); /* text NULL: only returns the mark */
};

/* Creates a call that has not started. Copies the script. */
struct fake_call *fake_call_new(uint64_t number, const char *script, const char *env);
struct fake_call *fake_call_copy(struct fake_call *from);
void fake_call_start(struct fake_call *call, const struct fake_call_ops *ops, void *guest);
/* Ends the call; all threads that wait in it or for it return. */
void fake_call_kill(struct fake_call *call);
void fake_call_free(struct fake_call *call);

bool fake_call_is_over(struct fake_call *call);
uint64_t fake_call_number(const struct fake_call *call);
/* Waits for the end of the call, whose output no longer waits for a reader. */
void fake_call_wait(struct fake_call *call);
/* Sends the call's frames to `fd`, from byte `from` of its output on. Returns true when the call
 * has ended and all frames are sent, and false when the connection is unusable. Sets *refused to
 * -EBUSY when another connection is attached, to -ERANGE when `from` is out of range, otherwise to
 * 0. */
bool fake_call_pump(struct fake_call *call, int fd, uint64_t from, int *refused);

bool fake_send_all(int fd, const void *data, size_t len);
bool fake_send_frame(int fd, uint8_t type, const void *payload, size_t len);
bool fake_send_done(int fd);
bool fake_send_errno(int fd, uint32_t errnum, const char *text);
/* With the text "as requested". */
bool fake_send_error(int fd, uint32_t errnum);

#endif
