// SPDX-License-Identifier: Apache-2.0
/*
 * Protocol between host and guest agent, over a stream (vsock port AGENT_PORT in a guest, a Unix
 * socket in tests). Both ends send frames: an 8-byte header, then `len` bytes of payload. All
 * numbers are little-endian. The host speaks first. A connection carries one operation at a time;
 * after the operation's last frame it may carry the next one. Several connections may be open at
 * once. A frame that breaks these rules ends the connection. A request of a type that the agent
 * does not know gets AGENT_ERROR (ENOSYS), then the connection ends.
 *
 * In the payloads below, `str` is a u32 length followed by as many bytes.
 */
#ifndef RAMET_PROTO_AGENT_H
#define RAMET_PROTO_AGENT_H

#include <stdint.h>

#include "proto/versions.h"

#define AGENT_PORT	  5555
#define AGENT_HEADER_SIZE 8
#define AGENT_PAYLOAD_MAX 65536u
#define AGENT_CODE_MAX	  (64u << 20) /* bytes of code in one exec */
#define AGENT_ENTROPY_LEN 64
#define AGENT_OUTPUT_RING (1u << 20)   /* last bytes of a call's output, kept for an attach */
#define AGENT_AHEAD_MAX	  (256u << 10) /* unsent bytes of a call's output that wait for an attach */
#define AGENT_PATHS_MAX	  64	       /* in one AGENT_TREE */
#define AGENT_PATH_MAX	  4096	       /* bytes of one path */
#define AGENT_HASH_LEN	  32	       /* SHA-256 */
#define AGENT_ID_LEN	  36	       /* id of a process; the host chooses it */
#define AGENT_PROC_RING	  (1u << 20)   /* last bytes of each output stream, kept for attaches */
#define AGENT_PROC_KEPT	  (32u << 20)  /* the same of all processes that have ended, together */
#define AGENT_PROC_MAX	  256	       /* processes of a guest, ended ones included */
#define AGENT_LABEL_MAX	  512	       /* bytes of a process's label */
#define AGENT_USER_MAX	  64	       /* bytes of a user's name */
#define AGENT_BUNDLE_MAX  (8u << 20)   /* bytes of one AGENT_BUNDLE, all its frames together */
#define AGENT_CONTEXT_MAX 16	       /* contexts of a guest */
#define AGENT_UNCHANGED	  UINT32_MAX   /* a mode or owner in AGENT_CHANGE */
#define AGENT_DEPTH_MAX	  64	       /* of an AGENT_WALK */
#define AGENT_NAME_MAX	  16384 /* bytes of a name in an AGENT_WALK: 64 times 255 and a slash */
#define AGENT_OWNER_MAX	  256	/* bytes of the name of a user or group */
#define AGENT_WATCH_MAX	  16	/* AGENT_WATCH in progress in a guest */
#define AGENT_UNSIZED	  UINT64_MAX /* size of data whose end an empty AGENT_DATA marks */

/* Header: u32 len (payload bytes), u8 type, u8 zero, u16 zero. */

enum agent_request {
	/* Asks whether the Python process waits for code. Payload: none. Answer: AGENT_PONG, once
	 * it does. */
	AGENT_PING = 1,

	/*
	 * Runs code in the Python process, or in a bash that it starts. Payload, in order:
	 *   u8 language (enum agent_language), u8 flags (enum agent_exec_flag), u32 timeout_ms (0:
	 *   none), u32 code_len, u64 call (a number chosen by the host, for AGENT_ATTACH), str cwd
	 *   (empty: unchanged), u32 env_count, then env_count times str name, str value.
	 * Then AGENT_CODE frames whose payloads add up to code_len.
	 * Answer: AGENT_STDOUT and AGENT_STDERR frames as output is produced, then one AGENT_EXIT.
	 * With AGENT_EXEC_RESULTS, a Python call also sends its results and its exception:
	 * AGENT_BUNDLE frames, then AGENT_RESULT or AGENT_FAULT, in order with the output.
	 * The calls of all connections run one after the other, in order of arrival; the code of
	 * a waiting call stays in its socket. At the time limit the code gets SIGINT, then
	 * SIGKILL; the exit code is 124. AGENT_ERROR: ECHILD, the Python process ended while it
	 * started, for instance because of a file that it runs then; the sentence says what it
	 * printed.
	 */
	AGENT_EXEC = 2,
	AGENT_CODE = 3,

