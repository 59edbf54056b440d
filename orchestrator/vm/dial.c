// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/vm/dial.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/num.h"
#include "orchestrator/vm/progress.h"
#include "proto/agent.h"

#define FIRST_WAIT_MS 2
#define MAX_WAIT_MS   500

struct dial {
	struct vmproc *vm;
	struct loop *loop;
	uint64_t give_up_ms; /* on the loop's clock */
	uint32_t stalled_ms; /* 0: `give_up_ms` is final, whatever the VM does; else the VM is
			      * unusable without this connection */
	struct vmproc_progress progress;
	uint32_t wait_ms;
	struct loop_timer again;
	struct vmproc_request *request;
	int fd; /* this side's end of the pair while the request is in flight */
	dial_fn *fn;
	void *arg;
};

static void finish(struct dial *d, const char *text)
{
	dial_fn *fn = d->fn;
	void *arg = d->arg;
	int fd = text ? -1 : take_fd(&d->fd);

	close_fd(&d->fd);
	free(d);
	fn(arg, fd, text);
}

/* Returns true for an error that may go away: the guest's kernel or agent is not up yet or was
 * reset by the restore, or the host is short of memory and the VM process may not have received the
 * request. Or the VM has too many connections: those of a previous instance of the service end when
 * the guest has closed them. */
static bool is_transient(int error, bool was_asked)
{
	if (error == -ENOMEM || error == -ENOBUFS)
		return true;
	return was_asked && (error == -ECONNREFUSED || error == -ETIMEDOUT ||
			     error == -ECONNRESET || error == -EAGAIN || error == -EMFILE);
}

static bool extend_deadline(struct dial *d)
{
	uint64_t next_ms = loop_now_ms(d->loop) + d->wait_ms;

	if (next_ms <= d->give_up_ms)
		return true;
	if (!d->stalled_ms ||
	    !vmproc_progressed(&d->progress, vmproc_id(d->vm)->pid, VM_GUEST_WORKS))
		return false;
	d->give_up_ms = next_ms + d->stalled_ms;
	return true;
}

/* Schedules the next attempt, or fails with `text` after the deadline. */
static void retry(struct dial *d, const char *text)
{
	if (!extend_deadline(d)) {
		finish(d, text);
		return;
	}
	loop_timer_set(d->loop, &d->again, d->wait_ms);
	d->wait_ms = backoff_next(d->wait_ms, FIRST_WAIT_MS, MAX_WAIT_MS);
}

static void on_reply(void *arg, int error, const char *text, const struct ctl_msg *reply)
{
	struct dial *d = arg;

	d->request = NULL;
	if (!error) {
		finish(d, NULL);
		return;
	}
	close_fd(&d->fd);
	if (is_transient(error, reply != NULL))
		retry(d, text);
	else
		finish(d, text);
}

static bool try(struct dial *d)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	d->fd = pair[0];
	d->request = vmproc_connect(d->vm, AGENT_PORT, d->stalled_ms != 0, pair[1], on_reply, d);
	return true;
}

/* Retries when no descriptors are left. That is transient: at its start the service dials all VMs
 * at once, and a dial holds more descriptors than the resulting connection. */
static void try_again(void *arg)
{
	struct dial *d = arg;

	if (!try(d))
		retry(d, "no descriptors left for a connection to the guest (see the limit on open "
			 "files)");
}

struct dial *dial_start(struct vmproc *vm, uint32_t ms, bool while_working, dial_fn *fn, void *arg)
{
	struct dial *d = must_alloc(sizeof(*d));
	struct loop *loop = vmproc_loop(vm);

	*d = (struct dial){.vm = vm,
			   .loop = loop,
			   .stalled_ms = while_working ? ms : 0,
			   .wait_ms = FIRST_WAIT_MS,
			   .again = {.fn = try_again, .arg = d},
			   .fd = -1,
			   .fn = fn,
			   .arg = arg};
	d->give_up_ms =
		loop_now_ms(loop) + (while_working ? vmproc_progress_begin(&d->progress, ms) : ms);
	if (!try(d))
		loop_timer_set(loop, &d->again, FIRST_WAIT_MS);
	return d;
}

void dial_cancel(struct dial *d)
{
	if (!d)
		return;
	loop_timer_clear(d->loop, &d->again);
	if (d->request)
		vmproc_request_cancel(d->request);
	close_fd(&d->fd);
	free(d);
}
