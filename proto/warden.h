// SPDX-License-Identifier: Apache-2.0
/*
 * rametd <-> warden, over an inherited SOCK_SEQPACKET pair. One struct warden_msg per packet, host
 * byte order. Every request is answered by one WARDEN_REPLY with its `seq`; WARDEN_EXITED comes
 * unasked with seq 0. The warden checks each request as hostile: it knows nothing but slots.
 *
 * A slot is a small number that names one jail: VM `slot` has the uid and gid vm_uid_base + slot,
 * the cgroup ramet/vm-SLOT and the directory RUN_DIR/vm/SLOT with `ctl.sock` (its listening
 * control socket, group rametd) and `log` (its standard error).
 */
#ifndef RAMET_PROTO_WARDEN_H
#define RAMET_PROTO_WARDEN_H

#include <stdint.h>

#define WARDEN_VERSION	 4
#define WARDEN_TEXT_MAX	 240
#define WARDEN_SLOTS_MAX 16384

/* The VM process was started by an earlier warden: nobody could ask how it ended. */
#define WARDEN_STATUS_UNKNOWN (-1)

enum warden_type {
	WARDEN_SPAWN = 1,   /* makes the jail and starts a shell in it; replies when it listens */
	WARDEN_RELEASE = 2, /* kills what is in the slot and removes the jail; 0 if it was empty */
	/* Whether packets of the VM may leave the host (proto/net.h). A new VM's may. Replies when
	 * it holds. */
	WARDEN_EGRESS = 3,
	/* The cgroup's limit of memory, for a shell that is to become a VM of another size. */
	WARDEN_MEMORY = 4,
	/* What the cgroup is charged with and the kernel can't just drop. Where nothing counts it,
	 * -ENOTSUP. */
	WARDEN_CHARGED = 5,
	/* The VM's share where CPUs and disks are short (enum warden_priority). A new VM's is
	 * WARDEN_BRINGUP, so that making its jail holds up no other's. */
	WARDEN_PRIORITY = 6,
	/* Whether the VM is among the first that the kernel takes memory from, and ends, when it
	 * runs out. A new one is not. */
	WARDEN_OOM = 7,
	WARDEN_REPLY = 64,
	/* A VM process died; the slot stays taken until WARDEN_RELEASE. Not sent for one that is
	 * being released. A service that starts anew is told again of every dead slot. */
	WARDEN_EXITED = 65,
};

enum warden_priority {
	WARDEN_BACKGROUND, /* nobody waits for it: it runs when nothing else does */
	WARDEN_BRINGUP,	   /* a request waits for it: ahead of running guests */
	WARDEN_NORMAL,	   /* it serves */
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
			uint32_t ram_mib;     /* the most it can be filled with: 128 to 65536 */
			uint64_t memory_max;  /* bytes, for the cgroup: 128 MiB to 1 TiB */
			uint32_t cpu_max_pct; /* of one CPU: 200 is two; 0: no limit */
			uint32_t pids_max;
		} spawn;
		struct {
			uint32_t allowed; /* 0 or 1 */
		} egress;
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
			/* To WARDEN_SPAWN the pid of the VM process, as the host sees it; to
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
