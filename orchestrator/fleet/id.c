// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/fleet/id.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

#define RANDOM_BYTES 11
#define PLACE_BYTES  4

/* --- keys ----------------------------------------------------------------------------------- */

static bool is_end(char c)
{
	return c == '\n' || c == '\r' || c == ' ';
}

int fleet_keys_read(struct fleet_keys *out, const char *text, size_t len, struct err *e)
{
	const char *p = text, *end = text + len;

	*out = (struct fleet_keys){0};
	while (p < end && is_end(*p))
		p++;
	while (p < end) {
		size_t line = 0;

		while (p + line < end && !is_end(p[line]))
			line++;
		if (out->n == FLEET_KEYS_MAX)
			return err_say(e, EINVAL, "it has more than %d keys", FLEET_KEYS_MAX);
		if (line != 2 * FLEET_KEY_BYTES || !hex_bytes(out->key[out->n], FLEET_KEY_BYTES, p))
			return err_say(e, EINVAL,
				       "line %zu is not a key: a key has %d hexadecimal digits",
				       out->n + 1, 2 * FLEET_KEY_BYTES);
		out->n++;
		p += line;
		while (p < end && is_end(*p))
			p++;
	}
	return out->n ? 0 : err_say(e, EINVAL, "it has no key");
}

/* --- ids ------------------------------------------------------------------------------------ */

static void mac(const uint8_t *key, const uint8_t *p, size_t len, uint8_t out[EVP_MAX_MD_SIZE])
{
	if (!HMAC(EVP_sha256(), key, FLEET_KEY_BYTES, p, len, out, NULL))
		abort(); /* out of memory */
}

/* Returns the check bits. They cover the place, too, so that nobody can turn one host's id into
 * another's. */
static uint8_t check_of(const uint8_t *key, const uint8_t *id, const uint8_t *place)
{
	uint8_t text[RANDOM_BYTES + PLACE_BYTES], hash[EVP_MAX_MD_SIZE];

	memcpy(text, id, RANDOM_BYTES);
	memcpy(text + RANDOM_BYTES, place, PLACE_BYTES);
	mac(key, text, sizeof(text), hash);
	return hash[0];
}

void fleet_id_hide(const struct fleet_keys *keys, struct fleet_place at, uint8_t id[FLEET_ID_BYTES])
{
	const uint32_t bits = at.cell << 20 | at.host;
	const uint8_t place[] = {(uint8_t)(bits >> 24), (uint8_t)(bits >> 16), (uint8_t)(bits >> 8),
				 (uint8_t)bits};
	uint8_t hash[EVP_MAX_MD_SIZE], *hidden = id + RANDOM_BYTES;

	mac(keys->key[0], id, RANDOM_BYTES, hash);
	for (int i = 0; i < PLACE_BYTES; i++)
		hidden[i] = place[i] ^ hash[i];
	hidden[PLACE_BYTES] = check_of(keys->key[0], id, place) ^ hash[PLACE_BYTES];
}

static bool find_with(const uint8_t *key, const uint8_t *id, struct fleet_place *out)
{
	uint8_t hash[EVP_MAX_MD_SIZE], place[PLACE_BYTES];
	const uint8_t *hidden = id + RANDOM_BYTES;

	mac(key, id, RANDOM_BYTES, hash);
	for (int i = 0; i < PLACE_BYTES; i++)
		place[i] = hidden[i] ^ hash[i];
	if (check_of(key, id, place) != (hidden[PLACE_BYTES] ^ hash[PLACE_BYTES]))
		return false;
	out->cell = (uint32_t)place[0] << 4 | place[1] >> 4;
	out->host = (uint32_t)(place[1] & 0xf) << 16 | (uint32_t)place[2] << 8 | place[3];
	return true;
}

bool fleet_id_find(const struct fleet_keys *keys, const uint8_t id[FLEET_ID_BYTES],
		   struct fleet_place *out)
{
	for (size_t i = 0; i < keys->n; i++)
		if (find_with(keys->key[i], id, out))
			return true;
	return false;
}

bool fleet_id_find_text(const struct fleet_keys *keys, const char *text, size_t len,
			struct fleet_place *out)
{
	uint8_t id[FLEET_ID_BYTES];

	return len == FLEET_ID_TEXT && hex_bytes(id, sizeof(id), text + 4) &&
	       fleet_id_find(keys, id, out);
}
