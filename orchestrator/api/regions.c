// SPDX-License-Identifier: Apache-2.0
/* The regions that this host knows: its own, those of the setting `regions`, and those of other
 * hosts in its fleet's table. */
#include <string.h>

#include "orchestrator/api/internal.h"
#include "orchestrator/fleet/member.h"

struct regions {
	struct text *out;
	const struct config *config;
	struct config_region others[CONFIG_REGIONS_MAX];
	int n_others;
};

static void add(const struct regions *l, const char *name, const char *endpoint)
{
	text_puts(l->out, l->out->len ? ",{\"name\":" : "[{\"name\":");
	json_string(l->out, name, strlen(name));
	json_member(l->out, "endpoint", endpoint[0] ? endpoint : NULL);
	text_printf(l->out, ",\"here\":%s}",
		    strcmp(name, l->config->region) == 0 ? "true" : "false");
}

static const char *endpoint_of(const struct regions *l, const char *name)
{
	for (int i = 0; i < l->n_others; i++)
		if (strcmp(l->others[i].name, name) == 0)
			return l->others[i].endpoint;
	return NULL;
}

/* Adds the regions of hosts, each once, that the settings do not name. */
static void add_of_hosts(const struct regions *l, const struct fleet_table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		const char *region = t->hosts[i].region;
		bool known = !region[0] || strcmp(region, l->config->region) == 0 ||
			     endpoint_of(l, region);

		for (size_t j = 0; j < i && !known; j++)
			known = strcmp(t->hosts[j].region, region) == 0;
		if (!known)
			add(l, region, "");
	}
}

static struct regions read_list(struct request *r)
{
	struct regions l = {.out = &r->out, .config = r->config};
	struct err e;

	l.n_others = config_regions(r->config, l.others, &e); /* checked at the start */
	return l;
}

void serve_regions(struct request *r)
{
	const struct regions l = read_list(r);
	const struct member *member = service_member(r->service);

	if (l.config->region[0])
		add(&l, l.config->region, l.config->endpoint);
	for (int i = 0; i < l.n_others; i++)
		if (strcmp(l.others[i].name, l.config->region) != 0)
			add(&l, l.others[i].name, l.others[i].endpoint);
	if (member)
		add_of_hosts(&l, member_table(member));
	text_puts(&r->out, r->out.len ? "]\n" : "[]\n");
	answer(r, 200, "application/json");
}

/* Returns the region for which the path asks; NULL: one that this host does not know. */
static const struct config_region *region_of(const struct regions *l, h2o_iovec_t path)
{
	for (int i = 0; i < l->n_others; i++) {
		const size_t len = strlen(l->others[i].name);

		if (path.len > len + 3 && memcmp(path.base, "/r/", 3) == 0 &&
		    memcmp(path.base + 3, l->others[i].name, len) == 0 && path.base[3 + len] == '/')
			return &l->others[i];
	}
	return NULL;
}

void refuse_region(struct request *r)
{
	const struct regions l = read_list(r);
	h2o_iovec_t path = r->req->input.path;
	const struct config_region *region = region_of(&l, path);

	answer_error(r, 404, "unknown_region",
		     "%.*s is for another region than this host's: use %s",
		     path.len < 100 ? (int)path.len : 100, path.base,
		     region ? region->endpoint : "the endpoint of that region");
}
