/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulation: types, bits, lists, atomics, memory and other plain things that the module
 * expects of the kernel. Everything here runs in one thread of the operating system.
 */
#ifndef SIM_BASE_H
#define SIM_BASE_H

#include <asm/errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>

typedef unsigned int uint;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int32_t s32;
typedef long long s64;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef u16 __le16;
typedef u32 __le32;
typedef u64 __le64;
typedef s64 ktime_t;
typedef u64 sector_t;
typedef unsigned long pgoff_t;
typedef unsigned int gfp_t;
typedef u8 blk_status_t;
typedef u32 blk_opf_t;
typedef unsigned int blk_mode_t;
typedef unsigned int fmode_t;
typedef unsigned short umode_t;

#define __rcu
#define __init
#define __ro_after_init
#define __exit
#define __user
#define __must_check
#define __maybe_unused __attribute__((unused))
#define __always_unused __attribute__((unused))
#define __packed __attribute__((packed))
#define __printf(a, b) __attribute__((format(printf, a, b)))
#define __acquire(x) ((void)(x))
#define __release(x) ((void)(x))
#define __acquires(x)
#define __releases(x)
#define __cacheline_aligned
#define ____cacheline_aligned_in_smp
#define noinline __attribute__((noinline))
#define fallthrough __attribute__((fallthrough))
#define likely(x) (x)
#define unlikely(x) (x)
#ifndef static_assert
#define static_assert(x, ...) _Static_assert(x, #x)
#endif
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) \
	((type *)((char *)(p) - offsetof(type, member)))
#define U32_MAX 0xffffffffU
#define U64_MAX 0xffffffffffffffffULL
#define U16_MAX 0xffffU
#define U8_MAX 0xffU
#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL
#define SECTOR_SHIFT 9
#define SECTOR_SIZE 512
#define NSEC_PER_USEC 1000L
#define NSEC_PER_MSEC 1000000L
#define NSEC_PER_SEC 1000000000L
#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
#define LINUX_VERSION_CODE KERNEL_VERSION(6, 12, 0)
#define THIS_MODULE NULL

#define min(a, b) ({ __typeof__(a) _a = (a); __typeof__(b) _b = (b); \
		     _a < _b ? _a : _b; })
#define max(a, b) ({ __typeof__(a) _a = (a); __typeof__(b) _b = (b); \
		     _a > _b ? _a : _b; })
#define max3(a, b, c) max(max(a, b), c)
#define min3(a, b, c) min(min(a, b), c)
#define SZ_1K 1024
#define min_t(t, a, b) ({ t _a = (a); t _b = (b); _a < _b ? _a : _b; })
#define max_t(t, a, b) ({ t _a = (a); t _b = (b); _a > _b ? _a : _b; })
#define clamp(v, lo, hi) min(max(v, lo), hi)
#define swap(a, b) do { __typeof__(a) _t = (a); (a) = (b); (b) = _t; } while (0)
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#define DIV_ROUND_UP_ULL(n, d) DIV_ROUND_UP((u64)(n), d)
#define rounddown(x, y) ((x) - (x) % (y))
#define roundup(x, y) (DIV_ROUND_UP(x, y) * (y))
#define struct_size(p, member, n) \
	(sizeof(*(p)) + sizeof((p)->member[0]) * (size_t)(n))
#define array_size(a, b) ((size_t)(a) * (size_t)(b))
#define IS_ENABLED(x) 0
/* The sanitizers find a use of a block only after that has been freed. */
#define CONFIG_KASAN 1

/* What the simulation finds wrong by itself: ends the run as a violation. */
void sim_bug(const char *file, int line, const char *what)
	__attribute__((noreturn));
void sim_warn(const char *file, int line, const char *what);
#define SIM_BUG(what) sim_bug(__FILE__, __LINE__, what)
#define BUG_ON(x) do { if (x) SIM_BUG("BUG_ON(" #x ")"); } while (0)
#define WARN_ON_ONCE(x) ({ bool _w = (x); \
			   if (_w) sim_warn(__FILE__, __LINE__, #x); _w; })
#define WARN_ON(x) WARN_ON_ONCE(x)
#define BUILD_BUG_ON(x) _Static_assert(!(x), #x)
#define lockdep_assert_held(l) sim_assert_held(l)
#define lockdep_is_held(l) true

/* A place where another task may run, see sched.c. */
extern int sim_fuse;
void sim_preempt(void);
static inline void sim_point(void)
{
	if (sim_fuse && !--sim_fuse)
		sim_preempt();
}

/* Probes for rare states, see native/dm/base/probe.h. */
void sim_probe(const char *name);

#define READ_ONCE(x) ({ sim_point(); \
			*(const volatile __typeof__(x) *)&(x); })
