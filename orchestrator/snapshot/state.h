// SPDX-License-Identifier: Apache-2.0
/* The state of forks, freezes and Spaces, and the functions on it that service/ calls. */
#ifndef RAMET_ORCHESTRATOR_SNAPSHOT_STATE_H
#define RAMET_ORCHESTRATOR_SNAPSHOT_STATE_H

#include "orchestrator/sandbox/service.h"
#include "orchestrator/sandbox/roster.h"

struct checkpoint;
struct failure;
struct tenant;

/* Points to a checkpoint, and once that is deleted, to the checkpoint before it. */
struct checkpoint_ref {
	struct checkpoint *to; /* or NULL */
	struct list link;      /* on to->refs */
};

/* The number of a state is the number of the last event that led to it. A state keeps its number
 * when a rollback, a fork, a start or a merge gives it to a sandbox: while the sandbox's last event
 * is `seq`, its state has the number `state`. */
struct given_state {
	uint64_t seq, state;
};

/* This room's state for each sandbox, each tenant and the service. */
struct snapshot_sandbox {
	struct list forks;		  /* operations in flight */
	struct op *copying;		  /* the fork whose snapshot is being taken */
	struct freeze *freeze;		  /* requested, or in progress */
	char space[SANDBOX_ID_LEN + 1];	  /* the Space whose files its VM maps; empty: none */
	struct checkpoint_ref checkpoint; /* the last checkpoint that the state comes from */
	struct given_state given;
	/* The next members are for each-call.c, which takes checkpoints after calls. */
	struct op *each_call; /* a checkpoint that is being taken, or NULL */
	/* Number of the last event when a checkpoint was last tried, plus 1; 0: not known. */
	uint64_t kept_seq;
	bool each_call_fails;	 /* the last attempt failed, which was logged */
	struct loop_timer quiet; /* set while a checkpoint waits for a moment without calls */
	struct list of_calls;	 /* struct checkpoint: taken after calls, oldest first */
	bool of_calls_known;	 /* of_calls has checkpoints of previous instances, too */
};
struct snapshot_tenant {
	struct roster spaces, checkpoints;
	struct tenant *tenant;	 /* set by its first freeze */
	struct list freezes;	 /* struct freeze: waiting ones, in order */
	struct list freeze_turn; /* on snapshot_service.freeze_turns while any waits */
	unsigned freezing;	 /* freezes in progress */
};
struct snapshot_service {
	struct list resumes;   /* resumes and starts from checkpoints, in flight */
	struct list rollbacks; /* operations in flight */
	struct list spaces;    /* struct space, of Spaces and checkpoints */
	struct list space_buckets[BUCKETS];
	struct list unread_spaces;
	struct list lost_spaces;     /* struct lost_space, longest lost first */
	struct list removals;	     /* of Space files, in progress */
	struct list freezes;	     /* struct freeze */
	struct list freeze_turns;    /* struct snapshot_tenant with waiting freezes, next first */
	unsigned n_freezing;	     /* freezes that hold a freeze slot */
	uint32_t slot_limit_ms;	     /* a freeze whose snapshot takes longer loses its slot */
	uint32_t quiet_ms;	     /* without a call, before a checkpoint of a sandbox is taken */
	struct space_read *scrub;    /* in progress, or NULL */
	struct list unwritten;	     /* struct checkpoint: in memory only, next to write first */
	struct space_write *writing; /* the first one's, in progress, or NULL */
	struct loop_timer write_soon; /* set while the first one is about to be written */
	uint64_t write_at_ms;	      /* after a failure: loop ms of the next attempt */
	/* Counters. */
	uint64_t forks, fork_failures, merges;
	uint64_t n_frozen, freeze_failures, n_resumed, resume_failures;
	uint64_t n_taken, n_rollbacks; /* n_taken: checkpoints */
	uint64_t n_started;	       /* sandboxes from checkpoints, and from Spaces that stay */
	uint64_t n_checkpoints, checkpoints_bytes;
	uint64_t n_spaces, spaces_bytes, spaces_damaged, spaces_lost; /* as they are now */
};
extern struct part snapshot_part;
static inline struct snapshot_sandbox *snapshots_of(const struct sandbox *s)
{
	return part_of_sandbox(&snapshot_part, s);
}
static inline struct snapshot_tenant *snapshots_of_tenant(const struct tenant *t)
{
	return part_of_tenant(&snapshot_part, t);
}
static inline struct snapshot_service *snapshots_of_service(const struct service *c)
{
	return part_of_service(&snapshot_part, c);
}

/* Initializes the room's state for the service. */
void snapshots_start(struct service *c);
/* Fails forks and resumes with `f` when the service stops. */
void snapshots_shut_down(struct service *c, const struct failure *f);
/* Frees the forks and resumes in flight when the service is freed. */
void snapshots_close(struct service *c);
/* Frees freezes and Spaces, after all sandboxes were freed. */
void snapshots_free(struct service *c);

/* Loads the Spaces from the catalogue and classifies their directories, before the sandboxes, which
 * come from checkpoints, are loaded. Returns 0, or -errno with *e filled. */
int spaces_load(struct service *c, struct err *e);
/* Verifies the files of the Spaces that this instance has not read yet, one Space at a time. */
void spaces_scrub(struct service *c);
/* Writes checkpoints to disk, and removes those whose time is over. */
void checkpoints_check(struct service *c);
/* Removes lost Spaces whose retention time is over. */
void spaces_lost_check(struct service *c);

#endif
