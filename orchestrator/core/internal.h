// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this room. */
#ifndef RAMET_ORCHESTRATOR_CORE_INTERNAL_H
#define RAMET_ORCHESTRATOR_CORE_INTERNAL_H

#include "base/alloc.h"
#include "orchestrator/agent/guest-link.h"
#include "orchestrator/core/core.h"
#include "orchestrator/journal/journal.h"
#include "orchestrator/journal/output-budget.h"
#include "orchestrator/template/recent.h"
#include "orchestrator/journal/replay.h"
#include "orchestrator/journal/splitter.h"
#include "orchestrator/template/host.h"
#include "orchestrator/template/sizes.h"
#include "orchestrator/core/tenant.h"
#include "orchestrator/io/deferred.h"
#include "orchestrator/store/store.h"
#include "orchestrator/vm/progress.h"
#include "orchestrator/vm/vmproc.h"
#include "orchestrator/vm/warden-client.h"

#define SANDBOX_ENV_MAX (32u << 10) /* bytes: it goes with each exec, in one frame */
#define IDLE_CONNS_MAX	4
#define SEQ_BLOCK	(1u << 20) /* event numbers reserved in the catalogue at once */
#define SEQ_RETRY	1000	   /* events until the next try, when that failed */

/* --- sizes (spec.c) -------------------------------------------------------------------------- */

/* Chooses what the host can give for what was asked, up to `most` of it; false with *f filled when
 * it is too little. */
bool size_choose(const struct source *from, const struct sandbox_spec *spec,
		 const struct size *most, struct sized_choice *out, struct failure *f);
/* A shell that serves each size with the default's vCPUs: with `auto` of any RAM that the host
 * gives, else up to the largest of `sizes`. */
struct vmproc_spec size_blank_spec(const struct core *c);

/* There are VMs for `n` more sandboxes; else *f is filled. What is in the pool makes room. */
bool host_has_room(struct core *c, size_t n, struct failure *f);
/* Has the VMs of tenants who were promised more than their share marked soon, as those that end
 * first when memory runs out. */
void promises_changed(struct core *c);
/* The VMs' memory was measured. `arg` is the core. */
void promises_measured(void *arg);
/* The RAM of all sandboxes, those on their way too, and `mib` more is within the setting
 * memory_overcommit; else *f is filled. */
bool promises_have_room(const struct core *c, uint64_t mib, struct failure *f);
/* What can wait takes no more of it. */
bool host_disk_low(const struct core *c);

void failure_set(struct failure *f, int status, const char *code, unsigned retry_after,
		 const char *format, ...) __attribute__((format(printf, 5, 6)));
/* A sandbox that is not there for this tenant. */
void failure_not_found(struct failure *f, const char *id);

/* --- templates (template.c, template-{ahead,build,files,source}.c) ---------------------------- */

struct template;
struct template_wait {
	struct list link;
	struct deferred deferred;
	struct template *template;
	void (*fn)(void *arg, const struct failure *f); /* f NULL: ready */
	void *arg;
	struct failure failure;
	bool failed;
};
/* The template made from `from` of this size, made known when it is new, until it is put back; one
 * that nobody has may be forgotten. NULL: as many as may be are in use. */
struct template *template_get(struct core *c, const struct source *from, const struct size *size);
struct template *template_hold(struct template *t);
void template_put(struct template *t);
bool template_ready(const struct template *t);
/* Why it is not ready; empty when it is on the way. */
const char *template_error(const struct template *t);
const char *template_name(const struct template *t);
const struct size *template_size(const struct template *t);
/* Prepares it if needed; `fn` comes from the loop. */
void template_wait(struct template *t, struct template_wait *w,
		   void (*fn)(void *arg, const struct failure *f), void *arg);
void template_unwait(struct template_wait *w);
struct disk_job;
/* Opens what a restore needs: TEMPLATE_FDS descriptors, as CTL_FILL wants them. */
#define TEMPLATE_FDS	5
#define TEMPLATE_MEMORY 1 /* of these, and of an image's */
struct disk_job *template_open(struct template *t, void (*done)(void *arg, struct disk_job *job),
			       void *arg);
/* Opens the memory file of one that is ready: one descriptor. */
struct disk_job *template_open_memory(struct template *t,
				      void (*done)(void *arg, struct disk_job *job), void *arg);
