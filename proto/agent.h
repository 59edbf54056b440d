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
#define AGENT_VERSION	  3
#define AGENT_HEADER_SIZE 8
#define AGENT_PAYLOAD_MAX 65536u
#define AGENT_CODE_MAX	  (64u << 20) /* bytes of code in one exec */
#define AGENT_ENTROPY_LEN 64
#define AGENT_KEPT_MAX	  (1u << 20)   /* bytes last sent of a call's output, kept for an attach */
#define AGENT_AHEAD_MAX	  (256u << 10) /* bytes of its output that wait for an attach */
#define AGENT_PATHS_MAX	  64	       /* in one AGENT_TREE */
#define AGENT_PATH_MAX	  4096	       /* bytes of one path */
#define AGENT_HASH_LEN	  32	       /* SHA-256 */
#define AGENT_ID_LEN	  36	       /* a terminal's or an upload's: the host draws it */
#define AGENT_PTY_RING	  (1u << 20)   /* bytes last written to a terminal, kept for attaches */
#define AGENT_PTY_MAX	  64	       /* terminals of a guest, ended ones included */
#define AGENT_LABEL_MAX	  512	       /* bytes of a terminal's label */
#define AGENT_UPLOAD_MAX  64	       /* uploads that are open in a guest */

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
	 * What belongs to the guest that this one is a copy of ends: TCP connections to the outside
	 * are reset (those within the guest go on), uploads are dropped.
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

	/*
	 * Files. Paths are absolute and may hold any byte but zero; symbolic links are followed as
	 * open(2) does, but for the last name in AGENT_REMOVE and where said. AGENT_ERROR carries
	 * the errno of what failed (ENOENT, EISDIR, ENOTDIR, ENOSPC, EACCES, …; EINVAL for what is
	 * no regular file where one is needed). Each is served by a process of its own: a slow disk
	 * holds up nobody else; when there are too many, the next ones wait for their turn.
	 * Where AGENT_DATA follows, AGENT_ERROR may come before all of it was sent: the rest is
	 * read and dropped, so the host sends it all the same, or closes the connection.
	 */

	/*
	 * A whole file, in place of what is there: written beside it under another name, renamed
	 * over it when all has come, missing folders made (0755). Payload: u64 size, u32 mode (0:
	 * that of the file it replaces, else 0644), str path; then AGENT_DATA frames, none of them
	 * empty, whose payloads add up to `size`. Answer: AGENT_DONE. The new file belongs to the
	 * owner of the one it replaces. Nothing is left of one that fails or whose connection
	 * breaks.
	 */
	AGENT_PUT = 9,
	AGENT_DATA = 10,

	/*
	 * Bytes of a regular file. Payload: u64 offset, u64 most (0 is none), str path. Answer:
	 * AGENT_FILE, then AGENT_BYTES frames with what is there from `offset` on, up to `most`
	 * bytes, then AGENT_DONE. Of a file with a size never more than that, less when it is cut
	 * short meanwhile; one of size 0 may have bytes all the same (those of proc).
	 */
	AGENT_GET = 11,

	/* Payload: u8 1: of a symbolic link itself, str path. Answer: AGENT_FILE, AGENT_DONE. */
	AGENT_STAT = 12,

	/* Payload: str path of a folder. Answer: an AGENT_FILE for each name in it (not . and ..)
	 * in the order of their bytes, symbolic links not followed, then AGENT_DONE. */
	AGENT_LIST = 13,

	/* Payload: u8 1: a folder with all that is in it, str path. Without it, a folder must be
	 * empty. What is mounted somewhere stays: EBUSY. Answer: AGENT_DONE. */
	AGENT_REMOVE = 14,

	/* Payload: u32 mode (0: 0755), u8 1: parents too, and no error when it is there, str path.
	 * Answer: AGENT_DONE. */
	AGENT_MKDIR = 15,

	/*
	 * A file in parts. AGENT_UPLOAD opens it: str id (AGENT_ID_LEN), u32 mode, str path, as in
	 * AGENT_PUT. AGENT_PART: str id, u64 offset, u64 size; then AGENT_DATA frames; parts may
	 * come in any order, on several connections at once, and again. AGENT_COMMIT: str id, u64
	 * size of the file, str SHA-256 of it (or empty): waits for parts under way, checks both
	 * and renames it into place; EBADMSG when one is wrong or a part was never sent, and the
	 * upload stays open, as after any other error. AGENT_ABORT: str id; also one that is not
	 * there is dropped. Answer of each: AGENT_DONE. ENOENT: no such upload; EEXIST: there is
	 * one with that id; EAGAIN: AGENT_UPLOAD_MAX are open. One that was not touched for an hour
	 * is dropped.
	 */
	AGENT_UPLOAD = 16,
	AGENT_PART = 17,
	AGENT_COMMIT = 18,
	AGENT_ABORT = 19,

	/*
	 * Terminals. A session belongs to the guest and not to a connection: it outlives all of
	 * them, is in a fork's children and in a Space, and what it wrote last is kept for whoever
	 * attaches later, also after its end; then the oldest ended ones go when there are too
	 * many. ENOENT: no such session.
	 */

	/* Payload: str id (AGENT_ID_LEN), u16 cols, u16 rows (1 to 65535), str cwd (empty: that of
	 * the Python process), str label (up to AGENT_LABEL_MAX), u32 count (1 or more) and as many
	 * str argv, u32 env_count, then env_count times str name, str value. TERM is
	 * xterm-256color unless given. Answer: AGENT_DONE once the program runs. EAGAIN:
	 * AGENT_PTY_MAX run already. */
	AGENT_PTY_START = 20,

	/* Payload: str id, u64 place: how many bytes of its output the host has. Answer:
	 * AGENT_PTY_BYTES from there on (what is not kept any more is left out, which their place
	 * tells) as they come, the first at once, with no bytes when there are none now; after the
	 * end of the program and its output, AGENT_EXIT. A reader
	 * that is slow loses the oldest; the program never waits for one. ERANGE: it wrote less
	 * than `place`. */
	AGENT_PTY_ATTACH = 21,

	/* Payload: str id, then bytes as typed. Answer: AGENT_DONE when the terminal took them;
	 * EPIPE after the end of the program. */
	AGENT_PTY_INPUT = 22,

	/* Payload: str id, u16 cols, u16 rows. The program gets SIGWINCH. Answer: AGENT_DONE. */
	AGENT_PTY_RESIZE = 23,

	/* Payload: str id. SIGKILL to all of the session's processes; nothing when its program has
	 * ended. Answer: AGENT_DONE. */
	AGENT_PTY_KILL = 24,

	/* Answer: an AGENT_PTY for each session, oldest first, then AGENT_DONE. */
	AGENT_PTY_LIST = 25,

	/* The root file system grows to the size of its disk. Payload: u64 bytes of the disk, for
	 * the guest's kernel may hear of it later than the agent of this: it is waited for, up to
	 * 5 s (ETIMEDOUT). A file system that is no smaller stays as it is. Answer: AGENT_DONE. */
	AGENT_GROW = 26,
};

