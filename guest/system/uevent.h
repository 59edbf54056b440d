// SPDX-License-Identifier: Apache-2.0
/* Waits for devices by the kernel's events instead of polling. */
#ifndef RAMET_GUEST_SYSTEM_UEVENT_H
#define RAMET_GUEST_SYSTEM_UEVENT_H

#include <stdbool.h>

/*
 * Waits until `is_there(arg)` returns true; calls it at once and after each event. Returns false
 * after `ms` milliseconds.
 */
bool uevent_wait(bool (*is_there)(const void *arg), const void *arg, int ms);

#endif
