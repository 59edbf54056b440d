// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/etcd/order.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/json/json.h"

static const char *const names[] = {
	[ORDER_SERVE] = "serve",
	[ORDER_DRAIN] = "drain",
	[ORDER_FORGET] = "forget",
};

struct value {
	uint32_t format;
	char name[16];
	struct order order;
};
#define FIELD(json_name, member, kind, ...)                                                        \
	JSON_FIELD(struct value, member, json_name, kind, ##__VA_ARGS__)

static const struct json_field fields[] = {
	FIELD("format", format, JSON_WHOLE, .min = 1, .max = UINT32_MAX, .required = true),
	FIELD("order", name, JSON_CHARS, .max = 15, .required = true),
	FIELD("at", order.at, JSON_BIG, .max = (double)(1ull << 53), .required = true),
	FIELD("deadline", order.deadline, JSON_BIG, .max = (double)(1ull << 53)),
};

int order_read(struct order *out, const char *text, size_t len, struct err *e)
{
	struct value in = {0};
	size_t kind = 0;
	int ret = json_read(text, len, fields, ARRAY_LEN(fields), &in, e);

	if (ret < 0)
		return ret;
	if (in.format > ORDER_FORMAT)
		return err_say(e, EPROTONOSUPPORT,
			       "it has the format %u, and this version reads up to %d", in.format,
			       ORDER_FORMAT);
	while (kind < ARRAY_LEN(names) && strcmp(in.name, names[kind]) != 0)
		kind++;
	if (kind == ARRAY_LEN(names))
		return err_say(e, EINVAL,
			       "\"%s\" is not an order: known are serve, drain and forget",
			       in.name);
	*out = in.order;
	out->kind = (enum order_kind)kind;
	return 0;
}

void order_write(struct text *out, const struct order *order)
{
	text_printf(out, "{\"format\":%d,\"order\":\"%s\",\"at\":%lld,\"deadline\":%lld}",
		    ORDER_FORMAT, names[order->kind], (long long)order->at,
		    (long long)order->deadline);
}

bool order_time_parse(const char *text, int64_t *seconds)
{
	static const struct {
		const char *unit;
		uint32_t seconds;
	} units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
	uint32_t n;

	if (!number_take(&text, 0, 1000000, &n))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (strcmp(text, units[i].unit) == 0) {
			*seconds = (int64_t)n * units[i].seconds;
			return true;
		}
	return false;
}
