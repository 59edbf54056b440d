// SPDX-License-Identifier: Apache-2.0
/*
 * The pool: blank VMs and warm sandboxes, made ahead of need. It makes one of each at a time, never
 * while a client waits for a VM, and backs off exponentially while that fails. A blank VM has room
 * for the largest of `sizes`. The pool holds warm sandboxes of the default template, of templates
 * prepared ahead, and for OTHERS_KEPT_MS of other templates that were requested. Making warm
 * sandboxes that nobody has requested is background work.
 */
#include <string.h>

#include "base/num.h"
#include "orchestrator/core/internal.h"

#define REFILL_MS	 20  /* lets the request that took the last item run first */
#define CALM_MS		 500 /* lets its first calls run too, while the bucket is not empty */
#define BACKOFF_FIRST_MS 500
#define BACKOFF_MAX_MS	 10000
#define OTHERS_MAX	 4	  /* buckets of requested templates */
#define OTHERS_KEPT_MS	 (600000) /* since the last request */

struct pool_item {
	struct core *core;
	struct list link;
	struct vmproc *vm;	    /* the blank VM; NULL for a warm sandbox */
	struct pool_bucket *bucket; /* of a warm sandbox; NULL: freed meanwhile */
	struct warm *warm;
	bool kept; /* it is in its bucket */
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

static struct pool_item *item_new(struct core *c)
{
	struct pool_item *item = must_alloc(sizeof(*item));

	item->core = c;
	list_init(&item->link);
	return item;
}

static void back_off(struct core *c, struct pool_pace *pace)
{
	pace->backoff_ms = pace->backoff_ms ? 2 * pace->backoff_ms : BACKOFF_FIRST_MS;
	if (pace->backoff_ms > BACKOFF_MAX_MS)
		pace->backoff_ms = BACKOFF_MAX_MS;
	pace->not_before_ms = loop_now_ms(c->loop) + pace->backoff_ms;
	pool_check(c);
}

static void check_within(struct core *c, uint64_t ms)
{
	struct loop_timer *t = &c->pool.refill;

	if (!c->closing && (!t->heap_index || t->due_ms > loop_now_ms(c->loop) + ms))
		loop_timer_set(c->loop, t, ms);
}

void pool_check(struct core *c)
{
	check_within(c, REFILL_MS);
}

/* Returns whether the back-off has passed; if not, schedules the refill for its end. */
static bool may_try(struct core *c, const struct pool_pace *pace)
{
	uint64_t now = loop_now_ms(c->loop);

	if (now >= pace->not_before_ms)
		return true;
	check_within(c, pace->not_before_ms - now);
	return false;
}

/* Frees a slot for a waiting client: one may have asked for the last slot while this item was
 * made. */
static void yield_if_wanted(struct core *c)
{
	if (!list_empty(&c->vms.waiting))
		pool_yield(c);
}

/* --- blank VMs ------------------------------------------------------------------------------ */

static void on_blank_ready(void *arg)
{
	struct pool_item *item = arg;
	struct core *c = item->core;
	struct pool *p = &c->pool;

	p->spawning = NULL;
	p->blank_pace.backoff_ms = 0;
	p->n_blanks++;
	list_add_tail(&p->blanks, &item->link);
	yield_if_wanted(c);
	pool_check(c);
}

static void on_blank_died(void *arg, const char *reason)
{
	struct pool_item *item = arg;
	struct core *c = item->core;

	log_warn("a blank VM in slot %u died: %s", vmproc_slot(item->vm), reason);
	vmproc_drop(item->vm, NULL, NULL);
	if (c->pool.spawning == item)
		c->pool.spawning = NULL;
	else
		c->pool.n_blanks--;
	item_free(item);
	back_off(c, &c->pool.blank_pace);
}

static const struct vmproc_owner blank_owner = {on_blank_ready, on_blank_died};

static void make_blank(struct core *c)
{
	struct pool_item *item = item_new(c);
	struct vmproc_spec spec = size_blank_spec(c);

	c->pool.spawning = item;
	item->vm = vmproc_spawn(&c->vms, &spec, &blank_owner, item);
}

struct vmproc *pool_take_blank(struct core *c, const struct size *size)
{
	struct pool_item *item = first(&c->pool.blanks);
	struct vmproc_spec spec = size_vm_spec(size, false);

