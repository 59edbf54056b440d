// SPDX-License-Identifier: Apache-2.0
/* Declarations shared by the files of this room. */
#ifndef RAMET_ORCHESTRATOR_CORE_INTERNAL_H
#define RAMET_ORCHESTRATOR_CORE_INTERNAL_H

#include "base/alloc.h"
#include "orchestrator/agent/guest-link.h"
#include "orchestrator/core/core.h"
#include "orchestrator/journal/journal.h"
#include "orchestrator/journal/output-budget.h"
#include "orchestrator/journal/replay.h"
#include "orchestrator/journal/splitter.h"
#include "orchestrator/core/inspector.h"
#include "orchestrator/core/part.h"
#include "orchestrator/core/tenant.h"
#include "orchestrator/io/deferred.h"
#include "orchestrator/template/disk-layer.h"
#include "orchestrator/template/host.h"
#include "orchestrator/template/pool.h"
#include "orchestrator/template/private.h"
#include "orchestrator/template/templates.h"
#include "orchestrator/template/vm-bringup.h"
#include "orchestrator/store/store.h"
#include "orchestrator/vm/progress.h"
#include "orchestrator/vm/vmproc.h"
#include "orchestrator/vm/warden-client.h"

#define SANDBOX_ENV_MAX (32u << 10) /* bytes; every exec carries it in a single frame */
#define IDLE_CONNS_MAX	4
#define SEQ_BLOCK	(1u << 20) /* event numbers reserved in the catalogue at a time */
#define SEQ_RETRY	1000	   /* events until the next try after a failed reservation */

/* --- room on the host, failures (create.c, promise.c, spec.c) --------------------------------- */

/* Returns true when VM slots for `n` more sandboxes are available, counting what the pool can give
 * up; else false with *f filled. */
bool host_has_room(struct core *c, size_t n, struct failure *f);
/* Schedules an update of the VMs' memory marks: when memory runs out, VMs of tenants who were
 * promised more than their share end first. */
void promises_changed(struct core *c);
/* Called after the VMs' memory was measured. `arg` is the core. */
void promises_measured(void *arg);
/* Returns true when the RAM of all sandboxes, including those being made, plus `mib` is within the
 * setting memory_overcommit; else false with *f filled. */
bool promises_have_room(const struct core *c, uint64_t mib, struct failure *f);
/* Returns true when disk space is low: deferrable work must use no more of it. */
bool host_disk_low(const struct core *c);

/* Fills in *f for a sandbox that this tenant does not have. */
void failure_not_found(struct failure *f, const char *id);

/* --- templates (templates.c) ------------------------------------------------------------------ */

extern const struct template_env_ops template_ops;

/* --- life cycle events (life.c) --------------------------------------------------------------- */

struct sandbox;
/* `other`, `space`, `text`: NULL where the event has none. */
void life_notify(const struct sandbox *s, enum life_event event, const char *other,
		 const char *space, const char *text);
/* Reports the final end of a sandbox, by its end code. Merge and freeze report their own ends. */
void life_notify_end(const struct sandbox *s);

/* --- the host (watch.c) ----------------------------------------------------------------------- */

/* Measured some seconds ago. */
struct watched {
	struct memory_use memory; /* of sandboxes' VMs */
	uint64_t disk_free_bytes;
	char disk_error[ERR_TEXT_MAX]; /* empty: state_dir is writable */
};
void watch_start(struct core *c);
void watch_stop(struct core *c);
void watch_stats(const struct core *c, struct core_stats *out);
/* Measures one VM process now; leaves *use unchanged when that fails. */
void watch_memory(uint32_t pid, struct memory_use *use);

/* --- sandboxes (sandbox.c, create.c, exec.c, interrupt.c, adopt.c) ---------------------------- */

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

