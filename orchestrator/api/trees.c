// SPDX-License-Identifier: Apache-2.0
/* Trees of sandboxes: their budgets, and what they cost. */
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "orchestrator/api/handler.h"

#define SHOWN_MAX 1000 /* sandboxes; also Spaces */
/* Bytes of an answer after which it gets no further sandbox or Space: the loop makes all of it in
 * one turn. */
#define ANSWER_MAX (1u << 20)

/* --- labels and scores ----------------------------------------------------------------------- */

static bool labels_fit(struct request *r, char *const *labels)
{
	size_t n = 0, bytes = 0;

	for (; labels && labels[n]; n++)
		bytes += strlen(labels[n]) - 1; /* without the = */
	if (n <= LABELS_MAX && bytes <= LABELS_BYTES_MAX)
		return true;
	return bad_request(
		r, "labels must be at most %u with %u bytes in total, not %zu with %zu bytes",
		LABELS_MAX, LABELS_BYTES_MAX, n, bytes);
}

bool labels_read(struct request *r, char *const *labels, char out[static LABELS_JSON_MAX])
{
	struct text t = {0};

	if (!labels_fit(r, labels))
		return false;
	text_putc(&t, '{');
	for (char *const *each = labels; each && *each; each++) {
		const char *value = strchr(*each, '=') + 1;

		text_puts(&t, each == labels ? "" : ",");
		json_string(&t, *each, (size_t)(value - 1 - *each));
		text_putc(&t, ':');
		json_string(&t, value, strlen(value));
	}
	text_putc(&t, '}');
	text_putc(&t, '\0');
	memcpy(out, t.p, t.len);
	text_free(&t);
	return true;
}

static void add_score(struct text *t, struct score score)
{
	if (score.given)
		text_printf(t, ",\"score\":%.17g", score.value);
	else
		text_puts(t, ",\"score\":null");
}

void text_node(struct text *t, const char *root, uint32_t depth, struct score score,
	       const char *labels)
{
	text_printf(t, ",\"root\":\"%s\",\"depth\":%u", root, depth);
	add_score(t, score);
	text_printf(t, ",\"labels\":%s", labels);
}

void text_machine(struct text *t, const struct sandbox_config *config)
{
	json_member(t, "template", config->template);
	json_member_number(t, "vcpus", config->size.vcpus);
	json_member_number(t, "ram_mib", config->size.ram_mib);
	json_member_number(t, "rootfs_gb", config->size.rootfs_gb);
}

void text_metadata(struct text *t, const char *metadata)
{
	text_printf(t, ",\"metadata\":%s", metadata && *metadata ? metadata : "{}");
}

/* --- budgets --------------------------------------------------------------------------------- */

static const char *const ways[] = {
	[TREE_REFUSE] = "refuse",
	[TREE_WAIT] = "wait",
	[TREE_FREEZE_OLDEST_LEAF] = "freeze_oldest_leaf",
	[TREE_END_LOWEST_SCORE] = "end_lowest_score",
};

static struct tree_budget budget_of(const struct budget_body *b)
{
	struct tree_budget budget = {.live = b->live,
				     .ram_mib = b->ram_mib,
				     .cpu_s = b->cpu_seconds,
				     .wall_s = b->wall_seconds,
				     .depth = b->depth};

	for (size_t i = 0; b->at_limit.p && i < ARRAY_LEN(ways); i++)
		if (strcmp(b->at_limit.p, ways[i]) == 0)
			budget.at_limit = (enum tree_at_limit)i;
	return budget;
}

bool budget_read(struct request *r, const struct json_text *field, struct tree_budget *budget)
{
	struct budget_body b;
	struct err e;

	memcpy(&b, budget_json.initial, sizeof(b));
	if (json_read(field->p, field->len, budget_json.fields, budget_json.n_fields, &b, &e) < 0)
		return bad_request(r, "tree.%s", e.text);
	*budget = budget_of(&b);
	json_free(budget_json.fields, budget_json.n_fields, &b);
	return true;
}

/* --- a tree ---------------------------------------------------------------------------------- */

static void add_seconds(struct text *t, const char *name, uint64_t ms)
{
	text_printf(t, ",\"%s\":%llu.%03u", name, (unsigned long long)ms / 1000,
		    (unsigned)(ms % 1000));
}

static void add_limit(struct text *t, const char *name, uint64_t limit)
{
	if (limit)
		text_printf(t, "\"%s\":%llu,", name, (unsigned long long)limit);
}