	if (!item || !vmproc_fit(item->vm, &spec))
		return NULL;
	struct vmproc *vm = item->vm;
	c->pool.n_blanks--;
	item_free(item);
	pool_check(c);
	return vm;
}

/* --- warm sandboxes ------------------------------------------------------------------------- */

static void pool_bucket_init(struct pool_bucket *s, struct template *t, uint32_t rootfs_gb,
			     uint32_t wanted)
{
	*s = (struct pool_bucket){.template = t, .rootfs_gb = rootfs_gb, .wanted = wanted};
	list_init(&s->link);
	list_init(&s->warms);
}

static void drop_warm(struct pool_item *item)
{
	item->bucket->n--;
	warm_free(item->warm);
	item_free(item);
}

static void pool_bucket_empty(struct pool_bucket *s)
{
	while (!list_empty(&s->warms))
		drop_warm(first(&s->warms));
}

static void pool_bucket_free(struct core *c, struct pool_bucket *s)
{
	pool_bucket_empty(s);
	if (c->pool.making && c->pool.making->bucket == s)
		c->pool.making->bucket = NULL;
	list_del(&s->link);
	template_put(s->template);
	free(s);
}

static void on_made(struct pool_item *item, struct warm *w)
{
	struct core *c = item->core;
	struct pool_bucket *s = item->bucket;

	c->pool.making = NULL;
	if (!s) {
		warm_free(w);
		item_free(item);
		return;
	}
	item->warm = w;
	item->kept = true;
	list_add_tail(&s->warms, &item->link);
	s->n++;
	s->pace.backoff_ms = 0;
	s->was_filled = true;
	yield_if_wanted(c);
	pool_check(c);
}

static void on_warm(void *arg, struct warm *w, const char *text)
{
	struct pool_item *item = arg;
	struct core *c = item->core;
	struct pool_bucket *s = item->bucket;

	if (w) {
		on_made(item, w);
		return;
	}
	if (item->kept)
		s->n--;
	else
		c->pool.making = NULL;
	item_free(item);
	if (s)
		back_off(c, &s->pace);
}

static void make_warm(struct core *c, struct pool_bucket *s)
{
	struct warm_source from = {
		.size = *template_size(s->template), .template = s->template, .prime = true};
	struct pool_item *item = item_new(c);

	from.size.rootfs_gb = s->rootfs_gb;
	item->bucket = s;
	c->pool.making = item;
	item->warm = warm_make(c, &from, on_warm, item);
}

static bool is_of(const struct pool_bucket *s, const struct template *t, uint32_t rootfs_gb)
{
	return s->template == t && s->rootfs_gb == rootfs_gb;
}

static struct pool_bucket *find_other(struct core *c, const struct template *t, uint32_t rootfs_gb)
{
	list_each (pos, &c->pool.others) {
		struct pool_bucket *s = container_of(pos, struct pool_bucket, link);

		if (is_of(s, t, rootfs_gb))
			return s;
	}
	return NULL;
}

static struct pool_bucket *other_new(struct core *c, struct template *t, uint32_t rootfs_gb)
{
	struct pool_bucket *s = must_alloc(sizeof(*s));

