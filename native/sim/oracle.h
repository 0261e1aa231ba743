/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulation: the oracle, see oracle.c.
 */
#ifndef SIM_ORACLE_H
#define SIM_ORACLE_H

#include "sim.h"

#define ORACLE_SECTORS 512
#define ORACLE_WRITES 1024
#define ORACLE_ALIVE 48		/* versions of a sector that are possible at a time */
#define ORACLE_TAGS 3		/* 0 is the host */

/* Who sends a flush. */
enum { ORACLE_ALL = ORACLE_TAGS };

/* A request is sent. Return: the number of the write, which its sectors show. */
u32 oracle_write(u32 tag, u32 sector, u32 n, bool fua);
void oracle_write_done(u32 id, bool failed);
u32 oracle_discard(u32 sector, u32 n);
void oracle_discard_done(u32 id);
/* @who is a tag, or ORACLE_ALL. Return: for oracle_flush_done(). */
u64 oracle_flush(u32 who);
void oracle_flush_done(u64 flush, u32 who, bool failed);
void oracle_tag_removed(u32 tag, u64 began);
/* A fault of the cache device concerns these sectors, see faults.c. */
void oracle_lost(u32 sector, u32 n, bool forever);
void oracle_garbled(u32 sector, u32 n, bool sealed);
void oracle_sealed(u32 sector, u32 n);	/* garbled ones: their chunk gets a seal */
/* When a read is sent, and what it has returned. Return: NULL, or what is wrong. */
u64 oracle_read(void);
const char *oracle_read_done(u64 read, u32 sector, u32 content);
/* What a power cut now may leave. */
struct oracle_view { u32 n; u32 *word; };
struct oracle_view oracle_view(void *(*alloc)(size_t));
const char *oracle_check(const struct oracle_view *v, const u32 *content);
u64 oracle_hash(void);
/*
 * Begin with a new disk, or with what was read after a power cut. @left: what that might leave:
 * an incomplete discard stays incomplete.
 */
void oracle_reset(u32 sectors, const u32 *content, const struct oracle_view *left);
bool oracle_view_is_wild(const struct oracle_view *v, u32 sector);

#endif
