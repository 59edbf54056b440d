// SPDX-License-Identifier: Apache-2.0
/* Serves AGENT_PACK with the guest's own tar. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/child.h"
#include "guest/files/file-work.h"
#include "guest/files/worker-io.h"

#define FRAME_BYTES  (AGENT_PAYLOAD_MAX - AGENT_HEADER_SIZE)
#define TAR_DIFFERED 1 /* tar's exit code when files changed while it read them */
#define NO_PROGRAM   127

__attribute__((noreturn)) static void run_tar(const char *path, int out, int errors, pid_t worker)
{
	static const char *const argv[] = {
		"tar",
		"--create",
		"--file=-",
		"--format=posix",
		"--pax-option=delete=atime,delete=ctime",
		"--one-file-system",
		"--directory=.",
		"--",
		".",
		NULL,
	};
	static const char *const env[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
		NULL};
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	child_begin(worker, "500");
	signal(SIGPIPE, SIG_DFL);
	if (chdir(path) < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(errors, STDERR_FILENO) < 0 || close_range(STDERR_FILENO + 1, ~0u, 0) < 0)
		_exit(126);
	execvpe("tar", (char *const *)argv, (char *const *)env);
	_exit(NO_PROGRAM);
}

static void send_output(int fd)
{
	for (;;) {
		ssize_t n = read(fd, worker_io_room(), FRAME_BYTES);

		if (n > 0)
			worker_io_send(AGENT_BYTES, (size_t)n);
		else if (n == 0 || errno != EINTR)
			return;
	}
}

/* Reads the first line that tar printed. */
static void read_error(int fd, char *out, size_t room)
{
	ssize_t n = read(fd, out, room - 1);

	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

void file_pack(const struct file_work *w)
{
	const char *path = w->r->path;
	pid_t worker = getpid();
	int out[2], errors[2], status;
	char text[160];

	scoped_fd int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		worker_io_fail(errno, "pack %.100s: %s", path, strerror(errno));
	/* tar does not wait for a reader of its error messages. */
	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(errors, O_CLOEXEC | O_NONBLOCK) < 0)
		worker_io_fail(errno, "pack %.100s: %s", path, strerror(errno));
	fcntl(out[1], F_SETPIPE_SZ, 1 << 20); /* fewer switches between the two processes */
	pid_t pid = fork();
	if (pid < 0)
		worker_io_fail(errno, "start tar: %s", strerror(errno));
	if (pid == 0)
		run_tar(path, out[1], errors[1], worker);
	close(out[1]);
	close(errors[1]);
	send_output(out[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	read_error(errors[0], text, sizeof(text));
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PROGRAM)
		worker_io_fail(ENOSYS, "the sandbox has no program tar: install it");
	if (!WIFEXITED(status) || WEXITSTATUS(status) > TAR_DIFFERED)
		worker_io_fail(EIO, "pack %.80s: tar ended with wait status 0x%x: %s", path, status,
			       text);
	worker_io_done();
}