	/* Interrupts a call: KeyboardInterrupt or SIGINT. Payload: u64 call, as in its AGENT_EXEC
	 * (0: the running call, if any). A call that has not begun is interrupted when it begins,
	 * and one that has ended is left alone. Answer: AGENT_DONE. */
	AGENT_INTERRUPT = 4,

	/*
	 * Makes the guest unique before it serves: the kernel's random generator, boot id, clock,
	 * host name, OpenSSL's generator in the Python process. Payload: AGENT_ENTROPY_LEN bytes of
	 * host entropy, i64 realtime in ns, u8 (1: reseed the user's generators too: Python's
	 * random, numpy), str hostname. Answer: AGENT_DONE if every step succeeded, else
	 * AGENT_ERROR.
	 *
	 * The Python process cannot be reached while a call runs: its user generators are seeded
	 * before the next call's code. The answer does not wait for OpenSSL's generator, but that
	 * is seeded before any later code runs.
	 *
	 * Also ends what a copy must not continue for its original: TCP connections to the outside
	 * are reset (those within the guest continue).
	 */
	AGENT_RESEED = 5,

	/*
	 * Continues a call whose connection broke (in a forked guest, or after a restart of the
	 * host); such a call runs on, and its output waits. Payload: u64 call, as in its
	 * AGENT_EXEC, u64 offset: bytes of its output (the payloads of all frames but AGENT_EXIT,
	 * in the order sent) that the host already has. Answer: as for AGENT_EXEC, from that offset
	 * on. The last call stays attachable after its end until the next one starts. A call whose
	 * code had not completely arrived is forgotten. If the agent was killed, the one that
	 * replaced it ends the call with a note on stderr and exit code 137. AGENT_ERROR: ENOENT,
	 * that call is not the last one started; EBUSY, it still has a connection; ERANGE, the
	 * bytes at the offset are no longer kept, or were never sent.
	 *
	 * The agent keeps the last AGENT_OUTPUT_RING bytes that were sent, and up to
	 * AGENT_AHEAD_MAX more that nobody has taken; then it stops reading, and the code blocks
	 * when it writes. The agent drops this back-pressure, and the oldest output, when an
	 * AGENT_EXEC or AGENT_PING waits for the call, when the call's time limit is over and when
	 * it is interrupted, so that a host that does not return blocks nobody for good. A host
	 * that wants the output therefore attaches before it requests anything else but
	 * AGENT_RESEED and AGENT_HELLO.
	 */
	AGENT_ATTACH = 7,

	/*
	 * Lists everything under some paths. Payload: u32 count, count times str path (absolute; a
	 * path that does not exist is not an error). Answer: AGENT_ENTRY frames, a folder before
	 * its content, the names in a folder in byte order, then AGENT_DONE; at any point
	 * AGENT_ERROR instead. The answer is one list in one order, whatever the order of the
	 * paths; a path below another one is not listed twice.
	 *
	 * Symbolic links are not followed, except those on the way to a path. A file system mounted
	 * below a path is entered only if another path is that mount point or lies in it. A file
	 * that appears or disappears during the listing may be listed or not; of a file that grows,
	 * the first part is hashed.
	 */
	AGENT_TREE = 8,

	/* Not 6: in older agents, this request powers the guest off. */

	/*
	 * Files. Paths are absolute and may contain any byte but zero. Symbolic links are followed
	 * as by open(2), except for the last name in AGENT_REMOVE and where noted. AGENT_ERROR
	 * carries the errno of the failed call (ENOENT, EISDIR, ENOTDIR, ENOSPC, EACCES, …), or
	 * EINVAL if a regular file is needed and the path names something else. Each request is
	 * served by a process of its own, so a slow disk delays no other request; beyond a maximum
	 * number, requests wait. Where AGENT_DATA follows, AGENT_ERROR may come before all of it
	 * was sent. The agent reads and discards the rest, so the host either sends all of it or
	 * closes the connection.
	 */

