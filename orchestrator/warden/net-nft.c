// SPDX-License-Identifier: Apache-2.0
/*
 * libnftables waits for its netlink socket with select(2), which aborts the process if the number
 * of the socket is FD_SETSIZE or more. The warden has several descriptors for each VM, so it
 * reserves a small number at its start, and gives it to libnftables for each run.
 */
#include "orchestrator/warden/net-nft.h"

#include <errno.h>
#include <fcntl.h>
#include <nftables/libnftables.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/select.h>

#include "base/fd.h"

int nft_reserve(struct err *e)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	if (fd < 0)
		return err_set(e, errno, "reserve a descriptor for nftables");
	if (fd < FD_SETSIZE)
		return fd;
	close(fd);
	return err_say(e, EMFILE,
		       "nftables needs a descriptor below %d, and all of these are in use: start "
		       "rametd with fewer open files",
		       FD_SETSIZE);
}

static void free_context(struct nft_ctx **nft)
{
	if (*nft)
		nft_ctx_free(*nft);
}

#define scoped_nft __attribute__((cleanup(free_context)))

static int run(const char *commands, char **output, const char *what, struct err *e)
{
	scoped_nft struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);

	if (!nft || nft_ctx_buffer_error(nft) < 0 || (output && nft_ctx_buffer_output(nft) < 0))
		return err_set(e, ENOMEM, "allocate an nftables context");
	errno = 0;
	if (nft_run_cmd_from_buffer(nft, commands) < 0)
		return err_say(e, errno ? errno : EINVAL, "%s: %.160s", what,
			       nft_ctx_get_error_buffer(nft));
	if (!output)
		return 0;
	*output = strdup(nft_ctx_get_output_buffer(nft));
	return *output ? 0 : err_set(e, ENOMEM, "read what nftables printed");
}

int nft_run(int reserved, const char *commands, char **output, const char *what, struct err *e)
{
	scoped_fd int kept = fcntl(reserved, F_DUPFD_CLOEXEC, reserved + 1);

	if (kept < 0)
		return err_set(e, errno, "keep the descriptor that is reserved for nftables");
	/* A new descriptor gets the lowest free number, so the number of nftables' socket is at
	 * most the one that is freed here. */
	close(reserved);
	int r = run(commands, output, what, e);
	dup3(kept, reserved, O_CLOEXEC);
	return r;
}
