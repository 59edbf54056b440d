// SPDX-License-Identifier: Apache-2.0
/*
 * The pool: VMs made ahead of need. A blank VM has no guest yet, and room for the largest size in
 * the setting `sizes`. A warm sandbox has a guest of one template and disk size, and is
 * ready for a create.
 *
 * The pool holds warm sandboxes of the default template, of templates prepared ahead, and, for
 * OTHERS_KEPT_MS after a request, of any other template. Except for the default template, warm
 * sandboxes that nobody has requested are made only while no client uses the service
 * (templates_calm).
 *
 * Warm sandboxes are made one at a time. The first BLANKS_FIRST blank VMs are made SPAWNING_MAX at
 * a time, further ones one at a time. Nothing is made while a client waits for a VM, and failures
 * delay the next attempt, longer each time.
 */
#include "orchestrator/pool/pool.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/elements.h"
#include "base/log.h"
#include "base/num.h"
#include "orchestrator/images/host.h"
#include "orchestrator/images/templates.h"
#include "orchestrator/pool/vm-bringup.h"

#define REFILL_MS 20 /* delay of a refill: lets the request that took an item run first */
/* The same while the bucket has more: lets the sandbox's first calls run. */
#define CALM_MS		 500
#define BACKOFF_FIRST_MS 500
#define BACKOFF_MAX_MS	 10000
/* Blank VMs made at a time. More take CPU time from sandboxes, and hardly fill the pool sooner. */
#define SPAWNING_MAX   2
#define BLANKS_FIRST   8 /* as many as creates and small forks need; more are for large forks */
#define REST_STEP_MS   50
#define OTHERS_MAX     4	/* maximum number of buckets that are not permanent */
#define OTHERS_KEPT_MS (600000) /* how long such a bucket stays after its last request */

struct pool_item {
	struct pool *pool;
	struct list link;
	struct vmproc *vm;	    /* the blank VM; NULL for a warm sandbox */
	struct pool_bucket *bucket; /* NULL: for a blank VM, and after the bucket was freed */
	struct vm_bringup *warm;
	bool kept; /* it is ready: a warm sandbox in its bucket, or a blank VM */
};

/* When to try again. The delay doubles with each failure in a row. */
struct pool_pace {
	uint32_t backoff_ms; /* 0: the last attempt succeeded */
	uint64_t not_before_ms;
};

/* Warm sandboxes of one template and disk size. */
struct pool_bucket {
	struct list link; /* on pool->others, least recently requested first */
	struct template *template;
	uint32_t rootfs_gb;
	uint64_t asked_ms; /* when a client last requested such a sandbox, on the loop's clock */
	bool for_good;	   /* permanent: kept without requests, too */
	bool background;   /* no client has requested it since the service started */
	struct list warms; /* struct pool_item */
	uint32_t n, wanted;
	struct pool_pace pace;
	bool was_filled;
};

struct pool {
	const struct template_env *env;
	struct templates *templates;
	struct list blanks; /* struct pool_item */
	uint32_t n_blanks;
	struct pool_bucket main; /* of the default template */
	struct list others;	 /* struct pool_bucket: of all other templates and sizes */
	struct list spawning;	 /* struct pool_item: blank VMs in progress */
	uint32_t n_spawning;
	struct pool_item *making; /* a warm sandbox in progress */
	struct loop_timer refill;
	struct pool_pace blank_pace;
	uint64_t rest_until_ms; /* on the loop's clock */
};

static bool is_closing(const struct pool *p)
{
	return p->env->ops->is_closing(p->env->arg);
}

static struct pool_item *first(struct list *items)
{
	return list_first_of(items, struct pool_item, link);
}

static void item_free(struct pool_item *item)
{
	list_del(&item->link);
	free(item);
}

static struct pool_item *item_new(struct pool *p)
{
	struct pool_item *item = must_alloc(sizeof(*item));

	item->pool = p;
	return item;
}

static void back_off(struct pool *p, struct pool_pace *pace)
{
	pace->backoff_ms = backoff_next(pace->backoff_ms, BACKOFF_FIRST_MS, BACKOFF_MAX_MS);
	pace->not_before_ms = loop_now_ms(p->env->loop) + pace->backoff_ms;
	pool_check(p);
}

