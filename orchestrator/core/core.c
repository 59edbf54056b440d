// SPDX-License-Identifier: Apache-2.0
/* Start, shutdown and periodic housekeeping of the core. */
#include "orchestrator/core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "orchestrator/core/internal.h"
#include "orchestrator/template/private.h"
#include "orchestrator/keys/keys.h"

#define HOUSEKEEPING_MS	  10000
#define SLEEP_MIN_MS	  1000 /* less is the time between two clock readings */
#define SHUTDOWN_LIMIT_MS 20000

/* --- closing -------------------------------------------------------------------------------- */

static void notify_closed(void *arg)
{
	struct core *c = arg;
	void (*done)(void *arg) = c->shutdown_done;

	loop_timer_clear(c->loop, &c->closing_limit);
	c->shutdown_done = NULL;
	if (done)
		done(c->shutdown_arg);
}

static void check_closed(struct core *c)
{
	if (c->closing && c->shutdown_done && !c->vms.in_use && list_empty(&c->vms.waiting))
		deferred_run(&c->deferred, &c->closed, notify_closed, c);
}

/* --- warden and slots ----------------------------------------------------------------------- */

static void on_exited(void *arg, uint32_t slot, int status)
{
	struct core *c = arg;

	vmproc_host_exited(&c->vms, slot, status);
}

static void on_warden_lost(void *arg, const char *reason)
{
	struct core *c = arg;

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
	if (!pool_yield(arg))
		templates_yield(arg);
}

static void on_slot_free(void *arg)
{
	struct core *c = arg;

	pool_check(c);
	check_closed(c);
}

/* --- housekeeping --------------------------------------------------------------------------- */

/* Re-arms the timers of sandboxes after the host slept: the loop's clock stops meanwhile, sandbox
 * lifetimes do not. */
static void note_sleep(struct core *c)
{
	uint64_t slept_ms = boottime_ms() - now_ns() / 1000000;

	if (slept_ms < c->slept_ms + SLEEP_MIN_MS)
		return;
	c->slept_ms = slept_ms;
	list_each (pos, &c->sandboxes) {
		struct sandbox *s = container_of(pos, struct sandbox, link);

		if (s->state < SBX_ENDING) {
			sandbox_set_timers(s);
			exec_set_timer(s);
		}
	}
}

/* Revokes keys whose grace period is over. Does not wait for the disk. */
static void end_graces(struct core *c)
{
	struct err e;
	int n = keys_end_graces(c->keys, &e);

	if (n < 0)
		log_error("%s", e.text);
	else if (n > 0)
		store_sync(c, NULL, NULL);
}

static void on_housekeeping(void *arg)
{
	struct core *c = arg;

	note_sleep(c);
	ended_purge(c);
	end_graces(c);
	spaces_scrub(c);
	spaces_lost_check(c);
	privates_check(c);
	recents_save(&c->recents, c->loop, &c->config);
	sources_refresh(c);
	pool_check(c);
	loop_timer_set(c->loop, &c->housekeeping, HOUSEKEEPING_MS);
}

/* Nothing to do: a failed build of the default template is retried by the template itself. */
static void on_default_template(void *arg, const struct failure *f)
{
}

/* --- start ---------------------------------------------------------------------------------- */

static void init_lists(struct core *c)
{
	list_init(&c->templates);
	list_init(&c->privates);
	list_init(&c->builds);
	list_init(&c->sandboxes);
	list_init(&c->ended);
	list_init(&c->unrecorded);
	list_init(&c->creates);
	list_init(&c->diffs);
	list_init(&c->resumes);
	list_init(&c->waits);
	list_init(&c->looks);
	list_init(&c->later_looks);
	list_init(&c->inspections);
	list_init(&c->stall_turns);
	list_init(&c->syncs);
	list_init(&c->tenants);
	list_init(&c->spaces);
	list_init(&c->unread_spaces);
	list_init(&c->lost_spaces);
	list_init(&c->removals);
	list_init(&c->freezes);
	list_init(&c->freeze_turns);
	list_init(&c->finished);
	for (size_t i = 0; i < BUCKETS; i++) {
		list_init(&c->buckets[i]);
		list_init(&c->space_buckets[i]);
		list_init(&c->tenant_buckets[i]);
	}
}

static int open_parts(struct core *c, int warden_fd, struct err *e)
{
	c->vms.loop = c->loop;
	c->vms.deferred = &c->deferred;
	c->vms.run_dir = c->config.run_dir;
	c->vms.want_slot = on_want_slot;
	c->vms.slot_free = on_slot_free;
	c->vms.measured = promises_measured;
	c->vms.arg = c;
	if (vmproc_host_init(&c->vms, c->config.max_vms) < 0)
		return err_set(e, ENOMEM, "allocate %u VM slots", c->config.max_vms);
	int ret = catalogue_open(c, e);
	if (ret == 0)
		ret = keys_new(&c->keys, c->store, e);
	if (ret == 0)
		ret = warden_client_new(&c->warden, c->loop, warden_fd, &warden_events, c, e);
	c->vms.warden = c->warden;
	return ret;
}

/* Fails the start at once when a required file can't be opened, and names its path. */
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
			return err_set(e, errno, "%s %s", files[i].what, files[i].path);
	}
	return 0;
}

/* In the order of the layers, lowest first. A hook may start work that a later hook then fails: a
 * failing fork starts the next one in its queue. */
static const struct sandbox_hooks core_hooks = {.vm_gone = check_closed};
static const struct sandbox_hooks *const hooks[] = {
	&stall_hooks,  &inspect_hooks, &exec_hooks,	&fork_hooks, &freeze_hooks,
	&resume_hooks, &diff_hooks,    &guest_op_hooks, &core_hooks, NULL,
};

