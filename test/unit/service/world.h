// SPDX-License-Identifier: Apache-2.0
/* A real service on a real loop, with fakes around it, and calls that record their answers. */
#ifndef RAMET_TEST_UNIT_SERVICE_WORLD_H
#define RAMET_TEST_UNIT_SERVICE_WORLD_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/exec/exec.h"
#include "orchestrator/guestops/guestops.h"
#include "orchestrator/observe/reports.h"
#include "orchestrator/service/service.h"
#include "test/unit/service/fakes.h"

struct world {
	char dir[64];
	struct config config;
	struct loop *loop;
	struct service *service;
	struct fakes *fakes;
	unsigned fds_before;
	struct sqlite3 *catalogue; /* the connection that holds the lock */
};

/* A setup and a teardown for cmocka. The teardown shuts the service down and checks that no VM,
 * slot or descriptor is left. */
int world_setup(void **state);
int world_teardown(void **state);
/* Ends the service in order, as a stop of the service does; world_kill_service then frees it. */
void world_shut_down(struct world *w);
/* Ends the service as a kill of the service would: the VMs keep running. */
void world_kill_service(struct world *w);
void world_start_service(struct world *w);
void world_wait_ready(struct world *w);

/* Takes or releases a write lock on the catalogue, as another process would. */
void world_lock_catalogue(struct world *w, bool locked);

/* Returns the number of template images whose directories' names begin with `prefix`. */
unsigned world_images(struct world *w, const char *prefix);

/* Runs the loop until `holds` returns true; fails the test after 120 s. */
void world_until(struct world *w, bool (*holds)(void *arg), void *arg);
void world_until_true(struct world *w, const bool *flag);
/* Runs the loop until exactly `n` threads of the fakes wait for fakes_go. */
void world_until_waiting(struct world *w, unsigned n);
/* Runs the loop for `ms`, to show that something does not happen. */
void world_run_for(struct world *w, uint64_t ms);

/* Returns the number that the service reports as ramet_NAME. */
uint64_t world_metric(struct world *w, const char *name);

/* For world_until: calls fakes_go; returns true when no more agents than one sandbox needs are
 * left. */
bool world_few_agents(void *world);

/* For world_until: returns true when `*bytes` has not changed for 20 rounds. */
struct world_flow {
	const uint64_t *bytes;
	uint64_t before;
	unsigned rounds;
};
bool world_flow_has_stopped(void *flow);

struct made {
	bool done, ok;
	struct sandbox_view view;
	struct failure failure;
	struct op *call;
};
void world_create_start(struct world *w, struct made *m, const struct sandbox_spec *spec);
void world_create(struct world *w, struct made *m, const struct sandbox_spec *spec);
/* Creates a sandbox of the default size, whose id it stores. */
void world_create_id(struct world *w, char id[static SANDBOX_ID_LEN + 1]);

struct run {
	bool started, over, failed;
	int exit_code;
	struct failure failure;
	char out[4096], err[1024]; /* events joined by | */
	size_t bytes;		   /* of output */
	uint64_t first_seq, last_seq;
	unsigned events;
	bool ordered; /* started first, sequence numbers without gaps */
	bool gaps;    /* set by the test: other calls run at the same time, so there may be gaps */
	struct op *call;
	void (*on_event)(struct run *r, const struct event *ev);
	void *arg;
};
void world_exec_start(struct world *w, struct run *r, const char *id, const char *script,
		      bool chunks);
void world_exec_timed_start(struct world *w, struct run *r, const char *id, const char *script,
			    uint32_t timeout_ms);
/* Starts a call whose client takes results. */
void world_exec_rich_start(struct world *w, struct run *r, const char *id, const char *script);
/* `context`: its id. */
void world_exec_in(struct world *w, struct run *r, const char *id, const char *context,
		   const char *script);
void world_exec(struct world *w, struct run *r, const char *id, const char *script);

struct done {
	bool done, failed;
	struct failure failure;
};
void world_on_done(void *arg, const struct failure *f); /* service_done_fn of a struct done */
void world_delete_start(struct world *w, struct done *d, const char *id);
void world_delete(struct world *w, struct done *d, const char *id);
/* The answer to a fork, with the ids of the children. */
struct forked {
	bool done, ok;
	unsigned n;
	char ids[64][SANDBOX_ID_LEN + 1];
	struct failure failure;
	struct op *call;
};
void world_fork_start(struct world *w, struct forked *k, const char *id, unsigned n, bool reseed);
void world_fork(struct world *w, struct forked *k, const char *id, unsigned n);
void world_merge_start(struct world *w, struct done *d, const char *parent, const char *winner);
void world_merge(struct world *w, struct done *d, const char *parent, const char *winner);
struct frozen {
	bool done, ok;
	char id[SANDBOX_ID_LEN + 1]; /* of the Space */
	struct failure failure;
	struct op *call;
};
void world_freeze_start(struct world *w, struct frozen *z, const char *id);
void world_freeze(struct world *w, struct frozen *z, const char *id);
/* Starts a resume; `how` may be NULL for the defaults. */
void world_resume_start(struct world *w, struct made *m, const char *space,
			const struct space_resume *how);
void world_resume(struct world *w, struct made *m, const char *space);
/* The replay as text: output, exits and error codes joined by |. Sequence numbers must grow. */
struct history {
	char text[4096];
	size_t bytes; /* of output */
	unsigned events;
	uint64_t last_seq;
};
/* Read all pages of a list. */
void world_list(struct world *w, const char *tenant,
		void (*each)(void *arg, const struct sandbox_view *view), void *arg);
void world_spaces(struct world *w, const char *tenant,
		  void (*each)(void *arg, const struct space_view *view), void *arg);

void world_history(struct world *w, struct history *h, const char *id);
void world_interrupt(struct world *w, struct done *d, const char *id);
/* Scan the disk for templates. */
void world_look_start(struct world *w, struct done *d);
void world_look(struct world *w);

/* The tenant on whose behalf calls are made; "local" at first. */
extern const char *world_tenant;
#define TENANT world_tenant

#endif
