// SPDX-License-Identifier: Apache-2.0
/* Start, shutdown and periodic housekeeping of the service. */
#include "orchestrator/service/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/elements.h"
#include "base/fd.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/service/shared-keys.h"
#include "orchestrator/service/upkeep.h"
#include "orchestrator/exec/queue.h"
#include "orchestrator/guestops/state.h"
#include "orchestrator/ports/state.h"
#include "orchestrator/observe/inspect.h"
#include "orchestrator/store/keys.h"
#include "orchestrator/sandbox/adopt.h"
#include "orchestrator/sandbox/op.h"
#include "orchestrator/sandbox/capacity.h"
#include "orchestrator/sandbox/catalogue.h"
#include "orchestrator/sandbox/ended.h"
#include "orchestrator/sandbox/tree.h"
#include "orchestrator/snapshot/state.h"
#include "orchestrator/pool/pool.h"
#include "orchestrator/images/private.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/observe/state.h"

#define HOUSEKEEPING_MS 10000
/* A smaller difference of the two clocks is no sleep of the host: they are read one after the
 * other. */
#define SLEEP_MIN_MS	  1000
#define SHUTDOWN_LIMIT_MS 20000
#define LIVE_LOOKS	  5
#define PURGE_ROWS	  64 /* per batch; the loop waits for each batch */
#define PURGE_MS	  20 /* between two batches */

/* --- closing -------------------------------------------------------------------------------- */

static void notify_closed(void *arg)
{
	struct service *c = arg;
	void (*done)(void *arg) = upkeep_of(c)->shutdown_done;

	loop_timer_clear(c->loop, &upkeep_of(c)->closing_limit);
	upkeep_of(c)->shutdown_done = NULL;
	if (done)
		done(upkeep_of(c)->shutdown_arg);
}

static void check_closed(struct service *c)
{
	if (c->closing && upkeep_of(c)->shutdown_done && !c->vms.in_use &&
	    list_empty(&c->vms.waiting))
		deferred_run(&c->deferred, &upkeep_of(c)->closed, notify_closed, c);
}

/* --- warden and slots ----------------------------------------------------------------------- */

static void on_exited(void *arg, uint32_t slot, int status)
{
	struct service *c = arg;

	vmproc_host_exited(&c->vms, slot, status);
}

static void on_warden_lost(void *arg, const char *reason)
{
	struct service *c = arg;

	/* The service ends. The VMs keep running, and the next instance adopts them. */
	if (!c->closing) {
		log_error("the connection to the warden is lost: %s", reason);
		c->vms.warden_lost = true;
		return;
	}
	vmproc_host_lost(&c->vms);
}

static const struct warden_events warden_events = {on_exited, on_warden_lost};

static void on_want_slot(void *arg)
{
	struct service *c = arg;

	if (!pool_yield(c->pool))
		templates_yield(c->templates);
}

static void on_slot_free(void *arg)
{
	struct service *c = arg;

	pool_check(c->pool);
	check_closed(c);
}

/* --- housekeeping --------------------------------------------------------------------------- */

/* Sets the timers of sandboxes again after the host slept: the loop's clock stops meanwhile,
 * sandbox lifetimes do not. */
static void note_sleep(struct service *c)
{
	uint64_t slept_ms = boottime_ms() - now_ns() / 1000000;

	if (slept_ms < upkeep_of(c)->slept_ms + SLEEP_MIN_MS)
		return;
	upkeep_of(c)->slept_ms = slept_ms;
	sandboxes_set_timers(c);
	list_each_of (s, struct sandbox, link, &c->sandboxes)
		if (s->state < SBX_ENDING)
			exec_set_timer(s);
}

/* Revokes keys whose grace period is over. Does not wait for the disk. */
static void end_graces(struct service *c)
{
	struct err e;
	int n = keys_end_graces(c->keys, &e);

	if (n < 0)
		log_error("keys can't be revoked at the end of their grace period: %s", e.text);
	else if (n > 0)
		catalogue_sync(c, NULL, NULL);
}

