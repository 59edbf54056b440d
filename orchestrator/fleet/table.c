// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/fleet/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/fleet/id.h"
#include "orchestrator/json/json.h"

/* --- one host ------------------------------------------------------------------------------- */

struct entry {
	struct fleet_host host;
	struct json_text state, cert;
};
#define ENTRY(json_name, member, kind, ...)                                                        \
	JSON_FIELD(struct entry, member, json_name, kind, ##__VA_ARGS__)
#define TEXT(name, ...) ENTRY(#name, host.name, JSON_CHARS, .max = FLEET_NAME_MAX, ##__VA_ARGS__)

static const char *const states[] = {"ready", "draining", NULL};
static const struct json_field entry_fields[] = {
	ENTRY("host", host.number, JSON_WHOLE, .max = FLEET_NUMBER_MAX, .required = true),
	TEXT(name, .min = 1, .required = true),
	ENTRY("address", host.address, JSON_CHARS, .max = ADDRESS_PORT_MAX, .required = true),
	TEXT(region),
	TEXT(zone),
	TEXT(version),
	ENTRY("state", state, JSON_TEXT, .max = FLEET_NAME_MAX, .words = states),
	ENTRY("deadline", host.deadline, JSON_BIG, .max = (double)(1ull << 53)),
	ENTRY("seen", host.seen, JSON_BIG, .max = (double)(1ull << 53)),
	ENTRY("gone", host.gone, JSON_BIG, .max = (double)(1ull << 53)),
	ENTRY("cert_sha256", cert, JSON_TEXT, .max = 2 * FLEET_CERT_BYTES),
};

/* Names are shown to users and compared with certificates. */
static int check_name(const char *field, const char *name, struct err *e)
{
	const char *p = name;

	while (*p && ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
		      (*p >= '0' && *p <= '9') || strchr("._+~-", *p)))
		p++;
	return *p ? err_say(e, EINVAL, "%s \"%.60s\": letters, digits and . _ + ~ - are allowed",
			    field, name)
		  : 0;
}

static int take_cert(struct fleet_host *h, const struct json_text *text, struct err *e)
{
	h->has_cert = text->len > 0;
	if (!h->has_cert ||
	    (text->len == 2 * FLEET_CERT_BYTES && hex_bytes(h->cert, FLEET_CERT_BYTES, text->p)))
		return 0;
	return err_say(e, EINVAL, "cert_sha256 must have %d hexadecimal digits",
		       2 * FLEET_CERT_BYTES);
}

static int take_entry(struct entry *in, struct err *e)
{
	struct fleet_host *h = &in->host;

	if (check_name("name", h->name, e) < 0 || check_name("region", h->region, e) < 0 ||
	    check_name("zone", h->zone, e) < 0 || check_name("version", h->version, e) < 0 ||
	    take_cert(h, &in->cert, e) < 0)
		return e->code;
	h->at_len = address_port_parse(&h->at, h->address);
	if (!h->at_len)
		return err_say(e, EINVAL,
			       "address \"%.60s\": it must be like 10.0.0.17:7443 or "
			       "[fd00::17]:7443",
			       h->address);
	h->draining = in->state.p && strcmp(in->state.p, "draining") == 0;
	return 0;
}

int fleet_host_read(struct fleet_host *h, const char *text, size_t len, struct err *e)
{
	struct entry in = {0};
	int ret = json_read(text, len, entry_fields, ARRAY_LEN(entry_fields), &in, e);

	if (ret < 0) /* its number may be what is wrong */
		return in.host.number ? err_context(e, "host %u", in.host.number) : ret;
	ret = take_entry(&in, e);
	*h = in.host;
	json_free(entry_fields, ARRAY_LEN(entry_fields), &in);
	return ret < 0 ? err_context(e, "host %u", h->number) : 0;
}

/* --- all of them ---------------------------------------------------------------------------- */

