// SPDX-License-Identifier: Apache-2.0
/*
 * The API keys that this host has in common with the others of its cell. fleet_dir/keys.json, which
 * ramet-fleet writes, has the keys of all hosts: when the file changes, the catalogue takes them
 * over. When the catalogue changes, its keys are written to fleet_dir/out/keys.json, from which
 * ramet-fleet passes them on. Both have hashes of keys, never keys. Two versions of a key are
 * merged as orchestrator/etcd/ring.h says.
 */
#ifndef RAMET_ORCHESTRATOR_SERVICE_SHARED_KEYS_H
#define RAMET_ORCHESTRATOR_SERVICE_SHARED_KEYS_H

#include "orchestrator/config/config.h"
#include "orchestrator/fleet/member.h"
#include "orchestrator/io/loop.h"
#include "orchestrator/store/keys.h"

struct shared_keys;

/* Returns whether a start would take a key over from keys.json. */
bool shared_keys_any(const struct config *config);
/* Takes over what the files say now, before the first request, and follows the changes. A file that
 * cannot be used changes nothing, and the log says why. All arguments must outlive *it. */
struct shared_keys *shared_keys_new(struct loop *loop, const struct config *config,
				    struct member *member, struct keys *keys);
/* NULL is fine. */
void shared_keys_free(struct shared_keys *s);

#endif
