// SPDX-License-Identifier: Apache-2.0
/* A cursor is the list's letter, the key in hexadecimal, and eight checksum digits that detect
 * typing errors. */
#include "orchestrator/json/cursor.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/num.h"

#define SUM_LEN 8

static char *put_hex(char *to, const uint8_t *p, size_t len)
{
	static const char digit[] = "0123456789abcdef";

	for (; len; len--, p++) {
		*to++ = digit[*p >> 4];
		*to++ = digit[*p & 15];
	}
	return to;
}

static void put_sum(char *to, const char *text, size_t len)
{
	uint32_t sum = crc32c(0, text, len);
	const uint8_t bytes[] = {(uint8_t)(sum >> 24), (uint8_t)(sum >> 16), (uint8_t)(sum >> 8),
				 (uint8_t)sum};

	*put_hex(to, bytes, sizeof(bytes)) = 0;
}

void cursor_write(char out[static CURSOR_TEXT_MAX + 1], char kind, const void *key, size_t len)
{
	out[0] = kind;
	char *end = put_hex(out + 1, key, len < CURSOR_KEY_MAX ? len : CURSOR_KEY_MAX);
	put_sum(end, out, (size_t)(end - out));
}

int cursor_read(const char *text, char kind, void *key, size_t room, struct err *e)
{
	size_t len = strlen(text), digits = len < 1 + SUM_LEN ? 0 : len - 1 - SUM_LEN;
	char sum[SUM_LEN + 1];
	uint8_t *to = key;

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
	for (size_t i = 0; i < digits; i += 2) {
		int high = hex_digit(text[1 + i]), low = hex_digit(text[2 + i]);

		if (high < 0 || low < 0)
			return err_say(e, EINVAL,
				       "cursor must be a value of the header ramet-next-cursor");
		*to++ = (uint8_t)(high << 4 | low);
	}
	return (int)(digits / 2);
}