static void check_within(struct pool *p, uint64_t ms)
{
	struct loop_timer *t = &p->refill;

	if (!is_closing(p) && (!loop_timer_is_set(t) || t->due_ms > loop_now_ms(p->env->loop) + ms))
		loop_timer_set(p->env->loop, t, ms);
}

void pool_check(struct pool *p)
{
	check_within(p, REFILL_MS);
}

/* Returns whether the back-off has passed; if not, schedules the refill for its end. */
static bool may_try(struct pool *p, const struct pool_pace *pace)
{
	uint64_t now = loop_now_ms(p->env->loop);

	if (now >= pace->not_before_ms)
		return true;
	check_within(p, pace->not_before_ms - now);
	return false;
}

/* Drops an item if a client waits for a slot. The client may have begun to wait while the item was
 * made. */
static void yield_if_wanted(struct pool *p)
{
	if (!list_empty(&p->env->vms->waiting))
		pool_yield(p);
}

/* --- blank VMs ------------------------------------------------------------------------------ */

static void make_blanks(struct pool *p);

static void on_blank_ready(void *arg)
{
	struct pool_item *item = arg;
	struct pool *p = item->pool;

	p->n_spawning--;
	p->blank_pace.backoff_ms = 0;
	p->n_blanks++;
	item->kept = true;
	list_del(&item->link);
	list_add_tail(&p->blanks, &item->link);
	yield_if_wanted(p);
	make_blanks(p);
	pool_check(p);
}

static void on_blank_died(void *arg, const char *reason)
{
	struct pool_item *item = arg;
	struct pool *p = item->pool;

	log_warn("a blank VM in slot %u died: %s", vmproc_id(item->vm)->slot, reason);
	vmproc_drop(item->vm, NULL, NULL);
	if (item->kept)
		p->n_blanks--;
	else
		p->n_spawning--;
	item_free(item);
	/* Blank VMs made at the same time may have failed for the same reason: they delay the next
	 * attempt once. */
	if (loop_now_ms(p->env->loop) >= p->blank_pace.not_before_ms)
		back_off(p, &p->blank_pace);
	else
		pool_check(p);
}

static const struct vmproc_owner blank_owner = {on_blank_ready, on_blank_died};

/* Returns the spec of blank VMs: the default template's vCPUs, and RAM for the largest prepared
 * size, or with `sizes = auto` the most that the host allows. A blank VM can be restored with less
 * RAM. */
static struct vmproc_spec blank_spec(const struct pool *p)
{
	const struct config *config = p->env->config;
	const struct size *own = template_size(templates_default(p->templates));
	struct size host = size_host(), most = *own;
	struct sizes sizes;

	sizes_ahead(&sizes, config, own, &host);
	for (size_t i = 0; i < sizes.n; i++)
		most.ram_mib = max_u32(most.ram_mib, sizes.all[i].ram_mib);
	if (config_sizes_auto(config))
		most.ram_mib = max_u32(most.ram_mib, host.ram_mib);
	return size_vm_spec(&most, false);
}

static void make_blank(struct pool *p)
{
	struct pool_item *item = item_new(p);
	struct vmproc_spec spec = blank_spec(p);

	p->n_spawning++;
	list_add_tail(&p->spawning, &item->link);
	item->vm = vmproc_spawn(p->env->vms, &spec, &blank_owner, item);
}

void pool_rest(struct pool *p, uint64_t ms)
{
	p->rest_until_ms = loop_now_ms(p->env->loop) + ms;
}

struct vmproc *pool_take_blank(struct pool *p, const struct size *size)
{
	struct pool_item *item = first(&p->blanks);
	struct vmproc_spec spec = size_vm_spec(size, false);

	if (!item || !vmproc_fit(item->vm, &spec))
		return NULL;
	struct vmproc *vm = item->vm;
	p->n_blanks--;
	item_free(item);
	pool_check(p);
	return vm;
}

/* --- warm sandboxes ------------------------------------------------------------------------- */

static void pool_bucket_init(struct pool_bucket *b, struct template *t, uint32_t rootfs_gb,
			     uint32_t wanted)
{
	*b = (struct pool_bucket){.template = t, .rootfs_gb = rootfs_gb, .wanted = wanted};
}