/* It was not possible. */
void template_open_failed(struct template *t, int error);
/* What CTL_FILL says of a restore with a disk of `rootfs_gb`. */
void template_fill(uint32_t rootfs_gb, struct ctl_msg *fill);
/* How restores of it go: an image that was found on disk and never works is made anew. Nothing is
 * its fault while the disk is full. */
void template_restored(struct template *t, bool well);
/* An empty file for a writable disk layer, without a name; -errno with *e filled. On a worker. */
int disk_layer_new(const char *state_dir, struct err *e);
/* `n` empty files for writable disk layers, without names. */
struct disk_job *disk_layers_open(struct core *c, unsigned n,
				  void (*done)(void *arg, struct disk_job *job), void *arg);

/* What templates there are (sources.c). */
struct sources {
	size_t n;
	struct known_source {
		struct source source;
		int ret; /* negative: it is there, but can't be used; `why` says why */
		char reason[ERR_TEXT_MAX];
	} all[]; /* the default one first */
};
/* NULL: it was not there at the last look. */
const struct known_source *sources_find(const struct sources *s, const char *name);
void sources_load(struct core *c);
/* Looks again, on a worker. */
void sources_refresh(struct core *c);
void sources_free(struct core *c);
/* Of the files of a template, once they are whole: no VM's own file has such a mode, nor can its
 * process, of another user, set one. */
#define TEMPLATE_FILE_MODE 0400
/* Removes what an earlier life left half made. */
void templates_sweep(const struct config *config);
/*
 * Background work: builds that nobody waits for, and warm sandboxes that nobody asked for. It
 * begins only when the core is calm; a build stands still while it is not.
 */
/* Prepares, one after the other, what is likely to be asked for. Returns after how many ms it is to
 * be called again; 0: when something has changed. */
uint64_t templates_ahead(struct core *c);
/* How many images are made ahead of need, at most. */
size_t templates_ahead_count(const struct core *c);
/* No request is under way, nor was in the last seconds. */
bool core_is_calm(const struct core *c);
/* Somebody wants something: background work yields. */
void core_touch(struct core *c);
/* Nobody waits for what is being built. */
bool template_is_background(const struct template *t);
/* Gives up the build that is under way when nobody waits for it. False: there is none. */
bool templates_yield(struct core *c);
void templates_close(struct core *c); /* nothing is prepared from here on */
void templates_free(struct core *c);

/* --- warm sandboxes and the pool (warm.c, pool.c) --------------------------------------------- */

struct warm;
/* `w` is the callee's, NULL when it failed. */
typedef void warm_fn(void *arg, struct warm *w, const char *text);
/* What a VM is filled from: a ready template, or an image with the shell and the empty disk layer
 * for it, taken over. */
struct warm_source {
	struct size size;
	struct template *template;
	const char *private_of; /* maps this tenant's copy of the template's memory; NULL: not */
	struct vmproc_image *image;
	struct vmproc *blank;
	int writable;
	bool closed;	      /* its packets don't leave the host, from before it has a guest */
	bool user_generators; /* of a sandbox are made unique too; those of a template always are */
	bool prime;	      /* what a first call touches is touched ahead of it */
};
/* Fills a VM and makes it unique. `fn` comes from the loop. */
struct warm *warm_make(struct core *c, const struct warm_source *from, warm_fn *fn, void *arg);
/* Calls that leave no trace but what a first call loads and touches. */
#define PRIMING_CALLS 2
extern const struct agent_exec priming_calls[PRIMING_CALLS];
/* At any time: drops the VM. NULL is fine. */
void warm_free(struct warm *w);
/* Frees it but keeps what is in it: the caller sets new owners. */
struct warm_parts {
	struct vmproc *vm;
	struct agent *agent;
	char id[SANDBOX_ID_LEN + 1];
	uint64_t filled_ns; /* when its vCPUs ran, on the monotonic clock */
};
struct warm_parts warm_take(struct warm *w);
/* Closes the way to the network of one that is ready, for good; then `fn` comes again. */
void warm_close_egress(struct warm *w, warm_fn *fn, void *arg);
void warm_parts_drop(struct warm_parts *parts);

/* More and more slowly while it fails. */
struct pool_pace {
	uint32_t backoff_ms; /* 0: all is well */
	uint64_t not_before_ms;
};

