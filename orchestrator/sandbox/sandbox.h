// SPDX-License-Identifier: Apache-2.0
/* A sandbox: its state table, its timers, its VM and the connection to its agent. */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_SANDBOX_H
#define RAMET_ORCHESTRATOR_SANDBOX_SANDBOX_H

#include "orchestrator/images/sizes.h"
#include "orchestrator/io/deferred.h"
#include "orchestrator/sandbox/roster.h"
#include "orchestrator/sandbox/sandboxes.h"
#include "orchestrator/sandbox/vm-use.h"
#include "orchestrator/store/store.h"
#include "proto/ctl.h"

struct service;
struct tenant;
struct vmproc;
struct ready_vm;

/* A new sandbox has priority over others until its first call ends, at most for this time:
 * otherwise a tenant that forks in a loop would take the CPU from its neighbours. */
#define SANDBOX_HEAD_START_MS 2000
#define SEQ_BLOCK	      (1u << 20)  /* event numbers reserved in the catalogue at a time */
#define SANDBOX_ENV_MAX	      (32u << 10) /* bytes; every exec carries it in a single frame */

enum sandbox_state {
	SBX_ADOPTING, /* its VM was found, its agent is not connected yet */
	SBX_READY,
	SBX_RUNNING,  /* the agent runs a call */
	SBX_FREEZING, /* its VM is paused and written to disk; a call may be in flight */
	SBX_ENDING,   /* its VM is being ended */
	SBX_ENDED,    /* kept for a while, to report how it ended */
	SBX_NSTATES,
};

enum sandbox_event {
	SBX_REACHED, /* the agent of an adopted VM was connected */
	SBX_EXEC,
	SBX_EXEC_OVER,
	SBX_FREEZE,
	SBX_THAW, /* its freeze failed, and its VM runs again */
	SBX_END,
	SBX_VM_GONE,
	SBX_NEVENTS,
};

/* A pair of living sandboxes, of which `descendant` descends from `ancestor`. */
struct ancestry {
	struct list of_descendant; /* on descendant->living_ancestors, oldest first */
	struct list of_ancestor;   /* on ancestor->living_descendants */
	struct sandbox *ancestor, *descendant;
};

struct sandbox {
	struct service *service;
	struct list link;   /* on service->sandboxes or service->ended.kept, oldest first */
	struct list bucket; /* keyed by id */
	struct listed listed;
	bool is_listed; /* on service->all, and on the lists of its tenant and its parent */
	enum sandbox_state state;
	char id[SANDBOX_ID_LEN + 1];
	struct tenant *owner;
	const char *tenant; /* the owner's name */
	struct sandbox_config config;
	char *metadata;
	struct tree *tree; /* NULL: it begins a tree once it has its id, or it has ended */
	uint32_t depth;	   /* forks from the root */
	unsigned claims;   /* forks that wait for room in the tree, or have it */
	uint64_t cpu_ms;   /* of its VM, as tree_cpu_ms last read it */
	struct score score;
	char *labels; /* JSON object text */
	char *env;    /* NAME=VALUE strings, each with its NUL */
	size_t env_len;
	const char **env_list; /* pointers into env, NULL-terminated */
	int64_t created_at_ms,
		expires_at_ms;		    /* ms since the epoch, by the wall clock at creation */
	uint64_t expires_ms, idle_since_ms; /* boot-time clock, ms; expires 0: never */
	/* Operations in flight that count as continuous activity. */
	size_t n_busy;
	uint64_t seq, seq_reserved; /* of events: the last number used, and the last one reserved in
				       the catalogue */
	struct loop_timer lifetime, idle;
	struct deferred scheduled; /* sandbox_schedule */

	uint32_t slot, pid; /* of the VM; these and `instance` as in the catalogue */
	uint8_t instance[CTL_INSTANCE_LEN];
	struct vm_use use; /* measured some seconds ago */
	struct vmproc *vm;

	struct list deletes; /* service_delete calls in flight */
	struct list changes; /* calls that wait until egress is closed */
	char *ancestors;     /* as in the catalogue */
	struct list living_ancestors, living_descendants; /* struct ancestry */
	struct sandbox *parent;				  /* the nearest living ancestor */
	struct roster children;				  /* sandboxes whose parent this is */

	struct list
		unrecorded; /* on service->ended.unrecorded while the catalogue lists it as alive */
	struct vmproc *kept_vm; /* a dropped VM whose slot stays taken until the end is recorded; or
				   NULL */
	bool off_catalogue;	/* its catalogue row is gone already */
	bool forget;		/* leave no trace once the VM is gone */
	int64_t ended_at_ms;
	const char *ended_code; /* static string */
	char ended_text[ERR_TEXT_MAX];
};