static void drop_warm(struct pool_item *item)
{
	item->bucket->n--;
	vm_bringup_free(item->warm);
	item_free(item);
}

static void pool_bucket_empty(struct pool_bucket *b)
{
	while (!list_empty(&b->warms))
		drop_warm(first(&b->warms));
}

static void pool_bucket_free(struct pool *p, struct pool_bucket *b)
{
	pool_bucket_empty(b);
	if (p->making && p->making->bucket == b)
		p->making->bucket = NULL;
	list_del(&b->link);
	template_put(b->template);
	free(b);
}

/* Reports whether this host can make sandboxes. Only a failure of the default template is counted
 * against the host: that of another template may be the template's own. */
static void note_made(const struct pool *p, const struct pool_bucket *b, bool well)
{
	if (well || b == &p->main)
		p->env->ops->made(p->env->arg, well);
}

static void on_made(struct pool_item *item, struct vm_bringup *w)
{
	struct pool *p = item->pool;
	struct pool_bucket *b = item->bucket;

	p->making = NULL;
	if (!b) {
		vm_bringup_free(w);
		item_free(item);
		pool_check(p);
		return;
	}
	item->warm = w;
	item->kept = true;
	list_add_tail(&b->warms, &item->link);
	b->n++;
	b->pace.backoff_ms = 0;
	b->was_filled = true;
	note_made(p, b, true);
	yield_if_wanted(p);
	pool_check(p);
}

static void on_warm(void *arg, struct vm_bringup *w, const char *text)
{
	struct pool_item *item = arg;
	struct pool *p = item->pool;
	struct pool_bucket *b = item->bucket;

	if (w) {
		on_made(item, w);
		return;
	}
	if (item->kept) {
		b->n--;
	} else {
		p->making = NULL;
		note_made(p, b, false);
	}
	item_free(item);
	if (b)
		back_off(p, &b->pace);
	else
		pool_check(p);
}

static void make_warm(struct pool *p, struct pool_bucket *b)
{
	struct vm_bringup_spec spec = {
		.size = *template_size(b->template), .template = b->template, .prime = true};
	struct pool_item *item = item_new(p);

	spec.size.rootfs_gb = b->rootfs_gb;
	spec.blank = pool_take_blank(p, &spec.size);
	item->bucket = b;
	p->making = item;
	item->warm = vm_bringup_start(p->env, &spec, on_warm, item);
}

static bool is_of(const struct pool_bucket *b, const struct template *t, uint32_t rootfs_gb)
{
	return b->template == t && b->rootfs_gb == rootfs_gb;
}

static struct pool_bucket *find_other(struct pool *p, const struct template *t, uint32_t rootfs_gb)
{
	list_each_of (b, struct pool_bucket, link, &p->others)
		if (is_of(b, t, rootfs_gb))
			return b;
	return NULL;
}

static struct pool_bucket *other_new(struct pool *p, struct template *t, uint32_t rootfs_gb)
{
	struct pool_bucket *b = must_alloc(sizeof(*b));

	pool_bucket_init(b, template_hold(t), rootfs_gb, p->env->config->pool_others);
	b->background = true;
	list_add_tail(&p->others, &b->link);
	return b;
}

/* Frees the least recently requested bucket if there are OTHERS_MAX that are not permanent. */
static void forget_oldest(struct pool *p)
{
	struct pool_bucket *oldest = NULL;
	size_t n = 0;

	list_each_of (b, struct pool_bucket, link, &p->others) {
		if (b->for_good)
			continue;
		oldest = oldest ? oldest : b;
		n++;
	}
	if (n >= OTHERS_MAX)
		pool_bucket_free(p, oldest);
}

/* Returns the bucket of a template and notes that it is requested now. Makes the bucket if needed;
 * returns NULL when the pool makes none (setting pool_others) or is closing. */
static struct pool_bucket *other_of(struct pool *p, struct template *t, uint32_t rootfs_gb)
{
	if (!p->env->config->pool_others || is_closing(p))
		return NULL;
	struct pool_bucket *b = find_other(p, t, rootfs_gb);
	if (!b) {
		forget_oldest(p);
		b = other_new(p, t, rootfs_gb);
	}
	list_del(&b->link);
	list_add_tail(&p->others, &b->link);
	b->asked_ms = loop_now_ms(p->env->loop);
	return b;
}