#define WRITE_ONCE(x, v) do { sim_point(); \
		*(volatile __typeof__(x) *)&(x) = (v); } while (0)
#define smp_mb() sim_point()
#define smp_rmb() sim_point()
#define smp_wmb() sim_point()
#define smp_mb__after_atomic() sim_point()
#define smp_mb__before_atomic() sim_point()
#define smp_load_acquire(p) READ_ONCE(*(p))
#define smp_store_release(p, v) WRITE_ONCE(*(p), v)
#define barrier() do { } while (0)
#define cond_resched() sim_point()
#define xchg(p, v) ({ __typeof__(*(p)) _o = *(p); *(p) = (v); _o; })
#define cmpxchg(p, o, n) ({ __typeof__(*(p)) _c = *(p); \
			    if (_c == (o)) *(p) = (n); _c; })

/* ---- atomics ---- */

typedef struct { int counter; } atomic_t;
typedef struct { s64 counter; } atomic64_t;
typedef struct { long counter; } atomic_long_t;
typedef struct { int refs; } refcount_t;

#define SIM_ATOMIC(name, type, val)						\
static inline val name##_read(const type *a)					\
{ sim_point(); return a->counter; }						\
static inline void name##_set(type *a, val v) { sim_point(); a->counter = v; }	\
static inline val name##_add_return(val v, type *a)				\
{ sim_point(); return a->counter += v; }					\
static inline void name##_add(val v, type *a) { sim_point(); a->counter += v; }	\
static inline void name##_sub(val v, type *a) { sim_point(); a->counter -= v; }	\
static inline void name##_inc(type *a) { name##_add(1, a); }			\
static inline void name##_dec(type *a) { name##_sub(1, a); }			\
static inline val name##_inc_return(type *a) { return name##_add_return(1, a); }\
static inline val name##_dec_return(type *a) { return name##_add_return(-1, a); } \
static inline val name##_sub_return(val v, type *a)				\
{ return name##_add_return(-v, a); }						\
static inline val name##_fetch_add(val v, type *a)				\
{ return name##_add_return(v, a) - v; }						\
static inline bool name##_dec_and_test(type *a)					\
{ return !name##_add_return(-1, a); }						\
static inline bool name##_sub_and_test(val v, type *a)				\
{ return !name##_add_return(-v, a); }						\
static inline val name##_cmpxchg(type *a, val o, val n)				\
{ val was; sim_point(); was = a->counter; if (was == o) a->counter = n; return was; } \
static inline val name##_xchg(type *a, val n)					\
{ val was; sim_point(); was = a->counter; a->counter = n; return was; }		\
static inline bool name##_add_unless(type *a, val v, val u)			\
{ sim_point(); if (a->counter == u) return false; a->counter += v; return true; } \
static inline bool name##_inc_not_zero(type *a) { return name##_add_unless(a, 1, 0); }

SIM_ATOMIC(atomic, atomic_t, int)
SIM_ATOMIC(atomic64, atomic64_t, s64)
SIM_ATOMIC(atomic_long, atomic_long_t, long)

#define ATOMIC_INIT(v) { v }

static inline void refcount_set(refcount_t *r, int n) { r->refs = n; }
static inline int refcount_read(const refcount_t *r) { return r->refs; }
static inline void refcount_add(int n, refcount_t *r)
{
	sim_point();
	BUG_ON(!r->refs);
	r->refs += n;
}
static inline void refcount_inc(refcount_t *r) { refcount_add(1, r); }
static inline bool refcount_inc_not_zero(refcount_t *r)
{
	sim_point();
	if (!r->refs)
		return false;
	r->refs++;
	return true;
}
static inline bool refcount_dec_and_test(refcount_t *r)
{
	sim_point();
	BUG_ON(!r->refs);
	return !--r->refs;
}

/* ---- bits ---- */

#define BITS_PER_LONG 64
#define BIT(n) (1UL << (n))
#define BIT_ULL(n) (1ULL << (n))
#define GENMASK(h, l) ((~0UL << (l)) & (~0UL >> (63 - (h))))
#define BITS_TO_LONGS(n) DIV_ROUND_UP(n, 64)
#define DECLARE_BITMAP(name, n) unsigned long name[BITS_TO_LONGS(n)]

static inline bool test_bit(unsigned long n, const volatile unsigned long *p)
{
	return p[n / 64] >> (n % 64) & 1;
}
static inline void __set_bit(unsigned long n, volatile unsigned long *p)
{
	p[n / 64] |= 1UL << (n % 64);
}
static inline void __clear_bit(unsigned long n, volatile unsigned long *p)
{
	p[n / 64] &= ~(1UL << (n % 64));
}
#define set_bit __set_bit
#define clear_bit __clear_bit
static inline void change_bit(unsigned long n, volatile unsigned long *p)
{
	p[n / 64] ^= 1UL << (n % 64);
}
static inline bool test_and_set_bit(unsigned long n, volatile unsigned long *p)
{
	bool was = test_bit(n, p);

	__set_bit(n, p);
	return was;
}
static inline bool test_and_clear_bit(unsigned long n, volatile unsigned long *p)
{
	bool was = test_bit(n, p);

	__clear_bit(n, p);
	return was;
}
static inline unsigned long sim_next_bit(const unsigned long *p, unsigned long n,
					 unsigned long from, bool set)
{
	while (from < n && test_bit(from, p) != set)
		from++;
	return from < n ? from : n;
}
#define find_next_bit(p, n, from) sim_next_bit(p, n, from, true)
#define find_next_zero_bit(p, n, from) sim_next_bit(p, n, from, false)
#define find_first_bit(p, n) sim_next_bit(p, n, 0, true)
#define find_first_zero_bit(p, n) sim_next_bit(p, n, 0, false)
#define for_each_set_bit(b, p, n) \
	for ((b) = find_first_bit(p, n); (b) < (n); \
	     (b) = find_next_bit(p, n, (b) + 1))
#define for_each_clear_bit(b, p, n) \
	for ((b) = find_first_zero_bit(p, n); (b) < (n); \
	     (b) = find_next_zero_bit(p, n, (b) + 1))
static inline unsigned int bitmap_weight(const unsigned long *p, unsigned int n)
{
	unsigned int i, w = 0;

	for (i = 0; i < n; i++)
		w += test_bit(i, p);
	return w;
}
static inline void bitmap_set(unsigned long *p, unsigned int from, unsigned int n)
{
	while (n--)
		__set_bit(from++, p);
}
static inline void bitmap_clear(unsigned long *p, unsigned int from, unsigned int n)
{
	while (n--)
		__clear_bit(from++, p);
}
static inline void bitmap_zero(unsigned long *p, unsigned int n)
{
	memset(p, 0, BITS_TO_LONGS(n) * 8);
}
static inline void bitmap_copy(unsigned long *to, const unsigned long *p,
			       unsigned int n)
{
	memcpy(to, p, BITS_TO_LONGS(n) * 8);
}
static inline bool bitmap_empty(const unsigned long *p, unsigned int n)
{
	return find_first_bit(p, n) >= n;
}
#define hweight8(x) __builtin_popcount((u8)(x))
#define hweight32(x) __builtin_popcount(x)
#define hweight64(x) __builtin_popcountll(x)
#define ilog2(x) (63 - __builtin_clzll(x))
#define is_power_of_2(x) ((x) && !((x) & ((x) - 1)))
#define fls64(x) ((x) ? 64 - __builtin_clzll(x) : 0)
#define __ffs(x) __builtin_ctzl(x)
/* Any hash does. */
#define hash_64(x, bits) ((u32)((u64)(x) * 0x9e3779b97f4a7c15ULL >> (64 - (bits))))
static inline unsigned long roundup_pow_of_two(unsigned long x)
{
	return x <= 1 ? 1 : 1UL << (64 - __builtin_clzl(x - 1));
}

static inline unsigned long rounddown_pow_of_two(unsigned long x)
{
	unsigned long n = roundup_pow_of_two(x);

	return n > x ? n / 2 : n;
}
static inline u64 div_u64(u64 a, u32 b) { return a / b; }
static inline u64 div64_u64(u64 a, u64 b) { return a / b; }
static inline u64 mul_u64_u32_div(u64 a, u32 b, u32 c)
{
	return (unsigned __int128)a * b / c;
}
static inline u64 mul_u64_u64_div_u64(u64 a, u64 b, u64 c)
{
	return (unsigned __int128)a * b / c;
}
#define do_div(n, d) ({ u32 _r = (n) % (d); (n) /= (d); _r; })
#define cpu_to_le16(x) ((u16)(x))
#define cpu_to_le32(x) ((u32)(x))
#define cpu_to_le64(x) ((u64)(x))
#define le16_to_cpu(x) ((u16)(x))
#define le32_to_cpu(x) ((u32)(x))
#define le64_to_cpu(x) ((u64)(x))

/* ---- errors in pointers ---- */

static inline void *ERR_PTR(long e) { return (void *)e; }
static inline long PTR_ERR(const void *p) { return (long)p; }
static inline bool IS_ERR(const void *p)
{
	return (unsigned long)p >= (unsigned long)-4095L;
}
static inline bool IS_ERR_OR_NULL(const void *p) { return !p || IS_ERR(p); }
static inline int PTR_ERR_OR_ZERO(const void *p)
{
	return IS_ERR(p) ? PTR_ERR(p) : 0;
}
static inline void *ERR_CAST(const void *p) { return (void *)p; }

/* ---- lists ---- */

struct list_head { struct list_head *next, *prev; };
struct hlist_node { struct hlist_node *next, **pprev; };
struct hlist_head { struct hlist_node *first; };
struct llist_node { struct llist_node *next; };
struct llist_head { struct llist_node *first; };

#define LIST_HEAD_INIT(l) { &(l), &(l) }
#define LIST_HEAD(l) struct list_head l = LIST_HEAD_INIT(l)
static inline void INIT_LIST_HEAD(struct list_head *l) { l->next = l->prev = l; }
static inline void sim_link(struct list_head *n, struct list_head *before,
			    struct list_head *after)
{
	n->prev = before;
	n->next = after;
	before->next = n;
	after->prev = n;
}
static inline void list_add(struct list_head *n, struct list_head *l)
{
	sim_link(n, l, l->next);
}
static inline void list_add_tail(struct list_head *n, struct list_head *l)
{
	sim_link(n, l->prev, l);
}
static inline void sim_unlink(struct list_head *n)
{
	if (n->next->prev != n || n->prev->next != n)
		SIM_BUG("a list is damaged");
	n->prev->next = n->next;
	n->next->prev = n->prev;
}
#define SIM_POISON ((void *)0xdead000000000100)
static inline void list_del(struct list_head *n)
{
	sim_unlink(n);
	n->next = n->prev = SIM_POISON;
}
/* Readers under RCU may go on from here. */
static inline void list_del_rcu(struct list_head *n) { sim_unlink(n); }
#define list_add_rcu list_add
#define list_add_tail_rcu list_add_tail
static inline void list_del_init(struct list_head *n)
{
	sim_unlink(n);
	INIT_LIST_HEAD(n);
}
static inline void list_move(struct list_head *n, struct list_head *l)
{
	sim_unlink(n);
	list_add(n, l);
}
static inline void list_move_tail(struct list_head *n, struct list_head *l)
{
	sim_unlink(n);
	list_add_tail(n, l);
}
static inline bool list_empty(const struct list_head *l)
{
	return READ_ONCE(l->next) == l;
}
static inline bool list_is_singular(const struct list_head *l)
{
	return l->next != l && l->next == l->prev;
}
static inline bool list_is_last(const struct list_head *n,
				const struct list_head *l)
{
	return n->next == l;
}
static inline bool list_is_first(const struct list_head *n,
				 const struct list_head *l)
{
	return n->prev == l;
}
static inline void list_rotate_left(struct list_head *l)
{
	if (!list_empty(l))
		list_move_tail(l->next, l);
}
static inline void sim_splice(struct list_head *from, struct list_head *before,
			      struct list_head *after)
{
	if (from->next == from)
		return;
	from->next->prev = before;
	before->next = from->next;
	from->prev->next = after;
	after->prev = from->prev;
	INIT_LIST_HEAD(from);
}
static inline void list_splice_init(struct list_head *from, struct list_head *l)
{
	sim_splice(from, l, l->next);
}
static inline void list_splice_tail_init(struct list_head *from,
					 struct list_head *l)
{
	sim_splice(from, l->prev, l);
}
#define list_splice list_splice_init
#define list_splice_tail list_splice_tail_init
#define list_for_each(pos, head) \
	for (pos = (head)->next; pos != (head); pos = pos->next)

static inline size_t list_count_nodes(struct list_head *l)
{
	struct list_head *n;
	size_t c = 0;

	for (n = l->next; n != l; n = n->next)
		c++;
	return c;
}
#define list_entry(p, type, member) container_of(p, type, member)
#define list_first_entry(l, type, member) list_entry((l)->next, type, member)
#define list_last_entry(l, type, member) list_entry((l)->prev, type, member)
#define list_next_entry(p, member) \
	list_entry((p)->member.next, __typeof__(*(p)), member)
#define list_prev_entry(p, member) \
	list_entry((p)->member.prev, __typeof__(*(p)), member)
#define list_first_entry_or_null(l, type, member) \
	((l)->next == (l) ? NULL : list_first_entry(l, type, member))
#define list_for_each_entry(p, l, member)					\
	for ((p) = list_first_entry(l, __typeof__(*(p)), member);		\
	     &(p)->member != (l); (p) = list_next_entry(p, member))
#define list_for_each_entry_continue(p, l, member)				\
	for ((p) = list_next_entry(p, member); &(p)->member != (l);		\
	     (p) = list_next_entry(p, member))
#define list_for_each_entry_from(p, l, member)					\
	for (; &(p)->member != (l); (p) = list_next_entry(p, member))
#define list_for_each_entry_reverse(p, l, member)				\
	for ((p) = list_last_entry(l, __typeof__(*(p)), member);		\
	     &(p)->member != (l); (p) = list_prev_entry(p, member))
#define list_for_each_entry_safe(p, n, l, member)				\
	for ((p) = list_first_entry(l, __typeof__(*(p)), member),		\
	     (n) = list_next_entry(p, member); &(p)->member != (l);		\
	     (p) = (n), (n) = list_next_entry(n, member))
#define list_for_each_entry_lockless(p, l, member)				\
	for ((p) = list_first_entry(l, __typeof__(*(p)), member);		\
	     &(p)->member != (l);						\
	     sim_point(), (p) = list_next_entry(p, member))
/* Without RCU, one of the locks that the caller names must be held. */
void sim_rcu_walk(bool locked);
#define list_for_each_entry_rcu(p, l, member, ...)				\
	for (sim_rcu_walk(0 __VA_OPT__(|| (__VA_ARGS__))),			\
	     (p) = list_first_entry(l, __typeof__(*(p)), member);		\
	     &(p)->member != (l);						\
	     sim_point(), (p) = list_next_entry(p, member))
typedef int (*list_cmp_func_t)(void *, const struct list_head *,
			       const struct list_head *);
void list_sort(void *priv, struct list_head *l, list_cmp_func_t cmp);

static inline void INIT_HLIST_HEAD(struct hlist_head *h) { h->first = NULL; }
static inline void INIT_HLIST_NODE(struct hlist_node *n)
{
	n->next = NULL;
	n->pprev = NULL;
}
static inline void hlist_add_head(struct hlist_node *n, struct hlist_head *h)
{
	n->next = h->first;
	if (n->next)
		n->next->pprev = &n->next;
	h->first = n;
	n->pprev = &h->first;
}
#define hlist_add_head_rcu hlist_add_head
static inline void hlist_del_rcu(struct hlist_node *n)
{
	*n->pprev = n->next;
	if (n->next)
		n->next->pprev = n->pprev;
	n->pprev = SIM_POISON;
}
#define hlist_del hlist_del_rcu
static inline void hlist_replace_rcu(struct hlist_node *old,
				     struct hlist_node *new)
{
	new->next = old->next;
	new->pprev = old->pprev;
	*new->pprev = new;
	if (new->next)
		new->next->pprev = &new->next;
	old->pprev = SIM_POISON;
}
#define hlist_entry_safe(p, type, member) \
	({ struct hlist_node *_p = (p); _p ? container_of(_p, type, member) : NULL; })
#define hlist_for_each_entry_rcu(p, h, member, ...)				\
	for ((p) = hlist_entry_safe((h)->first, __typeof__(*(p)), member); (p);	\
	     (p) = hlist_entry_safe((p)->member.next, __typeof__(*(p)), member))
#define hlist_for_each_entry hlist_for_each_entry_rcu

static inline void init_llist_head(struct llist_head *l) { l->first = NULL; }
static inline bool llist_empty(const struct llist_head *l) { return !l->first; }
static inline bool llist_add(struct llist_node *n, struct llist_head *l)
{
	sim_point();
	n->next = l->first;
	l->first = n;
	return !n->next;
}
static inline struct llist_node *llist_del_all(struct llist_head *l)
{
	struct llist_node *n;

	sim_point();
	n = l->first;
	l->first = NULL;
	return n;
}
static inline struct llist_node *llist_reverse_order(struct llist_node *n)
{
	struct llist_node *r = NULL, *next;

	for (; n; n = next) {
		next = n->next;
		n->next = r;
		r = n;
	}
	return r;
}
#define llist_entry_safe(p, type, member) \
	({ struct llist_node *_p = (p); _p ? container_of(_p, type, member) : NULL; })
#define llist_for_each_entry_safe(p, n, first, member)				\
	for ((p) = llist_entry_safe(first, __typeof__(*(p)), member);		\
	     (p) && ((n) = llist_entry_safe((p)->member.next,			\
					    __typeof__(*(p)), member), true);	\
	     (p) = (n))
#define llist_for_each_entry(p, first, member)					\
	for ((p) = llist_entry_safe(first, __typeof__(*(p)), member); (p);	\
	     (p) = llist_entry_safe((p)->member.next, __typeof__(*(p)), member))

/* ---- interval trees: a list does for a few dozen ranges ---- */

struct rb_node { struct rb_node *next, **pprev; };
struct rb_root { struct rb_node *rb_node; };
struct rb_root_cached { struct rb_root rb_root; };
#define RB_ROOT_CACHED (struct rb_root_cached) { { NULL } }
#define RB_ROOT (struct rb_root) { NULL }
#define RB_EMPTY_ROOT(r) (!(r)->rb_node)

static inline void sim_rb_add(struct rb_node *n, struct rb_root_cached *r)
{
	n->next = r->rb_root.rb_node;
	if (n->next)
		n->next->pprev = &n->next;
	r->rb_root.rb_node = n;
	n->pprev = &r->rb_root.rb_node;
}
static inline void sim_rb_del(struct rb_node *n)
{
	BUG_ON(!n->pprev || *n->pprev != n);
	*n->pprev = n->next;
	if (n->next)
		n->next->pprev = n->pprev;
	n->pprev = NULL;
}
#define INTERVAL_TREE_DEFINE(type, rb, itype, sub, START, LAST, attr, prefix)	\
attr void prefix##_insert(type *n, struct rb_root_cached *r)			\
{										\
	sim_rb_add(&n->rb, r);							\
}										\
attr void prefix##_remove(type *n, struct rb_root_cached *r)			\
{										\
	sim_rb_del(&n->rb);							\
}										\
attr type *prefix##_iter_first(struct rb_root_cached *r, itype from, itype to)	\
{										\
	struct rb_node *i;							\
	type *best = NULL;							\
										\
	for (i = r->rb_root.rb_node; i; i = i->next) {				\
		type *n = container_of(i, type, rb);				\
										\
		if (START(n) <= to && from <= LAST(n) &&			\
		    (!best || START(n) < START(best)))				\
			best = n;						\
	}									\
	return best;								\
}

/* ---- memory ---- */

struct page { unsigned long private; unsigned int order; unsigned int used; };
struct kmem_cache { unsigned int size; };
typedef struct mempool_s mempool_t;

#define GFP_KERNEL 0U
#define GFP_NOIO 1U
#define GFP_NOWAIT 2U
#define GFP_ATOMIC 4U
#define GFP_NOFS 8U
#define __GFP_NOWARN 16U
#define __GFP_NORETRY 32U
#define __GFP_ZERO 64U
#define SLAB_RECLAIM_ACCOUNT 0

void *sim_alloc(size_t size, gfp_t gfp);
void sim_free(const void *p);
struct page *sim_page_alloc(gfp_t gfp);
void sim_page_free(struct page *page);
void *page_address(const struct page *page);
struct page *virt_to_page(const void *p);

static inline void *sim_zalloc(size_t size, gfp_t gfp)
{
	void *p = sim_alloc(size, gfp);

	if (p)
		memset(p, 0, size);
	return p;
}
#define kmalloc(s, g) sim_alloc(s, g)
#define kzalloc(s, g) sim_zalloc(s, g)
#define kmalloc_array(n, s, g) sim_alloc(array_size(n, s), g)
#define kcalloc(n, s, g) sim_zalloc(array_size(n, s), g)
#define kvmalloc(s, g) sim_alloc(s, g)
#define kvzalloc(s, g) sim_zalloc(s, g)
#define kvmalloc_array(n, s, g) sim_alloc(array_size(n, s), g)
#define kvcalloc(n, s, g) sim_zalloc(array_size(n, s), g)
#define vmalloc(s) sim_alloc(s, GFP_KERNEL)
#define vzalloc(s) sim_zalloc(s, GFP_KERNEL)
#define vmalloc_huge(s, g) ((g) & __GFP_ZERO ? sim_zalloc(s, g) : sim_alloc(s, g))
#define kfree(p) sim_free(p)
#define kvfree(p) sim_free(p)
#define vfree(p) sim_free(p)
#define bitmap_zalloc(n, g) ((unsigned long *)sim_zalloc(BITS_TO_LONGS(n) * 8, g))
#define bitmap_free(p) sim_free(p)
#define alloc_page(g) sim_page_alloc(g)
#define __free_page(p) sim_page_free(p)
#define __get_free_page(g) \
	({ struct page *_p = sim_page_alloc(g); \
	   _p ? (unsigned long)page_address(_p) : 0UL; })
#define free_page(a) sim_page_free(virt_to_page((void *)(a)))
#define is_vmalloc_addr(p) false
#define vmalloc_to_page(p) virt_to_page(p)
#define offset_in_page(p) ((unsigned long)(p) & (PAGE_SIZE - 1))
#define page_private(p) ((p)->private)
#define set_page_private(p, v) ((p)->private = (v))
#define copy_page(to, from) memcpy(to, from, PAGE_SIZE)
#define clear_page(p) memset(p, 0, PAGE_SIZE)
#define totalram_pages() 65536UL
#define memalloc_noio_save() 0U
#define memalloc_noio_restore(f) ((void)(f))
#define memalloc_nofs_save() 0U
#define memalloc_nofs_restore(f) ((void)(f))

struct kmem_cache *sim_cache_make(unsigned int size);
#define KMEM_CACHE(s, flags) sim_cache_make(sizeof(struct s))
#define kmem_cache_alloc(c, g) sim_alloc((c)->size, g)
#define kmem_cache_zalloc(c, g) sim_zalloc((c)->size, g)
#define kmem_cache_free(c, p) sim_free(p)
#define kmem_cache_destroy(c) sim_free(c)

typedef void *(mempool_alloc_t)(gfp_t gfp, void *data);
typedef void (mempool_free_t)(void *element, void *data);
struct mempool_s {
	mempool_alloc_t *alloc;
	mempool_free_t *free;
	void *data;
	int min;
	int kept;
	void **keep;
};
int mempool_init(mempool_t *m, int min, mempool_alloc_t *alloc,
		 mempool_free_t *free, void *data);
int mempool_init_slab_pool(mempool_t *m, int min, struct kmem_cache *c);
int mempool_init_page_pool(mempool_t *m, int min, int order);
int mempool_init_kmalloc_pool(mempool_t *m, int min, size_t size);
void mempool_exit(mempool_t *m);
void *mempool_alloc(mempool_t *m, gfp_t gfp);
void mempool_free(void *element, mempool_t *m);

/* One processor. */
#define DEFINE_PER_CPU(type, name) type name
#define raw_cpu_ptr(p) (p)
#define per_cpu_ptr(p, cpu) ((void)(cpu), (p))
#define raw_smp_processor_id() 0U
#define nr_cpu_ids 1U
#define for_each_possible_cpu(cpu) for ((cpu) = 0; (cpu) < 1; (cpu)++)

struct shrink_control { unsigned long nr_to_scan; };
struct shrinker {
	unsigned long (*count_objects)(struct shrinker *, struct shrink_control *);
	unsigned long (*scan_objects)(struct shrinker *, struct shrink_control *);
	int seeks;
};
#define SHRINK_STOP (~0UL)
#define DEFAULT_SEEKS 2
#define shrinker_alloc(flags, ...) \
	((struct shrinker *)sim_zalloc(sizeof(struct shrinker), GFP_KERNEL))
#define shrinker_register(s) ((void)(s))
#define shrinker_free(s) sim_free(s)

/* ---- xarrays: indexed directly, since devices are small ---- */

struct xarray {
	struct sim_spinlock { int held; } xa_lock;
	unsigned long size;
	void **slot;
};
#define XA_FLAGS_LOCK_IRQ 0
#define XA_PRESENT 0
void xa_init_flags(struct xarray *xa, gfp_t flags);
#define xa_init(xa) xa_init_flags(xa, 0)
void *xa_load(struct xarray *xa, unsigned long index);
void *xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp);
void *__xa_cmpxchg(struct xarray *xa, unsigned long index, void *old,
		   void *entry, gfp_t gfp);
void *xa_find(struct xarray *xa, unsigned long *index, unsigned long max, int f);
#define xa_erase(xa, i) xa_store(xa, i, NULL, 0)
void xa_destroy(struct xarray *xa);
#define xa_empty(xa) ({ unsigned long _i = 0; !xa_find(xa, &_i, ULONG_MAX, 0); })
#define xa_mk_value(v) ((void *)(((unsigned long)(v) << 1) | 1))
#define xa_to_value(p) ((unsigned long)(p) >> 1)
#define xa_is_value(p) ((unsigned long)(p) & 1)
#define xa_is_err(p) IS_ERR(p)
#define xa_err(p) (IS_ERR(p) ? (int)PTR_ERR(p) : 0)
#define xa_for_each(xa, i, e) \
	for ((i) = 0; ((e) = xa_find(xa, &(i), ULONG_MAX, 0)); (i)++)
#define xa_lock_irq(xa) spin_lock_irq(&(xa)->xa_lock)
#define xa_unlock_irq(xa) spin_unlock_irq(&(xa)->xa_lock)
#define xa_lock_irqsave(xa, f) spin_lock_irqsave(&(xa)->xa_lock, f)
#define xa_unlock_irqrestore(xa, f) spin_unlock_irqrestore(&(xa)->xa_lock, f)

/* ---- text, random numbers and parameters ---- */

int kstrtou32(const char *s, unsigned int base, u32 *out);
int kstrtou64(const char *s, unsigned int base, u64 *out);
#define kstrtouint kstrtou32
ssize_t sim_strscpy(char *to, const char *from, size_t size);
#define strscpy(to, from, size) sim_strscpy(to, from, size)
int scnprintf(char *buf, size_t size, const char *fmt, ...) __printf(3, 4);
void sim_log(const char *level, const char *fmt, ...) __printf(2, 3);
#define pr_err(...) sim_log("error", __VA_ARGS__)
#define pr_warn(...) sim_log("warning", __VA_ARGS__)
#define pr_info(...) sim_log("info", __VA_ARGS__)
u64 sim_random_bytes(void);
#define get_random_u64() sim_random_bytes()
#define get_random_u32() ((u32)sim_random_bytes())
static inline void get_random_bytes(void *p, size_t n)
{
	u8 *b = p;

	while (n--)
		*b++ = sim_random_bytes();
}
#define generate_random_uuid(p) get_random_bytes(p, 16)
u32 crc32c(u32 crc, const void *p, size_t n);
void sort(void *base, size_t n, size_t size,
	  int (*cmp)(const void *, const void *),
	  void (*swp)(void *, void *, int));
struct ratelimit_state { int unused; };
#define DEFINE_RATELIMIT_STATE(n, i, b) struct ratelimit_state n
#define __ratelimit(s) ((void)(s), 1)
struct kernel_param { void *arg; };
struct kernel_param_ops {
	int flags;
	int (*set)(const char *val, const struct kernel_param *kp);
	int (*get)(char *buf, const struct kernel_param *kp);
};
#define param_set_uint_minmax(v, kp, lo, hi) ((void)(v), 0)
#define param_get_uint NULL
#define module_param_cb(n, ops, arg, mode) \
	static const void *sim_param_##n __maybe_unused = (ops)
#define module_param(n, t, mode) t *const sim_param_##n = &n
#define MODULE_PARM_DESC(...) _Static_assert(1, "")
#define MODULE_DESCRIPTION(x) _Static_assert(1, "")
#define MODULE_AUTHOR(x) _Static_assert(1, "")
#define MODULE_LICENSE(x) _Static_assert(1, "")
#define MODULE_ALIAS(x) _Static_assert(1, "")
#define module_init(f) int sim_module_init(void) { return f(); }
#define module_exit(f) void sim_module_exit(void) { f(); }
#define EXPORT_SYMBOL_GPL(x)

#endif
