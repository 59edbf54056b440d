// SPDX-License-Identifier: Apache-2.0
/* The warden's loop, its slots and the service it keeps: three files that share one struct. */
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
	SLOT_STARTING,	/* cloned; has not told yet whether it runs */
	SLOT_RUNNING,	/* also: one that an earlier warden started */
	SLOT_DEAD,	/* its process has ended; the jail is kept */
	SLOT_RELEASING, /* killed; waiting until nothing lives in it */
};

struct slot {
	enum slot_state state;
	int pidfd;  /* -1: reaped, or not our child */
	int status; /* while SLOT_STARTING */
	int events; /* -1 when empty */
	pid_t pid;
	int exit_status; /* as from waitpid(2) */
	bool closed;	 /* its packets may be kept from leaving the host */
	bool used;	 /* its VM, which is being released, may have sent packets */

	/* The request that waits for an answer: a spawn while SLOT_STARTING, what led to it
	 * while SLOT_RELEASING. */
	uint32_t seq;	     /* 0: nobody waits */
	uint32_t generation; /* of the service that asked; another one gets no answer */
	int error;	     /* to answer: 0 or -errno */
	char *text;	     /* to answer; owned, or NULL */
};

enum service_state {
	SERVICE_WAITING, /* the timer will start it */
	SERVICE_RUNNING,
	SERVICE_ENDED, /* for good */
};

struct service {
	enum service_state state;
	int pidfd;
	int socket;	     /* our end; -1: none */
	uint32_t generation; /* grows with each start */
	unsigned failures;   /* in a row; makes the pause longer */
	uint64_t started_ms;
	struct list queue; /* packets that did not fit in the socket */
};

/* What sends webhooks (orchestrator/notify), and what outlives the service for it. */
struct notifier {
	bool wanted;
	int audit, own;	    /* folders */
	int ring, counters; /* memory */
	int program;
	int config; /* with the webhooks' secret, which the service does not get */
	int pidfd;  /* -1: it does not run */
	int timer;
	struct account account;
	unsigned failures; /* in a row */
	uint64_t started_ms;
};

enum phase {
	PHASE_SERVING,
	PHASE_STOPPING, /* the service is ending */
	PHASE_CLEANING, /* the VMs are ending */
	PHASE_OVER,
};

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
	int result; /* of warden_run */
	struct service service;
	struct notifier notifier;
	struct slot *slots; /* config->max_vms of them */
	uint32_t taken;	    /* slots that are not SLOT_EMPTY */
};

/* What an epoll event is about; the low half of its data is a slot where there is one. */
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
/* One shot; 0 clears it. */
void warden_timer(struct warden *w, uint64_t after_ms);
uint64_t warden_now_ms(void);

/* --- slots.c: one slot's life --- */
/* Each handler looks at what is, so a stale event does nothing. */
int slots_init(struct warden *w, struct err *e);
void slots_fini(struct warden *w);
void slots_spawn(struct warden *w, const struct warden_msg *m);
void slots_release(struct warden *w, const struct warden_msg *m);
void slots_memory(struct warden *w, const struct warden_msg *m);
void slots_charged(struct warden *w, const struct warden_msg *m);
void slots_priority(struct warden *w, const struct warden_msg *m);
void slots_oom(struct warden *w, const struct warden_msg *m);
void slots_egress(struct warden *w, const struct warden_msg *m);
void slots_on_status(struct warden *w, uint32_t slot);
void slots_on_pid(struct warden *w, uint32_t slot);
void slots_on_events(struct warden *w, uint32_t slot);
/* Tells a new service of the slots whose process is dead. */
void slots_tell_dead(struct warden *w);
void slots_kill_all(struct warden *w);

/* --- service.c: the service process and the packets to it --- */
int service_init(struct warden *w, struct err *e);
void service_fini(struct warden *w);
int service_start(struct warden *w, struct err *e);
void service_signal(struct warden *w, int signal);
void service_on_socket(struct warden *w, uint32_t events);
void service_on_pid(struct warden *w);
/* Answers request `seq` (0: nobody asked). `text` may be NULL. */
void service_reply(struct warden *w, uint32_t seq, uint32_t slot, int error, uint64_t value,
		   const char *text);
void service_tell_exited(struct warden *w, uint32_t slot, int status);
/* Returns the settings as a sealed file, or -errno. The service and ramet-notify need no right to
 * read the file that the settings are from, and each restart finds the same ones. */
int seal_config(const struct config *config, struct err *e);

/* --- notifier.c: the folder of the audit log, and the process that sends it on --- */
/* Before the service starts. */
int notifier_init(struct warden *w, struct err *e);
void notifier_fini(struct warden *w);
void notifier_on_pid(struct warden *w);
void notifier_on_timer(struct warden *w);

#endif