static struct pool_bucket *pool_bucket_of(struct pool *p, struct template *t, uint32_t rootfs_gb)
{
	if (is_of(&p->main, t, rootfs_gb))
		return &p->main;
	struct pool_bucket *b = other_of(p, t, rootfs_gb);
	if (b)
		b->background = false;
	return b;
}

/* Returns how many VMs permanent buckets may hold: half of all, so that slots stay free in which
 * templates can be prepared. One warm sandbox of each size takes precedence over two of one size.
 */
static uint32_t permanent_max(const struct pool *p)
{
	return p->env->vms->max_vms / 2;
}

static bool has_bucket_left(const struct pool *p, uint32_t wanted)
{
	uint32_t kept = wanted;

	list_each_of (b, const struct pool_bucket, link, &p->others)
		kept += b->for_good ? b->wanted : 0;
	return kept <= permanent_max(p);
}

void pool_keep(struct pool *p, struct template *t, uint32_t rootfs_gb)
{
	struct pool_bucket *b = find_other(p, t, rootfs_gb);

	if (!p->env->config->pool_others || is_closing(p) || is_of(&p->main, t, rootfs_gb) ||
	    (b && b->for_good) || !has_bucket_left(p, 1))
		return;
	uint32_t share = permanent_max(p) / (uint32_t)templates_ahead_count(p->templates);
	uint32_t wanted = min_u32(max_u32(share, 1), p->env->config->pool_others);
	if (!has_bucket_left(p, wanted))
		return;
	if (!b)
		b = other_new(p, t, rootfs_gb);
	b->for_good = true;
	b->wanted = wanted;
	pool_check(p);
}

struct vm_bringup *pool_take_warm(struct pool *p, struct template *t, uint32_t rootfs_gb)
{
	struct pool_bucket *b = pool_bucket_of(p, t, rootfs_gb);
	struct pool_item *item = b && template_ready(t) ? first(&b->warms) : NULL;

	pool_check(p);
	if (!item)
		return NULL;
	struct vm_bringup *w = item->warm;
	b->n--;
	if (!b->pace.backoff_ms)
		b->pace.not_before_ms = b->n ? loop_now_ms(p->env->loop) + CALM_MS : 0;
	item_free(item);
	return w;
}

void pool_stats(const struct pool *p, struct pool_stats *out)
{
	*out = (struct pool_stats){
		.blanks = p->n_blanks, .warm = p->main.n, .warm_default = p->main.n};
	list_each_of (b, struct pool_bucket, link, &p->others)
		out->warm += b->n;
}

void pool_warm(const struct pool *p,
	       void (*each)(void *arg, const struct template *t, uint32_t rootfs_gb, uint32_t n),
	       void *arg)
{
	each(arg, p->main.template, p->main.rootfs_gb, p->main.n);
	list_each_of (b, const struct pool_bucket, link, &p->others)
		each(arg, b->template, b->rootfs_gb, b->n);
}

bool pool_was_filled(const struct pool *p)
{
	return !p->env->config->pool_warm || p->main.was_filled;
}

/* --- the refill ----------------------------------------------------------------------------- */

/* Returns whether a client waits for a VM. */
static bool is_wanted(const struct pool *p)
{
	return !list_empty(&p->env->vms->waiting) || p->env->ops->needs_vms(p->env->arg);
}

static bool room(const struct pool *p)
{
	return p->env->vms->in_use < vmproc_host_usable(p->env->vms) && !is_wanted(p) &&
	       !host_memory_low();
}

static bool wants_warm(struct pool *p, struct pool_bucket *b)
{
	return !p->making && b->n < b->wanted && template_ready(b->template) && !is_wanted(p) &&
	       (!b->background || templates_calm(p->templates)) && (p->n_blanks || room(p)) &&
	       may_try(p, &b->pace);
}

/* Returns whether the pool leaves the CPUs to new sandboxes (pool_rest); if so, it is checked again
 * soon. */
static bool is_resting(struct pool *p)
{
	if (loop_now_ms(p->env->loop) >= p->rest_until_ms || !p->env->vms->ahead)
		return false;
	check_within(p, REST_STEP_MS);
	return true;
}