/* Removes a batch of old rows from the catalogue. Waits while a write to the disk is in progress,
 * so that batches do not pile up on a slow disk. */
static void purge(void *arg)
{
	struct service *c = arg;
	int n = PURGE_ROWS;

	if (!c->catalogue.job && (n = ended_purge(c, PURGE_ROWS)) < PURGE_ROWS)
		n = events_purge(c, PURGE_ROWS);
	if (n == PURGE_ROWS)
		loop_timer_set(c->loop, &upkeep_of(c)->purge, PURGE_MS);
}

static void on_housekeeping(void *arg)
{
	struct service *c = arg;

	note_sleep(c);
	loop_timer_set(c->loop, &upkeep_of(c)->purge, 0);
	end_graces(c);
	spaces_scrub(c);
	spaces_lost_check(c);
	checkpoints_check(c);
	privates_check(c->privates);
	templates_housekeeping(c->templates);
	pool_check(c->pool);
	loop_timer_set(c->loop, &upkeep_of(c)->housekeeping, HOUSEKEEPING_MS);
}

/* --- the fleet ------------------------------------------------------------------------------ */

static void on_table(void *arg)
{
	struct service *c = arg;
	const struct fleet_host *self = member_table(c->member)->self;

	service_drain(c, self->draining, self->draining ? self->deadline * 1000 : 0);
}

static int join_fleet(struct service *c, struct err *e)
{
	int ret = member_new(&c->member, c->loop, &c->config, e);

	if (ret < 0)
		return ret;
	member_follow_table(c->member, on_table, c);
	on_table(c);
	return 0;
}

/* --- start ---------------------------------------------------------------------------------- */

static int open_parts(struct service *c, int warden_fd, struct err *e)
{
	c->vms.loop = c->loop;
	c->vms.deferred = &c->deferred;
	c->vms.run_dir = c->config.run_dir;
	c->vms.want_slot = on_want_slot;
	c->vms.slot_free = on_slot_free;
	c->vms.measured = promises_measured;
	c->vms.arg = c;
	vmproc_host_init(&c->vms, c->config.max_vms);
	int ret = catalogue_open(c, e);
	if (ret == 0)
		events_init(c);
	if (ret == 0)
		ret = keys_new(&c->keys, c->store, e);
	if (ret == 0 && c->member)
		c->shared_keys = shared_keys_new(c->loop, &c->config, c->member, c->keys);
	if (ret == 0)
		ret = warden_client_new(&c->warden, c->loop, warden_fd, &warden_events, c, e);
	c->vms.warden = c->warden;
	return ret;
}

/* Checks that the required files can be opened. Returns 0, or -errno with *e filled. */
static int check_files(const struct config *config, struct err *e)
{
	const struct {
		const char *what, *path;
	} files[] = {{"kernel", config->kernel},
		     {"initramfs", config->initramfs},
		     {"rootfs", config->rootfs},
		     {"vmm", config->vmm}};

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		scoped_fd int fd = open(files[i].path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return err_set(e, errno, "open the %s %s", files[i].what, files[i].path);
	}
	return 0;
}

/* The live copy changes while it is read, which can look like damage for a moment. */
static int look_at_live(const char *live, bool *any_key, struct err *e)
{
	int ret = -EBADMSG;

	for (int tries = 0; ret == -EBADMSG && tries < LIVE_LOOKS; tries++)
		ret = store_look(live, false, any_key, e);
	return ret;
}

/* Looks at the live copy alone if there is one that can be used: it is newer, and a disk that hangs
 * is not touched. */
