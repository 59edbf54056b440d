// SPDX-License-Identifier: Apache-2.0
/*
 * Prints the frequency of this machine's time stamp counter in kHz. QEMU passes the counter to the
 * rig's kernel unchanged. A kernel that gets the frequency on its command line need not measure it
 * against the emulated timer chip. That measurement fails on a busy machine, and the kernel would
 * then wait forever for ticks.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct moment {
	int64_t ns;
	uint64_t ticks;
};

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* Returns both clocks at the same moment. Of several tries it takes the shortest one. */
static struct moment read_clocks(void)
{
	struct moment best = {0};
	int64_t least = INT64_MAX;

	for (int i = 0; i < 20; i++) {
		int64_t before = now_ns();
		uint64_t ticks = __rdtsc();
		int64_t after = now_ns();

		if (after - before < least) {
			least = after - before;
			best = (struct moment){before + least / 2, ticks};
		}
	}
	return best;
}

int main(void)
{
	struct timespec pause = {.tv_nsec = 100000000};
	struct moment from = read_clocks(), to;

	nanosleep(&pause, NULL);
	to = read_clocks();
	printf("%.0f\n", (double)(to.ticks - from.ticks) * 1e6 / (double)(to.ns - from.ns));
	return 0;
}
