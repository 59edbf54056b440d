// SPDX-License-Identifier: Apache-2.0
/*
 * The interface of exec/ for the rooms above: the state of a sandbox's calls, and functions that
 * copy, move and hold calls for a fork, a freeze, a resume or a merge.
 */
#ifndef RAMET_ORCHESTRATOR_EXEC_QUEUE_H
#define RAMET_ORCHESTRATOR_EXEC_QUEUE_H

#include "orchestrator/agent/guest-link.h"
#include "orchestrator/exec/history.h"
#include "orchestrator/exec/journal.h"
#include "orchestrator/exec/output-budget.h"
#include "orchestrator/exec/replay.h"
#include "orchestrator/io/deferred.h"
#include "orchestrator/sandbox/part.h"
#include "orchestrator/vm/progress.h"

struct inspection;
struct report;
struct sandbox;

/* State for detecting a running call without progress (stall.c). */
struct stall_watch {
	struct loop_timer timer;
	struct vmproc_progress progress; /* of this wait */
	uint32_t period_ms;		 /* from the first check to the next */
	uint32_t wait_ms;		 /* ms until the next check of a guest that answers */
	bool heard;			 /* the guest sent something since the wait began */
	struct inspection *inspection;	 /* in progress, or NULL */
};

/*
 * The calls of one interpreter, which run one after the other over one connection to the agent. The
 * default interpreter's lane is `main` (main-lane.c): its connection is kept while the sandbox
 * lives, and its first call runs while the sandbox is in SBX_RUNNING. Each context in use has a
 * lane too (lane.c), which lives a little longer than its calls.
 */
struct exec_lane {
	struct list link; /* of a context: on exec_sandbox.lanes */
	struct sandbox *sandbox;
	char context[AGENT_ID_LEN + 1]; /* empty: the default interpreter */
	struct list calls;		/* execs in order of arrival */
	struct guest_link guest;
	size_t sending_bytes; /* size of the request that is being sent; 0: none */
	bool guest_busy;      /* the guest may still run a previous call, so the time when the next
				 call starts is unknown */
	struct stall_watch stall;

	/* --- of the default interpreter only --- */
	struct loop_timer redial;
	uint64_t lost_ms;   /* when the connection last broke, loop ms; 0: never */
	uint32_t redial_ms; /* delay of the next redial, if the connection breaks again soon */

	/* --- of a context only --- */
	bool running; /* the first call was sent to the guest */
	bool known;   /* the guest has accepted one of the queued calls */
	struct loop_timer idle;
};

/* This room's state for each sandbox, each tenant and the service. */
struct exec_sandbox {
	struct exec_lane main;
	struct list lanes;		 /* struct exec_lane, of contexts */
	size_t n_calls;			 /* in all lanes */
	bool held;			 /* reading from the agent is stopped */
	struct list interrupts, follows; /* calls */
	struct output_account *output;	 /* the account for its held output */
	struct replay replay;
	struct history_log history;
	struct journal
		*journal; /* NULL: events are not kept for the next instance of the service */
};
struct exec_tenant {
	size_t waiting_bytes;	       /* requests of its calls that are not sent completely */
	struct output_account *output; /* valid while `accounted` is not 0 */
	size_t accounted;	       /* sandboxes that have the account */
};
struct exec_service {
	size_t waiting_bytes; /* requests of all calls that are not sent completely */
	struct output_budget output;
	struct deferred output_deferred;
	uint64_t execs, output_dropped_bytes; /* counters */
};
extern struct part exec_part;
static inline struct exec_sandbox *exec_of(const struct sandbox *s)
{
	return part_of_sandbox(&exec_part, s);
}
static inline struct exec_tenant *exec_of_tenant(const struct tenant *t)
{
	return part_of_tenant(&exec_part, t);
}
static inline struct exec_service *exec_of_service(const struct service *c)
{
	return part_of_service(&exec_part, c);
}

/* Initializes the room's state for the service. */
void exec_start(struct service *c);
/* Removes session journals whose VM slot has no sandbox. */
void exec_sweep_journals(struct service *c);
/* Restarts the timers of the running calls' time limits. */
void exec_set_timer(struct sandbox *s);
/* Connects the default interpreter's lane to the agent, unless it is connected. */
void exec_dial(struct sandbox *s);
/* Stops reading from the agent while `held`. */
void exec_hold(struct sandbox *s, bool held);
/* Records the state of the running calls in *out. Returns 0 or -ENOMEM; free *out with
 * exec_point_fini in both cases. */
int exec_note(struct sandbox *s, struct exec_point *out);
/* Updates what exec_note has filled in: marks the calls whose clients have hung up since. Returns
 * true if there are any. */
bool exec_note_hang_ups(struct sandbox *s, struct exec_point *p);
/* Returns the bytes of the running calls' unfinished lines. Each copy of the calls has its own copy
 * of these bytes. */
size_t exec_lines(struct sandbox *s);
/* Delivers the longest of those lines as a partial line. The reader of the event may end the
 * sandbox. Copies share the bytes of delivered lines. Returns false when all lines are short. */
bool exec_cut_longest(struct sandbox *s);
/* Returns the bytes of unfinished results. Each copy of the calls has its own copy of these
 * bytes. */
size_t exec_point_results(const struct exec_point *p);
/* Drops the unfinished results. Copies of their calls then report that the result is lost. */
void exec_point_drop_results(struct exec_point *p);
/* Adds copies of the calls to a new sandbox without calls, where they continue once the sandbox has
 * begun, or fail if the guest had not received them. Returns 0 or -ENOMEM. */
int exec_copy(struct sandbox *s, const struct exec_point *p);
/*
 * Steps of a merge, which gives the VM of `from` to `to`. exec_move_interrupts comes first. Then
 * exec_move moves the calls, ahead of those queued in `to`; a call running in `to` fails with `f`.
 * exec_move_link comes when the VM moves; after that, exec_move_events moves the journal and the
 * events. The next event gets a number above `seq`: the highest event number that either sandbox
 * had used before all steps.
 */
void exec_move_interrupts(struct sandbox *from, struct sandbox *to);
void exec_move(struct sandbox *from, struct sandbox *to, const struct failure *f);
void exec_move_link(struct sandbox *from, struct sandbox *to);
void exec_move_events(struct sandbox *from, struct sandbox *to, uint64_t seq,
		      uint64_t seq_reserved);
/* Rewrites the whole journal, with at most the last `replay_most` bytes of events. */
void exec_keep_all(struct sandbox *s, size_t replay_most);
/* Adds an entry to the sandbox's history, and to its journal. */
void exec_happened(struct sandbox *s, const struct history_entry *entry);
/* Adds a checkpoint to the history and to the journal. `after`: number of the last entry when its
 * snapshot was taken. While that is the present state, the last entry gets the checkpoint; if the
 * last entry has one already, or `name` is not NULL, a new entry gets it. Once calls have changed
 * the state, the last entry of the earlier state gets it, if that has none yet. */
void exec_kept(struct sandbox *s, const char *checkpoint, const char *name, uint32_t after);
/* Adds lines on the sandbox's calls to the report. */
void exec_report(const struct sandbox *s, struct report *r);

/* Starts to watch the progress of the calls that the guest runs now (stall.c). */
void stall_begin_all(struct sandbox *s);

#endif
