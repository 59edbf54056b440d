// SPDX-License-Identifier: Apache-2.0
/* What ramet-vmm is told on its command line. */
#ifndef RAMET_VMM_CONFIG_H
#define RAMET_VMM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define CONFIG_RAM_MIB_MIN 128
#define CONFIG_RAM_MIB_MAX 65536
#define CONFIG_VCPUS_MAX   32

struct config {
	uint32_t vcpus;
	uint32_t ram_mib; /* the most that the shell can be filled with */
	uint32_t slot;	  /* names this VM in the log */
	uint64_t cid;	  /* the guest's vsock address */
	int kvm_fd;	  /* /dev/kvm */
	int ctl_fd;	  /* listening SOCK_SEQPACKET socket */
	int proc_fd;	  /* root of a procfs mount, for vm_new to close; -1: none was passed */
	int tap_fd;	  /* for vm_new to take: see vio_net_new; -1: none was passed */
	/* of the host's disk, each second: see vio_blk_limits; 0: no limit */
	uint32_t disk_bytes_s, disk_ops_s;
	bool ipv6; /* packets of IPv6 go out by the tap as well */
	bool debug_serial;
};

/* Every value is checked, and both descriptors are what they should be. */
int config_parse(struct config *out, int argc, char *const *argv, struct err *e);

#endif
