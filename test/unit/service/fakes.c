// SPDX-License-Identifier: Apache-2.0
#include "test/unit/service/fakes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/message-fds.h"
#include "base/wire.h"
#include "proto/agent-file.h"
#include "proto/ctl.h"
#include "proto/warden.h"
#include "test/unit/service/fake-call.h"
#include "test/unit/service/fake-files.h"
#include "test/unit/service/fake-process.h"

#define SLOTS  64  /* default for fakes_new */
#define AGENTS 320 /* above the limit of listeners per sandbox */

/* The last character of a context's id stands for it; 0 is the default interpreter. */
#define CONTEXTS 4

struct fake_vm;

struct fake_agent {
	struct fake_vm *vm;
	pthread_t thread;
	int fd; /* -1: the entry is free; closed when the thread is joined */
	bool over;
};

struct fake_vm {
	struct fakes *f;
	uint32_t slot, vcpus, ram_mib; /* RAM of a blank VM: its maximum */
	uint64_t disk_bytes;
	bool taken, alive, running, threaded;
	uint32_t version; /* of the control protocol */
	uint8_t instance[CTL_INSTANCE_LEN];
	bool closed;	   /* its packets don't leave the host */
	bool closed_first; /* closed before the VM had a guest */
	uint32_t state;
	int listener, ctl, stop;
	pthread_t thread;
	char tree[4096]; /* the entries that scripts defined, one per line */
	char mark[32];
	char context[AGENT_ID_LEN + 1];
	struct guest_call {
		struct fake_call *call;
		char context;
	} * calls; /* only the last one of a context may be running */
	size_t n_calls;
	pthread_mutex_t turns[CONTEXTS]; /* held by the connection that starts the next call */
	unsigned memory_layers, layers;
	bool booted; /* from a kernel, and not forked since */
	struct fake_agent agents[AGENTS];
	char priorities[16]; /* one digit per priority */
	bool marked;	     /* the kernel's first choice when memory runs out */
};

/* State that a fork copies, besides what is in the files that it sends (struct fake_state). */
struct fake_image {
	struct fake_call *calls[CONTEXTS];
	unsigned memory_layers, layers;
};

/* The content of an image's state file, which so outlives these fakes if the service stores it. The
 * top layers of memory and disk have the same `image`: together the files are one image. */
struct fake_state {
	struct fake_id {
		char magic[8];
		int64_t fakes; /* a number of their own */
		uint64_t number;
	} image;
	char tree[4096], mark[32];
};
#define STATE_MAGIC "fakes 1"

struct fakes {
	int64_t id;
	char run_dir[64], agent_path[108]; /* agent_path is empty if agents are faked */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t warden;
	int service, next_service, wake; /* the warden's sockets (current, next) and eventfd */
	bool closing;
	struct fake_vm *vms;
	unsigned n_slots;
	pid_t pid; /* the process id that VMs report */
	int faults[FAKES_NFAULTS];
	unsigned limits;  /* requests of type WARDEN_MEMORY */
	unsigned charges; /* requests of type WARDEN_CHARGED */
	uint32_t refused_type, refused_slots;
	unsigned refused; /* requests */
	uint64_t charged, copied;
	ino_t memory; /* inode of the memory file of the last restore */
	unsigned boots, restores, grown, reseeds, user_reseeds, attaches, forks, overlaps, runs,
		waiting, agents;
	unsigned asked[64], dials;
	uint64_t interrupted;
	uint64_t put_bytes, put_sum;
	struct fake_image *images;
	unsigned n_images;
	unsigned long go;
};

static void lock(struct fakes *f)
{
	pthread_mutex_lock(&f->lock);
}

static void unlock(struct fakes *f)
{
	pthread_mutex_unlock(&f->lock);
}

static bool use_fault(struct fakes *f, enum fakes_fault fault)
{
	lock(f);
	bool wrong = f->faults[fault] > 0;
	if (wrong)
		f->faults[fault]--;
	unlock(f);
	return wrong;
}

/* --- death ---------------------------------------------------------------------------------- */

/* Kills the VM and its calls: all threads that block on a socket of the VM return. Called with the
 * lock held. */
