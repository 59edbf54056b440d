// SPDX-License-Identifier: Apache-2.0
/*
 * The Python process that runs all code (driver.py), as the agent sees it: started, spoken to over
 * a private socket in the frames of proto/agent.h, replaced when it dies. What it says is checked
 * like a stranger's word: the user's code lives in the same process.
 */
#ifndef RAMET_GUEST_DRIVER_H
#define RAMET_GUEST_DRIVER_H

#include <stdbool.h>
#include <sys/types.h>

#include "guest/frame.h"

enum driver_state {
	DRIVER_DOWN,	 /* not running */
	DRIVER_STARTING, /* did not say yet that it waits for code */
	DRIVER_IDLE,	 /* waits for code */
	DRIVER_BUSY,	 /* runs code or reseeds */
};

struct driver_ops {
	void (*on_idle)(void); /* after its start, and after each answer */
	void (*on_sent)(void); /* it took all of the last driver_send */
	/* After driver_await_start. 0: the code is Python and runs in it */
	void (*on_started)(pid_t bash_group);
	/* The code's exit code, and what comes last on its stderr: valid until it returns. */
	void (*on_exit)(int32_t code, const uint8_t *last, size_t last_len);
	void (*on_reseeded)(const struct err *e); /* NULL: it worked */
	/* It is gone; `e` says how. `status` as from waitpid. `was` is its state before. */
	void (*on_gone)(enum driver_state was, int status, const struct err *e);
};

/* Writes the embedded driver.py to `dir`/driver.py. 0 or -errno. */
int driver_init(const char *dir, const struct driver_ops *ops, struct err *e);
/* Starts the Python process. 0 or -errno; what happens later is told by the ops. */
int driver_start(struct err *e);
enum driver_state driver_state(void);
/* Of the process; 0 while there is none. */
pid_t driver_pid(void);

/* Sends one frame; the state becomes BUSY. Only when the one before was taken (driver_taken). */
void driver_send(uint8_t type, const void *payload, size_t len);
/* The same, but it waits to go out together with the next one, which has to follow: the driver is
 * woken once. */
void driver_send_with_next(uint8_t type, const void *payload, size_t len);
bool driver_taken(void);

/* True when SIGINT finds the code of the running call now; once for each. `bash_group` is bash's
 * process group, 0 for Python. */
bool driver_started(pid_t *bash_group);
/* Has on_started called when it does. */
void driver_await_start(void);

/* Signals the driver's process group, as a terminal does. */
void driver_signal(int sig);

#endif
