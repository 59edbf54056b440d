// SPDX-License-Identifier: Apache-2.0
/* A sandbox's use of the host, now and in the last hour. */
#ifndef RAMET_ORCHESTRATOR_OBSERVE_USAGE_H
#define RAMET_ORCHESTRATOR_OBSERVE_USAGE_H

#include "orchestrator/sandbox/sandboxes.h"

#define USAGE_STEP_MS  10000
#define USAGE_KEPT     360 /* samples of a sandbox: an hour */
#define USAGE_CPU_NONE UINT32_MAX

/* What the host sees of a sandbox's VM at one moment. Numbers about the disk and the network come
 * from the VM process, and are limited to 2^53. */
struct usage_sample {
	int64_t at_ms;	       /* ms since the epoch */
	uint64_t cpu_ms;       /* CPU time of the VM process since it was started */
	uint64_t memory_bytes; /* of the VM process in RAM, with pages that others map too */
	uint64_t disk_bytes;   /* in the VM's newest disk layer */
	uint64_t net_in_bytes, net_out_bytes; /* frames to and from the guest, since its VM began */
	/* CPU time since the previous sample, in 1/100 percent of what all vCPUs could use;
	 * USAGE_CPU_NONE: there is no earlier sample of this VM. */
	uint32_t cpu;
};

struct usage_query {
	int64_t since_ms, until_ms; /* inclusive, ms since the epoch; 0: no limit */
	unsigned most;		    /* of samples: the newest ones; at most USAGE_KEPT */
};

/* Valid during the callback only. */
struct usage_view {
	struct size size; /* of the sandbox */
	struct usage_sample now;
	const struct usage_sample *samples; /* oldest first */
	unsigned n;
};
typedef void service_usage_fn(void *arg, const struct usage_view *view, const struct failure *f);

/* Measures the sandbox now, and reports this sample and those of the last hour. Does not count as
 * activity in the sandbox. If the VM process does not answer within a second, the numbers about the
 * disk and the network are copied from the previous sample. */
struct op *service_usage(struct service *c, const char *tenant, const char *id,
			 const struct usage_query *query, service_usage_fn *fn, void *arg);

#endif
