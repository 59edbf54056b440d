// SPDX-License-Identifier: Apache-2.0
/* The command line of ramet-vmm. */
#ifndef RAMET_VMM_CONFIG_H
#define RAMET_VMM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define CONFIG_RAM_MIB_MIN 128
#define CONFIG_RAM_MIB_MAX 65536
#define CONFIG_VCPUS_MAX   32

struct vm_config {
	uint32_t vcpus;
	uint32_t ram_mib; /* maximum size of the guest's RAM */
	uint32_t slot;	  /* identifies this VM in the log */
	uint64_t cid;	  /* the guest's vsock address */
	int kvm_fd;	  /* /dev/kvm */
	int ctl_fd;	  /* listening SOCK_SEQPACKET socket */
	int proc_fd;	  /* root of a procfs mount, closed by vm_new; -1: not passed */
	int tap_fd;	  /* taken over by vm_new, see vio_net_new; -1: not passed */
	/* Rate limits on the host's disk, per second: see vio_blk_limits. 0: no limit. */
	uint32_t disk_bytes_s, disk_ops_s;
	bool ipv6; /* the tap carries IPv6 packets too */
	bool debug_serial;
};

/* Parses the command line and checks every value and the type of each descriptor. */
int vm_config_parse(struct vm_config *out, int argc, char *const *argv, struct err *e);

#endif