static void add_budget(struct text *t, const struct tree_view *v)
{
	const struct tree_budget *b = &v->budget;

	if (!v->limited) {
		text_puts(t, ",\"tree\":null");
		return;
	}
	text_puts(t, ",\"tree\":{");
	add_limit(t, "live", b->live);
	add_limit(t, "ram_mib", b->ram_mib);
	add_limit(t, "cpu_seconds", b->cpu_s);
	add_limit(t, "wall_seconds", b->wall_s);
	add_limit(t, "depth", b->depth);
	text_printf(t, "\"at_limit\":\"%s\"}", ways[b->at_limit]);
}

/* The answer, while an array is added to it. */
struct shown {
	struct text *t;
	size_t n;
};

/* Returns false, adding nothing, when the answer is full; else begins the next object. */
static bool begin_one(struct shown *shown)
{
	if (shown->n == SHOWN_MAX || shown->t->len > ANSWER_MAX)
		return false;
	text_puts(shown->t, shown->n++ ? ",{" : "{");
	return true;
}

static bool add_node(void *arg, const struct sandbox_view *v, uint64_t cpu_ms)
{
	struct text *t = ((struct shown *)arg)->t;
	int64_t wall_ms = realtime_ms() - v->created_at_ms;

	if (!begin_one(arg))
		return false;
	text_printf(t, "\"id\":\"%s\",\"state\":\"%s\"", v->id, v->state);
	json_member(t, "parent", v->parent);
	text_node(t, v->root, v->depth, v->score, v->labels);
	json_member_time(t, "created_at", v->created_at_ms);
	json_member_number(t, "ram_mib", v->config.size.ram_mib);
	json_member_number(t, "memory_private_bytes", v->memory.private_bytes);
	json_member_number(t, "memory_shared_bytes", v->memory.shared_bytes);
	add_seconds(t, "cpu_seconds", cpu_ms);
	add_seconds(t, "wall_seconds", wall_ms > 0 ? (uint64_t)wall_ms : 0);
	text_putc(t, '}');
	return true;
}

static bool add_space(void *arg, const struct space_view *v)
{
	struct text *t = ((struct shown *)arg)->t;

	if (!begin_one(arg))
		return false;
	text_printf(t, "\"id\":\"%s\",\"state\":\"%s\",\"sandbox\":\"%s\"", v->id, v->state,
		    v->sandbox);
	text_node(t, v->root, v->depth, v->score, v->labels);
	text_printf(t, ",\"size_bytes\":%llu}", (unsigned long long)v->size_bytes);
	return true;
}

static void add_nodes(struct request *r, const char *root)
{
	struct shown nodes = {.t = &r->out}, spaces = {.t = &r->out};
	bool all;

	text_puts(&r->out, ",\"nodes\":[");
	all = service_tree_nodes(r->service, r->tenant, root, add_node, &nodes);
	text_puts(&r->out, all ? "]" : "],\"nodes_more\":true");
	text_puts(&r->out, ",\"spaces\":[");
	all = service_tree_spaces(r->service, r->tenant, root, add_space, &spaces);
	text_puts(&r->out, all ? "]}\n" : "],\"spaces_more\":true}\n");
}

void serve_tree(struct request *r)
{
	struct text *t = &r->out;
	struct tree_view v;
	struct failure f;

	if (!service_tree(r->service, r->tenant, r->id, &v, &f)) {
		answer_failure(r, &f);
		return;
	}
	text_printf(t, "{\"root\":\"%s\"", v.root);
	add_budget(t, &v);
	json_member_time(t, "created_at", v.created_at_ms);
	json_member_number(t, "live", v.live);
	json_member_number(t, "waiting", v.waiting);
	json_member_number(t, "ram_mib", v.ram_mib);
	add_seconds(t, "cpu_seconds", v.cpu_ms);
	add_seconds(t, "wall_seconds", v.wall_ms);
	add_nodes(r, v.root);
	answer(r, 200, "application/json");
}

void serve_tree_change(struct request *r, const struct budget_body *b)
{
	const struct tree_change change = {.budget = budget_of(b), .at_limit = b->at_limit.p};
	struct failure f;

	if (service_tree_change(r->service, r->tenant, r->id, &change, &f))
		serve_tree(r);
	else
		answer_failure(r, &f);
}

void serve_tree_delete(struct request *r)
{
	request_ref(r);
	r->op = service_tree_delete(r->service, r->tenant, r->id, request_done, r);
}
