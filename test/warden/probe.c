// SPDX-License-Identifier: Apache-2.0
/*
 * Replaces ramet-vmm in a jail: executes the command of each packet on the control socket and
 * answers with one packet of text. Linked statically, as the jail requires.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HOG_STEP    (1u << 20)
#define THREADS_MAX 8192

static int page_map;

/* --- what a jail must prevent: each function returns true if it was not prevented ------------- */

static bool write_root(void)
{
	return mkdir("/x", 0777) == 0;
}

static bool find_proc(void)
{
	return access("/proc", F_OK) == 0 || access("/dev", F_OK) == 0;
}

static bool climb_out(void)
{
	struct stat st;

	return chdir("..") == 0 && (stat("etc", &st) == 0 || stat("../../etc", &st) == 0);
}

static bool mount_proc(void)
{
	return mount("proc", "/", "proc", 0, NULL) == 0 ||
	       mount("", "/", NULL, MS_REMOUNT | MS_BIND, NULL) == 0;
}

static bool become_root(void)
{
	return setuid(0) == 0 || setgid(0) == 0 || setresuid(-1, 0, -1) == 0;
}

static bool become_neighbour(void)
{
	return setuid(getuid() + 1) == 0;
}

static bool regain_privs(void)
{
	return prctl(PR_CAPBSET_READ, 21 /* CAP_SYS_ADMIN */) == 1 ||
	       prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
}

static bool see_parent(void)
{
	return getppid() != 0 || getpid() != 1;
}

static bool reach_network(void)
{
	struct sockaddr_in {
		unsigned short family, port;
		unsigned char address[4], zero[8];
	} to = {AF_INET, 0x3500, {8, 8, 8, 8}, {0}};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	return fd >= 0 && sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1;
}

static bool raise_files(void)
{
	for (int i = 0; i < 100000; i++)
		if (dup(2) < 0)
			return false;
	return true;
}

/* Prevented because the mount through which the page map was opened is closed, and a file has no
 * entries. */
static bool leave_page_map(void)
{
	return openat(page_map, "..", O_PATH) >= 0 || openat(page_map, "../status", O_RDONLY) >= 0;
}

static bool write_page_map(void)
{
	return write(page_map, "x", 1) == 1;
}

static const struct {
	const char *name;
	bool (*works)(void);
} attempts[] = {
	{"write to the root", write_root},
	{"see /proc or /dev", find_proc},
	{"climb out of the root", climb_out},
	{"mount", mount_proc},
	{"become root", become_root},
	{"become the next VM", become_neighbour},
	{"regain privileges", regain_privs},
	{"see its parent", see_parent},
	{"reach the network", reach_network},
	{"leave its page map", leave_page_map},
	{"write to its page map", write_page_map},
	{"open descriptors without end", raise_files},
};

static void try_all(char *answer, size_t size)
{
	snprintf(answer, size, "nothing works");
	for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++)
		if (attempts[i].works()) {
			snprintf(answer, size, "it can %s", attempts[i].name);
			return;
		}
}

/* --- limits ---------------------------------------------------------------------------------- */

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void make_threads(char *answer, size_t size)
{
	pthread_attr_t attr;
	pthread_t t;
	int made = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	while (made < THREADS_MAX && pthread_create(&t, &attr, wait_for_ever, NULL) == 0)
		made++;
	snprintf(answer, size, "%d", made + 1);
}

static void hog_memory(void)
{
	for (size_t mib = 0; mib < 16384; mib++) {
		char *p = mmap(NULL, HOG_STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		if (p == MAP_FAILED)
			_exit(3);
		memset(p, 1, HOG_STEP);
	}
}

/* --------------------------------------------------------------------------------------------- */

static int option(int argc, char *argv[], const char *name)
{
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return atoi(argv[i + 1]);
	_exit(64);
}

/* Like ramet-vmm: closes the mount and keeps the page map open. */
static int open_page_map(int proc)
{
	int fd = openat(proc, "self/pagemap", O_RDONLY | O_CLOEXEC);

	close(proc);
	return fd;
}

static void tell_page(char *answer, size_t size)
{
	uint64_t entry = 0, page = (uintptr_t)answer / 4096;

	if (pread(page_map, &entry, sizeof(entry), (off_t)(page * sizeof(entry))) < 0)
		snprintf(answer, size, "no page map: %s", strerror(errno));
	else
		snprintf(answer, size, entry >> 63 ? "present" : "absent");
}

static void serve(int fd)
{
	char command[64], answer[256];
	ssize_t n;

	while ((n = recv(fd, command, sizeof(command) - 1, 0)) > 0) {
		command[n] = '\0';
		snprintf(answer, sizeof(answer), "what?");
		if (strcmp(command, "try") == 0)
			try_all(answer, sizeof(answer));
		else if (strcmp(command, "page") == 0)
			tell_page(answer, sizeof(answer));
		else if (strcmp(command, "threads") == 0)
			make_threads(answer, sizeof(answer));
		else if (strcmp(command, "hog") == 0)
			hog_memory();
		else if (strcmp(command, "exit") == 0)
			_exit(7);
		send(fd, answer, strlen(answer), 0);
	}
	close(fd);
}

int main(int argc, char *argv[])
{
	int listener = option(argc, argv, "--ctl-fd");

	page_map = open_page_map(option(argc, argv, "--proc-fd"));
	fprintf(stderr, "probe of slot %d\n", option(argc, argv, "--slot"));
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			return 1;
		serve(fd);
	}
}
