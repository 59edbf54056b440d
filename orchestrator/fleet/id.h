// SPDX-License-Identifier: Apache-2.0
/*
 * Ids that say which host of which cell made them. Of the 16 bytes of an id, 11 are random. The
 * other 5 are the cell (12 bits), the host (20 bits) and 8 check bits, XORed with an HMAC of the
 * random bytes. Without the fleet's key these 5 look random too, so that an id tells its owner
 * nothing about hosts and about the neighbours of a sandbox.
 */
#ifndef RAMET_ORCHESTRATOR_FLEET_ID_H
#define RAMET_ORCHESTRATOR_FLEET_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define FLEET_ID_BYTES	 16
#define FLEET_ID_TEXT	 (4 + 2 * FLEET_ID_BYTES) /* a prefix like sbx_, and hex digits */
#define FLEET_KEY_BYTES	 32
#define FLEET_KEYS_MAX	 2
#define FLEET_CELL_MAX	 0xfffu
#define FLEET_NUMBER_MAX 0xfffffu /* of a host */

/* The first key makes ids. All keys are tried when an id is read, so that a key can be replaced:
 * the new one is added as the second key on all hosts, then becomes the first. */
struct fleet_keys {
	size_t n;
	uint8_t key[FLEET_KEYS_MAX][FLEET_KEY_BYTES];
};

struct fleet_place {
	uint32_t cell, host;
};

/* Reads one or two lines of 64 hexadecimal digits. Returns 0, or -EINVAL with *e filled. */
int fleet_keys_read(struct fleet_keys *out, const char *text, size_t len, struct err *e);

/* Makes the bytes of an id out of the 11 random ones at their start. */
void fleet_id_hide(const struct fleet_keys *keys, struct fleet_place at,
		   uint8_t id[FLEET_ID_BYTES]);
/* Finds the place in the bytes of an id. Returns false for nearly every id that no host with these
 * keys has made: one in 256 of them passes for each key. */
bool fleet_id_find(const struct fleet_keys *keys, const uint8_t id[FLEET_ID_BYTES],
		   struct fleet_place *out);
/* Does the same for an id as text of `len` bytes. Returns false also if the text is not an id. */
bool fleet_id_find_text(const struct fleet_keys *keys, const char *text, size_t len,
			struct fleet_place *out);

#endif
