// SPDX-License-Identifier: Apache-2.0
/* The kernel's word that a device came or changed, so that nothing is asked again and again. */
#ifndef RAMET_GUEST_UEVENT_H
#define RAMET_GUEST_UEVENT_H

#include <stdbool.h>

/*
 * Waits until `is_there(arg)`, which is called at once and after each event. True when it was,
 * false after `ms` milliseconds.
 */
bool uevent_wait(bool (*is_there)(const void *arg), const void *arg, int ms);

#endif