	/*
	 * Writes a whole file, replacing an existing one: it is written under another name in the
	 * same folder and renamed when it is complete. Missing folders are created (0755). Payload:
	 * u64 size (or AGENT_UNSIZED), u32 mode (0: that of the file it replaces, else 0644), str
	 * path; then AGENT_DATA frames, none of them empty, whose payloads add up to `size`.
	 * Answer: AGENT_DONE. The new file belongs to the owner of the one it replaces. If the
	 * request fails or its connection breaks, nothing is left of the new file.
	 */
	AGENT_PUT = 9,
	AGENT_DATA = 10,

	/*
	 * Reads bytes of a regular file. Payload: u64 offset, u64 maximum (0: none), str path.
	 * Answer: AGENT_FILE, then AGENT_BYTES frames with the bytes from `offset` on, at most
	 * `maximum`, then AGENT_DONE. A file with a size never yields more than that size, and
	 * less if it is truncated meanwhile; a file of size 0 may yield bytes (as in proc).
	 */
	AGENT_GET = 11,

	/* Removes a file or a folder. Payload: u8 (1: a folder with its content; 0: a folder must
	 * be empty), str path. A mount point is not removed: EBUSY. Answer: AGENT_DONE. */
	AGENT_REMOVE = 14,

	/* Creates a folder. Payload: u32 mode (0: 0755), u8 (1: create missing parents too, and
	 * accept an existing folder), str path. Answer: AGENT_DONE. */
	AGENT_MKDIR = 15,

	/* Grows the root file system to the size of its disk. Payload: u64 bytes of the disk. The
	 * guest's kernel may learn the new size later than the agent gets this request, so the
	 * agent waits for it for up to 5 s (ETIMEDOUT). A file system of that size or larger is
	 * left alone. Answer: AGENT_DONE. */
	AGENT_GROW = 26,

	/* Moves a file or folder. Payload: u8 1: replace an existing one, as rename(2) does; str
	 * path, str new path. Missing folders of the new path are created (0755). A symbolic link
	 * is moved itself. ELOOP: into itself; EXDEV: to another file system. Answer: AGENT_DONE.
	 */
	AGENT_MOVE = 27,

	/* Changes permissions and owner. Payload: u32 mode, u32 uid, u32 gid (each AGENT_UNCHANGED:
	 * stays), u8 1: of a folder and all that is in it, str path, which is followed. In a
	 * folder, links are not followed, and file systems mounted there are not entered. A failure
	 * may leave part of a folder changed. Answer: AGENT_DONE. */
	AGENT_CHANGE = 28,

	/*
	 * Processes: programs that lead sessions of their own, on pipes or on a tty. A process
	 * belongs to the guest and not to a connection: it outlives all connections and is part of
	 * a fork's children and of a Space. Its last output is kept for later attaches, also after
	 * its end; when there are too many processes, the oldest ended ones are removed. A process
	 * has two streams of output, or one with a tty; an offset counts the bytes of both, in the
	 * order in which the agent read them. ENOENT: no such process.
	 */

	/*
	 * Starts a program. Payload: str id (AGENT_ID_LEN), u8 flags (AGENT_PROC_TTY and so on),
	 * u16 cols, u16 rows (without AGENT_PROC_TTY: 0), u32 timeout_ms (0: none), str cwd (empty:
	 * the user's home directory, or without a user the Python process's directory), str user (a
	 * name or uid of /etc/passwd; empty: the agent's user), str label (up to AGENT_LABEL_MAX),
	 * u32 count (1 or more) and as many str argv, u32 env_count, then env_count times str name,
	 * str value. With a user, HOME, USER and LOGNAME are the user's; with a tty, TERM is
	 * xterm-256color; unless given. Answer: AGENT_PROC once the program runs, then AGENT_DONE,
	 * or with AGENT_PROC_FOLLOW the output as for AGENT_PROC_ATTACH. If the connection ends
	 * before the program runs, the program is killed. AGENT_ERROR: EAGAIN, AGENT_PROC_MAX run
	 * already; else the folder or user cannot be used.
	 *
	 * A program that does not exist is not an error, except with AGENT_PROC_MUST_RUN: the
	 * process says so on its stderr and exits with 127, or with 126 if the file is not
	 * executable. At the time limit, the processes of the session get SIGTERM, then SIGKILL,
	 * even if the program has ended. Once the program has ended, output of processes that it
	 * left behind is discarded. When the output of all ended processes exceeds AGENT_PROC_KEPT
	 * bytes, that of the oldest ones is dropped.
	 */
	AGENT_PROC_START = 29,

