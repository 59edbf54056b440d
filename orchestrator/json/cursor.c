// SPDX-License-Identifier: Apache-2.0
/* A cursor consists of the list's letter, the key in hexadecimal, and eight checksum digits that
 * detect typing errors. */
#include "orchestrator/json/cursor.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/num.h"

#define SUM_LEN 8

static void put_sum(char *to, const char *text, size_t len)
{
	uint32_t sum = crc32c(0, text, len);
	const uint8_t bytes[] = {(uint8_t)(sum >> 24), (uint8_t)(sum >> 16), (uint8_t)(sum >> 8),
				 (uint8_t)sum};

	hex_write(to, bytes, sizeof(bytes));
}

void cursor_write(char out[static CURSOR_TEXT_MAX + 1], char kind, const void *key, size_t len)
{
	len = min_u64(len, CURSOR_KEY_MAX);
	out[0] = kind;
	hex_write(out + 1, key, len);
	put_sum(out + 1 + 2 * len, out, 1 + 2 * len);
}

int cursor_read(const char *text, char kind, void *key, size_t room, struct err *e)
{
	size_t len = strlen(text), digits = len < 1 + SUM_LEN ? 0 : len - 1 - SUM_LEN;
	char sum[SUM_LEN + 1];

	if (!digits || digits % 2 || digits / 2 > room)
		return err_say(
			e, EINVAL,
			"cursor must be a value of the header ramet-next-cursor, not \"%.40s\"",
			text);
	put_sum(sum, text, 1 + digits);
	if (memcmp(sum, text + 1 + digits, SUM_LEN) != 0)
		return err_say(e, EINVAL,
			       "cursor must be a value of the header ramet-next-cursor: \"%.40s\" "
			       "is mistyped or "
			       "cut off",
			       text);
	if (text[0] != kind)
		return err_say(
			e, EINVAL,
			"cursor belongs to another list: use the one of this list's previous page");
	if (!hex_bytes(key, digits / 2, text + 1))
		return err_say(e, EINVAL, "cursor must be a value of the header ramet-next-cursor");
	return (int)(digits / 2);
}
