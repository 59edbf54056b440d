// SPDX-License-Identifier: Apache-2.0
/*
 * rametd <-> one VM process, over its SOCK_SEQPACKET control socket. The VM process listens; the
 * newest connection replaces the one before it (rametd was restarted), and nothing about the VM
 * changes when none is there. One struct ctl_msg per packet, host byte order (same machine: both
 * ends check `version`), with descriptors in SCM_RIGHTS. Every request is answered by one CTL_REPLY
 * with its `seq`; events have seq 0. Both sides check each message as hostile.
 *
 * A VM process speaks one version, and its hello says which. rametd starts VM processes of
 * CTL_VERSION only. After an upgrade it also takes over those of CTL_VERSION_BEFORE and speaks that
 * version to them. Version 4 differs in one thing: its VMs have no `instance`.
 */
#ifndef RAMET_PROTO_CTL_H
#define RAMET_PROTO_CTL_H

#include <stdint.h>

#define CTL_VERSION	   5
#define CTL_VERSION_BEFORE 4
#define CTL_INSTANCE_LEN   16
#define CTL_CMDLINE_MAX	   1008
#define CTL_TEXT_MAX	   240
#define CTL_REPORT_MAX	   (64u << 10)
#define CTL_FDS_MAX	   128 /* descriptors in one message */
#define CTL_LAYERS_MAX	   90  /* sealed disk layers in one fill */
#define CTL_MEMORY_MAX	   24  /* memory layers over the memory file in one fill */

enum ctl_type {
	/*
	 * Fills a shell. fds, in order: CTL_BOOT: kernel ELF, initramfs (if has_initrd);
	 * CTL_RESTORE: state file, memory file, `memory_layers` memory layers (oldest first); then
	 * for both: disk base, `layers` sealed disk layers (oldest first), one empty file for the
	 * writable layer. A disk that is larger than that of the image has grown: the guest is
	 * told. The reply comes when the vCPUs run. After a failed fill the shell is of no more
	 * use.
	 */
	CTL_FILL = 1,

	/*
	 * Opens a vsock connection from the host (CID 2) to the guest's `connect.port` and joins
	 * it to the stream socket passed as the one fd. The reply comes when the guest accepted
	 * (0), refused (-ECONNREFUSED) or did not answer in 5 s (-ETIMEDOUT). EOF, back-pressure
	 * and reset pass through both ways.
	 */
	CTL_CONNECT = 2,

	CTL_PAUSE = 3, /* vCPUs stop, devices drain their I/O; replies when all is still */
	CTL_RUN = 4,   /* the paused VM goes on */

	/*
	 * Writes the paused VM to fds: state file, memory file (both empty, read-write), and
	 * seals its writable disk layer (its file is from then on an immutable layer; the third
	 * fd is the new writable one). Memory is written sparse: pages of zeros are holes.
	 */
	CTL_SAVE = 5,

	CTL_STATS = 6, /* replies with `stats` */
	CTL_QUIT = 7,  /* replies, then the process ends with status 0; nothing is flushed */

	/*
	 * Takes an image of the running VM and lets it go on: its clients notice nothing. fds: one
	 * empty file, the writable disk layer it goes on with (unused, and closed, when the disk
	 * was not written since the last image). The reply carries, as fds, the image in the order
	 * of a CTL_RESTORE without its writable layer: state file, memory file, memory layers, disk
	 * base, disk layers; `fork` says how many. VM and image are independent from then on; an
	 * image serves any number of fills. On failure the VM runs on as if nothing was asked.
	 *
	 * With `stay_paused` it does not go on: it is paused as after a CTL_PAUSE, at the very
	 * moment of the image, until a CTL_RUN. It goes on by itself when the connection that asked
	 * is gone before the answer.
	 */
	CTL_FORK = 8,