struct sandbox {
	struct core *core;
	struct list link;   /* on core->sandboxes or core->ended, oldest first */
	struct list bucket; /* keyed by id */
	struct listed listed;
	bool is_listed; /* on core->all, and on the lists of its tenant and its parent */
	enum sandbox_state state;
	char id[SANDBOX_ID_LEN + 1];
	struct tenant *owner;
	const char *tenant; /* the owner's name */
	char template[SANDBOX_NAME_MAX + 1];
	struct size size;
	uint32_t timeout_s, idle_timeout_s;
	bool persistent, egress;
	char *metadata;
	char *env; /* NAME=VALUE strings, each with its NUL */
	size_t env_len;
	const char **env_list; /* pointers into env, NULL-terminated */
	int64_t created_at_ms,
		expires_at_ms;		    /* ms since the epoch, by the wall clock at the start */
	uint64_t expires_ms, idle_since_ms; /* boot-time clock, ms; expires 0: never */
	struct loop_timer lifetime, idle;

	uint32_t slot, pid; /* as in the catalogue; the VM's `instance` is the same there */
	uint8_t instance[CTL_INSTANCE_LEN];
	struct memory_use memory; /* measured some seconds ago */
	struct vmproc *vm;
	struct guest_link
		guest; /* agent connection: idle, used by the running call, or being dialed */
	struct loop_timer redial;
	uint64_t lost_ms;   /* when the agent connection last broke, loop ms; 0: never */
	uint32_t redial_ms; /* ms until the next redial, should it break again */

	struct list deletes;	   /* calls */
	char *ancestors;	   /* as in the catalogue */
	struct list elders, heirs; /* struct descent: living ancestors and descendants */
	struct sandbox *parent;	   /* the last of its elders */
	struct roster children;	   /* sandboxes whose parent this is */