/* Warm sandboxes of one template and disk size. */
struct pool_bucket {
	struct list link; /* on pool->others, least recently asked for first */
	struct template *template;
	uint32_t rootfs_gb;
	uint64_t asked_ms;
	bool for_good;
	bool background;   /* nobody has asked for it in this instance */
	struct list warms; /* struct pool_item */
	uint32_t n, wanted;
	struct pool_pace pace;
	bool was_filled;
};

struct pool {
	struct list blanks; /* struct pool_item */
	uint32_t n_blanks;
	struct pool_bucket main; /* of the default template */
	struct list others;
	struct pool_item *spawning; /* shell under way */
	struct pool_item *making;   /* warm sandbox under way */
	struct loop_timer refill;
	struct pool_pace blank_pace;
};
void pool_init(struct core *c);
/* The default template is known. */
void pool_start(struct core *c);
/* Looks soon whether something is missing. */
void pool_check(struct core *c);
/* NULL when there is none. The shell is of that size. */
struct vmproc *pool_take_blank(struct core *c, const struct size *size);
/* Also remembers for a while that it was asked for. */
struct warm *pool_take_warm(struct core *c, struct template *t, uint32_t rootfs_gb);
/* Warm sandboxes of the template with such a disk are kept for good. */
void pool_keep(struct core *c, struct template *t, uint32_t rootfs_gb);
/* They are kept for a while, as if they had been asked for just now. */
void pool_expect(struct core *c, struct template *t, uint32_t rootfs_gb);
/* Stops making a warm sandbox that nobody has asked for. */
void pool_yield_background(struct core *c);
uint32_t pool_warms(const struct core *c);
/* What shells and warm sandboxes are to be kept, is kept. */
bool pool_is_full(const struct core *c);
/* Gives up a shell or warm sandbox for somebody who waits for a slot. */
bool pool_yield(struct core *c);
void pool_close(struct core *c);

/* --- lives (life.c) --------------------------------------------------------------------------- */

struct sandbox;
/* `other`, `space`, `text`: NULL where the event has none. */
void life_notify(const struct sandbox *s, enum life_event event, const char *other,
		 const char *space, const char *text);
/* Of one that has ended for good: what its code says. A merge or a freeze is told by who did it. */
void life_notify_end(const struct sandbox *s);

/* --- the host (watch.c) ----------------------------------------------------------------------- */

/* As it was some seconds ago. */
struct watched {
	struct memory_use memory; /* of the VMs of sandboxes */
	uint64_t disk_free_bytes;
	char disk_error[ERR_TEXT_MAX]; /* empty: state_dir can be written */
};
void watch_start(struct core *c);
void watch_stop(struct core *c);
void watch_stats(const struct core *c, struct core_stats *out);
/* Of one VM process, now; as it was when it can't be told. */
void watch_memory(uint32_t pid, struct memory_use *use);

/* --- sandboxes (sandbox.c, create.c, exec.c, interrupt.c, adopt.c) ---------------------------- */

enum sandbox_state {
	SBX_ADOPTING, /* its VM was found, its agent not yet reached */
	SBX_READY,
	SBX_RUNNING,  /* a call is at the agent */
	SBX_FREEZING, /* its VM stands still and is written to disk; a call may be at the agent */
	SBX_ENDING,   /* its VM goes */
	SBX_ENDED,    /* kept for a while, to say what became of it */
	SBX_NSTATES,
};

enum sandbox_event {
	SBX_REACHED, /* the agent of an adopted VM */
	SBX_EXEC,
	SBX_EXEC_OVER,
	SBX_FREEZE,
	SBX_THAW, /* it could not be frozen, and its VM runs again */
	SBX_END,
	SBX_VM_GONE,
	SBX_NEVENTS,
};

/* What finds that the running call stands still (stall.c). */
struct inspection;
struct stall_watch {
	struct loop_timer timer;
	struct vmproc_progress progress; /* since the timer was set */
	uint64_t wait_ms;		 /* until the next look at a guest that answers */
	bool heard;			 /* something came since the timer was set */
	struct inspection *inspection;	 /* under way */
	struct list turn;		 /* on core->stall_turns while it waits for one */
};

