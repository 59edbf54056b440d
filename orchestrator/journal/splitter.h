// SPDX-License-Identifier: Apache-2.0
/* Cuts one stream of a guest's output into the pieces that become events. */
#ifndef RAMET_ORCHESTRATOR_JOURNAL_SPLITTER_H
#define RAMET_ORCHESTRATOR_JOURNAL_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_MAX_BYTES (1u << 20) /* a longer line comes in several events, */
#define LINE_TIGHT_BYTES                                                                           \
	(16u << 10) /* or even one that is longer than this while held output                      \
		     * is over its budget */
/* The most that is held of a line, by any version of this program that left it for this one. */
#define LINE_KEPT_MAX (4u << 20)

struct output_account;

struct splitter {
	bool chunks;   /* as produced, else by lines */
	bool tight;    /* LINE_TIGHT_BYTES is the limit of a line */
	uint8_t *held; /* what can't go out yet: a line without its end, half a character */
	size_t len, room;
	struct output_account *account; /* of what is held; may be NULL */
};

/* `partial`: the line goes on in the next piece. The data is good during the call only. */
typedef void splitter_fn(void *arg, const uint8_t *data, size_t len, bool partial);

/*
 * Lines come without their "\n", all other bytes as they are. No piece ends within a UTF-8
 * character that may still become whole. 0, or -ENOMEM; then what was held went out as a piece.
 */
int splitter_feed(struct splitter *s, const uint8_t *data, size_t len, splitter_fn *fn, void *arg);
/* The stream has ended: hands out what is held, and frees it. */
void splitter_end(struct splitter *s, splitter_fn *fn, void *arg);
/* Hands out all that is held of a line, as a part of it. */
void splitter_cut(struct splitter *s, splitter_fn *fn, void *arg);
/* Adds to what is held, as if it had come and could not go out yet. -ENOMEM, and nothing is. */
int splitter_hold(struct splitter *s, const uint8_t *data, size_t len);
void splitter_fini(struct splitter *s);
/* What one holds, for another stream that goes on from here, in the account of `to`. -ENOMEM, and
 * `to` is empty. */
int splitter_copy(struct splitter *to, const struct splitter *from);

/* How many bytes at the end of `data` begin a UTF-8 character that is not whole: 0 to 3. */
size_t utf8_cut(const uint8_t *data, size_t len);

#endif
