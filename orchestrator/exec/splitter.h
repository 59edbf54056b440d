// SPDX-License-Identifier: Apache-2.0
/* Splits one stream of a guest's output into the parts that become events. */
#ifndef RAMET_ORCHESTRATOR_EXEC_SPLITTER_H
#define RAMET_ORCHESTRATOR_EXEC_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_MAX_BYTES	 (16u << 20) /* a longer line becomes several events */
#define LINE_TIGHT_BYTES (16u << 10) /* the limit while held output exceeds its budget */

struct output_account;

struct splitter {
	bool chunks;   /* split as produced; false: by lines */
	bool tight;    /* the limit of a line is LINE_TIGHT_BYTES */
	uint8_t *held; /* bytes that cannot be passed on yet: an unfinished line or character */
	size_t len, room;
	struct output_account *account; /* counts held bytes; may be NULL */
};

/* Receives a part. `partial`: the line continues in the next part. The data is valid only during
 * the call. */
typedef void splitter_fn(void *arg, const uint8_t *data, size_t len, bool partial);

/*
 * Feeds bytes of the stream. Lines are passed on without their "\n", all other bytes unchanged. No
 * part ends within a UTF-8 character that may still become complete. Returns 0, or -ENOMEM after
 * the held bytes were passed on.
 */
int splitter_feed(struct splitter *s, const uint8_t *data, size_t len, splitter_fn *fn, void *arg);
/* Ends the stream: passes on the held bytes and frees them. */
void splitter_end(struct splitter *s, splitter_fn *fn, void *arg);
/* Passes on the held bytes of a line, as a partial line. */
void splitter_cut(struct splitter *s, splitter_fn *fn, void *arg);
/* Adds bytes to those held, without passing any on. When out of memory, returns -ENOMEM and adds
 * none. */
int splitter_hold(struct splitter *s, const uint8_t *data, size_t len);
void splitter_fini(struct splitter *s);
/* Copies the held bytes to `to`, whose account counts them, for another stream that continues from
 * here. When out of memory, returns -ENOMEM and leaves `to` empty. */
int splitter_copy(struct splitter *to, const struct splitter *from);

/* Returns the number of bytes of an incomplete UTF-8 character at the end of `data`: 0 to 3. */
size_t utf8_cut(const uint8_t *data, size_t len);

#endif