struct sandbox {
	struct core *core;
	struct list link;   /* on core->sandboxes or core->ended, oldest first */
	struct list bucket; /* by id */
	struct listed listed;
	bool is_listed; /* on core->all, and those of its tenant and its parent */
	enum sandbox_state state;
	char id[SANDBOX_ID_LEN + 1];
	struct tenant *owner;
	const char *tenant; /* the owner's name */
	char template[SANDBOX_NAME_MAX + 1];
	struct size size;
	uint32_t timeout_s, idle_timeout_s;
	bool persistent, egress;
	char *metadata;
	char *env; /* NAME=VALUE, each with its NUL */
	size_t env_len;
	const char **env_list;		      /* into env, NULL-terminated */
	int64_t created_at_ms, expires_at_ms; /* as the wall clock was at the start */
	uint64_t expires_ms, idle_since_ms;   /* on the boot-time clock; expires 0: never */
	struct loop_timer lifetime, idle;

	uint32_t slot, pid; /* as in the catalogue, and so is the VM's `instance` */
	uint8_t instance[CTL_INSTANCE_LEN];
	struct memory_use memory; /* as it was some seconds ago */
	struct vmproc *vm;
	struct guest_link guest; /* to the agent: idle, at the running call, or on its way */
	struct loop_timer redial;
	uint64_t lost_ms;   /* when the agent's connection broke last; 0: never */
	uint32_t redial_ms; /* until a new one is tried, should it break again */
	bool guest_busy;    /* maybe with a call nobody waits for: the next one's time is unknown */

	struct stall_watch stall;
	struct list calls; /* execs, in order of arrival; the first runs in SBX_RUNNING */
	size_t n_calls;
	size_t sending_bytes; /* of a call, that `agent` has and the guest not yet */
	struct list interrupts, deletes, forks;
	struct list ops; /* on files and terminals */
	unsigned n_ops, n_listeners;
	struct agent *idle_conns[IDLE_CONNS_MAX]; /* connections that wait for such */
	struct loop_timer idle_conn_timer;
	struct core_call *copying;	/* the fork whose image is being taken */
	struct freeze *freeze;		/* asked for, or under way */
	char space[SANDBOX_ID_LEN + 1]; /* what it was resumed from: its files are in use */
	bool held;			/* nothing is read from the agent meanwhile */
	char *ancestors;		/* as in the catalogue */
	struct list elders, heirs;	/* struct descent: ancestors and descendants that live */
	struct sandbox *parent;		/* the last of its elders */
	struct roster children;		/* whose parent it is */
	uint64_t seq, seq_reserved;
	struct output_account *output; /* where what is held of its output counts */
	struct replay replay;
	struct list follows;
	struct journal *journal; /* NULL: events are not kept for a later life of the service */

	struct list unrecorded; /* on core->unrecorded while the catalogue says that it lives */
	struct vmproc *kept_vm; /* dropped, but its slot stays taken as long; NULL: there is none */
	bool off_catalogue;	/* its row is gone already */
	bool forget;		/* no trace is kept once the VM is gone */
	int64_t ended_at_ms;
	const char *ended_code; /* static */
	char ended_text[ERR_TEXT_MAX];
};

/* What a part of the service that is above sandboxes does when something becomes of one. A NULL
 * member: nothing. */
struct sandbox_hooks {
	/* There is a new connection to its agent. */
	void (*agent_reached)(struct sandbox *s);
	void (*agent_frame)(struct sandbox *s, const struct agent_frame *frame);
	/* The guest has all that the connection was given. */
	void (*agent_sent)(struct sandbox *s);
	/* The connection is gone, and what it had not sent with it. */
	void (*agent_dropped)(struct sandbox *s);
	/* It has its VM and an empty diary. */
	void (*begun)(struct sandbox *s);
	/* Its time is over, and it is persistent: it is to be frozen. */
	void (*freeze)(struct sandbox *s);
	/* It ends, or its VM is to be another one, and is still there: what is under way in it
	 * beside its execs fails with `f`. */
	void (*fail_side_calls)(struct sandbox *s, const struct failure *f);
	/* All but the record of what it was is given up. */
	void (*shed)(struct sandbox *s);
	/* Its VM is gone, and it may be, too. */
	void (*vm_gone)(struct core *c);
	/* It is freed, without a word to anybody. */
	void (*freed)(struct sandbox *s);
	/* Adds what it knows. */
	void (*view)(const struct sandbox *s, struct sandbox_view *view);
};
extern const struct sandbox_hooks stall_hooks, inspect_hooks, exec_hooks, fork_hooks, freeze_hooks,
	resume_hooks, diff_hooks, guest_op_hooks;

