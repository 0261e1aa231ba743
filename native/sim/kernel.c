// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulation: small functions of the kernel, the netlink family, and probes.
 */
#include "sim.h"

SIM_WORLD static struct genl_family *family;
SIM_WORLD u64 sim_genl_reply;
struct sim_probe_count sim_probes[SIM_PROBES];
bool sim_verbose;

void list_sort(void *priv, struct list_head *l, list_cmp_func_t cmp)
{
	LIST_HEAD(sorted);

	while (l->next != l) {
		struct list_head *n = l->next, *at = sorted.prev;

		sim_unlink(n);
		while (at != &sorted && cmp(priv, at, n) > 0)
			at = at->prev;
		list_add(n, at);
	}
	list_splice_init(&sorted, l);
}

void sort(void *base, size_t n, size_t size,
	  int (*cmp)(const void *, const void *), void (*swp)(void *, void *, int))
{
	qsort(base, n, size, cmp);
}

void xa_init_flags(struct xarray *xa, gfp_t flags)
{
	memset(xa, 0, sizeof(*xa));
}

void *xa_load(struct xarray *xa, unsigned long index)
{
	sim_point();
	return index < xa->size ? xa->slot[index] : NULL;
}

static int grow(struct xarray *xa, unsigned long index, gfp_t gfp)
{
	unsigned long size = roundup_pow_of_two(index + 64);
	void **slot;

	if (index < xa->size)
		return 0;
	if (index > 65536)
		SIM_BUG("an index of an xarray is too large for the simulation");
	slot = sim_zalloc(size * sizeof(*slot), gfp);
	if (!slot)
		return -ENOMEM;
	if (xa->size)
		memcpy(slot, xa->slot, xa->size * sizeof(*slot));
	/* Readers may use the old one. */
	if (xa->slot)
		sim_free_rcu(xa->slot);
	xa->slot = slot;
	xa->size = size;
	return 0;
}

void *__xa_cmpxchg(struct xarray *xa, unsigned long index, void *old, void *entry,
		   gfp_t gfp)
{
	void *was = index < xa->size ? xa->slot[index] : NULL;

	/* The node of an entry is there. It may be missing although the array is large enough. */
	if (was != old)
		return was;
	if (entry && !old && gfp & GFP_NOWAIT && sim_no_memory && sim_chance(&sim_rng, 6))
		return ERR_PTR(-ENOMEM);
	if (entry && grow(xa, index, gfp))
		return ERR_PTR(-ENOMEM);
	if (index < xa->size)
		xa->slot[index] = entry;
	return was;
}

void *xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	void *was;

	sim_point();
	if (entry && grow(xa, index, gfp))
		return ERR_PTR(-ENOMEM);
	was = index < xa->size ? xa->slot[index] : NULL;
	if (index < xa->size)
		xa->slot[index] = entry;
	return was;
}

void *xa_find(struct xarray *xa, unsigned long *index, unsigned long last, int f)
{
	unsigned long i;

	sim_point();
	for (i = *index; i <= last && i < xa->size; i++) {
		if (xa->slot[i]) {
			*index = i;
			return xa->slot[i];
		}
	}
	return NULL;
}

void xa_destroy(struct xarray *xa)
{
	sim_free(xa->slot);
	memset(xa, 0, sizeof(*xa));
}

int kstrtou64(const char *s, unsigned int base, u64 *out)
{
	char *end;

	if (!s || *s < '0' || *s > '9')
		return -EINVAL;
	*out = strtoull(s, &end, base);
	return *end ? -EINVAL : 0;
}

int kstrtou32(const char *s, unsigned int base, u32 *out)
{
	u64 v;
	int r = kstrtou64(s, base, &v);

	if (!r && v > U32_MAX)
		r = -ERANGE;
	if (!r)
		*out = v;
	return r;
}

ssize_t sim_strscpy(char *to, const char *from, size_t size)
{
	snprintf(to, size, "%s", from);
	return strlen(to);
}

int scnprintf(char *buf, size_t size, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(buf, size, fmt, args);
	va_end(args);
	return n < (int)size ? n : (int)size - 1;
}

void sim_log(const char *level, const char *fmt, ...)
{
	va_list args;

	if (!sim_verbose)
		return;
	fprintf(stderr, "[%lu] %s: ", sim_jiffies, level);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

SIM_WORLD static struct sim_rng bytes;
u64 sim_random_bytes(void)
{
	return sim_rand(&bytes);
}

__attribute__((target("sse4.2")))
u32 crc32c(u32 crc, const void *p, size_t n)
{
	const u8 *b = p;
	u64 c = crc, w;

	for (; n >= 8; n -= 8, b += 8) {
		memcpy(&w, b, 8);
		c = __builtin_ia32_crc32di(c, w);
	}
	while (n--)
		c = __builtin_ia32_crc32qi(c, *b++);
	return c;
}

/* ---- netlink ---- */

int genl_register_family(struct genl_family *f)
{
	family = f;
	return 0;
}

/*
 * Send a request as the agent does. Return: what the handler returns; -ENOSYS if the family has
 * no such command.
 */
int sim_genl(u8 cmd, const struct sim_attr *attrs, unsigned int n)
{
	u8 message[1024 + PAGE_SIZE] __attribute__((aligned(8))) = { 0 };
	struct nlmsghdr *nlh = (struct nlmsghdr *)message;
	struct nlattr *table[256] = { NULL };
	struct netlink_ext_ack extack = { NULL, NULL };
	struct genlmsghdr *head = (struct genlmsghdr *)(nlh + 1);
	struct genl_info info = {
		.genlhdr = head, .nlhdr = nlh, .attrs = table, .extack = &extack,
	};
	struct sk_buff skb = { 0, 1 };
	struct genl_split_ops op = { cmd };
	u32 at = sizeof(*nlh) + GENL_HDRLEN;
	unsigned int i;
	int r;

	for (i = 0; i < n; i++) {
		struct nlattr *a = (struct nlattr *)(message + at);

		a->nla_len = attrs[i].len + 4;
		a->nla_type = attrs[i].type;
		if (attrs[i].len)
			memcpy(a + 1, attrs[i].data, attrs[i].len);
		table[attrs[i].type] = a;
		at += (a->nla_len + 3) & ~3;
	}
	nlh->nlmsg_len = at;
	head->cmd = cmd;
	for (i = 0; family && i < family->n_ops; i++) {
		const struct genl_ops *o = &family->ops[i];

		if (o->cmd != cmd || !o->doit)
			continue;
		r = family->pre_doit ? family->pre_doit(&op, &skb, &info) : 0;
		r = r ?: o->doit(&skb, &info);
		sim_genl_reply = info.sim_reply;
		if (extack._msg)
			sim_log("netlink", "%s", extack._msg);
		return r;
	}
	return -ENOSYS;
}

/* ---- probes and checks ---- */

void sim_check(bool holds, const char *what)
{
	if (!holds)
		SIM_BUG(what);
}

void sim_probe(const char *name)
{
	int i;

	for (i = 0; i < SIM_PROBES; i++) {
		if (!sim_probes[i].name)
			sim_probes[i].name = name;
		if (sim_probes[i].name == name || !strcmp(sim_probes[i].name, name)) {
			sim_probes[i].hits++;
			return;
		}
	}
}
