// SPDX-License-Identifier: Apache-2.0
/*
 * Reports on VMs that are stuck, running, or were never started: the real ramet-vmm with tiny
 * guests.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "test/native/guests.h"
#include "test/native/vmm-client.h"

#define RAM_MIB	   128
#define DISK_BYTES (1u << 20)

static struct vmm new_blank_vm(unsigned vcpus)
{
	const struct vmm_options o = {
		.exe = RAMET_VMM, .vcpus = vcpus, .ram_mib = RAM_MIB, .debug_serial = true};
	struct vmm v;

	assert_true(vmm_start(&v, &o));
	return v;
}

static struct vmm boot(unsigned vcpus, int kernel, struct vmm_snapshot *img)
{
	struct vmm v = new_blank_vm(vcpus);

	*img = (struct vmm_snapshot){.base = vmm_file("disk", 4, DISK_BYTES),
				     .disk_bytes = DISK_BYTES};
	assert_int_equal(vmm_boot(&v, kernel, -1, "", img), 0);
	close(kernel);
	return v;
}

static void end(struct vmm *v, struct vmm_snapshot *img)
{
	vmm_stop(v);
	close_fd(&img->base);
	close_fd(&img->writable);
}

static int inspect_into(struct vmm *v, int fd)
{
	struct ctl_msg m = {.type = CTL_INSPECT};

	return vmm_call(v, &m, &fd, 1);
}

/*
 * Inspects like the service, with a memfd of a fixed size. The text is valid until the next call.
 */
static const char *inspect(struct vmm *v)
{
	static char text[CTL_REPORT_MAX + 1];
	scoped_fd int fd = memfd_create("report", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, CTL_REPORT_MAX), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
	assert_int_equal(inspect_into(v, fd), 0);
	assert_int_equal(pread(fd, text, CTL_REPORT_MAX, 0), CTL_REPORT_MAX);
	return text;
}

static void has(const char *report, const char *text)
{
	if (strstr(report, text))
		return;
	fprintf(stderr, "no \"%s\" in:\n%s", text, report);
	fail();
}

/* Inspects until the report contains `text`, for example until a vCPU's thread runs. */
static const char *inspect_until(struct vmm *v, const char *text)
{
	for (;;) {
		const char *report = inspect(v);

		if (strstr(report, text))
			return report;
		usleep(1000);
	}
}

static void has_all_devices(const char *report)
{
	static const char *const names[] = {"blk", "vsock", "rng", "console", "net", "balloon"};
	char line[32];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(line, sizeof(line), "\ndevice %s: status ", names[i]);
		has(report, line);
	}
	has(report, "\n  queue 0");
}

static void test_report_on_a_guest_halted_with_interrupts_off(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_HALT), &img);
	const char *report;

	assert_true(vmm_expect_log(&v, "serial: ready"));
	inspect_until(&v, "mp_state 3 (halted); pending: nothing");
	report = inspect_until(&v, "\nvCPU 0: in KVM_RUN; ");
	has(report, "VM: running, 128 MiB, 1 vCPUs, booted ");
	has(report, "mp_state 3 (halted); pending: nothing");
	has(report, " (interrupts off) ");
	has(report, "\n  LAPIC: IRR none, ISR none, ");
	has(report, "\n  LAPIC timer: LVTT ");
	has(report, ", deadline none\n");
	has(report, "\n  steal time: not used by the guest\n");
	has(report, "\nI/O APIC: ");
	has(report, "; KVM's clock ");
	has_all_devices(report);
	end(&v, &img);
}

static void test_report_on_a_guest_that_spins(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(2, guest_elf(GUEST_TIMEOUT), &img);
	const char *report;

	assert_true(vmm_expect_log(&v, "serial: ready"));
	inspect_until(&v, " r14 eeee r15 ffff\n");
	report = inspect_until(&v, "\nvCPU 0: in KVM_RUN; ");
	has(report, " ms ago: ");
	has(report, " rbp bad\n");
	has(report, " rsp 8ff0 ");
	has(report, "mp_state 0 (runnable)");
	has(report, "mp_state 1 (waiting for INIT)");
	end(&v, &img);
}

/* After many reports, registers and memory are the same, and the guest continues. */
static void test_inspection_changes_nothing(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_TIMEOUT), &img), copy = new_blank_vm(1);

	assert_true(vmm_expect_log(&v, "serial: ready"));
	for (unsigned i = 0; i < 50; i++)
		inspect(&v);
	assert_int_equal(vmm_save(&v, &img), 0);
	assert_int_equal(pwrite(img.memory, "\1", 1, GUEST_FLAG), 1);
	assert_int_equal(vmm_restore(&copy, &img), 0);
	inspect(&copy);
	assert_true(vmm_expect_log(&copy, "serial: same"));
	vmm_stop(&v);
	vmm_stop(&copy);
	vmm_snapshot_close(&img);
}

