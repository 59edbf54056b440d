// SPDX-License-Identifier: Apache-2.0
#include "test/native/vmm-client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file-sum.h"
#include "base/message-fds.h"

#define TIMEOUT_MS 60000 /* after this time without an answer, the test fails */

/* The descriptors a VM process is started with. */
enum { KVM_FD = 3, CTL_FD = 4, TAP_FD = 5 };

static bool complain(const char *what)
{
	fprintf(stderr, "vmm-client: %s: %s\n", what, strerror(errno));
	return false;
}

static bool wait_for(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int r;

	do {
		r = poll(&p, 1, TIMEOUT_MS);
	} while (r < 0 && errno == EINTR);
	return r == 1;
}

/* Runs in the child: makes only calls that are safe after fork. */
static void run_child(const struct vmm_options *o, int kvm, int listener, int log)
{
	int tap = o->tap, last = CTL_FD, argc = 11;
	char vcpus[16], ram[16];
	char *argv[16] = {(char *)o->exe, "--vcpus", vcpus,    "--ram-mib", ram, "--kvm-fd", "3",
			  "--ctl-fd",	  "4",	     "--slot", "0"};

	snprintf(vcpus, sizeof(vcpus), "%u", o->vcpus);
	snprintf(ram, sizeof(ram), "%u", o->ram_mib);
	if (o->debug_serial)
		argv[argc++] = "--debug-serial";
	if (log >= 0)
		dup2(log, STDERR_FILENO);
	/* Moves all descriptors to high numbers first, so that none replaces another. */
	kvm = fcntl(kvm, F_DUPFD, 100);
	listener = fcntl(listener, F_DUPFD, 100);
	tap = tap ? fcntl(tap, F_DUPFD, 100) : 0;
	dup2(kvm, KVM_FD);
	dup2(listener, CTL_FD);
	if (tap) {
		argv[argc++] = "--tap-fd";
		argv[argc++] = "5";
		last = dup2(tap, TAP_FD);
	}
	close_range((unsigned)last + 1, ~0u, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* LeakSanitizer traces the process at its exit, which the system call filter denies. */
	setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
	execv(o->exe, argv);
	_exit(127);
}

/* Listens on an address that the kernel chooses, which leaves nothing in a file system. */
static int listen_somewhere(struct vmm *v)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(a);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a.sun_family)) < 0 ||
	    listen(fd, 8) < 0 || getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		return -1;
	memcpy(v->address, &a, len);
	v->address_len = len;
	return fd;
}

bool vmm_kvm_usable(void)
{
	scoped_fd int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	scoped_fd int vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);

	return vm >= 0;
}

static void show_file(int dir, const char *task, const char *name)
{
	char path[NAME_MAX + 16], text[1024];

	snprintf(path, sizeof(path), "%s/%s", task, name);
	scoped_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	fprintf(stderr, "  %s: %.*s\n", name, n < 0 ? 0 : (int)n, text);
}

/* Shows what the VM process has logged, and where each of its threads is. */
static void show_silent(const struct vmm *v)
{
	char path[32], text[4096];
	ssize_t n = -1;

	if (v->log >= 0 && fcntl(v->log, F_SETFL, O_NONBLOCK) == 0)
		n = read(v->log, text, sizeof(text));
	fprintf(stderr, "vmm-client: no hello; its log: %.*s\n", n < 0 ? 0 : (int)n, text);
	snprintf(path, sizeof(path), "/proc/%d/task", v->pid);
	DIR *tasks = opendir(path);
	for (struct dirent *d; tasks && (d = readdir(tasks));) {
		if (d->d_name[0] == '.')
			continue;
		show_file(dirfd(tasks), d->d_name, "stat");
		show_file(dirfd(tasks), d->d_name, "wchan");
		show_file(dirfd(tasks), d->d_name, "syscall");
	}
	if (tasks)
		closedir(tasks);
}

