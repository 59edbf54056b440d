// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/api/page-key.h"

#include <string.h>

#include "base/num.h"
#include "base/random.h"

#define PREFIX_LEN 4

static const struct {
	const char *prefix; /* prefix of the ids in the list */
	char letter, fleet_letter;
} lists[] = {
	[LIST_SANDBOXES] = {"sbx_", 's', 'S'},
	[LIST_CHILDREN] = {"sbx_", 'c', 'C'},
	[LIST_SPACES] = {"spc_", 'p', 'P'},
	[LIST_CHECKPOINTS] = {"chk_", 'k', 'K'},
};

char page_letter(enum list_kind kind, bool fleet)
{
	return fleet ? lists[kind].fleet_letter : lists[kind].letter;
}

static void number_write(uint8_t out[static 8], uint64_t n)
{
	for (int i = 0; i < 8; i++)
		out[i] = (uint8_t)(n >> (56 - 8 * i));
}

static uint64_t number_read(const uint8_t in[static 8])
{
	uint64_t n = 0;

	for (int i = 0; i < 8; i++)
		n = n << 8 | in[i];
	return n;
}

void page_key_write(uint8_t key[static PAGE_KEY_LEN], const struct list_position *at)
{
	number_write(key, (uint64_t)at->at_ms);
	/* Before the first entry, there is no id. */
	if (!at->id[0] || !hex_bytes(key + 8, FLEET_ID_BYTES, at->id + PREFIX_LEN))
		memset(key + 8, 0, FLEET_ID_BYTES);
}

void page_key_read(struct list_position *at, enum list_kind kind,
		   const uint8_t key[static PAGE_KEY_LEN])
{
	at->at_ms = (int64_t)number_read(key);
	memcpy(at->id, lists[kind].prefix, PREFIX_LEN);
	hex_write(at->id + PREFIX_LEN, key + 8, FLEET_ID_BYTES);
}

void fleet_page_key_write(uint8_t key[static FLEET_PAGE_KEY_LEN], const struct fleet_keys *keys,
			  struct fleet_place host, const struct list_position *at)
{
	random_bytes(key, FLEET_ID_BYTES);
	fleet_id_hide(keys, host, key);
	page_key_write(key + FLEET_ID_BYTES, at);
}

bool fleet_page_key_read(struct fleet_place *host, struct list_position *at, enum list_kind kind,
			 const struct fleet_keys *keys,
			 const uint8_t key[static FLEET_PAGE_KEY_LEN])
{
	page_key_read(at, kind, key + FLEET_ID_BYTES);
	return fleet_id_find(keys, key, host);
}

void event_key_write(uint8_t key[static EVENT_KEY_LEN], const struct event_position *at)
{
	number_write(key, (uint64_t)at->at_ms);
	number_write(key + 8, at->n);
}

bool event_key_read(struct event_position *at, const uint8_t key[static EVENT_KEY_LEN])
{
	at->at_ms = (int64_t)number_read(key);
	at->n = number_read(key + 8);
	return at->at_ms >= 0 && at->at_ms < INT64_MAX && at->n <= INT64_MAX;
}

void fleet_event_key_write(uint8_t key[static FLEET_EVENT_KEY_LEN], const struct fleet_keys *keys,
			   struct fleet_place host, const struct event_position *at)
{
	random_bytes(key, FLEET_ID_BYTES);
	fleet_id_hide(keys, host, key);
	event_key_write(key + FLEET_ID_BYTES, at);
}

bool fleet_event_key_read(struct fleet_place *host, struct event_position *at,
			  const struct fleet_keys *keys,
			  const uint8_t key[static FLEET_EVENT_KEY_LEN])
{
	return event_key_read(at, key + FLEET_ID_BYTES) && at->at_ms > 0 &&
	       at->at_ms <= EVENT_MS_MAX && at->n && fleet_id_find(keys, key, host);
}