	/*
	 * Writes a report for people on vCPUs, interrupts and devices to the one fd, a memory file
	 * of at most CTL_REPORT_MAX bytes that can't grow: text, up to its end or a NUL. In any
	 * state of the VM, whose vCPUs stop for a moment. A VM process of an earlier release, which
	 * does not know the request, answers -EPROTO.
	 */
	CTL_INSPECT = 9,

	CTL_REPLY = 64,
	CTL_HELLO = 65, /* event, first packet on every connection */
	CTL_ENDED = 66, /* event: the guest is gone; the process waits for CTL_QUIT */
};

enum ctl_fill_kind { CTL_BOOT = 1, CTL_RESTORE = 2 };

enum ctl_vm_state { CTL_SHELL = 1, CTL_RUNNING, CTL_PAUSED, CTL_GUEST_ENDED };

enum ctl_end_reason {
	CTL_END_RESET = 1, /* the guest asked for a reboot */
	CTL_END_POWEROFF,
	CTL_END_CRASH, /* triple fault or an exit the VMM can't serve */
	CTL_END_HOST,  /* a host failure the VM can't go on from */
};

struct ctl_msg {
	uint32_t version; /* CTL_VERSION, or CTL_VERSION_BEFORE of a VM that an upgrade left */
	uint32_t type;	  /* enum ctl_type */
	uint32_t seq;	  /* set by the requester, not 0; 0 in events */
	uint32_t nfds;	  /* descriptors that travel with this message */
	union {
		struct {
			uint32_t kind; /* enum ctl_fill_kind */
			uint32_t has_initrd;
			uint32_t ram_mib; /* even; at least 128, at most what the shell has room for
					   */
			uint32_t layers;
			uint32_t memory_layers;	       /* CTL_RESTORE, else 0 */
			uint64_t disk_bytes;	       /* size the guest sees; a multiple of 4096 */
			char cmdline[CTL_CMDLINE_MAX]; /* CTL_BOOT; NUL-terminated */
			/* Names this VM among all there ever were; random, not all zeros. */
			uint8_t instance[CTL_INSTANCE_LEN];
		} fill;
		struct {
			uint32_t port;
		} connect;
		struct {
			uint32_t children; /* so many fills are to come, about: what is worth it */
			uint32_t stay_paused; /* 0 or 1 */
		} fork;
		struct {
			int32_t error;		 /* 0 or -errno */
			char text[CTL_TEXT_MAX]; /* sentence, NUL-terminated; empty when error is 0
						  */
			union {
				struct {
					uint64_t uptime_ns; /* since the fill */
					uint64_t exits;	    /* KVM_RUN returns, all vCPUs */
					uint64_t disk_read_bytes, disk_write_bytes;
					uint64_t disk_layer_bytes; /* in the writable layer */
					uint64_t vsock_connections;
					/* Frames, both ways; dropped: of either side, a count. */
					uint64_t net_rx_bytes, net_tx_bytes, net_dropped;
				} stats;
				struct {
					uint64_t running_ns; /* since then vCPUs run, on
								CLOCK_MONOTONIC */
				} fill;
				struct {
					uint64_t pause_ns; /* vCPUs stood still for so long */
				} save;
				struct {
					uint64_t pause_ns;     /* as in `save` */
					uint64_t copied_bytes; /* of RAM, into the new memory layer
								*/
					uint64_t disk_bytes;   /* size the guest sees */
					uint32_t memory_layers, layers;
				} fork;
			};
		} reply;
		struct {
			uint32_t state; /* enum ctl_vm_state */
			uint32_t vcpus;
			uint32_t ram_mib; /* of a shell: the most it can be filled with */
			uint32_t pid;	  /* as the process sees itself */
			uint8_t instance[CTL_INSTANCE_LEN]; /* of its fill; zeros in a shell */
		} hello;
		struct {
			uint32_t reason; /* enum ctl_end_reason */
			char text[CTL_TEXT_MAX];
		} ended;
	};
};

_Static_assert(sizeof(struct ctl_msg) == 1072, "version 4 has messages of the same size");

#endif