	pool_bucket_init(s, template_hold(t), rootfs_gb, c->config.pool_others);
	s->background = true;
	list_add_tail(&c->pool.others, &s->link);
	return s;
}

/* Frees the least recently requested bucket when there are OTHERS_MAX of them. */
static void forget_oldest(struct core *c)
{
	struct pool_bucket *oldest = NULL;
	size_t n = 0;

	list_each (pos, &c->pool.others) {
		struct pool_bucket *s = container_of(pos, struct pool_bucket, link);

		if (s->for_good)
			continue;
		oldest = oldest ? oldest : s;
		n++;
	}
	if (n >= OTHERS_MAX)
		pool_bucket_free(c, oldest);
}

/* Returns the bucket of a requested template, made if needed; NULL when the pool makes none. */
static struct pool_bucket *other_of(struct core *c, struct template *t, uint32_t rootfs_gb)
{
	if (!c->config.pool_others || c->closing)
		return NULL;
	struct pool_bucket *s = find_other(c, t, rootfs_gb);
	if (!s) {
		forget_oldest(c);
		s = other_new(c, t, rootfs_gb);
	}
	list_del(&s->link);
	list_add_tail(&c->pool.others, &s->link);
	s->asked_ms = loop_now_ms(c->loop);
	return s;
}

static struct pool_bucket *pool_bucket_of(struct core *c, struct template *t, uint32_t rootfs_gb)
{
	struct pool *p = &c->pool;

	if (is_of(&p->main, t, rootfs_gb))
		return &p->main;
	struct pool_bucket *s = other_of(c, t, rootfs_gb);
	if (s)
		s->background = false;
	return s;
}

void pool_expect(struct core *c, struct template *t, uint32_t rootfs_gb)
{
	if (!is_of(&c->pool.main, t, rootfs_gb))
		other_of(c, t, rootfs_gb);
	pool_check(c);
}

/* At most half of all VMs stay in permanent buckets: without a free slot, nothing can be prepared.
 * One warm sandbox of each size takes precedence over two of one size. */
static uint32_t permanent_max(const struct core *c)
{
	return c->vms.max_vms / 2;
}

static uint32_t permanent_of_each(const struct core *c)
{
	uint32_t share = permanent_max(c) / (uint32_t)templates_ahead_count(c);

	return min_u32(max_u32(share, 1), c->config.pool_others);
}

static bool has_bucket_left(const struct core *c, uint32_t wanted)
{
	uint32_t kept = wanted;

	list_each (pos, &c->pool.others) {
		const struct pool_bucket *s = container_of(pos, struct pool_bucket, link);

		kept += s->for_good ? s->wanted : 0;
	}
	return kept <= permanent_max(c);
}

void pool_keep(struct core *c, struct template *t, uint32_t rootfs_gb)
{
	struct pool_bucket *s = find_other(c, t, rootfs_gb);

	if (!c->config.pool_others || c->closing || is_of(&c->pool.main, t, rootfs_gb) ||
	    (s && s->for_good) || !has_bucket_left(c, 1))
		return;
	uint32_t wanted = permanent_of_each(c);
	if (!has_bucket_left(c, wanted))
		return;
	if (!s)
		s = other_new(c, t, rootfs_gb);
	s->for_good = true;
	s->wanted = wanted;
	pool_check(c);
}

struct warm *pool_take_warm(struct core *c, struct template *t, uint32_t rootfs_gb)
{
	struct pool_bucket *s = pool_bucket_of(c, t, rootfs_gb);
	struct pool_item *item = s && template_ready(t) ? first(&s->warms) : NULL;

