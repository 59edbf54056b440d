// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/card.h"

#include <errno.h>

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/fleet/id.h"
#include "orchestrator/json/json.h"

/* The fields that a card has in every format. */
struct head {
	uint32_t format;
	struct card card;
};
#define FIELD(json_name, member, kind, ...)                                                        \
	JSON_FIELD(struct head, member, json_name, kind, .required = true, ##__VA_ARGS__)

static const struct json_field head_fields[] = {
	FIELD("format", format, JSON_WHOLE, .min = 1, .max = UINT32_MAX),
	FIELD("host", card.host.number, JSON_WHOLE, .max = FLEET_NUMBER_MAX),
	FIELD("fleet", card.fleet, JSON_CHARS, .min = 1, .max = FLEET_NAME_MAX),
	FIELD("name", card.host.name, JSON_CHARS, .min = 1, .max = FLEET_NAME_MAX),
	FIELD("instance", card.instance, JSON_CHARS, .min = INSTANCE_TEXT, .max = INSTANCE_TEXT),
};

int card_read(struct card *out, const char *text, size_t len, struct err *e)
{
	struct head in = {0};
	int ret = json_read(text, len, head_fields, ARRAY_LEN(head_fields), &in, e);

	*out = ret < 0 ? (struct card){0} : in.card;
	if (ret < 0)
		return ret;
	if (in.format > CARD_FORMAT)
		return err_say(e, EPROTONOSUPPORT,
			       "it has the format %u, and this version reads up to %d", in.format,
			       CARD_FORMAT);
	return fleet_host_read(&out->host, text, len, e);
}

static void add_seconds(struct text *out, const char *name, int64_t at)
{
	text_printf(out, ",\"%s\":", name);
	if (at > 0)
		text_number(out, at);
	else
		text_puts(out, "null");
}

static void add_members(struct text *out, const struct fleet_host *h)
{
	char cert[2 * FLEET_CERT_BYTES + 1];

	text_printf(out, "\"host\":%u", h->number);
	json_member(out, "name", h->name);
	json_member(out, "address", h->address);
	json_member(out, "region", h->region);
	json_member(out, "zone", h->zone);
	json_member(out, "state", h->draining ? "draining" : "ready");
	json_member(out, "version", h->version);
	add_seconds(out, "seen", h->seen);
	if (!h->has_cert)
		return;
	hex_write(cert, h->cert, FLEET_CERT_BYTES);
	json_member(out, "cert_sha256", cert);
}

void host_write(struct text *out, const struct fleet_host *h)
{
	text_putc(out, '{');
	add_members(out, h);
	add_seconds(out, "deadline", h->deadline);
	add_seconds(out, "gone", h->gone);
	text_putc(out, '}');
}

void card_write(struct text *out, const struct card *card)
{
	text_printf(out, "{\"format\":%d", CARD_FORMAT);
	json_member(out, "fleet", card->fleet);
	json_member(out, "instance", card->instance);
	text_putc(out, ',');
	add_members(out, &card->host);
	text_putc(out, '}');
}
