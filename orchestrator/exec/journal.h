// SPDX-License-Identifier: Apache-2.0
/*
 * The journal of a sandbox: the state, besides its row in the catalogue, that must survive a crash
 * of the service. It has the last events, the progress of the running call, and the deadlines. It
 * is a mapped file, RUN_DIR/journals/SLOT, named after the slot of the VM: writing is a store to
 * memory, which the next instance of the service finds after a kill. The journal belongs to the VM,
 * so that a merge, which gives a VM to another sandbox, need only change the catalogue at that
 * moment.
 *
 * The file is a log of records. The records before an offset are valid; the offset is stored after
 * them. A full log is rewritten in the other half of the file. The file is sparse and grows with
 * its use: without output it has one page.
 */
#ifndef RAMET_ORCHESTRATOR_EXEC_JOURNAL_H
#define RAMET_ORCHESTRATOR_EXEC_JOURNAL_H

#include "base/err.h"
#include "orchestrator/exec/history.h"
#include "orchestrator/exec/replay.h"
#include "orchestrator/exec/splitter.h"
#include "proto/agent.h"

/* Most bytes that the calls of all contexts hold, lines and results together. */
#define CONTEXTS_HELD_MAX (12u << 20)

/* The state of a running call, from which a copy of its guest, or the next instance of the
 * service, continues it. The first one of a list is the default interpreter's. */
struct exec_point {
	struct exec_point *next;	/* of a context; NULL: none */
	char context[AGENT_ID_LEN + 1]; /* empty: the default interpreter */
	bool running;			/* false: no call runs */
	bool at_guest;			/* the whole request was sent to the guest */
	uint64_t number;		/* of the call */
	uint64_t have;			/* bytes of output received */
	bool results;			/* its client takes results */
	bool hung_up; /* its client has hung up, and the guest has not confirmed an interrupt */
	uint32_t timeout_ms;
	uint64_t limit_ms; /* deadline, boot-time clock; 0: none, or not determined yet */
	bool inherited;	   /* a previous instance of the service began it */
	struct splitter out, err;
	struct splitter bundle; /* holds the result that is arriving */
	bool bundle_lost; /* its first bytes were dropped; only in a copy for another sandbox */
	char *traceparent;
	/* For the history: when it began, ms since the epoch (0: not known), and its code. */
	int64_t began_ms;
	char text[HISTORY_TEXT_MAX + 1];
};

#define EXEC_POINTS_MAX 64

struct journal_state {
	uint64_t seq, seq_reserved;
	bool guest_busy;
	struct replay replay;
	struct history_log history;
	struct exec_point point;
	char context[AGENT_ID_LEN + 1];	    /* the context of the record read last (journal_in) */
	uint64_t expires_ms, idle_since_ms; /* boot-time clock; expires_ms 0: never */
};

struct journal;

/* All functions accept a NULL journal and then record nothing. */

/* Creates the empty journal of the VM process `pid`. Returns NULL when that fails: the sandbox
 * works, but the next instance will know less about it. */
struct journal *journal_new(const char *run_dir, uint32_t slot, uint32_t pid);
/* Opens the journal that a previous instance left for the VM process, and reads it to `out`, which
 * the caller frees. Returns NULL and an empty `out` when there is none or it is damaged. */
struct journal *journal_open(const char *run_dir, uint32_t slot, uint32_t pid,
			     struct journal_state *out);
/* Returns whether records can be added to a journal of a previous instance. If not, call
 * journal_write first. */
bool journal_goes_on(const struct journal *j);
/* Sets the account in which the size of the file is counted. */
void journal_count(struct journal *j, struct output_account *account);
/* Frees the journal; journal_close keeps the file, journal_remove unlinks it. */
void journal_close(struct journal *j);
void journal_remove(struct journal *j);
/* Unlinks the files of all slots for which `used` returns false. */
void journals_sweep(const char *run_dir, bool (*used)(void *arg, uint32_t slot), void *arg);

/* Append a record, which becomes valid with the next journal_commit. Calls, and what belongs to
 * them, are of the context of the last journal_in; NULL or empty: of the default interpreter. */
void journal_in(struct journal *j, const char *context);
void journal_seq(struct journal *j, uint64_t seq, uint64_t reserved);
void journal_event(struct journal *j, const struct event *ev, const char *traceparent);
void journal_history(struct journal *j, const struct history_entry *entry);
void journal_call(struct journal *j, const struct exec_point *point);
void journal_have(struct journal *j, uint64_t have);
/* Records bytes that a splitter holds; `what` is EVENT_STDOUT, EVENT_STDERR or EVENT_RESULT. They
 * follow those recorded before or, if `fresh`, replace them. */
void journal_held(struct journal *j, enum event_type what, bool fresh, const void *data,
		  size_t len);
void journal_over(struct journal *j);
/* Makes the appended records valid. Returns false when one of them did not fit: call
 * journal_write. */
bool journal_commit(struct journal *j, bool guest_busy);
/* Replaces all records by the state `now`, with at most the last `replay_most` bytes of its replay.
 * If the file system is full, the journal is incomplete until the next call. */
void journal_write(struct journal *j, const struct journal_state *now, size_t replay_most);
/* Stores the times, which are valid at once. */
void journal_times(struct journal *j, uint64_t expires_ms, uint64_t idle_since_ms);

/* Parses the records of a file to `out`, which the caller must free, also on failure. Returns 0, or
 * -errno with *e filled for records that this program did not write. */
int journal_read(const uint8_t *log, size_t len, struct journal_state *out, struct err *e);
void journal_state_fini(struct journal_state *s);
/* Frees the held bytes, the traceparent and all further points, and zeroes *p: no call runs. */
void exec_point_fini(struct exec_point *p);
/* Copies the call of one point to *to, which has none. Its context, its place in a list and the
 * accounts of its splitters stay. Returns 0 or -ENOMEM. */
int exec_point_copy_call(struct exec_point *to, const struct exec_point *from);
/* Copies a list of points to *to, which is zeroed. Returns 0 or -ENOMEM; the caller passes `to` to
 * exec_point_fini in both cases. */
int exec_point_copy(struct exec_point *to, const struct exec_point *from);
/* Returns the context's point of the list that begins with `first`; a new one if there is none, or
 * NULL when the list has EXEC_POINTS_MAX already. */
struct exec_point *exec_point_of(struct exec_point *first, const char *context);

#endif
