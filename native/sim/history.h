/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulation: histories. history.c runs them; cases.c and directed.c say which there are.
 */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include "oracle.h"

struct sim_config {
	const char *name;
	const char *mode;	/* of the table */
	bool volume;		/* volume scope */
	enum sim_isolation origin, cache;
	u32 blocks;		/* of the origin */
	u32 chunks;		/* of the pool when it is made; 0: no pool */
	u32 more;		/* and of the cache device */
};
extern const struct sim_config sim_configs[];
extern const u32 sim_nconfigs;
u32 sectors_of(const struct sim_config *c);	/* of the origin */

enum op_kind {
	OP_WRITE_A, OP_WRITE_B, OP_WRITE_HOST, OP_FUA, OP_FLUSH_A, OP_FLUSH_ALL, OP_DISCARD,
	OP_MODE, OP_RECREATE, OP_RESIZE, OP_PROMOTE,
	OP_EXHAUSTIVE,
	/* Only in random histories: */
	OP_READ = OP_EXHAUSTIVE, OP_FLUSH_B, OP_DRAIN, OP_DROP, OP_SUSPEND, OP_NOFLUSH, OP_TIME,
	OP_FAIL_ORIGIN, OP_FAIL_CACHE, OP_LOSE_CACHE, OP_HANG, OP_HEAL, OP_FUA_B,
	OP_FAIL_LAST,		/* the chunk that was written last */
	OP_KINDS
};
extern const char * const op_names[OP_KINDS];

#define OPS_MAX 256

struct op {
	enum op_kind kind;
	u32 sector, n;
	u32 arg;
	/* Filled in as it runs. */
	int state;		/* 0: not sent, 1: under way, 2: complete */
	int error;
	u32 id;
	u64 when;
	u32 tag;
	bool must;		/* no failed device is a reason to fail */
};

struct counts {
	u64 histories, orders, cuts, recoveries, remembered, steps, violations;
};
extern struct counts counts;

/* Called for each violation. */
void violation(const char *what);

/* One case; its text replays it. */
struct sim_case {
	char text[64];
	const struct sim_config *config;
	struct op op[OPS_MAX];
	u32 nops;
	enum sim_order order;
	u64 seed;
	bool overlap;		/* several requests may be under way */
	bool faults;
	u32 cut_every;		/* of so many states, one is cut; 1: all */
	u32 latency;
	u32 large;		/* writes of so many KiB are not copied; 0: all are */
	bool no_memory;
	u32 settle;		/* seconds after the last request */
	bool no_heal;		/* all requests end although the fault stays */
	bool no_empty;
	bool reread;		/* always look whether what was recovered stays */
	u32 bad_blocks;		/* at most so many stay dirty; 0: any */
	struct sim_damage damage;
	u32 rounds;		/* histories one after another, with a power cut between them */
};
/* A parameter of the module. */
extern unsigned int *const sim_param_large_write_kib;

void run_case(struct sim_case *c);
void history_init(void);
void exhaustive_case(struct sim_case *c, u32 config, u32 len, u64 index, u32 order);
u64 exhaustive_count(u32 len);
bool directed_case(struct sim_case *c, const char *name, u64 seed);
const char *directed_name(u32 nr);
void random_case(struct sim_case *c, u64 seed);

#endif
