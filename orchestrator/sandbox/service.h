// SPDX-License-Identifier: Apache-2.0
/*
 * The state of the service that sandbox/ and the rooms above it share. The state of a single room
 * is in its part (part.h).
 */
#ifndef RAMET_ORCHESTRATOR_SANDBOX_SERVICE_H
#define RAMET_ORCHESTRATOR_SANDBOX_SERVICE_H

#include "base/word.h"
#include "orchestrator/config/config.h"
#include "orchestrator/io/deferred.h"
#include "orchestrator/sandbox/catalogue.h"
#include "orchestrator/sandbox/drain.h"
#include "orchestrator/sandbox/ended.h"
#include "orchestrator/sandbox/part.h"
#include "orchestrator/sandbox/sandbox.h"
#include "orchestrator/images/template-env.h"
#include "orchestrator/vm/vmproc.h"

struct keys;
struct member;
struct pool;
struct privates;
struct store;
struct templates;
struct tenant;
struct tenant_wait;
struct warden_client;

#define BUCKETS 16384 /* of each hash table: as many as the maximum number of VMs */
static inline unsigned bucket_number(const char *name)
{
	return word_hash(name) % BUCKETS;
}

struct service {
	struct part *const *parts; /* the rooms above sandboxes; ends with NULL */
	struct part_sizes sizes;
	struct loop *loop;
	struct config config;
	struct deferred_queue deferred;
	struct store *store;
	struct catalogue catalogue;
	struct ended_sandboxes ended;
	struct keys *keys;
	struct member *member;		 /* NULL: this host is in no fleet */
	struct shared_keys *shared_keys; /* NULL: this host is in no fleet */
	struct warden_client *warden;
	struct vmproc_host vms;
	struct template_env template_env;
	struct templates *templates;
	struct privates *privates;
	struct pool *pool;
	size_t n_requests;     /* calls in flight that are not passive (op.h) */
	struct list sandboxes; /* living and ending ones, oldest first */
	struct roster all;     /* living sandboxes */
	size_t n_sandboxes;
	size_t n_in[SBX_NSTATES]; /* living sandboxes by state */
	uint64_t promised_mib;	  /* RAM of living sandboxes */
	size_t n_coming;	  /* sandboxes being made */
	uint64_t coming_mib;	  /* RAM of sandboxes being made */
	struct list tenants;	  /* all tenants that have users (tenant.h) */
	struct list tenant_buckets[BUCKETS];
	struct list buckets[BUCKETS];
	struct list tree_buckets[BUCKETS];
	const char **children; /* the array in the last service_view's answer */
	struct list creates;   /* calls still making their sandbox */
	struct list waits;     /* calls that wait only for the disk or for a report */
	struct list finished;  /* calls whose end is about to be reported */
	/* Counters. */
	struct {
		uint64_t creates, create_failures, vm_deaths;
		uint64_t pool_hits, pool_misses;
	} stats;
	struct {
		size_t n;		 /* trees with a budget */
		size_t waiting;		 /* forks that wait for room in a tree */
		uint64_t refused, ended; /* counters: requests, and sandboxes */
	} trees;
	size_t limits_away; /* in a fleet: tenants whose keeper does not divide their limits now */
	/* In a fleet: puts the wait on a list until the tenant's keeper has answered. Returns false
	 * if the tenant has no limits. NULL: nobody can be asked. */
	bool (*ask_keeper)(void *arg, struct tenant *t, struct tenant_wait *w);
	void *ask_keeper_arg;
	int64_t clocks_ms; /* wall clock minus boot-time clock; 0: not measured */
	bool closing;
	struct drain drain;
	struct loop_timer promises_timer;
};

#endif
