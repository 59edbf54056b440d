// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of the warden: its loop, its slots, and the service and notifier that it
 * keeps running. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_WARDEN_INTERNAL_H
#define RAMET_ORCHESTRATOR_WARDEN_WARDEN_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "orchestrator/warden/cgroup.h"
#include "orchestrator/warden/jail.h"
#include "orchestrator/warden/warden.h"
#include "proto/warden.h"

enum slot_state {
	SLOT_EMPTY,
	SLOT_STARTING,	/* cloned; has not reported yet whether it runs */
	SLOT_RUNNING,	/* includes VMs started by a previous warden */
	SLOT_DEAD,	/* its process has ended; the jail is kept */
	SLOT_RELEASING, /* killed; waiting until all its processes are gone */
	SLOT_NSTATES,
};

enum slot_event {
	SLOT_SPAWN,
	SLOT_ADOPT,   /* a previous warden started the VM */
	SLOT_STARTED, /* the child has executed the VM's program */
	SLOT_EXITED,
	SLOT_RELEASE,
	SLOT_RELEASED,
	SLOT_REMOVE_FAILED, /* the jail or its closed egress is left */
	SLOT_NEVENTS,
};

struct slot {
	enum slot_state state;
	int pidfd;  /* -1: reaped, or not a child of this process */
	int status; /* open while SLOT_STARTING */
	int events; /* -1 when empty */
	pid_t pid;
	int exit_status;     /* as from waitpid(2) */
	bool closed;	     /* its egress may be closed: no packet leaves the host */
	struct net_jail net; /* the network of its VM, or what the previous VM has left */

	/* The request that waits for an answer: a spawn while SLOT_STARTING, the release or failed
	 * spawn while SLOT_RELEASING. */
	uint32_t seq;	     /* 0: nobody waits */
	uint32_t generation; /* of the service that asked; a later one gets no answer */
	int error;	     /* answer: 0 or -errno */
	char *text;	     /* answer's text; owned, or NULL */
};

enum service_state {
	SERVICE_WAITING, /* until the timer starts it again */
	SERVICE_RUNNING,
	SERVICE_ENDED, /* is not restarted any more */
};

struct service {
	enum service_state state;
	int pidfd;
	int socket;	     /* the warden's end; -1: none */
	uint32_t generation; /* grows with each start */
	uint32_t pause_ms;   /* pause before the last restart; grows with each failure in a row */
	uint64_t started_ms;
	struct list queue; /* packets that did not fit into the socket */
};

/* The sender of webhooks (orchestrator/events), and resources that outlive the service. */
struct notifier {
	bool wanted;
	/* Socket pairs: the service's end, and the end of ramet-notify. */
	int events[2], spans[2];
	int counters; /* memfd */
	int program;
	int config; /* with the webhooks' secret, which the service does not get */
	int pidfd;  /* -1: not running */
	int timer;
	struct account account;
	uint32_t pause_ms; /* pause before the last restart; grows with each failure in a row */
	uint64_t started_ms;
};

enum phase {
	PHASE_SERVING,
	PHASE_STOPPING, /* the service is ending */
	PHASE_CLEANING, /* the VMs are ending */
	PHASE_OVER,
};

/* Each namespace takes 0.4 MiB of the kernel's memory. With the default settings, these are enough
 * for the pool and the children of the largest fork. */
#define IDLE_NETS_MAX 64

struct warden {
	const struct warden_options *options;
	const struct config *config;
	struct cgroup_tree tree;
	struct net net;
	struct jails jails;
	struct account account;
	int lock, epoll, signals, timer;
	int config_fd;
	int admin_fd;
	enum phase phase;
	int result; /* what warden_run returns: 0 or -errno */
	struct service service;
	struct notifier notifier;
	struct slot *slots; /* config->max_vms of them, by number */
	uint32_t taken;	    /* slots that are not SLOT_EMPTY */
	/* The empty slots that have a network namespace for their next VM, in any order. */
	uint32_t idle_nets[IDLE_NETS_MAX + 1], n_idle_nets;
};

/* Source of an epoll event. The low half of the event's data is the slot, if it has one. */
enum source {
	SOURCE_SIGNALS,
	SOURCE_TIMER,
	SOURCE_SERVICE_SOCKET,
	SOURCE_SERVICE_PID,
	SOURCE_NOTIFIER_PID,
	SOURCE_NOTIFIER_TIMER,
	SOURCE_SLOT_STATUS,
	SOURCE_SLOT_PID,
	SOURCE_SLOT_EVENTS,
};

/* --- warden.c --- */
int warden_watch(struct warden *w, int fd, uint32_t events, enum source source, uint32_t slot,
		 struct err *e);
/* Sets a one-shot timer; 0 clears it. */
void warden_timer(struct warden *w, uint64_t after_ms);
uint64_t warden_now_ms(void);

/* --- slots.c: the life cycle of a slot --- */
/* Each handler checks the current state, so a stale event does nothing. */
int slots_init(struct warden *w, struct err *e);
void slots_fini(struct warden *w);
/* Serves a checked request of the service. */
void slots_serve(struct warden *w, const struct warden_msg *m);
void slots_on_status(struct warden *w, uint32_t slot);
void slots_on_pid(struct warden *w, uint32_t slot);
void slots_on_events(struct warden *w, uint32_t slot);
/* Notifies a new service of the slots whose process is dead. */
void slots_tell_dead(struct warden *w);
void slots_kill_all(struct warden *w);

/* --- service.c: the service process and the packets to it --- */
int service_init(struct warden *w, struct err *e);
void service_fini(struct warden *w);
int service_start(struct warden *w, struct err *e);
void service_signal(struct warden *w, int signal);
void service_on_socket(struct warden *w, uint32_t events);
void service_on_pid(struct warden *w);
/* Answers request `seq`. `text` describes the error and may be NULL. */
void service_reply(struct warden *w, uint32_t seq, uint32_t slot, int error, uint64_t value,
		   const char *text);
void service_tell_exited(struct warden *w, uint32_t slot, int status);
/* Returns the settings as a sealed file, or -errno. The service and ramet-notify need no access to
 * the configuration file, and each restart uses the same settings. */
int seal_config(const struct config *config, struct err *e);

/* --- notifier.c: the process that sends webhooks --- */
/* Called before the service starts. */
int notifier_init(struct warden *w, struct err *e);
void notifier_fini(struct warden *w);
void notifier_on_pid(struct warden *w);
void notifier_on_timer(struct warden *w);

#endif