enum agent_answer {
	AGENT_PONG = 64,   /* u32 AGENT_VERSION */
	AGENT_STDOUT = 65, /* raw bytes */
	AGENT_STDERR = 66, /* raw bytes */
	/* i32 exit code, u8 1 when the Python state was lost. From the Python process to the agent
	 * bytes follow that come last on the call's stderr. */
	AGENT_EXIT = 67,
	AGENT_DONE = 68,  /* none */
	AGENT_ERROR = 69, /* u32 errno, str sentence */
	/* str path, u32 mode (type and permissions, as in stat), u32 uid, u32 gid, u64 size of a
	 * file or device number of a device, else 0; str content: the SHA-256 of a file's `size`
	 * bytes, the target of a symbolic link, else empty. Also empty for a file that can't be
	 * read, and for those of proc and sysfs with a size: they equal no other. Times, links
	 * between names and extended attributes are not told. */
	AGENT_ENTRY = 70,
	/* str name (of AGENT_LIST: in the folder; else the path), u32 mode (type and permissions),
	 * u32 uid, u32 gid, u64 size (of a file, else 0), i64 modified in ns, str target of a
	 * symbolic link, else empty */
	AGENT_FILE = 71,
	AGENT_BYTES = 72,     /* raw bytes of a file */
	AGENT_PTY_BYTES = 73, /* u64 place of the first of them in the session's output, bytes */
	/* str id, str label, i64 started in ms since the epoch, u8 1 when it has ended, i32 exit
	 * code */
	AGENT_PTY = 74,
};

enum agent_language {
	AGENT_PYTHON = 0,
	AGENT_BASH = 1,
};

#endif
