// SPDX-License-Identifier: Apache-2.0
/*
 * Explicit little-endian fields in a buffer, used for every message and every saved device state. A
 * writer or reader that passes the end sets `bad` for good; the caller checks it once, after the
 * last field.
 */
#ifndef RAMET_BASE_WIRE_H
#define RAMET_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire {
	uint8_t *p;  /* start of the buffer; not owned */
	size_t size; /* bytes in it */
	size_t pos;  /* next byte to write or read */
	bool bad;    /* passed the end, or a field was out of range */
};

static inline struct wire wire_on(void *buf, size_t size)
{
	return (struct wire){.p = buf, .size = size};
}

/* Returns a reader; the getters never write to the buffer. */
static inline struct wire wire_from(const void *buf, size_t size)
{
	return (struct wire){.p = (uint8_t *)(uintptr_t)buf, .size = size};
}

void wire_put_u8(struct wire *w, uint8_t v);
void wire_put_u16(struct wire *w, uint16_t v);
void wire_put_u32(struct wire *w, uint32_t v);
void wire_put_u64(struct wire *w, uint64_t v);
/* Writes the bytes without a length. */
void wire_put_bytes(struct wire *w, const void *data, size_t len);
/* Writes a u32 length, then the bytes. */
void wire_put_str(struct wire *w, const void *data, size_t len);

/* The getters return 0 and set `bad` past the end. */
uint8_t wire_get_u8(struct wire *w);
uint16_t wire_get_u16(struct wire *w);
uint32_t wire_get_u32(struct wire *w);
uint64_t wire_get_u64(struct wire *w);
/* Copies `len` bytes to `out`; zeroes it when fewer are left. */
void wire_get_bytes(struct wire *w, void *out, size_t len);
/*
 * Returns a pointer into the buffer. When the string is malformed or longer than `max`, *len is 0
 * and the result NULL.
 */
const uint8_t *wire_get_str(struct wire *w, size_t *len, size_t max);

/* Copies a string without zero bytes to `out`, which has `size` bytes, and terminates it. Any other
 * string sets `bad`; `out` is empty then. */
void wire_get_text(struct wire *w, char *out, size_t size);

/* Returns the number of bytes not yet read. */
static inline size_t wire_left(const struct wire *w)
{
	return w->size - w->pos;
}

#endif
