// SPDX-License-Identifier: Apache-2.0
/* Runs a ramet-vmm and talks to it over its control socket: for tests, benchmarks and by hand. */
#ifndef RAMET_TEST_NATIVE_VMM_CLIENT_H
#define RAMET_TEST_NATIVE_VMM_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ctl.h"

struct vmm {
	pid_t pid;
	int ctl;      /* connection to its control socket */
	int log;      /* read end of its log; -1: it logs to the standard error of the test */
	uint32_t seq; /* of the last request */
	bool has_hello;
	struct ctl_msg hello;
	bool has_ended;
	struct ctl_msg ended; /* the CTL_ENDED that came, if one did */
	char text[16384];     /* log read so far */
	size_t text_len;
	uint8_t address[128]; /* of the control socket */
	uint32_t address_len;
};

struct vmm_options {
	const char *exe;
	unsigned vcpus, ram_mib;
	bool debug_serial;
	bool log_here; /* it logs to the standard error of the test */
	int tap;       /* its end of the network, which the caller keeps; 0: none */
};

/* Returns false, with errno set, if this machine has no KVM to use. */
bool vmm_kvm_usable(void);

/*
 * Starts a ramet-vmm and waits for its hello. On failure, returns false with a message on standard
 * error.
 */
bool vmm_start(struct vmm *v, const struct vmm_options *o);
/* Opens a new connection, which replaces the previous one, and waits for the hello. */
bool vmm_connect(struct vmm *v);
/* Kills the ramet-vmm if it still runs; returns its wait status. */
int vmm_stop(struct vmm *v);

#define VMM_INSTANCE 0x5a /* each byte of a filled VM's instance */

/*
 * Sends a request (fills in version, seq, nfds and, in a CTL_FILL, the instance) and waits for its
 * reply. Returns the reply's error code.
 */
int vmm_call(struct vmm *v, struct ctl_msg *m, const int *fds, unsigned nfds);
/* Does the same for a request without content. */
int vmm_ask(struct vmm *v, enum ctl_type type);
/* Sends raw bytes. */
bool vmm_send_raw(struct vmm *v, const void *data, size_t len, const int *fds, unsigned nfds);
/* Waits for one packet. Returns false at the end of file. */
bool vmm_receive(struct vmm *v, struct ctl_msg *m);
/* Does the same, and returns the *nfds descriptors that come with the packet. */
bool vmm_receive_fds(struct vmm *v, struct ctl_msg *m, int fds[CTL_FDS_MAX], unsigned *nfds);
/* Waits for the event CTL_ENDED. */
bool vmm_wait_ended(struct vmm *v);
/* Reads the log until it has `text`, and forgets the log before that. Returns false if the log ends
 * first. */
bool vmm_expect_log(struct vmm *v, const char *text);
/* Copies the rest of the line that vmm_expect_log found. */
bool vmm_log_rest(struct vmm *v, char *out, size_t size);

/* Makes a sealed input of a CTL_FILL: returns the fd of a memory file of `bytes` bytes. */
int vmm_file(const void *data, size_t len, uint64_t bytes);

/* A snapshot: returned by CTL_FORK and read by CTL_RESTORE. */
struct vmm_snapshot {
	int state, memory, base;
	int memory_layers[CTL_MEMORY_MAX];
	unsigned nmemory_layers;
	int layers[CTL_LAYERS_MAX];
	unsigned nlayers;
	uint64_t disk_bytes;
	uint32_t ram_mib; /* 0: the maximum of the blank VM */
	int writable;	  /* writable layer of a VM that was booted; else -1 */
};

/* Folder for the files of writable disk layers; NULL: memory files. */
extern const char *vmm_layers_in;

int vmm_boot(struct vmm *v, int kernel, int initrd, const char *cmdline, struct vmm_snapshot *disk);
/* Takes a snapshot of the VM, which stays paused. The snapshot replaces what `img` has of the boot,
 * and owns its files; those of the state and the memory are copies that the caller may change. */
int vmm_save(struct vmm *v, struct vmm_snapshot *img);
int vmm_restore(struct vmm *v, const struct vmm_snapshot *img);
/*
 * Forks the running VM. On success `img` owns the received files, except `writable` (-1), and
 * *reply is the reply.
 */
int vmm_fork(struct vmm *v, struct vmm_snapshot *img, struct ctl_msg *reply);
/* Do the two halves of vmm_fork. */
bool vmm_ask_fork(struct vmm *v, bool stay_paused);
int vmm_take_fork(struct vmm *v, struct vmm_snapshot *img, struct ctl_msg *reply);
void vmm_snapshot_close(struct vmm_snapshot *img);

#endif
