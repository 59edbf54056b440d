// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/fleet/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"

#define HEX_LEN 16

void exchange_print(char out[static EXCHANGE_LINE_MAX], const struct exchange *x)
{
	int len = snprintf(out, EXCHANGE_LINE_MAX, "%016" PRIx64 " %016" PRIx64 " %u %s",
			   x->keepers, x->at, x->from, x->tenant);

	for (int i = 0; i < EXCHANGE_LIMITS; i++)
		len += snprintf(out + len, EXCHANGE_LINE_MAX - (size_t)len, " %u %u %u %u",
				x->limits[i].held, x->limits[i].used, x->limits[i].want,
				x->limits[i].lacks);
	strcpy(out + len, "\n");
}

void exchange_print_granted(char out[static EXCHANGE_LINE_MAX], const struct exchange_granted *g)
{
	int len = snprintf(out, EXCHANGE_LINE_MAX, "%d", g->sure);

	for (int i = 0; i < EXCHANGE_LIMITS; i++)
		len += snprintf(out + len, EXCHANGE_LINE_MAX - (size_t)len, " %u %u",
				g->limits[i].held, g->limits[i].left);
	strcpy(out + len, "\n");
}

/* --- reading -------------------------------------------------------------------------------- */

static bool take_hex(const char **p, uint64_t *out)
{
	*out = 0;
	for (int i = 0; i < HEX_LEN; i++, (*p)++) {
		const char *digits = "0123456789abcdef", *at = **p ? strchr(digits, **p) : NULL;

		if (!at)
			return false;
		*out = *out << 4 | (uint64_t)(at - digits);
	}
	return true;
}

/* Does not move past the end of the text. */
static bool take_space(const char **p)
{
	return **p == ' ' && (*p)++;
}

static bool take_slots(const char **p, uint32_t *out)
{
	return take_space(p) && number_take(p, 0, EXCHANGE_SLOTS_MAX, out);
}

static bool take_tenant(const char **p, char out[static EXCHANGE_TENANT_MAX + 1])
{
	const size_t len = strcspn(*p, " \n");

	if (!len || len > EXCHANGE_TENANT_MAX)
		return false;
	memcpy(out, *p, len);
	out[len] = '\0';
	*p += len;
	return true;
}

static bool take_end(const char **p)
{
	*p += **p == ' ' ? strcspn(*p, "\n") : 0;
	return **p == '\n' && (*p)++;
}

bool exchange_read(struct exchange *x, const char **text)
{
	const char *p = *text;

	if (!take_hex(&p, &x->keepers) || !take_space(&p) || !take_hex(&p, &x->at) ||
	    !take_space(&p) || !number_take(&p, 0, UINT32_MAX, &x->from) || !take_space(&p) ||
	    !take_tenant(&p, x->tenant))
		return false;
	for (int i = 0; i < EXCHANGE_LIMITS; i++)
		if (!take_slots(&p, &x->limits[i].held) || !take_slots(&p, &x->limits[i].used) ||
		    !take_slots(&p, &x->limits[i].want) || !take_slots(&p, &x->limits[i].lacks))
			return false;
	if (!take_end(&p))
		return false;
	*text = p;
	return true;
}

bool exchange_read_granted(struct exchange_granted *g, const char **text)
{
	const char *p = *text;
	uint32_t sure;

	if (!number_take(&p, 0, 1, &sure))
		return false;
	g->sure = sure;
	for (int i = 0; i < EXCHANGE_LIMITS; i++)
		if (!take_slots(&p, &g->limits[i].held) || !take_slots(&p, &g->limits[i].left))
			return false;
	if (!take_end(&p))
		return false;
	*text = p;
	return true;
}
