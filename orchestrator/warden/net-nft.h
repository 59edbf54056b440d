// SPDX-License-Identifier: Apache-2.0
/* Commands to nftables as text, through libnftables. */
#ifndef RAMET_ORCHESTRATOR_WARDEN_NET_NFT_H
#define RAMET_ORCHESTRATOR_WARDEN_NET_NFT_H

#include "base/err.h"

/* Returns a descriptor that keeps a number free for nft_run, or -errno with *e filled. */
int nft_reserve(struct err *e);

/*
 * Runs commands in nft's syntax in the present network namespace. `reserved` is from nft_reserve,
 * and again valid on return. With `output`, which may be NULL, *output is what the commands
 * printed, and the caller frees it. Returns 0 or -errno; an *e with the message of nft begins with
 * `what`.
 */
int nft_run(int reserved, const char *commands, char **output, const char *what, struct err *e);

#endif