	struct list unrecorded; /* on core->unrecorded while the catalogue lists it as alive */
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
struct sandbox *sandbox_new(struct core *c, const char *id, const char *tenant);
void sandbox_set_env(struct sandbox *s, const void *env, size_t len);
/* Copies the text. Returns false, changing nothing, when memory is short. */
bool sandbox_set_metadata(struct sandbox *s, const char *metadata);
bool sandbox_set_ancestors(struct sandbox *s, const char *ancestors);
/* Frees the sandbox and all its calls, without calling back. */
void sandbox_free(struct sandbox *s);
/* Starts the timers of a sandbox that has its VM, from its recorded times. */
void sandbox_start_timers(struct sandbox *s);
/* Sets the timers anew from the boot-time clock. */
void sandbox_set_timers(struct sandbox *s);
/* Returns true while something in flight counts as continuous activity. */
bool sandbox_is_busy(const struct sandbox *s);
/* Records activity in the sandbox. */
void sandbox_touch(struct sandbox *s);
struct sandbox *sandbox_find(struct core *c, const char *tenant, const char *id, struct failure *f);
void sandbox_index(struct sandbox *s);
/* Returns false, with *f filled, while the agent of an adopted sandbox is not connected. `s` comes
 * from sandbox_find. */
bool sandbox_is_reached(const struct sandbox *s, struct failure *f);
/* Returns the living sandbox with that id, of any tenant; NULL: none. */
struct sandbox *sandbox_of_any(struct core *c, const char *id);
/* Returns the tenant's living sandbox; NULL: none. */
struct sandbox *sandbox_living(struct core *c, const char *tenant, const char *id);
void sandbox_view_fill(const struct sandbox *s, struct sandbox_view *view);
/* Starts the sandbox's lifetime. Returns its catalogue row, with the VM it will have. */
struct store_sandbox sandbox_row(struct sandbox *s, const struct ready_vm *ready);
/* Hands the VM to a sandbox whose row is in the catalogue; from here on calls find it. */
void sandbox_begin(struct sandbox *s, struct ready_vm *ready);
extern const struct vmproc_owner sandbox_vm_owner;
void sandbox_dial(struct sandbox *s);
void sandbox_lose_agent(struct sandbox *s, const char *reason);
void sandbox_drop_agent(struct sandbox *s);
/* Ends the sandbox: its calls fail with `code`, its VM is dropped. `forget`: leaves no trace. */
void sandbox_end(struct sandbox *s, const char *code, const char *text, bool forget);
/* Ends a sandbox whose VM went to another one by a merge; the catalogue has that already. */
void sandbox_end_merged(struct sandbox *s, int64_t at_ms, const char *text);
/* Ends a sandbox that is now a Space; the catalogue has that already. */
void sandbox_end_frozen(struct sandbox *s, int64_t at_ms, const char *text, const char *space);
/* Returns the end code equal to `code`, as a static string. */
const char *sandbox_end_code(const char *code);
int adopt_all(struct core *c, struct err *e);
/* Leaves the VM found in the sandbox's slot alone if it belongs to another sandbox. */
void adopt_leave_foreign(struct sandbox *s);

/* Sandboxes that have ended (ended.c). */
/* Writes the end to the catalogue, with retries when that fails. Until it is written, the sandbox
 * is on core->unrecorded and no other VM gets its slot, so that its row never names another
 * sandbox's VM. */
void ended_record(struct sandbox *s);
/* Drops the VM of an ended sandbox. `gone` gets the sandbox and calls ended_vm_gone. */
void ended_drop_vm(struct sandbox *s, void (*gone)(void *arg));
/* Keeps the record of how the sandbox ended, or frees it. */
void ended_vm_gone(struct sandbox *s);
/* Keeps only the record of how the last sandboxes ended. */
void ended_keep(struct sandbox *s);
/* Loads the ended sandboxes to keep from the catalogue. */
int ended_load(struct core *c, store_sandbox_fn *each, struct err *e);
/* Starts removing old ended sandboxes, from the catalogue too. */
void ended_purge(struct core *c);
/* Gives up recording ends that are not in the catalogue yet: the next instance finds that their VMs
 * are gone. */
void ended_close(struct core *c);

/* Fails everything in flight in the VM except execs. */
void sandbox_fail_side_calls(struct sandbox *s, const struct failure *f);

/* Fork ancestry of sandboxes (lineage.c). */
bool lineage_has(const char *ancestors, const char *id);
/* Returns the ancestors of a child of `parent`; the caller frees it. */
char *lineage_of_child(const struct sandbox *parent);
/* Returns `ancestors` with `winner` replaced by `parent`; the caller frees it. */
char *lineage_merged(const char *ancestors, const char *winner, const char *parent);
/* Links a listed sandbox to its living ancestors, which are listed too. */
void lineage_link(struct sandbox *s);
/* Unlinks it; the last of their other elders becomes its children's parent. */
void lineage_unlink(struct sandbox *s);
/* Replaces the sandbox's ancestors by `ancestors`, from lineage_merged, and takes ownership. */
void lineage_change(struct sandbox *s, char *ancestors);
/* A pair of living sandboxes: `heir` descends from `elder`. */
struct descent {
	struct list of_heir;  /* on heir->elders, oldest first */
	struct list of_elder; /* on elder->heirs */
	struct sandbox *elder, *heir;
};

/* The registry of all sandboxes (registry.c). */
/* Lists and counts a living sandbox in this state. lineage_link then links its ancestors. */
void sandbox_enlist(struct sandbox *s, enum sandbox_state state);
/* Unlists an ended sandbox, which is then found by its id only. Ignores one that is not listed. */
void sandbox_delist(struct sandbox *s);

/* Operations of one kind of call. Each member says what NULL means. */
struct call_ops {
	/* Of the struct whose first member the core_call is; 0: there is only a core_call. */
	size_t size;
	/* Not counted as a request, nor as activity: the call may wait forever, is counted where it
	 * begins, or only shows existing state. */
	bool passive;
	bool makes_sandboxes; /* check the pool when the call is over */
	/* Frees what the call has in flight, if anything. NULL: nothing to free. */
	void (*put_away)(struct core_call *call);
	/* The call is over: `call->failed` and its failure are set, and its end is about to be
	 * reported. Connections and VMs in use don't wait for that. NULL: put_away when it has
	 * failed. */
	void (*finished)(struct core_call *call);
	/* Reports the end. NULL: calls done_fn, unless the call was abandoned. */
	void (*notify)(struct core_call *call);
	/* The client went away. NULL: the call continues, and its end is not reported. */
	void (*abandon)(struct core_call *call);
	/* Applies back-pressure. NULL: nothing to pause. */
	void (*set_paused)(struct core_call *call, bool paused);
};
extern const struct call_ops call_plain; /* has only a done_fn */

struct core_call {
	const struct call_ops *ops;
	struct core *core;
	/* On the list of the room that works for it (core->creates, ->waits, a sandbox's ->deletes
	 * or the calls of its part), then on core->finished. */
	struct list link;
	struct deferred deferred;
	uint64_t began_ms; /* on the loop's clock */
	bool abandoned, failed;
	unsigned coming;     /* sandboxes that the call is about to make, and their */
	uint64_t coming_mib; /* total RAM and disk */
	uint64_t coming_gb;
	struct tenant *tenant; /* of this call; set only while `coming` */
	struct failure failure;
	void *arg;
	core_done_fn *done_fn; /* reports the end; unused by kinds with a `notify` */
};

struct core_call *call_new(struct core *c, const struct call_ops *ops, void *arg);
/* Unlinks the call and frees it with all it owns. */
void call_free(struct core_call *call);
/* Counts `n` sandboxes of the tenant and of this size as being made, until the call is finished or
 * call_expects_none. NULL: call_promise gives the size once it is known. */
void call_expect(struct core_call *call, struct tenant *t, unsigned n, const struct size *each);
void call_promise(struct core_call *call, unsigned n, const struct size *each);
void call_expects_none(struct core_call *call);
/* Ends the call with `f` (NULL: success) on the loop's next turn. */
void call_finish(struct core_call *call, const struct failure *f);
/* Calls call_finish for each call of a list. */
void calls_fail(struct list *calls, const struct failure *f);
/* Frees each call of a list, without an answer to anybody. */
void calls_free(struct list *calls);

/* Starts the next queued call when the sandbox is able to run one. */
void exec_next(struct sandbox *s);
/* Restarts the timer of the running call's time limit. */
void exec_set_timer(struct sandbox *s);
/* Stops reading from the agent while `held`. */
void exec_hold(struct sandbox *s, bool held);
/* --- Records the state of the running call in *out. Returns 0 or -ENOMEM; free *out with
 * exec_point_fini in both cases.  */
int exec_note(struct sandbox *s, struct exec_point *out);
void exec_point_fini(struct exec_point *p);
/* Gives the call to a child without calls; exec_go_on continues it. Returns 0 or -ENOMEM. */
int exec_copy(struct sandbox *s, const struct exec_point *p);
void exec_go_on(struct sandbox *s);
/* Moves the calls of `from` to `to`, ahead of those queued there; a call running in `to` fails. */
void exec_move(struct sandbox *from, struct sandbox *to);
/* Commits the changes noted in the journal. */
void exec_keep(struct sandbox *s);
/* Rewrites the whole journal, with at most the last `replay_most` bytes of events. */
void exec_keep_all(struct sandbox *s, size_t replay_most);
/* Returns true when an unfinished line is longer than may be held while the output budget is used
 * up. */
bool exec_has_long_line(struct sandbox *s);
/* Delivers such lines in parts. */
void exec_cut_lines(struct sandbox *s);
/* Drops held output until all of it is within the budget (output.c). */
void output_trim(struct core *c);
/* Notifies followers of new events, or that nothing runs any more. */
void follow_news(struct sandbox *s);
/* Starts the next waiting fork; the sandbox can be copied now. */
void fork_next(struct sandbox *s);
/* Returns the seconds until a retry after taking a snapshot failed with `error`; 0: waiting does
 * not help. */
unsigned fork_retry_s(int error);
/* Fails the forks of a sandbox that ends or whose VM is about to be replaced. */
void fork_sandbox_gone(struct sandbox *s, const struct failure *f);

/* --- the catalogue (catalogue.c) ------------------------------------------------------------- */

/* Opens the catalogue and sets c->store. */
int catalogue_open(struct core *c, struct err *e);
/* Writes what is not on disk yet; the job in progress does it, if there is one. */
void catalogue_close(struct core *c);
/* Returns the catalogue's error, formatted in `text` where needed, or NULL. */
const char *catalogue_error(const struct core *c, char *text, size_t size);
/* Waits until the catalogue's current contents are on disk and survive a power cut. `fn` comes from
 * the loop with 0 or -errno, and never after a cancel. */
struct store_sync;
typedef void store_sync_fn(void *arg, int error);
struct store_sync *store_sync(struct core *c, store_sync_fn *fn, void *arg);
void store_sync_cancel(struct store_sync *sync);

/* --- Spaces (space.c, space-load.c, freeze.c, resume.c) --------------------------------------- */

#define SPACE_ID_PREFIX "spc_"

struct space {
	struct list link;   /* on snapshot_core.spaces, oldest first */
	struct list bucket; /* keyed by id */
	struct list
		unread; /* on snapshot_core.unread_spaces until this instance has read all of it */
	struct listed listed; /* on the owner's snapshot_tenant.spaces */
	struct tenant *owner;
	struct core *core;
	char id[SANDBOX_ID_LEN + 1], sandbox[SANDBOX_ID_LEN + 1];
	const char *tenant; /* the owner's name */
	char *metadata;
	char template[SANDBOX_NAME_MAX + 1];
	struct size size;
	uint32_t timeout_s, idle_timeout_s;
	bool egress;
	int64_t created_at_ms;
	uint64_t size_bytes, seq;
	char *env;
	size_t env_len;
	struct resume *resume;	   /* in progress, or NULL */
	char damage[ERR_TEXT_MAX]; /* the error found in it; empty: none known */
};

/* Loads the Spaces from the catalogue and the Space directories from disk. */
int spaces_load(struct core *c, struct err *e);
/* Reads the Spaces that this instance has not read yet, one after the other. */
void spaces_scrub(struct core *c);
void spaces_free(struct core *c);
struct space *space_add(struct core *c, const struct store_space *row);
void space_view_fill(const struct space *p, struct space_view *view);
/* Returns NULL, with *f filled, when the tenant has no such Space or it is damaged. */
struct space *space_find(struct core *c, const char *tenant, const char *id, struct failure *f);
void space_damaged(struct space *p, const char *what);
/* Marks a Space as fully read or written: it needs no scrub. */
void space_checked(struct space *p);
/* Removes the Space from memory; its files stay. */
void space_forget(struct space *p);
/* Removes the files of a Space that is gone, in the background. */
void space_files_drop(struct core *c, const char *id);
/* Returns the Space of any tenant; NULL when there is none. */
struct space *space_of(struct core *c, const char *id);
/* Removes lost Spaces whose retention time is over. */
void spaces_lost_check(struct core *c);
/* Frees the state of space-load.c; running removals end with the loop. */
void spaces_unload(struct core *c);

/* Watch the running call: stall_begin once the guest has it, stall_heard when the guest sends
 * something, stall_end once the guest has none. */
void stall_begin(struct sandbox *s);
void stall_heard(struct sandbox *s);
void stall_end(struct sandbox *s);
/* Starts the next waiting inspection; one has ended. */
void stall_next(struct core *c);

/* Cancels the backups; the core is being freed. */
void backups_free(struct core *c);
/* Removes the files of a backup that a kill interrupted. */
void backup_sweep(const struct core *c);

/* Starts the next waiting freeze. */
void freeze_next(struct core *c);
void freezes_free(struct core *c);

/* --- the core --------------------------------------------------------------------------------- */

#define BUCKETS 16384 /* the maximum number of VMs */
static inline unsigned bucket_number(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return hash % BUCKETS;
}

struct core {
	struct part *const *parts; /* the rooms above sandboxes; ends with NULL */
	struct part_sizes sizes;
	const struct inspector *inspector;
	struct loop *loop;
	struct config config;
	struct deferred_queue deferred;
	struct store *store;
	struct keys *keys;
	struct catalogue_job *catalogue_job; /* in progress, or NULL */
	struct loop_timer catalogue_timer;   /* for the next job */
	uint32_t catalogue_retry_ms;	     /* retry delay after a failed job; else 0 */
	uint64_t behind_since_ms; /* loop ms since the disk lags behind; 0: it does not */
	struct list syncs;	  /* struct store_sync, in order */
	struct deferred sync_deferred;
	struct warden_client *warden;
	struct vmproc_host vms;
	struct template_env template_env;
	struct templates *templates;
	struct privates *privates;
	struct pool *pool;
	size_t n_requests;   /* calls in flight, except followers and operations */
	size_t n_operations; /* operations in guests in flight, which are not requests */
	struct list sandboxes, ended;
	struct roster all; /* living sandboxes */
	size_t n_sandboxes, n_ended;
	size_t n_in[SBX_NSTATES]; /* living sandboxes by state */
	uint64_t promised_mib;	  /* RAM of living sandboxes */
	size_t n_coming;	  /* sandboxes being made, */
	uint64_t coming_mib;	  /* and their RAM */
	struct list tenants;	  /* tenants that own or use something */
	struct list tenant_buckets[BUCKETS];
	struct list unrecorded; /* ended sandboxes whose end is not in the catalogue */
	size_t n_unrecorded;
	struct loop_timer record, purge;
	uint32_t record_ms; /* between the last two tries; 0: all ends are written */
	struct list buckets[BUCKETS];
	const char **children; /* buffer of the last core_view */
	struct list creates;   /* calls still making their sandbox */
	struct list waits;     /* calls that wait only for the disk or for a report */
	struct list finished;  /* calls whose end is about to be reported */
	/* Counters. */
	struct {
		uint64_t creates, create_failures, vm_deaths;
		uint64_t pool_hits, pool_misses;
	} stats;
	int64_t clocks_ms;     /* wall clock minus boot-time clock; 0: not measured */
	struct backup *backup; /* in progress, or NULL */
	bool closing;
	struct watching *watching; /* in progress, or NULL */
	struct watched watched;
	uint64_t watched_ms; /* when `watched` was measured, on the loop's clock */
	struct loop_timer watch_timer;
	struct loop_timer promises_timer;
	core_life_fn *life_fn; /* NULL: no listener */
	void *life_arg;
};

/* --- state of calls (exec.c) -------------------------------------------------------------------
 */

/* State for detecting a running call without progress (stall.c). */
struct stall_watch {
	struct loop_timer timer;
	struct vmproc_progress progress; /* since the timer was set */
	uint64_t wait_ms;		 /* ms until the next check of a guest that answers */
	bool heard;			 /* the guest sent something since the timer was set */
	struct inspection *inspection;	 /* in progress, or NULL */
	struct list turn; /* on exec_core.stall_turns while it waits for an inspection */
};

struct exec_sandbox {
	struct sandbox *sandbox;
	struct list calls; /* execs in order of arrival; the first runs in SBX_RUNNING */
	size_t n_calls;
	size_t sending_bytes; /* bytes of a call that the connection has accepted and the guest has
				 not */
	bool held;	      /* reading from the agent is stopped */
	bool guest_busy;      /* may still run an abandoned call, so the next call's start time is
				 unknown */
	struct list interrupts, follows; /* calls */
	uint64_t seq, seq_reserved; /* of events: the last number used, and the last one reserved in
				       the catalogue */
	struct output_account *output; /* the account for its held output */
	struct replay replay;
	struct journal
		*journal; /* NULL: events are not kept for the next instance of the service */
	struct stall_watch stall;
};
struct exec_tenant {
	size_t waiting_bytes; /* of its calls that no guest has accepted yet */
	struct output_account *output;
};
struct exec_core {
	size_t waiting_bytes; /* of calls that no guest has accepted yet */
	struct output_budget output;
	struct deferred output_deferred;
	struct list stall_turns; /* struct exec_sandbox, waiting for an inspection, next first */
	struct deferred stall_deferred;
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
static inline struct exec_core *exec_of_core(const struct core *c)
{
	return part_of_core(&exec_part, c);
}

/* --- state of operations in guests (guest-op.c, diff.c) ----------------------------------------
 */

struct guestops_sandbox {
	struct list ops; /* file and terminal operations in flight */
	unsigned n_ops, n_listeners;
	struct agent
		*idle_conns[IDLE_CONNS_MAX]; /* idle connections for file and terminal operations */
	struct loop_timer idle_conn_timer;
};
struct guestops_tenant {
	size_t operations, listeners; /* in flight */
};
struct guestops_core {
	struct list diffs; /* calls in flight */
	/* Counters; listeners: in flight. */
	uint64_t file_calls, file_failures, file_bytes_in, file_bytes_out;
	uint64_t ptys, pty_bytes_in, pty_bytes_out, listeners;
};
extern struct part guestops_part;
static inline struct guestops_sandbox *guestops_of(const struct sandbox *s)
{
	return part_of_sandbox(&guestops_part, s);
}
static inline struct guestops_tenant *guestops_of_tenant(const struct tenant *t)
{
	return part_of_tenant(&guestops_part, t);
}
static inline struct guestops_core *guestops_of_core(const struct core *c)
{
	return part_of_core(&guestops_part, c);
}

/* The core goes: frees calls in flight. */
void guestops_close(struct core *c);

/* --- state of forks, freezes and Spaces (snapshot.c) -------------------------------------------
 */

struct snapshot_sandbox {
	struct list forks;		/* calls */
	struct core_call *copying;	/* the fork whose snapshot is being taken */
	struct freeze *freeze;		/* requested, or in progress */
	char space[SANDBOX_ID_LEN + 1]; /* the Space it was resumed from, whose files are in use */
};
struct snapshot_tenant {
	struct tenant *tenant;
	struct roster spaces;
	uint64_t spaces_bytes;
	struct list freezes;	 /* struct freeze: waiting ones, in order */
	struct list freeze_turn; /* on snapshot_core.freeze_turns while any waits */
	unsigned freezing;	 /* in progress */
};
struct snapshot_core {
	struct list resumes; /* calls in flight */
	struct list spaces;  /* struct space */
	struct list space_buckets[BUCKETS];
	struct list unread_spaces;
	struct list lost_spaces;  /* struct lost_space, longest lost first */
	struct list removals;	  /* of Space files, in progress */
	struct list freezes;	  /* struct freeze */
	struct list freeze_turns; /* struct snapshot_tenant with waiting freezes, next first */
	unsigned n_freezing;	  /* freezes that hold a freeze slot */
	struct deferred freeze_deferred;
	struct scrub *scrub; /* in progress, or NULL */
	/* Counters. */
	uint64_t forks, fork_failures, merges;
	uint64_t n_frozen, freeze_failures, n_resumed, resume_failures;
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
static inline struct snapshot_core *snapshots_of_core(const struct core *c)
{
	return part_of_core(&snapshot_part, c);
}
/* The service stops: forks and resumes fail with `f`. */
void snapshots_shut_down(struct core *c, const struct failure *f);
/* The core goes: frees calls in flight; later, without sandboxes, freezes and Spaces. */
void snapshots_close(struct core *c);
void snapshots_free(struct core *c);
/* The sandbox ends (`f`: its calls fail), or is freed (NULL) while it is to be frozen. */
void freeze_sandbox_gone(struct sandbox *s, const struct failure *f);
/* Bytes of the Space that are written, and all of them; 0 when nothing is being written. */
void freeze_progress(const struct sandbox *s, uint64_t *written, uint64_t *total);
/* Has the sandbox frozen; `call` (or NULL) waits for it. */
void freeze_start(struct sandbox *s, struct core_call *call);
/* The sandbox has ended: the files of the Space it was are not in use any more. */
void resume_shed(struct sandbox *s);

#endif
