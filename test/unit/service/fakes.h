// SPDX-License-Identifier: Apache-2.0
/*
 * Fakes of the processes around the service, in threads of the test: a warden, VM processes behind
 * control sockets, and agents that "run" small scripts. They outlive a service, as the real ones
 * do.
 */
#ifndef RAMET_TEST_UNIT_SERVICE_FAKES_H
#define RAMET_TEST_UNIT_SERVICE_FAKES_H

#include <stdbool.h>
#include <stdint.h>

struct fakes;

/* Starts fakes with 64 slots. They create VM directories under `run_dir`. */
struct fakes *fakes_new(const char *run_dir);
/* Like fakes_new, with `slots` slots. */
struct fakes *fakes_new_many(const char *run_dir, unsigned slots);
/* Sets the process id that all VMs report instead of this process's. Call it before the first
 * VM. */
void fakes_use_pid(struct fakes *f, int pid);
/* Returns a new socket for a service; the warden closes the previous one. */
int fakes_attach(struct fakes *f);
/* Forwards connections to agents to a real agent that listens on this socket. All VMs share it,
 * unless the path ends with %, which stands for the number of a VM's slot. */
void fakes_use_agent(struct fakes *f, const char *socket_path);
/* Ends all threads and frees the fakes. */
void fakes_free(struct fakes *f);

/* Return the number of live VM processes, and of occupied slots. */
unsigned fakes_live(struct fakes *f);
unsigned fakes_slots(struct fakes *f);
unsigned fakes_boots(struct fakes *f);
/* Return the number of VMs without egress, and of those that lost it before they had a guest. */
unsigned fakes_closed(struct fakes *f);
unsigned fakes_closed_first(struct fakes *f);
unsigned fakes_restores(struct fakes *f);
unsigned fakes_limits(struct fakes *f); /* changes of memory limits */
/* Returns the number of requests for the memory that a VM's cgroup is charged with. */
unsigned fakes_charges(struct fakes *f);
/* Sets the bytes that the warden reports as charged to a VM's cgroup, and those that VM processes
 * report as copied for an image. */
void fakes_memory(struct fakes *f, uint64_t charged, uint64_t copied);
/* Returns the number of live VMs that were given exactly these priorities (enum warden_priority)
 * since their start: "02" means background, then normal. */
unsigned fakes_with_priorities(struct fakes *f, const char *priorities);
/* Returns the number of live VMs marked as the kernel's first choice when memory runs out. */
unsigned fakes_marked(struct fakes *f);
/* Returns the inode of the memory file of the last restore; 0 if that file has no name. */
uint64_t fakes_memory_file(struct fakes *f);
unsigned fakes_grown(struct fakes *f);	      /* file systems that grew */
unsigned fakes_reseeds(struct fakes *f);      /* of restored guests */
unsigned fakes_user_reseeds(struct fakes *f); /* reseeds that include user generators */
unsigned fakes_attaches(struct fakes *f);
unsigned fakes_forks(struct fakes *f); /* images of sandboxes, not of templates */
unsigned fakes_runs(struct fakes *f);  /* requests that let a paused VM continue */
unsigned fakes_paused(struct fakes *f);
/* Returns the number of forks that were requested before the previous one had finished. */
unsigned fakes_overlaps(struct fakes *f);
/* Returns the number of open connections to agents. */
unsigned fakes_agents(struct fakes *f);
/* Returns the number of connections to agents since the start. */
unsigned fakes_dials(struct fakes *f);
/* Returns the number of the call that the last interrupt named; 0: whichever runs. */
uint64_t fakes_interrupted(struct fakes *f);
/* Returns the number of requests of a type (on files, processes and interrupts) that agents
 * received. */
unsigned fakes_asked(struct fakes *f, unsigned type);
/* Returns the size of the data that was put last, or of all input of processes; *sum: its fake_sum.
 */
uint64_t fakes_put(struct fakes *f, uint64_t *sum);
void fakes_put_reset(struct fakes *f);
void fakes_kill(struct fakes *f, uint32_t slot);
bool fakes_is_alive(struct fakes *f, uint32_t slot);
/* Lets the warden refuse requests of a type (enum warden_type) for slots below `slots`, as it does
 * when they have crashed it twice. */
void fakes_refuse(struct fakes *f, uint32_t type, uint32_t slots);
/* Returns the number of requests that were refused so. */
unsigned fakes_refused(struct fakes *f);
/* Sets the version of the control protocol that a VM speaks. The service must not be connected to
 * it. */
