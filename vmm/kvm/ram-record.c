// SPDX-License-Identifier: Apache-2.0
/*
 * Records the working set of a booted guest: unmaps its memfd, which keeps the content, and
 * write-protects the whole range. What is mapped later was used, and what is then not protected was
 * written. A range registered with userfaultfd has no fault-around, which would map unused pages.
 */
#include "vmm/kvm/ram-internal.h"

#include <errno.h>
#include <stddef.h>

#include "base/log.h"
#include "vmm/kvm/pagemap.h"

/* An extent costs about as much as one more page. */
#define GAP (2u * RAM_PAGE)

int ram_record(struct ram *r, struct err *e)
{
	if (!r->shared)
		return err_say(e, EINVAL,
			       "only a guest that has booted and was never forked can "
			       "have its working set recorded");
	if (r->watch_fd < 0 || r->pagemap_fd < 0)
		return err_say(e, ENOTSUP, "this kernel can't track writes to memory");
	if (watch_from_empty(r) < 0)
		return err_set(e, errno, "record the guest's working set");
	working_set_free(&r->working_set);
	r->recording = true;
	return 0;
}

static int list_used(const struct ram *r, struct working_set *out)
{
	struct extents used = {0};
	int result = pagemap_used(r->pagemap_fd, r->gm, &used, &out->written, NULL);

	if (!result)
		result = extents_join(&out->used, &used, GAP, WORKING_SET_EXTENTS_MAX);
	/* Written pages are not joined over gaps: each page in a gap would cost every clone a copy.
	 */
	if (!result && out->written.n > WORKING_SET_EXTENTS_MAX)
		result = -E2BIG;
	extents_free(&used);
	return result;
}

void record_end(struct ram *r)
{
	struct working_set *w = &r->working_set;

	if (!r->recording)
		return;
	r->recording = false;
	if (list_used(r, w) || extents_bytes(&w->used) > WORKING_SET_BYTES_MAX ||
	    extents_bytes(&w->written) > WORKING_SET_BYTES_MAX) {
		log_warn("the guest's working set is not kept: it is too large, or could not be "
			 "listed");
		working_set_free(w);
	}
}