	/*
	 * Reads the output. Payload: str id, u64 offset, u8 1: hold. Answer: AGENT_PROC, then
	 * AGENT_PROC_BYTES from the offset on as output is produced, then AGENT_PROC_EXIT. Output
	 * that is no longer kept is left out, as the offsets show. ERANGE: there are fewer bytes
	 * than `offset`.
	 *
	 * A slow reader loses the oldest output. With `hold` (and AGENT_PROC_FOLLOW) it does not:
	 * the agent stops reading from the program when such a reader lags by AGENT_AHEAD_MAX
	 * bytes or by 32768 changes of the stream, and the program blocks when it writes, until the
	 * reader continues or leaves.
	 */
	AGENT_PROC_ATTACH = 30,

	/* Writes to stdin, or types into the tty. Payload: str id, then bytes. Answer: AGENT_DONE
	 * when the pipe accepted them; EPIPE: the program has ended, or stdin is closed. */
	AGENT_PROC_INPUT = 31,

	/* Closes stdin, after all input that waits; with a tty, types Ctrl-D. Payload: str id.
	 * Answer: AGENT_DONE, also if it is closed already. */
	AGENT_PROC_CLOSE = 32,

	/* Sends a signal to the process group of the program. Payload: str id, u8 number (1 to 64).
	 * Answer: AGENT_DONE; ESRCH: the program has ended. */
	AGENT_PROC_SIGNAL = 33,

	/* Sends SIGKILL to all processes of a session; does nothing if its program has ended.
	 * Payload: str id. Answer: AGENT_DONE. */
	AGENT_PROC_KILL = 34,

	/* Lists all processes. Payload: none. Answer: an AGENT_PROC for each, oldest first, then
	 * AGENT_DONE. */
	AGENT_PROC_LIST = 35,

	/* Describes a process. Payload: str id. Answer: AGENT_PROC, then AGENT_DONE. */
	AGENT_PROC_STAT = 36,

	/* Resizes a tty. Payload: str id, u16 cols, u16 rows (1 to 65535). The program gets
	 * SIGWINCH. Answer: AGENT_DONE; EINVAL: the process has none. */
	AGENT_PROC_RESIZE = 50,

	/*
	 * Contexts: further interpreters beside the Python process that serves AGENT_EXEC. Each has
	 * its own process, queue and state, and all run side by side. A context belongs to the
	 * guest and not to a connection: it is part of a fork's children and of a Space. When its
	 * process ends, it is replaced by a new one, and AGENT_EXIT or the next call reports that
	 * the state was lost; so too when the agent itself was killed and replaced. ENOENT: no such
	 * context.
	 */

	/* Starts a context. Payload: str id (AGENT_ID_LEN), u8 language, str cwd (empty: the home
	 * folder), u32 env_count, then env_count times str name, str value. Answer: AGENT_DONE once
	 * the interpreter waits for code. EEXIST: the id is in use; EAGAIN: AGENT_CONTEXT_MAX
	 * exist; ENOPKG: the language's program is not installed; ENOTDIR: the folder cannot be
	 * entered; ECHILD: as for AGENT_EXEC. */
	AGENT_CONTEXT_START = 37,

	/* Lists the contexts. Payload: none. Answer: an AGENT_CONTEXT for each, oldest first, then
	 * AGENT_DONE. */
	AGENT_CONTEXT_LIST = 38,

	/* Kills a context's processes and forgets it. Its running call ends; its waiting calls get
	 * AGENT_ERROR (ENOENT). Payload: str id. Answer: AGENT_DONE. */
	AGENT_CONTEXT_END = 39,

	/* Kills a context's processes and starts its interpreter again, without state. The running
	 * call ends; waiting calls then run. Payload: str id. Answer: AGENT_DONE once the new
	 * interpreter waits for code. */
	AGENT_CONTEXT_RESTART = 40,

	/* Makes another request in a context. Payload: str id, u8 type, then the payload of a
	 * request of that type: AGENT_EXEC (whose language is ignored, but for a bash of a Python
	 * context), AGENT_ATTACH or AGENT_INTERRUPT. Answer: for AGENT_EXEC first AGENT_DONE, once
	 * the call is queued; then as to that request. */
	AGENT_IN_CONTEXT = 41,

