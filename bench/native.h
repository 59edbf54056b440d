// SPDX-License-Identifier: Apache-2.0
/* What the benchmarks that run ramet-vmm on this machine have in common. */
#ifndef RAMET_BENCH_NATIVE_H
#define RAMET_BENCH_NATIVE_H

#include <stdint.h>

#include "test/native/vmm-client.h"

/* Ends the program with a sentence. */
_Noreturn void native_die(const char *what);
/* `start` is of bench_now_ns. */
double native_ms_since(uint64_t start);
/* Reads --ram-mib, --vcpus and --runs; returns the place of the first argument after them. What is
 * wrong ends the program. */
int native_options(int argc, char **argv, struct vmm_options *o, unsigned *runs);
/* Runs kvm-floor, which prints one object: its figures become the first of ours. */
void native_print_floor(const char *exe, const struct vmm_options *o, unsigned runs);

#endif
