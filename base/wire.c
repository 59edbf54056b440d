// SPDX-License-Identifier: Apache-2.0
#include "base/wire.h"

#include <string.h>

static uint8_t *claim(struct wire *w, size_t len)
{
	if (w->bad || len > w->size - w->pos) {
		w->bad = true;
		return NULL;
	}
	uint8_t *at = w->p + w->pos;
	w->pos += len;
	return at;
}

static void put_le(struct wire *w, uint64_t v, size_t bytes)
{
	uint8_t *at = claim(w, bytes);

	for (size_t i = 0; at && i < bytes; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(struct wire *w, size_t bytes)
{
	const uint8_t *at = claim(w, bytes);
	uint64_t v = 0;

	for (size_t i = 0; at && i < bytes; i++)
		v |= (uint64_t)at[i] << (8 * i);
	return v;
}

void wire_put_u8(struct wire *w, uint8_t v)
{
	put_le(w, v, 1);
}

void wire_put_u16(struct wire *w, uint16_t v)
{
	put_le(w, v, 2);
}

void wire_put_u32(struct wire *w, uint32_t v)
{
	put_le(w, v, 4);
}

void wire_put_u64(struct wire *w, uint64_t v)
{
	put_le(w, v, 8);
}

void wire_put_bytes(struct wire *w, const void *data, size_t len)
{
	uint8_t *at = claim(w, len);

	if (at && len)
		memcpy(at, data, len);
}

void wire_put_str(struct wire *w, const void *data, size_t len)
{
	if (len > UINT32_MAX)
		w->bad = true;
	wire_put_u32(w, (uint32_t)len);
	wire_put_bytes(w, data, len);
}

uint8_t wire_get_u8(struct wire *w)
{
	return (uint8_t)get_le(w, 1);
}

uint16_t wire_get_u16(struct wire *w)
{
	return (uint16_t)get_le(w, 2);
}

uint32_t wire_get_u32(struct wire *w)
{
	return (uint32_t)get_le(w, 4);
}

uint64_t wire_get_u64(struct wire *w)
{
	return get_le(w, 8);
}

void wire_get_bytes(struct wire *w, void *out, size_t len)
{
	const uint8_t *at = claim(w, len);

	if (at)
		memcpy(out, at, len);
	else
		memset(out, 0, len);
}

const uint8_t *wire_get_str(struct wire *w, size_t *len, size_t max)
{
	uint32_t n = wire_get_u32(w);

	*len = 0;
	if (n > max)
		w->bad = true;
	const uint8_t *at = claim(w, n);
	if (at)
		*len = n;
	return at;
}

void wire_get_text(struct wire *w, char *out, size_t size)
{
	size_t len;
	const uint8_t *at = wire_get_str(w, &len, size - 1);

	if (len && memchr(at, 0, len))
		w->bad = true;
	if (w->bad)
		len = 0;
	if (len)
		memcpy(out, at, len);
	out[len] = '\0';
}
