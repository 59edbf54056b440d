// SPDX-License-Identifier: Apache-2.0
/* CRC-32C (Castagnoli), the checksum of everything Ramet writes to a file. */
#ifndef RAMET_BASE_CRC32C_H
#define RAMET_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the checksum of `data` appended to data whose checksum is `crc`; 0 to begin. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);
/* Does the same for 4096 zero bytes, in constant time. */
uint32_t crc32c_zero_page(uint32_t crc);

#endif
