// SPDX-License-Identifier: Apache-2.0
/* HAS_SANITIZER: 1 when this is compiled with AddressSanitizer or ThreadSanitizer, else 0. */
#ifndef RAMET_BASE_SANITIZER_H
#define RAMET_BASE_SANITIZER_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

#endif
