// SPDX-License-Identifier: Apache-2.0
/*
 * What stands around the service, in threads of the test: a warden, VM processes behind control
 * sockets, and agents that "run" little scripts. They outlive a core, as the real ones do.
 */
#ifndef RAMET_TEST_UNIT_CORE_FAKES_H
#define RAMET_TEST_UNIT_CORE_FAKES_H

#include <stdbool.h>
#include <stdint.h>

struct fakes;

/* VM directories are made under `run_dir`. */
struct fakes *fakes_new(const char *run_dir);
/* The same with room for so many VMs. */
struct fakes *fakes_new_many(const char *run_dir, unsigned slots);
/* Before the first VM: the process that all say they are, instead of this one. */
void fakes_use_pid(struct fakes *f, int pid);
/* A new socket for a core; the warden hangs up on the one before. */
int fakes_attach(struct fakes *f);
/* Connections to agents lead to the real one that listens on this socket, which all VMs share. */
void fakes_use_agent(struct fakes *f, const char *socket_path);
/* Ends all threads. */
void fakes_free(struct fakes *f);

/* Live VM processes, and slots with something in them. */
unsigned fakes_live(struct fakes *f);
unsigned fakes_slots(struct fakes *f);
unsigned fakes_boots(struct fakes *f);
/* VMs whose packets don't leave the host; those of which that was so before they had a guest. */
unsigned fakes_closed(struct fakes *f);
unsigned fakes_closed_first(struct fakes *f);
unsigned fakes_restores(struct fakes *f);
unsigned fakes_limits(struct fakes *f); /* memory limits that were changed */
/* How often it was asked what a VM's cgroup is charged with; the answer from now on, and how much
 * VM processes say they copied for an image, in bytes. */
unsigned fakes_charges(struct fakes *f);
void fakes_memory(struct fakes *f, uint64_t charged, uint64_t copied);
/* VMs whose priorities since their start were these (enum warden_priority): "02" is one that ran in
 * the background and then as usual. And how many VMs are marked to be ended first. */
unsigned fakes_with_priorities(struct fakes *f, const char *priorities);
unsigned fakes_marked(struct fakes *f);
/* Which file the VM that was restored last has its memory from; 0: one without a name. */
uint64_t fakes_memory_file(struct fakes *f);
unsigned fakes_grown(struct fakes *f); /* file systems that grew */
unsigned fakes_reseeds(struct fakes *f);
unsigned fakes_user_reseeds(struct fakes *f); /* user generators too */
unsigned fakes_attaches(struct fakes *f);
unsigned fakes_forks(struct fakes *f); /* images of running VMs */
unsigned fakes_runs(struct fakes *f);  /* VMs that were paused and run again */
unsigned fakes_paused(struct fakes *f);
/* Such that were asked for before the one before was there. */
unsigned fakes_overlaps(struct fakes *f);
/* Open connections to agents. */
unsigned fakes_agents(struct fakes *f);
/* Connections to agents that ever were. */
unsigned fakes_dials(struct fakes *f);
/* Requests of a type (AGENT_PUT to AGENT_PTY_LIST) that agents got. */
unsigned fakes_asked(struct fakes *f, unsigned type);
/* Of the data that came last, or of all input: its size, and what fake_sum says of it. */
uint64_t fakes_put(struct fakes *f, uint64_t *sum);
void fakes_put_reset(struct fakes *f);
void fakes_kill(struct fakes *f, uint32_t slot);
bool fakes_is_alive(struct fakes *f, uint32_t slot);
/* From its next connection on the VM is one of CTL_VERSION_BEFORE. */
void fakes_age(struct fakes *f, uint32_t slot);

enum fakes_fault {
	FAKES_SPAWN,	    /* the warden refuses a spawn */
	FAKES_EGRESS,	    /* the warden can't close a VM's way to the network */
	FAKES_CHARGED,	    /* the warden can't tell what memory a VM is charged with */
	FAKES_CHARGED_WAIT, /* it tells when the test says go */
	FAKES_FILL,	    /* a fill is refused */
	FAKES_BOOT,	    /* a boot is refused */
	FAKES_CONNECT,	    /* the guest refuses a connection */
	FAKES_GROW,	    /* its file system can't grow */
	FAKES_RESEED,	    /* the guest can't be made unique */
	FAKES_PONG,	    /* the agent hangs up instead of saying that Python waits */
	FAKES_GARBAGE,	    /* the agent breaks the rules as soon as it is reached */
	FAKES_SAVE,	    /* the image can't be written */
	FAKES_LIE,	    /* the VM process replies to what was not asked */
	FAKES_FORK,	    /* an image of the running VM can't be made */
	FAKES_FORK_LIE,	    /* one that is not what the VM process says */
	FAKES_FORK_WAIT,    /* it is handed over only when the test says go */
	FAKES_CODE,	    /* the guest takes a call's code only when the test says go */
	FAKES_EARLY,	    /* the guest ends a call instead of taking its code */
	FAKES_ATTACH,	    /* the output of a call is not kept */
	FAKES_OLDER,	    /* the VM process knows no request for a report */
	FAKES_MUTE,	    /* the VM process does not answer when it is asked for a report */
	FAKES_DEAF,	    /* the agent gives its list of terminals only when the test says go */
	FAKES_SEED_WAIT,    /* it confirms the new seed only when the test says go */
	FAKES_DIE_STEP,	    /* counts down with every step a VM takes; it dies at 0 */
	FAKES_NFAULTS,
};
/* The next `count` of these go wrong; for FAKES_DIE_STEP: the VM that takes that many steps. */
void fakes_fault(struct fakes *f, enum fakes_fault fault, int count);
int fakes_faults_left(struct fakes *f, enum fakes_fault fault);

/*
 * Scripts, one command per line: `out TEXT` and `err TEXT` (with a newline), `raw TEXT` (without),
 * `big N` (N bytes of 'x' on stdout), `env` (the call's environment), `wait` (until fakes_go or an
 * interrupt), `tree PATH MODE [CONTENT]` (what is in it, in the order of a listing, MODE in octal;
 * instead of a path: `many N` files, `wait` as above, `error`, `pong` (a frame that has no place
 * there), `hang-up`), `mark TEXT` (the VM and all its copies have it from here on), `marked` (says
 * it), `exit N`, `die` (the VM), `hang-up` (this connection), `garbage` (a bad
 * frame).
 */
void fakes_go(struct fakes *f);
/* Calls that wait. */
unsigned fakes_waiting(struct fakes *f);

#endif