bool vmm_start(struct vmm *v, const struct vmm_options *o)
{
	scoped_fd int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	scoped_fd int listener = -1, log_end = -1;
	int log[2] = {-1, -1};

	*v = (struct vmm){.pid = -1, .ctl = -1, .log = -1};
	listener = listen_somewhere(v);
	if (kvm < 0 || listener < 0)
		return complain("/dev/kvm or a socket");
	if (!o->log_here && pipe2(log, O_CLOEXEC) < 0)
		return complain("pipe");
	v->log = log[0];
	log_end = log[1];
	v->pid = fork();
	if (v->pid < 0)
		return complain("fork");
	if (v->pid == 0)
		run_child(o, kvm, listener, log_end);
	/* With the listener closed here, connecting fails if the child died, instead of waiting. */
	close_fd(&listener);
	close_fd(&log_end);
	if (vmm_connect(v))
		return true;
	show_silent(v);
	return false;
}

bool vmm_connect(struct vmm *v)
{
	struct ctl_msg m;

	close_fd(&v->ctl);
	v->has_hello = false;
	v->ctl = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (v->ctl < 0 || connect(v->ctl, (struct sockaddr *)v->address, v->address_len) < 0)
		return complain("connect to the control socket");
	return vmm_receive(v, &m) && v->has_hello;
}

int vmm_stop(struct vmm *v)
{
	int status = -1;

	close_fd(&v->ctl);
	if (v->pid > 0) {
		kill(v->pid, SIGKILL);
		waitpid(v->pid, &status, 0);
	}
	close_fd(&v->log);
	v->pid = -1;
	return status;
}

bool vmm_send_raw(struct vmm *v, const void *data, size_t len, const int *fds, unsigned nfds)
{
	MESSAGE_FDS_ROOM(control, 253);
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	message_put_fds(&h, control, fds, nfds);
	return sendmsg(v->ctl, &h, MSG_NOSIGNAL) == (ssize_t)len;
}

bool vmm_receive(struct vmm *v, struct ctl_msg *m)
{
	int fds[CTL_FDS_MAX];
	unsigned nfds;

	if (!vmm_receive_fds(v, m, fds, &nfds))
		return false;
	while (nfds)
		close(fds[--nfds]);
	return true;
}

bool vmm_receive_fds(struct vmm *v, struct ctl_msg *m, int fds[CTL_FDS_MAX], unsigned *nfds)
{
	MESSAGE_FDS_ROOM(control, CTL_FDS_MAX);
	struct iovec iov = {.iov_base = m, .iov_len = sizeof(*m)};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

	*nfds = 0;
	message_want_fds(&h, control, CTL_FDS_MAX);
	if (!wait_for(v->ctl) || recvmsg(v->ctl, &h, MSG_CMSG_CLOEXEC) != sizeof(*m))
		return false;
	*nfds = message_take_fds(&h, fds);
	if (m->type == CTL_HELLO) {
		v->hello = *m;
		v->has_hello = true;
	}
	if (m->type == CTL_ENDED) {
		v->ended = *m;
		v->has_ended = true;
	}
	return true;
}

int vmm_call(struct vmm *v, struct ctl_msg *m, const int *fds, unsigned nfds)
{
	m->version = CTL_VERSION;
	if (m->type == CTL_FILL)
		memset(m->fill.instance, VMM_INSTANCE, sizeof(m->fill.instance));
	m->seq = ++v->seq;
	m->nfds = nfds;
	if (!vmm_send_raw(v, m, sizeof(*m), fds, nfds))
		return -EPIPE;
	do {
		if (!vmm_receive(v, m))
			return -EPIPE;
	} while (m->type != CTL_REPLY || m->seq != v->seq);
	return m->reply.error;
}

int vmm_ask(struct vmm *v, enum ctl_type type)
{
	struct ctl_msg m = {.type = type};

	return vmm_call(v, &m, NULL, 0);
}

bool vmm_wait_ended(struct vmm *v)
{
	struct ctl_msg m;

	while (!v->has_ended)
		if (!vmm_receive(v, &m))
			return false;
	return true;
}

