// SPDX-License-Identifier: Apache-2.0
/*
 * Protocol between the service and the warden, over an inherited SOCK_SEQPACKET pair. Each packet
 * is one struct warden_msg in host byte order. Every request is answered by one WARDEN_REPLY with
 * its `seq`; WARDEN_EXITED is an event, with seq 0. The warden checks each request as hostile, and
 * knows nothing but slots.
 *
 * A slot is a small number that names one jail. The VM in it has the uid and gid vm_uid_base +
 * slot, the cgroup ramet/vm-SLOT and the directory RUN_DIR/vm/SLOT with `ctl.sock` (its listening
 * control socket, group rametd) and `log` (its standard error).
 */
#ifndef RAMET_PROTO_WARDEN_H
#define RAMET_PROTO_WARDEN_H

#include <stdint.h>

#include "proto/versions.h"

#define WARDEN_TEXT_MAX	 240
#define WARDEN_SLOTS_MAX 16384

/* The VM process was started by a previous warden, so its exit status is lost. */
#define WARDEN_STATUS_UNKNOWN (-1)

enum warden_type {
	WARDEN_SPAWN = 1, /* makes the jail, starts a blank VM in it; replies when it listens */
	/* Kills all processes in the slot and removes the jail. Succeeds if the slot is empty. */
	WARDEN_RELEASE = 2,
	/* Drops packets of the VM that would leave the host (proto/net.h). Packets of a new VM may
	 * leave. Replies when the rule is in force. */
	WARDEN_NO_EGRESS = 3,
	/* Sets the cgroup's memory limit, for a blank VM that becomes a VM of another size. */
	WARDEN_MEMORY = 4,
	/* Returns the memory that the cgroup is charged with and that the kernel cannot simply
	 * drop; -ENOTSUP if memory is not accounted. */
	WARDEN_CHARGED = 5,
	/* Sets the VM's share of CPUs and disks when they are short (enum warden_priority). A new
	 * VM has WARDEN_BRINGUP, so that making its jail delays no other jail. */
	WARDEN_PRIORITY = 6,
	/* Sets whether the kernel reclaims memory from this VM, and kills it, before other VMs when
	 * memory runs out. A new VM is not among the first. */
	WARDEN_OOM = 7,
	WARDEN_REPLY = 64,
	/* A VM process died; the slot stays taken until WARDEN_RELEASE. Not sent for a VM that is
	 * being released. Sent again for every dead slot to a service that was restarted. */
	WARDEN_EXITED = 65,
};

enum warden_priority {
	WARDEN_BACKGROUND, /* nobody waits for it; runs when nothing else does */
	WARDEN_BRINGUP,	   /* a request waits for it, or it is blank; runs ahead of guests */
	WARDEN_NORMAL,	   /* a sandbox that serves */
	WARDEN_PRIORITIES,
};

struct warden_msg {
	uint32_t version; /* WARDEN_VERSION */
	uint32_t type;	  /* enum warden_type */
	uint32_t seq;
	uint32_t slot;
	union {
		struct {
			uint32_t vcpus;	      /* 1 to 32 */
			uint32_t ram_mib;     /* maximum RAM for CTL_FILL: 128 to 65536 */
			uint64_t memory_max;  /* bytes, for the cgroup: 128 MiB to 1 TiB */
			uint32_t cpu_max_pct; /* of one CPU: 200 is two; 0: no limit */
			uint32_t pids_max;
		} spawn;
		struct {
			uint64_t max; /* bytes, as spawn.memory_max */
		} memory;
		struct {
			uint32_t priority; /* enum warden_priority */
		} priority;
		struct {
			uint32_t first; /* 0 or 1 */
		} oom;
		struct {
			/* For WARDEN_SPAWN the pid of the VM process in the host's namespace; for
			 * WARDEN_CHARGED bytes. */
			uint64_t value;
			int32_t error; /* 0 or -errno */
			char text[WARDEN_TEXT_MAX];
		} reply;
		struct {
			int32_t status; /* as from waitpid(2), or WARDEN_STATUS_UNKNOWN */
		} exited;
	};
};

#endif