	pool_check(c);
	if (!item)
		return NULL;
	struct warm *w = item->warm;
	s->n--;
	if (!s->pace.backoff_ms)
		s->pace.not_before_ms = s->n ? loop_now_ms(c->loop) + CALM_MS : 0;
	item_free(item);
	return w;
}

uint32_t pool_warms(const struct core *c)
{
	uint32_t n = c->pool.main.n;

	list_each (pos, &c->pool.others)
		n += container_of(pos, struct pool_bucket, link)->n;
	return n;
}

/* --- the refill ----------------------------------------------------------------------------- */

/* Returns whether a client waits for a VM. */
static bool is_wanted(const struct core *c)
{
	return !list_empty(&c->vms.waiting) || c->n_coming;
}

static bool room(const struct core *c)
{
	return c->vms.in_use < c->vms.max_vms && !is_wanted(c) && !host_memory_low();
}

static bool wants_warm(struct core *c, struct pool_bucket *s)
{
	struct pool *p = &c->pool;

	return !p->making && s->n < s->wanted && template_ready(s->template) && !is_wanted(c) &&
	       (!s->background || core_is_calm(c)) && (p->n_blanks || room(c)) &&
	       may_try(c, &s->pace);
}

static bool wants_blank(struct core *c)
{
	struct pool *p = &c->pool;

	return !p->spawning && p->n_blanks < c->config.pool_blank_vms && room(c) &&
	       may_try(c, &p->blank_pace);
}

/* Frees buckets that were not requested for OTHERS_KEPT_MS, and empties those whose template is
 * being rebuilt. */
static void clear_others(struct core *c)
{
	uint64_t now = loop_now_ms(c->loop);

	list_each_safe (pos, &c->pool.others) {
		struct pool_bucket *s = container_of(pos, struct pool_bucket, link);

		if (!s->for_good && now >= s->asked_ms + OTHERS_KEPT_MS)
			pool_bucket_free(c, s);
		else if (!template_ready(s->template))
			pool_bucket_empty(s);
	}
	if (!template_ready(c->def))
		pool_bucket_empty(&c->pool.main);
}

static void refill(void *arg)
{
	struct core *c = arg;
	struct pool *p = &c->pool;

	if (c->closing)
		return;
	clear_others(c);
	if (wants_warm(c, &p->main))
		make_warm(c, &p->main);
	if (wants_blank(c))
		make_blank(c);
	list_each (pos, &p->others) {
		struct pool_bucket *s = container_of(pos, struct pool_bucket, link);

		if (wants_warm(c, s))
			make_warm(c, s);
	}
	uint64_t again_ms = templates_ahead(c);
	if (again_ms)
		check_within(c, again_ms);
}

bool pool_is_full(const struct core *c)
{
	const struct pool *p = &c->pool;

	if (p->making || p->spawning || p->n_blanks < c->config.pool_blank_vms)
		return false;
	list_each (pos, &p->others) {
		const struct pool_bucket *s = container_of(pos, struct pool_bucket, link);

		if (s->n < s->wanted && template_ready(s->template))
			return false;
	}
	return p->main.n >= p->main.wanted;
}

static struct pool_item *least_worth(struct core *c)
{
	list_each (pos, &c->pool.others) {
		struct pool_bucket *s = container_of(pos, struct pool_bucket, link);

		if (!list_empty(&s->warms))
			return first(&s->warms);
	}
	struct pool_item *blank = first(&c->pool.blanks);
	return blank ? blank : first(&c->pool.main.warms);
}

void pool_yield_background(struct core *c)
{
	struct pool_item *item = c->pool.making;

	if (!item || !item->bucket || !item->bucket->background)
		return;
	c->pool.making = NULL;
	warm_free(item->warm);
	item_free(item);
}

bool pool_yield(struct core *c)
{
	struct pool_item *item = least_worth(c);

	if (!item)
		return false;
	if (item->bucket) {
		drop_warm(item);
		return true;
	}
	c->pool.n_blanks--;
	vmproc_drop(item->vm, NULL, NULL);
	item_free(item);
	return true;
}

void pool_init(struct core *c)
{
	c->pool = (struct pool){.refill = {.fn = refill, .arg = c}};
	list_init(&c->pool.blanks);
	list_init(&c->pool.others);
	pool_bucket_init(&c->pool.main, NULL, 0, 0);
}

void pool_start(struct core *c)
{
	pool_bucket_init(&c->pool.main, c->def, template_size(c->def)->rootfs_gb,
			 c->config.pool_warm);
	pool_check(c);
}

void pool_close(struct core *c)
{
	struct pool *p = &c->pool;

	loop_timer_clear(c->loop, &p->refill);
	while (pool_yield(c))
		;
	while (!list_empty(&p->others))
		pool_bucket_free(c, container_of(p->others.next, struct pool_bucket, link));
	if (p->spawning) {
		vmproc_drop(p->spawning->vm, NULL, NULL);
		item_free(p->spawning);
		p->spawning = NULL;
	}
	if (p->making) {
		warm_free(p->making->warm);
		item_free(p->making);
		p->making = NULL;
	}
}