static int check_catalogue(const struct config *config, bool *any_key, struct err *e)
{
	char path[CATALOGUE_PATH_MAX], live[CATALOGUE_PATH_MAX];

	config_catalogue(config, path);
	config_live_catalogue(config, live);
	int ret = look_at_live(live, any_key, e);
	if (ret == -ENOENT || ret == -EBADMSG)
		ret = store_look(path, ret == -ENOENT, any_key, e);
	return ret == -ENOENT ? 0 : ret; /* a start makes it */
}

int service_check(const struct config *config, bool is_new, bool *any_key, struct err *e)
{
	*any_key = false;
	if (check_files(config, e) < 0 || (!is_new && check_catalogue(config, any_key, e) < 0))
		return e->code;
	if (config->fleet_dir[0])
		*any_key |= shared_keys_any(config);
	return 0;
}

struct part upkeep_part = {.service_size = sizeof(struct upkeep)};

/* The parts, lowest room first. Hooks run in this order, and therefore calls start before forks and
 * freezes (sandbox_schedule). */
static struct part *const parts[] = {
	&exec_part,    &snapshot_part, &guestops_part, &ports_part,
	&inspect_part, &usage_part,    &upkeep_part,   NULL,
};

static struct service *service_alloc(struct loop *loop, const struct config *config)
{
	struct part_sizes sizes;

	parts_place(parts, &sizes);
	struct service *c = must_alloc(sizes.service);
	c->parts = parts;
	c->sizes = sizes;
	c->loop = loop;
	c->config = *config;
	deferred_queue_init(&c->deferred, loop);
	exec_start(c);
	snapshots_start(c);
	return c;
}

int service_new(struct service **out, struct loop *loop, const struct config *config, int warden_fd,
		struct err *e)
{
	struct service *c = service_alloc(loop, config);

	c->template_env = (struct template_env){.loop = c->loop,
						.config = &c->config,
						.deferred = &c->deferred,
						.vms = &c->vms,
						.inspector = &inspector,
						.ops = &template_ops,
						.arg = c};
	c->templates = templates_new(&c->template_env);
	c->privates = privates_new(&c->template_env);
	c->pool = pool_new(&c->template_env, c->templates);
	int ret = check_files(config, e);
	if (ret == 0 && config->fleet_dir[0]) /* before anything gets an id */
		ret = join_fleet(c, e);
	if (ret == 0)
		ret = open_parts(c, warden_fd, e);
	if (ret == 0)
		ret = spaces_load(c, e);
	if (ret == 0)
		ret = adopt_all(c, e);
	if (ret == 0)
		ret = trees_load(c, e);
	if (ret < 0) {
		service_free(c);
		return ret;
	}
	exec_sweep_journals(c); /* also the journals of slots that adopt_sweep empties next */
	adopt_sweep(c);
	privates_load(c->privates);
	backup_sweep(c);
	templates_start(c->templates);
	loop_timer_start(loop, &upkeep_of(c)->housekeeping, on_housekeeping, c, HOUSEKEEPING_MS);
	upkeep_of(c)->slept_ms = boottime_ms() - now_ns() / 1000000;
	loop_timer_start(loop, &upkeep_of(c)->purge, purge, c, 0);
	pool_start(c->pool);
	disk_start(c);
	sampler_start(c, USAGE_STEP_MS);
	*out = c;
	return 0;
}

bool service_ready(const struct service *c)
{
	return service_error(c)[0] == 0;
}

const char *service_error(const struct service *c)
{
	const struct template *def = templates_default(c->templates);

	if (c->closing)
		return "the service is stopping";
	if (c->vms.warden_lost)
		return "the warden is gone";
	if (!template_ready(def)) {
		const char *error_text = template_error(def);

		return error_text[0] ? error_text : "the template is being prepared";
	}
	if (!pool_was_filled(c->pool))
		return "the first sandbox is being made";
	return "";
}

static const char *drain_text(const struct service *c, char *text, size_t size)
{
	snprintf(text, size, "this host is drained: it gets no new sandboxes, and %zu are left",
		 c->n_sandboxes);
	return text;
}