static bool wants_blank(struct pool *p)
{
	uint32_t n = p->n_blanks + p->n_spawning;
	bool first = n < BLANKS_FIRST;

	return p->n_spawning < (first ? SPAWNING_MAX : 1) && n < p->env->config->pool_blank_vms &&
	       (first || !is_resting(p)) && room(p) && may_try(p, &p->blank_pace);
}

static void make_blanks(struct pool *p)
{
	while (wants_blank(p))
		make_blank(p);
}

/* Frees buckets that were not requested for OTHERS_KEPT_MS, and empties those whose template is
 * being rebuilt. */
static void clear_others(struct pool *p)
{
	uint64_t now = loop_now_ms(p->env->loop);

	list_each_of_safe (b, struct pool_bucket, link, &p->others) {
		if (!b->for_good && now >= b->asked_ms + OTHERS_KEPT_MS)
			pool_bucket_free(p, b);
		else if (!template_ready(b->template))
			pool_bucket_empty(b);
	}
	if (!template_ready(templates_default(p->templates)))
		pool_bucket_empty(&p->main);
}

/* Returns whether the pool has reached its targets. */
static bool is_full(const struct pool *p)
{
	if (p->making || p->n_spawning || p->n_blanks < p->env->config->pool_blank_vms)
		return false;
	list_each_of (b, const struct pool_bucket, link, &p->others)
		if (b->n < b->wanted && template_ready(b->template))
			return false;
	return p->main.n >= p->main.wanted;
}

static void refill(void *arg)
{
	struct pool *p = arg;

	if (is_closing(p))
		return;
	clear_others(p);
	if (wants_warm(p, &p->main))
		make_warm(p, &p->main);
	make_blanks(p);
	list_each_of (b, struct pool_bucket, link, &p->others)
		if (wants_warm(p, b))
			make_warm(p, b);
	uint64_t again_ms = templates_ahead(p->templates, is_full(p));
	if (again_ms)
		check_within(p, again_ms);
}

static struct pool_item *least_worth(struct pool *p)
{
	list_each_of (b, struct pool_bucket, link, &p->others)
		if (!list_empty(&b->warms))
			return first(&b->warms);
	struct pool_item *blank = first(&p->blanks);
	return blank ? blank : first(&p->main.warms);
}

/* Gives up making a warm sandbox that nobody has requested. */
static void yield_background(struct pool *p)
{
	struct pool_item *item = p->making;

	if (!item || !item->bucket || !item->bucket->background)
		return;
	p->making = NULL;
	vm_bringup_free(item->warm);
	item_free(item);
}

void pool_work_began(struct pool *p)
{
	templates_work_began(p->templates);
	if (!is_closing(p))
		yield_background(p);
}

bool pool_yield(struct pool *p)
{
	struct pool_item *item = least_worth(p);

	if (!item)
		return false;
	if (item->bucket) {
		drop_warm(item);
		return true;
	}
	p->n_blanks--;
	vmproc_drop(item->vm, NULL, NULL);
	item_free(item);
	return true;
}

/* --- start and end --------------------------------------------------------------------------- */

struct pool *pool_new(const struct template_env *env, struct templates *templates)
{
	struct pool *p = must_alloc(sizeof(*p));

	p->env = env;
	p->templates = templates;
	p->refill = (struct loop_timer){.fn = refill, .arg = p};
	return p;
}

void pool_start(struct pool *p)
{
	struct template *t = templates_default(p->templates);

	pool_bucket_init(&p->main, t, template_size(t)->rootfs_gb, p->env->config->pool_warm);
	pool_check(p);
}

void pool_close(struct pool *p)
{
	loop_timer_clear(p->env->loop, &p->refill);
	while (pool_yield(p))
		;
	while (!list_empty(&p->others))
		pool_bucket_free(p, container_of(p->others.next, struct pool_bucket, link));
	while (!list_empty(&p->spawning)) {
		struct pool_item *item = first(&p->spawning);

		vmproc_drop(item->vm, NULL, NULL);
		item_free(item);
	}
	p->n_spawning = 0;
	if (p->making) {
		vm_bringup_free(p->making->warm);
		item_free(p->making);
		p->making = NULL;
	}
}

void pool_free(struct pool *p)
{
	free(p);
}
