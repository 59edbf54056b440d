// SPDX-License-Identifier: Apache-2.0
/* Checks whether a host can run Ramet, and run it well (`rametctl doctor`). */
#ifndef RAMET_ORCHESTRATOR_OPERATOR_DOCTOR_H
#define RAMET_ORCHESTRATOR_OPERATOR_DOCTOR_H

#include <stdbool.h>
#include <stdio.h>

#include "orchestrator/config/config.h"

enum doctor_result { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_PROBLEM };

struct doctor_finding {
	const char *check; /* one word, like "kvm" */
	enum doctor_result result;
	const char *text;   /* what was found */
	const char *remedy; /* what to do; NULL if all is well */
};

typedef void doctor_found_fn(void *arg, const struct doctor_finding *finding);

struct doctor_host {
	const char *root; /* "": this host; else a folder with copies of its files */
	const struct config *config;
	bool cores_are_apart; /* the kernel keeps VMs off each other's cores */
	doctor_found_fn *found;
	void *arg;
};

/* Runs the checks that only read files below `root`: KVM, CPU, cgroups, clock, memory, firewall.
 * Calls found() once for each of them, and for each weakness of the CPU. A file that is missing is
 * reported only if Ramet needs it. */
void doctor_check_files(const struct doctor_host *h);

/* Runs the checks that do more than read files. The checks of the disk write small unnamed files in
 * state_dir below `root`, or in its nearest parent that exists. The checks of the clock and of the
 * limits for max_vms ask the kernel. */
void doctor_check_live(const struct doctor_host *h);

/* Writes findings as they come: a line each, with the remedy below it, or as JSON. */
struct doctor_printer {
	FILE *out;
	bool json;
	unsigned count[DOCTOR_PROBLEM + 1];
};
void doctor_print_begin(struct doctor_printer *p);
doctor_found_fn doctor_print; /* arg: the struct doctor_printer */
/* Ends the output. Returns the worst result. */
enum doctor_result doctor_print_end(struct doctor_printer *p);

#endif