/* False, and nothing changes, when the event has no place in the state. */
bool sandbox_step(struct sandbox *s, enum sandbox_event event);
struct sandbox *sandbox_new(struct core *c, const char *id, const char *tenant);
void sandbox_set_env(struct sandbox *s, const void *env, size_t len);
/* Copied; false, and nothing changes, when there is no memory. */
bool sandbox_set_metadata(struct sandbox *s, const char *metadata);
bool sandbox_set_ancestors(struct sandbox *s, const char *ancestors);
/* Frees it and all calls in it, without a word to anybody. */
void sandbox_free(struct sandbox *s);
/* Its VM is there: gives it the timers, by what is known of its times. */
void sandbox_start_timers(struct sandbox *s);
/* Sets them by the boot-time clock anew. */
void sandbox_set_timers(struct sandbox *s);
/* Something is under way in it that counts as activity all along. */
bool sandbox_is_busy(const struct sandbox *s);
/* Something was done in it. */
void sandbox_touch(struct sandbox *s);
struct sandbox *sandbox_find(struct core *c, const char *tenant, const char *id, struct failure *f);
void sandbox_index(struct sandbox *s);
/* False with *f filled while the agent of an adopted one is not. Of one that sandbox_find found. */
bool sandbox_is_reached(const struct sandbox *s, struct failure *f);
/* The living one with that id, whosever it is; NULL: there is none. */
struct sandbox *sandbox_of_any(struct core *c, const char *id);
/* NULL: there is none that lives. */
struct sandbox *sandbox_living(struct core *c, const char *tenant, const char *id);
void sandbox_view_fill(const struct sandbox *s, struct sandbox_view *view);
/* Its time begins: the row it gets in the catalogue, with the VM it will have. */
struct store_sandbox sandbox_row(struct sandbox *s, const struct warm_parts *parts);
/* It is in the catalogue: it gets the VM, and calls may find it. */
void sandbox_begin(struct sandbox *s, struct warm_parts *parts);
extern const struct vmproc_owner sandbox_vm_owner;
void sandbox_dial(struct sandbox *s);
void sandbox_lose_agent(struct sandbox *s, const char *reason);
void sandbox_drop_agent(struct sandbox *s);
/* Ends it: calls fail with `code`, the VM is dropped. `forget`: no trace is kept. */
void sandbox_end(struct sandbox *s, const char *code, const char *text, bool forget);
/* Its VM is another's, as the catalogue says already. */
void sandbox_end_merged(struct sandbox *s, int64_t at_ms, const char *text);
/* It is a Space, as the catalogue says already. */
void sandbox_end_frozen(struct sandbox *s, int64_t at_ms, const char *text, const char *space);
/* One of the codes, as a string that stays. */
const char *sandbox_end_code(const char *code);
int adopt_all(struct core *c, struct err *e);
/* Leaves a VM alone that was found in the place of the sandbox's, if it is another sandbox's. */
void adopt_leave_foreign(struct sandbox *s);

/* Sandboxes that have ended (ended.c). */
/* Writes the end to the catalogue, later where it fails now: until then the sandbox is on
 * core->unrecorded and no other VM gets its slot, so that its row never names another one's VM. */
void ended_record(struct sandbox *s);
/* Drops the VM of such a one; `gone` gets the sandbox, and calls ended_vm_gone. */
void ended_drop_vm(struct sandbox *s, void (*gone)(void *arg));
/* Keeps what became of it, or frees it. */
void ended_vm_gone(struct sandbox *s);
/* Keeps how the last sandboxes ended, and nothing else of them. */
void ended_keep(struct sandbox *s);
/* Those to keep, from the catalogue. */
int ended_load(struct core *c, store_sandbox_fn *each, struct err *e);
/* Begins to forget what ended long ago, in the catalogue as well. */
void ended_purge(struct core *c);
/* Ends not in the catalogue by now won't be: the next start finds that the VM is gone. */
void ended_close(struct core *c);

/* What all but execs had under way in its VM fails. */
void sandbox_fail_side_calls(struct sandbox *s, const struct failure *f);

/* Which sandbox was forked from which (lineage.c). */
bool lineage_has(const char *ancestors, const char *id);
/* For a child of `parent`; the caller frees it. */
char *lineage_of_child(const struct sandbox *parent);
/* `ancestors` when the place of `winner` among them is taken by `parent`; the caller frees it. */
char *lineage_merged(const char *ancestors, const char *winner, const char *parent);
/* Enters one that is listed, and whose ancestors are, among their descendants. */
void lineage_link(struct sandbox *s);
/* Takes it out; its children get the last of their other elders as their parent. */
void lineage_unlink(struct sandbox *s);
/* Takes `ancestors`, from lineage_merged, in place of what it had. */
void lineage_change(struct sandbox *s, char *ancestors);
/* A pair of sandboxes that live: the one descends from the other. */
struct descent {
	struct list of_heir;  /* on heir->elders, the oldest first */
	struct list of_elder; /* on elder->heirs */
	struct sandbox *elder, *heir;
};

