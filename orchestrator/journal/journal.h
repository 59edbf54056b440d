// SPDX-License-Identifier: Apache-2.0
/*
 * What of a sandbox must survive the service beside its row in the catalogue: its last events, how
 * far the call that runs in it has come, and when its time is over. A file of the slot its VM is
 * in, RUN_DIR/diaries/SLOT, mapped here: writing it is storing in memory, and what was stored is
 * there for the next life of the service when this one is killed. It goes with the VM, so that a
 * merge need not touch it before the catalogue says whose VM it is.
 *
 * A log of records; what counts is what lies before one word that is stored last. A log that is
 * full is written anew, in the other half of the file. The file is sparse and grows as it is
 * used: without output it has one page.
 */
#ifndef RAMET_ORCHESTRATOR_JOURNAL_DIARY_H
#define RAMET_ORCHESTRATOR_JOURNAL_DIARY_H

#include "base/err.h"
#include "orchestrator/journal/replay.h"
#include "orchestrator/journal/splitter.h"

/* The running call as it is at one moment: what a copy of its guest goes on with, or a later life
 * of the service. */
struct exec_point {
	bool running;  /* else there is none */
	bool at_guest; /* all of it has left for the guest */
	uint64_t number, have;
	uint32_t timeout_ms;
	uint64_t limit_ms; /* on the boot-time clock; 0: none, or to be counted anew */
	bool earlier_life; /* it was begun by a service that is gone */
	struct splitter out, err;
	char *traceparent;
};

struct journal_state {
	uint64_t seq, seq_reserved;
	bool guest_busy;
	struct replay replay;
	struct exec_point point;
	/* On the boot-time clock; expires 0: never. */
	uint64_t expires_ms, idle_since_ms;
};

struct journal;

/* For all that follow a NULL diary is none, and nothing is kept. */

/* An empty one of the VM process `pid`. NULL: it can't be had; then a later life knows less. */
struct journal *journal_new(const char *run_dir, uint32_t slot, uint32_t pid);
/* That of an earlier life, with what it says, which is the caller's. NULL, and `out` says nothing:
 * there is none of this process, or it is not whole. */
struct journal *journal_open(const char *run_dir, uint32_t slot, uint32_t pid,
			     struct journal_state *out);
/* True for one of an earlier life that records can be added to; else it has to be written anew. */
bool journal_goes_on(const struct journal *d);
/* What the file takes is counted there from here on. */
void journal_count(struct journal *d, struct output_account *account);
/* Leaves the file. */
void journal_close(struct journal *d);
void journal_remove(struct journal *d);
/* All files that no diary has open are taken away: `used` tells of a slot. */
void journals_sweep(const char *run_dir, bool (*used)(void *arg, uint32_t slot), void *arg);

/* Records; none counts before journal_commit. */
void journal_seq(struct journal *d, uint64_t seq, uint64_t reserved);
void journal_event(struct journal *d, const struct event *ev, const char *traceparent);
void journal_call(struct journal *d, const struct exec_point *point);
void journal_have(struct journal *d, uint64_t have);
/* What the splitter of a stream has got on top of what it held, or (`fresh`) holds now. */
void journal_held(struct journal *d, bool is_err, bool fresh, const void *data, size_t len);
void journal_over(struct journal *d);
/* False when there was no room: what it says must be written anew. */
bool journal_commit(struct journal *d, bool guest_busy);
/* In place of all records: `now`, but of its replay no more than the last `replay_most` bytes. What
 * finds no room on the disk is not kept, until the next time. */
void journal_write(struct journal *d, const struct journal_state *now, size_t replay_most);
/* Counts at once. */
void journal_times(struct journal *d, uint64_t expires_ms, uint64_t idle_since_ms);

/* Reads records, as a file has them; to be freed in any case. 0, or -errno with *e filled: then it
 * was not written by this program. */
int journal_read(const uint8_t *log, size_t len, struct journal_state *out, struct err *e);
void journal_state_fini(struct journal_state *s);

#endif