void fakes_set_version(struct fakes *f, uint32_t slot, uint32_t version);

enum fakes_fault {
	FAKES_SPAWN,	    /* the warden refuses a spawn */
	FAKES_EGRESS,	    /* the warden can't close a VM's egress */
	FAKES_CHARGED,	    /* the warden can't read the memory charge of a VM */
	FAKES_CHARGED_WAIT, /* the warden reports the charge only after fakes_go */
	FAKES_FILL,	    /* a restore or boot is refused */
	FAKES_BOOT,	    /* a boot is refused */
	FAKES_CONNECT,	    /* the guest refuses a connection */
	FAKES_GROW,	    /* the guest's file system can't grow */
	FAKES_RESEED,	    /* the guest can't be made unique */
	FAKES_PONG,	    /* the agent disconnects instead of reporting that Python is ready */
	FAKES_GARBAGE,	    /* the agent breaks the protocol as soon as it is connected */
	FAKES_BOOT_LAYER,   /* the first snapshot of a VM that booted has a memory layer */
	FAKES_LIE,	    /* the VM process replies to a request that was not sent */
	FAKES_FORK,	    /* a fork fails */
	FAKES_FORK_LIE,	    /* the image of a fork differs from its description */
	FAKES_FORK_WAIT,    /* the image of a fork is sent only after fakes_go */
	FAKES_CODE,	    /* the guest accepts a call's code only after fakes_go */
	FAKES_EARLY,	    /* the guest ends a call instead of accepting its code */
	FAKES_ATTACH,	    /* the output of a call is not retained */
	FAKES_INSPECT,	    /* the VM process refuses a request for a report */
	FAKES_MUTE,	    /* the VM process does not answer a request for a report */
	FAKES_KILL_WAIT,    /* the agent kills a process only after fakes_go */
	FAKES_DEAF,	    /* the agent sends its list of processes only after fakes_go */
	FAKES_SEED_WAIT,    /* the agent confirms the new seed only after fakes_go */
	FAKES_STALL,	    /* the agent serves a request of a client only after fakes_go */
	FAKES_VERSION,	    /* the agent answers AGENT_HELLO with another version */
	FAKES_DIE_STEP,	    /* counts down with every step of any VM, which dies at 0 */
	FAKES_RECORD,	    /* the VM process can't record a working set */
	FAKES_STATS_WAIT,   /* the VM process sends its statistics only after fakes_go */
	FAKES_STATS_LIE,    /* its statistics are impossibly large */
	FAKES_NFAULTS,
};
/* Injects the fault the next `count` times. For FAKES_DIE_STEP, ends the VM that takes the
 * `count`th step from now on. */
void fakes_fault(struct fakes *f, enum fakes_fault fault, int count);
int fakes_faults_left(struct fakes *f, enum fakes_fault fault);

/*
 * Releases all threads that wait for it.
 *
 * Scripts have one command per line:
 *   out TEXT, err TEXT        writes TEXT and a newline to stdout or stderr
 *   raw TEXT                  writes TEXT without a newline
 *   big N                     writes N bytes of 'x' to stdout
 *   lines N SIZE              writes N lines of SIZE bytes to stdout
 *   env                       writes the call's environment
 *   open N                    begins a result whose only entry, x/y, has N bytes
 *   more N                    N bytes of a result
 *   result 0|1|2, fault       end a result: AGENT_RESULT, AGENT_FAULT
 *   wait                      waits for fakes_go or an interrupt
 *   tree PATH MODE [CONTENT]  adds an entry, with octal MODE, to the listing of the guest's files;
 *                             %XX in PATH is one byte
 *   tree many N               adds N files to the listing
 *   tree long N               adds N files with names of 800 bytes
 *   tree wait                 the listing waits for fakes_go here
 *   tree error                the listing fails here
 *   tree pong                 the listing sends a frame of an unexpected type here
 *   tree hang-up              the listing closes the connection here
 *   mark TEXT                 sets the mark of the VM, which its later copies inherit
 *   marked                    writes the mark
 *   exit N                    sets the exit code
 *   die                       ends the VM
 *   hang-up                   closes this connection
 *   garbage                   sends a malformed frame
 */
void fakes_go(struct fakes *f);
/* Returns the number of threads that wait for fakes_go. */
unsigned fakes_waiting(struct fakes *f);

#endif
