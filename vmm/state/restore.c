// SPDX-License-Identifier: Apache-2.0
#include "vmm/state/state.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/image.h"
#include "vmm/dev/legacy.h"
#include "vmm/virtio/device.h"

/* One read: this is on the way of every new sandbox. */
static int read_file(int fd, uint8_t **out, size_t *bytes, struct err *e)
{
	scoped_free uint8_t *buf = NULL;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return err_set(e, errno, "size of the state file");
	if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > IMAGE_STATE_MAX)
		return err_say(e, EINVAL, "a state file is a file of 1 to %u bytes",
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

static int set_vcpus(const struct state_parts *p, struct state_image *img, struct err *e)
{
	scoped_free struct vcpu_state *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, ENOMEM, "restore the vCPUs");
	for (unsigned i = 0; i < img->vcpus; i++) {
		int r = vcpu_state_read(&state_find(img, STATE_VCPU + i)->body, s, e);

		if (!r)
			r = vcpu_state_set(p->kvm, i, s, e);
		if (r)
			return r;
	}
	return 0;
}

static int set_vm(const struct state_parts *p, struct state_image *img, struct err *e)
{
	struct vm_state s;
	int r = vm_state_read(&state_find(img, STATE_VM)->body, &s, e);

	return r ? r : vm_state_set(p->kvm, &s, e);
}

static int set_legacy(const struct state_parts *p, struct state_image *img, struct err *e)
{
	struct wire *r = &state_find(img, STATE_LEGACY)->body;

	legacy_restore(p->legacy, r);
	if (r->bad || wire_left(r))
		return err_say(e, EINVAL, "the state of the legacy ports is malformed");
	return 0;
}

static int set_devices(const struct state_parts *p, struct state_image *img, struct err *e)
{
	for (unsigned i = 0; i < p->ndevices; i++) {
		struct wire *r = &state_find(img, STATE_DEVICE + i)->body;
		int res = vio_mmio_restore(p->devices[i], r, e);

		if (!res && (r->bad || wire_left(r)))
			res = err_say(e, EINVAL, "its state is malformed");
		if (res)
			return err_context(e, "device %u", i);
	}
	return 0;
}

int state_restore(const struct state_parts *p, int fd, struct err *e)
{
	scoped_free uint8_t *file = NULL;
	struct state_image img;
	size_t bytes = 0;
	int r = read_file(fd, &file, &bytes, e);

	if (!r)
		r = state_parse(&img, file, bytes, p->ndevices, e);
	if (r)
		return r;
	if (img.vcpus != p->kvm->nvcpus || img.ram_mib != p->ram_mib)
		return err_say(e, EINVAL,
			       "the image is of a VM with %u vCPUs and %u MiB, this shell has %u "
			       "and %u",
			       img.vcpus, img.ram_mib, p->kvm->nvcpus, p->ram_mib);
	/* The VM's clock is computed from the vCPUs' TSCs; a device may raise its interrupt. */
	r = set_vcpus(p, &img, e);
	if (!r)
		r = set_vm(p, &img, e);
	if (!r)
		r = set_legacy(p, &img, e);
	if (!r)
		r = set_devices(p, &img, e);
	return r;
}