	/*
	 * Lists a folder with what is in its folders, or describes a file. Payload: u8 1: of a
	 * symbolic link at the path, the link itself; u32 depth up to AGENT_DEPTH_MAX: 0: only the
	 * path itself, 1: the names in the folder, 2: also those in its folders, and so on; u32
	 * maximum of answers (0: none); str path; str name after which the list starts (as in an
	 * AGENT_NODE; empty: at the first). Answer: AGENT_NODE frames, then AGENT_DONE. A folder
	 * comes before its content, and the names in a folder are in byte order. Symbolic links in
	 * the folder and file systems mounted there are listed, but not entered; neither are
	 * folders that cannot be read, except for the first one.
	 */
	AGENT_WALK = 42,

	/* Writes to a file in place: it keeps its inode, owner and mode. Payload: u8 (enum
	 * agent_write), u64 offset, u64 size (or AGENT_UNSIZED), u32 mode of a file that is created
	 * (0: 0644), str path; then AGENT_DATA. Missing folders are created (0755). Answer:
	 * AGENT_DONE. Bytes written before a failure stay. */
	AGENT_WRITE = 43,

	/* Packs a folder into a tar archive. Payload: str path. Answer: AGENT_BYTES, then
	 * AGENT_DONE. Names in the archive begin with "./". File systems mounted in the folder are
	 * not entered, and sockets are left out. An AGENT_ERROR after AGENT_BYTES means that the
	 * archive is not complete. */
	AGENT_PACK = 44,

	/* Unpacks a tar archive (ustar, pax, GNU) into a folder, which is created when it is
	 * missing. Payload: u64 size (or AGENT_UNSIZED), str path; then AGENT_DATA. Answer:
	 * AGENT_DONE. EBADMSG: the archive is broken, or refused: it holds a device, or something
	 * that lies outside of the folder. Files that were complete by then stay. */
	AGENT_UNPACK = 45,

	/* Watches a file or folder. Payload: u8 1: also all folders in it, str path. Answer:
	 * AGENT_EVENT frames, the first one AGENT_WATCHING, and AGENT_DONE once the path is gone.
	 * EAGAIN: AGENT_WATCH_MAX are in progress. The watch ends with the connection. */
	AGENT_WATCH = 46,

	/* Asks for the agent's version, which differs from the host's if another Ramet started the
	 * guest. This request and its answer are the same in all versions. Payload: none. Answer:
	 * AGENT_PONG, at once. */
	AGENT_HELLO = 47,

	/*
	 * Connects to a TCP server in the guest, at 127.0.0.1 or else at ::1. Payload: u16 port
	 * (not 0). Answer: AGENT_DONE once it is connected. From then on the connection carries the
	 * bytes of both directions without frames. Each direction ends on its own, when its sender
	 * shuts it down (SHUT_WR); what the server no longer takes is dropped. The connection
	 * serves no further request. AGENT_ERROR: ECONNREFUSED, nothing listens on the port;
	 * EAGAIN, too many of these connections are open; then the connection ends. In a copy of
	 * the guest, whose connections to the host are gone, these connections end.
	 */
	AGENT_DIAL = 49,
};

enum agent_write {
	AGENT_WRITE_NEW = 0,	/* the file is emptied first */
	AGENT_WRITE_AT = 1,	/* at the offset; the rest of the file stays */
	AGENT_WRITE_APPEND = 2, /* at the end */
};

