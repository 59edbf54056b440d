// SPDX-License-Identifier: Apache-2.0
/*
 * The API keys of a cell. Each host's service writes those of its catalogue into a file;
 * ramet-fleet puts them into etcd, and writes those of all hosts into another file. Two versions of
 * a key are merged so that neither order nor repetition matters: a key that was revoked stays
 * revoked, the earlier end counts, and so does the tier that was set later. So no change is lost
 * when a host or a process restarts.
 */
#ifndef RAMET_ORCHESTRATOR_ETCD_RING_H
#define RAMET_ORCHESTRATOR_ETCD_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "orchestrator/etcd/wire.h"
#include "orchestrator/json/text.h"

#define RING_FORMAT    1
#define RING_KEYS_MAX  65536
#define RING_FILE_MAX  (32u << 20) /* bytes */
#define RING_ID_MAX    20
#define RING_TIER_MAX  15
#define RING_NAME_MAX  63
#define RING_HASH_TEXT 64

struct ring_key {
	char id[RING_ID_MAX + 1], tenant[RING_ID_MAX + 1];
	char hash[RING_HASH_TEXT + 1]; /* SHA-256 of the key */
	char name[RING_NAME_MAX + 1], tier[RING_TIER_MAX + 1];
	/* In ms since the epoch: when the key was made, when its tier was set. */
	int64_t created_ms, tier_ms;
	int64_t ends_ms; /* ms since the epoch when the key becomes invalid; 0: never */
	bool revoked;	 /* permanently, whatever the clock says */
};

/* Returns 0, or -errno with *e filled. */
int ring_key_read(struct ring_key *out, const char *text, size_t len, struct err *e);
void ring_key_write(struct text *out, const struct ring_key *key);
/* Merges the other version of the key into *into. Returns -EINVAL with *e filled if the two can't
 * be versions of one key. */
int ring_key_merge(struct ring_key *into, const struct ring_key *other, struct err *e);

struct ring;

struct ring *ring_new(uint32_t cell);
void ring_free(struct ring *r);

/* Adds the keys of a file. Returns 0, or -errno with *e filled if the text is not a file with keys.
 * Leaves out keys that cannot be used, and logs the reason for the first of them. */
int ring_take_file(struct ring *r, const char *text, size_t len, struct err *e);
/* Returns the `i`th key in the order of the ids; NULL: there are no more. */
const struct ring_key *ring_at(const struct ring *r, size_t i);
/* Takes over a key of etcd below /ramet/CELL/keys/; ignores other keys. */
void ring_take(struct ring *r, const struct etcd_pair *pair);
/* Begins a list: all keys of etcd are passed to ring_take after this call. */
void ring_list_begin(struct ring *r);

/* Returns a key of which etcd lacks this version, and sets *revision to that of etcd's version (0:
 * none). NULL: etcd has all keys. */
const struct ring_key *ring_missing(struct ring *r, int64_t *revision);
/* Notes that etcd has the key now. */
void ring_put(struct ring *r, const struct ring_key *key);

/* Adds the text of a file with keys: its beginning, each key, its end. */
void ring_write_begin(struct text *out);
void ring_write_next(struct text *out, const struct ring_key *key);
void ring_write_end(struct text *out);
/* Adds the text of keys.json. */
void ring_write(const struct ring *r, struct text *out);

#endif
