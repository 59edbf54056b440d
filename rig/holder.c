// SPDX-License-Identifier: Apache-2.0
/*
 * PID 1 of the rig's host. It keeps one empty KVM VM open, because the first VM
 * opened and the last one closed switch SVM on and off on all CPUs, which costs
 * tens of milliseconds under emulation. The VM has a vCPU that never runs, whose
 * local APIC is off. Otherwise KVM would patch its code whenever the first APIC is
 * switched off or the last one on, and QEMU does not always notice (README.md).
 * Then it starts sshd and reaps orphans.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

static void hold_vm(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0UL);

	if (vm < 0 || ioctl(vm, KVM_CREATE_IRQCHIP) < 0 || ioctl(vm, KVM_CREATE_VCPU, 0UL) < 0)
		fprintf(stderr, "rig: KVM cannot be used: %s\n", strerror(errno));
}

static pid_t start(char *const argv[])
{
	pid_t pid = fork();

	if (pid == 0) {
		setsid();
		execv(argv[0], argv);
		fprintf(stderr, "rig: exec %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	return pid;
}

int main(void)
{
	char *const start_up[] = {"/bin/sh", "/usr/sbin/rig-start", NULL};
	char *const sshd[] = {"/usr/sbin/sshd", "-D", "-e", NULL};
	pid_t sshd_pid;

	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("HOME", "/root", 1);
	setenv("LANG", "C.UTF-8", 1);
	signal(SIGCHLD, SIG_DFL);
	hold_vm();
	printf("rig: up\n");
	fflush(stdout);
	start(start_up);
	sshd_pid = start(sshd);

	for (;;) {
		int status;
		pid_t pid = wait(&status);

		if (pid < 0 && errno == ECHILD)
			pause();
		if (pid == sshd_pid) {
			fprintf(stderr, "rig: sshd ended with status %#x\n", status);
			sync();
			reboot(RB_AUTOBOOT); /* QEMU runs with -no-reboot */
		}
	}
}
