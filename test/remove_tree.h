// SPDX-License-Identifier: Apache-2.0
#ifndef RAMET_TEST_REMOVE_TREE_H
#define RAMET_TEST_REMOVE_TREE_H

#include <ftw.h>
#include <stdio.h>

static inline int remove_tree_entry(const char *path, const struct stat *st, int type,
				    struct FTW *ftw)
{
	return remove(path);
}

/* Removes a folder with all that is in it. Returns 0 or -1. */
static inline int remove_tree(const char *dir)
{
	return nftw(dir, remove_tree_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
