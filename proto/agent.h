// SPDX-License-Identifier: Apache-2.0
/*
 * Host <-> guest agent, over a stream (vsock port AGENT_PORT in a guest, a Unix socket in tests).
 * Both ends send frames: an 8-byte header, then `len` bytes of payload. All numbers are
 * little-endian. The host speaks first; a connection carries one operation at a time, and when the
 * operation's last frame has come the connection may carry the next one. Several connections may
 * be open at once. A frame that breaks these rules ends the connection.
 */
#ifndef RAMET_PROTO_AGENT_H
#define RAMET_PROTO_AGENT_H

#include <stdint.h>

#define AGENT_PORT	  5555
#define AGENT_VERSION	  2
#define AGENT_HEADER_SIZE 8
#define AGENT_PAYLOAD_MAX 65536u
#define AGENT_CODE_MAX	  (64u << 20) /* bytes of code in one exec */
#define AGENT_ENTROPY_LEN 64
#define AGENT_KEPT_MAX	  (1u << 20)   /* bytes last sent of a call's output, kept for an attach */
#define AGENT_AHEAD_MAX	  (256u << 10) /* bytes of its output that wait for an attach */
#define AGENT_PATHS_MAX	  64	       /* in one AGENT_TREE */
#define AGENT_PATH_MAX	  4096	       /* bytes of one path */
#define AGENT_HASH_LEN	  32	       /* SHA-256 */

/* Header: u32 len (payload bytes), u8 type, u8 zero, u16 zero. */

enum agent_request {
	/* Answered by AGENT_PONG once the Python process waits for code. Payload: none. */
	AGENT_PING = 1,

	/*
	 * Runs code in the Python process (or bash from it). Payload, in order:
	 *   u8 language (enum agent_language), u32 timeout_ms (0: none), u32 code_len, u64 call
	 *   (a number of the host's for AGENT_ATTACH), str cwd (empty: unchanged), u32 env_count,
	 *   then env_count times str name, str value
	 * (str is u32 length + bytes). Then AGENT_CODE frames whose payloads add up to code_len.
	 * Answer: AGENT_STDOUT and AGENT_STDERR frames as output comes, then one AGENT_EXIT.
	 * The calls of all connections run one after the other, in order of arrival; the code of
	 * a waiting one is left in its socket. At the time limit the code gets SIGINT, then
	 * SIGKILL; the exit code is 124.
	 */
	AGENT_EXEC = 2,
	AGENT_CODE = 3,

	/* KeyboardInterrupt / SIGINT for the running call, if there is one. Answer: AGENT_DONE. */
	AGENT_INTERRUPT = 4,

	/*
	 * Makes the guest unique before it serves: the kernel's random generator, boot id, clock,
	 * host name, OpenSSL's generator in the Python process. Payload: AGENT_ENTROPY_LEN bytes of
	 * host entropy, i64 realtime in ns, u8 user generators too (Python's random, numpy), str
	 * hostname. Answer: AGENT_DONE when every step worked, else AGENT_ERROR. While a call runs,
	 * what is in the Python process can't be reached: it is seeded before the next call's code.
	 * OpenSSL alone is not waited for either, but is before any code that comes later.
	 */
	AGENT_RESEED = 5,

	/*
	 * Goes on with a call whose connection broke (a forked guest; a host that was restarted):
	 * such a call runs on, its output waits. Payload: u64 call, as in its AGENT_EXEC, u64 bytes
	 * of its output (stdout and stderr together, as sent in order) that the host has already.
	 * Answer: as AGENT_EXEC's, from there on. The last call stays attachable after its end
	 * until the next one starts; one that did not have all of its code yet is forgotten.
	 * AGENT_ERROR: ENOENT, that call is not the last that was started; EBUSY, its connection
	 * is there; ERANGE, the bytes are not kept any more or were never sent.
	 *
	 * Kept are the last AGENT_KEPT_MAX bytes that were sent, and AGENT_AHEAD_MAX more that
	 * nobody was there to take; then the code is held up when it writes. It is let go, and
	 * its oldest output is given up, when an AGENT_EXEC or AGENT_PING waits for it, when its
	 * time limit is over and when it is interrupted: a host that does not come back stops
	 * nobody for good. So the one that wants the output attaches before it asks for anything
	 * else but AGENT_RESEED.
	 */
	AGENT_ATTACH = 7,

	/*
	 * Lists what is under some paths. Payload: u32 count, count times str path (absolute; one
	 * that is not there is no error). Answer: AGENT_ENTRY frames, a folder before what is in
	 * it, the names in a folder in the order of their bytes, then AGENT_DONE; at any point
	 * AGENT_ERROR instead. It is one list in one order, whatever the order of the paths, and
	 * a path below another one is no second time in it.
	 * Symbolic links are not followed, but for those on the way to a path. What is mounted
	 * below a path is entered only when another path is there or in it. What comes or goes
	 * while it is listed may be there or not; of a file that grows it is the first part.
	 */
	AGENT_TREE = 8,

	/* Syncs disks and powers the guest off. Answer: AGENT_DONE, then the connection ends. */
	AGENT_SHUTDOWN = 6,
};

enum agent_answer {
	AGENT_PONG = 64,   /* u32 AGENT_VERSION */
	AGENT_STDOUT = 65, /* raw bytes */
	AGENT_STDERR = 66, /* raw bytes */
	AGENT_EXIT = 67,   /* i32 exit code, u8 1 when the Python state was lost */
	AGENT_DONE = 68,   /* none */
	AGENT_ERROR = 69,  /* u32 errno, str sentence */
	/* str path, u32 mode (type and permissions, as in stat), u32 uid, u32 gid, u64 size of a
	 * file or device number of a device, else 0; str content: the SHA-256 of a file's `size`
	 * bytes, the target of a symbolic link, else empty. Also empty for a file that can't be
	 * read, and for those of proc and sysfs with a size: they equal no other. Times, links
	 * between names and extended attributes are not told. */
	AGENT_ENTRY = 70,
};

enum agent_language {
	AGENT_PYTHON = 0,
	AGENT_BASH = 1,
};

#endif
