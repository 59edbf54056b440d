// SPDX-License-Identifier: Apache-2.0
#include "vmm/state/state.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/image.h"
#include "proto/platform.h"
#include "vmm/dev/generation.h"
#include "vmm/dev/cmos.h"
#include "vmm/kvm/irq.h"
#include "vmm/kvm/vcpus.h"
#include "vmm/virtio/device.h"

/* Reads the file with one call, since the creation of every sandbox waits for it. */
static int read_file(int fd, uint8_t **out, size_t *bytes, struct err *e)
{
	scoped_free uint8_t *buf = NULL;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "get the size of the state file");
	if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > IMAGE_STATE_MAX)
		return err_say(e, EINVAL, "the state file is not a regular file of 1 to %u bytes",
			       IMAGE_STATE_MAX);
	buf = malloc((size_t)st.st_size);
	if (!buf)
		return err_set(e, ENOMEM, "read the state file");
	n = pread(fd, buf, (size_t)st.st_size, 0);
	if (n < 0)
		return err_set(e, errno, "read the state file");
	*bytes = (size_t)n;
	*out = buf;
	buf = NULL;
	return 0;
}

struct state_restore {
	struct state_parts parts;
	uint8_t *file; /* img points into it */
	struct state_file img;
	struct vm_state vm;
	pthread_mutex_t lock;
	pthread_cond_t led;
	bool tsc_leads; /* vCPU 0 is set, or failed: the others may follow */
	struct vcpu_state vcpus[];
};

static int check_shape(const struct state_parts *p, const struct state_file *img, struct err *e)
{
	if (img->vcpus == p->kvm->nvcpus && img->ram_mib == p->ram_mib)
		return 0;
	return err_say(e, EINVAL,
		       "the snapshot has %u vCPUs and %u MiB of RAM, this VM has %u and %u",
		       img->vcpus, img->ram_mib, p->kvm->nvcpus, p->ram_mib);
}

static int check_end(const struct wire *body, const char *what, struct err *e)
{
	if (body->bad || wire_left(body))
		return err_say(e, EINVAL, "the state of the %s is malformed", what);
	return 0;
}

static int read_generation(struct state_restore *s, struct err *e)
{
	struct wire *body = &state_find(&s->img, STATE_GENERATION)->body;

	generation_restore(s->parts.generation, body);
	return check_end(body, "generation", e);
}

static int read_working_set(struct state_restore *s, struct err *e)
{
	struct wire *body = &state_find(&s->img, STATE_WORKING_SET)->body;

	return working_set_read(body, s->parts.working_set, s->img.ram_mib, e);
}

static int read_states(struct state_restore *s, struct err *e)
{
	int r = vm_state_read(&state_find(&s->img, STATE_VM)->body, &s->vm, e);

	for (unsigned i = 0; !r && i < s->img.vcpus; i++)
		r = vcpu_state_read(&state_find(&s->img, STATE_VCPU + i)->body, &s->vcpus[i], e);
	return r;
}

int state_open(struct state_restore **out, const struct state_parts *p, int fd, struct err *e)
{
	struct state_restore *s = calloc(1, sizeof(*s) + p->kvm->nvcpus * sizeof(s->vcpus[0]));
	size_t bytes = 0;
	int r;

	if (!s)
		return err_set(e, ENOMEM, "restore the VM's state");
	s->parts = *p;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->led, NULL);
	r = read_file(fd, &s->file, &bytes, e);
	if (!r)
		r = state_parse(&s->img, s->file, bytes, p->ndevices, e);
	if (!r)
		r = check_shape(p, &s->img, e);
	if (!r)
		r = read_states(s, e);
	if (!r)
		r = read_generation(s, e);
	if (!r)
		r = read_working_set(s, e);
	if (r) {
		state_close(s);
		return r;
	}
	*out = s;
	return 0;
}

void state_close(struct state_restore *s)
{
	if (!s)
		return;
	pthread_cond_destroy(&s->led);
	pthread_mutex_destroy(&s->lock);
	free(s->file);
	free(s);
}

static void lead(struct state_restore *s)
{
	pthread_mutex_lock(&s->lock);
	s->tsc_leads = true;
	pthread_cond_broadcast(&s->led);
	pthread_mutex_unlock(&s->lock);
}

static void follow(struct state_restore *s)
{
	pthread_mutex_lock(&s->lock);
	while (!s->tsc_leads)
		pthread_cond_wait(&s->led, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

/* Called on each vCPU's thread. */
static int set_vcpu(void *arg, unsigned i, struct err *e)
{
	struct state_restore *s = arg;
	struct kvm_vm *kvm = s->parts.kvm;
	int r = vcpu_state_set(kvm, i, &s->vcpus[i], e);

	if (i)
		follow(s);
	if (!r)
		r = vcpu_state_finish(kvm, i, &s->vcpus[i], e);
	if (!i)
		lead(s);
	if (!r && kvm->host->pre_faults)
		working_set_map(s->parts.working_set, s->parts.mem, kvm->vcpu[i].fd, i,
				kvm->nvcpus);
	if (!r)
		kvm_vcpu_clock_stopped(&kvm->vcpu[i]);
	return r;
}

static bool notifies_kernel(const struct state_restore *s)
{
	return generation_promised(s->parts.generation) & PLATFORM_GENERATION_KERNEL;
}

/*
 * Sets the chips, then raises the generation interrupt. No vCPU runs yet, so the guest handles it
 * first.
 */
static int set_chips(void *arg, struct err *e)
{
	struct state_restore *s = arg;
	int r = vm_state_set(s->parts.kvm, &s->vm, e);

	if (!r && notifies_kernel(s))
		r = irq_pulse(s->parts.kvm, PLATFORM_GENERATION_IRQ, e);
	return r;
}

void state_start_vcpus(struct state_restore *s)
{
	static const struct vcpus_job job = {.each = set_vcpu, .last = set_chips};

	/*
	 * vCPU 0 leads, or the others could draw random numbers before it has reseeded the
	 * generator. They still can if vCPU 0 gets no CPU for a second, since its lead is limited.
	 */
	if (notifies_kernel(s))
		vcpus_lead(s->parts.vcpus);
	vcpus_prepare(s->parts.vcpus, &job, s);
}

static int set_cmos(struct state_restore *s, struct err *e)
{
	struct wire *r = &state_find(&s->img, STATE_CMOS)->body;

	cmos_restore(s->parts.cmos, r);
	return check_end(r, "CMOS clock", e);
}

static int set_device(struct state_restore *s, unsigned i, struct err *e)
{
	struct wire *r = &state_find(&s->img, STATE_DEVICE + i)->body;
	int res = vio_mmio_restore(s->parts.devices[i], r, e);

	if (!res)
		res = check_end(r, "device", e);
	return res ? err_context(e, "device %u", i) : 0;
}

int state_set_devices(struct state_restore *s, struct err *e)
{
	int r = set_cmos(s, e);

	for (unsigned i = 0; !r && i < s->parts.ndevices; i++)
		r = set_device(s, i, e);
	return r;
}
