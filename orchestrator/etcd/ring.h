// SPDX-License-Identifier: Apache-2.0
/*
 * The API keys of a cell. Each host's service writes those of its catalogue into a file;
 * ramet-fleet puts them into etcd, and writes those of all hosts into another file. Two versions of
 * a key are merged so that neither order nor repetition matters: a key that was revoked stays
 * revoked, the earliest end holds, and the tier that was set last. So no change can be lost,
 * whoever restarts.
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
	int64_t created_ms, tier_ms; /* since the epoch: when it was made, when its tier was set */
	int64_t ends_ms;	     /* invalid from then on; 0: no end is set */
	bool revoked;		     /* permanently, whatever the clock says */
};

/* Returns 0, or -errno with *e filled. */
int ring_key_read(struct ring_key *out, const char *text, size_t len, struct err *e);
void ring_key_write(struct text *out, const struct ring_key *key);
/* Merges the two versions into *into; -EINVAL with *e filled if they cannot be of one key. */
int ring_key_merge(struct ring_key *into, const struct ring_key *other, struct err *e);

struct ring;

struct ring *ring_new(uint32_t cell);
void ring_free(struct ring *r);

/* Takes the keys of a file. Returns 0, or -errno with *e filled if it is no such file; keys that
 * cannot be used are left out, and the log says why of the first one. */
int ring_take_file(struct ring *r, const char *text, size_t len, struct err *e);
/* Returns the key with that number, in the order of their ids; NULL: there are no more. */
const struct ring_key *ring_at(const struct ring *r, size_t i);
/* Takes a key of etcd below /ramet/CELL/keys/; ignores others. */
void ring_take(struct ring *r, const struct etcd_pair *pair);
/* All keys of etcd are passed to ring_take after it. */
void ring_list_begin(struct ring *r);

/* Returns a key that etcd does not have like that, and the revision of what etcd has; NULL: etcd
 * has everything. */
const struct ring_key *ring_missing(struct ring *r, int64_t *revision);
/* etcd has the key now. */
void ring_put(struct ring *r, const struct ring_key *key);

/* Adds the text of a file with keys: its begin, each key, its end. */
void ring_write_begin(struct text *out);
void ring_write_next(struct text *out, const struct ring_key *key);
void ring_write_end(struct text *out);
/* Adds the text of keys.json. */
void ring_write(const struct ring *r, struct text *out);

#endif
