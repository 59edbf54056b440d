// SPDX-License-Identifier: Apache-2.0
/*
 * Formats of the files that make up a snapshot of a VM: a state file (below), a memory file (guest
 * RAM at its RAM offsets, a sparse file of exactly the RAM's size), memory layers over it and disk
 * layers (both below). All numbers are little-endian.
 */
#ifndef RAMET_PROTO_IMAGE_H
#define RAMET_PROTO_IMAGE_H

#include <stdint.h>

#include "proto/versions.h"

/*
 * State file: char magic[8], u32 version, u32 body bytes, u32 CRC-32C of the body, u32 zero, then
 * the body: u32 vcpus, u32 ram_mib, and sections: u32 id, u32 version, u32 bytes, bytes. A reader
 * refuses an unknown version, an unknown section and a missing one. Increment the version on any
 * change.
 */
#define IMAGE_STATE_MAGIC "RAMETSTA"
#define IMAGE_STATE_MAX	  (4u << 20) /* bytes, header included */

/*
 * Memory layer: the extents of pages that differ from the layers below. First the table: char
 * magic[8], u32 version, u32 number of extents, u64 ram_bytes, u32 CRC-32C of the table (with this
 * field zero), u32 zero, then for each extent u64 offset in RAM, u64 bytes: multiples of 4096,
 * ascending, with a gap between any two, inside the RAM. At the next multiple of 4096 begin the
 * pages of all extents, one after the other to the end of the file; zero pages may be holes.
 */
#define IMAGE_MEMORY_MAGIC	 "RAMETMEM"
#define IMAGE_MEMORY_EXTENTS_MAX 16384u

/*
 * Disk layer: the header in the first 4 KiB; a bitmap of clusters from byte 4096 (bit i: cluster i
 * is in this layer), rounded up to 4 KiB; then the clusters, sparse, cluster i at data_offset + i *
 * cluster_bytes. A cluster whose bit is set but which is a hole reads as zeros. The checksum covers
 * the header (with this field zero) and the bitmap. It is written when the layer is sealed; only a
 * sealed layer can serve as a lower layer.
 *
 * char magic[8], u32 version, u32 cluster_bytes (4096), u64 disk_bytes, u64 data_offset,
 * u64 id, u64 parent id (0: the base), u32 sealed (0 or 1), u32 CRC-32C.
 */
#define IMAGE_LAYER_MAGIC "RAMETLAY"
#define IMAGE_CLUSTER	  4096u

#endif
