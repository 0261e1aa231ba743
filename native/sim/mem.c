// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: memory. All memory of the world is in one arena, so a world is thrown away,
 * saved and restored at once. Static variables of the module and of the simulated kernel are
 * in sections of their own for the same reason.
 */
#include <sys/mman.h>

#include "sim.h"

#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#define SIM_ARENA (4096UL << 20) /* what was freed is not used again */
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define SIM_ARENA (96UL << 20)
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif
#define SIM_PAGES (SIM_ARENA >> PAGE_SHIFT)
#define CLASSES 8		/* 32 to 4096 bytes, header included */
#define RUNS 65
#define MAGIC 0x51a110ccU
#define FREED 0xf4eef4eeU

struct header { u32 magic; u32 class; u64 size; };

static u8 *arena;
static struct page *pages;
SIM_WORLD static size_t top;
SIM_WORLD static void *small[CLASSES];
SIM_WORLD static void *runs[RUNS];
SIM_WORLD static u8 *slab;
SIM_WORLD static size_t slab_left;
SIM_WORLD bool sim_no_memory;

void sim_mem_init(void)
{
	arena = mmap(NULL, SIM_ARENA, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pages = mmap(NULL, SIM_PAGES * sizeof(*pages), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED || pages == MAP_FAILED)
		abort();
}

void sim_mem_reset(void)
{
	UNPOISON(arena, top);
	top = 0;
	slab_left = 0;
	memset(small, 0, sizeof(small));
	memset(runs, 0, sizeof(runs));
	sim_no_memory = false;
}

static void *run_alloc(u32 n)
{
	u8 *p;
	size_t i;

	if (n < RUNS && runs[n]) {
		p = runs[n];
		UNPOISON(p, n * PAGE_SIZE);
		memcpy(&runs[n], p, sizeof(void *));
	} else {
		if (top + n * PAGE_SIZE > SIM_ARENA)
			SIM_BUG("the simulated machine has no memory left");
		p = arena + top;
		top += n * PAGE_SIZE;
		UNPOISON(p, n * PAGE_SIZE);
	}
	i = (p - arena) >> PAGE_SHIFT;
	pages[i].order = n;
	pages[i].used = MAGIC;
	return p;
}

static void run_free(u8 *p)
{
	size_t i = (p - arena) >> PAGE_SHIFT;
	u32 n = pages[i].order;

	if (pages[i].used != MAGIC)
		SIM_BUG("pages are freed twice");
	pages[i].used = FREED;
#ifndef SIM_ASAN
	if (n < RUNS) {
		memcpy(p, &runs[n], sizeof(void *));
		runs[n] = p;
	}
#endif
	POISON(p, n * PAGE_SIZE);
}

void *sim_alloc(size_t size, gfp_t gfp)
{
	size_t need = size + sizeof(struct header);
	struct header *h;
	u32 class = 0;

	/* The samples of miss-ratio curves: a tag works without, and they take time. */
	if (gfp & __GFP_NORETRY && size > 65536)
		return NULL;
	if (gfp & GFP_NOWAIT && sim_no_memory && sim_chance(&sim_rng, 3))
		return NULL;
	if (need > 2048)
		return run_alloc((size + PAGE_SIZE - 1) / PAGE_SIZE ?: 1);
	while (32U << class < need)
		class++;
	if (small[class]) {
		h = small[class];
		UNPOISON(h, 32U << class);
		memcpy(&small[class], h + 1, sizeof(void *));
	} else {
		if (slab_left < (32U << class) + 16) {
			slab = run_alloc(4);
			/* So that nothing small is at the start of a page. */
			slab += 16;
			slab_left = 4 * PAGE_SIZE - 16;
		}
		h = (struct header *)slab;
		if (!((unsigned long)(h + 1) & (PAGE_SIZE - 1))) {
			slab += 16;
			slab_left -= 16;
			h = (struct header *)slab;
		}
		slab += 32U << class;
		slab_left -= 32U << class;
	}
	h->magic = MAGIC;
	h->class = class;
	h->size = size;
	POISON((u8 *)(h + 1) + size, (32U << class) - need);
	return h + 1;
}

void sim_free(const void *p)
{
	struct header *h;
	u32 class;

	if (!p || IS_ERR(p))
		return;
	h = (struct header *)p - 1;
	if ((u8 *)p < arena || (u8 *)p >= arena + top)
		SIM_BUG("memory is freed that was not allocated");
	if (!((unsigned long)p & (PAGE_SIZE - 1))) {
		run_free((u8 *)p);
		return;
	}
	if (h->magic != MAGIC)
		SIM_BUG(h->magic == FREED ? "memory is freed twice" :
			"memory is freed that was not allocated");
	class = h->class;
	h->magic = FREED;
#ifndef SIM_ASAN
	memset(h + 1, 0x6b, min_t(size_t, h->size, 64));
	memcpy(h + 1, &small[class], sizeof(void *));
	small[class] = h;
#endif
	POISON(h + 1, (32U << class) - sizeof(*h));
}

struct page *sim_page_alloc(gfp_t gfp)
{
	struct page *page;

	if (gfp & GFP_NOWAIT && sim_no_memory && sim_chance(&sim_rng, 3))
		return NULL;
	page = virt_to_page(run_alloc(1));
	page->private = 0;
	return page;
}

void sim_page_free(struct page *page)
{
	run_free(page_address(page));
}

void *page_address(const struct page *page)
{
	return arena + ((page - pages) << PAGE_SHIFT);
}

struct page *virt_to_page(const void *p)
{
	return &pages[((const u8 *)p - arena) >> PAGE_SHIFT];
}

struct kmem_cache *sim_cache_make(unsigned int size)
{
	struct kmem_cache *c = sim_zalloc(sizeof(*c), GFP_KERNEL);

	c->size = size;
	return c;
}

/* ---- memory pools ---- */

static void *slab_alloc(gfp_t gfp, void *data)
{
	return kmem_cache_alloc((struct kmem_cache *)data, gfp);
}

static void slab_free(void *e, void *data)
{
	sim_free(e);
}

static void *page_alloc(gfp_t gfp, void *data)
{
	return sim_page_alloc(gfp);
}

static void page_free(void *e, void *data)
{
	sim_page_free(e);
}

static void *size_alloc(gfp_t gfp, void *data)
{
	return sim_alloc((size_t)data, gfp);
}

/* Reserves are filled only where allocations can fail, see mempool_alloc(). */
int mempool_init(mempool_t *m, int min, mempool_alloc_t *alloc,
		 mempool_free_t *free, void *data)
{
	m->alloc = alloc;
	m->free = free;
	m->data = data;
	m->min = min;
	m->kept = 0;
	m->keep = sim_zalloc(min * sizeof(void *), GFP_KERNEL);
	return 0;
}

int mempool_init_slab_pool(mempool_t *m, int min, struct kmem_cache *c)
{
	return mempool_init(m, min, slab_alloc, slab_free, c);
}

int mempool_init_page_pool(mempool_t *m, int min, int order)
{
	return mempool_init(m, min, page_alloc, page_free, NULL);
}

int mempool_init_kmalloc_pool(mempool_t *m, int min, size_t size)
{
	return mempool_init(m, min, size_alloc, slab_free, (void *)size);
}

void mempool_exit(mempool_t *m)
{
	while (m->kept)
		m->free(m->keep[--m->kept], m->data);
	sim_free(m->keep);
	m->keep = NULL;
}

/*
 * An element is allocated; if that fails, it comes out of the reserve. The reserve is counted,
 * not filled: @kept says how many elements of it are in use.
 */
void *mempool_alloc(mempool_t *m, gfp_t gfp)
{
	return m->alloc(gfp, m->data);
}

void mempool_free(void *element, mempool_t *m)
{
	if (element)
		m->free(element, m->data);
}

/* ---- saving the world ---- */

struct sim_saved {
	size_t top;
	size_t world;
	size_t data;
	size_t bss;
	u8 *arena;
	u8 *statics;
	struct page *pages;
	size_t had;
};

extern u8 __start_simworld[], __stop_simworld[];
extern u8 __start_simmoddata[], __stop_simmoddata[];
extern u8 __start_simmodbss[], __stop_simmodbss[];

/* memcpy() under ASan would refuse to read between variables. */
__attribute__((no_sanitize_address, __noinline__))
static void copy(u8 *to, const u8 *from, size_t n)
{
	u64 *t = (u64 *)to;
	const u64 *f = (const u64 *)from;
	size_t i;

	for (i = 0; i < n / 8; i++)
		t[i] = f[i];
	for (i *= 8; i < n; i++)
		to[i] = from[i];
}

struct sim_saved *sim_save(struct sim_saved *s)
{
	if (!s)
		s = calloc(1, sizeof(*s));
	s->world = __stop_simworld - __start_simworld;
	s->data = __stop_simmoddata - __start_simmoddata;
	s->bss = __stop_simmodbss - __start_simmodbss;
	s->statics = realloc(s->statics, s->world + s->data + s->bss);
	copy(s->statics, __start_simworld, s->world);
	copy(s->statics + s->world, __start_simmoddata, s->data);
	copy(s->statics + s->world + s->data, __start_simmodbss, s->bss);
	s->top = top;
	s->arena = realloc(s->arena, top ?: 1);
	s->pages = realloc(s->pages, (top >> PAGE_SHIFT) * sizeof(*pages) ?: 1);
	copy(s->arena, arena, top);
	copy((u8 *)s->pages, (u8 *)pages, (top >> PAGE_SHIFT) * sizeof(*pages));
	return s;
}

void sim_restore(const struct sim_saved *s)
{
	UNPOISON(arena, max(top, s->top));
	copy(__start_simworld, s->statics, s->world);
	copy(__start_simmoddata, s->statics + s->world, s->data);
	copy(__start_simmodbss, s->statics + s->world + s->data, s->bss);
	copy(arena, s->arena, s->top);
	copy((u8 *)pages, (u8 *)s->pages, (s->top >> PAGE_SHIFT) * sizeof(*pages));
}
