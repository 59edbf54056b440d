// SPDX-License-Identifier: Apache-2.0
/*
 * Protocol between rametd and one VM process, over the process's SOCK_SEQPACKET control socket. The
 * VM process listens. The newest connection replaces the previous one (rametd was restarted). The
 * VM continues as it is, running or paused, while there is no connection. Each packet is one struct
 * ctl_msg in host byte order (both ends are on the same machine and check `version`), with
 * descriptors in SCM_RIGHTS. Every request is answered by one CTL_REPLY with its `seq`; events have
 * seq 0. Both sides treat each message as hostile and check it.
 *
 * A VM process speaks one version, which its hello names: after an upgrade it still runs the
 * program that it was started with. In all versions `version` is the first field of a message. A
 * request that a VM process does not know is answered with -EPROTO.
 *
 * A blank VM is a VM process without a guest: CTL_BLANK, until a CTL_FILL.
 */
#ifndef RAMET_PROTO_CTL_H
#define RAMET_PROTO_CTL_H

#include <stdint.h>

#include "proto/versions.h"

#define CTL_INSTANCE_LEN 16
#define CTL_CMDLINE_MAX	 1008
#define CTL_TEXT_MAX	 240
#define CTL_REPORT_MAX	 (64u << 10)
#define CTL_FDS_MAX	 128 /* descriptors in one message */
#define CTL_LAYERS_MAX	 90  /* sealed disk layers in one CTL_FILL */
#define CTL_MEMORY_MAX	 24  /* memory layers over the memory file in one CTL_FILL */

enum ctl_type {
	/*
	 * Boots a kernel in a blank VM, or restores a snapshot into it.
	 * Descriptors, in order:
	 *   CTL_BOOT: kernel ELF, initramfs (if has_initrd);
	 *   CTL_RESTORE: state file, memory file, `memory_layers` memory layers (oldest first);
	 *   then for both: disk base, `layers` sealed disk layers (oldest first), one empty file
	 *   for the writable layer.
	 * If the disk is larger than in the snapshot, it has grown, and the guest is notified. The
	 * reply comes when the vCPUs run. After a failure the VM process cannot be used again.
	 */
	CTL_FILL = 1,

	/*
	 * Opens a vsock connection from the host (CID 2) to the guest's `connect.port` and joins
	 * it to the stream socket passed as the one descriptor. The reply says that the guest
	 * accepted (0), refused (-ECONNREFUSED), did not answer within 5 s (-ETIMEDOUT), or has as
	 * many connections as possible (-EMFILE). EOF, back-pressure and reset pass through in both
	 * directions.
	 */
	CTL_CONNECT = 2,

	CTL_PAUSE = 3, /* stops vCPUs, drains devices' I/O; replies when the VM is quiesced */
	CTL_RUN = 4,   /* lets the paused VM continue */

	CTL_STATS = 6, /* replies with `stats` */
	CTL_QUIT = 7,  /* replies, then the process exits with status 0; flushes nothing */

	/*
	 * Takes a snapshot of the running VM and lets it continue; its clients notice nothing.
	 * Descriptors: one empty file, the writable disk layer to continue with (unused, and
	 * closed, if the disk was not written since the previous snapshot). The reply carries the
	 * snapshot's descriptors in the order of a CTL_RESTORE without its writable layer: state
	 * file, memory file, memory layers, disk base, disk layers; `fork` says how many. VM and
	 * snapshot are independent from then on; a snapshot can be restored any number of times. On
	 * failure the VM runs on as before.
	 *
	 * With `stay_paused` the VM is paused as after a CTL_PAUSE, at the very moment of the
	 * snapshot, until a CTL_RUN. It continues by itself if the connection that sent the request
	 * is closed before the reply.
	 */
	CTL_FORK = 8,

