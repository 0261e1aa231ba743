/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: names for rare states. The simulation (native/sim) counts how often they were
 * reached; in the module there is nothing of them.
 */
#ifndef DM_VCACHE_PROBE_H
#define DM_VCACHE_PROBE_H

#ifdef VCACHE_PROBES
void sim_probe(const char *name);
#define VCACHE_PROBE(name) sim_probe(name)
#else
#define VCACHE_PROBE(name) do { } while (0)
#endif

#endif /* DM_VCACHE_PROBE_H */
