// SPDX-License-Identifier: Apache-2.0
/*
 * The files an image of a VM is made of: state (below), memory (guest RAM at its RAM offsets, as a
 * sparse file of exactly the RAM's size), memory layers over it and disk layers (both below). All
 * little-endian.
 */
#ifndef RAMET_PROTO_IMAGE_H
#define RAMET_PROTO_IMAGE_H

#include <stdint.h>

/*
 * State file: char magic[8], u32 version, u32 body bytes, u32 CRC-32C of the body, u32 zero, then
 * the body: u32 vcpus, u32 ram_mib, and sections: u32 id, u32 version, u32 bytes, bytes. A reader
 * refuses a version it does not know, an unknown section and a missing one. Bump the version on any
 * change.
 */
#define IMAGE_STATE_MAGIC	"RAMETSTA"
#define IMAGE_STATE_VERSION	3	   /* 3: who makes itself unique in a copy */
#define IMAGE_STATE_VERSION_MIN 2	   /* 2: network and balloon devices */
#define IMAGE_STATE_MAX		(4u << 20) /* bytes, header included */

/*
 * Memory layer: the runs of pages that differ from what is below it. First the table: char
 * magic[8], u32 version, u32 runs, u64 ram_bytes, u32 CRC-32C of the table (this field zero), u32
 * zero, then for each run u64 offset in RAM, u64 bytes: multiples of 4096, ascending, with a gap
 * between any two, inside the RAM. From the next multiple of 4096 on the pages of all runs, one
 * after the other to the end of the file; those of zeros may be holes.
 */
#define IMAGE_MEMORY_MAGIC    "RAMETMEM"
#define IMAGE_MEMORY_VERSION  2
#define IMAGE_MEMORY_RUNS_MAX 16384u

/*
 * Disk layer: the header in the first 4 KiB, a bitmap of clusters from byte 4096 (bit i: cluster i
 * is in this layer), rounded up to 4 KiB, then the clusters, cluster i at data_offset + i *
 * cluster_bytes, sparse. A cluster whose bit is set and which is a hole reads as zeros. The
 * checksum covers the header (with the field zero) and the bitmap; it is written when the layer is
 * sealed, and only a sealed layer can be opened as one.
 *
 * char magic[8], u32 version, u32 cluster_bytes (4096), u64 disk_bytes, u64 data_offset,
 * u64 id, u64 parent id (0: the base), u32 sealed (0 or 1), u32 CRC-32C.
 */
#define IMAGE_LAYER_MAGIC   "RAMETLAY"
#define IMAGE_LAYER_VERSION 1
#define IMAGE_CLUSTER	    4096u

#endif