/* What there is of all sandboxes (registry.c). */
/* Enters one that lives, in this state, and counts it; its ancestors follow with lineage_link. */
void sandbox_enlist(struct sandbox *s, enum sandbox_state state);
/* It has ended: it is found by its id only. Nothing happens to one that is not listed. */
void sandbox_delist(struct sandbox *s);

/* What calls of one kind do. A NULL member: what is said beside it. */
struct call_ops {
	/* It waits for what may never come, is counted where it begins, or shows what is there
	 * without it: it is not counted as a request, nor as activity. */
	bool passive;
	bool makes_sandboxes; /* the pool is checked once it is over */
	/* Frees what the call has under way, if there is anything. NULL: it has nothing. */
	void (*put_away)(struct core_call *call);
	/* The call is over, `call->failed` and its failure are set, and its end will be told.
	 * Connections and VMs under way don't wait for that. NULL: put_away when it has failed. */
	void (*finished)(struct core_call *call);
	/* Tells the end. NULL: done_fn does, unless the call was abandoned. */
	void (*notify)(struct core_call *call);
	/* The client went away. NULL: the call goes on, and its end is not told. */
	void (*abandon)(struct core_call *call);
	/* Back-pressure. NULL: there is nothing to pause. */
	void (*set_paused)(struct core_call *call, bool paused);
};
extern const struct call_ops call_plain; /* nothing but a done_fn */

struct core_call {
	const struct call_ops *ops;
	struct core *core;
	/* On core->creates, ->diffs, ->resumes, ->waits, ->looks, ->later_looks; freeze->calls;
	 * sandbox->calls,
	 * ->interrupts, ->deletes, ->forks, ->ops; core->finished. */
	struct list link;
	struct deferred deferred;
	uint64_t began_ms; /* on the loop's clock */
	bool abandoned, failed;
	unsigned coming;     /* sandboxes that it will have made, */
	uint64_t coming_mib; /* with so much RAM and disk in all, */
	uint64_t coming_gb;
	struct tenant *tenant; /* of this one; only set while `coming` */
	struct failure failure;
	void *arg;
	union {
		core_create_fn *create_fn;
		core_done_fn *done_fn;
		struct exec_sink sink;
		struct follow_sink follow_sink;
		core_diff_fn *diff_fn;
		core_fork_fn *fork_fn;
		core_id_fn *id_fn;
		core_backup_fn *backup_fn;
		core_inspect_fn *inspect_fn;
	};
	union {
		struct create *create;
		struct exec *exec;
		struct follow *follow;
		struct interrupt *interrupt;
		struct diff *diff;
		struct fork *fork;
		struct guest_op *op;
		struct freeze *freeze;
		struct resume *resume;
		struct backup *backup;
		struct inspection *inspection;
	};
	char *text;		       /* an inspection: the report */
	char made[SANDBOX_ID_LEN + 1]; /* a freeze: the Space */
};

struct core_call *call_new(struct core *c, const struct call_ops *ops, void *arg);
/* Off its list, and freed with what hangs on it. */
void call_free(struct core_call *call);
/* Until it is finished, or expects none any more, `n` sandboxes of the tenant and of this size are
 * on their way. NULL: call_promise says the size when it is known. */
void call_expect(struct core_call *call, struct tenant *t, unsigned n, const struct size *each);
void call_promise(struct core_call *call, unsigned n, const struct size *each);
void call_expects_none(struct core_call *call);
/* The call ends with `f` (NULL: it went well) on the loop's next turn. */
void call_finish(struct core_call *call, const struct failure *f);
/* The same for each call of a list. */
void calls_fail(struct list *calls, const struct failure *f);