/* Applies the event. Returns false, changing nothing, when the state does not allow it. */
bool sandbox_step(struct sandbox *s, enum sandbox_event event);
/*
 * Lets waiting operations start. Every operation that has to wait for others calls this when it
 * begins to wait, and every operation that others wait for calls it when it ends. The loop then
 * lets each part start what waits (part.start_waiting), once before it sleeps, in the order of
 * service->parts: first a call, then a fork, then a freeze. Nothing starts while the sandbox is
 * being adopted or frozen, or after its end; each part checks the rest.
 */
void sandbox_schedule(struct sandbox *s);
struct sandbox *sandbox_new(struct service *c, const char *id, const char *tenant);
void sandbox_set_env(struct sandbox *s, const void *env, size_t len);
/* Replaces a sandbox's text. Returns false, changing nothing, when memory is short. */
bool sandbox_set_text(char **field, const char *text);
/* Frees the sandbox and all its calls, without calling back. */
void sandbox_free(struct sandbox *s);
/* Starts the timers of a sandbox that has its VM, from its recorded times. */
void sandbox_start_timers(struct sandbox *s);
/* Sets the lifetime and idle timers again, by the boot-time clock. */
void sandbox_set_timers(struct sandbox *s);
/* Does the same for all living sandboxes. */
void sandboxes_set_timers(struct service *c);
/* Returns true when the lifetime is over, or the drain of the host ends it. */
bool sandbox_is_over(const struct sandbox *s);
/* Records activity in the sandbox. */
void sandbox_touch(struct sandbox *s);

struct sandbox *sandbox_find(struct service *c, const char *tenant, const char *id,
			     struct failure *f);
/* Fill in *f for a change that the catalogue did not record, and for a lack of memory. Return
 * false. */
bool failure_catalogue(struct failure *f, const struct err *e);
bool failure_no_memory(struct failure *f);
/* Makes the sandbox known by its id. */
void sandbox_index(struct sandbox *s);
/* Returns whether the sandbox, which sandbox_find has returned, takes requests. False, with *f
 * filled, while it is being frozen, and until the agent of an adopted sandbox is connected. */
bool sandbox_is_reached(const struct sandbox *s, struct failure *f);
/* Returns the sandbox if it is reached, else NULL with *f filled. */
struct sandbox *sandbox_find_reached(struct service *c, const char *tenant, const char *id,
				     struct failure *f);
/* Returns the living sandbox with that id, of any tenant; NULL: none. */
struct sandbox *sandbox_of_any(struct service *c, const char *id);
/* Returns the tenant's living sandbox; NULL: none. */
struct sandbox *sandbox_living(struct service *c, const char *tenant, const char *id);
void sandbox_view_fill(const struct sandbox *s, struct sandbox_view *view);
/* Gives the sandbox its id, notes the VM that it will have, and starts its lifetime. */
void sandbox_note_vm(struct sandbox *s, const struct ready_vm *ready);
/* Reserves event numbers for a new sandbox, and returns its catalogue row. */
struct store_sandbox sandbox_row(struct sandbox *s);
/* Hands the VM to a sandbox whose row is in the catalogue; from here on calls find it. */
void sandbox_begin(struct sandbox *s, struct ready_vm *ready);
extern const struct vmproc_owner sandbox_vm_owner;
/* Closes the network access of the VM, then ends the calls of s->changes. Ends the sandbox when
 * that fails. Has no effect on a VM whose access is closed already. */
void sandbox_close_egress(struct sandbox *s);
/* Ends the sandbox because its VM is dead. */
void sandbox_vm_died(struct sandbox *s, const char *reason);

/* Ends the sandbox: its calls fail with `code`, its VM is dropped. `forget`: leaves no trace. */
void sandbox_end(struct sandbox *s, const char *code, const char *text, bool forget);
/* Ends a sandbox whose VM a merge gave to another one; the catalogue records that already. */
void sandbox_end_merged(struct sandbox *s, int64_t at_ms, const char *text);
/* Ends a sandbox that is now a Space; the catalogue records that already. */
void sandbox_end_frozen(struct sandbox *s, int64_t at_ms, const char *text);
/* Fails everything in flight in the VM. Execs only fail when the sandbox ends: a merge moves them.
 */
void sandbox_fail_ops(struct sandbox *s, const struct failure *f);

/* The registry of all sandboxes (registry.c). */
/* Lists and counts a living sandbox in this state. The caller then calls lineage_link. */
void sandbox_enlist(struct sandbox *s, enum sandbox_state state);
/* Unlists an ended sandbox, which is then found by its id only. Ignores one that is not listed. */
void sandbox_delist(struct sandbox *s);

#endif