static void test_all_vcpus_continue_after_inspections(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(4, guest_elf_with(GUEST_CROWD, GUEST_OTHERS, 3), &img);

	for (unsigned i = 0; i < 20; i++)
		inspect(&v);
	assert_true(vmm_expect_log(&v, "serial: all up"));
	for (unsigned i = 0; i < 20; i++)
		inspect(&v);
	assert_int_equal(vmm_save(&v, &img), 0);
	vmm_stop(&v);
	assert_int_equal(pwrite(img.memory, "\1", 1, GUEST_FLAG), 1);
	v = new_blank_vm(4);
	assert_int_equal(vmm_restore(&v, &img), 0);
	inspect(&v);
	assert_true(vmm_expect_log(&v, "serial: still counting"));
	vmm_stop(&v);
	vmm_snapshot_close(&img);
}

/* The report lists the pins of the I/O APIC that the guest has set up. */
static void test_report_has_the_interrupt_pins(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(2, guest_elf_with(GUEST_COPY, GUEST_OTHERS, 1), &img);

	assert_true(vmm_expect_log(&v, "serial: ready"));
	has(inspect(&v), "\n  pin 12: vector 40 to 0 (physical), mode 0, edge\n");
	has(inspect(&v), ", SVR 1ff, ");
	end(&v, &img);
}

static void test_inspected_vm_stays_paused(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_TIMEOUT), &img);

	assert_true(vmm_expect_log(&v, "serial: ready"));
	assert_int_equal(vmm_ask(&v, CTL_PAUSE), 0);
	has(inspect(&v), "VM: paused, ");
	has(inspect(&v), "\nvCPU 0: stopped; ");
	has(inspect(&v), "\n  quiesced or draining");
	assert_int_equal(vmm_ask(&v, CTL_RUN), 0);
	has(inspect(&v), "VM: running, ");
	inspect_until(&v, "\nvCPU 0: in KVM_RUN; ");
	end(&v, &img);
}

/* Reports do not run the vCPUs again. */
static void test_report_on_a_guest_that_ended(void **state)
{
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_RESET), &img);
	char first[256];

	assert_true(vmm_wait_ended(&v));
	has(inspect(&v), "VM: ended, ");
	has(inspect(&v), "\nthe guest has ended: the guest asked for a reboot\n");
	snprintf(first, sizeof(first), "%.*s", 40, strstr(inspect(&v), "vCPU 0: stopped; "));
	*strchrnul(first, ',') = '\0';
	has(inspect(&v), first);
	end(&v, &img);
}

static void test_report_on_a_blank_vm(void **state)
{
	struct vmm v = new_blank_vm(2);
	const char *report = inspect(&v);

	has(report, "VM: blank, 128 MiB, 2 vCPUs\n");
	has(report, "\nvCPU 1: stopped; 0 exits\n");
	has_all_devices(report);
	has(report, "not ready, size ");
	vmm_stop(&v);
}

/* The report is written under the system call filter of a running guest. The guest has no driver
 * for sockets. */
static void test_report_has_guest_connections(void **state)
{
	struct ctl_msg m = {
		.version = CTL_VERSION, .type = CTL_CONNECT, .seq = 1000, .connect = {.port = 77}};
	struct vmm_snapshot img;
	struct vmm v = boot(1, guest_elf(GUEST_HALT), &img);
	const char *report;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(write(pair[0], "12345", 5), 5);
	m.nfds = 1;
	assert_true(vmm_send_raw(&v, &m, sizeof(m), &pair[1], 1));
	report = inspect(&v);
	has(report, "\n  1 connections, 0 resets wait, 0 packets held (0 bytes)\n");
	has(report, " to guest port 77: requested, request not sent, wants to send\n");
	has(report, " our tx_cnt 0 (0 in flight), 5 bytes wait in the socket\n");
	has(report, "0 bytes wait here, 0 in buffers that the service has to read\n");
	close(pair[0]);
	close(pair[1]);
	end(&v, &img);
}

static void test_invalid_requests_are_refused(void **state)
{
	scoped_fd int small = memfd_create("report", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int pipes[2], two[2] = {small, small};
	struct vmm v = new_blank_vm(1);
	struct ctl_msg m = {.type = CTL_INSPECT};

	assert_int_equal(vmm_ask(&v, CTL_INSPECT), -EPROTO);
	assert_int_equal(vmm_call(&v, &m, two, 2), -EPROTO);
	assert_int_equal(fcntl(small, F_ADD_SEALS, F_SEAL_GROW), 0);
	assert_true(inspect_into(&v, small) < 0);
	assert_int_equal(pipe(pipes), 0);
	assert_true(inspect_into(&v, pipes[1]) < 0);
	close(pipes[0]);
	close(pipes[1]);
	has(inspect(&v), "VM: blank, ");
	vmm_stop(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_report_on_a_guest_halted_with_interrupts_off),
		cmocka_unit_test(test_report_on_a_guest_that_spins),
		cmocka_unit_test(test_inspection_changes_nothing),
		cmocka_unit_test(test_all_vcpus_continue_after_inspections),
		cmocka_unit_test(test_report_has_the_interrupt_pins),
		cmocka_unit_test(test_inspected_vm_stays_paused),
		cmocka_unit_test(test_report_on_a_guest_that_ended),
		cmocka_unit_test(test_report_on_a_blank_vm),
		cmocka_unit_test(test_report_has_guest_connections),
		cmocka_unit_test(test_invalid_requests_are_refused),
	};

	if (!vmm_kvm_usable()) {
		fprintf(stderr, "skipped: /dev/kvm can't be used here: %s\n", strerror(errno));
		return 77;
	}
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