/* Starts the next call when one waits and the sandbox can. */
void exec_next(struct sandbox *s);
/* Sets the timer of the running call's time limit anew. */
void exec_set_timer(struct sandbox *s);
/* While `held`, nothing more is read from the agent. */
void exec_hold(struct sandbox *s, bool held);
/* -ENOMEM. To be freed in any case. */
int exec_note(struct sandbox *s, struct exec_point *out);
void exec_point_fini(struct exec_point *p);
/* Gives the call to a child that has no calls yet; -ENOMEM. It goes on with exec_go_on. */
int exec_copy(struct sandbox *s, const struct exec_point *p);
void exec_go_on(struct sandbox *s);
/* The calls of `from` go on in `to`, before those that wait there; one that runs there fails. */
void exec_move(struct sandbox *from, struct sandbox *to);
/* What was noted in the diary counts from here on. */
void exec_keep(struct sandbox *s);
/* All of it is noted anew; of events no more than the last `replay_most` bytes. */
void exec_keep_all(struct sandbox *s, size_t replay_most);
/* A line whose end has not come is longer than what is held while the budget is used up. */
bool exec_has_long_line(struct sandbox *s);
/* Hands out such lines in parts. */
void exec_cut_lines(struct sandbox *s);
/* Drops output that is held until all of it is within the budget (output.c). */
void output_trim(struct core *c);
/* There are new events, or nothing runs any more. */
void follow_news(struct sandbox *s);
/* The sandbox can be copied now, if somebody waits for it. */
void fork_next(struct sandbox *s);
/* When to try again after an image could not be had for `error`; 0: waiting does not help. */
unsigned fork_retry_s(int error);
/* It ends, or its VM is to be another one: its forks fail. */
void fork_sandbox_gone(struct sandbox *s, const struct failure *f);

/* --- the catalogue (catalogue.c) ------------------------------------------------------------- */

/* c->store is there from here on. */
int catalogue_open(struct core *c, struct err *e);
/* What the disk lacks is written; by the job that is under way, if there is one. */
void catalogue_close(struct core *c);
/* Returns what is wrong, in `text` where that has to be made, or NULL. */
const char *catalogue_error(const struct core *c, char *text, size_t size);
/* Until what is in the catalogue is on the disk, so that no power cut takes it back. `fn` comes
 * from the loop, with 0 or -errno. Cancelled: not. */
struct store_sync;
typedef void store_sync_fn(void *arg, int error);
struct store_sync *store_sync(struct core *c, store_sync_fn *fn, void *arg);
void store_sync_cancel(struct store_sync *sync);

/* --- Spaces (space.c, space-load.c, freeze.c, resume.c) --------------------------------------- */

#define SPACE_ID_PREFIX "spc_"

struct space {
	struct list link;     /* on core->spaces, oldest first */
	struct list bucket;   /* by id */
	struct list unread;   /* on core->unread_spaces until all of it was read in this life */
	struct listed listed; /* on owner->spaces */
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
	struct resume *resume;	   /* under way */
	char damage[ERR_TEXT_MAX]; /* what is wrong with it; empty: nothing known */
};

/* What the catalogue has, and what there is of directories. */
int spaces_load(struct core *c, struct err *e);
/* Reads, one after the other, the Spaces that this life has not read yet. */
void spaces_scrub(struct core *c);
void spaces_free(struct core *c);
struct space *space_add(struct core *c, const struct store_space *row);
void space_view_fill(const struct space *p, struct space_view *view);
/* NULL with *f filled when there is no such Space for this tenant, or it is damaged. */
struct space *space_find(struct core *c, const char *tenant, const char *id, struct failure *f);
void space_damaged(struct space *p, const char *what);
/* All of it was read, or written: no scrub needs to. */
void space_checked(struct space *p);
/* It is no Space any more; its files stay. */
void space_forget(struct space *p);
/* The files of one that is gone are removed, in the background. */
void space_files_drop(struct core *c, const char *id);
/* Of any tenant; NULL when there is none. */
struct space *space_of(struct core *c, const char *id);
/* Removes those that were lost for too long. */
void spaces_lost_check(struct core *c);
/* Frees what space-load.c has; removals under way end with the loop. */
void spaces_unload(struct core *c);

/* A call is at the guest from here on; something came of it; none is there any more. */
void stall_begin(struct sandbox *s);
static inline void stall_heard(struct sandbox *s)
{
	s->stall.heard = true;
}
void stall_end(struct sandbox *s);
/* An inspection is over: the next one that waits for it may begin. */
void stall_next(struct core *c);

/* The core goes. */
void backups_free(struct core *c);
/* Removes what a backup left that a kill broke off. */
void backup_sweep(const struct core *c);

