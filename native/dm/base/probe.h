/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-vcache: names for rare states, and checks of what must hold.
 *
 * The simulation (native/sim) counts how often a state was reached. In the module there is
 * nothing of that. Checks are compiled with VCACHE_CHECKS=y only: in the simulation, where
 * one that fails ends the run, and in the module for the tests.
 */
#ifndef DM_VCACHE_PROBE_H
#define DM_VCACHE_PROBE_H

#ifdef VCACHE_PROBES
void sim_probe(const char *name);
void sim_check(bool holds, const char *what);
#define VCACHE_PROBE(name) sim_probe(name)
#else
#define VCACHE_PROBE(name) do { } while (0)
#endif

#if defined(VCACHE_PROBES)
#define VCACHE_CHECK(cond) sim_check(cond, #cond)
#elif defined(VCACHE_CHECKS)
#define VCACHE_CHECK(cond) WARN_ON_ONCE(!(cond))
#else
#define VCACHE_CHECK(cond) do { } while (0)
#endif

#endif /* DM_VCACHE_PROBE_H */
