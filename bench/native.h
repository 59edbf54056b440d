// SPDX-License-Identifier: Apache-2.0
/* Functions shared by the benchmarks that run ramet-vmm on this machine. */
#ifndef RAMET_BENCH_NATIVE_H
#define RAMET_BENCH_NATIVE_H

#include <stdint.h>

#include "test/native/vmm-client.h"

/* Ends the program with a message. */
_Noreturn void native_die(const char *what);
/* Returns the ms since `start`, a time of bench_now_ns(). */
double native_ms_since(uint64_t start);
/* Reads --ram-mib, --vcpus and --runs; returns the index of the first argument after them. An
 * invalid option ends the program. */
int native_options(int argc, char **argv, struct vmm_options *o, unsigned *runs);
/* Runs kvm-floor and prints its figures as the first members of a JSON object. */
void native_print_floor(const char *exe, const struct vmm_options *o, unsigned runs);

#endif
