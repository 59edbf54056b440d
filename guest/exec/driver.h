// SPDX-License-Identifier: Apache-2.0
/*
 * The process of an interpreter, for example Python with driver.py. The agent starts it, exchanges
 * frames of proto/agent.h with it over a private socket, and replaces it when it dies. Its frames
 * are checked as if they were the user's: the user's code runs in the same process.
 */
#ifndef RAMET_GUEST_EXEC_DRIVER_H
#define RAMET_GUEST_EXEC_DRIVER_H

#include <stdbool.h>
#include <sys/types.h>

#include "guest/exec/bash-feed.h"
#include "guest/frame.h"
#include "guest/loop.h"

enum driver_state {
	DRIVER_DOWN,	 /* not running */
	DRIVER_STARTING, /* has not reported yet that it waits for code */
	DRIVER_IDLE,	 /* waits for code */
	DRIVER_BUSY,	 /* runs code or reseeds */
};

struct driver;

struct driver_ops {
	void (*on_idle)(struct driver *d); /* after its start, and after each answer */
	void (*on_sent)(struct driver *d); /* the driver has all of the last driver_send */
	/* SIGINT reaches the code; only after driver_await_start. bash_group 0: it is Python code,
	 * which runs in the driver. */
	void (*on_started)(struct driver *d, pid_t bash_group);
	/* The exit code, and the end of the call's stderr, which is valid during the callback. */
	void (*on_exit)(struct driver *d, int32_t code, const uint8_t *last, size_t last_len);
	void (*on_reseeded)(struct driver *d, const struct err *e); /* NULL: success */
	/* A part of a result: AGENT_BUNDLE, AGENT_RESULT or AGENT_FAULT. Returns 1 when it was
	 * taken; 0 when it has to wait, so that it comes again after driver_resume; -EPROTO for one
	 * that is not allowed. */
	int (*on_part)(struct driver *d, const struct frame *f);
	/* The driver ended: `e` says how, `status` is from waitpid, `was` is its last state. */
	void (*on_gone)(struct driver *d, enum driver_state was, int status, const struct err *e);
};

/* Descriptors that the Python process gets. */
struct driver_pipes {
	int out, err; /* the write ends of its standard output and error */
	/*
	 * A sealed page with four u64: for each stream the bytes read from its pipe so far, then
	 * the number of the stream (1: stdout, 2: stderr, 0: none) whose pipe is emptied before the
	 * other one is read. From these the driver knows when text that it writes to one stream
	 * will be read after its text in the other, even while a child keeps that pipe full. The
	 * fourth is the number of results taken so far: text that follows a result waits for it.
	 */
	int progress;
};

/* What the driver of a context starts with. */
struct driver_launch {
	const char *cwd;    /* empty: the home folder */
	const uint8_t *env; /* env_count times str name, str value: variables to set */
	size_t env_len;
	uint32_t env_count;
	const char *dir; /* a folder for files of the driver, which it creates */
};

/* All fields are private to driver.c. */
struct driver {
	const struct driver_ops *ops;
	enum agent_language language;
	const struct driver_launch *launch; /* NULL: this is the default interpreter's driver */
	struct bash_feed feed;		    /* for AGENT_BASH, whose driver gets no frames */
	struct driver_pipes pipes;
	/*
	 * The driver writes one u32 per call to this pipe, as soon as SIGINT reaches the call's
	 * code: the process group of bash, or 0 for Python. The pipe is read only when that
	 * matters, so it wakes nobody while the code runs.
	 */
	struct watch starts;
	int starts_write_end;
	enum driver_state state;
	pid_t pid;
	bool dead;	   /* reaped: it gets no more frames, but its last ones are still read */
	int status;	   /* of a dead process, from waitpid */
	int left;	   /* of a dead process: bytes on ctl when it was reaped, not read yet */
	bool held;	   /* `in` has a frame that waits for driver_resume; no other is read */
	struct watch ctl;  /* fd -1: none, or the driver closed its end */
	struct watch life; /* its pidfd */
	size_t out_pos, out_len;
	size_t waits; /* bytes of the queued frame */
	struct frame_in in;
	uint8_t out[2 * FRAME_MAX]; /* a queued frame, and the next */
};

/* Writes the embedded scripts to `dir`; called once, first. Returns 0 or -errno. */
int driver_write_scripts(const char *dir, struct err *e);
/* Returns the language's name in sentences, such as "Python". */
const char *driver_name(enum agent_language language);
/* Returns 0, or -ENOPKG with *e filled when the language's program is not installed. */
int driver_find(enum agent_language language, struct err *e);
/*
 * Prepares a driver, whose process is then started by driver_start. `launch` may be NULL, and must
 * stay valid. Returns 0 or -errno; in both cases, driver_close releases what it holds.
 */
int driver_open(struct driver *d, enum agent_language language, const struct driver_launch *launch,
		const struct driver_pipes *pipes, const struct driver_ops *ops, struct err *e);
/* Releases everything. The process must not be running. */
void driver_close(struct driver *d);
/* Starts the process. Returns 0 or -errno; the ops report what happens later. */
int driver_start(struct driver *d, struct err *e);
/* Returns the process id; 0 while there is no process. */
pid_t driver_pid(const struct driver *d);

/* Sends one frame; the state becomes DRIVER_BUSY. Requires driver_taken(). */
void driver_send(struct driver *d, uint8_t type, const void *payload, size_t len);
/* Queues a frame that is sent together with the next one, which has to follow, so that the driver
 * is woken once. */
void driver_send_with_next(struct driver *d, uint8_t type, const void *payload, size_t len);
/* Returns true when the driver received all frames but a queued one. */
bool driver_taken(const struct driver *d);

/* Returns true, once per call, when SIGINT now reaches the call's code. `bash_group` is bash's
 * process group, 0 for Python. */
bool driver_started(struct driver *d, pid_t *bash_group);
/* Calls on_started when SIGINT reaches the code. */
void driver_await_start(struct driver *d);

/* Passes on a frame that on_part left waiting, and reads on. */
void driver_resume(struct driver *d);

/* Signals the driver's process group, as a terminal would. */
void driver_signal(struct driver *d, int sig);
/*
 * Makes Python notice a SIGINT that it missed. Its C handler of a signal only sets a flag, which
 * Python checks between instructions and when a system call is interrupted. If SIGINT comes just
 * before a system call, or another thread takes it, time.sleep(1000) still takes 1000 s. SIGURG
 * interrupts the system call, and other programs ignore it. Only for Python: Node's handler wakes
 * its loop, and bash, which may also miss SIGINT in `read`, has no handler of SIGURG.
 */
void driver_nudge(struct driver *d);
/* Kills the code. bash itself survives, and its other processes end with it. */
void driver_kill_code(struct driver *d);
/* Kills the process and all of its session. */
void driver_kill_session(struct driver *d);

#endif
