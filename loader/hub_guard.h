/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub_guard.h - what lies in a repository of a hub cache: shared by whoever uses the
 * cache, and never written.
 */
#ifndef BERTH_LOADER_HUB_GUARD_H
#define BERTH_LOADER_HUB_GUARD_H

#include <stdbool.h>

/*
 * Whether `path`, of which links have been followed, is a repository's folder or lies in one. A
 * repository has snapshots of commits, whatever it is called; or it is called as the cache
 * calls them, models--org--name, and has any of a repository's folders, or lies beside one that
 * has. What cannot be looked at is no repository. `path` need not be there.
 */
bool berthi_hub_guards(const char *path);

#endif
