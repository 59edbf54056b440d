// SPDX-License-Identifier: Apache-2.0
/*
 * Shells and warm sandboxes of the default size, made ahead of need: one of each at a time, never
 * while a client waits for a VM, and more and more slowly while it fails.
 */
#include <string.h>

#include "orchestrator/core/internal.h"

#define REFILL_MS	 20 /* lets what took the last one run first */
#define BACKOFF_FIRST_MS 500
#define BACKOFF_MAX_MS	 10000

struct pool_item {
	struct core *core;
	struct list link;
	struct vm *vm;	   /* a shell */
	struct warm *warm; /* or a warm sandbox; NULL in the one under way */
};

static struct pool_item *first(struct list *items)
{
	return list_empty(items) ? NULL : container_of(items->next, struct pool_item, link);
}

static void item_free(struct pool_item *item)
{
	list_del(&item->link);
	free(item);
}

static void back_off(struct core *c, struct pool_pace *pace)
{
	pace->backoff_ms = pace->backoff_ms ? 2 * pace->backoff_ms : BACKOFF_FIRST_MS;
	if (pace->backoff_ms > BACKOFF_MAX_MS)
		pace->backoff_ms = BACKOFF_MAX_MS;
	pace->not_before_ms = loop_now_ms(c->loop) + pace->backoff_ms;
	pool_check(c);
}

void pool_check(struct core *c)
{
	struct loop_timer *t = &c->pool.refill;

	if (!c->closing && (!t->heap_index || t->due_ms > loop_now_ms(c->loop) + REFILL_MS))
		loop_timer_set(c->loop, t, REFILL_MS);
}

/* Whether it may be tried now; else the refill comes back when it may. */
static bool may_try(struct core *c, const struct pool_pace *pace)
{
	uint64_t now = loop_now_ms(c->loop);
	struct loop_timer *t = &c->pool.refill;

	if (now >= pace->not_before_ms)
		return true;
	if (!t->heap_index || t->due_ms > pace->not_before_ms)
		loop_timer_set(c->loop, t, pace->not_before_ms - now);
	return false;
}

/* It was on the way when the last slot was asked for. */
static void yield_if_wanted(struct core *c)
{
	if (!list_empty(&c->vms.waiting))
		pool_yield(c);
}

/* --- shells --------------------------------------------------------------------------------- */

static void on_shell_ready(void *arg)
{
	struct pool_item *item = arg;
	struct core *c = item->core;
	struct pool *p = &c->pool;

	p->spawning = NULL;
	p->shell_pace.backoff_ms = 0;
	p->n_shells++;
	list_add_tail(&p->shells, &item->link);
	yield_if_wanted(c);
	pool_check(c);
}

static void on_shell_died(void *arg, const char *why)
{
	struct pool_item *item = arg;
	struct core *c = item->core;

	log_warn("a shell in slot %u died: %s", vm_slot(item->vm), why);
	vm_drop(item->vm, NULL, NULL);
	if (c->pool.spawning == item)
		c->pool.spawning = NULL;
	else
		c->pool.n_shells--;
	item_free(item);
	back_off(c, &c->pool.shell_pace);
}

static const struct vm_owner shell_owner = {on_shell_ready, on_shell_died};

static void make_shell(struct core *c)
{
	struct pool_item *item = must_alloc(sizeof(*item));
	struct size size = size_default(c);
	struct vm_spec spec = size_vm_spec(&size, false);

	item->core = c;
	list_init(&item->link);
	c->pool.spawning = item;
	item->vm = vm_spawn(&c->vms, &spec, &shell_owner, item);
}

struct vm *pool_take_shell(struct core *c, const struct size *size)
{
	struct pool_item *item = first(&c->pool.shells);
	struct size def = size_default(c);

	if (!item || size->vcpus != def.vcpus || size->ram_mib != def.ram_mib)
		return NULL;
	struct vm *vm = item->vm;
	c->pool.n_shells--;
	item_free(item);
	pool_check(c);
	return vm;
}

/* --- warm sandboxes ------------------------------------------------------------------------- */

static void on_warm(void *arg, struct warm *w, const char *text)
{
	struct pool_item *item = arg;
	struct core *c = item->core;
	struct pool *p = &c->pool;
	bool kept = item->warm != NULL;

	if (!kept)
		p->making = NULL;
	if (w) {
		item->warm = w;
		list_add_tail(&p->warms, &item->link);
		p->n_warms++;
		p->warm_pace.backoff_ms = 0;
		p->was_filled = true;
		yield_if_wanted(c);
		pool_check(c);
		return;
	}
	if (kept)
		p->n_warms--;
	item_free(item);
	back_off(c, &p->warm_pace);
}

static void make_warm(struct core *c)
{
	const struct warm_source from = {.template = c->def, .rehearse = true};
	struct pool_item *item = must_alloc(sizeof(*item));

	item->core = c;
	list_init(&item->link);
	c->pool.making_item = item;
	c->pool.making = warm_make(c, &from, on_warm, item);
}

struct warm *pool_take_warm(struct core *c)
{
	struct pool_item *item = first(&c->pool.warms);

	if (!item)
		return NULL;
	struct warm *w = item->warm;
	c->pool.n_warms--;
	item_free(item);
	pool_check(c);
	return w;
}

/* --- both ----------------------------------------------------------------------------------- */

/* Somebody waits for a VM. */
static bool is_wanted(const struct core *c)
{
	return !list_empty(&c->vms.waiting) || !list_empty(&c->creates) || c->n_forking;
}

static bool room(const struct core *c)
{
	return c->vms.in_use < c->vms.max_vms && !is_wanted(c) && !host_memory_low();
}

static bool wants_warm(struct core *c)
{
	struct pool *p = &c->pool;

	return !p->making && p->n_warms < c->config.pool_warm && template_ready(c->def) &&
	       !is_wanted(c) && (p->n_shells || room(c)) && may_try(c, &p->warm_pace);
}

static bool wants_shell(struct core *c)
{
	struct pool *p = &c->pool;

	return !p->spawning && p->n_shells < c->config.pool_shells && room(c) &&
	       may_try(c, &p->shell_pace);
}

static void refill(void *arg)
{
	struct core *c = arg;

	if (c->closing)
		return;
	if (wants_warm(c))
		make_warm(c);
	if (wants_shell(c))
		make_shell(c);
}

bool pool_yield(struct core *c)
{
	struct pool_item *item = first(&c->pool.shells);

	if (item) {
		c->pool.n_shells--;
		vm_drop(item->vm, NULL, NULL);
		item_free(item);
		return true;
	}
	item = first(&c->pool.warms);
	if (!item)
		return false;
	c->pool.n_warms--;
	warm_free(item->warm);
	item_free(item);
	return true;
}

void pool_init(struct core *c)
{
	c->pool = (struct pool){.refill = {.fn = refill, .arg = c}};
	list_init(&c->pool.shells);
	list_init(&c->pool.warms);
}

void pool_close(struct core *c)
{
	struct pool *p = &c->pool;

	loop_timer_clear(c->loop, &p->refill);
	while (pool_yield(c))
		;
	if (p->spawning) {
		vm_drop(p->spawning->vm, NULL, NULL);
		item_free(p->spawning);
		p->spawning = NULL;
	}
	if (p->making) {
		warm_free(p->making);
		item_free(p->making_item);
		p->making = NULL;
	}
}