static bool read_log(struct vmm *v)
{
	ssize_t n;

	if (v->text_len == sizeof(v->text) - 1 || !wait_for(v->log))
		return false;
	n = read(v->log, v->text + v->text_len, sizeof(v->text) - 1 - v->text_len);
	if (n <= 0)
		return false;
	v->text_len += (size_t)n;
	v->text[v->text_len] = '\0';
	return true;
}

/* Removes the part of the log before `rest`, which was handled. */
static void forget_log(struct vmm *v, const char *rest)
{
	v->text_len = strlen(rest);
	memmove(v->text, rest, v->text_len + 1);
}

bool vmm_expect_log(struct vmm *v, const char *text)
{
	char *found;

	while (!(found = strstr(v->text, text))) {
		if (read_log(v))
			continue;
		fprintf(stderr, "vmm-client: \"%s\" is not in the log:\n%s\n", text, v->text);
		return false;
	}
	forget_log(v, found + strlen(text));
	return true;
}

bool vmm_log_rest(struct vmm *v, char *out, size_t size)
{
	char *end;

	while (!(end = strchr(v->text, '\n')))
		if (!read_log(v))
			return false;
	*end = '\0';
	snprintf(out, size, "%s", v->text);
	forget_log(v, end + 1);
	return true;
}

int vmm_file(const void *data, size_t len, uint64_t bytes)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
	    (len && pwrite(fd, data, len, 0) != (ssize_t)len)) {
		complain("memory file");
		exit(1);
	}
	return fd;
}

const char *vmm_layers_in;

static int new_layer(void)
{
	int fd;

	if (!vmm_layers_in)
		return vmm_file(NULL, 0, 0);
	fd = open(vmm_layers_in, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0) {
		complain("a file for a disk layer");
		exit(1);
	}
	return fd;
}

static uint32_t ram_of(const struct vmm *v, const struct vmm_snapshot *img)
{
	return img->ram_mib ? img->ram_mib : v->hello.hello.ram_mib;
}

int vmm_boot(struct vmm *v, int kernel, int initrd, const char *cmdline, struct vmm_snapshot *disk)
{
	struct ctl_msg m = {.type = CTL_FILL};
	int fds[4] = {kernel};
	unsigned n = 1;

	m.fill.kind = CTL_BOOT;
	m.fill.has_initrd = initrd >= 0;
	m.fill.ram_mib = ram_of(v, disk);
	m.fill.disk_bytes = disk->disk_bytes;
	snprintf(m.fill.cmdline, sizeof(m.fill.cmdline), "%s", cmdline);
	if (initrd >= 0)
		fds[n++] = initrd;
	disk->writable = new_layer();
	fds[n++] = disk->base;
	fds[n++] = disk->writable;
	return vmm_call(v, &m, fds, n);
}