int core_new(struct core **out, struct loop *loop, const struct config *config, int warden_fd,
	     struct err *e)
{
	struct core *c = must_alloc(sizeof(*c));
	struct size own;

	c->loop = loop;
	c->config = *config;
	c->hooks = hooks;
	deferred_queue_init(&c->deferred, loop);
	init_lists(c);
	output_budget_init(&c->output, (size_t)config->output_mib << 20);
	pool_init(c);
	int ret = check_files(config, e);
	if (ret == 0)
		ret = open_parts(c, warden_fd, e);
	if (ret == 0)
		ret = adopt_all(c, e);
	if (ret == 0)
		ret = spaces_load(c, e);
	if (ret < 0) {
		core_free(c);
		return ret;
	}
	templates_sweep(config);
	privates_load(c);
	recents_load(&c->recents, config);
	backup_sweep(c);
	c->busy_ms = loop_now_ms(loop);
	sources_load(c);
	own = source_size(&c->sources->all[0].source);
	c->def = template_get(c, &c->sources->all[0].source, &own);
	template_wait(c->def, &c->def_wait, on_default_template, c);
	c->housekeeping = (struct loop_timer){.fn = on_housekeeping, .arg = c};
	loop_timer_set(loop, &c->housekeeping, HOUSEKEEPING_MS);
	c->slept_ms = boottime_ms() - now_ns() / 1000000;
	ended_purge(c);
	pool_start(c);
	watch_start(c);
	*out = c;
	return 0;
}

bool core_ready(const struct core *c)
{
	return core_error(c)[0] == 0;
}

const char *core_error(const struct core *c)
{
	if (c->closing)
		return "the service is stopping";
	if (c->vms.warden_lost)
		return "the warden is gone";
	if (!template_ready(c->def)) {
		const char *error_text = template_error(c->def);

		return error_text[0] ? error_text : "the template is being prepared";
	}
	if (c->config.pool_warm && !c->pool.main.was_filled)
		return "the first sandbox is being made";
	return "";
}

void core_stats(const struct core *c, struct core_stats *out)
{
	*out = c->stats;
	out->sandboxes = c->n_sandboxes;
	out->blank_vms_ready = c->pool.n_blanks;
	out->warm_ready = pool_warms(c);
	out->warm_default_ready = c->pool.main.n;
	out->output_held_bytes = c->output.held;
	out->ends_unrecorded = c->n_unrecorded;
	out->templates_building = c->building || c->ahead;
	watch_stats(c, out);
}

/* --- end ------------------------------------------------------------------------------------ */

static void on_closing_limit(void *arg)
{
	struct core *c = arg;

	log_error("%u VM slots were not released within %d s", c->vms.in_use,
		  SHUTDOWN_LIMIT_MS / 1000);
	notify_closed(c);
}

void core_shutdown(struct core *c, void (*done)(void *arg), void *arg)
{
	struct failure f;

	c->closing = true;
	c->shutdown_done = done;
	c->shutdown_arg = arg;
	failure_set(&f, 503, "stopping", 5, "the service is stopping");
	list_each_safe (pos, &c->creates)
		call_finish(container_of(pos, struct core_call, link), &f);
	list_each_safe (pos, &c->resumes)
		call_finish(container_of(pos, struct core_call, link), &f);
	list_each (pos, &c->sandboxes)
		fork_sandbox_gone(container_of(pos, struct sandbox, link), &f);
	loop_timer_clear(c->loop, &c->housekeeping);
	templates_close(c);
	pool_close(c);
	list_each_safe (pos, &c->sandboxes)
		sandbox_end(container_of(pos, struct sandbox, link), "stopped",
			    "the service was stopped", false);
	ended_close(c);
	c->closing_limit = (struct loop_timer){.fn = on_closing_limit, .arg = c};
	loop_timer_set(c->loop, &c->closing_limit, SHUTDOWN_LIMIT_MS);
	check_closed(c);
}

static void free_sandboxes(struct list *sandboxes)
{
	while (!list_empty(sandboxes)) {
		struct sandbox *s = container_of(sandboxes->next, struct sandbox, link);

		sandbox_free(s);
	}
}

static void free_calls(struct list *calls)
{
	while (!list_empty(calls))
		call_free(container_of(calls->next, struct core_call, link));
}

/* Frees everything. Without a preceding core_shutdown, the VMs keep running and the next instance
 * adopts them. */
void core_free(struct core *c)
{
	if (!c)
		return;
	c->closing = true;
	loop_timer_clear(c->loop, &c->housekeeping);
	loop_timer_clear(c->loop, &c->promises_timer);
	loop_timer_clear(c->loop, &c->closing_limit);
	loop_timer_clear(c->loop, &c->purge);
	loop_timer_clear(c->loop, &c->record);
	template_unwait(&c->def_wait);
	if (c->ahead)
		template_unwait(&c->ahead_wait);
	recents_close(&c->recents);
	sources_free(c);
	backups_free(c);
	watch_stop(c);
	c->vms.detached = true;
	free_calls(&c->creates);
	free_calls(&c->diffs);
	free_calls(&c->resumes);
	free_calls(&c->waits);
	free_calls(&c->looks);
	free_calls(&c->later_looks);
	free_calls(&c->finished);
	pool_close(c);
	templates_free(c);
	privates_free(c);
	free_sandboxes(&c->sandboxes);
	free_sandboxes(&c->ended);
	freezes_free(c);
	spaces_free(c);
	vmproc_host_fini(&c->vms);
	warden_client_free(c->warden);
	deferred_queue_fini(&c->deferred);
	keys_free(c->keys);
	catalogue_close(c);
	free(c->children);
	free(c);
}