	/*
	 * Writes a report for people on vCPUs, interrupts and devices to the one descriptor, a
	 * memory file of at most CTL_REPORT_MAX bytes that cannot grow: the text ends at the first
	 * NUL, or at the end of the file. Works in any state of the VM; the vCPUs stop for a
	 * moment.
	 */
	CTL_INSPECT = 9,

	/*
	 * Starts to record which pages of RAM the guest uses. The next snapshot contains the list,
	 * and VMs restored from it map these pages before they run. The guest's kernel begins with
	 * what it does after a restore, so connections to the guest end. For a running VM that has
	 * booted and was never forked; replies -ENOTSUP if the host's kernel can't record or map
	 * them.
	 */
	CTL_RECORD = 10,

	CTL_REPLY = 64,
	CTL_HELLO = 65, /* event: the first packet on every connection */
	CTL_ENDED = 66, /* event: the guest has ended; the process waits for CTL_QUIT */
};

enum ctl_fill_kind { CTL_BOOT = 1, CTL_RESTORE = 2 };

enum ctl_vm_state { CTL_BLANK = 1, CTL_RUNNING, CTL_PAUSED, CTL_GUEST_ENDED };

enum ctl_end_reason {
	CTL_END_RESET = 1, /* the guest asked for a reboot */
	CTL_END_POWEROFF,
	CTL_END_CRASH, /* a triple fault, or an exit that the VMM cannot handle */
	CTL_END_HOST,  /* a host failure from which the VM cannot continue */
};

struct ctl_msg {
	uint32_t version; /* CTL_VERSION */
	uint32_t type;	  /* enum ctl_type */
	uint32_t seq;	  /* set by the requester, not 0; 0 in events */
	uint32_t nfds;	  /* descriptors that accompany this message */
	union {
		struct {
			uint32_t kind; /* enum ctl_fill_kind */
			uint32_t has_initrd;
			uint32_t ram_mib; /* even; at least 128, at most the blank VM's `ram_mib` */
			uint32_t layers;
			uint32_t memory_layers;	       /* CTL_RESTORE, else 0 */
			uint64_t disk_bytes;	       /* size the guest sees; a multiple of 4096 */
			char cmdline[CTL_CMDLINE_MAX]; /* CTL_BOOT; NUL-terminated */
			/* Identifies this VM among all VMs ever; random, not all zeros. */
			uint8_t instance[CTL_INSTANCE_LEN];
		} fill;
		struct {
			uint32_t port;
			uint32_t vital; /* 0 or 1: may take the last place, which others leave free
					 */
		} connect;
		struct {
			uint32_t children; /* expected number of restores, roughly; guides what to
					      copy */
			uint32_t stay_paused; /* 0 or 1 */
		} fork;
		struct {
			int32_t error;		 /* 0 or -errno */
			char text[CTL_TEXT_MAX]; /* sentence, NUL-terminated; empty when error is 0
						  */
			union {
				struct {
					uint64_t uptime_ns; /* since CTL_FILL */
					uint64_t exits;	    /* KVM_RUN returns, all vCPUs */
					uint64_t disk_read_bytes, disk_write_bytes;
					uint64_t disk_layer_bytes; /* in the writable layer */
					uint64_t vsock_connections;
					/* Bytes each way; net_dropped: frames of both ways. */
					uint64_t net_rx_bytes, net_tx_bytes, net_dropped;
				} stats;
				struct {
					uint64_t running_ns; /* when the vCPUs started, on
								CLOCK_MONOTONIC */
				} fill;
				struct {
					uint64_t pause_ns;     /* duration of the vCPUs' pause */
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
			uint32_t ram_mib; /* of a blank VM: the maximum for CTL_FILL */
			uint32_t pid;	  /* as the process sees itself */
			uint8_t instance[CTL_INSTANCE_LEN]; /* from CTL_FILL; zeros in a blank VM */
		} hello;
		struct {
			uint32_t reason; /* enum ctl_end_reason */
			char text[CTL_TEXT_MAX];
		} ended;
	};
};

#endif