/* The comments describe the payloads. */
enum agent_answer {
	AGENT_PONG = 64,   /* u32 AGENT_VERSION */
	AGENT_STDOUT = 65, /* raw bytes */
	AGENT_STDERR = 66, /* raw bytes */
	/* i32 exit code, u8 1 if the Python state was lost. Between the Python process and the
	 * agent, further bytes follow: the end of the call's stderr. */
	AGENT_EXIT = 67,
	AGENT_DONE = 68,  /* no payload */
	AGENT_ERROR = 69, /* u32 errno, str sentence */
	/* str path, u32 mode (type and permissions, as in stat), u32 uid, u32 gid, u64 size of a
	 * file or device number of a device, else 0; str content: the SHA-256 of a file's `size`
	 * bytes, the target of a symbolic link, else empty. It is also empty for a file that cannot
	 * be read, and for files of proc and sysfs with a size; such a file equals no other. Times,
	 * hard links and extended attributes are not reported. */
	AGENT_ENTRY = 70,
	/* str path, u32 mode (type and permissions), u32 uid, u32 gid, u64 size (of a file, else
	 * 0), i64 modification time in ns, str target of a symbolic link, else empty */
	AGENT_FILE = 71,
	AGENT_BYTES = 72, /* raw bytes of a file */
	/* str id, str label, str user, u32 pid, i64 start time in ms since the epoch, i64 end time
	 * (0: it runs), u64 bytes of output so far, u8 flags, i32 exit code (128 + signal if
	 * killed), u8 signal (0: none) */
	AGENT_PROC = 75,
	/* u64 offset of the first byte, u8 1 (stdout, or the tty's output) or 2 (stderr), bytes */
	AGENT_PROC_BYTES = 76,
	/* i32 exit code (128 + signal if killed), u8 signal (0: none), u8 1 if the time limit was
	 * reached, i64 end time, u64 bytes of output */
	AGENT_PROC_EXIT = 77,
	/* str id, u8 language, u8 1 if a call runs or waits, i64 start time in ms since the epoch,
	 * str cwd (empty: the home folder) */
	AGENT_CONTEXT = 78,
	/* as an AGENT_FILE (the name in an AGENT_WALK: the path within the folder, up to
	 * AGENT_NAME_MAX bytes; with depth 0: the path), then str user, str group: names of uid and
	 * gid in the guest, empty if they have none */
	AGENT_NODE = 80,
	/* u8 (enum agent_event), u8 1: a folder, str path, str new path of an AGENT_RENAMED, else
	 * empty */
	AGENT_EVENT = 81,

	/* Results of a call; user code in the Python process can send any bytes in them. A bundle
	 * is at most AGENT_BUNDLE_MAX bytes, in one or more frames: entries of str name (a MIME
	 * type; of an exception: name, value, traceback), u8 kind (enum agent_bundle), str data. */
	AGENT_RESULT = 84, /* ends a bundle: u8 enum agent_result */
	AGENT_FAULT = 85,  /* ends a bundle that describes an exception of the call; u8 0 */
	AGENT_BUNDLE = 86, /* bytes */
};

/* Flags of AGENT_PROC_START and AGENT_PROC. */
enum agent_proc_flag {
	AGENT_PROC_TTY = 1,
	AGENT_PROC_STDIN = 2, /* stdin is a pipe; in AGENT_PROC: it is open */
	/* in AGENT_PROC_START: the output follows, as for AGENT_PROC_ATTACH */
	AGENT_PROC_FOLLOW = 4,
	AGENT_PROC_TIMED_OUT = 8, /* in AGENT_PROC: the time limit was reached */
	AGENT_PROC_MUST_RUN = 16, /* in AGENT_PROC_START: a program that can't run is an error */
};

enum agent_bundle {
	AGENT_BUNDLE_TEXT = 0, /* UTF-8 */
	AGENT_BUNDLE_BYTES = 1,
	AGENT_BUNDLE_JSON = 2,
};

enum agent_result {
	AGENT_RESULT_SHOWN = 0,	  /* by display(), or a figure */
	AGENT_RESULT_MAIN = 1,	  /* the value of the last expression */
	AGENT_RESULT_DROPPED = 2, /* none: the bundle was not completed */
};

enum agent_exec_flag {
	AGENT_EXEC_RESULTS = 1,
	/* The call prepares a template. The driver leaves it out of the numbering that tracebacks
	 * show, so that the first call of a user is `<call 1>`. */
	AGENT_EXEC_PREPARES = 2,
};

enum agent_event {
	AGENT_WATCHING = 0, /* what happens from now on is reported */
	AGENT_CREATED = 1,
	AGENT_WRITTEN = 2,
	AGENT_REMOVED = 3,
	AGENT_RENAMED = 4,
	AGENT_ATTRIBUTES = 5, /* permissions, owner or times changed */
	AGENT_OVERFLOW = 6,   /* events were lost, or a folder cannot be watched */
};

enum agent_language {
	AGENT_PYTHON = 0,
	AGENT_BASH = 1,
	AGENT_JAVASCRIPT = 2, /* in contexts only */
};

#endif
