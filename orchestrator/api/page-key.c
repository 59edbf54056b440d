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

void page_key_write(uint8_t key[static PAGE_KEY_LEN], const struct list_position *at)
{
	for (int i = 0; i < 8; i++)
		key[i] = (uint8_t)((uint64_t)at->at_ms >> (56 - 8 * i));
	/* Before the first entry, there is no id. */
	if (!at->id[0] || !hex_bytes(key + 8, FLEET_ID_BYTES, at->id + PREFIX_LEN))
		memset(key + 8, 0, FLEET_ID_BYTES);
}

void page_key_read(struct list_position *at, enum list_kind kind,
		   const uint8_t key[static PAGE_KEY_LEN])
{
	uint64_t at_ms = 0;

	for (int i = 0; i < 8; i++)
		at_ms = at_ms << 8 | key[i];
	at->at_ms = (int64_t)at_ms;
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
