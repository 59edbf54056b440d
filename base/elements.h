// SPDX-License-Identifier: Apache-2.0
/*
 * Walks over the elements of a list (base/list.h): the structs that a node is a member of.
 */
#ifndef RAMET_BASE_ELEMENTS_H
#define RAMET_BASE_ELEMENTS_H

#include "base/list.h"

/* Returns the first element of the list, or NULL. */
#define list_first_of(head, type, member)                                                          \
	(list_empty(head) ? NULL : container_of(list_next(head), type, member))

/* The node of an element, and the element after it. After the last one comes one that is not real:
 * its node is the list itself. */
#define list_node_of(pos, type, member)                                                            \
	((const struct list *)((uintptr_t)(pos) + offsetof(type, member)))
#define list_next_of(pos, type, member)                                                            \
	container_of(list_next(list_node_of(pos, type, member)), type, member)

/* Declares `pos` as a pointer to `type` and walks over all elements. */
#define list_each_of(pos, type, member, head)                                                      \
	for (type *pos = container_of(list_next(head), type, member);                              \
	     list_node_of(pos, type, member) != (head); pos = list_next_of(pos, type, member))

/* Like list_each_of, but `pos` may be removed from the list in the body. */
#define list_each_of_safe(pos, type, member, head)                                                 \
	for (type *pos = container_of(list_next(head), type, member),                              \
		  *pos##_next = list_next_of(pos, type, member);                                   \
	     list_node_of(pos, type, member) != (head);                                            \
	     pos = pos##_next, pos##_next = list_next_of(pos, type, member))

/* As long as the list is not empty: `pos` is its first element, which the body removes. */
#define list_drain_of(pos, type, member, head)                                                     \
	for (type *pos = NULL; (pos = list_first_of(head, type, member));)

#endif
