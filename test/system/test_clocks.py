# SPDX-License-Identifier: Apache-2.0
"""Clocks of several vCPUs: after a fork and after a resume, time goes back on none of them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from conftest import bash, on_host
from ramet import Client, Sandbox

SECONDS = 60

# Two threads, each on a CPU of its own, hand the latest reading of the clock and of the TSC back and
# forth. Each reading must be at least as late as the one that it was handed.
HANDOVER = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

static _Atomic int turn;
static long long last_ns, end_ns;
static unsigned long long last_tsc, handovers;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void check(int cpu)
{
	long long ns = now();
	unsigned long long tsc;

	_mm_lfence(); /* the TSC is read after the clock, and after the turn was handed over */
	tsc = __rdtsc();

	if (ns < last_ns || tsc < last_tsc) {
		printf("CPU %d, after %llu: clock %lld ns, TSC %lld behind\n", cpu, handovers,
		       last_ns - ns, (long long)(last_tsc - tsc));
		exit(1);
	}
	last_ns = ns;
	last_tsc = tsc;
	handovers++;
}

static void *run(void *arg)
{
	int cpu = (int)(long)arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		exit(2);
	for (long long ns = 0; ns < end_ns;) {
		while (atomic_load(&turn) != cpu)
			sched_yield();
		check(cpu);
		ns = last_ns;
		atomic_store(&turn, !cpu);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t other;

	end_ns = now() + atoll(argv[1]) * 1000000000ll;
	if (pthread_create(&other, NULL, run, (void *)1))
		return 3;
	run((void *)0);
	pthread_join(other, NULL);
	printf("%llu handovers\n", handovers);
	return handovers < 1000;
}
"""


def test_no_vcpu_sees_time_go_back_after_fork_and_resume(client: Client) -> None:
    """The threads run already when the snapshot is made, and go on in the copy."""
    with ExitStack() as stack:
        parent = stack.enter_context(Sandbox(client=client, vcpus=2))
        parent.upload(HANDOVER.encode(), "/root/handover.c")
        assert bash(parent, "gcc -O2 -o /root/handover /root/handover.c -pthread; nproc") == "2\n"
        running = parent.processes.start(["/root/handover", str(SECONDS)], detach=True)
        forked, frozen = (stack.enter_context(child) for child in parent.fork(2))
        resumed = stack.enter_context(Sandbox.resume(frozen.freeze().id, client=client))
        for sandbox in (parent, forked, resumed):
            done = sandbox.processes.attach(running.id).wait()
            assert done.exit_code == 0, done.stdout


def test_clocks_of_copies_come_from_equal_tscs(client: Client) -> None:
    source = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    if on_host(f"cat {source}").strip() != "tsc":
        pytest.skip("the host itself does not use its TSC")
    with ExitStack() as stack:
        parent = stack.enter_context(Sandbox(client=client, vcpus=2))
        forked, frozen = (stack.enter_context(child) for child in parent.fork(2))
        resumed = stack.enter_context(Sandbox.resume(frozen.freeze().id, client=client))
        for sandbox in (parent, forked, resumed):
            assert "from equal TSCs" in on_host(f"rametctl inspect {sandbox.id}")
