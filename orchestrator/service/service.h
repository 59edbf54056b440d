// SPDX-License-Identifier: Apache-2.0
/*
 * The service's start and end, its lists, templates, events and numbers, and copies of its
 * catalogue. It puts the rooms together; what they do is in sandbox/sandboxes.h, exec/exec.h,
 * guestops/guestops.h, snapshot/snapshots.h, observe/reports.h and observe/usage.h.
 */
#ifndef RAMET_ORCHESTRATOR_SERVICE_SERVICE_H
#define RAMET_ORCHESTRATOR_SERVICE_SERVICE_H

#include "orchestrator/config/config.h"
#include "orchestrator/images/template-view.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/sandbox/sandboxes.h"
#include "orchestrator/snapshot/snapshots.h"

struct keys;
struct member;

/*
 * Creates the service. Returns 0, or -errno with *e filled, for example when the catalogue is
 * unusable or the kernel is missing. Takes ownership of `warden_fd` on success only. Templates are
 * then prepared in the background: `service_ready` returns true once the first sandbox can be
 * created without waiting; `service_error` returns why it can't be, or "" when it can.
 */
int service_new(struct service **out, struct loop *loop, const struct config *config, int warden_fd,
		struct err *e);
/* Returns what service_new would return for the files of the guest and the catalogue, which another
 * process may have open, and sets *any_key to whether there would be a key. Changes nothing.
 * `is_new`: state_dir has nothing yet, and may belong to root. */
int service_check(const struct config *config, bool is_new, bool *any_key, struct err *e);
bool service_ready(const struct service *c);
const char *service_error(const struct service *c);
/* Returns the key registry (orchestrator/store/keys.h). The service owns it. */
struct keys *service_keys(struct service *c);
struct store *service_store(struct service *c);
/* Returns this host's part in a fleet (orchestrator/fleet/member.h); NULL if it is in no fleet. */
struct member *service_member(struct service *c);
/* Ends every VM, and calls `done` once all have exited or after SHUTDOWN_LIMIT_MS. New calls fail
 * with FAIL_STOPPING from here on. */
void service_shutdown(struct service *c, void (*done)(void *arg), void *arg);
/* Frees the service; call it before loop_free. Without service_shutdown first, sandboxes' VMs keep
 * running. */
void service_free(struct service *c);

/* --- lists, in pages -------------------------------------------------------------------------- */

enum list_kind { LIST_SANDBOXES, LIST_CHILDREN, LIST_SPACES, LIST_CHECKPOINTS };

struct list_name {
	enum list_kind kind;
	const char *tenant; /* for LIST_SANDBOXES; NULL: all tenants */
	const char *parent; /* for LIST_CHILDREN: a sandbox id */
};

/* Fills in page->last and page->more for a page of at most `most` entries after page->after.
 * Returns false, with *f filled, when there is no such list. */
bool service_page(struct service *c, const struct list_name *list, size_t most,
		  struct list_page *page, struct failure *f);
/* Reports up to `most` entries of the page, oldest first, and advances page->after past them.
 * Returns false when no more are left. service_page and service_list take O(log n), plus the time
 * for the entries reported. */
bool service_list(struct service *c, const struct list_name *list, struct list_page *page,
		  size_t most, void (*each)(void *arg, const struct sandbox_view *view), void *arg);
/* Works like service_list, for LIST_SPACES. */
bool service_spaces(struct service *c, const struct list_name *list, struct list_page *page,
		    size_t most, void (*each)(void *arg, const struct space_view *view), void *arg);

/* Reports the Spaces of a tree, oldest first, until `each` returns false. Returns true when all
 * were reported. */
bool service_tree_spaces(struct service *c, const char *tenant, const char *root,
			 bool (*each)(void *arg, const struct space_view *view), void *arg);
/* Works like service_list, for LIST_CHECKPOINTS. */
bool service_checkpoints(struct service *c, const struct list_name *list, struct list_page *page,
			 size_t most, void (*each)(void *arg, const struct checkpoint_view *view),
			 void *arg);

/* --- templates -------------------------------------------------------------------------------- */

/* Looks for templates on disk. At its end, service_templates reports what was found. */
struct op *service_templates_look(struct service *c, service_done_fn *fn, void *arg);
/* Reports every template that the last look found: the default one first, the others by name. */
void service_templates(struct service *c, void (*each)(void *arg, const struct template_view *view),
		       void *arg);

/* --- the catalogue ---------------------------------------------------------------------------- */

/* `fd`: the copy, an unnamed file on disk, which the callee owns; -1 on failure. */
typedef void service_backup_fn(void *arg, int fd, const struct failure *f);
/* Copies the catalogue as it is now; later changes don't affect the copy. One backup runs at a
 * time. An abandoned backup is cancelled. */
struct op *service_backup(struct service *c, service_backup_fn *fn, void *arg);

/* --- events ----------------------------------------------------------------------------------- */

struct event_query {
	uint64_t since; /* number of the last event that the caller knows; 0: none */
	bool from_now;	/* only new events, whatever `since` says */
	bool newest_first;
	uint64_t before; /* with newest_first: only events with lower numbers; 0: all */
	uint64_t limit;	 /* of events; 0: none */
	bool follow;	 /* the call goes on with new events, until it is abandoned */
};
struct logged_event; /* orchestrator/store/store.h */
/* `event` is valid only during the call. */
typedef void service_event_fn(void *arg, const struct logged_event *event);
/* The most calls of service_events in flight. Each of them reads the catalogue on the loop's
 * thread, in each turn or after each event. */
#define EVENT_READERS_MAX 64
/* Reports the events of a tenant (NULL: of all), in the order of their numbers unless the query
 * says otherwise. `newest_first` and `follow` exclude each other. Returns NULL, with *failure
 * filled, when EVENT_READERS_MAX are in flight. */
struct op *service_events(struct service *c, const char *tenant, const struct event_query *query,
			  service_event_fn *on_event, service_done_fn *on_end, void *arg,
			  struct failure *failure);
/* Does what store_events_later does. Returns false with *f filled. */
bool service_events_later(struct service *c, int64_t at_ms, uint64_t *n, struct failure *f);
/* Ends all calls of service_events. */
void service_events_end(struct service *c);
/* Calls `fn` after each change with events; `fn` must not change the catalogue. */
void service_events_watch(struct service *c, void (*fn)(void *arg), void *arg);

/* --- placement in a fleet (orchestrator/fleet/place.h) ---------------------------------------- */

struct place_load;

/* Fills in the load that this host reports to the other hosts of its fleet. */
void service_load(struct service *c, struct place_load *load);
/* Returns the kind of sandbox that a create of the tenant asks for (load_kind). */
uint32_t service_kind(struct service *c, const char *tenant, const struct sandbox_config *asked);
/* Returns how many sandboxes the tenant may have on this host; 0: no limit. */
uint32_t service_cap(const struct service *c, const char *tenant);

/* --- numbers -------------------------------------------------------------------------------- */

struct metric {
	const char *name; /* a counter's ends with _total; labels may follow, in braces */
	/* NULL: the help of the metric before, which differs only in its labels */
	const char *help;
	uint64_t value;
};
/* Reports all numbers of the service. *m is valid only during the call. */
void service_metrics(const struct service *c, void (*each)(void *arg, const struct metric *m),
		     void *arg);
/* Reports every condition for serving sandboxes, by name. `reason` is NULL when the condition
 * holds, else a sentence that says why it does not. */
void service_checks(const struct service *c,
		    void (*each)(void *arg, const char *name, const char *reason), void *arg);

#endif