/* The next that waits begins. */
void freeze_next(struct core *c);
void freezes_free(struct core *c);

/* --- all of it ------------------------------------------------------------------------------- */

#define BUCKETS 16384 /* as many as there can be VMs */
static inline unsigned bucket_number(const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return hash % BUCKETS;
}

struct core {
	const struct sandbox_hooks *const
		*hooks; /* of the parts above sandboxes, NULL-terminated */
	struct loop *loop;
	struct config config;
	struct deferred_queue deferred;
	struct store *store;
	struct keys *keys;
	struct catalogue_job *catalogue_job; /* under way */
	struct loop_timer catalogue_timer;   /* the next one */
	uint32_t catalogue_retry_ms;	     /* since the last one failed; else 0 */
	uint64_t behind_since_ms; /* so long the disk lacks something; 0: it has it all */
	struct list syncs;	  /* struct store_sync, in order */
	struct deferred sync_deferred;
	struct warden_client *warden;
	struct vmproc_host vms;
	struct list templates; /* struct template */
	struct list builds;    /* templates that wait for their turn to boot */
	struct template *building;
	struct template *def; /* the default one */
	struct template_wait def_wait;
	struct template *ahead; /* being prepared ahead */
	struct template_wait ahead_wait;
	struct sources *sources;      /* as they were found last */
	struct disk_job *sources_job; /* looks for them again */
	struct list looks;	      /* calls that wait for that job, */
	struct list later_looks;      /* and for the one after it */
	struct recents recents;
	uint64_t busy_ms;  /* when somebody wanted something last */
	size_t n_requests; /* calls under way, but followers and operations */
	struct pool pool;
	struct list sandboxes, ended;
	struct roster all; /* sandboxes that live */
	size_t n_sandboxes, n_ended;
	size_t n_in[SBX_NSTATES]; /* of those that live */
	uint64_t promised_mib;	  /* their RAM */
	size_t n_coming;	  /* on their way, */
	uint64_t coming_mib;	  /* and the RAM of those */
	struct list tenants;	  /* that have anything */
	struct list tenant_buckets[BUCKETS];
	struct list unrecorded; /* sandboxes that have ended, but not in the catalogue */
	size_t n_unrecorded;
	struct loop_timer record, purge;
	uint32_t record_ms; /* between the last two tries; 0: all is written */
	struct list buckets[BUCKETS];
	const char **children; /* of the last core_view */
	struct list creates;   /* calls that still work for their sandbox */
	struct list diffs;     /* calls under way */
	struct list resumes;   /* the same */
	struct list waits;     /* calls that wait for the disk alone, or for a report */
	struct list spaces;    /* struct space */
	struct list space_buckets[BUCKETS];
	struct list unread_spaces;
	struct list lost_spaces;  /* struct lost_space, the longest lost first */
	struct list removals;	  /* of Spaces' files, under way */
	struct list freezes;	  /* struct freeze */
	struct list freeze_turns; /* struct tenant, with freezes that wait, the next first */
	unsigned n_freezing;	  /* freezes that have a slot */
	struct deferred freeze_deferred;
	struct scrub *scrub;  /* under way */
	struct list finished; /* calls whose end is to be told */
	struct core_stats stats;
	size_t waiting_bytes; /* of calls that no guest has taken yet */
	struct output_budget output;
	struct deferred output_deferred;
	struct loop_timer housekeeping;
	uint64_t slept_ms;     /* for so long the host has slept since it was booted */
	int64_t clocks_ms;     /* the wall clock minus the boot-time clock; 0: not measured */
	struct backup *backup; /* under way */
	bool closing;
	struct loop_timer closing_limit;
	struct deferred closed;
	void (*shutdown_done)(void *arg);
	void *shutdown_arg;
	struct watching *watching; /* under way */
	struct watched watched;
	uint64_t watched_ms; /* when that was found, on the loop's clock */
	struct loop_timer watch_timer;
	struct loop_timer promises_timer;
	struct list inspections; /* struct inspection: under way */
	unsigned n_inspections;
	struct list stall_turns; /* sandboxes that are to be inspected, the next first */
	struct deferred stall_deferred;
	struct stall_reports {
		unsigned written, left_out; /* lately */
		uint64_t since_ms;
	} stall_reports;
	struct list privates;  /* private.c */
	core_life_fn *life_fn; /* NULL: nobody listens */
	void *life_arg;
};

#endif