static void vm_die(struct fake_vm *vm)
{
	if (!vm->alive)
		return;
	vm->alive = false;
	eventfd_write(vm->stop, 1);
	if (vm->ctl >= 0)
		shutdown(vm->ctl, SHUT_RDWR);
	for (int i = 0; i < AGENTS; i++)
		if (vm->agents[i].fd >= 0)
			shutdown(vm->agents[i].fd, SHUT_RDWR);
	for (size_t i = 0; i < vm->n_calls; i++)
		fake_call_kill(vm->calls[i].call);
	pthread_cond_broadcast(&vm->f->changed);
	struct warden_msg msg = {.version = WARDEN_VERSION,
				 .type = WARDEN_EXITED,
				 .slot = vm->slot,
				 .exited = {.status = 9}};
	if (vm->f->service >= 0)
		send(vm->f->service, &msg, sizeof(msg), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Counts a step of the VM. Returns true when the VM is dead. */
static bool step(struct fake_vm *vm)
{
	struct fakes *f = vm->f;

	lock(f);
	bool dies = f->faults[FAKES_DIE_STEP] > 0 && --f->faults[FAKES_DIE_STEP] == 0;
	if (dies)
		vm_die(vm);
	bool dead = !vm->alive;
	unlock(f);
	return dead;
}

/* --- agent ---------------------------------------------------------------------------------- */

static bool recv_all(int fd, void *data, size_t len)
{
	return len == 0 || recv(fd, data, len, MSG_WAITALL) == (ssize_t)len;
}

static bool send_error(int fd, const char *text)
{
	return fake_send_errno(fd, EIO, text);
}

/* Waits for the fakes_go with number *turn; if *turn is 0, sets it to the next one first. Returns
 * false when the VM dies or the fakes end before. */
static bool wait_for_turn(struct fake_vm *vm, unsigned long *turn)
{
	struct fakes *f = vm->f;

	lock(f);
	if (!*turn)
		*turn = f->go + 1;
	if (f->go < *turn)
		f->waiting++;
	while (f->go < *turn && vm->alive && !f->closing)
		pthread_cond_wait(&f->changed, &f->lock);
	bool released = f->go >= *turn;
	if (!released)
		f->waiting--;
	unlock(f);
	return released;
}

static bool wait_for_go(struct fake_vm *vm)
{
	unsigned long turn = 0;

	return wait_for_turn(vm, &turn);
}

static bool op_wait(void *arg, unsigned long *turn)
{
	return wait_for_turn(arg, turn);
}

static void op_die(void *arg)
{
	struct fake_vm *vm = arg;

	lock(vm->f);
	vm_die(vm);
	unlock(vm->f);
}

static void op_tree(void *arg, const char *line)
{
	struct fake_vm *vm = arg;
	size_t used = strlen(vm->tree);

	snprintf(vm->tree + used, sizeof(vm->tree) - used, "%s\n", line);
}

static const char *op_mark(void *arg, const char *text)
{
	struct fake_vm *vm = arg;

	if (text)
		snprintf(vm->mark, sizeof(vm->mark), "%s", text);
	return vm->mark;
}

static const struct fake_call_ops op_methods = {op_wait, op_die, op_tree, op_mark};

static size_t context_index(char context)
{
	return context ? (size_t)(context - '0') % CONTEXTS : 0;
}

/* Adds `call` as the context's last one, and starts it if `runs`. Called with the lock held. */
static void add_call(struct fake_vm *vm, char context, struct fake_call *call, bool runs)
{
	vm->calls = realloc(vm->calls, (vm->n_calls + 1) * sizeof(*vm->calls));
	vm->calls[vm->n_calls++] = (struct guest_call){call, context};
	if (runs)
		fake_call_start(call, &op_methods, vm);
	if (!vm->alive)
		fake_call_kill(call);
}

static struct fake_call *last_call(struct fake_vm *vm, char context)
{
	struct fake_call *call = NULL;

	lock(vm->f);
	for (size_t i = vm->n_calls; i > 0 && !call; i--)
		if (context_index(vm->calls[i - 1].context) == context_index(context))
			call = vm->calls[i - 1].call;
	unlock(vm->f);
	return call;
}

/* Runs the script once the previous one has ended, and sends its frames. */
static bool run_script(struct fake_agent *a, char context, uint64_t number, const char *code,
		       const char *env)
{
	struct fake_call *call = fake_call_new(number, code, env);
	struct fake_vm *vm = a->vm;
	int refused;

	pthread_mutex_t *turn = &vm->turns[context_index(context)];
	pthread_mutex_lock(turn);
	struct fake_call *before = last_call(vm, context);
	if (before)
		fake_call_wait(before);
	lock(vm->f);
	add_call(vm, context, call, true);
	unlock(vm->f);
	pthread_mutex_unlock(turn);
	return fake_call_pump(call, a->fd, 0, &refused);
}

/* Returns the last call if it has this number; otherwise waits for it, up to 10 s. A real guest
 * handles requests in the order in which they were sent. Here each connection has its own thread,
 * and the thread that received the call may be late. */
static struct fake_call *find_call(struct fake_vm *vm, char context, uint64_t number)
{
	const struct timespec pause = {.tv_nsec = 2000000};

	for (int i = 0; i < 5000; i++) {
		struct fake_call *call = last_call(vm, context);

		if (call && fake_call_number(call) == number)
			return call;
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static bool serve_attach(struct fake_agent *a, char context, const uint8_t *body, size_t len)
{
	struct wire w = wire_from(body, len);
	uint64_t number = wire_get_u64(&w), have = wire_get_u64(&w);
	int refused = -ENOENT;
	bool well = false;

	if (w.bad || wire_left(&w))
		return false;
	lock(a->vm->f);
	a->vm->f->attaches++;
	unlock(a->vm->f);
	if (use_fault(a->vm->f, FAKES_ATTACH))
		return fake_send_errno(a->fd, ERANGE, "its output is not retained any more");
	struct fake_call *call = find_call(a->vm, context, number);
	if (call)
		well = fake_call_pump(call, a->fd, have, &refused);
	return refused ? fake_send_errno(a->fd, (uint32_t)-refused, "no such call") : well;
}

static bool serve_exec(struct fake_agent *a, char context, const uint8_t *body, size_t len)
{
	struct wire w = wire_from(body, len);
	char env[40 << 10] = "";
	size_t text, used = 0;

	wire_get_u8(&w);
	wire_get_u8(&w);
	wire_get_u32(&w);
	uint32_t code_len = wire_get_u32(&w), got = 0;
	uint64_t number = wire_get_u64(&w);
	wire_get_str(&w, &text, 4096);
	uint32_t n = wire_get_u32(&w);
	for (uint32_t i = 0; i < n && !w.bad; i++) {
		size_t name_len, value_len;
		const uint8_t *name = wire_get_str(&w, &name_len, 4096);
		const uint8_t *value = wire_get_str(&w, &value_len, 4096);

		used += (size_t)snprintf(env + used, sizeof(env) - used, "%.*s=%.*s ",
					 (int)name_len, name, (int)value_len, value);
	}
	if (w.bad || wire_left(&w))
		return false;
	if (use_fault(a->vm->f, FAKES_EARLY) &&
	    !fake_send_frame(a->fd, AGENT_EXIT, "\0\0\0\0\0", 5))
		return false;
	if (use_fault(a->vm->f, FAKES_CODE))
		wait_for_go(a->vm);
	char *code = calloc(1, code_len + 1);
	while (got < code_len) {
		uint8_t head[AGENT_HEADER_SIZE];

		if (!recv_all(a->fd, head, sizeof(head)) || head[4] != AGENT_CODE)
			break;
		struct wire h = wire_from(head, sizeof(head));
		uint32_t part = wire_get_u32(&h);
		if (part > code_len - got || !recv_all(a->fd, code + got, part))
			break;
		got += part;
	}
	bool sent = got == code_len && run_script(a, context, number, code, env);
	free(code);
	return sent;
}

static bool serve_reseed(struct fake_agent *a, const uint8_t *body, size_t len)
{
	struct wire w = wire_from(body, len);
	size_t host_len;

	w.pos = AGENT_ENTROPY_LEN;
	wire_get_u64(&w);
	bool user = wire_get_u8(&w);
	const uint8_t *host = wire_get_str(&w, &host_len, 64);
	if (w.bad || wire_left(&w) || host_len != 14 || memcmp(host, "ramet-", 6) != 0)
		return send_error(a->fd, "bad reseed");
	if (use_fault(a->vm->f, FAKES_RESEED))
		return send_error(a->fd, "no entropy today");
	if (use_fault(a->vm->f, FAKES_SEED_WAIT) && !wait_for_go(a->vm))
		return false;
	lock(a->vm->f);
	a->vm->f->reseeds += !a->vm->booted;
	a->vm->f->user_reseeds += user && !a->vm->booted;
	unlock(a->vm->f);
	return fake_send_done(a->fd);
}

/* Accepts only a disk of whole GiB that is larger than the template's 1 GiB. */
static bool serve_grow(struct fake_agent *a, const uint8_t *body, size_t len)
{
	struct wire w = wire_from(body, len);
	uint64_t bytes = wire_get_u64(&w);

	if (w.bad || wire_left(&w) || bytes != a->vm->disk_bytes)
		return send_error(a->fd, "this is not the disk");
	if (use_fault(a->vm->f, FAKES_GROW))
		return send_error(a->fd, "no room for a journal");
	lock(a->vm->f);
	a->vm->f->grown++;
	unlock(a->vm->f);
	return fake_send_done(a->fd);
}

/* --- its files --- */

static bool send_entry(int fd, const char *path, uint32_t mode, const char *content)
{
	uint8_t body[1024], hash[AGENT_HASH_LEN] = {0};
	struct wire w = wire_on(body, sizeof(body));
	bool is_file = S_ISREG(mode);

	memcpy(hash, content, strlen(content) < sizeof(hash) ? strlen(content) : sizeof(hash));
	wire_put_str(&w, path, strlen(path));
	wire_put_u32(&w, mode);
	wire_put_u32(&w, 0);
	wire_put_u32(&w, 0);
	wire_put_u64(&w, is_file ? strlen(content) : 0);
	wire_put_str(&w, is_file ? (char *)hash : content,
		     is_file ? sizeof(hash) : strlen(content));
	return fake_send_frame(fd, AGENT_ENTRY, body, w.pos);
}

static bool send_many(int fd, const char *root, unsigned n)
{
	char path[256];

	for (unsigned i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%08u", root, i);
		if (!send_entry(fd, path, S_IFREG | 0644, "x"))
			return false;
	}
	return true;
}

static bool send_long(int fd, const char *root, unsigned n)
{
	char path[1024];

	for (unsigned i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%.128s/%0800u", root, i);
		if (!send_entry(fd, path, S_IFREG | 0644, "x"))
			return false;
	}
	return true;
}

/* Replaces each %XX by the byte of this number. */
static void decode(char *text)
{
	unsigned byte;

	for (; (text = strchr(text, '%')) && sscanf(text + 1, "%2x", &byte) == 1; text++) {
		*text = (char)byte;
		memmove(text + 1, text + 3, strlen(text + 3) + 1);
	}
}

static bool list_line(struct fake_agent *a, const char *line, const char *root)
{
	char path[128] = "", content[128] = "";
	unsigned mode = 0;

	if (!strncmp(line, "many ", 5))
		return send_many(a->fd, root, (unsigned)atoi(line + 5));
	if (!strncmp(line, "long ", 5))
		return send_long(a->fd, root, (unsigned)atoi(line + 5));
	if (!strcmp(line, "wait"))
		return wait_for_go(a->vm);
	if (!strcmp(line, "error"))
		return send_error(a->fd, "the disk is worn out") && false;
	if (!strcmp(line, "pong"))
		return fake_send_frame(a->fd, AGENT_PONG, "\0\0\0", 4);
	if (sscanf(line, "%127s %o %127s", path, &mode, content) < 2)
		return false; /* hangs up */
	decode(path);
	size_t len = strlen(root);
	bool under = !strncmp(path, root, len) && (!path[len] || path[len] == '/' || len == 1);
	return !under || send_entry(a->fd, path, mode, content);
}

static bool serve_tree(struct fake_agent *a, const uint8_t *body, size_t len)
{
	struct wire w = wire_from(body, len);
	char tree[sizeof(a->vm->tree)], root[128];

	for (uint32_t n = wire_get_u32(&w); n; n--) {
		size_t root_len;
		const uint8_t *path = wire_get_str(&w, &root_len, sizeof(root) - 1);

		if (w.bad)
			return false;
		snprintf(root, sizeof(root), "%.*s", (int)root_len, path);
		strcpy(tree, a->vm->tree);
		for (char *save, *line = strtok_r(tree, "\n", &save); line;
		     line = strtok_r(NULL, "\n", &save))
			if (!list_line(a, line, root))
				return false;
	}
	return fake_send_done(a->fd);
}

static bool op_wait_for_go(void *arg)
{
	return wait_for_go(arg);
}

static bool is_of_process(uint8_t type)
{
	return (type >= AGENT_PROC_START && type <= AGENT_PROC_STAT) || type == AGENT_PROC_RESIZE;
}

static bool serve_files(struct fake_agent *a, uint8_t type, const uint8_t *body, size_t len)
{
	struct fakes *f = a->vm->f;
	const struct fake_files files = {.guest = a->vm,
					 .wait = op_wait_for_go,
					 .die = op_die,
					 .put_bytes = &f->put_bytes,
					 .put_sum = &f->put_sum};

	lock(f);
	f->asked[type]++;
	unlock(f);
	if (type == AGENT_PROC_LIST && use_fault(f, FAKES_DEAF) && !wait_for_go(a->vm))
		return false;
	if (type == AGENT_PROC_KILL && use_fault(f, FAKES_KILL_WAIT) && !wait_for_go(a->vm))
		return false;
	if (is_of_process(type))
		return fake_process_serve(&files, a->fd, type, body, len);
	return fake_files_serve(&files, a->fd, type, body, len);
}

static bool serve_interrupt(struct fake_agent *a, const uint8_t *body, size_t len)
{
	struct wire w = wire_from(body, len);
	uint64_t call = wire_get_u64(&w);

	if (w.bad || wire_left(&w))
		return false;
	lock(a->vm->f);
	a->vm->f->interrupted = call;
	a->vm->f->asked[AGENT_INTERRUPT]++;
	unlock(a->vm->f);
	fakes_go(a->vm->f);
	return fake_send_done(a->fd);
}

static bool list_contexts(struct fake_agent *a)
{
	uint8_t body[128];
	struct wire w = wire_on(body, sizeof(body));

	wire_put_str(&w, a->vm->context, AGENT_ID_LEN);
	wire_put_u8(&w, AGENT_BASH);
	wire_put_u8(&w, 0);
	wire_put_u64(&w, 1700000000000);
	wire_put_str(&w, "/tmp", 4);
	return (!a->vm->context[0] || fake_send_frame(a->fd, AGENT_CONTEXT, body, w.pos)) &&
	       fake_send_frame(a->fd, AGENT_DONE, NULL, 0);
}

/* Records the last context that was started. One in the folder /gone has ended at once. */
static void record_context(struct fake_agent *a, struct wire *w, const uint8_t *id)
{
	size_t len;

	wire_get_u8(w);
	const uint8_t *cwd = wire_get_str(w, &len, AGENT_PATH_MAX);
	bool gone = cwd && len == 5 && memcmp(cwd, "/gone", 5) == 0;
	memcpy(a->vm->context, id, gone ? 0 : AGENT_ID_LEN);
}

/* Serves the other requests on contexts. */
static bool serve_contexts(struct fake_agent *a, uint8_t type, const uint8_t *body, size_t len)
{
	struct wire w = wire_from(body, len);
	size_t id_len;

	if (type == AGENT_CONTEXT_LIST)
		return list_contexts(a);
	const uint8_t *id = wire_get_str(&w, &id_len, AGENT_ID_LEN);
	if (w.bad || id_len != AGENT_ID_LEN)
		return false;
	if (type == AGENT_CONTEXT_START)
		record_context(a, &w, id);
	else if (memcmp(id, a->vm->context, AGENT_ID_LEN) != 0)
		return fake_send_errno(a->fd, ENOENT, "there is no such context");
	if (type == AGENT_CONTEXT_END)
		a->vm->context[0] = '\0';
	return fake_send_frame(a->fd, AGENT_DONE, NULL, 0);
}

/* Contexts whose ids end with a digit exist. */
static bool serve_context(struct fake_agent *a, const uint8_t *body, size_t len)
{
	struct wire w = wire_from(body, len);
	size_t id_len;
	const uint8_t *id = wire_get_str(&w, &id_len, AGENT_ID_LEN);
	uint8_t type = wire_get_u8(&w);

	if (w.bad || id_len != AGENT_ID_LEN)
		return false;
	char context = (char)id[AGENT_ID_LEN - 1];
	if (context > '9')
		return fake_send_errno(a->fd, ENOENT, "there is no such context") && false;
	body += w.pos;
	len -= w.pos;
	if (type == AGENT_EXEC)
		return fake_send_done(a->fd) && serve_exec(a, context, body, len);
	if (type == AGENT_ATTACH)
		return serve_attach(a, context, body, len);
	return serve_interrupt(a, body, len);
}

/* Returns whether the service sends frames of this type by itself, not for a client. */
static bool is_own(uint8_t type)
{
	return type == AGENT_PING || type == AGENT_HELLO || type == AGENT_RESEED ||
	       type == AGENT_GROW;
}

static bool serve_frame(struct fake_agent *a, uint8_t type, const uint8_t *body, size_t len)
{
	static const uint8_t pong[4] = {AGENT_VERSION};

	if (step(a->vm))
		return false;
	if (!is_own(type) && use_fault(a->vm->f, FAKES_STALL) && !wait_for_go(a->vm))
		return false;
	switch (type) {
	case AGENT_PING:
		return !use_fault(a->vm->f, FAKES_PONG) &&
		       fake_send_frame(a->fd, AGENT_PONG, pong, sizeof(pong));
	case AGENT_HELLO:
		return use_fault(a->vm->f, FAKES_VERSION)
			       ? fake_send_frame(a->fd, AGENT_PONG, "\xff\0\0", 4)
			       : fake_send_frame(a->fd, AGENT_PONG, pong, sizeof(pong));
	case AGENT_EXEC:
		return serve_exec(a, 0, body, len);
	case AGENT_INTERRUPT:
		return serve_interrupt(a, body, len);
	case AGENT_RESEED:
		return serve_reseed(a, body, len);
	case AGENT_GROW:
		return serve_grow(a, body, len);
	case AGENT_TREE:
		return serve_tree(a, body, len);
	case AGENT_ATTACH:
		return serve_attach(a, 0, body, len);
	case AGENT_IN_CONTEXT:
		return serve_context(a, body, len);
	case AGENT_CONTEXT_START:
	case AGENT_CONTEXT_LIST:
	case AGENT_CONTEXT_END:
	case AGENT_CONTEXT_RESTART:
		return serve_contexts(a, type, body, len);
	case AGENT_DIAL:
		return fake_send_errno(a->fd, ECONNREFUSED, "nothing listens there");
	}
	return (agent_file_is(type) || is_of_process(type)) && serve_files(a, type, body, len);
}

/* Forwards data in one direction. Returns false at the end of the stream. */
static bool forward(int from, int to)
{
	static _Thread_local uint8_t buf[256 << 10];
	ssize_t n = recv(from, buf, sizeof(buf), 0);

	return n > 0 && fake_send_all(to, buf, (size_t)n);
}

struct direction {
	int from, to;
};

static void *forward_all(void *arg)
{
	const struct direction *d = arg;

	while (forward(d->from, d->to))
		;
	shutdown(d->to, SHUT_WR);
	return NULL;
}

/* Like the VM process: each direction ends on its own, unless the service closes the connection. */
static void relay(struct fake_agent *a)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct direction in = {a->fd, fd}, out = {fd, a->fd};
	pthread_t threads[2];
	struct timespec limit;

	memcpy(addr.sun_path, a->vm->f->agent_path, sizeof(addr.sun_path));
	if (strchr(addr.sun_path, '%'))
		sprintf(strchr(addr.sun_path, '%'), "%u", a->vm->slot);
	/* While the agent is replaced, a guest's kernel refuses connections, and hosts try again.
	 */
	struct pollfd p = {.fd = a->fd};
	while (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		if (poll(&p, 1, 10))
			return;
	pthread_create(&threads[0], NULL, forward_all, &in);
	pthread_create(&threads[1], NULL, forward_all, &out);
	/* A hang-up without a request for events: the service closed its end, or both ended. */
	poll(&p, 1, -1);
	/* What the service sent before that still arrives, unless the agent does not read it. */
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 2;
	bool arrived = pthread_timedjoin_np(threads[0], NULL, &limit) == 0;
	shutdown(fd, SHUT_RDWR);
	if (!arrived)
		pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
}

static void *agent_main(void *arg)
{
	struct fake_agent *a = arg;
	struct fakes *f = a->vm->f;
	uint8_t head[AGENT_HEADER_SIZE], *body = malloc(AGENT_PAYLOAD_MAX);

	if (use_fault(f, FAKES_GARBAGE))
		fake_send_all(a->fd, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
	if (f->agent_path[0])
		relay(a);
	while (!f->agent_path[0] && recv_all(a->fd, head, sizeof(head))) {
		struct wire w = wire_from(head, sizeof(head));
		uint32_t len = wire_get_u32(&w);

		if (len > AGENT_PAYLOAD_MAX || !recv_all(a->fd, body, len) ||
		    !serve_frame(a, head[4], body, len))
			break;
	}
	free(body);
	shutdown(a->fd, SHUT_RDWR);
	lock(f);
	a->over = true;
	f->agents--;
	unlock(f);
	return NULL;
}

static void agent_join(struct fake_agent *a)
{
	pthread_join(a->thread, NULL);
	close(a->fd);
	a->fd = -1;
}

/* Serves the connection in a thread, which takes ownership of *fd. Returns false, and leaves *fd to
 * the caller, when there are too many connections. */
static bool agent_start(struct fake_vm *vm, int *fd)
{
	for (int i = 0; i < AGENTS; i++) {
		struct fake_agent *a = &vm->agents[i];

		lock(vm->f);
		bool over = a->fd >= 0 && a->over;
		unlock(vm->f);
		if (over)
			agent_join(a);
		if (a->fd >= 0)
			continue;
		lock(vm->f);
		*a = (struct fake_agent){.vm = vm, .fd = take_fd(fd)};
		vm->f->agents++;
		vm->f->dials++;
		pthread_create(&a->thread, NULL, agent_main, a);
		unlock(vm->f);
		return true;
	}
	return false;
}

/* --- VM process ----------------------------------------------------------------------------- */

static void vm_send(struct fake_vm *vm, struct ctl_msg *msg)
{
	msg->version = vm->version;
	send(vm->ctl, msg, sizeof(*msg), MSG_NOSIGNAL);
}

static void vm_reply(struct fake_vm *vm, uint32_t seq, int error, const char *text)
{
	struct ctl_msg msg = {.type = CTL_REPLY, .seq = seq};

	if (use_fault(vm->f, FAKES_LIE))
		msg.seq += 1000;
	msg.reply.error = error;
	snprintf(msg.reply.text, sizeof(msg.reply.text), "%s", text);
	vm_send(vm, &msg);
}

/* Copies the calls that belong to an image of these fakes; earlier ones have died with theirs. */
static void restore_calls(struct fake_vm *vm, const struct fake_id *id)
{
	struct fake_call **calls = vm->f->images[id->number].calls;

	for (int i = 0; i < CONTEXTS; i++)
		if (calls[i])
			add_call(vm, (char)(i ? '0' + i : 0), fake_call_copy(calls[i]),
				 !fake_call_is_over(calls[i]));
}

static bool has_id(int fd, const struct fake_id *id)
{
	struct fake_id found;

	return pread(fd, &found, sizeof(found), 0) == sizeof(found) &&
	       !memcmp(&found, id, sizeof(found));
}

/* Gives the VM what is in the files. Returns false when they belong to different images. */
static bool restore(struct fake_vm *vm, const struct ctl_msg *msg, const int *fds)
{
	const unsigned base = 2 + msg->fill.memory_layers;
	struct fake_state state;

	vm->layers = msg->fill.layers;
	vm->memory_layers = msg->fill.memory_layers;
	if (pread(fds[0], &state, sizeof(state), 0) != sizeof(state) ||
	    strcmp(state.image.magic, STATE_MAGIC) != 0)
		return true; /* the snapshot of a template */
	if ((vm->memory_layers && !has_id(fds[base - 1], &state.image)) ||
	    (vm->layers && !has_id(fds[base + vm->layers], &state.image)))
		return false;
	memcpy(vm->tree, state.tree, sizeof(vm->tree));
	memcpy(vm->mark, state.mark, sizeof(vm->mark));
	vm->context[0] = '\0';
	if (state.image.fakes == vm->f->id)
		restore_calls(vm, &state.image);
	return true;
}

static void note_restore(struct fakes *f, int memory)
{
	struct stat st;

	f->restores++;
	f->memory = fstat(memory, &st) == 0 && st.st_nlink ? st.st_ino : 0;
}

static void vmproc_restore(struct fake_vm *vm, const struct ctl_msg *msg, const int *fds, int nfds)
{
	bool boot = msg->fill.kind == CTL_BOOT;
	int expected = boot ? 4 : 4 + (int)(msg->fill.memory_layers + msg->fill.layers);

	if (nfds != expected || msg->fill.ram_mib > vm->ram_mib || use_fault(vm->f, FAKES_FILL) ||
	    (boot && use_fault(vm->f, FAKES_BOOT))) {
		vm_reply(vm, msg->seq, -EINVAL, "the state file is torn");
		return;
	}
	lock(vm->f);
	vm->state = CTL_RUNNING;
	vm->ram_mib = msg->fill.ram_mib;
	vm->disk_bytes = msg->fill.disk_bytes;
	memcpy(vm->instance, msg->fill.instance, sizeof(vm->instance));
	vm->booted = boot;
	if (boot)
		vm->f->boots++;
	else
		note_restore(vm->f, fds[1]);
	bool whole = boot || restore(vm, msg, fds);
	unlock(vm->f);
	vm_reply(vm, msg->seq, whole ? 0 : -EINVAL, whole ? "" : "files of different images");
}

static struct fake_state save_image(struct fake_vm *vm)
{
	struct fake_state state = {.image = {STATE_MAGIC, vm->f->id, 0}};
	struct fakes *f = vm->f;
	struct fake_call *calls[CONTEXTS];

	for (int i = 0; i < CONTEXTS; i++)
		calls[i] = last_call(vm, (char)(i ? '0' + i : 0));
	lock(f);
	f->images = realloc(f->images, (f->n_images + 1) * sizeof(*f->images));
	struct fake_image *image = &f->images[f->n_images];
	*image = (struct fake_image){0};
	for (int i = 0; i < CONTEXTS; i++)
		image->calls[i] = calls[i] ? fake_call_copy(calls[i]) : NULL;
	memcpy(state.tree, vm->tree, sizeof(state.tree));
	memcpy(state.mark, vm->mark, sizeof(state.mark));
	f->forks++;
	state.image.number = f->n_images++;
	unlock(f);
	return state;
}

static int image_file(uint64_t size)
{
	int fd = memfd_create("image", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		abort();
	return fd;
}

static void put(int fd, const void *data, size_t len)
{
	if (pwrite(fd, data, len, 0) != (ssize_t)len)
		abort();
}

/* Sends the files in the order state, memory, memory layers, disk base, disk layers. */
static void send_image(struct fake_vm *vm, uint32_t seq, const struct fake_state *state)
{
	struct ctl_msg msg = {.version = vm->version, .type = CTL_REPLY, .seq = seq};
	MESSAGE_FDS_ROOM(control, CTL_FDS_MAX);
	unsigned nfds = 3 + vm->memory_layers + vm->layers;
	struct iovec iov = {&msg, sizeof(msg)};
	struct msghdr hdr = {.msg_iov = &iov, .msg_iovlen = 1};
	int fds[CTL_FDS_MAX];

	for (unsigned i = 0; i < nfds; i++)
		fds[i] = image_file(i == 1 ? (uint64_t)vm->ram_mib << 20 : 0);
	put(fds[0], state, sizeof(*state));
	if (vm->memory_layers)
		put(fds[1 + vm->memory_layers], &state->image, sizeof(state->image));
	put(fds[nfds - 1], &state->image, sizeof(state->image));
	msg.nfds = nfds;
	msg.reply.fork.disk_bytes = vm->disk_bytes;
	msg.reply.fork.memory_layers = vm->memory_layers;
	lock(vm->f);
	msg.reply.fork.copied_bytes = vm->f->copied;
	unlock(vm->f);
	msg.reply.fork.layers = vm->layers - use_fault(vm->f, FAKES_FORK_LIE);
	message_put_fds(&hdr, control, fds, nfds);
	sendmsg(vm->ctl, &hdr, MSG_NOSIGNAL);
	for (unsigned i = 0; i < nfds; i++)
		close_fd(&fds[i]);
}

/* Each fork adds a layer; at the maximum the layers are merged into one. */
static void vmproc_fork(struct fake_vm *vm, const struct ctl_msg *msg, int nfds)
{
	if (nfds != 1 || use_fault(vm->f, FAKES_FORK)) {
		vm_reply(vm, msg->seq, -ENOSPC, "no space for the image");
		return;
	}
	/* A VM restored from a template's snapshot inherits no fake guest's state. */
	const struct fake_state state = vm->booted ? (struct fake_state){0} : save_image(vm);
	/* The first snapshot of a VM that booted has no memory layer. */
	if (!vm->booted || use_fault(vm->f, FAKES_BOOT_LAYER))
		vm->memory_layers = (vm->memory_layers + 1) % CTL_MEMORY_MAX;
	vm->booted = false;
	vm->layers = vm->layers % CTL_LAYERS_MAX + 1;
	if (use_fault(vm->f, FAKES_FORK_WAIT))
		wait_for_go(vm);
	if (msg->fork.stay_paused) {
		lock(vm->f);
		vm->state = CTL_PAUSED;
		unlock(vm->f);
	}
	struct ctl_msg next;
	if (recv(vm->ctl, &next, sizeof(next), MSG_PEEK | MSG_DONTWAIT) == sizeof(next) &&
	    next.type == CTL_FORK) {
		lock(vm->f);
		vm->f->overlaps++; /* a real VM process would refuse it */
		unlock(vm->f);
	}
	send_image(vm, msg->seq, &state);
}

static void vmproc_connect(struct fake_vm *vm, const struct ctl_msg *msg, int *fds, int nfds)
{
	if (nfds != 1 || msg->connect.port != AGENT_PORT || use_fault(vm->f, FAKES_CONNECT))
		vm_reply(vm, msg->seq, -ECONNREFUSED, "connect to the guest: refused");
	else if (agent_start(vm, &fds[0]))
		vm_reply(vm, msg->seq, 0, "");
	else
		vm_reply(vm, msg->seq, -EMFILE, "too many connections");
}

/* Sends a report with hostile text. */
static void vm_inspect(struct fake_vm *vm, const struct ctl_msg *msg, int *fds, int nfds)
{
	static const char text[] = "vCPU 0: \x1b[31min KVM_RUN\n\rdevice vsock: fine\n\0hidden";

	if (use_fault(vm->f, FAKES_INSPECT))
		vm_reply(vm, msg->seq, -EIO, "no report today");
	else if (nfds != 1 || pwrite(fds[0], text, sizeof(text), 0) != sizeof(text) ||
		 ftruncate(fds[0], 0) == 0 || ftruncate(fds[0], 2 * CTL_REPORT_MAX) == 0)
		vm_reply(vm, msg->seq, -EIO, "the file is invalid");
	else if (!use_fault(vm->f, FAKES_MUTE))
		vm_reply(vm, msg->seq, 0, "");
}

static void vm_send_stats(struct fake_vm *vm, const struct ctl_msg *msg)
{
	uint64_t factor = use_fault(vm->f, FAKES_STATS_LIE) ? UINT64_MAX / 3000 : 1;
	struct ctl_msg reply = {.version = vm->version, .type = CTL_REPLY, .seq = msg->seq};

	if (use_fault(vm->f, FAKES_STATS_WAIT) && !wait_for_go(vm))
		return;
	reply.reply.stats.disk_layer_bytes = 1000 * factor;
	reply.reply.stats.net_rx_bytes = 2000 * factor;
	reply.reply.stats.net_tx_bytes = 3000 * factor;
	vm_send(vm, &reply);
}

/* Serves a request. Returns false when the process ends. */
static bool vm_serve(struct fake_vm *vm, const struct ctl_msg *msg, int *fds, int nfds)
{
	if (step(vm))
		return false;
	if (msg->version != vm->version) {
		vm_reply(vm, msg->seq, -EPROTO, "another version of the protocol");
		return true;
	}
	switch (msg->type) {
	case CTL_FILL:
		vmproc_restore(vm, msg, fds, nfds);
		return true;
	case CTL_CONNECT:
		vmproc_connect(vm, msg, fds, nfds);
		return true;
	case CTL_PAUSE:
		lock(vm->f);
		vm->state = CTL_PAUSED;
		unlock(vm->f);
		vm_reply(vm, msg->seq, 0, "");
		return true;
	case CTL_RUN:
		lock(vm->f);
		vm->state = CTL_RUNNING;
		vm->f->runs++;
		unlock(vm->f);
		vm_reply(vm, msg->seq, 0, "");
		return true;
	case CTL_FORK:
		vmproc_fork(vm, msg, nfds);
		return true;
	case CTL_RECORD:
		vm_reply(vm, msg->seq, use_fault(vm->f, FAKES_RECORD) ? -ENOTSUP : 0, "");
		return true;
	case CTL_INSPECT:
		vm_inspect(vm, msg, fds, nfds);
		return true;
	case CTL_STATS:
		vm_send_stats(vm, msg);
		return true;
	}
	vm_reply(vm, msg->seq, 0, "");
	return msg->type != CTL_QUIT;
}

static bool vmproc_receive(struct fake_vm *vm)
{
	MESSAGE_FDS_ROOM(control, CTL_FDS_MAX);
	struct ctl_msg msg;
	struct iovec iov = {&msg, sizeof(msg)};
	struct msghdr hdr = {.msg_iov = &iov, .msg_iovlen = 1};
	int fds[CTL_FDS_MAX];

	message_want_fds(&hdr, control, CTL_FDS_MAX);
	ssize_t n = recvmsg(vm->ctl, &hdr, MSG_CMSG_CLOEXEC);
	if (n <= 0) { /* the service has disconnected; the VM keeps running */
		lock(vm->f);
		close_fd(&vm->ctl);
		unlock(vm->f);
		return true;
	}
	int nfds = (int)message_take_fds(&hdr, fds);
	bool connected = n == sizeof(msg) && vm_serve(vm, &msg, fds, nfds);
	for (int i = 0; i < nfds; i++)
		close_fd(&fds[i]);
	return connected;
}

static void vm_accept(struct fake_vm *vm)
{
	struct ctl_msg hello = {.type = CTL_HELLO};
	int fd = accept4(vm->listener, NULL, NULL, SOCK_CLOEXEC);

	lock(vm->f);
	close_fd(&vm->ctl);
	vm->ctl = fd;
	hello.hello.state = vm->state;
	memcpy(hello.hello.instance, vm->instance, sizeof(vm->instance));
	unlock(vm->f);
	hello.hello.vcpus = vm->vcpus;
	hello.hello.ram_mib = vm->ram_mib;
	if (!step(vm))
		vm_send(vm, &hello);
}

static void *vm_main(void *arg)
{
	struct fake_vm *vm = arg;
	bool connected = true;

	while (connected) {
		struct pollfd p[] = {
			{vm->stop, POLLIN, 0}, {vm->listener, POLLIN, 0}, {vm->ctl, POLLIN, 0}};

		poll(p, 3, -1);
		if (p[0].revents)
			break;
		if (p[1].revents)
			vm_accept(vm);
		else if (p[2].revents)
			connected = vmproc_receive(vm);
	}
	lock(vm->f);
	vm_die(vm);
	close_fd(&vm->ctl);
	close_fd(&vm->listener);
	unlock(vm->f);
	for (int i = 0; i < AGENTS; i++)
		if (vm->agents[i].fd >= 0)
			agent_join(&vm->agents[i]);
	for (size_t i = 0; i < vm->n_calls; i++)
		fake_call_free(vm->calls[i].call);
	free(vm->calls);
	for (int i = 0; i < CONTEXTS; i++)
		pthread_mutex_destroy(&vm->turns[i]);
	return NULL;
}

static void vm_path(struct fake_vm *vm, const char *name, char *out, size_t size)
{
	snprintf(out, size, "%s/vm/%u%s", vm->f->run_dir, vm->slot, name);
}

static int vm_listen(struct fake_vm *vm)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char log[256];

	vm_path(vm, "", addr.sun_path, sizeof(addr.sun_path));
	mkdir(addr.sun_path, 0700);
	vm_path(vm, "/log", log, sizeof(log));
	scoped_fd int log_fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	dprintf(log_fd, "first words\nlast words\r\n"
			"2026-01-01T00:00:00.000Z info vm 1: last words of the process\n");
	vm_path(vm, "/ctl.sock", addr.sun_path, sizeof(addr.sun_path));
	unlink(addr.sun_path); /* of fakes that were killed */
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 4) < 0)
		abort();
	return fd;
}

static int vm_start(struct fakes *f, const struct warden_msg *msg)
{
	struct fake_vm *vm = &f->vms[msg->slot];

	if (msg->slot >= f->n_slots || vm->taken)
		return -EBUSY;
	*vm = (struct fake_vm){.f = f,
			       .slot = msg->slot,
			       .vcpus = msg->spawn.vcpus,
			       .ram_mib = msg->spawn.ram_mib,
			       .taken = true,
			       .alive = true,
			       .state = CTL_BLANK,
			       .version = CTL_VERSION,
			       .ctl = -1,
			       .stop = eventfd(0, EFD_CLOEXEC)};
	for (int i = 0; i < AGENTS; i++)
		vm->agents[i].fd = -1;
	for (int i = 0; i < CONTEXTS; i++)
		pthread_mutex_init(&vm->turns[i], NULL);
	vm->listener = vm_listen(vm);
	pthread_create(&vm->thread, NULL, vm_main, vm);
	return 0;
}

static void vm_clear(struct fake_vm *vm)
{
	char path[256];

	if (!vm->taken)
		return;
	lock(vm->f);
	bool was_alive = vm->alive;
	vm->alive = false; /* the end of a released VM is not reported */
	if (was_alive) {
		vm->alive = true;
		int service = vm->f->service;
		vm->f->service = -1;
		vm_die(vm);
		vm->f->service = service;
	}
	unlock(vm->f);
	pthread_join(vm->thread, NULL);
	close(vm->stop);
	static const char *const names[] = {"/ctl.sock", "/log", ""};
	for (int i = 0; i < 3; i++) {
		vm_path(vm, names[i], path, sizeof(path));
		remove(path);
	}
	lock(vm->f);
	vm->taken = false;
	unlock(vm->f);
}

/* --- warden --------------------------------------------------------------------------------- */

static int vm_close(struct fakes *f, const struct warden_msg *msg)
{
	if (msg->slot >= f->n_slots || use_fault(f, FAKES_EGRESS))
		return -EPERM;
	lock(f);
	struct fake_vm *vm = &f->vms[msg->slot];
	bool taken = vm->taken;
	vm->closed_first = vm->closed_first || (taken && vm->state == CTL_BLANK);
	vm->closed = taken;
	unlock(f);
	return taken ? 0 : -ESRCH;
}

static void note_priority(struct fake_vm *vm, uint32_t priority)
{
	size_t used = strlen(vm->priorities);

	if (used + 1 < sizeof(vm->priorities))
		vm->priorities[used] = (char)('0' + priority);
}

static bool refuse(struct fakes *f, const struct warden_msg *msg)
{
	lock(f);
	bool refused = msg->type == f->refused_type && msg->slot < f->refused_slots;
	f->refused += refused;
	unlock(f);
	return refused;
}

static void warden_serve(struct fakes *f, const struct warden_msg *msg)
{
	struct warden_msg reply = {.version = WARDEN_VERSION,
				   .type = WARDEN_REPLY,
				   .seq = msg->seq,
				   .slot = msg->slot};

	if (refuse(f, msg)) {
		reply.reply.error = -ENOTRECOVERABLE;
		snprintf(reply.reply.text, sizeof(reply.reply.text), "crashed the warden twice");
	} else if (msg->type == WARDEN_SPAWN && use_fault(f, FAKES_SPAWN)) {
		reply.reply.error = -EPERM;
		snprintf(reply.reply.text, sizeof(reply.reply.text), "/dev/kvm: not permitted");
	} else if (msg->type == WARDEN_SPAWN) {
		lock(f);
		reply.reply.error = vm_start(f, msg);
		unlock(f);
		reply.reply.value = (uint64_t)f->pid;
	} else if (msg->type == WARDEN_MEMORY) {
		lock(f);
		f->limits++;
		unlock(f);
	} else if (msg->type == WARDEN_PRIORITY) {
		lock(f);
		note_priority(&f->vms[msg->slot], msg->priority.priority);
		unlock(f);
	} else if (msg->type == WARDEN_OOM) {
		lock(f);
		f->vms[msg->slot].marked = msg->oom.first;
		unlock(f);
	} else if (msg->type == WARDEN_CHARGED) {
		lock(f);
		f->charges++;
		reply.reply.value = f->charged;
		unlock(f);
		if (use_fault(f, FAKES_CHARGED_WAIT))
			wait_for_go(&f->vms[msg->slot]);
		if (use_fault(f, FAKES_CHARGED))
			reply.reply.error = -ENOTSUP;
	} else if (msg->type == WARDEN_NO_EGRESS) {
		reply.reply.error = vm_close(f, msg);
	} else if (msg->slot < f->n_slots) {
		vm_clear(&f->vms[msg->slot]);
	}
	send(f->service, &reply, sizeof(reply), MSG_NOSIGNAL);
}

static void *warden_main(void *arg)
{
	struct fakes *f = arg;
	struct warden_msg msg;
	eventfd_t ignored;

	for (;;) {
		lock(f);
		int service = f->service;
		bool closing = f->closing;
		unlock(f);
		if (closing)
			return NULL;
		struct pollfd p[] = {{f->wake, POLLIN, 0}, {service, POLLIN, 0}};
		poll(p, 2, -1);
		if (p[0].revents) {
			eventfd_read(f->wake, &ignored);
			lock(f);
			if (f->next_service >= 0) {
				close_fd(&f->service);
				f->service = take_fd(&f->next_service);
			}
			pthread_cond_broadcast(&f->changed);
			unlock(f);
		} else if (recv(service, &msg, sizeof(msg), 0) == sizeof(msg)) {
			warden_serve(f, &msg);
		} else {
			lock(f);
			close_fd(&f->service);
			unlock(f);
		}
	}
}

struct fakes *fakes_new(const char *run_dir)
{
	return fakes_new_many(run_dir, SLOTS);
}

struct fakes *fakes_new_many(const char *run_dir, unsigned slots)
{
	struct fakes *f = calloc(1, sizeof(*f));
	char path[256];

	f->vms = calloc(slots, sizeof(*f->vms));
	f->n_slots = slots;
	if (getrandom(&f->id, sizeof(f->id), 0) != sizeof(f->id))
		abort();
	f->pid = getpid();

	snprintf(f->run_dir, sizeof(f->run_dir), "%s", run_dir);
	snprintf(path, sizeof(path), "%s/vm", run_dir);
	mkdir(path, 0700);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	f->service = f->next_service = -1;
	f->wake = eventfd(0, EFD_CLOEXEC);
	pthread_create(&f->warden, NULL, warden_main, f);
	return f;
}

void fakes_use_pid(struct fakes *f, int pid)
{
	f->pid = pid;
}

void fakes_use_agent(struct fakes *f, const char *socket_path)
{
	snprintf(f->agent_path, sizeof(f->agent_path), "%s", socket_path);
}

int fakes_attach(struct fakes *f)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	lock(f);
	f->next_service = pair[0];
	eventfd_write(f->wake, 1);
	while (f->next_service >= 0)
		pthread_cond_wait(&f->changed, &f->lock);
	unlock(f);
	return pair[1];
}

void fakes_free(struct fakes *f)
{
	lock(f);
	f->closing = true;
	eventfd_write(f->wake, 1);
	pthread_cond_broadcast(&f->changed);
	unlock(f);
	pthread_join(f->warden, NULL);
	for (unsigned i = 0; i < f->n_slots; i++)
		vm_clear(&f->vms[i]);
	for (unsigned i = 0; i < f->n_images; i++)
		for (int x = 0; x < CONTEXTS; x++)
			if (f->images[i].calls[x])
				fake_call_free(f->images[i].calls[x]);
	free(f->images);
	free(f->vms);
	close_fd(&f->service);
	close_fd(&f->wake);
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->changed);
	free(f);
}

/* --- queries of tests ----------------------------------------------------------------------- */

static unsigned count(struct fakes *f, bool (*is)(const struct fake_vm *vm))
{
	unsigned n = 0;

	lock(f);
	for (unsigned i = 0; i < f->n_slots; i++)
		n += is(&f->vms[i]);
	unlock(f);
	return n;
}

static bool is_alive(const struct fake_vm *vm)
{
	return vm->taken && vm->alive;
}

static bool is_taken(const struct fake_vm *vm)
{
	return vm->taken;
}

static bool is_closed(const struct fake_vm *vm)
{
	return vm->taken && vm->closed;
}

static bool is_closed_first(const struct fake_vm *vm)
{
	return vm->taken && vm->closed_first;
}

static bool is_paused(const struct fake_vm *vm)
{
	return vm->taken && vm->alive && vm->state == CTL_PAUSED;
}

unsigned fakes_paused(struct fakes *f)
{
	return count(f, is_paused);
}

unsigned fakes_closed(struct fakes *f)
{
	return count(f, is_closed);
}

unsigned fakes_closed_first(struct fakes *f)
{
	return count(f, is_closed_first);
}

unsigned fakes_live(struct fakes *f)
{
	return count(f, is_alive);
}

unsigned fakes_slots(struct fakes *f)
{
	return count(f, is_taken);
}

static bool is_marked(const struct fake_vm *vm)
{
	return vm->alive && vm->marked;
}

uint64_t fakes_memory_file(struct fakes *f)
{
	lock(f);
	uint64_t memory = f->memory;
	unlock(f);
	return memory;
}

unsigned fakes_marked(struct fakes *f)
{
	return count(f, is_marked);
}

unsigned fakes_with_priorities(struct fakes *f, const char *priorities)
{
	unsigned n = 0;

	lock(f);
	for (unsigned i = 0; i < f->n_slots; i++)
		n += f->vms[i].alive && !strcmp(f->vms[i].priorities, priorities);
	unlock(f);
	return n;
}

static unsigned read_number(struct fakes *f, const unsigned *number)
{
	lock(f);
	unsigned n = *number;
	unlock(f);
	return n;
}

unsigned fakes_boots(struct fakes *f)
{
	return read_number(f, &f->boots);
}

unsigned fakes_limits(struct fakes *f)
{
	return read_number(f, &f->limits);
}

unsigned fakes_charges(struct fakes *f)
{
	return read_number(f, &f->charges);
}

void fakes_memory(struct fakes *f, uint64_t charged, uint64_t copied)
{
	lock(f);
	f->charged = charged;
	f->copied = copied;
	unlock(f);
}

unsigned fakes_grown(struct fakes *f)
{
	return read_number(f, &f->grown);
}

unsigned fakes_restores(struct fakes *f)
{
	return read_number(f, &f->restores);
}

unsigned fakes_reseeds(struct fakes *f)
{
	return read_number(f, &f->reseeds);
}

unsigned fakes_user_reseeds(struct fakes *f)
{
	return read_number(f, &f->user_reseeds);
}

unsigned fakes_attaches(struct fakes *f)
{
	return read_number(f, &f->attaches);
}

unsigned fakes_overlaps(struct fakes *f)
{
	return read_number(f, &f->overlaps);
}

unsigned fakes_forks(struct fakes *f)
{
	return read_number(f, &f->forks);
}

unsigned fakes_runs(struct fakes *f)
{
	return read_number(f, &f->runs);
}

unsigned fakes_agents(struct fakes *f)
{
	return read_number(f, &f->agents);
}

unsigned fakes_dials(struct fakes *f)
{
	return read_number(f, &f->dials);
}

uint64_t fakes_interrupted(struct fakes *f)
{
	lock(f);
	uint64_t call = f->interrupted;
	unlock(f);
	return call;
}

unsigned fakes_asked(struct fakes *f, unsigned type)
{
	return read_number(f, &f->asked[type]);
}

uint64_t fakes_put(struct fakes *f, uint64_t *sum)
{
	lock(f);
	uint64_t bytes = f->put_bytes;
	*sum = f->put_sum;
	unlock(f);
	return bytes;
}

void fakes_put_reset(struct fakes *f)
{
	lock(f);
	f->put_bytes = f->put_sum = 0;
	unlock(f);
}

unsigned fakes_waiting(struct fakes *f)
{
	return read_number(f, &f->waiting);
}

void fakes_kill(struct fakes *f, uint32_t slot)
{
	lock(f);
	vm_die(&f->vms[slot]);
	unlock(f);
}

void fakes_refuse(struct fakes *f, uint32_t type, uint32_t slots)
{
	lock(f);
	f->refused_type = type;
	f->refused_slots = slots;
	unlock(f);
}

unsigned fakes_refused(struct fakes *f)
{
	lock(f);
	unsigned n = f->refused;
	unlock(f);
	return n;
}

void fakes_set_version(struct fakes *f, uint32_t slot, uint32_t version)
{
	lock(f);
	f->vms[slot].version = version;
	unlock(f);
}

bool fakes_is_alive(struct fakes *f, uint32_t slot)
{
	lock(f);
	bool alive = is_alive(&f->vms[slot]);
	unlock(f);
	return alive;
}

void fakes_fault(struct fakes *f, enum fakes_fault fault, int n)
{
	lock(f);
	f->faults[fault] = n;
	unlock(f);
}

int fakes_faults_left(struct fakes *f, enum fakes_fault fault)
{
	lock(f);
	int n = f->faults[fault];
	unlock(f);
	return n;
}

void fakes_go(struct fakes *f)
{
	lock(f);
	f->go++;
	f->waiting = 0; /* here, since the threads wake later */
	pthread_cond_broadcast(&f->changed);
	unlock(f);
}