int vmm_restore(struct vmm *v, const struct vmm_snapshot *img)
{
	struct ctl_msg m = {.type = CTL_FILL};
	scoped_fd int writable = new_layer();
	int fds[CTL_FDS_MAX];
	unsigned n = 0;

	/* Sealed like a VM process requires; a file that can't be sealed has another origin. */
	fcntl(img->memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
	m.fill.kind = CTL_RESTORE;
	m.fill.ram_mib = ram_of(v, img);
	m.fill.layers = img->nlayers;
	m.fill.memory_layers = img->nmemory_layers;
	m.fill.disk_bytes = img->disk_bytes;
	fds[n++] = img->state;
	fds[n++] = img->memory;
	for (unsigned i = 0; i < img->nmemory_layers; i++)
		fds[n++] = img->memory_layers[i];
	fds[n++] = img->base;
	for (unsigned i = 0; i < img->nlayers; i++)
		fds[n++] = img->layers[i];
	fds[n++] = writable;
	return vmm_call(v, &m, fds, n);
}

/* Receives the reply and its files, and skips events that come before it. */
static int receive_reply(struct vmm *v, struct ctl_msg *m, int fds[CTL_FDS_MAX], unsigned *nfds)
{
	do {
		if (!vmm_receive_fds(v, m, fds, nfds))
			return -EPIPE;
	} while (m->type != CTL_REPLY || m->seq != v->seq);
	return m->reply.error;
}

static bool take_image(struct vmm_snapshot *img, const struct ctl_msg *m, const int *fds,
		       unsigned nfds)
{
	unsigned n = 0;

	if (m->nfds != nfds || m->reply.fork.memory_layers > CTL_MEMORY_MAX ||
	    m->reply.fork.layers > CTL_LAYERS_MAX ||
	    nfds != 3 + m->reply.fork.memory_layers + m->reply.fork.layers)
		return false;
	*img = (struct vmm_snapshot){.writable = -1, .disk_bytes = m->reply.fork.disk_bytes};
	img->state = fds[n++];
	img->memory = fds[n++];
	while (img->nmemory_layers < m->reply.fork.memory_layers)
		img->memory_layers[img->nmemory_layers++] = fds[n++];
	img->base = fds[n++];
	while (img->nlayers < m->reply.fork.layers)
		img->layers[img->nlayers++] = fds[n++];
	return true;
}

/* Opens the file again for reading only, as the service does, so that a child cannot write to its
 * parent's file. */
static bool make_read_only(int *fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", *fd);
	int read_only = open(path, O_RDONLY | O_CLOEXEC);
	close_fd(fd);
	*fd = read_only;
	return read_only >= 0;
}

bool vmm_ask_fork(struct vmm *v, bool stay_paused)
{
	struct ctl_msg m = {.version = CTL_VERSION, .type = CTL_FORK, .seq = ++v->seq, .nfds = 1};
	scoped_fd int writable = new_layer();

	m.fork.stay_paused = stay_paused;
	return vmm_send_raw(v, &m, sizeof(m), &writable, 1);
}

int vmm_take_fork(struct vmm *v, struct vmm_snapshot *img, struct ctl_msg *reply)
{
	int fds[CTL_FDS_MAX], r;
	unsigned nfds;

	r = receive_reply(v, reply, fds, &nfds);
	if (r)
		return r;
	for (unsigned i = 0; i < nfds; i++)
		if (!make_read_only(&fds[i]))
			return -EPROTO;
	return take_image(img, reply, fds, nfds) ? 0 : -EPROTO;
}

int vmm_fork(struct vmm *v, struct vmm_snapshot *img, struct ctl_msg *reply)
{
	return vmm_ask_fork(v, false) ? vmm_take_fork(v, img, reply) : -EPIPE;
}

/* Replaces a file by a writable copy. */
static bool make_writable(int *fd)
{
	int copy = vmm_file(NULL, 0, 0);
	struct file_walk walk;
	struct stat st;
	uint64_t done = 0;
	bool well = copy >= 0 && fstat(*fd, &st) == 0 &&
		    file_walk_begin(&walk, *fd, copy, (uint64_t)st.st_size, NULL) == 0;

	well = well && file_walk_step(&walk, UINT64_MAX, &done, NULL) == 1;
	if (well)
		file_walk_end(&walk);
	close_fd(fd);
	*fd = copy;
	return well;
}

int vmm_save(struct vmm *v, struct vmm_snapshot *img)
{
	struct vmm_snapshot taken;
	struct ctl_msg reply;
	int r = vmm_ask_fork(v, true) ? vmm_take_fork(v, &taken, &reply) : -EPIPE;

	if (r)
		return r;
	close_fd(&img->base);
	close_fd(&img->writable);
	taken.ram_mib = img->ram_mib;
	*img = taken;
	return make_writable(&img->state) && make_writable(&img->memory) ? 0 : -EIO;
}

void vmm_snapshot_close(struct vmm_snapshot *img)
{
	close_fd(&img->state);
	close_fd(&img->memory);
	close_fd(&img->base);
	close_fd(&img->writable);
	for (unsigned i = 0; i < img->nmemory_layers; i++)
		close_fd(&img->memory_layers[i]);
	for (unsigned i = 0; i < img->nlayers; i++)
		close_fd(&img->layers[i]);
}
