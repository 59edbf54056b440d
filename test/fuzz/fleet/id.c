// SPDX-License-Identifier: Apache-2.0
/* A file of keys, up to a NUL, and then the text of an id. An id that the keys make must be found
 * again. */
#include <stdlib.h>
#include <string.h>

#include "orchestrator/fleet/id.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = memchr(data, 0, size);
	size_t len = nul ? (size_t)(nul - data) : size, rest = size - len - (nul ? 1 : 0);
	char *text = malloc(size + 1);
	struct fleet_place at = {0};
	struct fleet_keys keys;
	struct err e = {0};

	memcpy(text, data, size);
	if (fleet_keys_read(&keys, text, len, &e) < 0) {
		must(e.text[0]);
	} else if (nul) {
		uint8_t id[FLEET_ID_BYTES] = {0};

		must(keys.n >= 1 && keys.n <= FLEET_KEYS_MAX);
		memmove(text, text + len + 1, rest);
		if (fleet_id_find_text(&keys, text, rest, &at))
			must(at.cell <= FLEET_CELL_MAX && at.host <= FLEET_NUMBER_MAX);
		memcpy(id, text, rest < sizeof(id) ? rest : sizeof(id));
		fleet_id_hide(&keys, (struct fleet_place){1, 2}, id);
		must(fleet_id_find(&keys, id, &at) && at.cell == 1 && at.host == 2);
	}
	free(text);
	return 0;
}