struct file {
	uint32_t format, cell, self;
	char fleet[FLEET_NAME_MAX + 1];
	char **hosts;
};
#define FILED(member, kind, ...)                                                                   \
	JSON_FIELD(struct file, member, #member, kind, .required = true, ##__VA_ARGS__)

static const struct json_field file_fields[] = {
	FILED(format, JSON_WHOLE, .min = 1, .max = UINT32_MAX),
	FILED(fleet, JSON_CHARS, .max = FLEET_NAME_MAX),
	FILED(cell, JSON_WHOLE, .max = FLEET_CELL_MAX),
	FILED(self, JSON_WHOLE, .max = FLEET_NUMBER_MAX),
	FILED(hosts, JSON_OBJECTS, .max = FLEET_HOSTS_MAX),
};

static int by_number(const void *a, const void *b)
{
	const struct fleet_host *x = a, *y = b;

	return (x->number > y->number) - (x->number < y->number);
}

static int by_name(const void *a, const void *b)
{
	const struct fleet_host *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* Sorts the hosts, and checks that no two have a number or a name in common. */
static int sort(struct fleet_table *t, struct err *e)
{
	scoped_free const struct fleet_host **named = calloc(t->n + 1, sizeof(*named));

	if (!named)
		return err_set(e, ENOMEM, "%zu hosts", t->n);
	qsort(t->hosts, t->n, sizeof(*t->hosts), by_number);
	for (size_t i = 0; i < t->n; i++)
		named[i] = &t->hosts[i];
	qsort(named, t->n, sizeof(*named), by_name);
	for (size_t i = 1; i < t->n; i++) {
		if (t->hosts[i].number == t->hosts[i - 1].number)
			return err_say(e, EINVAL, "two hosts have the number %u: %s and %s",
				       t->hosts[i].number, t->hosts[i - 1].name, t->hosts[i].name);
		if (by_name(&named[i - 1], &named[i]) == 0)
			return err_say(e, EINVAL, "hosts %u and %u have the same name: %s",
				       named[i - 1]->number, named[i]->number, named[i]->name);
	}
	return 0;
}

static int take_file(struct fleet_table *t, const struct file *in, struct err *e)
{
	int ret = check_name("fleet", in->fleet, e);

	memcpy(t->fleet, in->fleet, sizeof(t->fleet));
	t->cell = in->cell;
	for (size_t i = 0; ret == 0 && in->hosts[i]; i++)
		ret = fleet_host_read(&t->hosts[t->n++], in->hosts[i], strlen(in->hosts[i]), e);
	if (ret == 0)
		ret = sort(t, e);
	if (ret < 0)
		return ret;
	t->self = fleet_table_host(t, in->self);
	return t->self ? 0
		       : err_say(e, EINVAL, "self is host %u, which is not in the table", in->self);
}

static int make(struct fleet_table **out, const struct file *in, struct err *e)
{
	size_t n = 0;

	if (in->format > FLEET_FORMAT)
		return err_say(e, EINVAL, "it has the format %u, and this version reads up to %d",
			       in->format, FLEET_FORMAT);
	while (in->hosts[n])
		n++;
	struct fleet_table *t = calloc(1, sizeof(*t) + n * sizeof(t->hosts[0]));
	if (!t)
		return err_set(e, ENOMEM, "%zu hosts", n);
	int ret = take_file(t, in, e);
	if (ret < 0)
		free(t);
	else
		*out = t;
	return ret;
}

int fleet_table_read(struct fleet_table **out, const char *text, size_t len, struct err *e)
{
	struct file in = {0};
	int ret = json_read(text, len, file_fields, ARRAY_LEN(file_fields), &in, e);

	if (ret < 0)
		return ret;
	ret = make(out, &in, e);
	json_free(file_fields, ARRAY_LEN(file_fields), &in);
	return ret;
}

const struct fleet_host *fleet_table_host(const struct fleet_table *t, uint32_t number)
{
	const struct fleet_host wanted = {.number = number};

	return bsearch(&wanted, t->hosts, t->n, sizeof(*t->hosts), by_number);
}

const struct fleet_host *fleet_table_named(const struct fleet_table *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->hosts[i].name, name) == 0)
			return &t->hosts[i];
	return NULL;
}

bool fleet_is_elsewhere(const struct fleet_table *t, const struct fleet_keys *keys, const char *id,
			size_t len, const struct fleet_host **host)
{
	struct fleet_place at;

	if (!fleet_id_find_text(keys, id, len, &at) || at.cell != t->cell ||
	    at.host == t->self->number)
		return false;
	*host = fleet_table_host(t, at.host);
	return true;
}

bool fleet_is_lost(const struct fleet_host *h, int64_t now)
{
	return h->gone && now - h->gone >= FLEET_DEAD_AFTER_S;
}