void service_checks(const struct service *c,
		    void (*each)(void *arg, const char *name, const char *reason), void *arg)
{
	const struct template *def = templates_default(c->templates);
	const char *template = template_error(def);
	char text[128];

	if (template_ready(def))
		template = NULL;
	else if (!template[0])
		template = "it is being prepared";
	each(arg, "service", c->closing ? "it is stopping" : NULL);
	each(arg, "warden", c->vms.warden_lost ? "it is gone" : NULL);
	each(arg, "template", template);
	each(arg, "pool", pool_was_filled(c->pool) ? NULL : "the first sandbox is being made");
	each(arg, "disk", disk_error(c, text, sizeof(text)));
	if (c->member)
		each(arg, "drain", c->drain.on ? drain_text(c, text, sizeof(text)) : NULL);
	if (c->member)
		each(arg, "creates", load_error(c, text, sizeof(text)));
}

struct keys *service_keys(struct service *c)
{
	return c->keys;
}

struct store *service_store(struct service *c)
{
	return c->store;
}

struct member *service_member(struct service *c)
{
	return c->member;
}

/* --- end ------------------------------------------------------------------------------------ */

static void on_closing_limit(void *arg)
{
	struct service *c = arg;

	log_error("%u VM slots were not released within %d s", c->vms.in_use,
		  SHUTDOWN_LIMIT_MS / 1000);
	notify_closed(c);
}

void service_shutdown(struct service *c, void (*done)(void *arg), void *arg)
{
	struct failure f;

	c->closing = true;
	upkeep_of(c)->shutdown_done = done;
	upkeep_of(c)->shutdown_arg = arg;
	failure_set(&f, FAIL_STOPPING, 5, "the service is stopping");
	ops_finish(&c->creates, &f);
	snapshots_shut_down(c, &f);
	loop_timer_clear(c->loop, &upkeep_of(c)->housekeeping);
	templates_close(c->templates);
	pool_close(c->pool);
	list_each_of_safe (s, struct sandbox, link, &c->sandboxes)
		sandbox_end(s, "stopped", "the service was stopped", false);
	ended_close(c);
	loop_timer_start(c->loop, &upkeep_of(c)->closing_limit, on_closing_limit, c,
			 SHUTDOWN_LIMIT_MS);
	check_closed(c);
}

static void free_sandboxes(struct list *sandboxes)
{
	list_drain_of (s, struct sandbox, link, sandboxes)
		sandbox_free(s);
}

/* Frees everything. Without a preceding service_shutdown, the VMs keep running and the next
 * instance adopts them. */
void service_free(struct service *c)
{
	if (!c)
		return;
	c->closing = true;
	loop_timer_clear(c->loop, &upkeep_of(c)->housekeeping);
	loop_timer_clear(c->loop, &c->promises_timer);
	loop_timer_clear(c->loop, &upkeep_of(c)->closing_limit);
	loop_timer_clear(c->loop, &upkeep_of(c)->purge);
	loop_timer_clear(c->loop, &c->ended.record);
	events_fini(c);
	backups_free(c);
	disk_stop(c);
	sampler_stop(c);
	c->vms.detached = true;
	ops_free(&c->creates);
	guestops_close(c);
	snapshots_close(c);
	ops_free(&c->waits);
	ops_free(&c->finished);
	pool_close(c->pool);
	free_sandboxes(&c->sandboxes);
	free_sandboxes(&c->ended.kept);
	snapshots_free(c);
	pool_free(c->pool);
	templates_free(c->templates);
	privates_free(c->privates);
	vmproc_host_fini(&c->vms);
	warden_client_free(c->warden);
	deferred_queue_fini(&c->deferred);
	shared_keys_free(c->shared_keys);
	keys_free(c->keys);
	member_free(c->member);
	catalogue_close(c);
	free(c->children);
	free(c);
}
